//! Takes the step of a round.

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_PROGRESSING, TaskActionStatus};
use longshore_core::Seen;
use longshore_plugins::{Answer, K8sState, Phase, Round, StoredState};

use super::exchange::Remembered;
use crate::{
    model::{Action, ActionKey, RemoteTask, Work},
    observe::{Observer, owed},
};

impl Observer {
    /// Reads what the step of a task that makes no resource is taken from, and takes it.
    pub(crate) async fn step(&self, key: &ActionKey, action: &mut Action, now: Timestamp) {
        let (status, is_deleting) = (&action.status, action.is_deleting);
        let Work::Remote(task) = &mut action.work else {
            return;
        };
        if status.is_terminal() {
            return;
        }
        let uid = action.target.uid.as_deref().unwrap_or_default();
        let taken = self.take_step(key, uid, task, status, is_deleting, now);
        if let Err(why) = taken.await {
            action.children.current = Seen::Unknown(why);
        }
    }

    async fn take_step(
        &self,
        key: &ActionKey,
        uid: &str,
        task: &mut RemoteTask,
        status: &TaskActionStatus,
        is_deleting: bool,
        now: Timestamp,
    ) -> Result<(), String> {
        let state = StoredState {
            version: status.plugin_state_version,
            bytes: &status.plugin_state,
        };
        task.context.last = last(status);
        let (is_state_ours, answer) = match self.exchanges.recall(key, uid, state.bytes) {
            Remembered::Foreign => (false, None),
            Remembered::Quiet => (true, None),
            Remembered::Asked => return Err("its connector has not answered yet".to_owned()),
            Remembered::Answered(answer) => (true, Some(answer)),
        };
        let is_begun = matches!(answer, Some(Answer::Created(_)));
        if is_deleting && !is_begun {
            task.abort = task.plugin.abort(&task.context, state).ok().flatten();
            return Ok(());
        }
        if task.plugin.needs_inputs(state) {
            let inputs = self.data.inputs(&task.context.paths.input).await;
            task.context.inputs = inputs.map_err(|error| error.to_string())?;
        }
        let round = Round {
            state,
            is_state_ours,
            answer,
            now,
        };
        task.step = task.plugin.step(&task.context, &round);
        let next = task.step.as_ref().ok().filter(|_| is_deleting);
        let abort_from = next.map_or(state, |step| StoredState {
            version: longshore_plugins::STATE_VERSION,
            bytes: &step.state,
        });
        task.abort = task.plugin.abort(&task.context, abort_from).ok().flatten();
        let ended_well = task
            .step
            .as_ref()
            .is_ok_and(|step| step.info.phase == Phase::Success && step.outputs.is_none());
        if ended_well && !is_deleting {
            let owed = owed(&task.context.template);
            let prefix = &task.context.paths.output_prefix;
            let outcome = self.data.outcome(prefix, owed).await;
            task.outcome = Seen::Present(outcome.map_err(|error| error.to_string())?);
        }
        Ok(())
    }
}

/// What was last said about the attempt: the state of such a plugin does not hold it.
fn last(status: &TaskActionStatus) -> K8sState {
    let progress = status.condition(CONDITION_PROGRESSING);
    K8sState {
        phase: Phase::parse(&status.plugin_phase).unwrap_or_default(),
        version: status.plugin_phase_version,
        reason: progress.map_or_else(String::new, |progress| progress.message.clone()),
    }
}
