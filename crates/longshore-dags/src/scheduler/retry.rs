//! How long to wait before the next try (section 6.5 of the DAG scheduler spec).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use longshore_store::{TaskInstance, TaskKey, TaskState};
use sha1::{Digest, Sha1};

use crate::model::Task;

/// Whether another try may follow this one.
pub fn is_eligible(try_number: u32, max_tries: u32) -> bool {
    try_number <= max_tries
}

/// The latest instant at which a try can have ended, from which its wait counts: a node reports whole seconds, and a
/// try ends no later than its end is known. So no wait is shorter than asked for, and none longer by more than a second.
pub fn latest_end(reported: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let second = SignedDuration::from_secs(1);
    let latest = reported.and_then(|reported| reported.checked_add(second).ok());
    latest.map_or(now, |latest| latest.min(now))
}

/// The wait after try `try_number` has ended badly.
///
/// With a multiplier the wait grows by try and gets a jitter of up to its own length, which is a hash of the try, so
/// that it is the same whenever it is computed. Only then `max_retry_delay` and `max_task_retry_delay` bound it, as
/// upstream has it.
pub fn delay(
    task: &Task,
    key: &TaskKey,
    logical_date: Option<Timestamp>,
    try_number: u32,
    max_task_retry_delay: Duration,
) -> Duration {
    let multiplier = task.retry_exponential_backoff;
    if multiplier <= 0.0 || multiplier == 1.0 {
        return task.retry_delay;
    }
    let exponent = i32::try_from(try_number)
        .unwrap_or(i32::MAX)
        .saturating_sub(1);
    let base = (task.retry_delay.as_secs_f64() * multiplier.powi(exponent))
        .ceil()
        .max(1.0);
    let jittered = if base < max_task_retry_delay.as_secs_f64() {
        let base = Duration::from_secs_f64(base);
        base + Duration::from_secs(hash_modulo(key, logical_date, try_number, base.as_secs()))
    } else {
        max_task_retry_delay
    };
    let max = task
        .max_retry_delay
        .unwrap_or(Duration::MAX)
        .min(max_task_retry_delay);
    jittered.min(max)
}

/// The wait after the last try of a task instance: what a retry policy said, or else the task.
pub(crate) fn wait(
    task: &Task,
    row: &TaskInstance,
    logical_date: Option<Timestamp>,
    max_task_retry_delay: Duration,
) -> Duration {
    let said = row.airflow.as_ref().and_then(|task| task.retry_delay);
    match said {
        Some(said) => Duration::try_from(said).unwrap_or(Duration::ZERO),
        None => delay(
            task,
            &row.key,
            logical_date,
            row.try_number,
            max_task_retry_delay,
        ),
    }
}

/// When a sensor that gave up its worker looks again.
pub(crate) fn next_look(row: &TaskInstance) -> Option<Timestamp> {
    let looks = row.airflow.as_ref()?.looks?;
    (row.state == Some(TaskState::UpForReschedule)).then_some(looks.next_at)
}

/// When a task instance that waits for its retry, or for its next look, is scheduled again, at the earliest.
pub(crate) fn due_at(
    task: &Task,
    row: &TaskInstance,
    logical_date: Option<Timestamp>,
    max_task_retry_delay: Duration,
) -> Option<Timestamp> {
    if row.state == Some(TaskState::UpForReschedule) {
        return next_look(row);
    }
    let ended_at = row
        .end_date
        .filter(|_| row.state == Some(TaskState::UpForRetry))?;
    let wait = wait(task, row, logical_date, max_task_retry_delay);
    ended_at.checked_add(wait).ok()
}

/// SHA-1 of the try, read as one big number, modulo `divisor`.
fn hash_modulo(
    key: &TaskKey,
    logical_date: Option<Timestamp>,
    try_number: u32,
    divisor: u64,
) -> u64 {
    let date = logical_date.map_or_else(|| "None".to_owned(), python_text);
    let text = format!("{}#{}#{date}#{try_number}", key.run.dag_id, key.task_id);
    let divisor = u128::from(divisor.max(1));
    let remainder = Sha1::digest(text.as_bytes())
        .iter()
        .fold(0, |remainder, &byte| {
            (remainder * 256 + u128::from(byte)) % divisor
        });
    u64::try_from(remainder).unwrap_or(0)
}

/// An instant as Python prints it: with microseconds only where there are some.
fn python_text(at: Timestamp) -> String {
    let format = if at.subsec_microsecond() == 0 && at.subsec_millisecond() == 0 {
        "%Y-%m-%d %H:%M:%S+00:00"
    } else {
        "%Y-%m-%d %H:%M:%S.%6f+00:00"
    };
    at.strftime(format).to_string()
}
