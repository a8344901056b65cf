//! The next step of a deployment. Pure.

use serde_json::json;

use super::{
    history,
    model::{ANNOTATION_DESIRED, Desired, Observed, Set, Sets, Strategy},
    recreate, rolling, scaling, template,
};
use crate::controllers::workloads::{
    claim::Claimant,
    hands::{Note, Request, Target},
};

/// The requests of one round, and what the status is made of.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) requests: Vec<Request>,
    /// The ReplicaSets as they were before the round.
    pub(super) sets: Sets,
    pub(super) stage: Stage,
    /// The ReplicaSet that this round creates.
    pub(super) created: Option<String>,
    /// Another ReplicaSet already has the name of the new one.
    pub(super) is_collision: bool,
}

/// The stage that the round works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The pods of the old templates make room for those of the new one.
    RollOut,
    /// Nothing but the number of pods changes.
    Scale,
    /// The deployment goes.
    Delete,
}

impl Plan {
    fn new(sets: Sets, stage: Stage) -> Plan {
        Plan {
            requests: Vec::new(),
            sets,
            stage,
            created: None,
            is_collision: false,
        }
    }
}

pub(super) fn decide(desired: &Desired, observed: &Observed) -> Plan {
    let (claims, sets) = claim_sets(desired, observed);
    if desired.deployment.is_deleting() {
        return Plan::new(sets, Stage::Delete);
    }
    let stage = if desired.is_paused || is_scaled(desired, &sets) {
        Stage::Scale
    } else {
        Stage::RollOut
    };
    let mut plan = Plan::new(sets, stage);
    plan.requests = claims;
    let revision = history::next_revision(&plan.sets);
    if let Some(new) = &plan.sets.new {
        plan.requests.extend(history::sync(desired, new, revision));
    }
    let steps = match (stage, desired.strategy) {
        (Stage::Delete, _) => Vec::new(),
        (Stage::Scale, _) => scaling::scale(desired, &plan.sets),
        (Stage::RollOut, Strategy::Rolling { .. }) => match &plan.sets.new {
            Some(new) => rolling::step(desired, &plan.sets, new),
            None => {
                let n_replicas = rolling::size_of_new(desired, &plan.sets);
                create(desired, observed, &mut plan, n_replicas, revision)
            }
        },
        (Stage::RollOut, Strategy::Recreate) => {
            match recreate::step(desired, &plan.sets, &observed.pods) {
                recreate::Step::Do(requests) => requests,
                recreate::Step::Create => {
                    create(desired, observed, &mut plan, desired.n_replicas, revision)
                }
            }
        }
    };
    let is_settled = steps.is_empty();
    plan.requests.extend(steps);
    let is_complete = plan
        .sets
        .new
        .as_ref()
        .is_some_and(|new| is_complete(desired, new, &plan.sets));
    if is_settled && (desired.is_paused || (stage == Stage::RollOut && is_complete)) {
        plan.requests.extend(history::clean_up(desired, &plan.sets));
    }
    plan
}

/// Whether every pod is one of the present template, and available.
pub(super) fn is_complete(desired: &Desired, new: &Set, sets: &Sets) -> bool {
    let n = desired.n_replicas;
    new.0.count("/status/replicas") == n
        && sets.sum("/status/replicas") == n
        && sets.n_available() == n
}

/// The deployment's ReplicaSets, and the requests that make them so.
fn claim_sets(desired: &Desired, observed: &Observed) -> (Vec<Request>, Sets) {
    let (mut claims, mut mine) = (Vec::new(), Vec::new());
    let claimant = Claimant {
        owner: &desired.deployment,
        reference: desired.reference(),
        target: Target::ReplicaSet,
    };
    for set in &observed.sets {
        let labels = set.meta.labels.clone().unwrap_or_default();
        let is_selected = desired.selector.matches(&labels);
        if claimant.takes(&set.meta, is_selected, true, &mut claims) {
            mine.push(Set(set.clone()));
        }
    }
    mine.sort_by(|a, b| a.age().cmp(&b.age()));
    let new = mine.iter().position(|set| template::is_same(desired, set));
    let new = new.map(|index| mine.remove(index));
    (claims, Sets { new, old: mine })
}

/// Whether the number of replicas has changed since the ReplicaSets were last scaled.
fn is_scaled(desired: &Desired, sets: &Sets) -> bool {
    let is_other = |set: &Set| {
        set.number(ANNOTATION_DESIRED)
            .is_some_and(|n| n != desired.n_replicas)
    };
    sets.active().any(is_other)
}

/// Creates the ReplicaSet of the present template.
fn create(
    desired: &Desired,
    observed: &Observed,
    plan: &mut Plan,
    n_replicas: i64,
    revision: i64,
) -> Vec<Request> {
    let name = template::set_name(desired);
    if observed.sets.iter().any(|set| set.name() == name) {
        plan.is_collision = true;
        return Vec::new();
    }
    let mut requests = vec![Request::Create {
        target: Target::ReplicaSet,
        object: template::build(desired, n_replicas, revision),
    }];
    if n_replicas > 0 {
        requests.push(announce(&name, 0, n_replicas));
    }
    requests.extend(history::note_revision(desired, revision));
    plan.created = Some(name);
    requests
}

/// Changes the size of a ReplicaSet, and what it remembers of the deployment's.
pub(super) fn resize(desired: &Desired, set: &Set, n_replicas: i64) -> Vec<Request> {
    let remembered = template::size_annotations(desired);
    let is_remembered = remembered
        .iter()
        .all(|(key, value)| set.0.annotation(key) == value.as_str());
    let before = set.n_replicas();
    if before == n_replicas && is_remembered {
        return Vec::new();
    }
    let annotations: serde_json::Map<_, _> = remembered
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let mut requests = vec![Request::Patch {
        target: Target::ReplicaSet,
        name: set.name().to_owned(),
        patch: json!({
            "metadata": {"uid": set.0.uid(), "annotations": annotations},
            "spec": {"replicas": n_replicas},
        }),
    }];
    if before != n_replicas {
        requests.push(announce(set.name(), before, n_replicas));
    }
    requests
}

fn announce(set: &str, from: i64, to: i64) -> Request {
    let direction = if to > from { "up" } else { "down" };
    let text = format!("Scaled {direction} replica set {set} from {from} to {to}");
    Request::Announce(Note::normal("ScalingReplicaSet", text))
}
