//! What the controller does about a pod that shall go.

use jiff::Timestamp;
use longshore_api::podops::{
    ID_POD_DELETE, LABEL_PREPARING_TO_DELETE, LABEL_TO_DELETE, OperationLabel, REASON_POD_DELETION,
    TYPE_DELETE,
};
use longshore_core::{Action, Announcement, Delete, EventType, Next, Plan};

use crate::{
    admit::grace::{is_begun, may_delete},
    lifecycle::{PodPlan, relabel},
    model::{Operation, Pod, stamp},
};

/// Begins the operation, or ends it; `None` where neither is due.
///
/// The delete names the incarnation. Its record is the label that grants it, which stays with the pod to its end.
pub fn decide(pod: &Pod, now: Timestamp) -> Option<PodPlan> {
    let is_wanted = pod.is_controlled() && pod.labels.contains_key(LABEL_TO_DELETE);
    if !is_wanted || pod.is_deleting {
        return None;
    }
    if !is_begun(&Operation::of(&pod.labels, ID_POD_DELETE)) {
        return Some(begin(pod, now));
    }
    may_delete(pod).then(|| delete(pod))
}

fn begin(pod: &Pod, now: Timestamp) -> PodPlan {
    let now = stamp(now);
    let mut labels = pod.labels.clone();
    let operating = OperationLabel::Operating.of(ID_POD_DELETE);
    labels.entry(operating).or_insert_with(|| now.clone());
    let operation_type = OperationLabel::OperationType.of(ID_POD_DELETE);
    labels.insert(operation_type, TYPE_DELETE.to_owned());
    let hint = LABEL_PREPARING_TO_DELETE.to_owned();
    labels.entry(hint).or_insert(now);
    relabel(pod, &labels)
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
