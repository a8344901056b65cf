//! Tasks with several instances.

use std::{convert::Infallible, sync::Arc};

use longshore_store::{
    Changes, Expansion, RunState, Snapshot, TaskInstance,
    TaskState::{self, Queued, Running, Scheduled, Success, UpForRetry, UpstreamFailed},
};
use uuid::Uuid;

use super::world::{World, dag, failed, key, pod_of, running, succeeded, task};
use crate::scheduler::{Board, Fact, LaunchChange, Selection};

/// `a` -> `m` -> `z`, where `m` has three instances, and `a` has succeeded.
fn mapped(change: impl FnOnce(&mut crate::model::Dag)) -> World {
    let mut dag = dag(vec![task("a", &[]), task("m", &["a"]), task("z", &["m"])]);
    change(&mut dag);
    let mut world = World::with_run(dag);
    world.map("m", 3);
    world.pod_round("a", succeeded());
    world
}

fn states(world: &World) -> [Option<TaskState>; 3] {
    [0, 1, 2].map(|map_index| world.instance("m", map_index).state)
}

fn pod(world: &World, map_index: i32, what: LaunchChange) -> Fact {
    pod_of(world.instance("m", map_index), what)
}

#[test]
fn what_follows_a_mapped_task_waits_for_all_of_its_instances() {
    let mut world = mapped(|_| {});
    assert_eq!(states(&world), [Some(Queued); 3]);
    let pods = [0, 1, 2].map(|map_index| world.instance("m", map_index).pod_name.clone());
    assert!(pods[0] != pods[1] && pods[1] != pods[2] && pods[0] != pods[2]);
    for map_index in [2, 0, 1] {
        assert_eq!(world.state("z"), None);
        let fact = pod(&world, map_index, succeeded());
        let changes = world.round(vec![fact]);
        assert_eq!(changes.task_instances[0].key.map_index, map_index);
    }
    assert_eq!(world.state("z"), Some(Queued));
    world.pod_round("z", succeeded());
    assert_eq!(world.run().state, RunState::Success);
}

#[test]
fn one_instance_that_fails_fails_what_follows_and_not_the_others() {
    let mut world = mapped(|dag| dag.tasks.get_mut("m").unwrap().retries = 1);
    let facts = vec![pod(&world, 0, running()), pod(&world, 1, failed())];
    world.round(facts);
    assert_eq!(
        states(&world),
        [Some(Running), Some(UpForRetry), Some(Queued)]
    );
    world.wait(300);
    world.round(Vec::new());
    assert_eq!(world.instance("m", 1).try_number, 2);
    assert_eq!(world.instance("m", 0).try_number, 1);
    let fact = pod(&world, 1, failed());
    world.round(vec![fact]);
    assert_eq!(world.state("z"), Some(UpstreamFailed));
    let facts = vec![pod(&world, 0, succeeded()), pod(&world, 2, succeeded())];
    world.round(facts);
    assert_eq!(world.run().state, RunState::Failed);
    assert_eq!(states(&world)[0], Some(Success));
}

#[test]
fn instances_get_slots_in_the_order_of_their_map_indexes() {
    let mut world = mapped(|dag| dag.tasks.get_mut("m").unwrap().max_active_tis_per_dag = Some(2));
    assert_eq!(
        states(&world),
        [Some(Queued), Some(Queued), Some(Scheduled)]
    );
    let fact = pod(&world, 0, succeeded());
    world.round(vec![fact]);
    assert_eq!(states(&world), [Some(Success), Some(Queued), Some(Queued)]);
}

#[test]
fn a_clear_of_a_mapped_task_takes_all_of_its_instances() {
    let mut world = mapped(|_| {});
    let facts = [0, 1, 2].map(|map_index| pod(&world, map_index, succeeded()));
    world.round(facts.into());
    let ids = [0, 1, 2].map(|map_index| world.instance("m", map_index).id);
    let selection = Selection {
        task_ids: ["m".to_owned()].into(),
        ..Selection::default()
    };
    let clear = world.clear("r", &selection);
    world.round(vec![clear]);
    assert_eq!(states(&world), [Some(Queued); 3]);
    for (map_index, id) in (0..).zip(ids) {
        let row = world.instance("m", map_index);
        assert_eq!(row.try_number, 2);
        assert_ne!(row.id, id);
    }
    assert_eq!(world.archived.len(), 3);
}

#[test]
fn a_cancelled_run_ends_all_instances() {
    let mut world = mapped(|_| {});
    world.round(vec![Fact::CancelRun(key("r"))]);
    assert_eq!(states(&world), [Some(TaskState::Skipped); 3]);
}

/// What the board does with the changes of an expansion is what a restart reads after their commit.
#[test]
fn an_expansion_gives_the_instance_its_first_index() {
    let world = World::with_run(dag(vec![task("a", &[]), task("m", &["a"])]));
    let before = world.row("m").clone();
    let row = |id, map_index, version| {
        let mut row = TaskInstance {
            id,
            version,
            max_tries: 7,
            ..before.clone()
        };
        row.key.map_index = map_index;
        row
    };
    let other = Uuid::from_u128(7);
    let changes = Changes {
        expansions: vec![Expansion {
            run: key("r"),
            task_id: "m".to_owned(),
            version: before.version,
        }],
        task_instances: vec![row(before.id, 0, before.version), row(other, 1, 0)],
        ..Changes::default()
    };
    let mut board = world.board.clone();
    board.apply(&changes, &[]);
    let snapshot = Snapshot {
        runs: world.runs.values().cloned().collect(),
        task_instances: vec![
            world.row("a").clone(),
            row(before.id, 0, before.version + 1),
            row(other, 1, 1),
        ],
        pools: world.pools.clone(),
        ..Snapshot::default()
    };
    let read = |_: &_| Ok::<_, Infallible>(Arc::clone(&world.dags[&key("r")]));
    assert_eq!(board, Board::load(snapshot, read).unwrap());
    let (_, found) = board.task_instance_by_id(&before.id).unwrap();
    assert_eq!((found.key.map_index, found.max_tries), (0, 7));
}
