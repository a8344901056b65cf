//! What a controller saw when it looked.

/// The result of one external read. "Not there" and "could not look" are different values, and only the first one may
/// lead to an effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen<T> {
    /// The thing is there.
    Present(T),
    /// We looked, and it is not there.
    Absent,
    /// We could not look, or what we saw is older than our own last write; the text says why.
    Unknown(String),
}

impl<T> Seen<T> {
    /// The value, where there is one.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// Whether we looked and found nothing.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether we could not look.
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
