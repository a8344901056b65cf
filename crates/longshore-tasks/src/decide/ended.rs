//! An action that ended: its labels, and what its resource still holds (task action spec §5.4).

use jiff::Timestamp;
use longshore_api::flyte::{
    LABEL_COMPLETED_TIME, LABEL_TERMINATION_STATUS, TERMINATED, TaskActionStatus,
};
use longshore_core::{Action as Do, Patch, PatchKind, Plan};
use serde_json::json;

use super::{ActionPlan, Round, Step, release};
use crate::{
    model::{Action, Belongs, Work},
    status,
};

/// Decides upon an action that ended. Everything was done together with its last status, unless a crash came between.
pub(super) fn decide(round: &Round<'_>) -> ActionPlan {
    let action = round.action;
    let mut actions: Vec<Step> = labels(action, &action.status, round.now)
        .into_iter()
        .collect();
    let child = action.children.current.present();
    if let (Work::Task(task), Some(child)) = (&action.work, child)
        && child.belongs != Belongs::ToOthers
        && round.is_left_over(task)
    {
        actions.extend(release(child));
    }
    Plan::of(actions)
}

/// The labels that the collector goes by; `None` where they are there.
pub(super) fn labels(action: &Action, status: &TaskActionStatus, now: Timestamp) -> Option<Step> {
    let is_labelled = action.label(LABEL_TERMINATION_STATUS) == Some(TERMINATED)
        && action.label(LABEL_COMPLETED_TIME).is_some();
    (!is_labelled).then(|| {
        Do::Patch(Patch {
            target: action.target.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            patch: json!({"metadata": {"labels": {
                LABEL_TERMINATION_STATUS: TERMINATED,
                LABEL_COMPLETED_TIME: status::completed_time(status, now),
            }}}),
        })
    })
}
