//! The phase of a task that a plugin reports, and its reason.

use jiff::Timestamp;
use longshore_api::flyte::{ERROR_KIND_SYSTEM, ERROR_KIND_USER};
use longshore_core::text::{MAX_TEXT, shorten, shorten_to};
use longshore_proto::flyteidl2::core::{LogContext, TaskLog};
use prost::Message;
use serde::Serialize;
use serde_json::Value;

use crate::state::K8sState;

/// The reason of a pending resource about which nothing is known; upstream spells it so.
pub const NOTHING_KNOWN: &str = "Demistify Pending";
/// The longest code of an error, in bytes.
const MAX_CODE: usize = 256;
/// The most links of one attempt.
const MAX_LINKS: usize = 100;

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

/// A plugin's answer. The texts in it may be those of a foreign system, and no object holds a text of any length: the
/// functions here [shorten](longshore_core::text::shorten) them.
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
            reason: shorten(reason),
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
    pub fn with_info(self, mut info: Info) -> Self {
        bound_links(&mut info.logs);
        Self { info, ..self }
    }

    /// The phase with one more reason, after a comma.
    #[must_use]
    pub fn with_reason(mut self, reason: &str) -> Self {
        if !self.reason.is_empty() {
            self.reason.push_str(", ");
        }
        self.reason.push_str(reason);
        self.reason = shorten(self.reason);
        self
    }

    fn failure(
        phase: Phase,
        kind: ErrorKind,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let error = TaskError {
            code: shorten_to(code, MAX_CODE),
            message: shorten(message),
            kind,
        };
        Self {
            error: Some(error),
            ..Self::of(phase, "")
        }
    }
}

/// Leaves out links that are too long, because a part of a link leads nowhere, and those beyond the [`MAX_LINKS`]th.
pub(crate) fn bound_links(links: &mut Vec<TaskLog>) {
    links.retain(|link| link.encoded_len() <= MAX_TEXT);
    links.truncate(MAX_LINKS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_length_are_kept_in_short() {
        let long = || "a".repeat(1 << 20);
        let short = shorten(long());
        let waiting = PhaseInfo::of(Phase::Queued, long());
        assert_eq!(waiting.reason, short);
        let waiting = PhaseInfo::of(Phase::Queued, "why").with_reason(&long());
        assert!(waiting.reason.starts_with("why, aaa"));
        assert_eq!(waiting.reason.len(), MAX_TEXT);
        let failed = PhaseInfo::retryable(ErrorKind::User, long(), long());
        let error = failed.error.unwrap();
        assert_eq!(error.message, short);
        assert_eq!(error.code.len(), MAX_CODE);
    }

    #[test]
    fn links_that_are_too_long_or_too_many_are_left_out() {
        let link = |length: usize| TaskLog {
            uri: "u".repeat(length),
            ..TaskLog::default()
        };
        let mut logs = vec![link(10), link(MAX_TEXT)];
        logs.extend(vec![link(10); MAX_LINKS]);
        let info = Info {
            logs,
            ..Info::default()
        };
        let kept = PhaseInfo::of(Phase::Running, "").with_info(info).info.logs;
        assert_eq!(kept, vec![link(10); MAX_LINKS]);
    }
}
