//! What the unmodified task SDK 1.3.2 asked, and what Airflow's server answered: the rows of a database give the same
//! answers, field by field.

use axum::body::Body;
use http::{Request, header};
use longshore_airflow::token::TokenScope;
use longshore_dags::secrets::Secrets;
use longshore_store::{
    AirflowTask, Catalog as _, Changes, Deferral, Run, RunDetails, RunKey, RunState, RunStore as _,
    RunType, Shared, StoredConnection, StoredDocument, StoredVariable, TaskInstance, TaskState,
    ToldStore as _, XComKey,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    desk::{Desk, Open, VERSION},
    world::{dag, undisturbed},
};

macro_rules! recorded {
    ($case:literal) => {
        include_str!(concat!(
            "../../../longshore-airflow/testdata/execution-api/recorded/",
            $case,
            ".json"
        ))
    };
}

/// In an order in which XComs are written before they are read, and the state in which each one ends.
const RECORDED: [(&str, TaskState); 14] = [
    (recorded!("success_push"), TaskState::Success),
    (recorded!("success_pull"), TaskState::Success),
    (recorded!("gen_mapped_length"), TaskState::Success),
    (recorded!("mapped_0"), TaskState::Success),
    (recorded!("mapped_1"), TaskState::Success),
    (recorded!("mapped_2"), TaskState::Success),
    (recorded!("mapped_reduce"), TaskState::Success),
    (recorded!("bash_heartbeat"), TaskState::Success),
    (recorded!("branch_skip_downstream"), TaskState::Success),
    (recorded!("skip"), TaskState::Skipped),
    (recorded!("fail_retry"), TaskState::UpForRetry),
    (recorded!("fail_final"), TaskState::Failed),
    (recorded!("sensor_reschedule"), TaskState::UpForReschedule),
    (recorded!("deferrable_defer"), TaskState::Deferred),
];

/// The tasks of the recordings: nothing waits for anything, but for what the branch skips, and for a task that keeps the run
/// from its end.
const DAG: &str = "
dag_id: vec
tasks:
  push: {command: [x]}
  pull: {command: [x]}
  gen: {command: [x]}
  mapped: {command: [x]}
  total: {command: [x]}
  sh: {command: [x]}
  br: {command: [x]}
  right: {command: [x], depends_on: br}
  skipme: {command: [x]}
  fail: {command: [x], retries: 1}
  fail_final: {command: [x]}
  resch: {command: [x]}
  deferred: {command: [x]}
";

fn run_key() -> RunKey {
    RunKey {
        dag_id: "vec".to_owned(),
        run_id: "manual__2026-11-21T00:30:00+00:00".to_owned(),
    }
}

fn recording(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn run() -> Run {
    let date = "2026-11-21T00:30:00Z".parse().unwrap();
    Run {
        key: run_key(),
        run_type: RunType::Manual,
        state: RunState::Running,
        logical_date: Some(date),
        queued_at: date,
        start_date: Some("2026-11-21T00:30:01Z".parse().unwrap()),
        end_date: None,
        conf: json!({}),
        dag_hash: StoredDocument::of(&dag(DAG).to_json()).hash().clone(),
        is_prepared: true,
        reason: None,
        details: RunDetails {
            data_interval: Some((date, date)),
            triggered_by: Some("admin".to_owned()),
            dag_version: Some(VERSION),
            ..RunDetails::default()
        },
        version: 0,
    }
}

fn id_of(recording: &Value) -> Uuid {
    let id = recording["workload"]["ti"]["id"].as_str().unwrap();
    id.parse().unwrap()
}

/// The try of a recording, which is queued.
fn queued(recording: &Value) -> TaskInstance {
    let ti = &recording["workload"]["ti"];
    let mut key = run_key().task(ti["task_id"].as_str().unwrap());
    key.map_index = i32::try_from(ti["map_index"].as_i64().unwrap()).unwrap();
    let is_last = recording["case"] == "fail_final";
    TaskInstance {
        state: Some(TaskState::Queued),
        try_number: 1,
        max_tries: u32::from(!is_last),
        launch: 1,
        airflow: Some(Box::new(AirflowTask::new(VERSION))),
        ..TaskInstance::new(id_of(recording), key)
    }
}

/// A database with the run of the recordings, in which these tries are queued, and the other tasks have not begun.
async fn desk(tries: Vec<TaskInstance>, deferrals: Vec<Deferral>) -> (Desk, Open) {
    let desk = Desk::new(DAG).await;
    let has_try = |id: &str| tries.iter().any(|row| row.key.task_id == id);
    let waits = dag(DAG);
    let waits = waits.tasks.keys().filter(|id| !has_try(id));
    // A state that the scheduler does not look at.
    let waits = waits.zip(1..).map(|(id, n)| TaskInstance {
        state: (id != "right").then_some(TaskState::Deferred),
        airflow: Some(Box::new(AirflowTask::new(VERSION))),
        ..TaskInstance::new(Uuid::from_u128(n), run_key().task(id))
    });
    let task_instances = waits.chain(tries.iter().cloned()).collect();
    let changes = Changes {
        runs: vec![run()],
        task_instances,
        deferrals,
        ..Changes::default()
    };
    desk.store.commit(&changes).await.unwrap();
    keep_values(&desk).await;
    let open = desk.open(&undisturbed()).await;
    (desk, open)
}

/// What the recorded run had before its tasks: a variable and a connection.
async fn keep_values(desk: &Desk) {
    let seal = |text: &str| {
        Secrets::new(None)
            .seal(text, desk.around.clock.now())
            .unwrap()
    };
    let variable = Shared::Variable(StoredVariable {
        key: "greeting".to_owned(),
        value: seal("hello"),
        description: None,
    });
    let text = |text: &str| Some(text.to_owned());
    let connection = Shared::Connection(StoredConnection {
        conn_id: "my_db".to_owned(),
        conn_type: "postgres".to_owned(),
        description: None,
        host: text("db.example"),
        schema: text("app"),
        login: text("u"),
        port: Some(5432),
        password: Some(seal("p")),
        extra: None,
    });
    desk.store.keep(variable).await.unwrap();
    desk.store.keep(connection).await.unwrap();
}

/// A recorded request, with a token of ours instead of the one that was blanked.
fn request(recorded: &Value, token: &str) -> Request<Body> {
    let query = recorded["query"].as_object().unwrap().iter();
    let pairs = query.flat_map(|(name, texts)| {
        let texts = texts.as_array().unwrap().iter();
        texts.map(move |text| format!("{name}={}", text.as_str().unwrap()))
    });
    let query: Vec<String> = pairs.collect();
    let path = recorded["path"].as_str().unwrap();
    let mut request = Request::builder()
        .method(recorded["method"].as_str().unwrap())
        .uri(format!("{path}?{}", query.join("&")));
    for (name, text) in recorded["headers"].as_object().unwrap() {
        if name != "authorization" {
            request = request.header(name, text.as_str().unwrap());
        }
    }
    let body = Some(&recorded["body"]).filter(|it| !it.is_null());
    let body = body.map_or_else(Body::empty, |it| Body::from(it.to_string()));
    let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    request.body(body).unwrap()
}

/// Messages were cut to `...` in some recordings.
fn is_same(recorded: &Value, found: &Value) -> bool {
    match (recorded, found) {
        (Value::Object(recorded), Value::Object(found)) => {
            recorded.len() == found.len()
                && recorded
                    .iter()
                    .all(|(name, it)| found.get(name).is_some_and(|found| is_same(it, found)))
        }
        _ => recorded == found || (recorded == "..." && found.is_string()),
    }
}

/// Replays one recording, and returns how many requests it has. The first token is that of the pod.
async fn replay(desk: &Desk, open: &Open, recording: &Value) -> usize {
    let (case, id) = (recording["case"].as_str().unwrap(), id_of(recording));
    let mut token = desk.workload(id).await.token;
    let exchanges = recording["exchanges"].as_array().unwrap();
    for (n, exchange) in exchanges.iter().enumerate() {
        let (recorded, expected) = (&exchange["request"], &exchange["response"]);
        let at = format!("{case} {n} {}", recorded["path"]);
        let found = open.send(request(recorded, &token)).await;
        assert_eq!(json!(found.status), expected["status"], "{at}: {found:?}");
        assert!(is_same(&expected["body"], &found.body), "{at}: {found:?}");
        let is_refreshed = expected["headers"].get("Refreshed-API-Token").is_some();
        assert_eq!(found.token().is_some(), is_refreshed, "{at}");
        if let Some(refreshed) = found.token() {
            let claims = desk.tokens.verify(&refreshed, desk.around.clock.now());
            let claims = claims.unwrap();
            assert_eq!((claims.sub, claims.scope), (id, TokenScope::Execution));
            token = refreshed;
        }
    }
    exchanges.len()
}

/// The state of the try, or of the one that followed it.
async fn state(desk: &Desk, recording: &Value) -> Option<TaskState> {
    let key = queued(recording).key;
    let rows = desk.rows(&run_key()).await.1;
    rows.into_iter().find(|row| row.key == key).unwrap().state
}

#[tokio::test(start_paused = true)]
async fn every_recorded_request_is_answered_from_rows_as_it_was() {
    let recordings = RECORDED.map(|(text, end)| (recording(text), end));
    let tries = recordings.iter().map(|(it, _)| queued(it)).collect();
    let (desk, open) = desk(tries, Vec::new()).await;
    let mut n_requests = 0;
    for (recording, end) in &recordings {
        n_requests += replay(&desk, &open, recording).await;
        let found = state(&desk, recording).await;
        assert_eq!(found, Some(*end), "{}", recording["case"]);
    }
    assert_eq!(n_requests, 80);
    let right = desk.row(&run_key(), "right").await;
    assert_eq!(right.state, Some(TaskState::Skipped));
    let xcoms = async |task_id: &str| {
        let key = XComKey {
            run: run_key(),
            task_id: task_id.to_owned(),
            key: "return_value".to_owned(),
        };
        let found = desk.store.xcoms(&key, 0, 10).await.unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(xcoms("gen").await, ["[1,2,3]"]);
    assert_eq!(xcoms("mapped").await, ["10", "20", "30"]);
    assert_eq!(xcoms("total").await, ["60"]);
    let lengths = desk.store.mapped_lengths(&run_key()).await.unwrap();
    assert_eq!((lengths.len(), lengths[0].length), (1, 3));
    // The failed try is in the history, the next one waits.
    let history = desk.history(&run_key()).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].task_instance.id, id_of(&recordings[10].0));
    let looks = id_of(&recordings[12].0);
    assert_eq!(desk.store.reschedules(looks).await.unwrap().len(), 1);
    let sh = id_of(&recordings[7].0);
    let rendered = desk.store.rendered(sh).await.unwrap().fields.unwrap();
    let rendered: Value = serde_json::from_str(&rendered).unwrap();
    assert_eq!(rendered["bash_command"], "echo 3 2026-11-21; sleep 12");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_goes_on_is_answered_as_it_was() {
    let recording = recording(recorded!("deferrable_resume"));
    let mut row = queued(&recording);
    row.start_date = Some("2026-11-21T00:30:05Z".parse().unwrap());
    row.airflow.as_deref_mut().unwrap().next_method = Some("execute_complete".to_owned());
    let deferral = Deferral {
        task_instance_id: row.id,
        trigger: None,
        next_kwargs: json!({"event": "success"}),
    };
    let (desk, open) = desk(vec![row], vec![deferral]).await;
    assert_eq!(replay(&desk, &open, &recording).await, 4);
    assert_eq!(state(&desk, &recording).await, Some(TaskState::Success));
}
