//! Any sequence of commits by two writers, with views as stale as they like, does what a simple model does.

use std::collections::{BTreeMap, BTreeSet};

use longshore_store::{
    ArchivedTry, Changes, Run, RunKey, RunState, Store, StoreError, TaskInstance, TaskKey,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::{
    samples::{run, run_key, runs, stored, stored_run, task},
    stores::{AnyStore, Factory as _, Postgres},
};

/// What the store should hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct World {
    runs: BTreeMap<RunKey, Run>,
    tasks: BTreeMap<TaskKey, TaskInstance>,
    archived: BTreeMap<Uuid, TaskInstance>,
}

/// The commit conflicts.
#[derive(Debug, PartialEq)]
struct Conflict;

impl World {
    fn commit(&mut self, changes: &Changes) -> Result<(), Conflict> {
        let mut next = self.clone();
        let (mut runs, mut tasks) = (BTreeSet::new(), BTreeSet::new());
        for run in &changes.runs {
            let version = self.runs.get(&run.key).map_or(0, |run| run.version);
            check(version == run.version && runs.insert(&run.key))?;
            next.runs.insert(run.key.clone(), stored_run(run));
        }
        for task in &changes.task_instances {
            let version = self.tasks.get(&task.key).map_or(0, |task| task.version);
            check(version == task.version && tasks.insert(&task.key))?;
            check(next.runs.contains_key(&task.key.run))?;
            next.tasks.insert(task.key.clone(), stored(task));
        }
        for ArchivedTry { task_instance } in &changes.archived {
            check(next.runs.contains_key(&task_instance.key.run))?;
            let old = next
                .archived
                .insert(task_instance.id, task_instance.clone());
            check(old.is_none())?;
        }
        let is_archived = |task: &TaskInstance| next.archived.contains_key(&task.id);
        check(!next.tasks.values().any(is_archived))?;
        *self = next;
        Ok(())
    }
}

fn check(holds: bool) -> Result<(), Conflict> {
    if holds { Ok(()) } else { Err(Conflict) }
}

/// One row of a commit, made from what its writer last saw.
#[derive(Clone, Debug)]
enum Part {
    Run {
        run: u8,
        is_prepared: bool,
    },
    /// `id` out of a few that belong to this task instance; `archives` what the writer saw of it.
    Task {
        run: u8,
        task: u8,
        id: u8,
        archives: bool,
    },
}

#[derive(Clone, Debug)]
enum Op {
    /// The writer sees all that is there.
    Look {
        writer: usize,
    },
    Commit {
        writer: usize,
        parts: Vec<Part>,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let part = prop_oneof![
        1 => (0..2_u8, any::<bool>()).prop_map(|(run, is_prepared)| Part::Run { run, is_prepared }),
        2 => (0..2_u8, 0..2_u8, 0..4_u8, any::<bool>())
            .prop_map(|(run, task, id, archives)| Part::Task { run, task, id, archives }),
    ];
    let commit = (0..2_usize, prop::collection::vec(part, 1..4))
        .prop_map(|(writer, parts)| Op::Commit { writer, parts });
    let look = (0..2_usize).prop_map(|writer| Op::Look { writer });
    prop::collection::vec(prop_oneof![1 => look, 2 => commit], 1..30)
}

fn changes_of(parts: &[Part], view: &World) -> Changes {
    let mut changes = runs([]);
    for part in parts {
        match *part {
            Part::Run {
                run: n,
                is_prepared,
            } => {
                let fresh = run(&n.to_string());
                let seen = view.runs.get(&fresh.key).cloned().unwrap_or(fresh);
                changes.runs.push(Run {
                    is_prepared,
                    ..seen
                });
            }
            Part::Task {
                run,
                task: n,
                id,
                archives,
            } => {
                let fresh = task(&run.to_string(), &n.to_string());
                let seen = view.tasks.get(&fresh.key).cloned().unwrap_or(fresh);
                let id = Uuid::from_bytes([run, n, id, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
                if archives {
                    let task_instance = seen.clone();
                    changes.archived.push(ArchivedTry { task_instance });
                }
                changes.task_instances.push(TaskInstance { id, ..seen });
            }
        }
    }
    changes
}

async fn read(store: &dyn AnyStore) -> World {
    let snapshot = store.load().await.unwrap();
    let mut world = World::default();
    for run in snapshot.runs {
        assert_eq!(run.state, RunState::Running);
        world.runs.insert(run.key.clone(), run);
    }
    for task in snapshot.task_instances {
        world.tasks.insert(task.key.clone(), task);
    }
    for run_id in ["0", "1"] {
        for ArchivedTry { task_instance } in store.history(&run_key(run_id)).await.unwrap() {
            world.archived.insert(task_instance.id, task_instance);
        }
    }
    world
}

async fn replay(store: &dyn AnyStore, ops: &[Op]) {
    let mut world = World::default();
    let mut views = [World::default(), World::default()];
    for op in ops {
        match op {
            Op::Look { writer } => views[*writer] = read(store).await,
            Op::Commit { writer, parts } => {
                let changes = changes_of(parts, &views[*writer]);
                let expected = world.commit(&changes);
                let answer = match store.commit(&changes).await {
                    Ok(()) => Ok(()),
                    Err(StoreError::Conflict { .. }) => Err(Conflict),
                    Err(error @ (StoreError::Unavailable { .. } | StoreError::Corrupt { .. })) => {
                        panic!("{error}")
                    }
                };
                assert_eq!(answer, expected, "{changes:#?}");
            }
        }
        assert_eq!(read(store).await, world, "{op:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_writers_with_stale_views_do_what_the_model_does(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = Store::in_memory().await.unwrap();
            replay(&store, &ops).await;
        });
    }
}

proptest! {
    // Each case takes a database of its own.
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_writers_with_stale_views_do_what_the_model_does_on_a_server(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            if let Some((store, _)) = Postgres.make().await {
                replay(&*store, &ops).await;
            }
        });
    }
}
