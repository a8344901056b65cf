//! What the run service is told: one event for each published change, acknowledged before the status is written
//! (task action spec §5.2 and §12).
//!
//! [`BatchedEvents`] tells an [`EventSink`] many at a time: the run service ([`RemoteEvents`]), or a file of this machine
//! ([`EventLog`]).

mod batch;
mod log;
mod message;
mod remote;

use async_trait::async_trait;
use jiff::Timestamp;
use longshore_core::{Class, Classify};
use longshore_plugins::{Phase, ReasonInfo, TaskError};
pub use longshore_proto::flyteidl2::{
    common::ActionPhase,
    core::{LogContext, TaskLog},
};

pub use batch::{BatchLimits, BatchedEvents, EventSink, NotRecorded};
pub use log::{
    EventLog, LogError, LogLimits, LoggedError, LoggedEvent, LoggedLink, LoggedReason, Wanted,
};
pub use remote::RemoteEvents;

/// A change of one attempt of an action.
///
/// The receiver keeps the first event of each (action, attempt, phase, version).
#[derive(Clone, Debug, PartialEq)]
pub struct ActionEvent {
    /// Spec field.
    pub project: String,
    /// Spec field.
    pub domain: String,
    /// Spec field.
    pub run: String,
    /// Spec field.
    pub action: String,
    /// From 1.
    pub attempt: u32,
    /// What it changed to.
    pub phase: ActionPhase,
    /// Orders changes within a phase, over all launches of the attempt: no two of them have a version in common.
    pub version: u32,
    /// When it changed, by the second.
    pub updated_at: Timestamp,
    /// When it was told.
    pub reported_at: Timestamp,
    /// Why it failed.
    pub error: Option<TaskError>,
    /// Where it runs.
    pub cluster: String,
    /// The directory of the attempt's outputs, as a URL.
    pub output_prefix: String,
    /// Number of `core.CatalogCacheStatus`; 0 is disabled.
    pub cache_status: i32,
    /// What happened on the way, oldest first.
    pub reasons: Vec<ReasonInfo>,
    /// Links to logs and dashboards.
    pub logs: Vec<TaskLog>,
    /// Pods and containers whose logs are the attempt's.
    pub log_context: Option<LogContext>,
}

/// How the run service calls a plugin's phase.
pub fn action_phase(phase: Phase) -> ActionPhase {
    match phase {
        Phase::Undefined => ActionPhase::Unspecified,
        Phase::NotReady | Phase::Queued => ActionPhase::Queued,
        Phase::WaitingForResources | Phase::WaitingForCache => ActionPhase::WaitingForResources,
        Phase::Initializing => ActionPhase::Initializing,
        Phase::Running => ActionPhase::Running,
        Phase::Success => ActionPhase::Succeeded,
        Phase::RetryableFailure | Phase::PermanentFailure => ActionPhase::Failed,
        Phase::Aborted => ActionPhase::Aborted,
    }
}

/// The receiver of a batch.
#[async_trait]
pub trait ActionEvents: std::fmt::Debug + Send + Sync + 'static {
    /// Tells, and returns once that is acknowledged. The same event may come again after a crash.
    async fn publish(&self, event: &ActionEvent) -> Result<(), NotPublished>;
}

/// The run service did not acknowledge an event; it comes again.
#[derive(Debug, thiserror::Error)]
#[error("the run service did not acknowledge an event: {0}")]
pub struct NotPublished(pub String);

impl Classify for NotPublished {
    fn class(&self) -> Class {
        Class::Retry
    }
}

#[cfg(test)]
mod tests;
