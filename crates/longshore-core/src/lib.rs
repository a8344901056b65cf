//! The pure vocabulary of every controller.
//!
//! A controller is *observe → decide → apply*: `observe` collects [`Seen`] facts, `decide` is a
//! pure function from them to a [`Plan`], and the kit applies the plan's [`Action`]s in order. A
//! question to a foreign system ([`ask`]) is an action, too; its answer is a fact of a later round.
//! Everything in this crate is data and pure functions: no clock, no client, no async.
//!
//! Read [`plan`] first.

pub mod ask;
pub mod error;
pub mod form;
pub mod names;
pub mod object;
pub mod plan;
pub mod process_stat;
pub mod seen;
pub mod text;

pub use ask::{AskError, Asked, Incarnation, NoAnswer, Question, QuestionId};
pub use error::{Class, Classify};
pub use form::StatusForm;
pub use object::{ObjectRef, Resource, Scope};
pub use plan::{
    Action, Announcement, ChildIdentity, Create, Delete, EventType, Never, Next, Patch, PatchKind,
    Plan,
};
pub use process_stat::ProcessStat;
pub use seen::{Seen, Unknown, UnknownCause};
