//! Sizes, times, and a database that is gone.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::{SinkExt, StreamExt, channel::mpsc};
use http_body::{Frame, SizeHint};
use longshore_airflow_api::BodyLimits;
use serde_json::json;

use super::*;

#[tokio::test]
async fn an_xcom_of_50_mb_is_kept_as_the_text_that_it_is() {
    let world = World::new();
    let (_, token) = world.running("t");
    let text = format!("[\"{}\"]", "x".repeat((50 << 20) - 4));
    let path = xcom("t", "large");
    let set = world.ask(&token, "POST", &path, text.clone()).await;
    assert_eq!(set.status, 201);
    let got = world.ask(&token, "GET", &path, "").await;
    assert_eq!(got.status, 200);
    let expected = format!("{{\"key\":\"large\",\"value\":{text}}}");
    assert!(got.bytes == expected, "{} bytes", got.bytes.len());
    let larger = format!("{text} ");
    let refused = world.ask(&token, "POST", &path, larger).await;
    assert_eq!(
        (refused.status, refused.reason()),
        (413, json!("body_too_large"))
    );
}

/// A body of 101 bytes that do not come.
struct Announced;

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(101)
    }
}

/// A body that says nothing about its size.
fn unannounced(chunks: Vec<&'static str>) -> Body {
    let chunks = chunks.into_iter().map(Ok::<_, Infallible>);
    Body::from_stream(futures::stream::iter(chunks))
}

#[tokio::test]
async fn other_bodies_are_smaller_announced_or_not() {
    let world = World::with(|config| config.bodies.other = 100);
    let (id, token) = world.running("t");
    let path = format!("/task-instances/{id}/rtif");
    let fields = format!("{{\"a\":\"{}\"}}", "x".repeat(92));
    assert_eq!(
        world.ask(&token, "PUT", &path, fields.clone()).await.status,
        201
    );
    let larger = world.ask(&token, "PUT", &path, format!("{fields} ")).await;
    assert_eq!(larger.status, 413);
    let pieces = unannounced(vec!["{\"a\":", "\"b\"", "}"]);
    assert_eq!(world.ask(&token, "PUT", &path, pieces).await.status, 201);
    assert_eq!(world.memory.rows().rendered[&id]["a"], "b");
    // Its length is known before its bytes come.
    let announced = format!("/execution{path}");
    let announced = Request::put(announced)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::new(Announced))
        .unwrap();
    assert_eq!(world.send(announced).await.status, 413);
    for chunks in [vec!["{}", "          "], vec!["          "; 11]] {
        let is_small = chunks.len() == 2;
        let answered = world.ask(&token, "PUT", &path, unannounced(chunks)).await;
        assert_eq!(answered.status, if is_small { 201 } else { 413 });
    }
}

#[tokio::test]
async fn large_bodies_wait_until_there_is_room_for_them() {
    let world = World::with(|config| {
        config.bodies = BodyLimits {
            xcom: 1 << 20,
            in_flight: 1 << 20,
            ..BodyLimits::default()
        };
    });
    let (_, token) = world.running("t");
    let text = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    let (mut sender, chunks) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let slow = Request::post(format!("/execution{}", xcom("t", "slow")))
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::from_stream(chunks))
        .unwrap();
    let mut slow = Box::pin(world.send(slow));
    // It begins, and waits for the rest of its body.
    assert!(futures::poll!(&mut slow).is_pending());
    let path = xcom("t", "next");
    let mut next = Box::pin(world.ask(&token, "POST", &path, text.clone()));
    assert!(futures::poll!(&mut next).is_pending());
    assert!(world.memory.rows().xcoms.is_empty());
    // Small ones pass.
    let small = world.ask(&token, "POST", &xcom("t", "small"), "1").await;
    assert_eq!(small.status, 201);
    let send = async {
        sender.send(Ok(text.clone().into())).await.unwrap();
        drop(sender);
    };
    let (slow, next, ()) = futures::join!(slow, next, send);
    assert_eq!((slow.status, next.status), (201, 201));
}

#[tokio::test]
async fn a_body_that_breaks_off_or_never_ends_is_refused() {
    let world = World::with(|config| config.bodies.timeout = Duration::from_millis(50));
    let (_, token) = world.running("t");
    let path = xcom("t", "k");
    let broken = futures::stream::iter([
        Ok(Bytes::from_static(b"[")),
        Err(std::io::Error::other("reset")),
    ]);
    let broken = world
        .ask(&token, "POST", &path, Body::from_stream(broken))
        .await;
    assert_eq!(broken.status, 400);
    let endless = futures::stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"["))]);
    let endless = Body::from_stream(endless.chain(futures::stream::pending()));
    let endless = world.ask(&token, "POST", &path, endless).await;
    assert_eq!(endless.status, 503);
    assert!(world.memory.rows().xcoms.is_empty());
}

#[tokio::test]
async fn a_lost_database_is_told_without_its_reason_and_the_worker_asks_again() {
    let world = World::new();
    let (id, token) = world.running("t");
    world.memory.rows().is_gone = true;
    for path in [xcom("t", "k"), "/variables/a".to_owned()] {
        let failed = world.ask(&token, "GET", &path, "").await;
        assert_eq!(failed.status, 500, "{path}");
        assert_eq!(failed.json(), json!({"detail": "Database error occurred"}));
    }
    let path = format!("/task-instances/{id}/rtif");
    assert_eq!(world.ask(&token, "PUT", &path, "{}").await.status, 500);
    world.memory.rows().is_gone = false;
    assert_eq!(world.ask(&token, "PUT", &path, "{}").await.status, 201);
}

#[tokio::test]
async fn an_answer_that_never_comes_ends_with_503() {
    let world = World::with(|config| config.answer_timeout = Duration::from_millis(50));
    let (id, token) = world.running("t");
    world.memory.rows().is_silent = true;
    for path in ["/variables/a", "/variables/keys"] {
        assert_eq!(
            world.ask(&token, "GET", path, "").await.status,
            503,
            "{path}"
        );
    }
    let path = format!("/task-instances/{id}/rtif");
    assert_eq!(world.ask(&token, "PUT", &path, "{}").await.status, 503);
}

#[tokio::test]
async fn values_that_are_too_long_for_their_place_are_refused() {
    let world = World::with(|config| config.max_map_length = 3);
    let (id, token) = world.running("t");
    let path = xcom("t", "k");
    for (length, status) in [(3, 201), (4, 400)] {
        let path = format!("{path}?mapped_length={length}");
        let set = world.ask(&token, "POST", &path, "[1]").await;
        assert_eq!(set.status, status, "{length}");
        if status == 400 {
            assert_eq!(set.reason(), "unmappable_return_value_length");
        }
    }
    let path = format!("/store/ti/{id}/k");
    for (n, status) in [(65_533, 204), (65_534, 422)] {
        let body = json!({"value": "x".repeat(n)}).to_string();
        assert_eq!(
            world.ask(&token, "PUT", &path, body).await.status,
            status,
            "{n}"
        );
    }
    let name = format!("/task-instances/{id}/rendered-map-index");
    assert_eq!(world.ask(&token, "PATCH", &name, "\"\"").await.status, 422);
    assert_eq!(
        world.ask(&token, "PATCH", &name, "\"eu\"").await.status,
        204
    );
    assert_eq!(world.memory.rows().names[&id], "eu");
}

#[tokio::test]
async fn the_reason_of_a_retry_is_cut() {
    let world = World::new();
    let (id, token) = world.running("t");
    let body = json!({
        "state": "up_for_retry", "end_date": "2026-11-21T00:30:00Z", "retry_reason": "ü".repeat(501),
    });
    let path = format!("/task-instances/{id}/state");
    assert_eq!(
        world
            .ask(&token, "PATCH", &path, body.to_string())
            .await
            .status,
        204
    );
    let rows = world.memory.rows();
    let (_, longshore_airflow::api::task_instance::StateUpdate::Retry(retry)) = &rows.updates[0]
    else {
        panic!("{:?}", rows.updates);
    };
    assert_eq!(
        retry.retry_reason.as_deref(),
        Some("ü".repeat(500).as_str())
    );
}
