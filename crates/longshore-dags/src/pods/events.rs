//! What a pod's state says about its task instance (`spec/dag-scheduler.md` 2.6, for tasks that are one container: a
//! failed pod is a failed task).

use k8s_openapi::api::core::v1::Pod;

use crate::scheduler::facts::PodFact;

/// Label and annotation of a pod: the id of the try that it belongs to.
pub const LABEL_TI_ID: &str = "ti_id";
/// The same id as annotation, under upstream's name; the identity of the pod.
pub const ANNOTATION_TASK_INSTANCE_ID: &str = "task_instance_id";
/// Annotation: which launch of the try the pod is, from 1.
pub const ANNOTATION_LAUNCH: &str = "longshore.dev/launch";

/// What the watch said about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEvent {
    /// It is there: listed, added or modified.
    Applied,
    /// It is gone from the API server.
    Deleted,
}

/// What follows from an event; `None` where the pod is not one of ours.
pub fn pod_fact(event: PodEvent, pod: &Pod) -> Option<PodFact> {
    todo!("{event:?} {pod:?}")
}
