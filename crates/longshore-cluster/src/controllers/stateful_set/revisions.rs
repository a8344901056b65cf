//! The templates that a StatefulSet has had, as ControllerRevisions. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::model::Desired;
use crate::controllers::workloads::{
    Body, controller_of,
    hands::{Request, Target},
    template::{canonical, letters},
};

/// One template that the set has, or has had.
#[derive(Debug, Clone)]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) template: Value,
}

/// The revisions of a round.
#[derive(Debug)]
pub(super) struct Revisions {
    /// The one that the pods had before the update under way.
    pub(super) current: Revision,
    /// The one of the present template.
    pub(super) update: Revision,
    /// The requests that create or renumber revisions.
    pub(super) requests: Vec<Request>,
    /// Another template has the name that the present one would get.
    pub(super) is_collision: bool,
    /// The revisions of the set, oldest first.
    mine: Vec<Body>,
}

/// Finds the revisions of current and present template; the latter is made, or made the newest.
pub(super) fn find(desired: &Desired, revisions: &[Body]) -> Revisions {
    let mut mine: Vec<Body> = revisions
        .iter()
        .filter(|it| controller_of(&it.meta).is_some_and(|owner| owner.uid == desired.set.uid()))
        .cloned()
        .collect();
    mine.sort_by_key(|it| (it.count("/revision"), it.name().to_owned()));
    let newest = mine.last().map_or(0, |it| it.count("/revision"));
    let present = canonical(desired.template());
    let equal = mine
        .iter()
        .rev()
        .find(|it| canonical(&template_of(it)) == present);
    let (mut requests, mut is_collision) = (Vec::new(), false);
    let name = equal.map_or_else(|| new_name(desired), |it| it.name().to_owned());
    match equal {
        Some(equal) if equal.count("/revision") < newest => requests.push(Request::Patch {
            target: Target::Revision,
            name: name.clone(),
            patch: json!({"metadata": {"uid": equal.uid()}, "revision": newest + 1}),
        }),
        Some(_) => {}
        None if revisions.iter().any(|it| it.name() == name) => is_collision = true,
        None => requests.push(Request::Create {
            target: Target::Revision,
            object: build(desired, &name, newest + 1),
        }),
    }
    let update = Revision {
        name,
        template: desired.template().clone(),
    };
    let known = desired.set.at("/status/currentRevision").as_str();
    let current = mine.iter().find(|it| Some(it.name()) == known);
    let current = current.map_or_else(
        || update.clone(),
        |it| Revision {
            name: it.name().to_owned(),
            template: template_of(it),
        },
    );
    Revisions {
        current,
        update,
        requests,
        is_collision,
        mine,
    }
}

impl Revisions {
    /// Deletes the oldest revisions that no pod has, beyond the limit.
    pub(super) fn clean_up(&self, limit: usize, in_use: &BTreeSet<&str>) -> Vec<Request> {
        let is_live = |it: &&Body| {
            in_use.contains(it.name())
                || it.name() == self.current.name
                || it.name() == self.update.name
        };
        let idle: Vec<&Body> = self.mine.iter().filter(|it| !is_live(it)).collect();
        let n_surplus = idle.len().saturating_sub(limit);
        let surplus = idle.into_iter().take(n_surplus);
        surplus
            .map(|it| Request::Delete {
                target: Target::Revision,
                name: it.name().to_owned(),
                uid: it.uid().to_owned(),
            })
            .collect()
    }
}

fn new_name(desired: &Desired) -> String {
    let mut text = canonical(desired.template()).to_string();
    if let Some(n_collisions) = desired.set.at("/status/collisionCount").as_i64() {
        text.push_str(&n_collisions.to_string());
    }
    format!("{}-{}", desired.set.name(), letters(&text))
}

/// The patch of the set that is kept in a revision; `$patch` makes kubectl's rollback replace the
/// whole template.
fn build(desired: &Desired, name: &str, number: i64) -> Value {
    let mut template = desired.template().clone();
    template["$patch"] = json!("replace");
    let hash = name.rsplit('-').next().unwrap_or_default();
    let mut labels = template["metadata"]["labels"].clone();
    labels["controller.kubernetes.io/hash"] = json!(hash);
    let annotations = desired.set.meta.annotations.clone();
    json!({
        "metadata": {
            "name": name, "labels": labels, "annotations": annotations,
            "ownerReferences": [desired.reference()],
        },
        "data": {"spec": {"template": template}},
        "revision": number,
    })
}

fn template_of(revision: &Body) -> Value {
    let mut template = revision.at("/data/spec/template").clone();
    if let Some(members) = template.as_object_mut() {
        members.remove("$patch");
    }
    template
}
