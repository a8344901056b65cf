//! Tries that gave up their worker: for a while, for a trigger, or for a human.

use std::time::Duration;

use jiff::SignedDuration;
use longshore_core::Next;
use longshore_store::{
    AirflowTask, Looks, Pool, RunState, TaskInstance,
    TaskState::{
        self, AwaitingInput, Deferred, Failed, Queued, Restarting, Running, Scheduled, Skipped,
        Success, UpForReschedule, UpForRetry, UpstreamFailed,
    },
};
use uuid::Uuid;

use super::world::{World, dag, key, running, succeeded, task};
use crate::scheduler::{Fact, Selection};

/// The states of a try that gave up its worker.
const OUTSIDE: [TaskState; 3] = [UpForReschedule, Deferred, AwaitingInput];

/// The row gave up its worker; a sensor looks again after 60 s.
fn give_up(world: &mut World, task: &str, state: TaskState) {
    let now = world.now;
    world.put(task, |row| {
        row.state = Some(state);
        row.airflow = Some(Box::new(AirflowTask {
            looks: Some(Looks {
                n: 1,
                first_at: now,
                next_at: now + SignedDuration::from_secs(60),
            }),
            next_method: Some("execute_complete".to_owned()),
            ..AirflowTask::new(Uuid::nil())
        }));
    });
}

/// A run of one task `a`, which gave up its worker.
fn outside(state: TaskState) -> World {
    let mut world = World::with_run(dag(vec![task("a", &[])]));
    world.pod_round("a", running());
    give_up(&mut world, "a", state);
    world
}

#[test]
pub(super) fn a_sensor_looks_again_in_the_same_try() {
    let mut world = outside(UpForReschedule);
    let before = world.row("a").clone();
    for (wait, left) in [(0, 60), (59, 1)] {
        world.wait(wait);
        assert!(world.round(Vec::new()).is_empty());
        assert_eq!(world.next, Next::After(Duration::from_secs(left)));
    }
    world.wait(1);
    world.round(Vec::new());
    let after = world.row("a");
    assert_eq!((after.state, after.id), (Some(Queued), before.id));
    assert_eq!((after.try_number, after.launch), (1, before.launch + 1));
    assert_eq!(after.airflow, before.airflow);
    assert_eq!(world.archived, Vec::<TaskInstance>::new());
}

/// Why a task that was looked at before does not simply go on: what is before it may have been cleared.
#[test]
pub(super) fn a_sensor_that_looks_again_is_examined_like_a_scheduled_task() {
    let cases = [
        (None, UpForReschedule),
        (Some(Running), UpForReschedule),
        (Some(Success), Queued),
        (Some(Skipped), Skipped),
        (Some(Failed), UpstreamFailed),
    ];
    for (upstream, expected) in cases {
        // `x` keeps the run from its end.
        let tasks = vec![task("a", &[]), task("b", &["a"]), task("x", &[])];
        let mut world = World::with_run(dag(tasks));
        world.pod_round("a", succeeded());
        world.pod_round("b", running());
        give_up(&mut world, "b", UpForReschedule);
        // No first task of a DAG stays without a state, so its own retry keeps it there.
        let is_none = upstream.is_none();
        world.put("a", |row| {
            row.state = if is_none { Some(UpForRetry) } else { upstream };
        });
        world.wait(60);
        world.round(Vec::new());
        assert_eq!(world.state("b"), Some(expected), "{upstream:?}");
    }
}

#[test]
pub(super) fn a_run_that_ends_first_skips_what_waits_outside() {
    for state in OUTSIDE {
        let mut world = outside(state);
        assert!(world.round(Vec::new()).is_empty(), "{state:?}");
        world.round(vec![Fact::CancelRun(key("r"))]);
        assert_eq!(world.state("a"), Some(Skipped), "{state:?}");
        assert_eq!(world.run().state, RunState::Failed);
    }
}

#[test]
pub(super) fn what_waits_outside_can_be_cleared() {
    for state in OUTSIDE {
        let mut world = outside(state);
        let id = world.row("a").id;
        let clear = world.clear("r", &Selection::default());
        world.round(vec![clear]);
        assert_eq!(world.state("a"), Some(Restarting), "{state:?}");
        let ended = world.pods_ended("a");
        world.round(vec![ended]);
        let row = world.row("a");
        assert_eq!((row.state, row.try_number), (Some(Queued), 2));
        assert_ne!(row.id, id);
        // The next try begins at its beginning, in the same version.
        let fresh = AirflowTask::new(Uuid::nil());
        assert_eq!(row.airflow.as_deref(), Some(&fresh));
    }
}

/// Which of two tasks gets the last slot of a pool, of the run, and of their task's limit.
#[test]
fn a_deferred_task_holds_slots_of_its_pool_only_where_the_pool_says_so() {
    let cases = [
        (Deferred, false, Queued),
        (Deferred, true, Scheduled),
        (AwaitingInput, true, Queued),
        (UpForReschedule, true, Queued),
        (Running, false, Scheduled),
    ];
    for (state, include_deferred, expected) in cases {
        let mut first = task("a", &[]);
        first.priority_weight = 9;
        let mut dag = dag(vec![first, task("b", &[])]);
        dag.max_active_tasks = 1;
        let mut world = World::with_run(dag);
        world.limits.parallelism = 1;
        world.pod_round("a", running());
        assert_eq!(world.state("b"), Some(Scheduled));
        world.pools = vec![Pool {
            include_deferred,
            ..Pool::new("default_pool", 1)
        }];
        give_up(&mut world, "a", state);
        world.round(Vec::new());
        assert_eq!(world.state("b"), Some(expected), "{state:?}");
    }
}

#[test]
fn the_limit_of_a_task_counts_what_waits_for_a_trigger_or_a_human() {
    let cases = [
        (Deferred, Scheduled),
        (AwaitingInput, Scheduled),
        (UpForReschedule, Queued),
    ];
    for (state, expected) in cases {
        let mut limited = task("a", &[]);
        limited.max_active_tis_per_dag = Some(1);
        let dag = std::sync::Arc::new(dag(vec![limited]));
        let mut world = World::new();
        world.round(vec![super::world::request(&dag, "r")]);
        world.pod_round("a", running());
        give_up(&mut world, "a", state);
        world.round(vec![super::world::request(&dag, "s")]);
        let other = &world.rows[&key("s").task("a")];
        assert_eq!(other.state, Some(expected), "{state:?}");
    }
}
