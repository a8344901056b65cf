//! Takes the step of a round.

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_PROGRESSING, TaskActionStatus};
use longshore_core::{Asked, Seen, Unknown};
use longshore_kit::RawObject;
use longshore_plugins::{Answer, K8sState, Phase, Room, Round, Runner, StoredState};

use super::{own_states::is_last, rooms::Scope};
use crate::{
    decide::may_begin,
    learn::without_answer,
    model::{Action, ActionKey, RemoteTask, Work},
    observe::Observer,
    questions::{CREATE, Known},
};

impl Observer {
    /// Reads what the step of a task that makes no resource is taken from, and takes it.
    pub(crate) fn step(
        &self,
        key: &ActionKey,
        action: &mut Action,
        now: Timestamp,
        known: Known<'_>,
    ) {
        let (status, is_deleting) = (&action.status, action.is_deleting);
        let Work::Remote(task) = &mut action.work else {
            return;
        };
        if status.is_terminal() {
            return;
        }
        let taken = self.take_step(key, task, status, is_deleting, now, known);
        if let Err(why) = taken {
            action.children.current = Seen::Unknown(why);
        }
    }

    fn take_step(
        &self,
        key: &ActionKey,
        task: &mut RemoteTask,
        status: &TaskActionStatus,
        is_deleting: bool,
        now: Timestamp,
        known: Known<'_>,
    ) -> Result<(), Unknown> {
        let state = stored(status);
        task.context.last = last(status);
        let (id, asked) = known.connector(state.bytes);
        let answer = match asked {
            Asked::NotAsked | Asked::AskedByAnother => None,
            Asked::UnderWay { .. } => {
                task.is_under_way = true;
                return Ok(());
            }
            Asked::Answered { answer, .. } => Some(answer),
            Asked::Failed { message, .. } => Some(Answer::Failed(message)),
        };
        let is_state_ours = answer.is_some() || known.facts.own_states.has(state.bytes);
        let passes = |answer: &Answer| id.kind != CREATE && !is_last(answer);
        task.answered = answer.as_ref().is_some_and(passes).then_some(id);
        task.aborted = known.aborted(state.bytes);
        let is_begun = matches!(answer, Some(Answer::Created(_)));
        if is_deleting && !is_begun {
            task.abort = task.plugin.abort(&task.context, state).ok().flatten();
            return Ok(());
        }
        if task.plugin.needs_inputs(state) {
            let inputs = known.inputs();
            let answer = inputs.answer().cloned();
            task.inputs = Some(without_answer(inputs));
            let Some(answer) = answer else {
                return Ok(());
            };
            task.context.inputs = answer.as_deref().cloned();
        }
        let round = Round {
            state,
            is_state_ours,
            answer,
            has_room: self.has_room(key, task, state)?,
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
            task.outcome = known.outcome(&status.attempts.max(1).to_string());
        }
        task.written = known.outputs(&task.context.paths.output_prefix);
        Ok(())
    }
}

impl Observer {
    /// Whether there is room for the job of an action, where it needs some.
    fn has_room(
        &self,
        key: &ActionKey,
        task: &RemoteTask,
        state: StoredState<'_>,
    ) -> Result<bool, Unknown> {
        let scope = Scope {
            project: task.context.project.clone(),
            domain: task.context.domain.clone(),
        };
        match task.plugin.room(state) {
            Room::Unneeded => self.rooms.leave(key),
            // Its cache is decided upon first.
            Room::Wanted if state.bytes.is_empty() && !may_begin(&task.cache) => {
                self.rooms.leave(key);
            }
            Room::Taken => self.rooms.take(key, &scope),
            Room::Wanted => return self.rooms.ask(key, &scope, || self.with_room()),
        }
        Ok(true)
    }

    /// The actions whose jobs take room.
    fn with_room(&self) -> Seen<Vec<(ActionKey, Scope)>> {
        let with_room = |object: &RawObject| {
            let action = Action::of(object.to_value().ok()?).ok()?;
            let (spec, status) = (&action.spec, &action.status);
            let Runner::Remote(plugin) = self.plugins.resolve(&spec.task_type)? else {
                return None;
            };
            let key = ActionKey {
                namespace: action.target.namespace.clone(),
                name: action.target.name.clone(),
            };
            let scope = Scope {
                project: spec.project.clone(),
                domain: spec.domain.clone(),
            };
            let is_taken = !status.is_terminal() && plugin.room(stored(status)) == Room::Taken;
            is_taken.then_some((key, scope))
        };
        let actions = self.actions.all();
        actions.map(|actions| {
            let actions = actions.iter();
            actions.filter_map(|object| with_room(object)).collect()
        })
    }
}

fn stored(status: &TaskActionStatus) -> StoredState<'_> {
    StoredState {
        version: status.plugin_state_version,
        bytes: &status.plugin_state,
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
