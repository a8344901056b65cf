//! An action that is being deleted: abort, then let it go (task action spec §5.3).

use longshore_api::flyte::{FINALIZER_PLUGIN, REASON_FINALIZATION_SKIPPED};
use longshore_core::{Action as Do, Next, Plan};
use longshore_plugins::{Phase, PhaseInfo, TaskContext};

use super::{ActionPlan, Round, Step, cached, publish, release, remote, report};
use crate::model::{Child, Work};

/// Decides upon an action that is being deleted. It goes once nothing of it runs any more.
pub(super) fn decide(round: &Round<'_>) -> ActionPlan {
    let action = round.action;
    if !action.has_finalizer {
        return Plan::await_change();
    }
    let mut actions: Vec<Step> = action.children.ours().flat_map(release).collect();
    if !action.children.ours().all(is_harmless) {
        let next = Next::After(round.policy.requeue);
        return match &action.work {
            Work::Task(task) => cached::held(round, &**task, Plan { actions, next }),
            Work::Remote(_) | Work::Condition | Work::Invalid(_) | Work::Nothing => {
                Plan { actions, next }
            }
        };
    }
    match &action.work {
        Work::Task(task) if !action.status.is_terminal() => {
            if let Some(before) = cached::before_end(&**task) {
                return before;
            }
            actions.push(aborted(round, &task.context));
        }
        Work::Remote(task) if !action.status.is_terminal() => {
            // The next owner of the reservation must not run beside the job.
            let before = remote::end_job(round, task).or_else(|| cached::before_end(&**task));
            if let Some(before) = before {
                return before;
            }
            actions.push(aborted(round, &task.context));
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

/// Whether a resource may outlive the action: nothing of it runs, and nothing of ours holds it.
fn is_harmless(child: &Child) -> bool {
    child.is_over && !child.has_finalizer
}

/// Reports that the attempt was aborted.
fn aborted(round: &Round<'_>, context: &TaskContext) -> Step {
    let info = PhaseInfo::of(Phase::Aborted, "aborted");
    let prefix = &context.paths.output_prefix;
    let event = publish::event(round, prefix, &info, &round.action.status);
    report::step(round, event)
}
