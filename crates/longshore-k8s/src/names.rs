//! Which names of objects, keys of labels and values of labels are valid, and the messages of API servers about the
//! others.

/// Longest RFC 1123 label, longest name part of a key, and longest value of a label, in bytes.
const MAX_LABEL: usize = 63;
/// Longest RFC 1123 subdomain, in bytes.
const MAX_SUBDOMAIN: usize = 253;

const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
     and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
     '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_NAME_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', \
     '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Whether a text is an RFC 1123 label: the name of a namespace or of a container.
pub fn is_label(name: &str) -> bool {
    name.len() <= MAX_LABEL && has_form_of_label(name)
}

/// Whether a text is an RFC 1123 subdomain: the name of most objects.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= MAX_SUBDOMAIN && name.split('.').all(has_form_of_label)
}

/// What is wrong with an RFC 1123 label; empty when nothing is.
pub fn label_violations(name: &str) -> Vec<String> {
    violations(name, MAX_LABEL, has_form_of_label(name), LABEL_MESSAGE)
}

/// What is wrong with an RFC 1123 subdomain; empty when nothing is.
pub fn subdomain_violations(name: &str) -> Vec<String> {
    let is_well_formed = name.split('.').all(has_form_of_label);
    violations(name, MAX_SUBDOMAIN, is_well_formed, SUBDOMAIN_MESSAGE)
}

/// What is wrong with the value of a label; empty when nothing is.
pub fn label_value_violations(value: &str) -> Vec<String> {
    let is_well_formed = value.is_empty() || has_form_of_name_part(value);
    violations(value, MAX_LABEL, is_well_formed, LABEL_VALUE_MESSAGE)
}

/// What is wrong with the key of a label or of an annotation, or with a finalizer; empty when nothing is. A key is a
/// name, or a subdomain, `/` and a name.
pub fn key_violations(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![format!(
                "a qualified name {QUALIFIED_NAME_MESSAGE} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut complaints = match prefix {
        None => Vec::new(),
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => named("prefix part", subdomain_violations(prefix)).collect(),
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    }
    let is_well_formed = has_form_of_name_part(name);
    let of_name = violations(name, MAX_LABEL, is_well_formed, QUALIFIED_NAME_MESSAGE);
    complaints.extend(named("name part", of_name));
    complaints
}

fn named(part: &str, complaints: Vec<String>) -> impl Iterator<Item = String> {
    let part = part.to_owned();
    complaints
        .into_iter()
        .map(move |why| format!("{part} {why}"))
}

fn violations(text: &str, longest: usize, is_well_formed: bool, message: &str) -> Vec<String> {
    let mut violations = Vec::new();
    if text.len() > longest {
        violations.push(format!("must be no more than {longest} characters"));
    }
    if !is_well_formed {
        violations.push(message.to_owned());
    }
    violations
}

/// Whether the text is one RFC 1123 label, length aside.
fn has_form_of_label(text: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_form(text, is_edge, |byte| is_edge(byte) || *byte == b'-')
}

/// The form of a name part and of a label value, length aside.
fn has_form_of_name_part(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    has_form(text, u8::is_ascii_alphanumeric, is_inner)
}

fn has_form(text: &str, is_edge: impl Fn(&u8) -> bool, is_inner: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&is_edge)
        && bytes.last().is_some_and(&is_edge)
        && bytes.iter().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_or_subdomains() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        for (name, label, subdomain) in [
            ("a", true, true),
            ("a.b-c.9", false, true),
            ("a..b", false, false),
            ("Upper", false, false),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            (&long, true, true),
            (&longer, false, true),
        ] {
            assert_eq!(is_label(name), label, "{name}");
            assert_eq!(label_violations(name).is_empty(), label, "{name}");
            assert_eq!(is_subdomain(name), subdomain, "{name}");
            assert_eq!(subdomain_violations(name).is_empty(), subdomain, "{name}");
        }
        assert!(!is_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn keys_have_a_name_and_perhaps_a_prefix() {
        let long = "a".repeat(64);
        for (key, n_violations) in [
            ("app", 0),
            ("Example_1.x", 0),
            ("example.com/app", 0),
            ("", 2),
            ("/app", 1),
            ("app/", 2),
            ("Example.com/app", 1),
            ("a/b/c", 1),
            ("-app", 1),
            (&long, 1),
        ] {
            assert_eq!(key_violations(key).len(), n_violations, "{key:?}");
        }
    }

    #[test]
    fn values_of_labels_may_be_empty() {
        let long = "a".repeat(64);
        for (value, n_violations) in [("", 0), ("A_b-c.9", 0), ("a-", 1), ("a b", 1), (&long, 1)] {
            let found = label_value_violations(value);
            assert_eq!(found.len(), n_violations, "{value:?}");
        }
    }
}
