//! What kinds of rules there are.

use longshore_api::podops::TransitionRule;

/// What a rule asks. A rule that was stored before rules of several kinds were refused asks all of its kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// How many pods are out of service.
    AvailablePolicy,
    /// Which labels a pod has.
    LabelCheck,
    /// What a webhook answers.
    Webhook,
}

impl RuleKind {
    /// All of them, those that cost least first.
    pub const ALL: [Self; 3] = [Self::AvailablePolicy, Self::LabelCheck, Self::Webhook];

    /// Upstream's name of the field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AvailablePolicy => "availablePolicy",
            Self::LabelCheck => "labelCheck",
            Self::Webhook => "webhook",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether a rule has this kind.
    pub fn is_in(self, rule: &TransitionRule) -> bool {
        match self {
            Self::AvailablePolicy => rule.available_policy.is_some(),
            Self::LabelCheck => rule.label_check.is_some(),
            Self::Webhook => rule.webhook.is_some(),
        }
    }

    /// The kinds of a rule, those that cost least first: one, unless the rule was stored before that was checked.
    pub fn all_of(rule: &TransitionRule) -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().filter(move |kind| kind.is_in(rule))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_has_all_the_kinds_that_it_says() {
        use RuleKind::{AvailablePolicy, LabelCheck, Webhook};
        for (rule, expected) in [
            (json!({"name": "a"}), vec![]),
            (json!({"labelCheck": {}}), vec![LabelCheck]),
            (
                json!({"webhook": {}, "availablePolicy": {}}),
                vec![AvailablePolicy, Webhook],
            ),
        ] {
            let rule: TransitionRule = serde_json::from_value(rule).unwrap();
            assert_eq!(RuleKind::all_of(&rule).collect::<Vec<_>>(), expected);
        }
    }
}
