//! The status of a StatefulSet. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::{
    decide::{Plan, count, is_running_and_ready, n_available},
    model::{Desired, Update, revision_of},
};
use crate::controllers::workloads::{
    hands::{Request, Target},
    pods,
    status::{count as number, merge_status},
};

/// The write that brings the status up to date, unless it is.
pub(super) fn write(desired: &Desired, plan: &Plan, now: Timestamp) -> Option<Request> {
    let revisions = &plan.revisions;
    let of = |revision: &str| {
        let is_counted = |pod: &Pod| revision_of(pod) == revision && !pods::is_deleting(pod);
        count(&plan.pods, is_counted)
    };
    let n_pods = plan.pods.len();
    let n_ready = count(&plan.pods, is_running_and_ready);
    let n_updated = of(&revisions.update.name);
    let is_updated = n_updated == n_pods && n_ready == n_pods && n_pods == desired.n_replicas;
    let is_rolling = matches!(desired.update, Update::Rolling { .. });
    let current = if is_updated && is_rolling {
        &revisions.update.name
    } else {
        &revisions.current.name
    };
    let mut status = Map::new();
    status.insert(
        "observedGeneration".into(),
        json!(desired.set.meta.generation),
    );
    status.insert("replicas".into(), json!(n_pods));
    status.insert("readyReplicas".into(), number(n_ready));
    let n_available = n_available(desired, &plan.pods, now);
    status.insert("availableReplicas".into(), json!(n_available));
    status.insert("currentReplicas".into(), number(of(current)));
    status.insert("updatedReplicas".into(), number(n_updated));
    if !desired.set.is_deleting() && !revisions.is_collision {
        status.insert("currentRevision".into(), json!(current));
        status.insert("updateRevision".into(), json!(revisions.update.name));
    }
    // kubectl reads it; upstream sets it from the first status on.
    let n_collisions =
        desired.set.count("/status/collisionCount") + i64::from(revisions.is_collision);
    status.insert("collisionCount".into(), Value::from(n_collisions));
    let change = merge_status(desired.set.at("/status"), status)?;
    Some(Request::PatchStatus {
        target: Target::StatefulSet,
        name: desired.set.name().to_owned(),
        patch: json!({"metadata": {"uid": desired.set.uid()}, "status": change}),
    })
}
