//! Workers that say what becomes of their try, and wait for the answer.

use std::time::Duration;

use longshore_dags::{
    Dags, ReportError,
    scheduler::{TryEnd, WorkerAnswer, WorkerReport},
};
use longshore_store::{
    AirflowTask, Changes, RunKey, RunState, RunStore as _, TaskInstance, TaskState, WorkerProcess,
};
use longshore_test::faults::{Fault, FaultPlan, Faults, Point};
use uuid::Uuid;

use crate::{
    desk::{VERSION, serialized, tokens, version, worker_pods},
    world::{RUN_ID, World, seconds, undisturbed},
};

/// The process of the pod outlives the test: what ends the task is its worker.
const DAG: &str = "
dag_id: workers
tasks:
  a: {command: [x], env: {SCRIPT: run 10000s}, retries: 1}
";

/// A world whose one task is queued and has a worker, which nothing of the scheduler makes yet.
async fn queued() -> (World, RunKey) {
    let mut world = World::new(DAG).await;
    world.config.workers = Some(worker_pods(&tokens()));
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    seconds(10).await;
    drop(dags);
    let row = TaskInstance {
        state: Some(TaskState::Queued),
        start_date: None,
        airflow: Some(Box::new(AirflowTask::new(VERSION))),
        ..current(&world, &run).await
    };
    let changes = Changes {
        documents: vec![serialized(&world.dag)],
        dag_versions: vec![version(&world.dag)],
        task_instances: vec![row],
        ..Changes::default()
    };
    world.store.commit(&changes).await.unwrap();
    (world, run)
}

async fn current(world: &World, run: &RunKey) -> TaskInstance {
    world.rows(run).await.1.remove(0)
}

fn started(world: &World) -> WorkerReport {
    WorkerReport::Started {
        process: WorkerProcess {
            hostname: "pod".to_owned(),
            unixname: "airflow".to_owned(),
            pid: 7,
        },
        started_at: world.clock.now(),
    }
}

async fn report(dags: &Dags, id: Uuid, report: WorkerReport) -> Result<WorkerAnswer, ReportError> {
    let answered = tokio::time::timeout(Duration::from_secs(60), dags.report(id, report));
    answered.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_answered_when_what_it_said_is_stored() {
    let (world, run) = queued().await;
    // The answer to the commit is lost: the rows are read again, and the worker is answered all the same.
    let lost = FaultPlan::at(Point::new("commit", 1), Fault::LoseAnswer);
    let dags = world.start(&Faults::new(lost).start()).await;
    let first = current(&world, &run).await.id;
    let answer = report(&dags, first, started(&world)).await.unwrap();
    let WorkerAnswer::Started(known) = answer else {
        panic!("{answer:?}");
    };
    let row = current(&world, &run).await;
    assert_eq!((row.state, row.id), (Some(TaskState::Running), first));
    assert_eq!(known.task_instance.airflow, row.airflow);
    assert_eq!(known.run.key, run);

    let retry = WorkerReport::Retry {
        ended_at: world.clock.now(),
        delay: Some(jiff::SignedDuration::from_secs(5)),
        reason: None,
    };
    let answer = report(&dags, first, retry.clone()).await.unwrap();
    assert_eq!(answer, WorkerAnswer::Changed);
    let second = current(&world, &run).await;
    assert_eq!(second.state, Some(TaskState::UpForRetry));
    let earlier = report(&dags, first, retry).await;
    assert!(
        matches!(earlier, Err(ReportError::Earlier(id)) if id == first),
        "{earlier:?}"
    );
    let unknown = report(&dags, Uuid::nil(), started(&world)).await;
    assert!(
        matches!(unknown, Err(ReportError::Unknown(_))),
        "{unknown:?}"
    );

    seconds(10).await;
    report(&dags, second.id, started(&world)).await.unwrap();
    let end = WorkerReport::Ended {
        end: TryEnd::Success,
        ended_at: world.clock.now(),
    };
    let answer = report(&dags, second.id, end.clone()).await.unwrap();
    assert_eq!(answer, WorkerAnswer::Changed);
    assert_eq!(world.rows(&run).await.0.state, RunState::Success);
    // The run is over, and not on the board any more.
    let answer = report(&dags, second.id, end).await.unwrap();
    assert_eq!(answer, WorkerAnswer::Already);
    let answer = report(&dags, second.id, started(&world)).await.unwrap();
    assert_eq!(answer, WorkerAnswer::Refused(Some(TaskState::Success)));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_decide_takes_no_report() {
    let (world, run) = queued().await;
    let dags = world.start(&undisturbed()).await;
    let id = current(&world, &run).await.id;
    world.config.gate.close();
    let refused = report(&dags, id, started(&world)).await;
    assert!(
        matches!(refused, Err(ReportError::NotLeader(_))),
        "{refused:?}"
    );
    assert_eq!(current(&world, &run).await.state, Some(TaskState::Queued));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_is_told_when_the_scheduler_stops() {
    let (world, run) = queued().await;
    // Nothing is ever stored.
    let down = FaultPlan::at(
        Point::new("commit", 1),
        Fault::Delay(Duration::from_secs(1_000)),
    );
    let dags = world.start(&Faults::new(down).start()).await;
    let id = current(&world, &run).await.id;
    let (ended, _) = tokio::join!(report(&dags, id, started(&world)), async {
        seconds(1).await;
        dags.shutdown(Duration::from_secs(1)).await
    });
    assert!(matches!(ended, Err(ReportError::Ended)), "{ended:?}");
}
