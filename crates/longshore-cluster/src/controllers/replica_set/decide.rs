//! Which pods a ReplicaSet or a ReplicationController claims, makes and deletes. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{
    model::{Desired, Observed},
    ranking::in_order_of_deletion,
};
use crate::controllers::workloads::{
    claim::Claimant,
    hands::{Request, Target},
    pods,
};

/// The most pods that one round makes or deletes.
const BURST: usize = 500;

/// The requests of one round.
#[derive(Debug)]
pub(super) struct Plan {
    /// Adoptions and releases, which come first.
    pub(super) claims: Vec<Request>,
    /// Replicas as they are before the round.
    pub(super) active: Vec<Pod>,
    pub(super) n_create: usize,
    /// Names and uids.
    pub(super) delete: Vec<(String, String)>,
    /// When a replica that is ready becomes available.
    pub(super) again: Option<Duration>,
}

pub(super) fn decide(desired: &Desired, observed: &Observed) -> Plan {
    let (mut claims, mut active) = (Vec::new(), Vec::new());
    let claimant = Claimant {
        owner: &desired.set,
        reference: desired.reference(),
        target: Target::Pod,
    };
    for pod in &observed.pods {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let is_active = pods::is_active(pod);
        let is_selected = desired.selector.matches(&labels);
        let is_mine = claimant.takes(&pod.metadata, is_selected, is_active, &mut claims);
        if is_mine && is_active {
            active.push(pod.clone());
        }
    }
    let (mut n_create, mut delete) = (0, Vec::new());
    if !desired.set.is_deleting() {
        n_create = desired.n_replicas.saturating_sub(active.len()).min(BURST);
        let n_delete = active.len().saturating_sub(desired.n_replicas).min(BURST);
        delete = in_order_of_deletion(&active, observed.now)
            .into_iter()
            .take(n_delete)
            .map(|pod| (pods::name(pod).to_owned(), pods::uid(pod).to_owned()))
            .collect();
    }
    Plan {
        again: pods::next_available(active.iter(), desired.min_ready, observed.now),
        claims,
        active,
        n_create,
        delete,
    }
}
