//! An id is that of one try: what an earlier one sends changes nothing.

use longshore_airflow::api::TaskInstanceState as State;
use serde_json::json;

use super::*;

fn success() -> String {
    json!({"state": "success", "end_date": "2026-11-21T00:30:00Z"}).to_string()
}

/// Requests of a task that change something, or read what tasks have written; `id` is that of its task instance.
fn writes(id: Uuid) -> Vec<(&'static str, String, String)> {
    let of = |rest: &str| format!("/task-instances/{id}/{rest}");
    let worker = json!({"hostname": "vm", "pid": 7}).to_string();
    let start = json!({
        "state": "running", "hostname": "vm", "unixname": "root", "pid": 7,
        "start_date": "2026-11-21T00:30:00Z",
    });
    let value = json!({"val": "x"}).to_string();
    vec![
        ("PATCH", of("run"), start.to_string()),
        ("PATCH", of("state"), success()),
        ("PUT", of("heartbeat"), worker),
        ("PUT", of("rtif"), "{}".to_owned()),
        ("PATCH", of("rendered-map-index"), "\"x\"".to_owned()),
        (
            "PATCH",
            of("skip-downstream"),
            "{\"tasks\":[\"u\"]}".to_owned(),
        ),
        ("POST", xcom("t", "k"), "1".to_owned()),
        ("DELETE", xcom("t", "k"), String::new()),
        ("GET", xcom("t", "k"), String::new()),
        ("PUT", "/variables/a".to_owned(), value),
        ("DELETE", "/variables/a".to_owned(), String::new()),
        ("POST", format!("/dag-runs/{DAG}/new"), "{}".to_owned()),
        ("POST", format!("/dag-runs/{DAG}/new/clear"), String::new()),
        (
            "PUT",
            format!("/store/ti/{id}/k"),
            "{\"value\":1}".to_owned(),
        ),
    ]
}

#[tokio::test]
async fn an_earlier_try_changes_nothing() {
    let world = World::new();
    let (old, token) = world.running("t");
    let next = world.memory.archive(old);
    for (method, path, body) in writes(old) {
        let refused = world.ask(&token, method, &path, body).await;
        assert_eq!(refused.status, 410, "{method} {path}: {refused:?}");
        assert_eq!(refused.reason(), "not_found");
    }
    // Its token is not that of the next try.
    for (method, path, body) in writes(next) {
        let is_own = path.contains(&next.to_string());
        let refused = world.ask(&token, method, &path, body).await;
        assert_eq!(
            refused.status,
            if is_own { 403 } else { 410 },
            "{method} {path}"
        );
    }
    let rows = world.memory.rows();
    assert!(rows.xcoms.is_empty() && rows.variables.is_empty() && rows.store.is_empty());
    assert!(rows.updates.is_empty() && rows.rendered.is_empty() && rows.triggered.is_empty());
    assert_eq!(rows.instances[&next].state, Some(State::Queued));
}

#[tokio::test]
async fn an_earlier_try_may_still_upload_its_log() {
    let world = World::new();
    let (old, token) = world.running("t");
    world.memory.archive(old);
    let connection = json!({
        "conn_id": "logs", "conn_type": "aws", "host": null, "schema": null, "login": null,
        "password": null, "port": null, "extra": null,
    });
    let connection = serde_json::from_value(connection).unwrap();
    let logs = "logs".to_owned();
    world.memory.rows().connections.insert(logs, connection);
    let found = world.ask(&token, "GET", "/connections/logs", "").await;
    assert_eq!(
        (found.status, &found.json()["conn_type"]),
        (200, &json!("aws"))
    );
    assert_eq!(
        world.ask(&token, "GET", "/variables/a", "").await.status,
        404
    );
    assert_eq!(
        world.ask(&token, "GET", "/variables/keys", "").await.status,
        410
    );
}

#[tokio::test]
async fn the_token_of_a_deleted_run_is_worth_nothing() {
    let world = World::new();
    let gone = Uuid::from_u128(1);
    let token = world.token(gone, TokenScope::Execution);
    for (method, path, body) in writes(gone) {
        let is_own = path.contains(&gone.to_string());
        let refused = world.ask(&token, method, &path, body).await;
        assert_eq!(
            refused.status,
            if is_own { 404 } else { 403 },
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn the_same_state_again_is_no_error_and_another_one_is() {
    let world = World::new();
    let (id, token) = world.running("t");
    let path = format!("/task-instances/{id}/state");
    let statuses = async |body: Value| world.ask(&token, "PATCH", &path, body.to_string()).await;
    let end = "2026-11-21T00:30:00Z";
    let success = json!({"state": "success", "end_date": end});
    assert_eq!(statuses(success.clone()).await.status, 204);
    assert_eq!(statuses(success).await.status, 200);
    let refused = statuses(json!({"state": "failed", "end_date": end})).await;
    assert_eq!(
        (refused.status, refused.reason()),
        (409, json!("invalid_state"))
    );
    assert_eq!(refused.json()["detail"]["previous_state"], "success");
    assert_eq!(world.memory.rows().updates.len(), 1);
}

#[tokio::test]
async fn a_retry_whose_answer_was_lost_does_not_touch_the_next_try() {
    let world = World::new();
    let (id, token) = world.running("t");
    let path = format!("/task-instances/{id}/state");
    let retry = json!({"state": "up_for_retry", "end_date": "2026-11-21T00:30:00Z"}).to_string();
    let first = world.ask(&token, "PATCH", &path, retry.clone()).await;
    assert_eq!(first.status, 204);
    let again = world.ask(&token, "PATCH", &path, retry).await;
    assert_eq!(again.status, 410);
    let rows = world.memory.rows();
    assert_eq!(rows.updates.len(), 1);
    let states: Vec<_> = rows.instances.values().map(|row| row.state).collect();
    assert_eq!(states, [Some(State::UpForRetry)]);
}

#[tokio::test]
async fn a_worker_that_has_been_replaced_is_told_to_stop() {
    let world = World::new();
    let (id, token) = world.running("t");
    let path = format!("/task-instances/{id}/heartbeat");
    let beat = |pid: u32| json!({"hostname": "vm", "pid": pid}).to_string();
    assert_eq!(world.ask(&token, "PUT", &path, beat(7)).await.status, 204);
    let elsewhere = world.ask(&token, "PUT", &path, beat(8)).await;
    assert_eq!(
        (elsewhere.status, elsewhere.reason()),
        (409, json!("running_elsewhere"))
    );
    world.memory.rows().instances.get_mut(&id).unwrap().state = Some(State::Restarting);
    let stopped = world.ask(&token, "PUT", &path, beat(7)).await;
    assert_eq!(
        (stopped.status, stopped.reason()),
        (409, json!("not_running"))
    );
    assert_eq!(stopped.json()["detail"]["current_state"], "restarting");
}
