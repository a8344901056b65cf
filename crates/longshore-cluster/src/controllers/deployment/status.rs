//! The status of a deployment. Pure.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    conditions::{Conditions, Word},
    decide::{Plan, Stage},
    model::{Desired, Sets},
    progress,
};
use crate::controllers::workloads::status::merge_status;

/// Pods by what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) n_replicas: i64,
    pub(super) n_updated: i64,
    n_ready: i64,
    n_available: i64,
}

impl Numbers {
    fn of(sets: &Sets) -> Numbers {
        let new = sets.new.as_ref();
        Numbers {
            n_replicas: sets.sum("/status/replicas"),
            n_updated: new.map_or(0, |new| new.0.count("/status/replicas")),
            n_ready: sets.sum("/status/readyReplicas"),
            n_available: sets.n_available(),
        }
    }

    /// The numbers that the stored status has.
    pub(super) fn published(desired: &Desired) -> Numbers {
        let deployment = &desired.deployment;
        Numbers {
            n_replicas: deployment.count("/status/replicas"),
            n_updated: deployment.count("/status/updatedReplicas"),
            n_ready: deployment.count("/status/readyReplicas"),
            n_available: deployment.count("/status/availableReplicas"),
        }
    }

    pub(super) fn is_complete(&self, desired: &Desired) -> bool {
        let n = desired.n_replicas;
        self.n_updated == n && self.n_replicas == n && self.n_available == n
    }

    pub(super) fn is_progress_from(&self, before: &Numbers) -> bool {
        self.n_updated > before.n_updated
            || self.n_replicas - self.n_updated < before.n_replicas - before.n_updated
            || self.n_ready > before.n_ready
            || self.n_available > before.n_available
    }
}

/// The patch that brings the status up to date, or `None`; and when to run the next round.
pub(super) fn write(
    desired: &Desired,
    plan: &Plan,
    failure: Option<&str>,
    now: Timestamp,
) -> (Option<Value>, Option<Duration>) {
    let deployment = &desired.deployment;
    let numbers = Numbers::of(&plan.sets);
    let n_unavailable = (plan.sets.n_replicas() - numbers.n_available).max(0);
    let mut conditions = Conditions::of(deployment.at("/status/conditions"));
    if plan.stage != Stage::Delete {
        say_available(&mut conditions, desired, &numbers, now);
        take_failure(&mut conditions, &plan.sets);
        progress::update(&mut conditions, desired, plan, &numbers, failure, now);
    }
    let again = progress::time_left(&conditions, desired, now)
        // The times in conditions have whole seconds.
        .map(|left| left + Duration::from_secs(1));
    let number = |n: i64| if n == 0 { Value::Null } else { json!(n) };
    let mut status = Map::new();
    status.insert(
        "observedGeneration".into(),
        json!(deployment.meta.generation),
    );
    status.insert("replicas".into(), number(numbers.n_replicas));
    status.insert("updatedReplicas".into(), number(numbers.n_updated));
    status.insert("readyReplicas".into(), number(numbers.n_ready));
    status.insert("availableReplicas".into(), number(numbers.n_available));
    status.insert("unavailableReplicas".into(), number(n_unavailable));
    status.insert("conditions".into(), conditions.into_value());
    if plan.is_collision {
        let n_collisions = deployment.count("/status/collisionCount") + 1;
        status.insert("collisionCount".into(), json!(n_collisions));
    }
    let change = merge_status(deployment.at("/status"), status);
    let patch =
        change.map(|status| json!({"metadata": {"uid": deployment.uid()}, "status": status}));
    (patch, again)
}

fn say_available(
    conditions: &mut Conditions,
    desired: &Desired,
    numbers: &Numbers,
    now: Timestamp,
) {
    let min_available = desired.n_replicas - desired.max_unavailable();
    let word = if numbers.n_available >= min_available {
        let text = "Deployment has minimum availability.".to_owned();
        Word::new("True", "MinimumReplicasAvailable", text)
    } else {
        let text = "Deployment does not have minimum availability.".to_owned();
        Word::new("False", "MinimumReplicasUnavailable", text)
    };
    conditions.say("Available", word, now);
}

/// What keeps a ReplicaSet from making its pods is the deployment's trouble, too.
fn take_failure(conditions: &mut Conditions, sets: &Sets) {
    let of_set = |set: &super::model::Set| {
        let conditions = set.0.at("/status/conditions").as_array()?;
        conditions
            .iter()
            .find(|it| it["type"] == "ReplicaFailure")
            .cloned()
    };
    let new = sets.new.iter().find_map(of_set);
    match new.or_else(|| sets.old.iter().find_map(of_set)) {
        Some(mut failure) => {
            failure["lastUpdateTime"] = failure["lastTransitionTime"].clone();
            conditions.take(failure);
        }
        None => conditions.remove("ReplicaFailure"),
    }
}
