//! The status of a ReplicaSet or a ReplicationController. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{apply::Failure, decide::Plan, model::Desired};
use crate::controllers::workloads::{
    hands::Request,
    pods,
    status::{count, merge_status, time},
};

/// The write that brings the status up to date, unless it is.
pub(super) fn write(
    desired: &Desired,
    plan: &Plan,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Request> {
    let active = &plan.active;
    let template = desired.template();
    let n_labeled = active
        .iter()
        .filter(|it| pods::has_labels_of(it, template))
        .count();
    let n_ready = active.iter().filter(|it| pods::is_ready(it)).count();
    let is_available = |pod: &&_| pods::is_available(pod, desired.min_ready, now);
    let n_available = active.iter().filter(is_available).count();
    let mut status = Map::new();
    status.insert("replicas".into(), json!(active.len()));
    status.insert("fullyLabeledReplicas".into(), count(n_labeled));
    status.insert("readyReplicas".into(), count(n_ready));
    status.insert("availableReplicas".into(), count(n_available));
    let generation = desired.set.meta.generation;
    status.insert("observedGeneration".into(), json!(generation));
    status.insert("conditions".into(), conditions(desired, failure, now));
    let change = merge_status(desired.set.at("/status"), status)?;
    Some(Request::PatchStatus {
        target: desired.keeper.target(),
        name: desired.set.name().to_owned(),
        patch: json!({"metadata": {"uid": desired.set.uid()}, "status": change}),
    })
}

/// The conditions that are there, with or without `ReplicaFailure`; `null` for none.
fn conditions(desired: &Desired, failure: Option<&Failure>, now: Timestamp) -> Value {
    let present = desired.set.at("/status/conditions").as_array();
    let is_failure = |it: &&Value| it["type"] == "ReplicaFailure";
    let old = present.into_iter().flatten().find(is_failure);
    let others = present.into_iter().flatten().filter(|it| !is_failure(it));
    let mut conditions: Vec<Value> = others.cloned().collect();
    if let Some((failure, reason)) = failure.and_then(|it| Some((it, it.reason?))) {
        let is_known = old.is_some_and(|it| it["reason"] == reason);
        conditions.push(match old.filter(|_| is_known) {
            Some(old) => old.clone(),
            None => json!({
                "type": "ReplicaFailure", "status": "True", "reason": reason,
                "message": failure.error.to_string(), "lastTransitionTime": time(now),
            }),
        });
    }
    if conditions.is_empty() {
        Value::Null
    } else {
        conditions.into()
    }
}
