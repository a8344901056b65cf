//! What an abort does with the resource of the current attempt, where it does not just delete it.

use jiff::Timestamp;
use longshore_core::Seen;
use longshore_plugins::AbortBehavior;
use serde_json::Value;

/// An abort that does something else than to delete the resource of the attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Abort {
    /// What the plugin has done.
    pub behavior: AbortBehavior,
    /// The object that the abort acts on.
    pub object: Seen<Value>,
    /// Why the API server refused it last.
    pub refused: Option<AbortRefused>,
}

/// An abort that the API server refused for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortRefused {
    /// The uid of the object that was to be patched.
    pub uid: String,
    /// When the API server refused the patch.
    pub at: Timestamp,
    /// In the API server's own words.
    pub message: String,
}
