//! Names of objects: what is allowed, and what the refusal says.

/// Which names a resource allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// RFC 1123 subdomain, at most 253 characters.
    Subdomain,
    /// RFC 1123 label, at most 63 characters.
    Label,
    /// Anything that is one segment of a path.
    PathSegment,
}

const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
     and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
     '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Characters of generated suffixes: no vowels, no look-alikes.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// Longest base of a generated name, so that the whole fits a label.
const BASE_LENGTH: usize = 63 - SUFFIX_LENGTH;

impl NameRule {
    /// What is wrong with a name; empty when nothing is.
    pub(crate) fn violations(self, name: &str) -> Vec<String> {
        let (longest, message) = match self {
            NameRule::Subdomain => (253, SUBDOMAIN_MESSAGE),
            NameRule::Label => (63, LABEL_MESSAGE),
            NameRule::PathSegment => return path_segment_violations(name),
        };
        let is_well_formed = match self {
            NameRule::Label => is_label(name),
            NameRule::Subdomain | NameRule::PathSegment => name.split('.').all(is_label),
        };
        let mut violations = Vec::new();
        if name.len() > longest {
            violations.push(format!("must be no more than {longest} characters"));
        }
        if !is_well_formed {
            violations.push(message.to_owned());
        }
        violations
    }
}

fn path_segment_violations(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|illegal| name.contains(**illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// Whether the text is one RFC 1123 label, length aside.
fn is_label(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes
        .iter()
        .all(|byte| is_alphanumeric(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| is_alphanumeric(*byte))
        && bytes.last().is_some_and(|byte| is_alphanumeric(*byte))
}

/// A name from `generateName` and a random number.
pub(crate) fn generate(base: &str, mut random: u64) -> String {
    let cut = base
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| *at >= BASE_LENGTH);
    let mut name = base[..cut.unwrap_or(base.len())].to_owned();
    let n_letters = SUFFIX_ALPHABET.len() as u64;
    for _ in 0..SUFFIX_LENGTH {
        let index = usize::try_from(random % n_letters).unwrap_or(0);
        name.push(char::from(SUFFIX_ALPHABET[index]));
        random /= n_letters;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_the_rule_of_their_resource() {
        for (rule, name, n_violations) in [
            (NameRule::Subdomain, "a.b-c.9", 0),
            (NameRule::Subdomain, "a..b", 1),
            (NameRule::Subdomain, "Upper", 1),
            (NameRule::Subdomain, "", 1),
            (NameRule::Label, "a.b", 1),
            (NameRule::Label, &"a".repeat(64), 1),
            (NameRule::PathSegment, "system:node", 0),
            (NameRule::PathSegment, "a/b%", 2),
        ] {
            assert_eq!(
                rule.violations(name).len(),
                n_violations,
                "{rule:?} {name:?}"
            );
        }
    }

    #[test]
    fn generated_names_fit_a_label() {
        let name = generate(&"x".repeat(100), u64::MAX);
        assert_eq!(name.len(), 63);
        assert!(NameRule::Label.violations(&name).is_empty());
    }
}
