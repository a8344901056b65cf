//! Whose token is accepted where, and when it is replaced.

use serde_json::json;

use super::*;

fn start() -> String {
    json!({
        "state": "running", "hostname": "vm", "unixname": "root", "pid": 7,
        "start_date": "2026-11-21T00:30:00Z",
    })
    .to_string()
}

#[tokio::test]
async fn a_token_that_is_missing_forged_or_over_is_refused_everywhere() {
    let world = World::new();
    let (id, good) = world.running("t");
    let now = world.clock.now();
    let validity = VALIDITY.try_into().unwrap();
    let forged = tokens(&SECRET.replace('5', "6"))
        .issue(id, TokenScope::Execution, validity, now, [7; 16])
        .unwrap();
    let (head, rest) = good.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let without_signature = format!("{head}.{claims}.");
    let of_another = world.token(Uuid::nil(), TokenScope::Execution);
    let other_claims = of_another.split('.').nth(1).unwrap();
    let changed = format!("{head}.{other_claims}.{signature}");
    let old = world.token(id, TokenScope::Execution);
    world.wait(9 * 60);
    let fresh = world.token(id, TokenScope::Execution);
    world.wait(2 * 60);
    let paths = [
        ("GET", "/variables/a".to_owned()),
        ("PUT", format!("/task-instances/{id}/heartbeat")),
        ("GET", xcom("t", "k")),
        ("GET", "/dag-runs/count?dag_id=vec".to_owned()),
    ];
    for (method, path) in paths {
        let missing = world.ask("", method, &path, "").await;
        assert_eq!(missing.status, 401, "{path}");
        assert_eq!(missing.json()["detail"], "Missing auth token");
        for token in [
            forged.as_str(),
            &without_signature,
            &changed,
            &old,
            "x",
            "x.y.z",
        ] {
            let refused = world.ask(token, method, &path, "").await;
            assert_eq!(refused.status, 403, "{path} {token}");
            let why = refused.json()["detail"].as_str().unwrap().to_owned();
            assert!(why.starts_with("Invalid auth token: "), "{why}");
        }
        let accepted = world.ask(&fresh, method, &path, "").await;
        assert!(![401, 403].contains(&accepted.status), "{path}");
    }
    assert!(world.memory.rows().updates.is_empty());
    assert_eq!(world.memory.rows().instances[&id].n_heartbeats, 0);
}

#[tokio::test]
async fn the_token_of_a_workload_begins_its_task_and_nothing_else() {
    let world = World::new();
    let id = world.memory.add(Row::queued("t"));
    let other = world.memory.add(Row::queued("u"));
    let workload = world.token(id, TokenScope::Workload);
    for (method, path) in [
        ("GET", "/variables/a".to_owned()),
        ("GET", "/connections/a".to_owned()),
        ("PUT", format!("/task-instances/{id}/heartbeat")),
        ("PATCH", format!("/task-instances/{id}/state")),
        ("POST", xcom("t", "k")),
        ("PATCH", format!("/task-instances/{other}/run")),
    ] {
        let refused = world.ask(&workload, method, &path, start()).await;
        assert_eq!(refused.status, 403, "{path}");
        assert_eq!(refused.token(), None, "{path}");
    }
    let path = format!("/task-instances/{id}/run");
    let begun = world.ask(&workload, "PATCH", &path, start()).await;
    assert_eq!(begun.status, 200);
    let execution = begun.token().unwrap();
    assert_eq!(
        world.ask(execution, "GET", "/variables/a", "").await.status,
        404
    );
    // The answer was lost: the worker has the token of its workload only, and gets another one.
    let again = world.ask(&workload, "PATCH", &path, start()).await;
    assert_eq!(again.status, 200);
    assert!(again.token().is_some());
}

#[tokio::test]
async fn a_refused_start_gives_no_token() {
    let world = World::new();
    let (id, _) = world.running("t");
    let workload = world.token(id, TokenScope::Workload);
    let path = format!("/task-instances/{id}/run");
    let body = start().replace("\"pid\":7", "\"pid\":8");
    let refused = world.ask(&workload, "PATCH", &path, body).await;
    assert_eq!((refused.status, refused.token()), (409, None));
    let detail = &refused.json()["detail"];
    assert_eq!(detail["reason"], "invalid_state");
    // The SDK calls this `TaskAlreadyRunningError`.
    assert_eq!(detail["previous_state"], "running");
}

#[tokio::test]
async fn a_token_is_replaced_when_a_fifth_of_its_time_is_left() {
    let world = World::new();
    let (id, token) = world.running("t");
    let path = format!("/task-instances/{id}/heartbeat");
    let body = json!({"hostname": "vm", "pid": 7}).to_string();
    world.wait(8 * 60 - 1);
    let early = world.ask(&token, "PUT", &path, body.clone()).await;
    assert_eq!((early.status, early.token()), (204, None));
    world.wait(1);
    let due = world.ask(&token, "PUT", &path, body.clone()).await;
    assert_eq!(due.status, 204);
    let next = due.token().unwrap().to_owned();
    world.wait(3 * 60);
    assert_eq!(
        world.ask(&token, "PUT", &path, body.clone()).await.status,
        403
    );
    assert_eq!(world.ask(&next, "PUT", &path, body).await.status, 204);
}

#[tokio::test]
async fn health_needs_no_token() {
    let world = World::new();
    for path in ["/health", "/health/ping"] {
        assert_eq!(world.ask("", "GET", path, "").await.status, 200);
    }
}
