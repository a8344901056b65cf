//! Which pod of a ReplicaSet goes first, by upstream's order. Pure.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::controllers::workloads::pods;

/// Lower costs go first; pods without the annotation cost nothing.
const ANNOTATION_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pods in the order in which they go: those that serve least, stand closest together or are
/// youngest first.
pub(crate) fn in_order_of_deletion<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    now: Timestamp,
) -> Vec<&'a Pod> {
    let mut ordered = Vec::from_iter(pods);
    let mut n_on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &ordered {
        *n_on_node.entry(node(pod)).or_default() += 1;
    }
    ordered.sort_by_cached_key(|pod| {
        let phase = match pods::phase(pod) {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let neighbours = n_on_node.get(node(pod)).copied();
        let by_state = (
            !node(pod).is_empty(),
            phase,
            pods::is_ready(pod),
            cost(pod),
            Reverse(neighbours),
        );
        let by_age = (
            magnitude(pods::ready_since(pod), now),
            Reverse(n_restarts(pod)),
            magnitude(created(pod), now),
        );
        (by_state, by_age, pods::uid(pod))
    });
    ordered
}

/// The order of magnitude of an age: which of many pods of about the same age goes is a matter of chance, of their uids.
///
/// Upstream asks the uids before it looks at restarts and creation, except for pods that became ready in the same
/// second. That is no order: of three pods, each may be before the next.
fn magnitude(since: Option<Timestamp>, now: Timestamp) -> Option<u32> {
    let age = now.duration_since(since?).as_nanos();
    u128::try_from(age).ok().and_then(u128::checked_ilog2)
}

fn node(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|it| it.node_name.as_deref()).unwrap_or("")
}

fn cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    let cost = annotations.and_then(|it| it.get(ANNOTATION_DELETION_COST));
    cost.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|it| it.0)
}

fn n_restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|it| it.container_statuses.as_ref());
    let restarts = statuses.into_iter().flatten().map(|it| it.restart_count);
    restarts.max().unwrap_or(0)
}
