mod misbehaviour;

use std::time::Duration;

use axum::{Router, response::IntoResponse, routing::post};
use http::{HeaderMap, StatusCode};
use longshore_core::{Class, Classify};
use longshore_outbound::Permit;
use longshore_test::serve;
use prost_types::Timestamp;

use super::*;

const METHOD: &str = "a.Service/Method";

async fn call(router: Router) -> Result<Timestamp, ConnectError> {
    let client = ConnectClient::new(&serve(router).await, Permit::always()).unwrap();
    let request = Timestamp {
        seconds: 1,
        nanos: 2,
    };
    client.call(METHOD, &request).await
}

/// A call that the service of these tests refuses.
async fn ask(client: &ConnectClient) -> Result<Timestamp, ConnectError> {
    client.call(METHOD, &Timestamp::default()).await
}

fn answering<R: IntoResponse + Clone + Send + Sync + 'static>(answer: R) -> Router {
    Router::new().route("/a.Service/Method", post(async move || answer))
}

fn echo() -> Router {
    let handler = async |headers: HeaderMap, body: bytes::Bytes| {
        assert_eq!(headers["connect-protocol-version"], "1");
        assert_eq!(headers["connect-timeout-ms"], "30000");
        let work = async |request: Timestamp| match request.seconds {
            0 => Err(server::Refusal::new(Code::NotFound, "no such time")),
            _ => Ok(request),
        };
        server::answer(&headers, &body, work).await
    };
    Router::new().route("/a.Service/Method", post(handler))
}

#[tokio::test]
async fn a_call_is_answered_and_connections_are_used_again() {
    let client = ConnectClient::new(&(serve(echo()).await + "/"), Permit::always()).unwrap();
    for seconds in 1..20 {
        let request = Timestamp { seconds, nanos: 0 };
        let answer: Timestamp = client.call(METHOD, &request).await.unwrap();
        assert_eq!(answer, request);
    }
    let error = ask(&client).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotFound));
    assert!(
        error
            .to_string()
            .ends_with("refused with not_found: no such time")
    );
}

#[tokio::test]
async fn every_answer_that_is_none_is_an_error_of_its_kind() {
    let json = |status, body: &'static str| (status, [("content-type", "application/json")], body);
    let refused = json(
        StatusCode::CONFLICT,
        r#"{"code":"already_exists","message":"there","details":[]}"#,
    );
    let table = [
        (answering(refused), "already_exists: there"),
        (
            answering(json(StatusCode::IM_A_TEAPOT, r#"{"code":"brewing"}"#)),
            "unknown: 418 I'm a teapot",
        ),
        (
            answering((StatusCode::BAD_GATEWAY, "<html>")),
            "unavailable: 502 Bad Gateway: <html>",
        ),
        (Router::new(), "unimplemented: 404 Not Found"),
        (
            answering((StatusCode::FOUND, [("location", "http://elsewhere/")])),
            "unknown: 302 Found",
        ),
        (
            answering("hello"),
            "expected application/proto, found \"hello\"",
        ),
        (
            answering(([("content-type", PROTO)], vec![255_u8; 9])),
            "cannot be read: failed to decode",
        ),
        (
            answering(([("content-type", PROTO)], vec![0_u8; 9 << 20])),
            "more than 8388608 bytes",
        ),
    ];
    for (router, expected) in table {
        let error = call(router).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.class(), Class::Retry);
    }
}

#[tokio::test]
async fn a_service_that_is_down_or_slow_is_told_apart_from_one_that_refuses() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let client = ConnectClient::new(&url, Permit::always()).unwrap();
    let error = ask(&client).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");

    let slow = Router::new().route("/a.Service/Method", post(std::future::pending::<()>));
    let client = ConnectClient::new(&serve(slow).await, Permit::always()).unwrap();
    let client = client.waiting(Duration::from_millis(50));
    let error = ask(&client).await.unwrap_err();
    assert!(error.to_string().ends_with("did not answer within 50ms"));
}

#[test]
fn a_url_of_something_else_is_refused() {
    for url in ["", "localhost:8090", "ftp://x", "http://"] {
        let error = ConnectClient::new(url, Permit::always()).unwrap_err();
        assert!(matches!(error, ConnectError::BadUrl(_)), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_password_in_the_url_is_sent_and_in_no_error() {
    let handler = async |headers: HeaderMap| {
        // `ann:canary`.
        assert_eq!(headers["authorization"], "Basic YW5uOmNhbmFyeQ==");
        StatusCode::BAD_GATEWAY
    };
    let router = Router::new().route("/a.Service/Method", post(handler));
    let url = serve(router).await.replace("://", "://ann:canary@");
    let client = ConnectClient::new(&url, Permit::always()).unwrap();
    let refused = ask(&client).await.unwrap_err();
    let bad = ["ftp://ann:canary@host", "ann:canary@host:8090"];
    let bad = bad.map(|url| ConnectClient::new(url, Permit::always()).unwrap_err());
    let nobody = ConnectClient::new("http://ann:canary@127.0.0.1:1", Permit::always()).unwrap();
    let unreachable = ask(&nobody).await.unwrap_err();
    let mut shown = format!("{client:?}");
    for error in bad.iter().chain([&refused, &unreachable]) {
        shown += &format!("{error} {error:?}\n");
    }
    assert!(!shown.contains("canary"), "{shown}");
    assert_eq!(refused.code(), Some(Code::Unavailable), "{refused}");
}

#[test]
fn codes_have_names_of_their_own() {
    for code in Code::ALL {
        assert_eq!(Code::parse(code.name()), Some(code));
        assert_eq!(Code::of_number(code.number()), code);
    }
    assert_eq!(Code::Unauthenticated.number(), 16);
    assert_eq!(Code::of_number(0), Code::Unknown);
    assert_eq!(Code::of_number(17), Code::Unknown);
    assert_eq!(Code::parse("brewing"), None);
}
