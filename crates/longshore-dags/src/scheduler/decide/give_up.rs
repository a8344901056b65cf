//! Workers that are not waited for any longer: those that fell silent, and those that never began
//! (sections 7.1 and 7.3 of the DAG scheduler spec).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use longshore_core::Next;
use longshore_store::{Heartbeats, TaskInstance, TaskState};

use super::{
    Limits,
    pod_facts::{Subject, failure},
    work::RunWork,
};
use crate::scheduler::transitions::Cause;

/// Gives up the workers of a run whose time is over, and notes when the next one's is.
///
/// Tasks of container DAGs have no workers: their pods say everything.
pub(super) fn give_up(
    run: &mut RunWork<'_>,
    now: Timestamp,
    limits: &Limits,
    heartbeats: &Heartbeats,
) {
    for instance in 0..run.n_rows() {
        let Some(deadline) = deadline(run.row(instance), limits, heartbeats) else {
            continue;
        };
        match Duration::try_from(deadline.duration_since(now)) {
            Ok(left) if !left.is_zero() => run.next = run.next.min(Next::After(left)),
            Ok(_) | Err(_) => Subject {
                run,
                instance,
                now,
                limits,
            }
            .given_up(),
        }
    }
}

/// Until when a worker is waited for.
fn deadline(row: &TaskInstance, limits: &Limits, heartbeats: &Heartbeats) -> Option<Timestamp> {
    row.airflow.as_ref()?;
    let (since, time) = match row.state {
        Some(TaskState::Running) => {
            let heard = heartbeats.last(row.id);
            let since = row.start_date.map_or(heard, |start| start.max(heard));
            (since, limits.heartbeat_timeout)
        }
        Some(TaskState::Queued) => (row.queued_at?, limits.queued_timeout),
        None
        | Some(
            TaskState::Scheduled
            | TaskState::Restarting
            | TaskState::Success
            | TaskState::Failed
            | TaskState::UpForRetry
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput
            | TaskState::UpstreamFailed
            | TaskState::Skipped
            | TaskState::Removed,
        ) => return None,
    };
    let time = SignedDuration::try_from(time).ok()?;
    // A time that is too long for a clock never comes.
    since.checked_add(time).ok()
}

impl Subject<'_, '_> {
    fn given_up(&mut self) {
        if self.run.row(self.instance).state == Some(TaskState::Running) {
            let seconds = self.limits.heartbeat_timeout.as_secs_f64();
            let message = format!(
                "its worker was not heard for {seconds} s (`[scheduler] task_instance_heartbeat_timeout`)"
            );
            self.try_failed(failure("HeartbeatTimeout", &message), None);
        } else {
            self.stuck();
        }
    }

    /// The same try waits for another slot, and its pod goes; after some times it fails.
    fn stuck(&mut self) {
        let now = self.now;
        let seconds = self.limits.queued_timeout.as_secs_f64();
        let n_done = self.run.row(self.instance).launch_failures;
        if n_done >= self.limits.stuck_in_queued_retries {
            let message = format!(
                "its worker did not begin within {seconds} s (`[scheduler] task_queued_timeout`), and no launch is left"
            );
            let row = self
                .run
                .transition(self.instance, TaskState::Failed, Cause::StuckInQueued);
            row.end_date = Some(now);
            row.failure = Some(failure("StuckInQueued", &message));
            return;
        }
        let row = self
            .run
            .transition(self.instance, TaskState::Scheduled, Cause::StuckInQueued);
        row.launch_failures += 1;
        row.queued_at = None;
        row.pod_name = None;
        row.pod_uid = None;
    }
}
