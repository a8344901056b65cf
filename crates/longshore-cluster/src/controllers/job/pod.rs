//! What a pod says to its Job. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::json;

use super::model::Desired;
use crate::controllers::workloads::{
    FINALIZER_JOB_TRACKING,
    hands::{Request, Target},
    pods,
};

pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const IGNORED_FAILURE_COUNT: &str =
    "batch.kubernetes.io/job-index-ignored-failure-count";

/// Whether the end of the pod is not written down yet.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    let mut finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers.any(|it| it == FINALIZER_JOB_TRACKING)
}

pub(super) fn has_succeeded(pod: &Pod) -> bool {
    pods::phase(pod) == "Succeeded"
}

/// On its way out, and not ended yet.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    pods::is_deleting(pod) && !matches!(pods::phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod counts as failed: it has, or it goes and the Job does not wait for its end.
pub(super) fn has_failed(desired: &Desired, pod: &Pod) -> bool {
    pods::phase(pod) == "Failed"
        || (!desired.awaits_ends() && pods::is_deleting(pod) && !has_succeeded(pod))
}

fn annotation<T: std::str::FromStr>(pod: &Pod, key: &str) -> Option<T> {
    pod.metadata.annotations.as_ref()?.get(key)?.parse().ok()
}

pub(super) fn index(pod: &Pod) -> Option<usize> {
    annotation(pod, COMPLETION_INDEX)
}

/// The failures of the pods before this one of the same index: those that count, and those that a policy ignores.
pub(super) fn failures_before(pod: &Pod) -> (u32, u32) {
    let count = |key: &str| annotation(pod, key).unwrap_or(0);
    (count(FAILURE_COUNT), count(IGNORED_FAILURE_COUNT))
}

/// When the pod ended: when its last container did, else when it was no longer ready, else when it was deleted.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let created = pod.metadata.creation_timestamp.as_ref();
    of_containers(pod)
        .or_else(|| not_ready_since(pod))
        .or_else(|| deleted_at(pod))
        .or(created.map(|it| it.0))
        .unwrap_or(Timestamp::MIN)
}

fn of_containers(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let spec = pod.spec.as_ref();
    let is_sidecar = |name: &str| {
        let mut all = spec
            .into_iter()
            .flat_map(|it| it.init_containers.iter().flatten());
        all.any(|it| it.name == name && pods::is_sidecar(it))
    };
    let sidecars = status.init_container_statuses.iter().flatten();
    let sidecars = sidecars.filter(|it| is_sidecar(&it.name));
    let all = status.container_statuses.iter().flatten().chain(sidecars);
    let end = |it: &ContainerStatus| {
        let terminated = it.state.as_ref()?.terminated.as_ref()?;
        terminated.finished_at.as_ref().map(|it| it.0)
    };
    let ends: Option<Vec<Timestamp>> = all.map(end).collect();
    ends?.into_iter().max()
}

fn not_ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|it| it.type_ == "Ready")?;
    let since = ready.last_transition_time.as_ref().map(|it| it.0);
    since.filter(|_| ready.status == "False")
}

fn deleted_at(pod: &Pod) -> Option<Timestamp> {
    let at = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    at.checked_sub(SignedDuration::from_secs(grace)).ok()
}

/// The request that lets go of exactly this version of a pod.
pub(super) fn let_go(pod: &Pod) -> Request {
    let finalizers = pod.metadata.finalizers.iter().flatten();
    let others: Vec<&String> = finalizers
        .filter(|it| *it != FINALIZER_JOB_TRACKING)
        .collect();
    Request::Patch {
        target: Target::Pod,
        name: pods::name(pod).to_owned(),
        patch: json!({"metadata": {
            "uid": pods::uid(pod), "resourceVersion": pod.metadata.resource_version, "finalizers": others,
        }}),
    }
}
