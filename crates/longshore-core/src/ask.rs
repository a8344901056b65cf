//! Questions to foreign systems, as data: what a plan asks, and what `observe` finds of it.
//!
//! A plan asks with [`Action::Ask`](crate::Action::Ask). The kit sends the question beside the rounds, and the answer
//! stays with the key until a plan says [`Action::Used`](crate::Action::Used), asks the same question again, or the
//! object is gone. So an answer survives a round that fails half-way.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use crate::{plan::Never, text::shorten};

/// A question to a foreign system: an HTTP service, an object store, a catalog, a child process.
///
/// Each controller has one type for all of its questions, an enum as a rule.
pub trait Question: Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// What the foreign system answers. Large parts of an answer belong behind an `Arc`: rounds clone answers.
    type Answer: Clone + fmt::Debug + PartialEq + Send + Sync + 'static;

    /// The kind of the question, from a closed set: the label of metrics, and the key of limits and time limits.
    fn kind(&self) -> &'static str;

    /// The foreign system whose limit this question counts against: the authority of its URL. Where tenants choose the
    /// authorities, their namespace, so that a tenant has one limit for all of them.
    fn host(&self) -> &str;

    /// Distinguishes questions of one kind and key, such as by attempt: one of each is in flight at a time.
    fn about(&self) -> String {
        String::new()
    }

    /// How long after an answer the kit sends the question again by itself, for as long as the answer stays the same
    /// (a poll). `None`: only a plan sends it again.
    fn repeats_after(&self) -> Option<Duration> {
        None
    }

    /// Whether a record has to say that the question is about to be sent, because a foreign system that gets it twice
    /// does something twice. The first [`Action::Ask`](crate::Action::Ask) of such a question is not on record, and waits
    /// for its turn. When the turn comes, the key has a round, whose plan writes the record and asks again: then the
    /// question is sent. So a process that ends leaves records of the questions only whose turn had come.
    fn is_recorded_first(&self) -> bool {
        false
    }

    /// Whether its answer may be dropped where there is no room for it: the question only reads, and is asked again.
    fn may_drop_answer(&self) -> bool {
        false
    }

    /// How many bytes the question holds of an answer to another question of its key. Where that answer gives its room
    /// back, the question is dropped, too.
    fn held_bytes(&self) -> usize {
        0
    }

    /// How many bytes an answer holds, as far as foreign systems decide upon that.
    fn answer_bytes(_: &Self::Answer) -> usize {
        0
    }

    /// The id of this question among those of its key.
    fn id(&self) -> QuestionId {
        QuestionId {
            kind: self.kind(),
            about: self.about(),
        }
    }
}

/// The question type of controllers that ask no foreign system.
impl Question for Never {
    type Answer = Self;

    fn kind(&self) -> &'static str {
        match *self {}
    }

    fn host(&self) -> &str {
        match *self {}
    }
}

/// One question among those of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct QuestionId {
    /// [`Question::kind`].
    pub kind: &'static str,
    /// [`Question::about`].
    pub about: String,
}

impl QuestionId {
    /// The question of this kind about this.
    pub fn new(kind: &'static str, about: impl Into<String>) -> Self {
        let about = about.into();
        Self { kind, about }
    }
}

/// The incarnation of a key: the kit drops questions and memories of another incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// The uid of the object; a later object of the same name has another one.
    pub uid: String,
    /// What else starts anew without a new object, such as a generation or a launch; empty where nothing does.
    pub epoch: String,
}

impl Incarnation {
    /// The object of this uid, for as long as it lives.
    pub fn of(uid: impl Into<String>) -> Self {
        Self {
            uid: uid.into(),
            epoch: String::new(),
        }
    }

    /// The same object from this point of its life on.
    #[must_use]
    pub fn since(self, epoch: impl fmt::Display) -> Self {
        Self {
            epoch: epoch.to_string(),
            ..self
        }
    }
}

/// How far a question is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<A> {
    /// This process has not sent the question, or its answer was used up.
    NotAsked,
    /// A plan asked, and there is no answer yet, or none that differs from the one before.
    UnderWay {
        /// When the plan asked.
        since: Timestamp,
    },
    /// The foreign system answered.
    Answered {
        /// When.
        at: Timestamp,
        /// What.
        answer: A,
    },
    /// There is no answer.
    Failed {
        /// When this was known.
        at: Timestamp,
        /// What kind of failure.
        why: NoAnswer,
        /// The failure in words, for people.
        message: String,
    },
    /// The subsystem's record says that the question was asked, and this process did not ask: another process of
    /// Longshore did, whose answer is lost.
    AskedByAnother,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum NoAnswer {
    /// The foreign system said no, or an address must not be asked: the same question gets the same refusal.
    Refused,
    /// Nothing came within the time limit. The question may have had its effect.
    TimedOut,
    /// No connection, or one that broke. The question may have had its effect.
    Unreachable,
    /// An answer that is too large, or is not of the expected form.
    NotUnderstood,
    /// An answer was dropped, because other answers that wait for their use take all the room.
    NoRoom,
}

impl NoAnswer {
    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::NotUnderstood => "not_understood",
            Self::NoRoom => "no_room",
        }
    }
}

/// Why a question has no answer: what transports return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskError {
    /// What kind of failure.
    pub why: NoAnswer,
    /// The failure in words, for people: it names the foreign system, and quotes nothing secret.
    pub message: String,
}

impl AskError {
    /// A failure in words, [shortened](crate::text::shorten): foreign systems word refusals of any length.
    pub fn new(why: NoAnswer, message: impl Into<String>) -> Self {
        let message = shorten(message);
        Self { why, message }
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AskError {}

impl<A> Asked<A> {
    /// The answer, where there is one.
    pub fn answer(&self) -> Option<&A> {
        match self {
            Self::Answered { answer, .. } => Some(answer),
            Self::NotAsked | Self::UnderWay { .. } | Self::Failed { .. } | Self::AskedByAnother => {
                None
            }
        }
    }

    /// Whether there is an answer or a failure, which a plan has to use up.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Get(u32);

    impl Question for Get {
        type Answer = String;

        fn kind(&self) -> &'static str {
            "get"
        }

        fn host(&self) -> &str {
            "example.test"
        }

        fn about(&self) -> String {
            self.0.to_string()
        }
    }

    #[test]
    fn questions_of_one_kind_are_told_apart_by_what_they_are_about() {
        assert_eq!(Get(1).id(), QuestionId::new("get", "1"));
        assert_ne!(Get(1).id(), Get(2).id());
    }

    #[test]
    fn a_refusal_of_any_length_is_kept_in_short() {
        let error = AskError::new(NoAnswer::Refused, "a".repeat(1 << 20));
        assert_eq!(error.message.len(), crate::text::MAX_TEXT);
    }

    #[test]
    fn another_object_or_epoch_is_another_incarnation() {
        let first = Incarnation::of("u").since(1);
        assert_ne!(first, Incarnation::of("u").since(2));
        assert_ne!(first, Incarnation::of("v").since(1));
    }
}
