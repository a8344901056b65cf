//! Names of objects: what is allowed, and what the refusal says.

use longshore_k8s::names;

/// Which names a resource allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// RFC 1123 subdomain, at most 253 characters.
    Subdomain,
    /// RFC 1123 label, at most 63 characters.
    Label,
    /// RFC 1035 label: as the one before, and it begins with a letter.
    OldLabel,
    /// Anything that is one segment of a path.
    PathSegment,
}

/// Characters of generated suffixes: no vowels, no look-alikes.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// Longest base of a generated name, so that the whole fits a label.
const BASE_LENGTH: usize = 63 - SUFFIX_LENGTH;

impl NameRule {
    /// What is wrong with a name; empty when nothing is.
    pub(crate) fn violations(self, name: &str) -> Vec<String> {
        match self {
            NameRule::Subdomain => names::subdomain_violations(name),
            NameRule::Label => names::label_violations(name),
            NameRule::OldLabel => old_label_violations(name),
            NameRule::PathSegment => path_segment_violations(name),
        }
    }
}

const OLD_LABEL_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
     with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn old_label_violations(name: &str) -> Vec<String> {
    let begins_with_digit = name.starts_with(|it: char| it.is_ascii_digit());
    let mut violations = names::label_violations(name);
    let is_well_formed = names::is_label(&name[..name.floor_char_boundary(63)]);
    // Only what is said about the form differs.
    violations.truncate(usize::from(name.len() > 63));
    if begins_with_digit || !is_well_formed {
        violations.push(OLD_LABEL_MESSAGE.to_owned());
    }
    violations
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
            (NameRule::OldLabel, "a-1", 0),
            (NameRule::OldLabel, "1-a", 1),
            (NameRule::OldLabel, "A", 1),
            (NameRule::OldLabel, &"a".repeat(64), 1),
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
