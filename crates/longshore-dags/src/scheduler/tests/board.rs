//! Loading.

use std::{convert::Infallible, sync::Arc};

use longshore_store::{Run, Snapshot, TaskInstance};

use super::world::{World, dag, key, request, task};
use crate::{
    model::{Dag, WeightRule},
    scheduler::{Board, LoadError, shape::Shape},
};

fn snapshot(world: &World) -> Snapshot {
    Snapshot {
        runs: world.runs.values().cloned().collect(),
        task_instances: world.rows.values().cloned().collect(),
        pools: world.pools.clone(),
        ..Snapshot::default()
    }
}

#[test]
fn a_try_is_found_by_its_id_until_it_is_archived() {
    let mut a = task("a", &[]);
    a.retries = 1;
    let mut world = World::with_run(dag(vec![a, task("b", &["a"])]));
    let first = world.row("a").id;
    let (run, row) = world.board.task_instance_by_id(&first).unwrap();
    assert_eq!(
        (run.run.key.clone(), row.key.task_id.as_str()),
        (key("r"), "a")
    );
    world.pod_round("a", super::world::failed());
    assert!(world.board.task_instance_by_id(&first).is_none());
    assert!(
        world
            .board
            .task_instance_by_id(&world.row("a").id)
            .is_some()
    );
    assert_eq!(world.archived[0].id, first);
}

#[test]
fn runs_of_one_dag_share_it_and_its_shape() {
    let shared = Arc::new(dag(vec![task("a", &[])]));
    let mut world = World::new();
    world.round(vec![request(&shared, "r"), request(&shared, "s")]);
    let other = Arc::new(Dag::clone(&shared));
    world.round(vec![request(&other, "t")]);
    let read = |run: &Run| Ok::<_, Infallible>(Arc::clone(&world.dags[&run.key]));
    let loaded = Board::load(snapshot(&world), read).unwrap();
    for board in [&world.board, &loaded] {
        let [r, s, t] = ["r", "s", "t"].map(|run_id| &board.runs[&key(run_id)]);
        assert!(Arc::ptr_eq(&r.dag, &s.dag) && Arc::ptr_eq(&r.shape, &s.shape));
        assert!(!Arc::ptr_eq(&r.shape, &t.shape));
    }
}

#[test]
fn finished_runs_leave_with_their_tries() {
    let mut world = World::with_run(dag(vec![task("a", &[])]));
    let id = world.row("a").id;
    world.pod_round("a", super::world::succeeded());
    assert_eq!(world.board.runs.len(), 0);
    assert_eq!(world.board.find(&id), None);
}

#[test]
fn rows_that_do_not_fit_their_dag_are_refused_or_left_out() {
    let world = World::with_run(dag(vec![task("a", &[]), task("b", &[])]));
    let read = |_: &_| Ok::<_, Infallible>(Arc::clone(&world.dags[&key("r")]));

    let mut without = snapshot(&world);
    without.task_instances.pop();
    let refused = Board::load(without, read).unwrap_err();
    assert!(matches!(refused, LoadError::NoTaskInstance { .. }));
    assert_eq!(
        refused.to_string(),
        "run d/r has no row for task `b`; each task of its DAG must have one"
    );

    let mut with_more = snapshot(&world);
    let mut stranger = TaskInstance::clone(world.row("a"));
    stranger.key.task_id = "z".to_owned();
    let mut mapped = stranger.clone();
    mapped.key.map_index = 0;
    with_more.task_instances.extend([stranger, mapped]);
    assert_eq!(Board::load(with_more, read).unwrap(), world.board);

    let unreadable = Board::load(snapshot(&world), |_| Err(std::fmt::Error)).unwrap_err();
    assert!(matches!(unreadable, LoadError::Dag { run, .. } if run == key("r")));
}

#[test]
fn weights_follow_the_weight_rule() {
    // a -> b -> d, a -> c -> d
    let mut tasks = vec![
        task("a", &[]),
        task("b", &["a"]),
        task("c", &["a"]),
        task("d", &["b", "c"]),
    ];
    for (task, weight) in tasks.iter_mut().zip([1, 10, 100, 1000]) {
        task.priority_weight = weight;
    }
    for (rule, expected) in [
        (WeightRule::Downstream, [1111, 1010, 1100, 1000]),
        (WeightRule::Upstream, [1, 11, 101, 1111]),
        (WeightRule::Absolute, [1, 10, 100, 1000]),
    ] {
        tasks.iter_mut().for_each(|task| task.weight_rule = rule);
        let dag = dag(tasks.clone());
        assert_eq!(Shape::of(&dag).weights, expected, "{rule:?}");
    }
    tasks[0].weight_rule = WeightRule::Upstream;
    tasks[0].priority_weight = i64::MAX;
    let dag = dag(tasks);
    assert_eq!(Shape::of(&dag).weights[0], i64::from(i32::MAX));
}

/// A walk over all that follows each task would take minutes here.
#[test]
fn the_shape_of_a_chain_of_twenty_thousand_tasks_takes_no_time() {
    let name = |n: usize| format!("t{n:05}");
    let tasks = (0..20_000).map(|n| match n {
        0 => task(&name(0), &[]),
        n => task(&name(n), &[&name(n - 1)]),
    });
    let shape = Shape::of(&dag(tasks.collect()));
    assert_eq!(shape.weights[..3], [20_000, 19_999, 19_998]);
    assert_eq!(shape.weights[19_999], 1);
}
