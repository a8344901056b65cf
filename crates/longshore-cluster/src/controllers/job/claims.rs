//! Which pods are a Job's, and the finalizers that nobody else will take off. Pure.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{
    model::{Desired, Observed},
    pod,
};
use crate::controllers::workloads::{
    FINALIZER_JOB_TRACKING,
    claim::Claimant,
    controller_of,
    hands::{Request, Target},
};

/// The pods of a Job, and the requests that come first: adoptions, releases, and finalizers of an earlier Job of its
/// name.
pub(super) fn sort<'a>(desired: &Desired, observed: &'a Observed) -> (Vec<&'a Pod>, Vec<Request>) {
    let claimant = Claimant {
        owner: &desired.job,
        reference: desired.job.as_controller("batch/v1", "Job"),
        target: Target::Pod,
    };
    let (mut mine, mut requests) = (Vec::new(), Vec::new());
    for pod in &observed.pods {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let is_selected = desired.selector.matches(&labels);
        let n_requests = requests.len();
        if claimant.takes(&pod.metadata, is_selected, true, &mut requests) {
            mine.push(pod);
            requests
                .iter_mut()
                .skip(n_requests)
                .for_each(|it| hold(it, pod));
        } else if pod::is_tracked(pod) && requests.len() == n_requests && is_left(desired, pod) {
            requests.push(pod::let_go(pod));
        }
    }
    (mine, requests)
}

/// An adopted pod gets the finalizer with its owner, so that its end is counted.
fn hold(adoption: &mut Request, pod: &Pod) {
    if let Request::Patch { patch, .. } = adoption {
        let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
        if !pod::is_tracked(pod) {
            finalizers.push(FINALIZER_JOB_TRACKING.to_owned());
        }
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
}

/// Whether the pod is of an earlier Job of this name.
fn is_left(desired: &Desired, pod: &Pod) -> bool {
    controller_of(&pod.metadata).is_none_or(|owner| {
        let is_job = owner.kind == "Job" && owner.api_version.starts_with("batch/");
        is_job && owner.name == desired.job.name() && owner.uid != desired.job.uid()
    })
}

/// The requests that let go of the pods of a Job that is gone.
pub(super) fn of_nobody(pods: &[Pod]) -> Vec<Request> {
    pods.iter()
        .filter(|pod| pod::is_tracked(pod))
        .map(pod::let_go)
        .collect()
}
