//! Whether a pending pod can still start, or the attempt has failed.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    duration::go_duration,
    status::{self, ContainerStatus},
};
use crate::{
    config::GracePeriods,
    phase::{ErrorKind, NOTHING_KNOWN, Phase, PhaseInfo},
};

/// The pod waited too long for whatever it waits for.
const POD_PENDING_TIMEOUT: &str = "PodPendingTimeout";
/// What registries answer to a client with too many requests.
const RATE_LIMITED: &str = "429 Too Many Requests";

/// The phase of a pending pod.
pub(super) fn of(status: &Value, grace: &GracePeriods, now: Timestamp) -> PhaseInfo {
    let (info, since) = explain(status, grace, now);
    let timeout = grace.pod_pending_timeout;
    let is_over = !timeout.is_zero() && elapsed(since, now) >= timeout;
    if is_over && info.error.is_none() {
        let failure = PhaseInfo::retryable(ErrorKind::System, POD_PENDING_TIMEOUT, info.reason);
        return cleaned_up(failure, since);
    }
    info
}

/// What the first condition that says something says, and since when; without any, the time of the last condition.
fn explain(status: &Value, grace: &GracePeriods, now: Timestamp) -> (PhaseInfo, Timestamp) {
    let mut since = now;
    for condition in status["conditions"].as_array().into_iter().flatten() {
        since = status::time(condition, "lastTransitionTime").unwrap_or(now);
        let is_false = condition["status"] == "False";
        let (reason, message) = (
            status::text(condition, "reason"),
            status::text(condition, "message"),
        );
        match status::text(condition, "type") {
            "PodScheduled" if is_false => {}
            "Unschedulable" => {}
            "Ready" if is_false => {
                if let Some(waiting) = first_waiting(status) {
                    let trouble = Trouble::of(condition, waiting, since);
                    return (trouble.judge(grace, now), since);
                }
                continue;
            }
            _ => continue,
        }
        let queued = PhaseInfo::of(Phase::Queued, format!("{reason}:{message}"));
        return (queued, since);
    }
    (PhaseInfo::of(Phase::Queued, NOTHING_KNOWN), since)
}

/// Init containers come first: while one is stuck, all others merely wait for it.
fn first_waiting(status: &Value) -> Option<&Value> {
    let init = status::containers(status, &["initContainerStatuses"]);
    let rest = status::containers(status, &["containerStatuses"]).filter(|c| !c.is_ready());
    init.chain(rest).find_map(ContainerStatus::waiting)
}

/// Why a container does not start.
struct Trouble<'a> {
    waiting_reason: &'a str,
    waiting_message: &'a str,
    /// Of the condition and of the container.
    reason: String,
    /// Of the condition and of the container.
    message: String,
    since: Timestamp,
}

impl<'a> Trouble<'a> {
    fn of(condition: &'a Value, waiting: &'a Value, since: Timestamp) -> Self {
        let waiting_reason = status::text(waiting, "reason");
        let waiting_message = status::text(waiting, "message");
        Self {
            reason: format!("{}|{waiting_reason}", status::text(condition, "reason")),
            message: format!("{}|{waiting_message}", status::text(condition, "message")),
            waiting_reason,
            waiting_message,
            since,
        }
    }

    fn judge(&self, grace: &GracePeriods, now: Timestamp) -> PhaseInfo {
        let permanent =
            |message: String| PhaseInfo::permanent(ErrorKind::User, self.reason.clone(), message);
        let retryable =
            |kind, message: String| PhaseInfo::retryable(kind, self.reason.clone(), message);
        let (period, failure): (Duration, &dyn Fn(String) -> PhaseInfo) = match self.waiting_reason
        {
            // An image that cannot be pulled ends as ImagePullBackOff.
            "ErrImagePull" | "ContainerCreating" | "PodInitializing" => return self.initializing(),
            "CreateContainerError" => (grace.create_container_error, &permanent),
            "CreateContainerConfigError" => (grace.create_container_config_error, &permanent),
            "ImagePullBackOff" if self.waiting_message.contains(RATE_LIMITED) => {
                (grace.image_pull_backoff, &|message| {
                    retryable(ErrorKind::System, message)
                })
            }
            "ImagePullBackOff" => (grace.image_pull_backoff, &|message| {
                retryable(ErrorKind::User, message)
            }),
            "InvalidImageName" => return cleaned_up(permanent(self.message.clone()), self.since),
            _ => {
                let failure = retryable(ErrorKind::System, self.message.clone());
                return cleaned_up(failure, self.since);
            }
        };
        if elapsed(self.since, now) < period {
            return self.initializing();
        }
        let (period, message) = (go_duration(period), &self.message);
        let message = format!("Grace period [{period}] exceeded|{message}");
        cleaned_up(failure(message), self.since)
    }

    fn initializing(&self) -> PhaseInfo {
        let (reason, message) = (&self.reason, &self.message);
        PhaseInfo {
            occurred_at: Some(self.since),
            ..PhaseInfo::of(Phase::Initializing, format!("[{reason}]: {message}"))
        }
    }
}

/// The pod would go on trying, so it has to go.
fn cleaned_up(failure: PhaseInfo, since: Timestamp) -> PhaseInfo {
    PhaseInfo {
        occurred_at: Some(since),
        cleanup_on_failure: true,
        ..failure
    }
}

/// The node's clock may be ahead of ours.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
