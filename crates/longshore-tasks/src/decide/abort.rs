//! An abort that does something else than to delete the resource of the attempt (task action spec §9.6): its plugin says
//! what. The action goes once the API server has acknowledged that, or the object is gone.
//!
//! Nothing records that an abort was done: the object shows it. Where it does not, the same request is sent again.

use std::time::Duration;

use longshore_api::flyte::REASON_FAILED_PLUGIN_HANDLE;
use longshore_core::{Action as Do, Delete, ObjectRef, Patch, Plan, Resource, Seen};
use longshore_plugins::AbortEffect;
use serde_json::Value;

use super::{ActionPlan, LOOK_AGAIN, Round, Step};
use crate::model::{Abort, AbortRefused, Child, Task, Work, address};

/// What becomes of the resource of the attempt.
pub(super) enum Aborted {
    /// It is deleted, as every other resource of the action.
    Deletes,
    /// It stays, once this is done.
    Keeps(Vec<Step>),
    /// The action cannot go yet.
    Waits(ActionPlan),
}

/// Decides what an abort does with the resource of the attempt.
pub(super) fn decide(round: &Round<'_>) -> Aborted {
    let children = &round.action.children;
    let (Work::Task(task), Some(abort)) = (&round.action.work, &children.abort) else {
        return Aborted::Deletes;
    };
    let Some(child) = children.current.present() else {
        return Aborted::Deletes;
    };
    let effect = &abort.behavior.effect;
    if *effect == AbortEffect::Keep {
        return Aborted::Keeps(Vec::new());
    }
    let object = match &abort.object {
        Seen::Present(object) => object,
        Seen::Absent => return Aborted::Keeps(Vec::new()),
        Seen::Unknown(_) => return Aborted::Waits(Plan::after(LOOK_AGAIN)),
    };
    if effect.holds(object) {
        return Aborted::Keeps(Vec::new());
    }
    let target = target(abort, child, object);
    let refused = abort.refused.as_ref();
    let refused = refused.filter(|refused| Some(&refused.uid) == target.uid.as_ref());
    match (effect, refused) {
        (AbortEffect::Delete, _) => Aborted::Keeps(vec![delete(target)]),
        (AbortEffect::Keep, _) => Aborted::Keeps(Vec::new()),
        (AbortEffect::Patch { .. }, Some(_)) if abort.behavior.deletes_on_error => {
            if abort.behavior.object.is_none() {
                return Aborted::Deletes;
            }
            Aborted::Keeps(vec![delete(target)])
        }
        (AbortEffect::Patch { .. }, Some(refused)) if is_recent(round, refused) => {
            Aborted::Waits(wait(round, task, refused))
        }
        (AbortEffect::Patch { kind, patch }, _) => Aborted::Keeps(vec![Do::Patch(Patch {
            target,
            subresource: None,
            kind: *kind,
            patch: patch.clone(),
        })]),
    }
}

/// The object that an abort acts on, as it was seen.
fn target(abort: &Abort, child: &Child, object: &Value) -> ObjectRef {
    let other = abort.behavior.object.as_ref();
    other.map_or_else(
        || child.target.clone(),
        |other| address(other.resource, object),
    )
}

fn delete(target: ObjectRef) -> Step {
    Do::Delete(Delete {
        grace_period_seconds: None,
        resource_version: None,
        waits_for_dependents: target.resource != Resource::POD,
        target,
    })
}

fn is_recent(round: &Round<'_>, refused: &AbortRefused) -> bool {
    round.since(refused.at) < round.policy.requeue
}

/// Says why the action stays, and leaves it for a while.
fn wait(round: &Round<'_>, task: &Task, refused: &AbortRefused) -> ActionPlan {
    let id = task.plugin.id();
    let note = format!(
        "Plugin {id:?} cannot abort its resource: {}",
        refused.message
    );
    let left = round.policy.requeue.saturating_sub(round.since(refused.at));
    Plan {
        actions: vec![round.warn(REASON_FAILED_PLUGIN_HANDLE, note)],
        ..Plan::after(left.max(Duration::from_secs(1)))
    }
}
