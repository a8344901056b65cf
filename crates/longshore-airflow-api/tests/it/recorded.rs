//! What the unmodified task SDK 1.3.2 asked, and what Airflow's server answered: we answer the same, field by field.

use longshore_airflow::api::{TaskInstanceState as State, UtcDateTime, task_instance::Kwargs};
use serde_json::json;

use super::{memory::XComKey, *};

/// The recordings in an order in which XComs are written before they are read, the number of tries that the task may
/// have after its first, and the state in which it ends.
const RECORDED: [(&str, u32, State); 15] = [
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/success_push.json"
        ),
        1,
        State::Success,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/success_pull.json"
        ),
        1,
        State::Success,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/gen_mapped_length.json"
        ),
        1,
        State::Success,
    ),
    (
        include_str!("../../../longshore-airflow/testdata/execution-api/recorded/mapped_0.json"),
        1,
        State::Success,
    ),
    (
        include_str!("../../../longshore-airflow/testdata/execution-api/recorded/mapped_1.json"),
        1,
        State::Success,
    ),
    (
        include_str!("../../../longshore-airflow/testdata/execution-api/recorded/mapped_2.json"),
        1,
        State::Success,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/mapped_reduce.json"
        ),
        1,
        State::Success,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/bash_heartbeat.json"
        ),
        1,
        State::Success,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/branch_skip_downstream.json"
        ),
        1,
        State::Success,
    ),
    (
        include_str!("../../../longshore-airflow/testdata/execution-api/recorded/skip.json"),
        1,
        State::Skipped,
    ),
    (
        include_str!("../../../longshore-airflow/testdata/execution-api/recorded/fail_retry.json"),
        1,
        State::UpForRetry,
    ),
    (
        include_str!("../../../longshore-airflow/testdata/execution-api/recorded/fail_final.json"),
        0,
        State::Failed,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/sensor_reschedule.json"
        ),
        1,
        State::UpForReschedule,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/deferrable_defer.json"
        ),
        1,
        State::Deferred,
    ),
    (
        include_str!(
            "../../../longshore-airflow/testdata/execution-api/recorded/deferrable_resume.json"
        ),
        1,
        State::Success,
    ),
];

/// What the recorded run had before its tasks: a variable, a connection, and a task that a branch skips.
fn world() -> (World, Uuid) {
    let world = World::new();
    let connection = json!({
        "conn_id": "my_db", "conn_type": "postgres", "host": "db.example", "schema": "app",
        "login": "u", "password": "p", "port": 5432, "extra": null,
    });
    let mut rows = world.memory.rows();
    let hello = Some("hello".to_owned());
    rows.variables.insert("greeting".to_owned(), hello);
    let connection = serde_json::from_value(connection).unwrap();
    rows.connections.insert("my_db".to_owned(), connection);
    drop(rows);
    let right = world.memory.add(Row {
        state: None,
        ..Row::queued("right")
    });
    (world, right)
}

/// A recorded request, with a token of ours instead of the one that was blanked.
fn request(recorded: &Value, token: &str) -> Request<Body> {
    let query = recorded["query"].as_object().unwrap().iter();
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    for (name, texts) in query {
        for text in texts.as_array().unwrap() {
            pairs.append_pair(name, text.as_str().unwrap());
        }
    }
    let (path, query) = (recorded["path"].as_str().unwrap(), pairs.finish());
    let mut request = Request::builder()
        .method(recorded["method"].as_str().unwrap())
        .uri(format!("{path}?{query}"));
    for (name, text) in recorded["headers"].as_object().unwrap() {
        if name != "authorization" {
            request = request.header(name, text.as_str().unwrap());
        }
    }
    let body = Some(&recorded["body"]).filter(|it| !it.is_null());
    let body = body.map_or_else(Body::empty, |it| Body::from(it.to_string()));
    let authorization = format!("Bearer {token}");
    let request = request.header(header::AUTHORIZATION, authorization);
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

/// Replays one recording, and returns how many requests it has.
async fn replay(world: &World, recording: &Value, max_tries: u32) -> usize {
    let case = recording["case"].as_str().unwrap();
    let ti = &recording["workload"]["ti"];
    let id: Uuid = ti["id"].as_str().unwrap().parse().unwrap();
    let mut row = Row::queued(ti["task_id"].as_str().unwrap());
    row.map_index = ti["map_index"].as_i64().unwrap().try_into().unwrap();
    row.max_tries = max_tries;
    if case == "deferrable_resume" {
        let kwargs = json!({"event": "success"}).as_object().unwrap().clone();
        let start = UtcDateTime::parse("2026-11-21T00:30:05Z").unwrap();
        let method = "execute_complete".to_owned();
        row.next = Some((method, Kwargs::Plain(kwargs), start));
    }
    world.memory.rows().instances.insert(id, row);
    let mut token = world.token(id, TokenScope::Workload);
    let exchanges = recording["exchanges"].as_array().unwrap();
    for (n, exchange) in exchanges.iter().enumerate() {
        let (recorded, expected) = (&exchange["request"], &exchange["response"]);
        let at = format!("{case} {n} {}", recorded["path"]);
        let found = world.send(request(recorded, &token)).await;
        assert_eq!(json!(found.status), expected["status"], "{at}: {found:?}");
        assert!(is_same(&expected["body"], &found.json()), "{at}: {found:?}");
        let correlation = &recorded["headers"]["correlation-id"];
        assert_eq!(
            found.headers["correlation-id"],
            correlation.as_str().unwrap()
        );
        let is_refreshed = expected["headers"].get(HEADER_REFRESHED_TOKEN).is_some();
        assert_eq!(found.token().is_some(), is_refreshed, "{at}");
        if let Some(refreshed) = found.token() {
            let claims = world.tokens.verify(refreshed, world.clock.now()).unwrap();
            assert_eq!((claims.sub, claims.scope), (id, TokenScope::Execution));
            token = refreshed.to_owned();
        }
    }
    exchanges.len()
}

#[tokio::test]
async fn every_recorded_request_of_the_sdk_is_answered_as_it_was() {
    let (world, right) = world();
    let mut n_requests = 0;
    for (text, max_tries, end) in RECORDED {
        let recording: Value = serde_json::from_str(text).unwrap();
        n_requests += replay(&world, &recording, max_tries).await;
        let rows = world.memory.rows();
        let (_, update) = rows.updates.last().unwrap();
        assert_eq!(update.state(), end, "{}", recording["case"]);
    }
    assert_eq!(n_requests, 84);
    let rows = world.memory.rows();
    assert_eq!(rows.updates.len(), RECORDED.len());
    assert_eq!(rows.instances[&right].state, Some(State::Skipped));
    let at = |task_id: &str, key: &str| {
        let of: XComKey = [DAG, RUN, task_id, key].map(str::to_owned).into();
        let values = rows.xcoms[&of].iter();
        let values = values.map(|(index, (value, length))| (*index, value.as_str(), *length));
        values.collect::<Vec<_>>()
    };
    assert_eq!(at("gen", "return_value"), [(-1, "[1,2,3]", Some(3))]);
    let mapped = [(0, "10", None), (1, "20", None), (2, "30", None)];
    assert_eq!(at("mapped", "return_value"), mapped);
    assert_eq!(at("total", "return_value"), [(-1, "60", None)]);
    let beats = |task_id: &str| {
        let row = rows.instances.values().find(|row| row.task_id == task_id);
        row.unwrap().n_heartbeats
    };
    assert_eq!((beats("sh"), beats("push")), (3, 1));
}
