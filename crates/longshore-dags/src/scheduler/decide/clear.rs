//! What follows from a clear: task instances start over, and a run that is over goes on.
//!
//! A try that was launched may have a pod that lives, or is about to. It becomes `Restarting`, its pods are removed,
//! and the next try begins once none of them lives: no two tries of a task run at the same time. (Upstream does so for
//! running ones only.)

use jiff::Timestamp;
use longshore_store::{AirflowTask, RunState, TaskState};

use crate::scheduler::{
    clear::{Clearing, is_clearable},
    decide::{
        pod_facts::{Subject, failure},
        round::Round,
        work::RunWork,
    },
    identity::id_after,
    transitions::{Cause, RunCause},
};

/// Clears what is still as it was when the clear was asked for.
pub(super) fn clear<'a>(round: &mut Round<'a>, clearing: &'a Clearing) {
    let now = round.now();
    let number = match (round.find(&clearing.run), &clearing.stored) {
        (Some(number), _) => number,
        (None, Some(stored)) => round.add(clearing.run.clone(), RunWork::of(stored)),
        (None, None) => return,
    };
    let run = round.run_mut(number);
    let mut n_cleared = 0;
    for instance in 0..run.n_rows() {
        let row = run.row(instance);
        if clearing.tries.contains(&row.id) && is_clearable(row) {
            clear_task(run, instance, now);
            n_cleared += 1;
        }
    }
    if n_cleared > 0 && run.run().state.is_finished() {
        reopen(run);
    }
}

fn clear_task(run: &mut RunWork<'_>, instance: usize, now: Timestamp) {
    let row = run.row(instance);
    let has_succeeded = row.state == Some(TaskState::Success);
    if row.launch > 0 && !has_succeeded {
        run.transition(instance, TaskState::Restarting, Cause::Cleared);
        return;
    }
    if has_succeeded {
        let ended = row.clone();
        run.archive(ended);
    }
    start_over(run, instance, Cause::Cleared, now);
}

/// The next try, before its dependencies hold. It may be retried as often as the first one.
fn start_over(run: &mut RunWork<'_>, instance: usize, cause: Cause, now: Timestamp) {
    let retries = run.spec(instance).retries;
    let row = run.transition(instance, None, cause);
    row.id = id_after(now, &row.id);
    row.max_tries = row.try_number + retries;
    row.launch = 0;
    row.launch_failures = 0;
    row.scheduled_at = None;
    row.queued_at = None;
    row.start_date = None;
    row.end_date = None;
    row.pod_name = None;
    row.pod_uid = None;
    row.failure = None;
    row.result = None;
    row.result_note = None;
    let of_airflow = row.airflow.as_deref().map(|task| task.dag_version);
    row.airflow = of_airflow.map(|version| Box::new(AirflowTask::new(version)));
}

/// The run waits for its turn, and for what its pods share: its files went when it ended.
fn reopen(run: &mut RunWork<'_>) {
    let is_prepared = !run.dag.has_shared_objects();
    let row = run.transition_run(RunState::Queued, RunCause::Cleared);
    row.start_date = None;
    row.end_date = None;
    row.reason = None;
    row.is_prepared = is_prepared;
}

impl Subject<'_, '_> {
    /// No pod of the cleared try lives: the next one may begin.
    pub(super) fn restart(&mut self) {
        let mut ended = self.run.row(self.instance).clone();
        ended.state = Some(TaskState::Failed);
        ended.end_date.get_or_insert(self.now);
        ended
            .failure
            .get_or_insert_with(|| failure("Cleared", "a user cleared the task before it ended"));
        self.run.archive(ended);
        start_over(self.run, self.instance, Cause::LaunchEnded, self.now);
    }
}
