//! What follows from the states of a run's tasks: which are ready, which will never run, and whether the run is over.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::Next;
use longshore_store::{Heartbeats, RunState, TaskState};

use crate::scheduler::{
    decide::{Limits, give_up::give_up, work::RunWork},
    retry,
    run_state::{IsLeaf, REASON_DEADLOCKED, REASON_TIMED_OUT, RunEnd, end_of},
    transitions::{Cause, RunCause},
    trigger_rule::{Counts, Verdict, evaluate, evaluate_indirect_setups},
};

/// Takes a running run as far as it goes without another fact. Tasks are visited in topological order, so one pass
/// sees every consequence; it costs as much as the DAG has tasks and edges.
pub(super) fn advance(
    run: &mut RunWork<'_>,
    now: Timestamp,
    limits: &Limits,
    heartbeats: &Heartbeats,
) {
    run.next = Next::AwaitChange;
    if run.run().state != RunState::Running {
        return;
    }
    if let (Some(timeout), Some(start)) = (run.dag.dagrun_timeout, run.run().start_date) {
        match time_left(start, timeout, now) {
            None => return run.abort(RunCause::TimedOut, REASON_TIMED_OUT, now),
            Some(left) => run.next = Next::After(left),
        }
    }
    if !run.run().is_prepared {
        return;
    }
    give_up(run, now, limits, heartbeats);
    let shape = Arc::clone(&run.shape);
    for &task in &shape.order {
        // The same for all instances of the task, so that a task with many costs as much as it has instances.
        let mut of_task = None;
        for instance in run.instances(task) {
            if is_examined(run.row(instance).state) {
                let verdict = *of_task.get_or_insert_with(|| verdict(run, task));
                follow(run, instance, verdict, now, limits);
            }
        }
    }
    end_if_over(run, now);
}

/// Whether the dependencies of a task instance in this state are looked at.
fn is_examined(state: Option<TaskState>) -> bool {
    match state {
        None | Some(TaskState::UpForRetry | TaskState::UpForReschedule) => true,
        Some(
            TaskState::Scheduled
            | TaskState::Queued
            | TaskState::Running
            | TaskState::Restarting
            | TaskState::Deferred
            | TaskState::AwaitingInput
            | TaskState::Success
            | TaskState::Failed
            | TaskState::UpstreamFailed
            | TaskState::Skipped
            | TaskState::Removed,
        ) => false,
    }
}

/// A task that waits for its retry, or for its next look, has the same dependencies as one that waits for its first try: the
/// tasks before it may have been cleared meanwhile.
fn follow(
    run: &mut RunWork<'_>,
    instance: usize,
    verdict: Verdict,
    now: Timestamp,
    limits: &Limits,
) {
    match verdict {
        Verdict::Wait => {}
        Verdict::Run if run.row(instance).state.is_none() && needs_no_worker(run, instance) => {
            let row = run.transition(instance, TaskState::Success, Cause::NothingToDo);
            row.try_number += 1;
            (row.start_date, row.end_date) = (Some(now), Some(now));
        }
        Verdict::Run if run.row(instance).state.is_none() => {
            schedule(run, instance, Cause::DependenciesHold, now);
        }
        Verdict::Run if run.row(instance).state == Some(TaskState::UpForReschedule) => {
            evaluate_reschedule(run, instance, now);
        }
        Verdict::Run => evaluate_retry(run, instance, now, limits),
        Verdict::End(state) => {
            let row = run.transition(instance, state, Cause::TriggerRule);
            row.end_date = Some(now);
        }
    }
}

/// Whether the task does nothing. Its try counts all the same, as upstream.
fn needs_no_worker(run: &RunWork<'_>, instance: usize) -> bool {
    let python = run.spec(instance).python.as_ref();
    python.is_some_and(|task| task.is_empty)
}

/// What the rule of a task says of all instances of the tasks before it.
fn verdict(run: &RunWork<'_>, task: usize) -> Verdict {
    let rule = run.specs[task].trigger_rule;
    let upstream = &run.shape.upstream[task];
    let setups = &run.shape.indirect_setups[task];
    let count = |tasks: &[usize]| {
        let mut counts = Counts::default();
        for &other in tasks {
            for instance in run.instances(other) {
                counts.add(run.row(instance).state, run.specs[other].is_setup);
            }
        }
        counts
    };
    if !setups.is_empty() && rule != crate::model::TriggerRule::Always {
        match evaluate_indirect_setups(&count(setups)) {
            Verdict::Run => {}
            verdict @ (Verdict::Wait | Verdict::End(_)) => return verdict,
        }
    }
    evaluate(rule, &count(upstream))
}

fn evaluate_retry(run: &mut RunWork<'_>, instance: usize, now: Timestamp, limits: &Limits) {
    let row = run.row(instance);
    let delay = retry::wait(
        run.spec(instance),
        row,
        run.run().logical_date,
        limits.max_task_retry_delay,
    );
    match time_left(row.end_date.unwrap_or(now), delay, now) {
        None => schedule(run, instance, Cause::RetryDue, now),
        Some(left) => run.next = run.next.min(Next::After(left)),
    }
}

/// The same try looks again once that is due.
fn evaluate_reschedule(run: &mut RunWork<'_>, instance: usize, now: Timestamp) {
    let due = retry::next_look(run.row(instance)).unwrap_or(now);
    match Duration::try_from(due.duration_since(now)) {
        Ok(left) if !left.is_zero() => run.next = run.next.min(Next::After(left)),
        Ok(_) | Err(_) => {
            let row = run.transition(instance, TaskState::Scheduled, Cause::RescheduleDue);
            row.scheduled_at = Some(now);
            row.queued_at = None;
            row.start_date = None;
        }
    }
}

/// A new try waits for a slot.
fn schedule(run: &mut RunWork<'_>, instance: usize, cause: Cause, now: Timestamp) {
    let row = run.transition(instance, TaskState::Scheduled, cause);
    row.try_number += 1;
    row.scheduled_at = Some(now);
    row.queued_at = None;
    row.start_date = None;
    row.end_date = None;
}

fn end_if_over(run: &mut RunWork<'_>, now: Timestamp) {
    let is_leaf = |instance: usize| {
        if run.shape.downstream[run.task_of(instance)].is_empty() {
            IsLeaf::Yes
        } else {
            IsLeaf::No
        }
    };
    let tasks = run
        .rows()
        .enumerate()
        .map(|(instance, row)| (row.state, is_leaf(instance)));
    let state = match end_of(tasks) {
        None => return,
        Some(RunEnd::Deadlocked) => {
            return run.abort(RunCause::Deadlocked, REASON_DEADLOCKED, now);
        }
        Some(RunEnd::Success) => RunState::Success,
        Some(RunEnd::Failed) => RunState::Failed,
    };
    run.transition_run(state, RunCause::TasksDone).end_date = Some(now);
    run.next = Next::AwaitChange;
}

/// What is left of a time that began at `start`; `None` where it is over.
fn time_left(start: Timestamp, time: Duration, now: Timestamp) -> Option<Duration> {
    // A clock that went back lengthens the wait by no more than the time itself.
    let elapsed = Duration::try_from(now.duration_since(start)).unwrap_or(Duration::ZERO);
    time.checked_sub(elapsed).filter(|left| !left.is_zero())
}
