//! What an error means for the round that met it.

use serde::Serialize;

/// What follows from an error. The kit's single error policy maps it to back-off and to a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Class {
    /// May pass by itself (429, 5xx, transport): again with back-off, for ever.
    Retry,
    /// Somebody else wrote first: look again at once, then with back-off.
    Conflict,
    /// The input is wrong and stays wrong until somebody changes it: a condition and an Event, never a hot retry.
    Invalid,
    /// Ours. Counted, logged as an error, retried slowly.
    Bug,
}

/// Every error enum of ours answers what follows from it.
pub trait Classify {
    /// What follows from this error.
    fn class(&self) -> Class;
}
