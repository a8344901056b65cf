//! Why a serialized DAG cannot be read.

use serde_json::Value;

use crate::pointer::{Place, Pointer};

/// The longest piece of a document that an error shows, in characters.
const SHOWN: usize = 80;

/// A serialized DAG that cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the serialized DAG cannot be read at {at}: {problem}")]
pub struct Unreadable {
    /// The member concerned.
    pub at: Pointer,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It has another form.
    #[error("expected {expected}, found {found}")]
    Form {
        /// What would be right.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// It is not there.
    #[error("expected a member `{member}`, found none")]
    Missing {
        /// Its name.
        member: &'static str,
    },
    /// The format has another version.
    #[error(
        "expected version 3 of the format, found {found}: parse the DAG file again with Airflow 3.1 or newer"
    )]
    Version {
        /// What is there.
        found: String,
    },
    /// It names a task that the DAG does not have.
    #[error("expected the id of a task of this DAG, found {found:?}")]
    NoSuchTask {
        /// The id.
        found: String,
    },
    /// It names a task group that the DAG does not have.
    #[error("expected the id of a task group of this DAG, found {found:?}")]
    NoSuchGroup {
        /// The id.
        found: String,
    },
    /// Two tasks or groups have the same id, or a task is in two groups.
    #[error("expected an id that is used once, found {found:?} again")]
    Twice {
        /// The id.
        found: String,
    },
}

impl Unreadable {
    pub(super) fn form(at: &Place<'_>, expected: &'static str, found: &Value) -> Self {
        let found = shortened(&found.to_string());
        Self::new(at, Problem::Form { expected, found })
    }

    pub(super) fn new(at: &Place<'_>, problem: Problem) -> Self {
        Self {
            at: at.pointer(),
            problem,
        }
    }
}

/// The beginning of a text that may be long.
pub(crate) fn shortened(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}
