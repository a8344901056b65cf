//! Words of Airflow that are one of a few.

use serde::{Deserialize, Serialize};

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
        for rule in WeightRule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.as_str());
        }
    }
}
