//! The wait between tries, as upstream computes it.

use std::time::Duration;

use jiff::Timestamp;
use longshore_store::TaskKey;
use serde::Deserialize;
use serde_json::Value;

use super::world::{key, task};
use crate::scheduler::retry::{delay, is_eligible, latest_end};

#[derive(Debug, Deserialize)]
struct Vector {
    retry_delay_s: u64,
    retry_exponential_backoff: Value,
    max_retry_delay_s: Option<u64>,
    try_number: u32,
    delay_s: f64,
}

const DAY: Duration = Duration::from_secs(86_400);

fn task_key() -> TaskKey {
    key("r").task("t")
}

#[test]
fn waits_are_those_of_upstream() {
    let vectors: Vec<Vector> =
        serde_json::from_str(include_str!("../../../testdata/scheduler/retry-delay.json")).unwrap();
    assert_eq!(vectors.len(), 30);
    let date: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for vector in vectors {
        let mut task = task("t", &[]);
        task.retry_delay = Duration::from_secs(vector.retry_delay_s);
        // Python's `true` is the multiplier 1.
        task.retry_exponential_backoff = vector.retry_exponential_backoff.as_f64().unwrap_or(1.0);
        task.max_retry_delay = vector.max_retry_delay_s.map(Duration::from_secs);
        let wait = delay(&task, &task_key(), Some(date), vector.try_number, DAY);
        assert_eq!(wait, Duration::from_secs_f64(vector.delay_s), "{vector:?}");
    }
}

#[test]
fn jitter_depends_on_the_run_and_the_wait_is_bounded() {
    let mut task = task("t", &[]);
    task.retry_exponential_backoff = 2.0;
    let date: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
    let wait = |date, try_number| delay(&task, &task_key(), date, try_number, DAY);
    assert_ne!(wait(None, 1), wait(Some(date), 1));
    assert!((300..600).contains(&wait(None, 1).as_secs()));
    assert_eq!(wait(None, u32::MAX), DAY);
    task.retry_delay = Duration::MAX;
    assert_eq!(delay(&task, &task_key(), None, 3, DAY), DAY);
    assert_eq!(
        delay(&task, &task_key(), None, 3, Duration::from_secs(5)).as_secs(),
        5
    );
}

#[test]
fn tries_are_retries_and_one() {
    for (try_number, max_tries, expected) in [
        (1, 0, false),
        (1, 1, true),
        (2, 1, false),
        (2, 2, true),
        (3, 2, false),
    ] {
        assert_eq!(
            is_eligible(try_number, max_tries),
            expected,
            "{try_number} of {max_tries}"
        );
    }
}

#[test]
fn a_wait_counts_from_the_latest_instant_at_which_the_try_can_have_ended() {
    let at = |text: &str| -> Timestamp { text.parse().unwrap() };
    for (told, now, expected) in [
        (None, "2026-11-21T10:00:04.7Z", "2026-11-21T10:00:04.7Z"),
        // Told within the second.
        (
            Some("2026-11-21T10:00:04Z"),
            "2026-11-21T10:00:04.7Z",
            "2026-11-21T10:00:04.7Z",
        ),
        // Told later: it was over by the end of the second.
        (
            Some("2026-11-21T10:00:04Z"),
            "2026-11-21T10:30:00Z",
            "2026-11-21T10:00:05Z",
        ),
        // Told by a clock that is ahead.
        (
            Some("2026-11-21T10:00:09Z"),
            "2026-11-21T10:00:04Z",
            "2026-11-21T10:00:04Z",
        ),
    ] {
        assert_eq!(
            latest_end(told.map(at), at(now)),
            at(expected),
            "{told:?} {now}"
        );
    }
}
