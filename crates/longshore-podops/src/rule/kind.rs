//! What kinds of rules there are.

use longshore_api::podops::TransitionRule;

/// What a rule asks. Where one says several things, the first of these is what it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// How many pods are out of service.
    AvailablePolicy,
    /// Which labels a pod has.
    LabelCheck,
    /// Somebody else.
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

    /// The kind of a rule; `None` where it asks nothing.
    pub fn of(rule: &TransitionRule) -> Option<Self> {
        if rule.available_policy.is_some() {
            Some(Self::AvailablePolicy)
        } else if rule.label_check.is_some() {
            Some(Self::LabelCheck)
        } else {
            rule.webhook.as_ref().map(|_| Self::Webhook)
        }
    }
}
