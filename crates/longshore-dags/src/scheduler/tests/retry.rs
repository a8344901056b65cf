//! The wait between tries, as upstream computes it.

use std::time::Duration;

use jiff::Timestamp;
use longshore_store::{TaskKey, TaskState};
use serde::Deserialize;
use serde_json::Value;

use super::world::{World, dag, failed, key, succeeded, task};
use crate::{
    model::TriggerRule,
    scheduler::{
        LaunchChange, Selection,
        retry::{delay, is_eligible, latest_end},
    },
};

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

/// `t` waits for its retry; the task before it is cleared, and ends in another way.
pub(super) fn a_task_that_waits_for_its_retry_waits_for_what_is_cleared_before_it() {
    use TaskState::{Skipped, UpForRetry, UpstreamFailed};
    let changed = |rule, before: [LaunchChange; 2]| {
        let [first, second] = before;
        let mut t = task("t", &["a"]);
        t.retries = 1;
        t.trigger_rule = rule;
        let mut world = World::with_run(dag(vec![task("a", &[]), t]));
        world.pod_round("a", first);
        world.pod_round("t", failed());
        assert_eq!(world.state("t"), Some(UpForRetry));
        let of_a = Selection {
            task_ids: ["a".to_owned()].into(),
            ..Selection::default()
        };
        let clear = world.clear("r", &of_a);
        world.round(vec![clear]);
        if world.state("a") == Some(TaskState::Restarting) {
            let ended = world.pods_ended("a");
            world.round(vec![ended]);
        }
        world.wait(300);
        world.round(Vec::new());
        assert_eq!(world.state("t"), Some(UpForRetry), "{rule:?}");
        world.pod_round("a", second);
        world
    };
    let failed_before = changed(TriggerRule::AllSuccess, [succeeded(), failed()]);
    assert_eq!(failed_before.state("t"), Some(UpstreamFailed));
    let succeeded_before = changed(TriggerRule::AllFailed, [failed(), succeeded()]);
    assert_eq!(succeeded_before.state("t"), Some(Skipped));
    let same = changed(TriggerRule::AllSuccess, [succeeded(), succeeded()]);
    let t = same.row("t");
    assert_eq!((t.state, t.try_number), (Some(TaskState::Queued), 2));
}

#[test]
fn all_dependencies_are_looked_at_again_before_a_retry() {
    a_task_that_waits_for_its_retry_waits_for_what_is_cleared_before_it();
}
