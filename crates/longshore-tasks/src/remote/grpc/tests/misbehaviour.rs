//! Connectors that do not answer as they should: each call ends with an error of its own, is not repeated, and leaves the
//! client usable.

use longshore_test::{Answer, Conduct, ForeignServer, Received};

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// An answer with this body, framed or not, and a good status behind it.
fn answer(body: impl Into<Bytes>) -> Answer {
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, 0.into());
    Answer {
        trailers: Some(trailers),
        ..Answer::new(StatusCode::OK, GRPC, body)
    }
}

fn message(seconds: i64) -> Answer {
    answer(frame(&Timestamp { seconds, nanos: 0 }))
}

/// The error of a call to a connector that does this with each request.
async fn error_of(conduct: impl Fn(&Received) -> Conduct + Send + Sync + 'static) -> String {
    let server = ForeignServer::start(conduct).await.unwrap();
    let endpoint = server.address().to_string();
    let error = call(&endpoint, &patient(LIMIT)).await.unwrap_err();
    assert_eq!(server.n_received(), 1, "nothing is repeated: {error}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_connector_that_drips_is_silent_or_is_late_is_given_up_in_time() {
    let drips = error_of(|_| Conduct::Drips(answer(vec![0; 1000]), Duration::from_secs(1)));
    let is_silent = error_of(|_| Conduct::hangs());
    let is_late = error_of(|_| Conduct::late(message(1), 2 * LIMIT));
    for error in [drips.await, is_silent.await, is_late.await] {
        assert!(error.ends_with("did not answer within 5s"), "{error}");
    }
}

#[tokio::test]
async fn a_connector_that_answers_too_much_breaks_off_or_redirects_is_told_apart() {
    let large = error_of(|_| Conduct::Answers(answer(vec![0; 16 << 20]))).await;
    assert!(large.contains("more than 8388608 bytes"), "{large}");
    let breaks = error_of(|_| Conduct::Breaks).await;
    assert!(breaks.ends_with("did not answer"), "{breaks}");
    // To itself, for ever: it is asked once.
    let redirects = error_of(|received| {
        let mut answer = Answer::new(StatusCode::TEMPORARY_REDIRECT, GRPC, Bytes::new());
        let location = received.path.parse().unwrap();
        answer.headers.insert("location", location);
        Conduct::Answers(answer)
    });
    let redirects = redirects.await;
    assert!(redirects.contains("307 Temporary Redirect"), "{redirects}");
    // The answer to a question about something else.
    let other = error_of(|_| Conduct::Answers(answer(frame(&"another message".to_owned()))));
    let other = other.await;
    assert!(other.contains("cannot be read"), "{other}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_its_time_is_none_to_the_next_call() {
    let server = ForeignServer::start(|received| match received.number {
        0 => Conduct::late(message(1), 2 * LIMIT),
        _ => Conduct::Answers(message(2)),
    });
    let server = server.await.unwrap();
    let endpoint = server.address().to_string();
    let client = GrpcClient::new(&endpoint, Transport::Plain, Permit::always()).unwrap();
    let (request, policy) = (Timestamp::default(), patient(LIMIT));
    let late = client.call::<Timestamp>(METHOD, &request, &policy).await;
    late.unwrap_err();
    tokio::time::sleep(2 * LIMIT).await;
    let answered: Timestamp = client.call(METHOD, &request, &policy).await.unwrap();
    assert_eq!(answered.seconds, 2);
}
