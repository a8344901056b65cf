//! What the controller does about a pod that shall go.

use jiff::Timestamp;
use longshore_api::podops::{ID_POD_DELETE, LABEL_TO_DELETE, REASON_POD_DELETION};
use longshore_core::{Action, Announcement, Delete, EventType, Next, Plan};

use crate::{
    admit::grace::{begun, is_begun, may_delete},
    lifecycle::{Observed, PodPlan, relabel},
    model::{Namespace, Operation, Pod, stamp},
};

/// Begins the operation, or ends it; `None` where neither is due.
///
/// A pod is to go where somebody wants it to, and where its namespace goes: whoever empties a namespace stops at the first
/// refusal, so that one pod at a time would go. A pod that may go at once is theirs.
///
/// The delete names the incarnation. Its record is the label that grants it, which stays with the pod to its end.
pub fn decide(observed: &Observed) -> Option<PodPlan> {
    let pod = observed.pod.present()?;
    let is_wanted = pod.labels.contains_key(LABEL_TO_DELETE);
    let goes_along = observed.namespace == Namespace::Goes && pod.has_gate && !pod.has_ended;
    if !pod.is_controlled() || pod.is_deleting || !(is_wanted || goes_along) {
        return None;
    }
    if !is_begun(&Operation::of(&pod.labels, ID_POD_DELETE)) {
        return Some(begin(pod, observed.now));
    }
    may_delete(pod).then(|| delete(pod))
}

fn begin(pod: &Pod, now: Timestamp) -> PodPlan {
    relabel(pod, &begun(&pod.labels, &stamp(now)))
}

fn delete(pod: &Pod) -> PodPlan {
    Plan {
        actions: vec![
            Action::Delete(Delete {
                target: pod.target.clone(),
                grace_period_seconds: None,
                waits_for_dependents: false,
            }),
            Action::Announce(Announcement {
                regarding: pod.target.clone(),
                event_type: EventType::Normal,
                reason: REASON_POD_DELETION,
                note: "Deleted pod".to_owned(),
            }),
        ],
        next: Next::AwaitChange,
    }
}
