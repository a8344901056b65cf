//! Pods of failed tasks are kept for a time and a number; then they go, and the rows say why they failed.

use std::time::Duration;

use crate::world::{RUN_ID, World, left, seconds, undisturbed};

const FAILS: &str = "
dag_id: one
tasks:
  a: {command: [x], env: {SCRIPT: run 5s exit 3}}
";

#[tokio::test(start_paused = true)]
async fn the_pod_of_a_failed_task_goes_after_its_time_and_the_row_says_why_it_failed() {
    let mut world = World::new(FAILS).await;
    world.config.disposal.keep_failed_for = Duration::from_secs(3_600);
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    dags.ended(&run).await.unwrap();
    dags.released(&run).await;
    seconds(3_500).await;
    assert_eq!(left(&world, "pods").await, ["a:Failed"]);
    // The next process counts from the end of the try, too.
    drop(dags);
    let dags = world.start(&undisturbed()).await;
    seconds(50).await;
    assert_eq!(left(&world, "pods").await, ["a:Failed"]);
    seconds(100).await;
    assert!(left(&world, "pods").await.is_empty());
    let (_, rows) = world.rows(&run).await;
    let failure = rows[0].failure.as_ref().unwrap();
    assert_eq!(failure.exit_code, Some(3), "{failure:?}");
    assert_eq!(world.logs.stored().len(), 1);
    drop(dags);
}

#[tokio::test(start_paused = true)]
async fn of_the_pods_of_failed_tasks_the_newest_are_kept() {
    let mut world = World::new(FAILS).await;
    world.config.disposal.keep_failed = 2;
    let dags = world.start(&undisturbed()).await;
    for n in 1..=4 {
        let run = world.request(&dags, &format!("r{n}")).await;
        dags.ended(&run).await.unwrap();
        seconds(10).await;
        let kept = left(&world, "pods").await;
        assert_eq!(kept, vec!["a:Failed"; n.min(2)], "after run {n}");
    }
    assert_eq!(world.logs.stored().len(), 4);
}
