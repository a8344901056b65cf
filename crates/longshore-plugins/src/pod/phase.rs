//! The phase of a task, from its pod (task action spec §11.9).

use jiff::Timestamp;
use longshore_api::flyte::ANNOTATION_PRIMARY_CONTAINER;
use serde_json::Value;

use super::{
    failure, pending,
    status::{self, ContainerStatus, OOM_KILLED},
};
use crate::{
    config::GracePeriods,
    phase::{ErrorKind, Phase, PhaseInfo},
};

/// The pod has no container with the name of the primary one, whose end is the end of the task.
const PRIMARY_CONTAINER_NOT_FOUND: &str = "PrimaryContainerNotFound";
/// Version of a running task whose logs can be looked at, which is so from its start.
const WITH_LOGS: u32 = 1;

/// The phase of a pod.
pub(super) fn of(pod: &Value, grace: &GracePeriods, now: Timestamp) -> PhaseInfo {
    let status = &pod["status"];
    let primary = pod["metadata"]["annotations"][ANNOTATION_PRIMARY_CONTAINER].as_str();
    let mut info = match status::text(status, "phase") {
        "Succeeded" => success(status),
        "Failed" => failure::of(status, primary.unwrap_or_default()),
        "Pending" => pending::of(status, grace, now),
        "Unschedulable" => PhaseInfo::of(Phase::Queued, "pod unschedulable"),
        "Unknown" => return PhaseInfo::of(Phase::Undefined, ""),
        // Running, or a pod that no node has seen yet.
        _ => match primary {
            Some(primary) => running(pod, primary),
            None => running_without_primary(status),
        },
    };
    info.occurred_at = info.occurred_at.or_else(|| status::changed_at(status));
    info
}

/// A node may call a pod that was killed for its memory a success.
fn success(status: &Value) -> PhaseInfo {
    let mut ends =
        status::containers(status, failure::ALL_LISTS).filter_map(ContainerStatus::terminated);
    if ends.any(status::Terminated::is_oom_killed) {
        return PhaseInfo::retryable(
            ErrorKind::User,
            OOM_KILLED,
            "Pod reported success despite being OOMKilled",
        );
    }
    PhaseInfo::of(Phase::Success, "")
}

/// Without a primary container, all of them have to end well, sidecars among the init containers included.
fn running_without_primary(status: &Value) -> PhaseInfo {
    let is_done = |container: ContainerStatus<'_>| {
        let end = container.terminated();
        end.is_some_and(|end| end.exit_code() == 0)
    };
    let has_started = status::containers(status, &["containerStatuses"])
        .next()
        .is_some();
    let lists = &["containerStatuses", "initContainerStatuses"];
    if has_started && status::containers(status, lists).all(is_done) {
        return success(status);
    }
    still_running()
}

fn running(pod: &Value, primary: &str) -> PhaseInfo {
    let status = &pod["status"];
    let found = status::containers(status, &["containerStatuses"]).find(|c| c.name() == primary);
    if let Some(container) = found {
        if container.waiting().is_some() || container.running().is_some() {
            return still_running();
        }
        if let Some(end) = container.terminated() {
            return ended(end, primary, status);
        }
    }
    let containers = pod["spec"]["containers"].as_array();
    let is_in_spec = containers
        .into_iter()
        .flatten()
        .any(|container| container["name"] == primary);
    if is_in_spec {
        return PhaseInfo::of(Phase::Running, "");
    }
    PhaseInfo::permanent(
        ErrorKind::User,
        PRIMARY_CONTAINER_NOT_FOUND,
        format!("Primary container [{primary}] not found in pod's container statuses"),
    )
}

fn ended(end: status::Terminated<'_>, primary: &str, status: &Value) -> PhaseInfo {
    if end.exit_code() != 0
        && !end.is_oom_killed()
        && let Some(why) = status::disruption(status)
    {
        let message = why + &end.message(primary);
        return PhaseInfo::retryable(ErrorKind::System, failure::INTERRUPTED, message);
    }
    // Too much memory is the user's doing, though it ends with the same signal as the loss of a node.
    let kind = if end.is_oom_killed() {
        ErrorKind::User
    } else if end.is_killed() {
        ErrorKind::System
    } else if end.exit_code() != 0 {
        ErrorKind::User
    } else {
        return PhaseInfo::of(Phase::Success, "");
    };
    PhaseInfo::retryable(kind, end.reason(), end.message(primary))
}

fn still_running() -> PhaseInfo {
    PhaseInfo {
        version: WITH_LOGS,
        ..PhaseInfo::of(Phase::Running, "")
    }
}
