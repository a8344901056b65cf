//! The result of a read: present, absent or unknown.

use std::fmt;

/// The result of one external read. "Not there" and "could not look" are different values, and only the first one may
/// lead to an effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen<T> {
    /// The thing is there.
    Present(T),
    /// The read succeeded, and the thing is not there.
    Absent,
    /// The read was not possible, or its result is older than this process's own last write.
    Unknown(Unknown),
}

/// Why something could not be seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    /// The cause, for decisions and metrics.
    pub cause: UnknownCause,
    /// The cause in words, for conditions and logs.
    pub message: String,
}

/// The causes of not knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownCause {
    /// A watch has not delivered its first list, or not this object yet.
    NotListedYet,
    /// No watch covers the object, as far as this process knows the cluster.
    NotWatched,
    /// This process may not read it.
    Forbidden,
    /// No answer: no connection, a time limit, or an error of the other side.
    Unreachable,
    /// An answer that is not of the expected form.
    NotUnderstood,
    /// The requested version is no longer kept.
    Expired,
    /// What is seen is older than something else that is known: an own write, or an event that waits for its decision.
    Behind,
    /// A question to a foreign system is under way.
    UnderWay,
}

impl Unknown {
    /// Why something could not be seen, in words.
    pub fn new(cause: UnknownCause, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { cause, message }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<T> Seen<T> {
    /// No usable result of a read, for this cause.
    pub fn unknown(cause: UnknownCause, message: impl Into<String>) -> Self {
        Self::Unknown(Unknown::new(cause, message))
    }

    /// The value, where there is one.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// Whether the read found nothing.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether the read has no usable result.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Borrows the value.
    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Self::Present(value) => Seen::Present(value),
            Self::Absent => Seen::Absent,
            Self::Unknown(why) => Seen::Unknown(why.clone()),
        }
    }

    /// Changes the value, where there is one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Self::Present(value) => Seen::Present(change(value)),
            Self::Absent => Seen::Absent,
            Self::Unknown(why) => Seen::Unknown(why),
        }
    }
}

impl<T> From<Option<T>> for Seen<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Present)
    }
}
