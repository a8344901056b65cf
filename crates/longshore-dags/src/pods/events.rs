//! What a pod's state says about its task instance (section 2.6 of the DAG scheduler spec, for tasks that are one
//! container: a failed pod is a failed task).
//!
//! Three rows of upstream's event table are not here. No component marks our pods as revoked, so that label means nothing.
//! And a deletion without `deletionTimestamp` is not read as "the pod left our selector", because a forced deletion looks
//! just the same and must not leave the task waiting for ever. And a pod that waits for what will not come has not failed:
//! its node may start it all the same, until the pod is gone.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateTerminated, ContainerStatus, PodCondition, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use longshore_api::{
    airflow::{
        CONTAINER_BASE, LABEL_AIRFLOW_WORKER, LABEL_EXECUTOR_DONE, LABEL_KUBERNETES_EXECUTOR, TRUE,
    },
    dags::MAX_RESULT_BYTES,
};
use longshore_kit::Cache;
use longshore_store::Failure;
use serde_json::Value;

use crate::{
    launch::{
        decide::{LaunchedPhase, PodTime},
        launched::{Launched, WatchedEvent},
        table::LaunchTable,
    },
    model::Launcher,
    pods::launched::LaunchedPod,
    scheduler::facts::LaunchChange,
};

/// Reasons for which a waiting container fails a pending pod: the default of `[kubernetes_executor]
/// worker_pod_pending_fatal_container_state_reasons`.
const FATAL_WAITING_REASONS: [&str; 5] = [
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "ImageInspectError",
    "InvalidImageName",
];

/// Reasons with which each container begins.
const STARTING_REASONS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Reasons of a container that has ended without its process having run.
const NEVER_RAN_REASONS: [&str; 2] = ["StartError", "ContainerCannotRun"];

/// Bytes of the longest character in UTF-8: nodes cut messages between two characters.
const LONGEST_CHAR: usize = 4;

/// The reason that kubelets give to a container that they do not find when they end its pod.
pub(crate) const REASON_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

impl Launched for LaunchedPod {
    const LAUNCHER: Launcher = Launcher::Pod;

    fn selector(scheduler_id: &str) -> String {
        format!(
            "{LABEL_KUBERNETES_EXECUTOR}={TRUE},{LABEL_AIRFLOW_WORKER}={scheduler_id},{LABEL_EXECUTOR_DONE}!={TRUE}"
        )
    }

    fn cache(table: &LaunchTable) -> &Arc<Cache<Self>> {
        &table.pods
    }

    fn phase(&self) -> LaunchedPhase {
        match self.status.phase.as_deref() {
            Some("Succeeded") => LaunchedPhase::Succeeded,
            Some("Failed") => LaunchedPhase::Failed,
            Some("Pending") if is_waiting_fatally(&self.status) => LaunchedPhase::Stuck,
            _ => LaunchedPhase::Live,
        }
    }

    fn node(&self) -> &str {
        self.status.host_ip.as_deref().unwrap_or_default()
    }

    fn time(&self) -> PodTime {
        PodTime {
            began_at: instant(self.status.start_time.as_ref()),
            limit: self.spec.active_deadline_seconds,
        }
    }

    fn pending(&self) -> Option<String> {
        pending(&self.status)
    }

    fn change(&self, event: WatchedEvent) -> LaunchChange {
        change(event, self)
    }
}

/// The event table.
fn change(event: WatchedEvent, pod: &LaunchedPod) -> LaunchChange {
    let status = &pod.status;
    if status.reason.as_deref() == Some("ProviderFailed") {
        return failed(status);
    }
    match (status.phase.as_deref(), event) {
        (Some("Succeeded"), _) => succeeded(pod),
        (Some("Failed"), _) => failed(status),
        (_, WatchedEvent::Deleted) if may_have_run(pod) => LaunchChange::Lost,
        // It is deleted as soon as it is seen so. That it started just then, and the events of that are forgotten, is the
        // one case which is not told from one that never ran.
        (Some("Pending"), WatchedEvent::Deleted | WatchedEvent::Vanished)
            if is_waiting_fatally(status) =>
        {
            failed(status)
        }
        (_, WatchedEvent::Vanished) => LaunchChange::Lost,
        (_, WatchedEvent::Deleted) => LaunchChange::Gone,
        (Some("Running"), WatchedEvent::Applied) => LaunchChange::Running {
            started_at: main_container(status).and_then(started_at),
        },
        (Some("Pending"), WatchedEvent::Applied) if is_waiting_fatally(status) => {
            LaunchChange::Stuck {
                failure: failure(status),
            }
        }
        (_, WatchedEvent::Applied) => LaunchChange::Exists,
    }
}

fn succeeded(pod: &LaunchedPod) -> LaunchChange {
    let main = main_container(&pod.status);
    let terminated = main.and_then(terminated);
    let ended_at = terminated.and_then(|it| instant(it.finished_at.as_ref()));
    let (result, note) = match terminated.and_then(|it| it.message.as_deref()).map(result) {
        None => (None, None),
        Some(Ok(value)) => (value, None),
        Some(Err(note)) => (None, Some(note)),
    };
    LaunchChange::Succeeded {
        started_at: main.and_then(started_at),
        ended_at,
        was_stopped: was_stopped(pod, ended_at),
        result,
        note,
    }
}

/// Whether the deletion of a pod began before it ended. Times have whole seconds: in doubt it did.
fn was_stopped(pod: &LaunchedPod, ended_at: Option<Timestamp>) -> bool {
    let meta = &pod.metadata;
    let Some(deadline) = instant(meta.deletion_timestamp.as_ref()) else {
        return false;
    };
    let grace = meta.deletion_grace_period_seconds.unwrap_or(0);
    let began_at = deadline.checked_sub(SignedDuration::from_secs(grace));
    let by_itself = ended_at.zip(began_at.ok());
    by_itself.is_none_or(|(ended_at, began_at)| ended_at >= began_at)
}

/// The result in a termination message, or why it is none.
fn result(message: &str) -> Result<Option<Value>, String> {
    if message.trim().is_empty() {
        return Ok(None);
    }
    if message.len() > MAX_RESULT_BYTES {
        let n = message.len();
        return Err(format!(
            "the result has {n} bytes, and the limit is {MAX_RESULT_BYTES}"
        ));
    }
    serde_json::from_str(message).map(Some).map_err(|error| {
        if message.len() > MAX_RESULT_BYTES - LONGEST_CHAR {
            format!(
                "the result reached the limit of {MAX_RESULT_BYTES} bytes, and what its node kept is not JSON"
            )
        } else {
            format!("the result is not JSON: {error}")
        }
    })
}

/// Whether a deleted pod without a final state may have run. No node has seen off a pod that a client has removed by
/// force: the node may just have started it.
fn may_have_run(pod: &LaunchedPod) -> bool {
    let status = &pod.status;
    let is_bound = has_condition(status, |it| {
        it.type_ == "PodScheduled" && it.status == "True"
    });
    let is_forced = pod.metadata.deletion_timestamp.is_none() && is_bound;
    matches!(status.phase.as_deref(), Some("Running" | "Unknown")) || has_run(status) || is_forced
}

/// Whether the process of the main container ran, as far as its node has said.
fn has_run(status: &PodStatus) -> bool {
    main_container(status).is_some_and(|container| {
        let state = container.state.as_ref();
        let last_ended = container
            .last_state
            .as_ref()
            .is_some_and(|it| it.terminated.is_some());
        last_ended
            || state.is_some_and(|it| it.running.is_some())
            || terminated(container).is_some_and(|it| !is_never_ran(container, it))
    })
}

fn has_condition(status: &PodStatus, is_meant: impl FnMut(&PodCondition) -> bool) -> bool {
    status.conditions.iter().flatten().any(is_meant)
}

fn failed(status: &PodStatus) -> LaunchChange {
    let main = main_container(status);
    let ended = main.and_then(terminated);
    // Kubernetes removes the pods of a node that it has lost: what runs there is not known.
    let is_of_lost_node =
        has_condition(status, |it| it.reason.as_deref() == Some("DeletionByPodGC"));
    let has_run = has_run(status) || is_of_lost_node;
    LaunchChange::Failed {
        started_at: main.filter(|_| has_run).and_then(started_at),
        ended_at: ended.and_then(|it| instant(it.finished_at.as_ref())),
        failure: failure(status),
        before_start: !has_run,
    }
}

/// A container that a kubelet does not find was never made if it has neither an id nor a start.
fn is_never_ran(container: &ContainerStatus, terminated: &ContainerStateTerminated) -> bool {
    let is_unmade = || {
        let id = container.container_id.as_deref().unwrap_or_default();
        id.is_empty() && instant(terminated.started_at.as_ref()).is_none()
    };
    terminated.reason.as_deref().is_some_and(|reason| {
        NEVER_RAN_REASONS.contains(&reason) || (reason == REASON_STATUS_UNKNOWN && is_unmade())
    })
}

/// Table 2.6.1: the first container that ended badly, init containers first; else the last one that waits. The pod's
/// own reason beats the container's.
fn failure(status: &PodStatus) -> Failure {
    let ended = all_containers(status).find_map(|(kind, container)| {
        let it = terminated(container)?;
        let is_bad = it.exit_code != 0 && it.reason.as_deref() != Some("Completed");
        is_bad.then_some((kind, container, it))
    });
    let (container, exit_code, reason, sentence) = if let Some((kind, container, it)) = ended {
        let (name, code) = (&container.name, it.exit_code);
        let by = it.signal.filter(|signal| *signal > 0);
        let by = by.map_or_else(String::new, |signal| format!(" by signal {signal}"));
        let sentence = format!("{kind} `{name}` ended with exit code {code}{by}");
        (
            Some(name),
            Some(code),
            it.reason.clone(),
            with(sentence, it.message.as_deref()),
        )
    } else if let Some((kind, container, reason, message)) = last_waiting(status) {
        let sentence = format!("{kind} `{}` could not start", container.name);
        (
            Some(&container.name),
            None,
            reason.map(str::to_owned),
            with(sentence, message),
        )
    } else {
        (None, None, None, "the pod failed".to_owned())
    };
    let pod_reason = status.reason.clone().filter(|reason| !reason.is_empty());
    let message = match &pod_reason {
        Some(reason) => format!(
            "{}; {sentence}",
            with(reason.clone(), status.message.as_deref())
        ),
        None => reason
            .as_ref()
            .map_or(sentence.clone(), |reason| format!("{reason}: {sentence}")),
    };
    Failure {
        message,
        reason: pod_reason.or(reason),
        exit_code,
        container: container.cloned(),
    }
}

/// The sentence with the first line of what the node said.
fn with(sentence: String, detail: Option<&str>) -> String {
    let detail = detail.and_then(|text| text.lines().map(str::trim).find(|line| !line.is_empty()));
    match detail {
        Some(detail) => {
            let detail: String = detail.chars().take(300).collect();
            format!("{sentence}: {detail}")
        }
        None => sentence,
    }
}

fn last_waiting(
    status: &PodStatus,
) -> Option<(&'static str, &ContainerStatus, Option<&str>, Option<&str>)> {
    let waiting = all_containers(status).filter_map(|(kind, container)| {
        let it = container.state.as_ref()?.waiting.as_ref()?;
        Some((kind, container, it.reason.as_deref(), it.message.as_deref()))
    });
    waiting.last()
}

/// What keeps a pending pod from its start, in the words of its cluster: a container, or that no node takes the pod.
fn pending(status: &PodStatus) -> Option<String> {
    if status.phase.as_deref() != Some("Pending") {
        return None;
    }
    let held = all_containers(status).find_map(|(_, container)| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone()?;
        let is_start = STARTING_REASONS.contains(&reason.as_str());
        (!is_start).then(|| with(reason, waiting.message.as_deref()))
    });
    held.or_else(|| {
        let mut conditions = status.conditions.iter().flatten();
        let unplaced = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
        Some(with(unplaced.reason.clone()?, unplaced.message.as_deref()))
    })
}

/// Whether an init container or the main one waits for what will not come.
fn is_waiting_fatally(status: &PodStatus) -> bool {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(main_container(status)).any(|container| {
        let Some(waiting) = container.state.as_ref().and_then(|it| it.waiting.as_ref()) else {
            return false;
        };
        let reason = waiting.reason.as_deref().unwrap_or_default();
        // The node's own throttle on pulls, which passes.
        let is_throttled =
            reason == "ErrImagePull" && waiting.message.as_deref() == Some("pull QPS exceeded");
        FATAL_WAITING_REASONS.contains(&reason) && !is_throttled
    })
}

fn all_containers(status: &PodStatus) -> impl Iterator<Item = (&'static str, &ContainerStatus)> {
    let init = status.init_container_statuses.iter().flatten();
    let main = status.container_statuses.iter().flatten();
    init.map(|it| ("init container", it))
        .chain(main.map(|it| ("container", it)))
}

fn main_container(status: &PodStatus) -> Option<&ContainerStatus> {
    let containers = status.container_statuses.as_ref()?;
    containers
        .iter()
        .find(|it| it.name == CONTAINER_BASE)
        .or_else(|| containers.first())
}

fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn started_at(container: &ContainerStatus) -> Option<Timestamp> {
    let ContainerState {
        running,
        terminated,
        ..
    } = container.state.as_ref()?;
    let running = running.as_ref().and_then(|it| it.started_at.as_ref());
    let terminated = terminated.as_ref().and_then(|it| it.started_at.as_ref());
    instant(running.or(terminated))
}

/// A node that does not know a time may write the epoch.
fn instant(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
        .filter(|at| *at > Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
