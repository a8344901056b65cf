//! What bodies and queries look like in each version: members, their kinds, and since and until when they exist.
//!
//! The schemas are data, so that one function checks every request and one brings every answer to an older version.
//! Tests compare them with upstream's OpenAPI documents, member by member.

use super::version::ApiVersion;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// Any JSON.
    Json,
    /// A text.
    Text,
    /// A text of at most so many characters.
    TextUpTo(usize),
    /// An integer.
    Integer,
    /// An integer from the first to the second.
    Between(i64, i64),
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A text with an instant and its offset.
    Instant,
    /// A text with a duration of ISO 8601.
    Duration,
    /// A text with a UUID.
    Uuid,
    /// An object with any members.
    Map,
    /// One of these texts.
    Words(&'static [&'static str]),
    /// A list.
    List(&'static ValueKind),
    /// A list of at least one.
    SomeOf(&'static ValueKind),
    /// The value, or null.
    Nullable(&'static ValueKind),
    /// Either of the two.
    Either(&'static ValueKind, &'static ValueKind),
    /// A list of exactly two.
    Pair(&'static ValueKind, &'static ValueKind),
    /// An object of this schema.
    Object(&'static Schema),
    /// An object of one of these schemas, told apart by its member `state`.
    ByState(&'static [Alternative]),
}

/// A schema for some values of the member `state`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternative {
    /// Upstream's name of the alternative, as it stands in the place of a problem.
    pub tag: &'static str,
    /// The states. None: all that no other alternative has.
    pub states: &'static [&'static str],
    /// The schema.
    pub schema: &'static Schema,
}

/// An object with named members.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schema {
    /// Upstream's name.
    pub name: &'static str,
    /// What happens to members that are not named here.
    pub others: Others,
    /// The members, in upstream's order.
    pub members: &'static [Member],
}

/// Members that a schema does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They make a request invalid.
    Forbidden,
    /// They are dropped.
    Ignored,
}

/// A member of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// The name.
    pub name: &'static str,
    /// What it holds.
    pub kind: ValueKind,
    /// Whether a value without it is invalid.
    pub presence: Presence,
    /// In which versions it exists.
    pub life: Life,
}

/// Whether a member may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It may not.
    Required,
    /// It may.
    Optional,
}

/// In which versions something exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// In all.
    Always,
    /// From this one on.
    Since(ApiVersion),
    /// Before this one only. An answer to such a client gets null.
    Before(ApiVersion),
    /// In all. In answers to clients older than this version, the named member stands in for null, because their
    /// schema does not allow null.
    NotNullBefore(ApiVersion, &'static str),
}

impl Life {
    /// Whether it exists in a version.
    #[must_use]
    pub fn includes(self, version: ApiVersion) -> bool {
        match self {
            Self::Always | Self::NotNullBefore(..) => true,
            Self::Since(first) => version >= first,
            Self::Before(end) => version < end,
        }
    }
}

impl Member {
    /// A member that must be there.
    pub(super) const fn required(name: &'static str, kind: ValueKind) -> Self {
        Self {
            name,
            kind,
            presence: Presence::Required,
            life: Life::Always,
        }
    }

    /// A member that may be left out.
    pub(super) const fn optional(name: &'static str, kind: ValueKind) -> Self {
        Self {
            name,
            kind,
            presence: Presence::Optional,
            life: Life::Always,
        }
    }

    /// The member, in these versions only.
    pub(super) const fn with(self, life: Life) -> Self {
        Self { life, ..self }
    }
}

impl Schema {
    /// The members that a version has.
    pub fn members_in(&self, version: ApiVersion) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members.filter(move |member| member.life.includes(version))
    }
}
