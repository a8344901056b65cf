//! The order of versions: `v2`, `v1`, `v1beta1`, `v1alpha1`, and then whatever does not look like one.

use std::cmp::Reverse;

/// What to sort versions by, the preferred one first: stability, number, and the text of those
/// that are no versions of Kubernetes.
pub(super) fn preference(version: &str) -> (Stability, Reverse<(u64, u64)>, String) {
    match parse(version) {
        Some((stability, major, minor)) => (stability, Reverse((major, minor)), String::new()),
        None => (Stability::Unknown, Reverse((0, 0)), version.to_owned()),
    }
}

/// The stability of a version, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stability {
    Stable,
    Beta,
    Alpha,
    Unknown,
}

/// Reads `v`, a number, and perhaps `alpha` or `beta` with another number.
fn parse(version: &str) -> Option<(Stability, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((Stability::Stable, major, 0));
    }
    let (stability, minor) = match rest.strip_prefix("beta") {
        Some(minor) => (Stability::Beta, minor),
        None => (Stability::Alpha, rest.strip_prefix("alpha")?),
    };
    let is_number = minor.bytes().all(|byte| byte.is_ascii_digit());
    let minor = is_number.then(|| minor.parse().ok())??;
    Some((stability, major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_and_new_versions_come_first() {
        let expected = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v1beta",
            "v1gamma1",
        ];
        let mut sorted = expected;
        sorted.reverse();
        sorted.sort_by_cached_key(|version| preference(version));
        assert_eq!(sorted, expected);
    }
}
