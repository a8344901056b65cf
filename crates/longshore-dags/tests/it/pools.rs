//! Pools change while runs go on.

use std::time::Duration;

use longshore_dags::PoolError;
use longshore_store::{Pool, RunState, TaskState};
use longshore_test::faults::{Fault, FaultPlan, Faults, Point};

use crate::world::{RUN_ID, World, seconds};

const IN_A_POOL: &str = "
dag_id: pooled
tasks:
  a: {command: [x], env: {SCRIPT: run 5s}, pool: db, pool_slots: 2}
  b: {command: [x], env: {SCRIPT: run 5s}, pool: db, pool_slots: 2}
";

fn db(slots: i64) -> Pool {
    Pool {
        name: "db".to_owned(),
        slots,
    }
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
    dags.set_pool(db(1)).await.unwrap();
    seconds(1).await;
    let why = dags.never_admitted(&row).unwrap();
    assert!(why.contains("has 1 slots"), "{why}");
    dags.set_pool(db(2)).await.unwrap();
    seconds(1).await;
    assert_eq!(dags.never_admitted(&row), None);
    let of_state = dags.census();
    assert_eq!(of_state.get(&Some(TaskState::Running)), Some(&1));
    dags.set_pool(db(-1)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), dags.ended(&run)).await;
    assert_eq!(ended.unwrap().unwrap().unwrap().0.state, RunState::Success);
    dags.delete_pool("db").await.unwrap();
    let missing = dags.delete_pool("db").await;
    assert!(matches!(missing, Err(PoolError::Unknown(_))), "{missing:?}");
    let default = dags.delete_pool("default_pool").await;
    assert!(matches!(default, Err(PoolError::Default)), "{default:?}");
    assert!(dags.pools().get("db").is_none());
}
