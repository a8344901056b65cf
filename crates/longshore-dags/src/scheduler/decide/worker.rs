//! What follows from what workers say about their try (sections 4 and 4.1 of the DAG scheduler spec).
//!
//! A worker that has lost an answer asks again: each report is decided so that the second one changes nothing.

use jiff::{SignedDuration, Timestamp};
use longshore_store::{
    AirflowTask, Deferral, Looks, Reschedule, TaskState, Trigger, WorkerProcess,
};
use serde_json::Value;

use super::pod_facts::{Subject, failure, within};
use crate::scheduler::{
    retry,
    transitions::Cause,
    worker::{Started, TryEnd, WorkerAnswer, WorkerReport},
};

impl Subject<'_, '_> {
    /// Does what the worker of this try says, and answers it.
    pub(super) fn worker(&mut self, report: &WorkerReport) -> WorkerAnswer {
        if let WorkerReport::Started {
            process,
            started_at,
        } = report
        {
            return self.worker_started(process, *started_at);
        }
        if let WorkerReport::Skips { instances } = report {
            return self.skips(instances);
        }
        let state = self.run.row(self.instance).state;
        if state == report.state() {
            return WorkerAnswer::Already;
        }
        if state != Some(TaskState::Running) {
            return WorkerAnswer::Refused(state);
        }
        self.worker_stopped(report);
        WorkerAnswer::Changed
    }

    /// A worker begins: the process that a queued try was launched for, or the same process once more.
    fn worker_started(&mut self, process: &WorkerProcess, started_at: Timestamp) -> WorkerAnswer {
        let now = self.now;
        let row = self.run.row(self.instance);
        let known = row.airflow.as_ref().and_then(|task| task.process.as_ref());
        let is_repeated = row.state == Some(TaskState::Running) && known == Some(process);
        let is_first = row.state == Some(TaskState::Queued);
        if !is_first && !is_repeated {
            return WorkerAnswer::Refused(row.state);
        }
        if is_first {
            let row = self
                .run
                .transition(self.instance, TaskState::Running, Cause::WorkerStarted);
            let started_at = within(started_at, row.queued_at, now);
            row.end_date = None;
            row.failure = None;
            let mut goes_on = false;
            if let Some(task) = row.airflow.as_deref_mut() {
                goes_on = task.next_method.is_some();
                task.process = Some(process.clone());
                task.retry_delay = None;
                task.retry_reason = None;
            }
            // A try that goes on began before it gave up its first worker.
            row.start_date = row.start_date.filter(|_| goes_on).or(Some(started_at));
        }
        WorkerAnswer::Started(Box::new(Started {
            run: self.run.run().clone(),
            task_instance: self.run.row(self.instance).clone(),
        }))
    }

    /// A worker that ran says what became of its try.
    fn worker_stopped(&mut self, report: &WorkerReport) {
        match report {
            // Answered before.
            WorkerReport::Started { .. } | WorkerReport::Skips { .. } => {}
            WorkerReport::Ended { end, ended_at } => self.ended(*end, *ended_at),
            WorkerReport::Retry {
                ended_at,
                delay,
                reason,
            } => self.retries(*ended_at, *delay, reason.as_ref()),
            WorkerReport::Reschedule { ended_at, next_at } => self.looks_again(*ended_at, *next_at),
            WorkerReport::Suspended {
                trigger,
                timeout,
                next_method,
                next_kwargs,
            } => self.suspended(trigger.as_ref(), *timeout, next_method, next_kwargs),
        }
    }

    /// Skips what has not run and does not run. A task instance that restarts, or whose task is gone, stays as it is.
    fn skips(&mut self, instances: &[(String, i32)]) -> WorkerAnswer {
        let now = self.now;
        for (task_id, map_index) in instances {
            let task = self.run.shape.numbers.get(task_id).copied();
            let instance = task.and_then(|task| self.run.instance(task, *map_index));
            let is_meant = |instance: &usize| {
                *instance != self.instance && may_be_skipped(self.run.row(*instance).state)
            };
            let Some(instance) = instance.filter(is_meant) else {
                continue;
            };
            let row = self
                .run
                .transition(instance, TaskState::Skipped, Cause::WorkerSkips);
            row.start_date = row.start_date.or(Some(now));
            row.end_date = Some(now);
        }
        WorkerAnswer::Changed
    }

    fn ended(&mut self, end: TryEnd, ended_at: Timestamp) {
        let now = self.now;
        let row = self
            .run
            .transition(self.instance, TaskState::from(end), Cause::WorkerReported);
        row.end_date = Some(within(ended_at, row.start_date, now));
        row.failure = (end == TryEnd::Failed).then(|| failure(REASON_TASK_FAILED, TASK_FAILED));
        if let Some(task) = row.airflow.as_deref_mut() {
            leave_method(task);
        }
    }

    /// A worker that was told at its start that no try is left does not ask for one; upstream would give it all the same.
    fn retries(
        &mut self,
        ended_at: Timestamp,
        delay: Option<SignedDuration>,
        reason: Option<&String>,
    ) {
        let row = self.run.row(self.instance);
        if !retry::is_eligible(row.try_number, row.max_tries) {
            return self.ended(TryEnd::Failed, ended_at);
        }
        let ended_at = within(ended_at, self.run.row(self.instance).start_date, self.now);
        let why = failure(REASON_TASK_FAILED, TASK_FAILED);
        let row = self.next_try(why, ended_at, Cause::WorkerReported);
        if let Some(task) = row.airflow.as_deref_mut() {
            task.retry_delay = delay;
            task.retry_reason = reason.cloned();
        }
    }

    fn looks_again(&mut self, ended_at: Timestamp, next_at: Timestamp) {
        let now = self.now;
        let row = self.run.transition(
            self.instance,
            TaskState::UpForReschedule,
            Cause::WorkerReported,
        );
        let end_date = within(ended_at, row.start_date, now);
        let task_instance_id = row.id;
        let Some(task) = row.airflow.as_deref_mut() else {
            return;
        };
        leave_method(task);
        task.process = None;
        let (n, first_at) = task
            .looks
            .map_or((0, now), |looks| (looks.n, looks.first_at));
        let number = n + 1;
        task.looks = Some(Looks {
            n: number,
            first_at,
            next_at,
        });
        self.run.reschedules.push(Reschedule {
            task_instance_id,
            number,
            // Upstream stores when it heard of the look, not when the look began.
            start_date: now,
            end_date,
            reschedule_date: next_at,
        });
    }

    fn suspended(
        &mut self,
        trigger: Option<&Trigger>,
        timeout: Option<SignedDuration>,
        next_method: &str,
        next_kwargs: &Value,
    ) {
        let now = self.now;
        let state = if trigger.is_some() {
            TaskState::Deferred
        } else {
            TaskState::AwaitingInput
        };
        let row = self
            .run
            .transition(self.instance, state, Cause::WorkerReported);
        let task_instance_id = row.id;
        if let Some(task) = row.airflow.as_deref_mut() {
            let over = |timeout| now.checked_add(timeout).unwrap_or(Timestamp::MAX);
            task.process = None;
            task.next_method = Some(next_method.to_owned());
            task.timeout_at = timeout.map(over);
        }
        self.run.deferrals.push(Deferral {
            task_instance_id,
            trigger: trigger.cloned(),
            next_kwargs: next_kwargs.clone(),
        });
    }
}

/// The reason of a failure that the worker of the try reported itself.
pub(crate) const REASON_TASK_FAILED: &str = "TaskFailed";

/// Why a try failed that its worker saw to its end.
const TASK_FAILED: &str = "the task failed, says its worker; the log of the try has the reason";

fn may_be_skipped(state: Option<TaskState>) -> bool {
    match state {
        None
        | Some(
            TaskState::Scheduled
            | TaskState::Queued
            | TaskState::UpForRetry
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput
            | TaskState::UpstreamFailed,
        ) => true,
        Some(
            TaskState::Running
            | TaskState::Restarting
            | TaskState::Success
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Removed,
        ) => false,
    }
}

/// The method that goes on has run.
fn leave_method(task: &mut AirflowTask) {
    task.next_method = None;
    task.timeout_at = None;
}
