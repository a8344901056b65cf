//! What follows from facts about a pod: starts, ends, launch failures, and the failure rule
//! (sections 2.6.2 and 7.5 of the DAG scheduler spec).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use longshore_store::{AirflowTask, Failure, TaskInstance, TaskState};

use crate::{
    model::{Launcher, Task},
    pods::events::REASON_STATUS_UNKNOWN,
    scheduler::{
        decide::{Limits, work::RunWork},
        facts::{LaunchChange, LaunchFact},
        identity::{object_name, try_id},
        retry,
        transitions::Cause,
    },
};

/// A task instance that a fact is about, after the fences.
pub(super) struct Subject<'w, 'a> {
    pub(super) run: &'w mut RunWork<'a>,
    pub(super) instance: usize,
    pub(super) now: Timestamp,
    pub(super) limits: &'w Limits,
}

/// Why a try failed whose pod ended well, before its worker had said what became of the task.
const WORKER_ENDED: &str = "the pod ended, and its worker had not said what became of the task";

impl Subject<'_, '_> {
    /// Something about the pod of the current launch.
    pub(super) fn pod(&mut self, fact: &LaunchFact) {
        let recorded = &self.run.row(self.instance).pod_uid;
        match recorded {
            Some(uid) if *uid != fact.pod_uid => return,
            Some(_) => {}
            None => self.run.row_mut(self.instance).pod_uid = Some(fact.pod_uid.clone()),
        }
        match &fact.what {
            LaunchChange::Exists => {}
            LaunchChange::Stuck { failure } => {
                if self.is_queued() {
                    self.run.row_mut(self.instance).failure = Some(failure.clone());
                }
            }
            // The pod of a worker runs before the task does, and ends well whatever became of the task.
            LaunchChange::Running { .. } if self.has_worker() => {}
            LaunchChange::Succeeded { ended_at, .. } if self.has_worker() => {
                self.try_failed(failure("WorkerEnded", WORKER_ENDED), *ended_at);
            }
            LaunchChange::Running { started_at } => self.running(*started_at),
            LaunchChange::Succeeded {
                started_at,
                ended_at,
                was_stopped: _,
                result,
                note,
            } => {
                let now = self.now;
                let row =
                    self.run
                        .transition(self.instance, TaskState::Success, Cause::PodSucceeded);
                let started_at = started_at.map(|at| within(at, row.queued_at, now));
                row.start_date = row.start_date.or(started_at).or(Some(now));
                row.end_date = Some(just_seen(*ended_at, row.start_date, now));
                row.pod_name = Some(fact.pod_name.clone());
                row.failure = None;
                row.result.clone_from(result);
                row.result_note.clone_from(note);
            }
            LaunchChange::Failed {
                started_at,
                ended_at,
                failure,
                before_start,
            } => {
                let (now, has_worker) = (self.now, self.has_worker());
                let row = self.run.row_mut(self.instance);
                if !has_worker {
                    let started_at = started_at.map(|at| within(at, row.queued_at, now));
                    row.start_date = row.start_date.or(started_at);
                }
                let is_queued = row.state == Some(TaskState::Queued);
                if (*before_start || has_worker) && is_queued {
                    // A kubelet that deletes a pod which was stuck does not say again why the pod was.
                    let is_told = failure.reason.as_deref() != Some(REASON_STATUS_UNKNOWN);
                    let known = row.failure.clone().filter(|_| !is_told);
                    self.launch_failed(known.unwrap_or_else(|| failure.clone()), *ended_at);
                } else {
                    self.try_failed(failure.clone(), *ended_at);
                }
            }
            LaunchChange::Gone => self.gone(&fact.pod_name, true),
            // A worker that has not said that it began has run no task.
            LaunchChange::Lost => self.gone(&fact.pod_name, self.has_worker()),
        }
    }

    /// The API server refused the pod for good.
    pub(super) fn launch_refused(&mut self, message: &str) {
        if self.is_queued() {
            self.try_failed(failure("LaunchRefused", message), None);
        }
    }

    /// The pod cannot be built, which another try does not change.
    pub(super) fn build_failed(&mut self, message: &str) {
        if self.is_queued() {
            let now = self.now;
            let row = self
                .run
                .transition(self.instance, TaskState::Failed, Cause::BuildFailed);
            row.end_date = Some(now);
            row.failure = Some(failure("LaunchBuildFailed", message));
        }
    }

    /// Whether the task runs in a worker, which says itself what becomes of it.
    fn has_worker(&self) -> bool {
        self.run.row(self.instance).airflow.is_some()
    }

    fn is_queued(&self) -> bool {
        self.run.row(self.instance).state == Some(TaskState::Queued)
    }

    fn running(&mut self, started_at: Option<Timestamp>) {
        if self.is_queued() {
            let now = self.now;
            let row = self
                .run
                .transition(self.instance, TaskState::Running, Cause::PodRuns);
            row.start_date = Some(just_seen(started_at, row.queued_at, now));
        }
    }

    fn gone(&mut self, name: &str, before_start: bool) {
        let (kind, reason) = match self.task().launcher() {
            Launcher::Pod => ("pod", "PodDeleted"),
            Launcher::TaskAction => ("TaskAction", "TaskActionDeleted"),
        };
        if self.is_queued() && before_start {
            let message = format!("{kind} {name} was deleted before its process ran");
            self.launch_failed(failure(reason, &message), None);
        } else if self.is_queued() {
            let message = format!("{kind} {name} was deleted, and its process may have run");
            self.try_failed(failure(reason, &message), None);
        } else if let Some(timeout) = self.overrun() {
            let message = format!("it ran for longer than {} s", timeout.as_secs_f64());
            self.try_failed(failure("DeadlineExceeded", &message), None);
        } else {
            let message = format!("{kind} {name} was deleted while its process ran");
            self.try_failed(failure(reason, &message), None);
        }
    }

    fn task(&self) -> &Task {
        self.run.spec(self.instance)
    }

    /// The timeout that has passed, where the scheduler stops a try that takes longer (see [`deadline`]).
    fn overrun(&self) -> Option<Duration> {
        let deadline = deadline(self.task(), self.run.row(self.instance))?;
        self.task()
            .execution_timeout
            .filter(|_| deadline <= self.now)
    }

    /// The pod died before its process ran: the same try gets another pod, a bounded number of times.
    fn launch_failed(&mut self, failure: Failure, ended_at: Option<Timestamp>) {
        let row = self.run.row(self.instance);
        let is_excluded = failure
            .reason
            .as_ref()
            .is_some_and(|why| self.limits.excluded_reasons.contains(why));
        let max = self.limits.pod_launch_failure_retries;
        if is_excluded || max.is_some_and(|max| row.launch_failures >= max) {
            return self.try_failed(failure, ended_at);
        }
        let row = self
            .run
            .transition(self.instance, TaskState::Queued, Cause::LaunchFailed);
        row.launch_failures += 1;
        row.start_date = None;
        row.failure = Some(failure);
        self.next_launch();
    }

    fn next_launch(&mut self) {
        next_launch(self.run, self.instance);
    }

    /// The try ended badly: the next one where one is left, else the end.
    pub(super) fn try_failed(&mut self, failure: Failure, ended_at: Option<Timestamp>) {
        let ended_at = retry::latest_end(ended_at, self.now);
        let row = self.run.row(self.instance);
        if retry::is_eligible(row.try_number, row.max_tries) {
            self.next_try(failure, ended_at, Cause::TryFailed);
            return;
        }
        let row = self
            .run
            .transition(self.instance, TaskState::Failed, Cause::TryFailed);
        row.end_date = Some(ended_at);
        row.failure = Some(failure);
    }

    /// The next try follows one that ended badly.
    pub(super) fn next_try(
        &mut self,
        failure: Failure,
        ended_at: Timestamp,
        cause: Cause,
    ) -> &mut TaskInstance {
        let mut ended = self.run.row(self.instance).clone();
        ended.state = Some(TaskState::Failed);
        ended.end_date = Some(ended_at);
        ended.failure = Some(failure.clone());
        self.run.archive(ended);

        let now = self.now;
        let row = self
            .run
            .transition(self.instance, TaskState::UpForRetry, cause);
        row.id = try_id(now, &row.key, row.try_number + 1);
        row.launch = 0;
        row.launch_failures = 0;
        row.end_date = Some(ended_at);
        row.pod_name = None;
        row.pod_uid = None;
        row.failure = Some(failure);
        if let Some(task) = row.airflow.as_deref_mut() {
            *task = AirflowTask::new(task.dag_version);
        }
        row
    }
}

/// An instant of a pod that was reported now, on the scheduler's clock, which has the times of runs. Kubernetes keeps whole
/// seconds: what happened in the second that is not over happened now.
fn just_seen(
    reported: Option<Timestamp>,
    earliest: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    let is_over = |at: &Timestamp| {
        let is_whole = at.subsec_nanosecond() == 0;
        !is_whole || now.duration_since(*at) >= SignedDuration::from_secs(1)
    };
    let reported = reported.filter(is_over);
    reported.map_or(now, |at| within(at, earliest, now))
}

/// An instant of a pod on the scheduler's clock: no earlier than what led to it, also where the node's clock is behind or
/// its fraction of a second was cut off, and not still to come.
pub(super) fn within(
    reported: Timestamp,
    earliest: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    reported.max(earliest.unwrap_or(reported)).min(now)
}

/// Whether a pod of an earlier launch, or of one that was interrupted, has succeeded by itself, and no later pod is
/// known. Its successor is made only after this was decided upon.
pub(super) fn has_done_its_work(row: &TaskInstance, fact: &LaunchFact) -> bool {
    let was_launched_before = match row.state {
        Some(TaskState::Scheduled) => fact.launch <= row.launch,
        Some(TaskState::Queued) => fact.launch < row.launch,
        None
        | Some(
            TaskState::Running
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
        ) => false,
    };
    let has_succeeded = matches!(
        fact.what,
        LaunchChange::Succeeded {
            was_stopped: false,
            ..
        }
    );
    // What a pod with a worker ends with says nothing of the task.
    let is_all = row.airflow.is_none();
    is_all && was_launched_before && row.pod_uid.is_none() && has_succeeded
}

/// Makes the next launch of the current try the current one. What it is launched as is created once this is committed.
pub(super) fn next_launch(run: &mut RunWork<'_>, instance: usize) {
    let launcher = run.spec(instance).launcher();
    let row = run.row_mut(instance);
    row.launch += 1;
    row.pod_name = Some(object_name(launcher, row));
    row.pod_uid = None;
}

/// When the scheduler has to stop a running try. `None` for a pod: its node stops it.
pub(crate) fn deadline(task: &Task, row: &TaskInstance) -> Option<Timestamp> {
    (task.launcher() == Launcher::TaskAction).then(|| time_out(task, row))?
}

/// When the node of its pod has to stop a running try.
pub(crate) fn limit(task: &Task, row: &TaskInstance) -> Option<Timestamp> {
    (task.launcher() == Launcher::Pod).then(|| time_out(task, row))?
}

/// When the timeout of a try passes, which counts from the start of the task's own container. `None` where a worker stops
/// the task itself (section 7.4 of the DAG scheduler spec).
fn time_out(task: &Task, row: &TaskInstance) -> Option<Timestamp> {
    if row.airflow.is_some() {
        return None;
    }
    let timeout = SignedDuration::try_from(task.execution_timeout?).ok()?;
    row.start_date?.checked_add(timeout).ok()
}

pub(super) fn failure(reason: &str, message: &str) -> Failure {
    Failure {
        message: message.to_owned(),
        reason: Some(reason.to_owned()),
        exit_code: None,
        container: None,
    }
}
