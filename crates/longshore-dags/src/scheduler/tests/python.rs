//! Tasks of DAGs from Python.

use std::sync::Arc;

use longshore_airflow::worker::ExecutorConfig;
use longshore_store::{RunDetails, RunState, TaskState};
use uuid::Uuid;

use super::world::{World, dag, key, task};
use crate::{
    model::{Dag, PythonDag, PythonTask, Task},
    scheduler::{Fact, NewRun},
};

fn python(id: &str, upstream: &[&str], is_empty: bool) -> Task {
    Task {
        python: Some(Box::new(PythonTask {
            operator: "Operator".to_owned(),
            queue: "default".to_owned(),
            is_empty,
            executor_config: Ok(ExecutorConfig::default()),
        })),
        ..task(id, upstream)
    }
}

fn run_of(tasks: Vec<Task>, details: &RunDetails) -> World {
    let dag = Arc::new(Dag {
        python: Some(PythonDag::default()),
        ..dag(tasks)
    });
    let mut world = World::new();
    world.round(vec![Fact::RunRequested(NewRun {
        details: details.clone(),
        ..NewRun::manual(dag, "r".to_owned())
    })]);
    world
}

fn details() -> RunDetails {
    RunDetails {
        dag_version: Some(Uuid::from_u128(7)),
        bundle_version: Some("4f2a".to_owned()),
        ..RunDetails::default()
    }
}

#[test]
pub(super) fn a_task_that_does_nothing_succeeds_without_a_worker_and_counts_a_try() {
    let tasks = vec![
        python("begin", &[], true),
        python("work", &["begin"], false),
        python("end", &["work"], true),
    ];
    let world = run_of(tasks, &details());
    let begin = world.row("begin");
    assert_eq!(begin.state, Some(TaskState::Success));
    assert_eq!((begin.try_number, begin.launch), (1, 0));
    assert!(begin.start_date.is_some() && begin.start_date == begin.end_date);
    // What comes after it starts in the same round, and waits for a worker.
    assert_eq!(world.state("work"), Some(TaskState::Queued));
    assert_eq!(world.state("end"), None);

    let world = run_of(vec![python("alone", &[], true)], &details());
    assert_eq!(world.run().state, RunState::Success);
}

#[test]
fn a_run_and_its_task_instances_say_which_version_of_the_dag_they_are_of() {
    let world = run_of(vec![python("work", &[], false)], &details());
    let active = &world.board.runs[&key("r")];
    assert_eq!(active.run.details, details());
    let of_version = world.row("work").airflow.as_deref().unwrap().dag_version;
    assert_eq!(of_version, Uuid::from_u128(7));
    // A container DAG has neither.
    let world = run_of(vec![task("work", &[])], &RunDetails::default());
    assert_eq!(world.row("work").airflow, None);
}
