//! Revisions: which template came when, and which are kept for a rollback. Pure.

use serde_json::{Map, Value, json};

use super::{
    model::{ANNOTATION_REVISION, Desired, Set, Sets},
    template,
};
use crate::controllers::workloads::hands::{Request, Target};

/// Revisions that a ReplicaSet had before a rollback gave it a new one.
const ANNOTATION_HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// The revision of the present template.
pub(super) fn next_revision(sets: &Sets) -> i64 {
    sets.old.iter().map(Set::revision).max().unwrap_or(0) + 1
}

/// Brings the annotations of the ReplicaSet of the present template up to date, and the deployment's
/// revision.
pub(super) fn sync(desired: &Desired, new: &Set, revision: i64) -> Vec<Request> {
    let mut annotations = template::inherited(desired);
    if new.revision() < revision {
        annotations.insert(ANNOTATION_REVISION.into(), json!(revision.to_string()));
        if new.revision() > 0 {
            let before = new.0.annotation(ANNOTATION_HISTORY);
            let history = before
                .into_iter()
                .map(str::to_owned)
                .chain([new.revision().to_string()]);
            let history = history.collect::<Vec<_>>().join(",");
            annotations.insert(ANNOTATION_HISTORY.into(), history.into());
        }
    }
    annotations.retain(|key, value| new.0.annotation(key) != value.as_str());
    let min_ready = desired.deployment.count("/spec/minReadySeconds");
    let mut patch = json!({"metadata": {"uid": new.0.uid()}});
    let mut is_changed = false;
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = Value::Object(annotations);
        is_changed = true;
    }
    if new.0.count("/spec/minReadySeconds") != min_ready {
        patch["spec"] = json!({"minReadySeconds": min_ready});
        is_changed = true;
    }
    let update = is_changed.then(|| Request::Patch {
        target: Target::ReplicaSet,
        name: new.name().to_owned(),
        patch,
    });
    let revision = revision.max(new.revision());
    update
        .into_iter()
        .chain(note_revision(desired, revision))
        .collect()
}

/// Writes the present revision to the deployment, unless it is there.
pub(super) fn note_revision(desired: &Desired, revision: i64) -> Option<Request> {
    let revision = revision.to_string();
    if desired.deployment.annotation(ANNOTATION_REVISION) == Some(&revision) {
        return None;
    }
    let annotations: Map<String, Value> = [(ANNOTATION_REVISION.to_owned(), revision.into())]
        .into_iter()
        .collect();
    Some(Request::Patch {
        target: Target::Deployment,
        name: desired.deployment.name().to_owned(),
        patch: json!({"metadata": {"uid": desired.deployment.uid(), "annotations": annotations}}),
    })
}

/// Deletes the oldest ReplicaSets beyond the limit; those with pods are not counted.
pub(super) fn clean_up(desired: &Desired, sets: &Sets) -> Vec<Request> {
    let mut kept: Vec<&Set> = sets.old.iter().filter(|set| !set.0.is_deleting()).collect();
    kept.sort_by_key(|set| (set.revision(), set.age()));
    let n_surplus = kept.len().saturating_sub(desired.history_limit);
    let is_idle = |set: &&&Set| {
        let observed = set.0.at("/status/observedGeneration").as_i64();
        set.n_replicas() == 0
            && set.0.count("/status/replicas") == 0
            && set.0.meta.generation <= observed
    };
    let surplus = kept.iter().take(n_surplus).filter(is_idle);
    surplus
        .map(|set| Request::Delete {
            target: Target::ReplicaSet,
            name: set.name().to_owned(),
            uid: set.0.uid().to_owned(),
        })
        .collect()
}
