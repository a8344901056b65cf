//! Pools change while runs go on.

use std::{fs, time::Duration};

use longshore_dags::{Dags, PoolError};
use longshore_store::{Pool, RunState, RunStore as _, TaskState};
use longshore_test::faults::{Fault, FaultPlan, Faults, Point, Refusal};

use crate::world::{RUN_ID, World, seconds, undisturbed};

const IN_A_POOL: &str = "
dag_id: pooled
tasks:
  a: {command: [x], env: {SCRIPT: run 5s}, pool: db, pool_slots: 2}
  b: {command: [x], env: {SCRIPT: run 5s}, pool: db, pool_slots: 2}
";

/// The pools, as `name=slots`.
fn slots(dags: &Dags) -> String {
    let pools = dags.pools();
    let pools = pools
        .values()
        .map(|pool| format!("{}={}", pool.name, pool.slots));
    pools.collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_file_of_the_dag_folder_makes_pools_and_takes_them_back() {
    let world = World::following(IN_A_POOL).await;
    let file = world.folder.as_ref().unwrap().path().join("pools.yaml");
    // The first change is not recorded: it is tried again.
    let down = FaultPlan::at(
        Point::new("set pool", 2),
        Fault::Refuse(Refusal::Unavailable),
    );
    let dags = world.start(&Faults::new(down).start()).await;
    dags.set_pool("own", 1).await.unwrap();
    let run = world.request(&dags, RUN_ID).await;
    // Changes are found at once, or by the next look of the folder, after 5 minutes.
    let after = async |dags: &Dags, text: &str| {
        fs::write(&file, text).unwrap();
        seconds(400).await;
        slots(dags)
    };
    let named = "db: {slots: 2}\nown: {slots: 7}\ndefault_pool: {slots: 9}\n";
    let of_file = "db=2 default_pool=9 one=1 own=7";
    assert_eq!(after(&dags, named).await, of_file);
    assert_eq!(world.rows(&run).await.0.state, RunState::Success);
    for refused in [
        dags.set_pool("db", 4).await,
        dags.delete_pool("db").await.map(drop),
    ] {
        assert!(
            matches!(refused, Err(PoolError::InFile { .. })),
            "{refused:?}"
        );
    }

    assert_eq!(after(&dags, "db: {slots: many}\n").await, of_file);
    let of_files = dags.dags().into_iter().filter(|dag| dag.dag_id.is_none());
    let errors: Vec<_> = of_files.filter_map(|file| file.error).collect();
    assert!(errors[0].contains("`slots` of pool `db`"), "{errors:?}");

    drop(dags);
    let dags = world.start(&undisturbed()).await;
    seconds(1).await;
    assert_eq!(slots(&dags), of_file, "a broken file takes nothing back");
    assert_eq!(
        after(&dags, "db: {slots: 3}\n").await,
        "db=3 default_pool=128 one=1 own=1"
    );
    fs::remove_file(&file).unwrap();
    seconds(400).await;
    assert_eq!(slots(&dags), "default_pool=128 one=1 own=1");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_made_while_its_tasks_wait_lets_them_run() {
    let world = World::new(IN_A_POOL).await;
    // The second commit is in doubt: the scheduler reads all rows again, and keeps the pools that it knows.
    let lost = FaultPlan::at(Point::new("commit", 2), Fault::LoseAnswer);
    let dags = world.start(&Faults::new(lost).start()).await;
    let run = world.request(&dags, RUN_ID).await;
    seconds(10).await;
    let row = world.rows(&run).await.1.remove(0);
    assert_eq!(row.state, Some(TaskState::Scheduled));
    let why = dags.never_admitted(&row).unwrap();
    assert!(why.contains("`db` does not exist"), "{why}");
    dags.set_pool("db", 1).await.unwrap();
    seconds(1).await;
    let why = dags.never_admitted(&row).unwrap();
    assert!(why.contains("has 1 slots"), "{why}");
    dags.set_pool("db", 2).await.unwrap();
    seconds(1).await;
    assert_eq!(dags.never_admitted(&row), None);
    let of_state = dags.census();
    assert_eq!(of_state.get(&Some(TaskState::Running)), Some(&1));
    dags.set_pool("db", -1).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), dags.ended(&run)).await;
    assert_eq!(ended.unwrap().unwrap().unwrap().0.state, RunState::Success);
    dags.delete_pool("db").await.unwrap();
    let missing = dags.delete_pool("db").await;
    assert!(matches!(missing, Err(PoolError::Unknown(_))), "{missing:?}");
    let default = dags.delete_pool("default_pool").await;
    assert!(matches!(default, Err(PoolError::Default)), "{default:?}");
    assert!(dags.pools().get("db").is_none());
}

#[tokio::test(start_paused = true)]
async fn another_number_of_slots_leaves_the_rest_of_a_pool_as_it_was() {
    let world = World::new(IN_A_POOL).await;
    let deferring = Pool {
        include_deferred: true,
        ..Pool::new("db", 1)
    };
    world.store.set_pool(&deferring).await.unwrap();
    let dags = world.start(&undisturbed()).await;
    dags.set_pool("db", 4).await.unwrap();
    let expected = Pool {
        slots: 4,
        ..deferring
    };
    assert_eq!(dags.pools().get("db"), Some(&expected));
    let stored = world.store.load().await.unwrap().pools;
    assert!(stored.contains(&expected), "{stored:?}");
}
