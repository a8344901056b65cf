//! The phase of a task that a plugin reports, and its reason.

use jiff::Timestamp;
use longshore_api::flyte::{ERROR_KIND_SYSTEM, ERROR_KIND_USER};
use longshore_proto::flyteidl2::core::{LogContext, TaskLog};
use serde::Serialize;
use serde_json::Value;

use crate::state::K8sState;

/// The reason of a pending resource about which nothing is known; upstream spells it so.
pub const NOTHING_KNOWN: &str = "Demistify Pending";

/// A plugin's phase, in upstream's order: comparisons are part of the contract (task action spec §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[repr(u8)]
pub enum Phase {
    /// Nothing is known.
    #[default]
    Undefined = 0,
    /// The plugin is not ready to start the task.
    NotReady = 1,
    /// The task waits for quota or an allocation.
    WaitingForResources = 2,
    /// The resource exists, and nothing of it runs.
    Queued = 3,
    /// Images are pulled, volumes are mounted.
    Initializing = 4,
    /// The user's code runs.
    Running = 5,
    /// The task ended well.
    Success = 6,
    /// The task failed, and may be tried again.
    RetryableFailure = 7,
    /// The task failed for good.
    PermanentFailure = 8,
    /// Another execution fills the cache for it.
    WaitingForCache = 9,
    /// The task was aborted at a user's request.
    Aborted = 10,
}

impl Phase {
    /// All of them, by number.
    pub const ALL: [Self; 11] = [
        Self::Undefined,
        Self::NotReady,
        Self::WaitingForResources,
        Self::Queued,
        Self::Initializing,
        Self::Running,
        Self::Success,
        Self::RetryableFailure,
        Self::PermanentFailure,
        Self::WaitingForCache,
        Self::Aborted,
    ];

    /// As `status.pluginPhase` has it: `PhaseRunning`.
    pub fn published(self) -> &'static str {
        match self {
            Self::Undefined => "PhaseUndefined",
            Self::NotReady => "PhaseNotReady",
            Self::WaitingForResources => "PhaseWaitingForResources",
            Self::Queued => "PhaseQueued",
            Self::Initializing => "PhaseInitializing",
            Self::Running => "PhaseRunning",
            Self::Success => "PhaseSuccess",
            Self::RetryableFailure => "PhaseRetryableFailure",
            Self::PermanentFailure => "PhasePermanentFailure",
            Self::WaitingForCache => "PhaseWaitingForCache",
            Self::Aborted => "PhaseAborted",
        }
    }

    /// The phase of this published name; `None` for any other text.
    pub fn parse(published: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.published() == published)
    }

    /// Whether nothing follows, not even another attempt.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::PermanentFailure | Self::Aborted)
    }
}

/// The origin of a failure: a user's failure consumes an attempt, the system's does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum ErrorKind {
    /// Not said; treated like the user's.
    Unknown,
    /// The user's code or specification.
    User,
    /// The machinery.
    System,
}

impl ErrorKind {
    /// Its name in statuses and events; empty for an unknown kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::User => ERROR_KIND_USER,
            Self::System => ERROR_KIND_SYSTEM,
        }
    }
}

/// The code of a failure that the operator of a resource reports.
pub(crate) const DOWNSTREAM_SYSTEM_ERROR: &str = "DownstreamSystemError";
/// The code of a failure that is the task's own.
pub(crate) const TASK_FAILED_WITH_ERROR: &str = "TaskFailedWithError";

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskError {
    /// CamelCase, as `OOMKilled`.
    pub code: String,
    /// The message for people.
    pub message: String,
    /// The origin of the failure.
    pub kind: ErrorKind,
}

/// Something that happened on the way, reported together with a phase: a Kubernetes Event, a cache decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonInfo {
    /// What happened, for people.
    pub reason: String,
    /// When it happened.
    pub occurred_at: Timestamp,
}

/// What can be looked at while a task runs, and after.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// Links to logs and dashboards.
    pub logs: Vec<TaskLog>,
    /// Pods and containers whose logs are the task's.
    pub log_context: Option<LogContext>,
    /// Further information of the plugin, an object.
    pub custom: Option<Value>,
    /// When it became known, by the status of the resource.
    pub reported_at: Option<Timestamp>,
}

/// A plugin's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseInfo {
    /// The phase.
    pub phase: Phase,
    /// Orders changes within a phase; a receiver drops what has the same phase and version.
    pub version: u32,
    /// The reason for people.
    pub reason: String,
    /// Why it failed; `Some` in the two failure phases.
    pub error: Option<TaskError>,
    /// When it happened, by the status of the resource; `None` where the status has no time.
    pub occurred_at: Option<Timestamp>,
    /// What else happened, oldest first.
    pub reasons: Vec<ReasonInfo>,
    /// The resource must not outlive this failure, because it would go on trying (spec §9.6).
    pub cleanup_on_failure: bool,
    /// Links, times and other information for users.
    #[serde(skip)]
    pub info: Info,
}

impl PhaseInfo {
    /// This phase, version 0.
    pub fn of(phase: Phase, reason: impl Into<String>) -> Self {
        Self {
            phase,
            version: 0,
            reason: reason.into(),
            error: None,
            occurred_at: None,
            reasons: Vec::new(),
            cleanup_on_failure: false,
            info: Info::default(),
        }
    }

    /// A failure that may be tried again.
    pub fn retryable(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failure(Phase::RetryableFailure, kind, code, message)
    }

    /// A failure for good.
    pub fn permanent(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failure(Phase::PermanentFailure, kind, code, message)
    }

    /// The phase of a resource whose status has words that are not known here: as far as it was before.
    pub(crate) fn unknown(last: &K8sState, reason: impl Into<String>) -> Self {
        Self::of(last.phase.max(Phase::Queued), reason)
    }

    /// The phase with links, times and other information.
    #[must_use]
    pub fn with_info(self, info: Info) -> Self {
        Self { info, ..self }
    }

    /// The phase with one more reason, after a comma.
    #[must_use]
    pub fn with_reason(mut self, reason: &str) -> Self {
        if !self.reason.is_empty() {
            self.reason.push_str(", ");
        }
        self.reason.push_str(reason);
        self
    }

    fn failure(
        phase: Phase,
        kind: ErrorKind,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let error = TaskError {
            code: code.into(),
            message: message.into(),
            kind,
        };
        Self {
            error: Some(error),
            ..Self::of(phase, "")
        }
    }
}
