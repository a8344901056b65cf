//! Children of Python, in one place: parsers of DAG files, trigger runners, callbacks, forked workers.
//!
//! A child is a program in an interpreter of the user. It speaks frames over a socket ([`frame`]; Airflow's supervisor
//! protocol), asks questions that an implementation of [`Answers`] answers, and has [`Limits`]. It always ends in one of
//! the ways of [`End`], with everything that descends from it, and with the last lines that it printed.
//!
//! It is started in a new interpreter, or forked from one that has imported its modules ([`Prefork`]); what runs, and
//! what it sees, is the same ([`Launch`]). Between us and each child stands a keeper, a small Python program of ours.
//!
//! [`parser`] is the child that parses a DAG file, with Airflow's words. Else this crate knows no subsystem: what a
//! frame says, and what follows from an end, is decided elsewhere.
//! Read [`Child`] first. Linux only: other systems have no way to adopt orphans.

mod answers;
mod child;
pub mod end;
pub mod frame;
mod keeper;
mod launch;
mod limits;
pub mod parser;
mod prefork;
mod restarts;
mod tail;
mod tree;
pub mod value;

pub use answers::{Answer, Answers};
pub use child::{Child, Starter};
pub use end::{ChildError, End, Ended, Exit, Exited, NotStarted, Step, TooLarge, TooLong, Usage};
pub use frame::{Decoder, Frame, FrameError};
pub use keeper::{Process, Tell};
pub use launch::{Descriptors, Launch, Program};
pub use limits::{Limits, MEMORY_INTERVAL};
pub use prefork::{Prefork, PreforkSpec};
pub use restarts::Restarts;
pub use rmpv::Value;
pub use tail::Tail;
