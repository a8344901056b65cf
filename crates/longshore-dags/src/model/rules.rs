//! Words of Airflow that are one of a few.

use serde::{Deserialize, Serialize};

/// Airflow's trigger rules.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TriggerRule {
    /// All upstream tasks succeeded.
    #[default]
    AllSuccess,
    /// All upstream tasks failed.
    AllFailed,
    /// All upstream tasks are done.
    AllDone,
    /// All are done, none was skipped, one succeeded.
    AllDoneMinOneSuccess,
    /// All are done, and a setup among them succeeded: the default of teardowns.
    AllDoneSetupSuccess,
    /// One succeeded; does not wait for the others.
    OneSuccess,
    /// One failed; does not wait for the others.
    OneFailed,
    /// One succeeded or failed.
    OneDone,
    /// None failed; skips are fine.
    NoneFailed,
    /// None failed, and one succeeded.
    NoneFailedMinOneSuccess,
    /// None was skipped, and all are done.
    NoneSkipped,
    /// All were skipped.
    AllSkipped,
    /// At once.
    Always,
}

/// How a task's weight in the queue follows from the own weights.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum WeightRule {
    /// Its own and that of all tasks after it.
    #[default]
    Downstream,
    /// Its own and that of all tasks before it.
    Upstream,
    /// Its own.
    Absolute,
}

impl TriggerRule {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::AllSuccess,
        Self::AllFailed,
        Self::AllDone,
        Self::AllDoneMinOneSuccess,
        Self::AllDoneSetupSuccess,
        Self::OneSuccess,
        Self::OneFailed,
        Self::OneDone,
        Self::NoneFailed,
        Self::NoneFailedMinOneSuccess,
        Self::NoneSkipped,
        Self::AllSkipped,
        Self::Always,
    ];

    /// Airflow's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllSuccess => "all_success",
            Self::AllFailed => "all_failed",
            Self::AllDone => "all_done",
            Self::AllDoneMinOneSuccess => "all_done_min_one_success",
            Self::AllDoneSetupSuccess => "all_done_setup_success",
            Self::OneSuccess => "one_success",
            Self::OneFailed => "one_failed",
            Self::OneDone => "one_done",
            Self::NoneFailed => "none_failed",
            Self::NoneFailedMinOneSuccess => "none_failed_min_one_success",
            Self::NoneSkipped => "none_skipped",
            Self::AllSkipped => "all_skipped",
            Self::Always => "always",
        }
    }
}

impl WeightRule {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Downstream, Self::Upstream, Self::Absolute];

    /// Airflow's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Downstream => "downstream",
            Self::Upstream => "upstream",
            Self::Absolute => "absolute",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_serialized_ones() {
        for rule in TriggerRule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.as_str());
        }
        for rule in WeightRule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.as_str());
        }
    }
}
