//! What the controller does about a pod that shall go.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::podops::{ID_POD_DELETE, LABEL_TO_DELETE, OperationLabel, REASON_POD_DELETION};
use longshore_core::{Action, Announcement, Delete, EventType, Never, Next, Plan, Seen};

use crate::{
    MAX_HOLD,
    admit::grace::{begun, held, is_begun, may_delete},
    eviction::{Budget, Removal, can_be_past, evicted_at, removal},
    lifecycle::{Observed, PodEffect, PodPlan, look_again, relabel},
    model::{Namespace, Operation, Pod, parse_stamp, stamp},
};

/// A client that evicts is asked to retry after 5 s. A client that has not within this time is gone, or has other
/// habits.
const EVICTION_PATIENCE: Duration = Duration::from_secs(15);

/// Begins the operation, or ends it; `None` where neither is due.
///
/// A pod is to go where a client asked for that, and where its namespace goes: the namespace controller stops at the
/// first refusal, so that one pod at a time would go. A pod that may go at once is left to that controller.
///
/// The delete names the incarnation. Its record is the label that grants it, which stays with the pod to its end. A pod
/// whose eviction was asked for is evicted and not deleted, so that the API server holds its budgets against it once more.
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
    if !may_delete(pod) {
        return None;
    }
    if observed.namespace == Namespace::Goes {
        return Some(delete(pod));
    }
    if let Some(left) = held_for(pod, observed.now) {
        return Some(Plan::after(left));
    }
    Some(match evicted(pod, observed.now) {
        None => delete(pod),
        Some(left) if !left.is_zero() => Plan::after(left),
        Some(_) => evict(pod, &observed.budgets, observed.now),
    })
}

/// The client that asked for the eviction has not retried. A change of the pod's budgets leads to another round.
fn evict(pod: &Pod, budgets: &Seen<Vec<Budget>>, now: Timestamp) -> PodPlan {
    let budgets = match budgets {
        Seen::Present(budgets) => budgets.as_slice(),
        Seen::Absent => &[],
        Seen::Unknown(_) => return look_again(),
    };
    match removal(pod, budgets, now) {
        Removal::Wait => Plan::await_change(),
        Removal::Delete => delete(pod),
        Removal::Evict => Plan::of(vec![
            Action::Call(PodEffect::Evict(pod.target.clone())),
            removed(pod, "Evicted pod"),
        ]),
    }
}

/// How long the controller still leaves the eviction to the client; `None` where no client asked for one.
///
/// The client retries by the name of the pod. If the controller deleted a StatefulSet's pod earlier, the retry would
/// evict its replacement. An instant that lies ahead counts as none.
fn evicted(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let evicted_at = evicted_at(pod).filter(|at| can_be_past(*at, now))?;
    let operation = Operation::of(&pod.labels, ID_POD_DELETE);
    let granted_at = operation
        .get(OperationLabel::Operate)
        .and_then(parse_stamp)
        .filter(|at| can_be_past(*at, now))?;
    let since = now.duration_since(evicted_at.max(granted_at));
    Some(EVICTION_PATIENCE.saturating_sub(Duration::try_from(since).unwrap_or_default()))
}

/// How long the controller still leaves the delete to the client whose delete is held; `None` where no delete is held.
///
/// A time that no webhook of ours can have written counts as none.
fn held_for(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(held(pod)?.duration_since(now)).ok()?;
    Some(left).filter(|left| !left.is_zero() && *left < 2 * MAX_HOLD)
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
                resource_version: None,
                waits_for_dependents: false,
            }),
            removed(pod, "Deleted pod"),
        ],
        next: Next::AwaitChange,
    }
}

fn removed(pod: &Pod, note: &str) -> Action<Never, PodEffect> {
    Action::Announce(Announcement {
        regarding: pod.target.clone(),
        event_type: EventType::Normal,
        reason: REASON_POD_DELETION,
        note: note.to_owned(),
    })
}
