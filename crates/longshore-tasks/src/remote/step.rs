//! Takes the step of a round. Pure.

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_PROGRESSING, TaskActionStatus};
use longshore_core::Asked;
use longshore_kit::Turn;
use longshore_plugins::{Answer, Call, K8sState, Phase, Round, SlotNeed, Step, StoredState};

use super::own_states::is_last;
use crate::{
    decide::may_begin,
    model::{Action, QuotaScope, RemoteTask, SlotChange, SlotState, Work},
    questions::{ActionAnswers, CREATE, without_answer},
};

/// Adds the step of a task that makes no resource, or what has to happen before it.
pub(crate) fn assemble(
    action: &mut Action,
    slot: SlotState,
    now: Timestamp,
    answers: ActionAnswers<'_>,
) {
    let (status, is_deleting) = (&action.status, action.is_deleting);
    let Work::Remote(task) = &mut action.work else {
        return;
    };
    if status.is_terminal() {
        return;
    }
    let state = stored(status);
    task.context.last = last(status);
    let (id, asked) = answers.connector(state.bytes);
    let turn = answers.turn(&id);
    let answer = match asked {
        Asked::NotAsked | Asked::AskedByAnother => None,
        // It is on record, and was not sent.
        Asked::UnderWay { .. } if turn == Some(Turn::Now) => None,
        // An action that is being deleted needs to know whether CreateTask began a job, and not how far the job is.
        Asked::UnderWay { .. } if is_deleting && (id.kind != CREATE || turn.is_some()) => None,
        Asked::UnderWay { .. } => {
            task.is_under_way = true;
            return;
        }
        Asked::Answered { answer, .. } => Some(answer),
        Asked::Failed { message, .. } => Some(Answer::Failed(message)),
    };
    let is_state_ours = answer.is_some() || answers.facts.own_states.has(state.bytes);
    let passes = |answer: &Answer| id.kind != CREATE && !is_last(answer);
    task.answered = answer.as_ref().is_some_and(passes).then_some(id);
    task.aborted = answers.aborted(state.bytes);
    let is_begun = matches!(answer, Some(Answer::Created { .. }));
    if !is_begun && (is_deleting || task.unlisted.is_some()) {
        // Before it is known which connector is asked, nothing but an abort is of use.
        task.abort = task.plugin.abort(&task.context, state).ok().flatten();
        return;
    }
    task.slot = slot_change(task, state, slot);
    if task.slot.is_some() {
        return;
    }
    let has_slot = slot != SlotState::Waiting;
    // A job that was begun has them: its record waits for no store.
    if !is_begun && has_slot && task.plugin.needs_inputs(state) {
        let inputs = answers.inputs();
        let answer = inputs.answer().cloned();
        task.inputs = Some(without_answer(inputs));
        let Some(answer) = answer else {
            return;
        };
        task.context.inputs = answer.map(|inputs| inputs.as_deref().cloned());
    }
    let round = Round {
        state,
        is_state_ours,
        answer,
        has_slot,
        now,
    };
    task.step = task.plugin.step(&task.context, &round);
    let announced = task.step.as_ref().ok();
    if let Some(announced) = announced.and_then(|step| step.announced.as_ref()) {
        (task.turn, task.is_under_way) = answers.announced(announced);
    }
    // A step that fails has its end to record.
    let goes_on = |step: &Step| !step.info.phase.is_terminal();
    task.is_begun = is_begun && task.step.as_ref().is_ok_and(goes_on);
    task.abort = abort(task, state);
    let ended_well = task
        .step
        .as_ref()
        .is_ok_and(|step| step.info.phase == Phase::Success && step.outputs.is_none());
    if ended_well {
        task.outcome = answers.outcome(&status.attempts.max(1).to_string());
    }
    task.written = answers.outputs(&task.context.paths.output_prefix);
}

/// How the job is ended, after the step of this round where it fails.
fn abort(task: &RemoteTask, state: StoredState<'_>) -> Option<Call> {
    let step = task.step.as_ref().ok();
    let is_over = |step: &&Step| step.info.phase == Phase::PermanentFailure;
    let state = step.filter(is_over).map_or(state, |step| StoredState {
        version: longshore_plugins::STATE_VERSION,
        bytes: &step.state,
    });
    let unstored = step.and_then(|step| step.abort.clone());
    unstored.or_else(|| task.plugin.abort(&task.context, state).ok().flatten())
}

/// What has to become of the slot of a job before its next step.
fn slot_change(task: &RemoteTask, state: StoredState<'_>, slot: SlotState) -> Option<SlotChange> {
    let scope = || QuotaScope {
        project: task.context.project.clone(),
        domain: task.context.domain.clone(),
    };
    // Its cache is decided upon first.
    let waits_for_cache = state.bytes.is_empty() && !may_begin(&task.cache);
    match (task.plugin.slot(state), slot) {
        (SlotNeed::Taken, SlotState::NotRequested) => Some(SlotChange::Take(scope())),
        (SlotNeed::Wanted, SlotState::NotRequested) if !waits_for_cache => {
            Some(SlotChange::Request(scope()))
        }
        (SlotNeed::Wanted, SlotState::Waiting | SlotState::Granted) if waits_for_cache => {
            Some(SlotChange::Release)
        }
        (SlotNeed::Unneeded, SlotState::Waiting | SlotState::Granted) => Some(SlotChange::Release),
        (SlotNeed::Taken | SlotNeed::Wanted | SlotNeed::Unneeded, _) => None,
    }
}

/// The state of a plugin that is on record.
pub(crate) fn stored(status: &TaskActionStatus) -> StoredState<'_> {
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
