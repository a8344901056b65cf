//! What an attempt leaves behind, and the place that it needs for that: stores are asked before a resource is created
//! and after it ended, and one that refuses is waited for. Nothing is lost meanwhile, and the status says why.

use std::time::Duration;

use longshore_core::{Action as Do, Plan, Seen};
use longshore_plugins::{Phase, PhaseInfo, TaskError};

use super::{
    ActionPlan, Effect, Round, Step, failure,
    publish::{self, Published},
};
use crate::{
    data::Outcome,
    model::{LaunchId, Task},
};

/// Between two looks into a store that does not answer: at least, and at most.
const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The attempt failed by itself. It may have written down why, which says more than an exit code.
pub(super) fn fail(round: &Round<'_>, task: &Task) -> ActionPlan {
    match &task.outcome {
        Seen::Unknown(why) => wait(round, task, &why.message),
        Seen::Present(Outcome::Failed {
            error,
            is_recoverable,
        }) => fail_as_told(round, task, error, *is_recoverable),
        Seen::Present(Outcome::Complete | Outcome::Incomplete(_)) | Seen::Absent => {
            failure::decide(round, task, task.info.clone())
        }
    }
}

/// The attempt ended, and wrote down why it failed.
pub(super) fn fail_as_told(
    round: &Round<'_>,
    task: &Task,
    error: &TaskError,
    is_recoverable: bool,
) -> ActionPlan {
    let phase = if is_recoverable {
        Phase::RetryableFailure
    } else {
        Phase::PermanentFailure
    };
    let info = PhaseInfo {
        phase,
        error: Some(error.clone()),
        ..task.info.clone()
    };
    failure::decide(round, task, info)
}

/// The attempt ended, and its store does not tell how.
pub(super) fn wait(round: &Round<'_>, task: &Task, why: &str) -> ActionPlan {
    let reason = format!("the attempt has ended, and waits for what it left behind: {why}");
    let info = PhaseInfo::of(Phase::Running, reason).ordered_after(&publish::stored(round, task));
    let published = Published {
        system_failures: round.action.status.system_failures,
        ..Published::started(round, info)
    };
    let ended_at = task.info.occurred_at.unwrap_or(round.now);
    let since = Duration::try_from(round.now.duration_since(ended_at)).unwrap_or_default();
    let (shortest, longest) = LOOKS;
    Plan {
        actions: publish::plan(round, task, published).actions,
        ..Plan::after(since.clamp(shortest, longest))
    }
}

/// The resource cannot be built yet, because its inputs cannot be read.
pub(super) fn wait_for_inputs(round: &Round<'_>, task: &Task, why: &str) -> ActionPlan {
    let reason = format!("waiting for the inputs: {why}");
    let info = PhaseInfo::of(Phase::WaitingForResources, reason)
        .ordered_after(&publish::stored(round, task));
    Plan {
        actions: publish::plan(round, task, Published::waiting(round, info)).actions,
        ..Plan::after(round.policy.requeue)
    }
}

/// Before the resource: the directory that it writes to, where its store has directories.
pub(super) fn make_directory(task: &Task, launch: &LaunchId) -> Option<Step> {
    let prefix = &task.context.paths.output_prefix;
    task.lacks_directory.then(|| {
        Do::Call(Effect::MakeDirectory {
            url: prefix.clone(),
            launch: launch.to_string(),
        })
    })
}
