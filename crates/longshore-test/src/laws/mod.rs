//! The laws that every controller keeps (style guide 3.6), as one harness.
//!
//! [`pure`] checks `decide` over generated observations. [`system`] runs the whole controller in simulated worlds, once
//! undisturbed and then once for every fault at every point, and demands the same end each time. [`recoveries`] adds a
//! second fault while the controller recovers from the first one, and [`silence`] has foreign systems that never answer.
//! [`planted`](crate::planted) proves that the harness sees what it should.

mod cases;
mod judge;
pub mod pure;
pub mod reads;
pub mod real_time;
pub mod recoveries;
pub mod silence;
pub mod system;

use std::fmt;

pub use pure::{Decider, check_decider};
pub use reads::{Read, Reads, all_reads};
pub use real_time::ends_as;
pub use recoveries::{check_recoveries, recovery_plan};
pub use silence::{Asking, Host, check_silence};
pub use system::{
    Owned, Report, Run, Scenario, Troubles, breaks, check_crashes, check_every_case, check_plans,
    check_scenario, check_seeds, play_until, replay,
};

/// A law of every controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// Equal inputs yield equal plans, and every input yields a plan: no panic.
    Deterministic,
    /// The world comes to rest: at the end nothing is written any more.
    Quiet,
    /// Killed before or after any effect and started again, the controller reaches the same end.
    Restartable,
    /// An effect whose answer was lost is repeated without doing it twice.
    Repeatable,
    /// A second fault during the recovery from a first one changes nothing about the end.
    Recovers,
    /// An effect that was refused for the moment (409, 429, 500) still happens.
    NothingDropped,
    /// An irreversible action comes after the record of its intent.
    WrittenAhead,
    /// An answer of a foreign system is used up after the record of what it means.
    AnswersAreKept,
    /// With a read `Unknown` nothing is done and nothing is concluded, and the key comes back by
    /// time: no event of the key says that the read is possible again.
    UnknownIsNotAbsent,
    /// No transition leaves a terminal state.
    TerminalIsFinal,
    /// Plans from old snapshots fail on preconditions: deletes and patches name their incarnation, and late watches and
    /// requests that land late change nothing about the end.
    StaleSafe,
    /// A late watch leads to no further write: own writes are not decided upon twice (rule R5).
    ReadsOwnWrites,
    /// No decision needs an event to be seen: cut, expired and repeated watches change nothing about the end, and lead
    /// to no further create or delete.
    LevelTriggered,
    /// A foreign system that never answers delays no key that does not ask it.
    DelaysNobodyElse,
    /// A plan has at most a stated number of actions, and a world at most a stated number of effects.
    Bounded,
    /// No world logs an ERROR, and no undisturbed one a WARN, that its scenario does not expect.
    LogsQuietly,
    /// An object of the same name is adopted only if it carries our identity.
    AdoptsOnlyItsOwn,
    /// A law of the subsystem itself.
    OwnInvariant,
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The law that was broken.
    pub law: Law,
    /// Where: scenario and fault, or the observation.
    pub case: String,
    /// The observation that breaks the law.
    pub detail: String,
}

impl Violation {
    /// A violation whose case the harness fills in.
    pub fn of(law: Law, detail: impl Into<String>) -> Self {
        Self {
            law,
            case: String::new(),
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}\n{}", self.law, self.case, self.detail)
    }
}
