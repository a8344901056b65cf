//! Takes the step of a round.

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_PROGRESSING, TaskActionStatus};
use longshore_core::{Seen, Unknown, UnknownCause};
use longshore_kit::RawObject;
use longshore_plugins::{Answer, K8sState, Phase, Room, Round, Runner, StoredState};

use super::{exchange::Remembered, rooms::Scope};
use crate::{
    catalog::decide::{Before, Facts, before},
    data::DataError,
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
    ) -> Result<(), Unknown> {
        let state = stored(status);
        task.context.last = last(status);
        let (is_state_ours, answer) = match self.exchanges.recall(key, uid, state.bytes) {
            Remembered::Foreign => (false, None),
            Remembered::Quiet => (true, None),
            Remembered::Asked => {
                return Err(Unknown::new(
                    UnknownCause::UnderWay,
                    "its connector has not answered yet",
                ));
            }
            Remembered::Answered(answer) => (true, Some(answer)),
        };
        let is_begun = matches!(answer, Some(Answer::Created(_)));
        if is_deleting && !is_begun {
            task.abort = task.plugin.abort(&task.context, state).ok().flatten();
            return Ok(());
        }
        if task.plugin.needs_inputs(state) {
            let inputs = self.data.inputs(&task.context.paths.input).await;
            task.context.inputs = inputs.map_err(|error| unreadable(&error))?;
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
            let owed = owed(&task.context.template);
            let prefix = &task.context.paths.output_prefix;
            let outcome = self.data.outcome(prefix, owed).await;
            task.outcome = Seen::Present(outcome.map_err(|error| unreadable(&error))?);
        }
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
            Room::Wanted if state.bytes.is_empty() && !is_free_of_cache(task) => {
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

/// Whether nothing that is known of its cache keeps an attempt from beginning.
fn is_free_of_cache(task: &RemoteTask) -> bool {
    match &task.cached {
        Seen::Absent => true,
        Seen::Unknown(_) => false,
        Seen::Present(cached) => {
            let facts = Facts {
                is_launched: false,
                is_serializable: cached.entry.is_serializable,
                owner: &cached.entry.owner,
                outputs: &cached.outputs,
                claim: cached.held.as_ref().map(|held| &held.claim),
            };
            before(&facts) == Before::Run
        }
    }
}

fn unreadable(error: &DataError) -> Unknown {
    Unknown::new(UnknownCause::Unreachable, error.to_string())
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
