mod misbehaviour;

use longshore_outbound::Permit;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use longshore_plugins::ServiceConfig;
use prost_types::Timestamp;

use super::{
    server::{Answered, serve},
    *,
};

const METHOD: &str = "a.Service/Method";

fn patient(timeout: Duration) -> MethodPolicy {
    MethodPolicy {
        timeout: Some(timeout),
        retries: None,
    }
}

async fn call(endpoint: &str, policy: &MethodPolicy) -> Result<Timestamp, GrpcError> {
    let client = GrpcClient::new(endpoint, Transport::Plain, Permit::always()).unwrap();
    client.call(METHOD, &Timestamp::default(), policy).await
}

#[tokio::test]
async fn a_call_is_answered() {
    let endpoint = serve(async |path, body: Bytes| {
        assert_eq!(path, "/a.Service/Method");
        let asked: Timestamp = server::read(&body);
        server::ok(&Timestamp {
            seconds: asked.seconds + 1,
            nanos: 0,
        })
    })
    .await;
    let client = GrpcClient::new(
        &format!("dns:///{endpoint}"),
        Transport::Plain,
        Permit::always(),
    )
    .unwrap();
    for seconds in 1..20 {
        let request = Timestamp { seconds, nanos: 0 };
        let answer: Timestamp = client
            .call(METHOD, &request, &MethodPolicy::default())
            .await
            .unwrap();
        assert_eq!(answer.seconds, seconds + 1);
    }
}

#[tokio::test]
async fn every_answer_that_is_none_is_an_error_of_its_kind() {
    let whole = frame(&Timestamp {
        seconds: 1,
        nanos: 0,
    });
    let mut compressed = whole.to_vec();
    compressed[0] = 1;
    let table: [(Answered, &str); 5] = [
        (
            Answered::Status(5, "no%20such%20job"),
            "refused with not_found: no such job",
        ),
        (Answered::Status(99, ""), "refused with unknown: "),
        (Answered::Message(Bytes::new()), "it has no message"),
        (
            Answered::Message(compressed.into()),
            "its message is compressed",
        ),
        (
            Answered::Message(whole.slice(..whole.len() - 1)),
            "expected a message of 2 bytes, found 1",
        ),
    ];
    for (answer, expected) in table {
        let endpoint = serve(move |_, _| std::future::ready(answer.clone())).await;
        let error = call(&endpoint, &MethodPolicy::default()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_server_of_something_else_is_found_out() {
    let url = longshore_test::serve(axum::Router::new()).await;
    let endpoint = url.strip_prefix("http://").unwrap();
    let error = call(endpoint, &patient(Duration::from_secs(5)))
        .await
        .unwrap_err();
    // It speaks HTTP/1.1 only, or has no such path.
    let is_told = matches!(
        error,
        GrpcError::Broken { .. }
            | GrpcError::NotConnected { .. }
            | GrpcError::Refused {
                code: Code::Unimplemented,
                ..
            }
    );
    assert!(is_told, "{error:?}");
}

#[tokio::test]
async fn who_does_not_answer_in_time_is_given_up_and_who_is_not_there_is_waited_for() {
    let endpoint = serve(|_, _| std::future::pending::<Answered>()).await;
    let limit = Duration::from_millis(50);
    let error = call(&endpoint, &patient(limit)).await.unwrap_err();
    assert!(error.to_string().ends_with("did not answer within 50ms"));

    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = nobody.local_addr().unwrap();
    drop(nobody);
    let late = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let listener = tokio::net::TcpListener::bind(endpoint).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        // Something was sent: it is not repeated.
        tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
    };
    let endpoint = endpoint.to_string();
    let policy = patient(Duration::from_secs(5));
    let (error, ()) = tokio::join!(call(&endpoint, &policy), late);
    let error = error.unwrap_err();
    assert!(
        !matches!(error, GrpcError::TimedOut { .. }),
        "somebody came: {error}"
    );
}

#[tokio::test]
async fn a_refusal_is_put_up_with_where_the_service_configuration_says_so() {
    let config = r#"{"methodConfig": [{"name": [{"service": "a.Service"}], "retryPolicy": {
        "maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.01s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]
    }}]}"#;
    let policy = ServiceConfig::parse(config).unwrap();
    let policy = policy.of("a.Service", "Method", Some(Duration::from_secs(5)));
    for (code, n_refused, n_calls) in [(14, 2, 3), (14, 5, 3), (13, 1, 1)] {
        let n = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&n);
        let endpoint = serve(move |_, _| {
            let is_refused = counted.fetch_add(1, Ordering::SeqCst) < n_refused;
            std::future::ready(if is_refused {
                Answered::Status(code, "not now")
            } else {
                server::ok(&Timestamp::default())
            })
        })
        .await;
        let answered = call(&endpoint, &policy).await;
        assert_eq!(answered.is_ok(), n_refused < n_calls, "{code} {n_refused}");
        assert_eq!(n.load(Ordering::SeqCst), n_calls, "{code} {n_refused}");
    }
}

#[test]
fn endpoints_are_as_grpc_has_them() {
    for (endpoint, expected) in [
        ("connector:8000", Some("http://connector:8000")),
        ("connector:80", Some("http://connector:80")),
        ("connector.flyte", Some("http://connector.flyte:443")),
        ("dns:///connector:8000", Some("http://connector:8000")),
        (
            "dns://8.8.8.8/connector:8000",
            Some("http://connector:8000"),
        ),
        ("dns:connector:8000", Some("http://connector:8000")),
        ("passthrough:///127.0.0.1:1", Some("http://127.0.0.1:1")),
        ("[::1]:8000", Some("http://[::1]:8000")),
        ("[::1]", Some("http://[::1]:443")),
        ("", None),
        ("http://connector:8000", None),
        ("connector:8000/path", None),
        ("dns://connector:8000", None),
        ("user:password@connector:8000", None),
        (":password@connector:8000", None),
    ] {
        let found = base_url(endpoint, Transport::Plain);
        assert_eq!(found.as_deref(), expected, "{endpoint:?}");
    }
    for endpoint in ["dns:///user:canary@connector:8000", ":canary@connector"] {
        let refused = GrpcClient::new(endpoint, Transport::Plain, Permit::always()).unwrap_err();
        let shown = format!("{refused} {refused:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }
    let tls = base_url("connector:8000", Transport::Tls);
    assert_eq!(tls.as_deref(), Some("https://connector:8000"));
}
