//! Every route has an answer in every version, in the shape that the SDK reads.

use longshore_airflow::api::{ApiVersion, ROUTES, Route};
use serde_json::json;

use super::*;

/// A request to a route: its path with ids, and what its query and body must have.
fn path_of(route: &Route, id: Uuid) -> String {
    let path = route
        .path
        .replace("{task_instance_id}", &id.to_string())
        .replace("{connection_test_id}", &id.to_string())
        .replace("{dag_id}", DAG)
        .replace("{run_id}", RUN)
        .replace("{offset}", "0");
    let ids = ["task_id", "key", "variable_key", "connection_id"];
    let path = ids
        .iter()
        .fold(path, |path, name| path.replace(&format!("{{{name}}}"), "x"));
    let query =
        "dag_id=vec&run_id=r&name=n&uri=u&alias_name=a&key=k&logical_date=2026-01-01T00:00:00Z";
    format!("/execution{path}?{query}")
}

fn body_of(route: &Route, id: Uuid) -> String {
    let (end, start) = ("2026-11-21T00:30:00Z", "2026-11-21T00:30:00Z");
    let body = match route.path.rsplit('/').next().unwrap_or_default() {
        "run" => json!({
            "state": "running", "hostname": "vm", "unixname": "root", "pid": 7, "start_date": start,
        }),
        "state" => json!({"state": "success", "end_date": end}),
        "heartbeat" => json!({"hostname": "vm", "pid": 7}),
        "skip-downstream" => json!({"tasks": ["x"]}),
        "rendered-map-index" => json!("x"),
        "rtif" | "{run_id}" => json!({}),
        "{variable_key}" => json!({"val": "x"}),
        "{connection_test_id}" => json!({"state": "success"}),
        "{task_instance_id}" => json!({
            "ti_id": id, "options": ["a"], "subject": "s", "chosen_options": ["a"],
        }),
        _ => json!({"value": 1}),
    };
    if route.body.is_some() {
        body.to_string()
    } else {
        String::new()
    }
}

#[tokio::test]
async fn every_route_of_every_version_has_an_answer() {
    let mut n_answers = 0;
    for version in ApiVersion::ALL {
        for route in ROUTES {
            let world = World::new();
            let (id, token) = world.running("x");
            let request = Request::builder()
                .method(route.method.as_str())
                .uri(path_of(route, id))
                .header(header::AUTHORIZATION, format!("Bearer {token}"))
                .header(HEADER_VERSION, version.as_str())
                .body(Body::from(body_of(route, id)))
                .unwrap();
            let found = world.send(request).await;
            let at = format!(
                "{version} {} {}: {found:?}",
                route.method.as_str(),
                route.path
            );
            assert_eq!(found.headers[HEADER_VERSION], version.as_str(), "{at}");
            if !route.life.includes(version) {
                assert!([404, 405, 422].contains(&found.status), "{at}");
                continue;
            }
            n_answers += 1;
            let expected = match found.status {
                // Nothing is there, or we do not have it yet: the reason says which.
                400 | 404 => ["not_found", "not_supported"]
                    .contains(&found.reason().as_str().unwrap_or_default()),
                status => status == route.status,
            };
            assert!(expected, "{at}");
            let has_body = found.status != 204 && route.method.as_str() != "HEAD";
            assert_eq!(!found.bytes.is_empty(), has_body, "{at}");
            found.json();
        }
    }
    assert!(n_answers > 120, "{n_answers}");
}

#[tokio::test]
async fn what_is_no_request_is_refused_in_the_shape_of_upstream() {
    let world = World::new();
    let (id, token) = world.running("t");
    let state = format!("/task-instances/{id}/state");
    for (method, path, body, status, detail) in [
        ("GET", "/nothing", "", 404, json!("Not Found")),
        (
            "PATCH",
            "/variables/a",
            "",
            405,
            json!("Method Not Allowed"),
        ),
        (
            "TRACE",
            "/variables/a",
            "",
            405,
            json!("Method Not Allowed"),
        ),
    ] {
        let refused = world.ask(&token, method, path, body).await;
        assert_eq!(
            (refused.status, &refused.json()["detail"]),
            (status, &detail),
            "{path}"
        );
    }
    for body in [
        "",
        "{",
        "[]",
        "{\"state\":\"success\"}",
        "{\"state\":\"flying\"}",
    ] {
        let refused = world.ask(&token, "PATCH", &state, body).await;
        assert_eq!(refused.status, 422, "{body}");
        let problem = &refused.json()["detail"][0];
        assert!(
            problem["loc"].is_array() && problem["msg"].is_string(),
            "{body}: {problem}"
        );
    }
    assert!(world.memory.rows().updates.is_empty());
}

#[tokio::test]
async fn a_version_that_is_not_served_is_named() {
    let world = World::new();
    let (_, token) = world.running("t");
    for (version, status, served) in [
        ("2025-04-11", 404, "2026-06-30"),
        ("tomorrow", 422, "2026-06-30"),
        ("2026-05-01", 200, "2026-04-06"),
        ("2031-01-01", 200, "2026-06-30"),
    ] {
        let request = Request::get("/execution/dag-runs/count?dag_id=vec")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(HEADER_VERSION, version)
            .body(Body::empty())
            .unwrap();
        let found = world.send(request).await;
        assert_eq!(found.status, status, "{version}");
        assert_eq!(found.headers[HEADER_VERSION], served, "{version}");
    }
}

#[tokio::test]
async fn ids_with_signs_arrive_as_they_are() {
    let world = World::new();
    let (_, token) = world.running("t");
    let path = format!("/dag-runs/{DAG}/{RUN}/state");
    let found = world.ask(&token, "GET", &path, "").await;
    assert_eq!(found.json(), json!({"state": "running"}));
    let other = path.replace('+', "%20");
    let missing = world.ask(&token, "GET", &other, "").await;
    assert_eq!(
        (missing.status, missing.reason()),
        (404, json!("not_found"))
    );
    let value = json!({"val": "x"}).to_string();
    let put = world.ask(&token, "PUT", "/variables/a/b%20c", value).await;
    assert_eq!(put.status, 201);
    let keys = world
        .ask(&token, "GET", "/variables/keys?prefix=a%2Fb+c", "")
        .await;
    assert_eq!(keys.json(), json!({"keys": ["a/b c"], "total_entries": 1}));
}
