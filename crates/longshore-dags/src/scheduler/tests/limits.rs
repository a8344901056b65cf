//! Which task instances get a slot.

use std::sync::Arc;

use longshore_store::TaskState::{Queued, Scheduled};

use super::world::{World, dag, request, running, succeeded, task};
use crate::{model::Task, scheduler::Fact};

fn weighted(id: &str, weight: i64) -> Task {
    let mut task = task(id, &[]);
    task.priority_weight = weight;
    task
}

fn in_pool(id: &str, pool: &str, slots: u32) -> Task {
    let mut task = task(id, &[]);
    task.pool = pool.to_owned();
    task.pool_slots = slots;
    task
}

/// The tasks of run `r` that hold a slot, joined.
fn holding(world: &World) -> String {
    let rows = world
        .rows
        .values()
        .filter(|row| row.state.is_some_and(|it| it.is_occupying()));
    rows.map(|row| row.key.task_id.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_heaviest_get_the_slots_of_their_run_first() {
    let mut dag = dag(vec![weighted("a", 1), weighted("b", 3), weighted("c", 2)]);
    dag.max_active_tasks = 1;
    let mut world = World::with_run(dag);
    assert_eq!(holding(&world), "b");
    assert_eq!(world.state("a"), Some(Scheduled));
    world.pod_round("b", running());
    assert_eq!(holding(&world), "b");
    world.pod_round("b", succeeded());
    assert_eq!(holding(&world), "c");
}

#[test]
fn a_blocked_task_does_not_block_those_after_it() {
    let mut big = in_pool("a", "small", 2);
    big.priority_weight = 100;
    let mut world = World::new();
    world.set_pools(&[
        ("default_pool", 128),
        ("small", 2),
        ("none", 0),
        ("endless", -1),
    ]);
    let tasks = vec![
        big,
        in_pool("b", "small", 1),
        in_pool("c", "small", 1),
        in_pool("d", "missing", 1),
        in_pool("e", "none", 1),
        in_pool("f", "small", 3),
        in_pool("g", "endless", 999),
        task("h", &[]),
    ];
    world.round(vec![request(&Arc::new(dag(tasks)), "r")]);
    assert_eq!(holding(&world), "a g h");
    world.pod_round("a", succeeded());
    assert_eq!(holding(&world), "b c g h");
}

#[test]
fn parallelism_is_over_all_runs_and_older_logical_dates_go_first() {
    let mut world = World::new();
    world.limits.parallelism = 2;
    let dag = Arc::new(dag(vec![task("a", &[]), task("b", &[])]));
    let on = |run: &str, date: &str| {
        let mut fact = request(&dag, run);
        if let Fact::RunRequested(new) = &mut fact {
            new.logical_date = Some(date.parse().unwrap());
        }
        fact
    };
    world.round(vec![
        on("q", "2026-01-02T00:00:00Z"),
        on("r", "2026-01-01T00:00:00Z"),
    ]);
    assert_eq!([world.state("a"), world.state("b")], [Some(Queued); 2]);
    world.pod_round("a", succeeded());
    assert_eq!(holding(&world), "a b");
}

#[test]
fn max_active_tis_per_dag_is_over_all_runs() {
    let mut single = task("a", &[]);
    single.max_active_tis_per_dag = Some(1);
    let dag = Arc::new(dag(vec![single, task("b", &[])]));
    let mut world = World::new();
    world.round(vec![request(&dag, "q")]);
    world.wait(1);
    world.round(vec![request(&dag, "r")]);
    assert_eq!(holding(&world), "a b b");
    assert_eq!(world.state("a"), Some(Scheduled));
}

#[test]
fn retries_and_relaunches_keep_within_the_limits() {
    let mut retried = task("a", &[]);
    retried.retries = 1;
    retried.retry_delay = std::time::Duration::ZERO;
    let mut dag = dag(vec![retried, task("b", &[])]);
    dag.max_active_tasks = 1;
    let mut world = World::with_run(dag);
    assert_eq!(holding(&world), "a");
    // The slot is given away while the task waits for its next try, however short.
    world.pod_round("a", super::world::failed());
    assert_eq!(holding(&world).split(' ').count(), 1);
}

#[test]
fn of_two_runs_about_the_same_instant_the_older_goes_first() {
    let mut world = World::new();
    world.limits.parallelism = 1;
    let dag = Arc::new(dag(vec![task("a", &[])]));
    let on_new_year = |run: &str| {
        let mut fact = request(&dag, run);
        if let Fact::RunRequested(new) = &mut fact {
            new.logical_date = Some("2026-01-01T00:00:00Z".parse().unwrap());
        }
        fact
    };
    // Something else holds the slot until both wait for it.
    world.round(vec![request(&dag, "x")]);
    for run in ["r", "q"] {
        world.wait(1);
        world.round(vec![on_new_year(run)]);
    }
    let holder = world
        .rows
        .values()
        .find(|row| row.state == Some(Queued))
        .unwrap();
    let fact = super::world::pod_of(holder, succeeded());
    world.round(vec![fact]);
    assert_eq!(world.state("a"), Some(Queued));
}
