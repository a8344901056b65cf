//! Words of which there is a closed list.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::{error::Unreadable, record::Json};
use crate::pointer::Place;

/// When a task may start, by the states of the tasks before it (spec section 6.4).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TriggerRule {
    /// All have succeeded.
    #[default]
    AllSuccess,
    /// All have failed.
    AllFailed,
    /// All are done.
    AllDone,
    /// All are done, none was skipped, one has succeeded.
    AllDoneMinOneSuccess,
    /// All are done, and a setup among them has succeeded: what teardowns have.
    AllDoneSetupSuccess,
    /// One has succeeded.
    OneSuccess,
    /// One has failed.
    OneFailed,
    /// One has succeeded or failed.
    OneDone,
    /// None has failed.
    NoneFailed,
    /// None has failed, one has succeeded.
    NoneFailedMinOneSuccess,
    /// All are done, none was skipped.
    NoneSkipped,
    /// All were skipped.
    AllSkipped,
    /// At once.
    Always,
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
    #[must_use]
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

impl Json for TriggerRule {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let is_it = |rule: &Self| value.as_str() == Some(rule.as_str());
        let rule = Self::ALL.into_iter().find(is_it);
        rule.ok_or_else(|| Unreadable::form(at, "the name of a trigger rule", &value))
    }

    fn write(&self) -> Value {
        self.as_str().into()
    }
}

/// How much a task weighs beside others that wait for a slot (spec section 6.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightRule {
    /// Its own weight alone.
    Absolute,
    /// With those of all tasks after it.
    Downstream,
    /// With those of all tasks before it.
    Upstream,
    /// A Python class of the user's, by its import path.
    Custom(String),
}

impl Json for WeightRule {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let name = String::read(value, at)?;
        Ok(match name.as_str() {
            "absolute" => Self::Absolute,
            "downstream" => Self::Downstream,
            "upstream" => Self::Upstream,
            _ => Self::Custom(name),
        })
    }

    fn write(&self) -> Value {
        match self {
            Self::Absolute => "absolute".into(),
            Self::Downstream => "downstream".into(),
            Self::Upstream => "upstream".into(),
            Self::Custom(class) => class.as_str().into(),
        }
    }
}

/// By how much the wait grows with each retry (spec section 6.5).
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// `True` is the factor 2, `False` no growth, as upstream's scheduler reads them (`populate_operator`).
    Flag(bool),
    /// The factor.
    Factor(Number),
}

impl Backoff {
    /// The factor. 0 and 1 are no growth.
    #[must_use]
    pub fn factor(&self) -> f64 {
        match self {
            Self::Flag(flag) => f64::from(u8::from(*flag) * 2),
            Self::Factor(number) => number.as_f64().unwrap_or_default(),
        }
    }
}

impl Json for Backoff {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        match value {
            Value::Bool(flag) => Ok(Self::Flag(flag)),
            Value::Number(number) => Ok(Self::Factor(number)),
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                Err(Unreadable::form(at, "a number, true or false", &value))
            }
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Flag(flag) => (*flag).into(),
            Self::Factor(number) => number.clone().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_trigger_rules_are_the_serialized_ones() {
        for rule in TriggerRule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.as_str());
        }
    }
}
