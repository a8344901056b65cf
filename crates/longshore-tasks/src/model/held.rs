//! What holds an action, and what its status says of that.

use jiff::Timestamp;
use longshore_api::flyte::Condition;
use longshore_kit::WaitsFor;

/// A question about an action that has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The kind of the question.
    pub kind: &'static str,
    /// The foreign system, in words.
    pub whom: String,
    /// When a plan asked first after the last answer.
    pub since: Timestamp,
    /// Why there is no answer, in the words of the foreign system, where it was asked and refused.
    pub failure: Option<String>,
    /// What it waits for now.
    pub waits_for: WaitsFor,
}

/// What the status of an action says of what holds it. No other part of a decision sees this condition, so that each
/// other write of the status removes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// The condition on record.
    pub condition: Option<Condition>,
    /// When this process wrote the condition; `None` where it did not.
    pub at: Option<Timestamp>,
}

/// Why a launch did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// When it failed so first.
    pub since: Timestamp,
    /// The failure.
    pub kind: CreateFailure,
}

/// Why a resource is not created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateFailure {
    /// The API server refused it for good.
    Refused {
        /// HTTP status.
        code: u16,
        /// In its own words.
        message: String,
    },
    /// A quota is used up; in the API server's own words.
    OverQuota(String),
    /// An object of that name has yet to go.
    NameTaken,
    /// The request failed, and is sent again: why, in the API server's own words.
    Failed(String),
    /// The API server does not know the kind: this definition is missing.
    NotServed(String),
}
