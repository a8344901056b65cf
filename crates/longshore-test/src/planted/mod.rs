//! A toy controller with planted bugs: each law must reject the one that breaks it.
//!
//! An *order* is a ConfigMap that requires a pod to succeed within some attempts. Its state stands
//! in the ConfigMap. An *errand* is a ConfigMap that needs an answer of a foreign system.

mod controller;
mod crowd;
mod decide;
mod errands;
mod lawful;
mod scenario;

pub use controller::Orders;
pub use crowd::{CrowdWorld, ErrandCrowd};
pub use decide::{Effect, Observed, Order, OrderPod, PodPhase, State, Status};
pub use errands::{
    Errand, ErrandBug, ErrandObserved, ErrandRecord, ErrandScenario, ErrandWorld, Fetch,
    errand_ends, errand_observations,
};
pub use lawful::observations;
pub use scenario::OrderScenario;

use crate::laws::Law;

/// What is wrong with the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// No bug: the toy is right.
    None,
    /// Names its pods by chance.
    RandomNames,
    /// Takes it for granted that a pod has a phase.
    Panics,
    /// Writes at rest.
    NeverQuiet,
    /// Creates a pod before the attempt is on record.
    CreatesBeforePersist,
    /// Takes its record of the intent for a record of the outcome, so that a pod not yet created counts as lost.
    OutcomeBeforeEffect,
    /// Uses another name for the next try of a create.
    RenamesOnRetry,
    /// Fails an order once two creates have failed, of whichever orders.
    GivesUpAfterTwo,
    /// Takes a failed delete for done.
    DropsFailedDeletes,
    /// Takes pods that it could not look for as gone.
    UnknownIsAbsent,
    /// Waits for an event where it could not look.
    AwaitsTheUnknown,
    /// Starts a failed order anew.
    LeavesTerminal,
    /// Deletes whatever has the name.
    DeletesWithoutUid,
    /// Writes its record upon whatever the record is by then.
    WritesWithoutVersion,
    /// Decides before its caches have seen its own writes.
    SkipsOwnWrites,
    /// Must have seen a pod running to believe that it ended.
    NeedsTheEvent,
    /// Announces without end.
    Unbounded,
    /// Takes any object of the name for its own.
    AdoptsAnything,
    /// Warns of what is as it should be.
    WarnsOfNothing,
    /// Logs an error where the next round mends it.
    LogsPassingErrors,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::RandomNames,
        Self::Panics,
        Self::NeverQuiet,
        Self::CreatesBeforePersist,
        Self::OutcomeBeforeEffect,
        Self::RenamesOnRetry,
        Self::GivesUpAfterTwo,
        Self::DropsFailedDeletes,
        Self::UnknownIsAbsent,
        Self::AwaitsTheUnknown,
        Self::LeavesTerminal,
        Self::DeletesWithoutUid,
        Self::WritesWithoutVersion,
        Self::SkipsOwnWrites,
        Self::NeedsTheEvent,
        Self::Unbounded,
        Self::AdoptsAnything,
        Self::WarnsOfNothing,
        Self::LogsPassingErrors,
    ];

    /// The law that it breaks.
    pub fn broken_law(self) -> Option<Law> {
        match self {
            Self::None => None,
            Self::RandomNames | Self::Panics => Some(Law::Deterministic),
            Self::NeverQuiet => Some(Law::Quiet),
            Self::CreatesBeforePersist => Some(Law::WrittenAhead),
            Self::OutcomeBeforeEffect => Some(Law::Restartable),
            Self::RenamesOnRetry => Some(Law::Repeatable),
            Self::GivesUpAfterTwo => Some(Law::Recovers),
            Self::DropsFailedDeletes => Some(Law::NothingDropped),
            Self::UnknownIsAbsent | Self::AwaitsTheUnknown => Some(Law::UnknownIsNotAbsent),
            Self::LeavesTerminal => Some(Law::TerminalIsFinal),
            Self::DeletesWithoutUid | Self::WritesWithoutVersion => Some(Law::StaleSafe),
            Self::SkipsOwnWrites => Some(Law::ReadsOwnWrites),
            Self::NeedsTheEvent => Some(Law::LevelTriggered),
            Self::Unbounded => Some(Law::Bounded),
            Self::AdoptsAnything => Some(Law::AdoptsOnlyItsOwn),
            Self::WarnsOfNothing | Self::LogsPassingErrors => Some(Law::LogsQuietly),
        }
    }
}
