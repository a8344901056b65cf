//! Workers and the Task Execution API: from the queued row to the end of the run, through crashes, and fenced.

use longshore_airflow::token::TokenScope;
use longshore_store::{RunState, TaskState, ToldStore as _};
use longshore_test::faults::{Fault, FaultPlan, Faults, Point};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    desk::{Answered, Desk, Open, begins},
    world::{RUN_ID, seconds, undisturbed},
};

const DAG: &str = "
dag_id: workers
tasks:
  a: {command: [x], retries: 1, retry_delay: 10}
  b: {command: [x], depends_on: a}
";

/// A run whose first task is queued.
async fn requested(desk: &Desk, open: &Open) -> longshore_store::RunKey {
    let run = open.dags.request_run(desk.new_run(RUN_ID)).await.unwrap();
    until(desk, &run, "a", TaskState::Queued).await;
    run
}

/// Waits until a task instance has this state.
async fn until(desk: &Desk, run: &longshore_store::RunKey, task_id: &str, state: TaskState) {
    while desk.row(run, task_id).await.state != Some(state) {
        seconds(1).await;
    }
}

fn ok(answered: &Answered, status: u16) {
    assert_eq!(answered.status, status, "{answered:?}");
}

/// The end of a try.
fn ended(state: &str) -> Value {
    json!({"state": state, "end_date": "2026-01-01T00:00:01Z"})
}

/// Runs a task as the SDK does: begins, beats, leaves a value, and succeeds.
async fn works(desk: &Desk, open: &Open, id: Uuid, value: Value) {
    let workload = desk.workload(id).await;
    let begun = open.try_does(&workload.token, id, "run", begins(7)).await;
    ok(&begun, 200);
    let token = begun.token().unwrap();
    let beat = json!({"hostname": "pod", "pid": 7});
    ok(&open.try_does(&token, id, "heartbeat", beat).await, 204);
    let rendered = json!({"command": "x"});
    ok(&open.try_does(&token, id, "rtif", rendered).await, 201);
    let path = format!(
        "/xcoms/{}/{}/{}/return_value",
        workload.ti.dag_id, workload.ti.run_id, workload.ti.task_id
    );
    ok(&open.ask(&token, "POST", &path, Some(value)).await, 201);
    ok(
        &open.try_does(&token, id, "state", ended("success")).await,
        204,
    );
}

#[tokio::test(start_paused = true)]
async fn a_queued_row_becomes_a_pod_whose_worker_takes_it_to_success() {
    let desk = Desk::new(DAG).await;
    let open = desk.open(&undisturbed()).await;
    let run = requested(&desk, &open).await;
    let first = desk.row(&run, "a").await;
    works(&desk, &open, first.id, json!({"n": 3})).await;
    let row = desk.row(&run, "a").await;
    assert_eq!((row.state, row.try_number), (Some(TaskState::Success), 1));
    assert!(row.start_date.is_some() && row.end_date.is_some());

    // The next task reads what the first one left.
    until(&desk, &run, "b", TaskState::Queued).await;
    let second = desk.row(&run, "b").await;
    let begun = desk.workload(second.id).await.token;
    let begun = open.try_does(&begun, second.id, "run", begins(8)).await;
    let token = begun.token().unwrap();
    let path = format!("/xcoms/workers/{RUN_ID}/a/return_value");
    let read = open.ask(&token, "GET", &path, None).await;
    assert_eq!(read.body, json!({"key": "return_value", "value": {"n": 3}}));
    let ended = ended("success");
    ok(&open.try_does(&token, second.id, "state", ended).await, 204);
    assert_eq!(desk.rows(&run).await.0.state, RunState::Success);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_given_again_also_by_the_next_process() {
    let mut desk = Desk::new(DAG).await;
    let open = desk.open(&undisturbed()).await;
    let run = requested(&desk, &open).await;
    let id = desk.row(&run, "a").await.id;
    let workload = desk.workload(id).await.token;
    drop(open);

    // Each process dies between its first commit and the answers to it; nobody hears them.
    for (what, body, state, status) in [
        ("run", begins(7), TaskState::Running, 200),
        ("state", ended("success"), TaskState::Success, 200),
    ] {
        let token = desk.token(id, TokenScope::Execution);
        let token = if what == "run" { &workload } else { &token };
        // The first commits may be about the pod alone.
        while desk.row(&run, "a").await.state != Some(state) {
            let kill = FaultPlan::at(Point::new("commit", 1), Fault::KillAfter);
            let faults = Faults::new(kill);
            let open = desk.open(&faults.start()).await;
            tokio::select! {
                answered = open.try_does(token, id, what, body.clone()) => panic!("{answered:?}"),
                () = faults.killed() => {}
            }
            drop(open);
            desk = desk.reopened().await;
        }
        let open = desk.open(&undisturbed()).await;
        let again = open.try_does(token, id, what, body).await;
        ok(&again, status);
        let row = desk.row(&run, "a").await;
        assert_eq!((row.state, row.try_number), (Some(state), 1), "{what}");
        if what == "run" {
            assert_eq!(again.body["max_tries"], 1);
            let other = open.try_does(token, id, "run", begins(8)).await;
            assert_eq!((other.status, other.reason()), (409, "invalid_state"));
            assert_eq!(other.body["detail"]["previous_state"], "running");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_an_earlier_try_changes_nothing() {
    let desk = Desk::new(DAG).await;
    let open = desk.open(&undisturbed()).await;
    let run = requested(&desk, &open).await;
    let first = desk.row(&run, "a").await.id;
    let workload = desk.workload(first).await.token;
    let begun = open.try_does(&workload, first, "run", begins(7)).await;
    let token = begun.token().unwrap();
    let retry = ended("up_for_retry");
    ok(
        &open.try_does(&token, first, "state", retry.clone()).await,
        204,
    );

    let beat = json!({"hostname": "pod", "pid": 7});
    for (what, body) in [
        ("state", retry),
        ("state", ended("success")),
        ("heartbeat", beat),
        ("rtif", json!({"a": 1})),
        ("skip-downstream", json!({"tasks": ["b"]})),
        ("run", begins(7)),
    ] {
        let late = open.try_does(&token, first, what, body).await;
        assert_eq!((late.status, late.reason()), (410, "not_found"), "{what}");
    }
    let path = format!("/xcoms/workers/{RUN_ID}/a/return_value");
    let late = open.ask(&token, "POST", &path, Some(json!(1))).await;
    ok(&late, 410);
    ok(
        &open
            .ask(&token, "PUT", "/variables/v", Some(json!({"val": "x"})))
            .await,
        410,
    );
    assert!(desk.store.variable("v").await.unwrap().is_none());

    // A token names one try: that of another one, or of none, opens nothing.
    let second = desk.row(&run, "a").await;
    assert_eq!(second.state, Some(TaskState::UpForRetry));
    let other = open.try_does(&token, second.id, "run", begins(7)).await;
    ok(&other, 403);
    let nobody = Uuid::from_u128(1);
    let unknown = desk.token(nobody, TokenScope::Execution);
    ok(
        &open.try_does(&unknown, nobody, "run", begins(7)).await,
        404,
    );
    // The next try has a pod and a token of its own.
    until(&desk, &run, "a", TaskState::Queued).await;
    works(&desk, &open, second.id, json!(2)).await;
    assert_eq!(desk.row(&run, "a").await.try_number, 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_falls_silent_is_stopped_and_the_next_try_begins() {
    let desk = Desk::new(DAG).await;
    let open = desk.open(&undisturbed()).await;
    let run = requested(&desk, &open).await;
    let first = desk.row(&run, "a").await.id;
    let workload = desk.workload(first).await.token;
    let begun = open.try_does(&workload, first, "run", begins(7)).await;
    let token = begun.token().unwrap();
    for _ in 0..3 {
        seconds(200).await;
        let beat = json!({"hostname": "pod", "pid": 7});
        ok(&open.try_does(&token, first, "heartbeat", beat).await, 204);
    }
    assert_eq!(desk.row(&run, "a").await.state, Some(TaskState::Running));
    until(&desk, &run, "a", TaskState::UpForRetry).await;
    let history = desk.history(&run).await;
    let failure = history[0].task_instance.failure.clone().unwrap();
    assert_eq!(failure.reason.as_deref(), Some("HeartbeatTimeout"));
    until(&desk, &run, "a", TaskState::Queued).await;
    let second = desk.row(&run, "a").await;
    desk.workload(second.id).await;
    // Its pod is gone: nothing lives of the first try.
    while desk.pods().await.len() > 1 {
        seconds(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_live_on_after_it_has_told_a_failure() {
    let desk = Desk::new(DAG).await;
    let open = desk.open(&undisturbed()).await;
    let run = requested(&desk, &open).await;
    let first = desk.row(&run, "a").await.id;
    let workload = desk.workload(first).await.token;
    let begun = open.try_does(&workload, first, "run", begins(7)).await;
    let token = begun.token().unwrap();
    ok(
        &open.try_does(&token, first, "state", ended("failed")).await,
        204,
    );
    // It uploads its log, and its pod still runs.
    seconds(300).await;
    assert_eq!(desk.pods().await.len(), 1);
    // But not for ever.
    seconds(400).await;
    while !desk.pods().await.is_empty() {
        seconds(1).await;
    }
}
