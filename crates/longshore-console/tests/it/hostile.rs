//! Clients that must not get in, and clients that get in and misbehave.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use futures::stream;
use http::{Request, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    Service, TOKEN,
    api::{api, ask, request},
};

#[tokio::test]
async fn only_the_token_lets_a_client_in() {
    let api = api(Arc::default());
    for (authorization, expected) in [
        (Some(format!("Bearer {TOKEN}")), 200),
        (Some(format!("bearer {TOKEN}")), 200),
        (Some(format!("Bearer {TOKEN}x")), 401),
        (Some("Bearer ".to_owned()), 401),
        (Some(format!("Basic {TOKEN}")), 401),
        (Some(TOKEN.to_owned()), 401),
        (None, 401),
    ] {
        for path in ["/api/v1/dags", "/api/v1/nothing", "/api/v1/changes/x"] {
            let mut asked = Request::get(path).header(header::HOST, "localhost");
            if let Some(value) = &authorization {
                asked = asked.header(header::AUTHORIZATION, value);
            }
            let answer = ask(api.clone(), asked.body(Body::empty()).unwrap()).await;
            let expected = if expected == 200 && path != "/api/v1/dags" {
                404
            } else {
                expected
            };
            assert_eq!(answer.status, expected, "{authorization:?} {path}");
            if expected == 401 {
                assert_eq!(answer.code(), "LS1801");
                assert!(answer.headers.contains_key(header::WWW_AUTHENTICATE));
                assert!(!answer.body.contains(TOKEN));
            }
        }
    }
}

#[tokio::test]
async fn a_foreign_host_header_is_refused_whatever_the_token() {
    let api = api(Arc::default());
    for (hosts, expected) in [
        (&["localhost:7080"][..], 200),
        (&["[::1]:7080"], 200),
        (&["longshore.internal"], 200),
        (&["evil.example"], 403),
        (&["localhost", "evil.example"], 403),
        (&["localhost@evil.example"], 403),
        (&[], 403),
    ] {
        for path in ["/api/v1/dags", "/livez"] {
            let mut asked =
                Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}"));
            for host in hosts {
                asked = asked.header(header::HOST, *host);
            }
            let answer = ask(api.clone(), asked.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status, expected, "{hosts:?} {path}");
        }
    }
}

#[tokio::test]
async fn bad_bodies_are_refused_with_the_reason() {
    let api = api(Arc::default());
    let deep = format!(
        "{{\"params\":{{\"day\":{}1{}}}}}",
        "[".repeat(500),
        "]".repeat(500)
    );
    let huge = format!("{{\"runId\":\"{}\"}}", "x".repeat(1024 * 1024));
    let json = "application/json";
    for (content_type, body, expected) in [
        (json, "{", 400),
        (json, "[]", 400),
        (json, "null", 400),
        (json, "{\"runId\":1}", 400),
        (json, "{\"runId\":\"a\",\"runId\":\"b\"}", 400),
        (json, "{\"runId\":\"\"}", 400),
        (json, "{\"x\":1}", 400),
        (json, "\u{0}", 400),
        (json, deep.as_str(), 400),
        (json, huge.as_str(), 413),
        ("text/plain", "{}", 415),
        ("application/yaml", "{}", 415),
        ("", "{}", 415),
        ("application/json; charset=utf-8", "{\"runId\":\"ok\"}", 201),
    ] {
        let asked =
            request("POST", "/api/v1/dags/etl/runs").header(header::CONTENT_TYPE, content_type);
        let answer = ask(api.clone(), asked.body(body.to_owned().into()).unwrap()).await;
        let shown: String = body.chars().take(40).collect();
        assert_eq!(answer.status, expected, "{shown}: {}", answer.body);
        if expected != 201 {
            assert_eq!(answer.code(), "LS1024");
            assert!(answer.body.len() < 2_000, "{shown}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let body = Body::from_stream(stream::pending::<Result<String, std::io::Error>>());
    let asked =
        request("POST", "/api/v1/dags/etl/runs").header(header::CONTENT_TYPE, "application/json");
    let answer = ask(api(Arc::default()), asked.body(body).unwrap()).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "LS1903"));
}

#[tokio::test]
async fn a_reader_that_never_reads_disturbs_nobody() {
    let service = Service::start().await;
    let mut lazy = TcpStream::connect(&service.address).await.unwrap();
    let head = format!(
        "GET /api/v1/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    lazy.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    lazy.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    for _ in 0..20_000 {
        service.fake.set_state("r3", "running");
    }
    let runs = service.client().runs(&[]).await.unwrap();
    assert_eq!(runs.items.len(), 3);
    let stopped = tokio::time::timeout(Duration::from_secs(20), service.stop()).await;
    assert!(stopped.is_ok(), "the service stops all the same");
}

#[tokio::test]
async fn a_head_that_is_too_large_or_no_http_ends_the_connection() {
    let service = Service::start().await;
    for bytes in [
        format!(
            "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(64 * 1024)
        ),
        "\u{1}\u{2}\u{3}\r\n\r\n".to_owned(),
    ] {
        let mut stream = TcpStream::connect(&service.address).await.unwrap();
        // The service may hang up before it has taken everything.
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    assert_eq!(service.client().dags().await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn silent_connections_make_room_and_those_with_the_token_stay() {
    const IN_TIME: Duration = Duration::from_secs(5);
    let service = Service::start().await;
    let mut follower = TcpStream::connect(&service.address).await.unwrap();
    let head = format!(
        "GET /api/v1/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    follower.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    follower.read_exact(&mut first).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(&service.address).await.unwrap());
    }
    let answered = tokio::time::timeout(IN_TIME, async {
        service.client().dags().await.unwrap();
    });
    answered.await.unwrap();
    let ended = tokio::time::timeout(IN_TIME, silent[0].read(&mut first)).await;
    assert!(matches!(ended.unwrap(), Ok(0) | Err(_)));
    service.fake.set_state("r3", "running");
    let mut changes = String::new();
    while !changes.contains("r3") {
        let mut bytes = [0; 1024];
        let n = tokio::time::timeout(IN_TIME, follower.read(&mut bytes)).await;
        let n = n.unwrap().unwrap();
        assert!(n > 0, "{changes}");
        changes += &String::from_utf8_lossy(&bytes[..n]);
    }
}
