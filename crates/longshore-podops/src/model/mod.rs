//! What decisions about pods see.

mod operations;
mod pod;

pub(crate) use operations::has_prefix;
pub use operations::{InvalidLabel, Operation, Operations};
pub use pod::{ConditionStatus, Labels, MalformedConditions, Pod, Undecodable};

use std::fmt;

use jiff::Timestamp;

/// A pod's name, in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What becomes of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Nothing that is known of.
    Stays,
    /// The namespace was deleted, and goes with all that is in it.
    Goes,
}

/// An instant as labels carry it: decimal Unix nanoseconds.
pub fn stamp(now: Timestamp) -> String {
    now.as_nanosecond().to_string()
}

/// The instant that a label carries; `None` where it carries another text.
pub fn parse_stamp(text: &str) -> Option<Timestamp> {
    Timestamp::from_nanosecond(text.parse().ok()?).ok()
}

/// How many pods and rules this thread has read from their text.
#[cfg(test)]
pub(crate) mod reads {
    use std::cell::Cell;

    thread_local! {
        static N: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn count() {
        N.set(N.get() + 1);
    }

    /// Since the last time.
    pub(crate) fn take() -> usize {
        N.take()
    }
}
