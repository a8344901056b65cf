//! Wide and long DAGs. With 1,000 tasks instead the time grows in proportion.

use std::{fmt::Write, time::Duration};

use longshore_store::RunState;

use crate::world::{RUN_ID, World, undisturbed};

/// Plays a DAG to its end, with all tasks at once that can be.
async fn plays(yaml: &str) -> usize {
    let mut world = World::new(yaml).await;
    world.config.limits.parallelism = 2_000;
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    let ended = tokio::time::timeout(Duration::from_secs(7_200), dags.ended(&run)).await;
    let (run, rows) = ended.unwrap().unwrap().unwrap();
    assert_eq!(run.state, RunState::Success);
    dags.released(&run.key).await;
    rows.len()
}

fn parallel(n_tasks: usize) -> String {
    let mut yaml = format!("dag_id: wide\nmax_active_tasks: {n_tasks}\ntasks:\n");
    for task in 0..n_tasks {
        writeln!(yaml, "  t{task}: {{command: [x], env: {{SCRIPT: run 1s}}}}").unwrap();
    }
    yaml
}

fn chain(n_tasks: usize) -> String {
    let mut yaml = "dag_id: long\ntasks:\n  t0: {command: [x]}\n".to_owned();
    for task in 1..n_tasks {
        let before = task - 1;
        writeln!(yaml, "  t{task}: {{command: [x], depends_on: t{before}}}").unwrap();
    }
    yaml
}

#[tokio::test(start_paused = true)]
async fn many_tasks_at_once_and_one_after_the_other_run_to_the_end() {
    assert_eq!(plays(&parallel(60)).await, 60);
    assert_eq!(plays(&chain(20)).await, 20);
}
