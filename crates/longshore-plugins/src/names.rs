//! Names of resources and values of labels, exactly as upstream makes them from texts that may hold anything.

use longshore_k8s::names::is_subdomain;

/// Longest value of a label.
const MAX_LABEL: usize = 63;
/// Longest name of a resource (a DNS-1123 subdomain).
const MAX_SUBDOMAIN: usize = 253;
/// What upstream leaves for the hash at the end of a name that is too long.
const MAX_UNIQUE_ID: usize = 20;

/// A label's value: what is not allowed becomes `-`, at the ends `x`; the rest is cut off after 63 characters.
///
/// Texts that differ may become the same value; nothing is looked up by these.
pub fn label_value(text: &str) -> String {
    let mut value: String = text
        .chars()
        .map(|c| if is_label_inner(c) { c } else { '-' })
        .take(MAX_LABEL)
        .collect();
    if value.starts_with(is_no_alphanumeric) {
        value.replace_range(..1, "x");
    }
    if value.ends_with(is_no_alphanumeric) {
        value.truncate(value.len() - 1);
        value.push('x');
    }
    value
}

fn is_label_inner(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn is_no_alphanumeric(c: char) -> bool {
    !c.is_ascii_alphanumeric()
}

/// The text itself where it is short enough, else `f` and seven characters of its hash.
pub fn fixed_length_unique_id(text: &str, max_length: usize) -> String {
    if text.len() <= max_length {
        text.to_owned()
    } else {
        format!("f{}", base32(&fnv1a_32(text.as_bytes()).to_be_bytes()))
    }
}

/// A name that a resource can have: camel case becomes kebab case, and what is not allowed is left out.
pub fn subdomain(name: &str) -> String {
    if is_subdomain(name) {
        return name.to_owned();
    }
    let mut kebab = String::with_capacity(name.len());
    let mut previous = '-';
    for c in name.chars() {
        if c.is_ascii_uppercase() && (previous.is_ascii_lowercase() || previous.is_ascii_digit()) {
            kebab.push('-');
        }
        previous = c;
        let lower = c.to_lowercase();
        kebab.extend(lower.filter(|c| is_subdomain_inner(*c) || *c == '.'));
    }
    let allowed = kebab.trim_matches(['.', '-']);
    if allowed.len() <= MAX_SUBDOMAIN {
        return allowed.to_owned();
    }
    let hash = fixed_length_unique_id(allowed, MAX_UNIQUE_ID);
    format!("{}-{hash}", &allowed[..MAX_SUBDOMAIN - MAX_UNIQUE_ID - 1])
}

fn is_subdomain_inner(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

/// Upstream's base 32: `a` to `z`, then `1` to `6`, without padding.
pub(crate) fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz123456";
    let mut text = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let mut waiting: u32 = 0;
    let mut n_bits = 0;
    for byte in bytes {
        waiting = waiting << 8 | u32::from(*byte);
        n_bits += 8;
        while n_bits >= 5 {
            n_bits -= 5;
            text.push(char::from(DIGITS[(waiting >> n_bits & 31) as usize]));
        }
    }
    if n_bits > 0 {
        text.push(char::from(DIGITS[(waiting << (5 - n_bits) & 31) as usize]));
    }
    text
}

/// FNV-1a, 32 bits.
pub(crate) fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::vectors;

    fn check(name: &str, function: impl Fn(&str) -> String) {
        for vector in vectors()[name].as_array().unwrap() {
            let text = vector["in"].as_str().unwrap();
            assert_eq!(
                function(text),
                vector["out"].as_str().unwrap(),
                "of {text:?}"
            );
        }
    }

    #[test]
    fn names_and_values_are_upstreams() {
        check("sanitizeLabelValue", label_value);
        check("dns1123", subdomain);
        check("fixedLengthUniqueID", |text| {
            fixed_length_unique_id(text, 47)
        });
    }

    #[test]
    fn camel_case_becomes_kebab_case_where_the_name_has_to_change() {
        assert_eq!(subdomain("myJavaClass2Go"), "my-java-class2-go");
        assert_eq!(subdomain("ABC"), "abc");
    }

    #[test]
    fn a_name_that_is_too_long_ends_with_its_hash() {
        let long = "a".repeat(300);
        let name = subdomain(&long);
        assert_eq!(name.len(), MAX_SUBDOMAIN - MAX_UNIQUE_ID + 8);
        assert!(is_subdomain(&name), "{name}");
    }
}
