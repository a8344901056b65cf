//! What follows from facts about a whole run.

use longshore_store::{RunState, TaskState};

use crate::scheduler::{
    decide::{round::Round, work::RunWork},
    facts::NewRun,
    run_state::{REASON_CANCELLED, REASON_INTERRUPTED, REASON_NOT_PREPARED, is_interrupted},
    transitions::{Cause, RunCause},
};

/// Creates the run unless it is there, or one of its DAG that is about the same instant.
pub(super) fn request<'a>(round: &mut Round<'a>, new: &'a NewRun) {
    let key = new.key();
    let is_taken = new.logical_date.is_some() && round.has_run_about(&key.dag_id, new.logical_date);
    if round.find(&key).is_none() && !is_taken {
        let shape = round.shape_of(&new.dag);
        round.add(key, RunWork::create(new, shape, round.now()));
    }
}

/// The pods of the run may be made from now on.
pub(super) fn prepared(run: &mut RunWork<'_>) {
    if !run.run().is_prepared {
        run.run_mut().is_prepared = true;
    }
}

/// The pods of the run can never be made.
pub(super) fn prepare_refused(run: &mut RunWork<'_>, message: &str, now: jiff::Timestamp) {
    if !run.run().is_prepared {
        let reason = format!("{REASON_NOT_PREPARED}: {message}");
        run.abort(RunCause::PrepareRefused, &reason, now);
    }
}

/// A user cancels the run.
pub(super) fn cancel(run: &mut RunWork<'_>, now: jiff::Timestamp) {
    run.abort(RunCause::Cancelled, REASON_CANCELLED, now);
}

/// A user interrupts the run: what has a slot goes back, the try is not consumed. The next slot means the next launch, so
/// that nothing which the stopped pods still say counts.
pub(super) fn interrupt(run: &mut RunWork<'_>) {
    if is_interrupted(run.run()) {
        return;
    }
    give_slots_back(run);
    run.transition_run(RunState::Queued, RunCause::Interrupted)
        .reason = Some(REASON_INTERRUPTED.to_owned());
}

/// Nothing of the run exists in this cluster. It goes on, once what its pods share has been made.
pub(super) fn start_again(run: &mut RunWork<'_>) {
    if run.run().state.is_finished() {
        return;
    }
    give_slots_back(run);
    if run.run().is_prepared && run.dag.has_shared_objects() {
        run.run_mut().is_prepared = false;
    }
}

fn give_slots_back(run: &mut RunWork<'_>) {
    for instance in 0..run.n_rows() {
        if run.row(instance).state.is_some_and(TaskState::is_occupying) {
            let row = run.transition(instance, TaskState::Scheduled, Cause::Interrupted);
            row.queued_at = None;
            row.start_date = None;
            row.pod_name = None;
            row.pod_uid = None;
        }
    }
}

/// Resumes an interrupted run. `dagrun_timeout` then counts from the time at which the run continues, because it does
/// not include the interruption.
pub(super) fn resume(run: &mut RunWork<'_>) {
    if is_interrupted(run.run()) {
        run.run_mut().reason = None;
    }
}
