//! The items of the suite, and the lists of which so many have to pass.

use std::collections::BTreeSet;

/// The groups whose items are run.
pub(super) const GROUPS: [&str; 4] = [
    "[sig-api-machinery]",
    "[sig-node]",
    "[sig-apps]",
    "[sig-auth]",
];

/// Items of which so many have to pass.
pub(super) struct Floor {
    /// What they have in common.
    pub(super) name: &'static str,
    pub(super) at_least: usize,
    /// One a line; lines with `#` are comments.
    list: &'static str,
}

pub(super) static FLOORS: [Floor; 2] = [
    Floor {
        name: "api-machinery without aggregation and conversion webhooks",
        at_least: 55,
        list: include_str!("../../../../conformance/kubernetes/api-machinery.txt"),
    },
    Floor {
        name: "environment, volumes, probes, hooks and lifecycle of pods",
        at_least: 40,
        list: include_str!("../../../../conformance/kubernetes/node.txt"),
    },
];

impl Floor {
    /// Its items.
    pub(super) fn items(&self) -> BTreeSet<&'static str> {
        let lines = self.list.lines();
        lines
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .collect()
    }
}

/// The group of an item, where it is one of those that are run.
pub(super) fn group(item: &str) -> Option<&'static str> {
    GROUPS.into_iter().find(|group| item.starts_with(group))
}

/// Whether an item disturbs others, or is disturbed by them.
pub(super) fn runs_alone(item: &str) -> bool {
    item.contains("[Serial]") || item.contains("[Disruptive]")
}

/// A regular expression of Go that only this item matches: the suite sees the text behind a description.
pub(super) fn focus(item: &str) -> String {
    let quoted: String = item
        .chars()
        .flat_map(|character| {
            let is_special = r"\.+*?()|[]{}^$".contains(character);
            is_special.then_some('\\').into_iter().chain([character])
        })
        .collect();
    format!(" {quoted}$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_have_the_items_that_the_floors_are_about() {
        let sizes: Vec<usize> = FLOORS.iter().map(|floor| floor.items().len()).collect();
        assert_eq!(sizes, [79, 49]);
        let group_of = |floor: &Floor, expected| {
            let mut items = floor.items().into_iter();
            items.all(|item| group(item) == Some(expected) && item.ends_with("[Conformance]"))
        };
        assert!(group_of(&FLOORS[0], "[sig-api-machinery]"));
        assert!(group_of(&FLOORS[1], "[sig-node]"));
        let needs_more = |item: &&str| item.contains("Aggregator") || item.contains("Conversion");
        assert!(!FLOORS[0].items().iter().any(needs_more));
        assert_eq!(
            group("[sig-network] Services should be found [Conformance]"),
            None
        );
    }

    #[test]
    fn items_that_disturb_others_run_alone() {
        assert!(runs_alone("[sig-api-machinery] Namespaces [Serial] a"));
        assert!(runs_alone(
            "[sig-node] NoExecuteTaintManager [Disruptive] a"
        ));
        assert!(!runs_alone("[sig-node] Pods should be updated"));
    }

    #[test]
    fn the_focus_is_the_text_of_one_item() {
        assert_eq!(
            focus("[sig-node] Probing *not* (a.b) [Conformance]"),
            r" \[sig-node\] Probing \*not\* \(a\.b\) \[Conformance\]$"
        );
    }
}
