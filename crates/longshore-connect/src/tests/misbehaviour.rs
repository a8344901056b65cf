//! Services that do not answer as they should: each call ends with an error of its own, is not repeated, and leaves the
//! client usable.

use bytes::Bytes;
use longshore_test::{Answer, Conduct, ForeignServer, Received};
use prost::Message;

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

fn message(seconds: i64) -> Answer {
    let message = Timestamp { seconds, nanos: 0 }.encode_to_vec();
    Answer::new(StatusCode::OK, PROTO, message)
}

/// The error of a call to a service that does this with each request.
async fn error_of(conduct: impl Fn(&Received) -> Conduct + Send + Sync + 'static) -> String {
    let server = ForeignServer::start(conduct).await.unwrap();
    let client = ConnectClient::new(&server.url(), Permit::always())
        .unwrap()
        .waiting(LIMIT);
    let error = ask(&client).await.unwrap_err();
    assert_eq!(error.class(), Class::Retry, "{error}");
    assert_eq!(server.n_received(), 1, "nothing is repeated: {error}");
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_drips_is_silent_or_is_late_is_given_up_in_time() {
    let drips = error_of(|_| {
        let slow = Answer::new(StatusCode::OK, PROTO, vec![0; 1000]);
        Conduct::Drips(slow, Duration::from_secs(1))
    });
    let refuses_slowly = error_of(|_| {
        let slow = Answer::new(StatusCode::BAD_GATEWAY, "text/html", vec![b'x'; 1000]);
        Conduct::Drips(slow, Duration::from_secs(1))
    });
    let is_silent = error_of(|_| Conduct::hangs());
    let is_late = error_of(|_| Conduct::late(message(1), 2 * LIMIT));
    for error in [
        drips.await,
        refuses_slowly.await,
        is_silent.await,
        is_late.await,
    ] {
        assert!(error.ends_with("did not answer within 5s"), "{error}");
    }
}

#[tokio::test]
async fn a_service_that_answers_too_much_breaks_off_or_redirects_is_told_apart() {
    let large = || Answer::new(StatusCode::OK, PROTO, vec![0; 16 << 20]);
    let large = error_of(move |_| Conduct::Answers(large())).await;
    assert!(large.contains("more than 8388608 bytes"), "{large}");
    let refuses = || Answer::new(StatusCode::BAD_GATEWAY, "text/html", vec![b'x'; 16 << 20]);
    let refuses = error_of(move |_| Conduct::Answers(refuses())).await;
    assert!(refuses.contains("more than 8388608 bytes"), "{refuses}");
    let breaks = error_of(|_| Conduct::Breaks).await;
    assert!(breaks.ends_with("did not answer"), "{breaks}");
    // To itself, for ever: it is asked once.
    let redirects = error_of(|received| {
        let mut answer = Answer::new(StatusCode::TEMPORARY_REDIRECT, "text/plain", Bytes::new());
        let location = received.path.parse().unwrap();
        answer.headers.insert("location", location);
        Conduct::Answers(answer)
    });
    let redirects = redirects.await;
    assert!(redirects.contains("307 Temporary Redirect"), "{redirects}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_its_time_is_none_to_the_next_call() {
    let server = ForeignServer::start(|received| match received.number {
        0 => Conduct::late(message(1), 2 * LIMIT),
        _ => Conduct::Answers(message(2)),
    });
    let server = server.await.unwrap();
    let client = ConnectClient::new(&server.url(), Permit::always())
        .unwrap()
        .waiting(LIMIT);
    ask(&client).await.unwrap_err();
    tokio::time::sleep(2 * LIMIT).await;
    assert_eq!(ask(&client).await.unwrap().seconds, 2);
}
