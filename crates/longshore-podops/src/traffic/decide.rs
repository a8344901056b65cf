//! What is written about the traffic of a pod: the finalizer, and nothing else.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_DRAIN_DELAY, FINALIZER_SERVICES, REASON_INVALID_DRAIN_DELAY,
};
use longshore_core::{Action, Patch, Plan, Seen};
use serde_json::json;

use super::model::{DrainDelay, Traffic};
use crate::{
    lifecycle::{Observed, PodPlan, upon, warn},
    model::{ConditionStatus, Namespace, Pod},
};

/// Adds the finalizer, or removes it, where that is due. Else nothing, and when to look again.
///
/// `None`: whether traffic is routed to the pod is unknown. Then nothing at all may be written about it: its gate might
/// be closed unprotected.
pub fn decide(observed: &Observed) -> Option<PodPlan> {
    let Seen::Present(pod) = &observed.pod else {
        return Some(Plan::await_change());
    };
    let is_held = pod.finalizers.iter().any(|it| it == FINALIZER_SERVICES);
    let traffic = match &observed.traffic {
        _ if !may_be_held(pod) || observed.namespace == Namespace::Goes => None,
        Seen::Unknown(_) => return None,
        // Services protect no pod here any more.
        Seen::Absent => None,
        Seen::Present(traffic) => Some(traffic),
    };
    let Some(traffic) = traffic else {
        return Some(if is_held {
            let_go(pod)
        } else {
            Plan::await_change()
        });
    };
    let is_open = pod.service_ready != Some(ConditionStatus::False);
    let is_wanted = is_open && !traffic.services.is_empty();
    Some(match (is_wanted, is_held) {
        (true, false) => hold(pod, traffic),
        (false, true) => drain(pod, traffic, observed.now),
        (true, true) | (false, false) => Plan::await_change(),
    })
}

/// Whether an operation could wait for the finalizer, and the finalizer could save anything: the containers of a pod
/// that was deleted are stopped whatever it carries.
fn may_be_held(pod: &Pod) -> bool {
    pod.is_controlled() && pod.has_gate && !pod.is_deleting && !pod.has_ended
}

fn hold(pod: &Pod, traffic: &Traffic) -> PodPlan {
    let mut finalizers = pod.finalizers.clone();
    finalizers.push(FINALIZER_SERVICES.to_owned());
    let mut actions = vec![with(pod, &finalizers)];
    let mistakes: Vec<String> = traffic
        .services
        .iter()
        .filter_map(|service| match &service.drain_delay {
            DrainDelay::Invalid(text) => Some(format!(
                "expected a time as 10s in the annotation {ANNOTATION_DRAIN_DELAY} of Service {}, found {text:?}",
                service.name
            )),
            DrainDelay::Unsaid | DrainDelay::Of(_) => None,
        })
        .collect();
    if !mistakes.is_empty() {
        let seconds = traffic.drain_delay.as_secs_f64();
        let note = format!(
            "{}: its traffic drains for {seconds} s",
            mistakes.join("; ")
        );
        actions.push(warn(pod, REASON_INVALID_DRAIN_DELAY, note));
    }
    Plan::of(actions)
}

/// Lets go where the pod is in no slice any more, and the delay has passed since.
fn drain(pod: &Pod, traffic: &Traffic, now: Timestamp) -> PodPlan {
    // While it is Ready, slices may have it as ready at any moment, if they have not yet: they follow its condition, and
    // not the gate. The slices will tell, and the pod.
    let may_be_routed = pod.is_ready && !traffic.services.is_empty();
    if may_be_routed || !traffic.routed_by.is_empty() {
        return Plan::await_change();
    }
    // Slices follow the pod: where ours came late, it has left them after it was Ready for the last time.
    let not_ready_since = pod.ready_changed_at.filter(|_| !pod.is_ready);
    let out_since = not_ready_since.map_or(traffic.out_since, |at| at.max(traffic.out_since));
    let passed = Duration::try_from(now.duration_since(out_since)).unwrap_or_default();
    match traffic.longest_delay().checked_sub(passed) {
        Some(left) if !left.is_zero() => Plan::after(left),
        Some(_) | None => let_go(pod),
    }
}

fn let_go(pod: &Pod) -> PodPlan {
    let mut finalizers = pod.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != FINALIZER_SERVICES);
    Plan::of(vec![with(pod, &finalizers)])
}

fn with<S, E>(pod: &Pod, finalizers: &[String]) -> Action<S, E> {
    let patch: Patch = upon(pod, json!({"metadata": {"finalizers": finalizers}}));
    Action::Patch(patch)
}
