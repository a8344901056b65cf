//! An action that is being deleted: abort, then let it go (task action spec §5.3).

use longshore_api::flyte::{FINALIZER_PLUGIN, FINALIZER_RESOURCE, REASON_FINALIZATION_SKIPPED};
use longshore_core::{Action as Do, Next, Plan};
use longshore_plugins::{Phase, PhaseInfo, TaskContext};

use super::{
    ActionPlan, Round, Step,
    abort::{self, Aborted},
    cached, publish, release, remote, report,
};
use crate::model::{Child, Task, Work};

/// Decides upon an action that is being deleted. It goes once nothing of it runs any more that its abort does not keep.
pub(super) fn decide(round: &Round<'_>) -> ActionPlan {
    let action = round.action;
    if !action.has_finalizer {
        return Plan::await_change();
    }
    let (aborted, is_kept) = match abort::decide(round) {
        Aborted::Deletes => (Vec::new(), false),
        Aborted::Keeps(steps) => (steps, !is_deleted_at_the_end(round)),
        Aborted::Waits(plan) => return plan,
    };
    let current = action.children.current.present();
    let kept = current.filter(|_| is_kept);
    let going = || {
        action
            .children
            .ours()
            .filter(move |child| Some(*child) != kept)
    };
    let mut actions: Vec<Step> = going().flat_map(release).collect();
    actions.splice(0..0, aborted.iter().cloned());
    if !going().all(is_harmless) {
        let next = Next::After(round.policy.requeue);
        return match &action.work {
            Work::Task(task) => cached::held(round, &**task, Plan { actions, next }),
            Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => {
                Plan { actions, next }
            }
        };
    }
    let held = kept.filter(|kept| kept.has_finalizer);
    actions.extend(held.map(|kept| Do::RemoveFinalizer {
        target: kept.target.clone(),
        finalizer: FINALIZER_RESOURCE,
    }));
    match &action.work {
        Work::Task(task) if !action.status.is_terminal() => {
            // The next owner of the reservation must not run beside what was not aborted.
            if let Some(before) = before_end(task, &aborted) {
                return before;
            }
            actions.push(report_aborted(round, &task.context));
        }
        Work::Remote(task) if !action.status.is_terminal() => {
            // The next owner of the reservation must not run beside the job.
            let before = remote::end_job(round, task).or_else(|| cached::before_end(&**task));
            if let Some(before) = before {
                return before;
            }
            actions.push(report_aborted(round, &task.context));
        }
        Work::Invalid(invalid) => {
            actions.push(round.warn(REASON_FINALIZATION_SKIPPED, invalid.message.clone()));
        }
        Work::Task(_) | Work::Remote(_) | Work::Condition | Work::Nothing => {}
    }
    actions.push(Do::RemoveFinalizer {
        target: action.target.clone(),
        finalizer: FINALIZER_PLUGIN,
    });
    Plan::of(actions)
}

/// Whether what an abort keeps is deleted afterwards.
fn is_deleted_at_the_end(round: &Round<'_>) -> bool {
    match &round.action.work {
        Work::Task(task) => round.is_deleted_at_the_end(task),
        Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => true,
    }
}

/// What comes before the end of the action, after what its abort does.
fn before_end(task: &Task, aborted: &[Step]) -> Option<ActionPlan> {
    let mut before = cached::before_end(task)?;
    before.actions.splice(0..0, aborted.iter().cloned());
    Some(before)
}

/// Whether a resource may outlive the action: nothing of it runs, and nothing of ours holds it.
fn is_harmless(child: &Child) -> bool {
    child.is_over && !child.has_finalizer
}

/// Reports that the attempt was aborted.
fn report_aborted(round: &Round<'_>, context: &TaskContext) -> Step {
    let info = PhaseInfo::of(Phase::Aborted, "aborted");
    let prefix = &context.paths.output_prefix;
    let event = publish::event(round, prefix, &info, &round.action.status);
    report::step(round, event)
}
