//! Requests and their answers.

use std::{fmt::Write, sync::Arc};

use axum::{Router, body::Body};
use futures::StreamExt;
use http::{Request, header};
use longshore_console::{Access, Hosts, Token, router};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{TOKEN, fake::Fake};

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) fn api(fake: Arc<Fake>) -> Router {
    let access = Access {
        token: Token::new(TOKEN),
        hosts: Hosts::Known(vec!["longshore.internal".to_owned()]),
    };
    router(fake, access, CancellationToken::new())
}

/// A request as a well-behaved client makes it.
pub(crate) fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost:7080")
        .header(header::AUTHORIZATION, format!("Bearer {TOKEN}"))
        .header("x-request-id", "req-1")
}

pub(crate) async fn ask(router: Router, request: Request<Body>) -> Answer {
    let response = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let mut text = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        text.extend(chunk.unwrap());
    }
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(text).unwrap(),
    }
}

const REQUESTS: &[(&str, &str, &str)] = &[
    ("GET", "/api/v1/dags", ""),
    ("GET", "/api/v1/importErrors", ""),
    ("GET", "/api/v1/pools", ""),
    ("PUT", "/api/v1/pools/db", r#"{"slots":4}"#),
    ("PUT", "/api/v1/pools/db", "{}"),
    ("PUT", "/api/v1/pools/db", r#"{"size":4}"#),
    ("PUT", "/api/v1/pools/%2E%2E", r#"{"slots":4}"#),
    ("DELETE", "/api/v1/pools/db", ""),
    ("DELETE", "/api/v1/pools/db", ""),
    ("GET", "/api/v1/dags/etl", ""),
    ("GET", "/api/v1/dags/nope", ""),
    ("PATCH", "/api/v1/dags/etl", r#"{"isPaused":true}"#),
    ("PATCH", "/api/v1/dags/etl", r#"{"paused":true}"#),
    (
        "POST",
        "/api/v1/dags/etl/runs",
        r#"{"runId":"new","params":{"day":1}}"#,
    ),
    ("POST", "/api/v1/dags/etl/runs", r#"{"runId":"r1"}"#),
    ("POST", "/api/v1/dags/etl/runs", r#"{"runId":"a/../b"}"#),
    ("POST", "/api/v1/dags/etl/runs", r#"{"params":{"dya":1}}"#),
    ("POST", "/api/v1/dags/etl/runs", r#"{"logicalDate":"soon"}"#),
    ("POST", "/api/v1/dags/etl/runs", ""),
    ("GET", "/api/v1/runs?limit=2", ""),
    ("GET", "/api/v1/runs?state=failed,success&dagId=etl", ""),
    ("GET", "/api/v1/runs?limit=1&continue=etl/r2", ""),
    ("GET", "/api/v1/runs?state=borken", ""),
    ("GET", "/api/v1/runs?limit=-1", ""),
    ("GET", "/api/v1/runs?limit=0", ""),
    ("GET", "/api/v1/runs?continue=x", ""),
    ("GET", "/api/v1/dags/etl/runs/r1", ""),
    ("GET", "/api/v1/dags/etl/runs/r9", ""),
    ("POST", "/api/v1/dags/etl/runs/r3/cancel", ""),
    ("POST", "/api/v1/dags/etl/runs/r1/cancel", ""),
    ("POST", "/api/v1/dags/etl/runs/r2/retry", ""),
    ("GET", "/api/v1/dags/etl/runs/r2/tasks?state=waiting", ""),
    ("GET", "/api/v1/dags/etl/runs/r2/tasks/extract", ""),
    ("GET", "/api/v1/dags/etl/runs/r2/tasks/nope", ""),
    (
        "POST",
        "/api/v1/dags/etl/runs/r2/tasks/extract/clear",
        r#"{"downstream":true}"#,
    ),
    ("GET", "/api/v1/dags/etl/runs/r2/tasks/extract/logs", ""),
    (
        "GET",
        "/api/v1/dags/etl/runs/r2/tasks/extract/logs?tail=1",
        "",
    ),
    (
        "GET",
        "/api/v1/dags/etl/runs/r2/tasks/extract/logs?attempt=9",
        "",
    ),
    ("GET", "/api/v1/nothing", ""),
    ("GET", "/nothing", ""),
    ("DELETE", "/api/v1/dags/etl", ""),
    ("GET", "/livez", ""),
    ("GET", "/readyz", ""),
    ("GET", "/readyz?verbose", ""),
    ("GET", "/api/v1/dags/panic", ""),
    ("GET", "/api/v1/dags/%2e%2e", ""),
    ("GET", "/api/v1/dags/a%00b", ""),
    ("GET", "/api/v1/dags/a%ff", ""),
];

#[tokio::test]
async fn every_request_has_its_answer() {
    let api = api(Arc::default());
    let long = "x".repeat(251);
    let mut printed = String::new();
    let too_long = format!("/api/v1/dags/{long}");
    for (method, path, body) in REQUESTS.iter().chain([&("GET", too_long.as_str(), "")]) {
        let mut request = request(method, path);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let answer = ask(api.clone(), request.body(body.to_owned().into()).unwrap()).await;
        let path = path.replace(&long, "<251 characters>");
        let content_type = answer.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.map_or("-", |value| value.to_str().unwrap());
        let body_text = answer.body.replace(&long, "<251 characters>");
        writeln!(printed, "{method} {path} {body}").unwrap();
        writeln!(
            printed,
            "  {} {content_type}\n  {}\n",
            answer.status,
            body_text.trim_end()
        )
        .unwrap();
    }
    insta::assert_snapshot!(printed);
}

#[tokio::test]
async fn every_answer_has_an_id_and_is_kept_by_nobody() {
    let api = api(Arc::default());
    for (given, is_taken) in [("abc-1", true), ("with blank", false), ("", false)] {
        let mut asked = request("GET", "/livez");
        asked
            .headers_mut()
            .unwrap()
            .insert("x-request-id", given.parse().unwrap());
        let answer = ask(api.clone(), asked.body(Body::empty()).unwrap()).await;
        let id = answer.headers["x-request-id"].to_str().unwrap();
        assert_eq!(id == given, is_taken, "{given:?}");
        assert!(!id.is_empty());
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}

#[tokio::test]
async fn a_broken_service_is_unready_and_tells_no_stranger_why() {
    let fake: Arc<Fake> = Arc::default();
    *fake.is_broken.lock().unwrap() = true;
    let ready = request("GET", "/readyz?verbose")
        .body(Body::empty())
        .unwrap();
    let answer = ask(api(fake.clone()), ready).await;
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.body,
        "[-]database failed\n[+]shutdown ok\nnot ready\n"
    );

    let dags = request("GET", "/api/v1/dags").body(Body::empty()).unwrap();
    let answer = ask(api(fake), dags).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "LS1903"));
    assert!(!answer.body.contains("10.0.0.1"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_in_time_is_told_so() {
    let stuck = request("GET", "/api/v1/dags/stuck")
        .body(Body::empty())
        .unwrap();
    let answer = ask(api(Arc::default()), stuck).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "LS1903"));
}
