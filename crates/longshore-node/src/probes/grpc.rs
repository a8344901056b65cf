//! The health service of gRPC (`grpc.health.v1.Health/Check`), as far as a probe needs it: one question, one answer.

use std::pin::pin;

use bytes::Bytes;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;

/// No health answer is longer.
const LONGEST_ANSWER: usize = 16 * 1024;
/// gRPC's code of a method that the server does not have.
const UNIMPLEMENTED: &str = "12";
/// The only status of a service that is a success.
const SERVING: u64 = 1;
/// The names of the states, by their numbers.
const STATES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// Asks the server behind a connection for the health of a service.
pub(super) async fn check(stream: TcpStream, authority: &str, service: &str) -> Result<(), String> {
    let failed = |e: h2::Error| format!("gRPC health check of {authority}: {e}");
    let (sender, connection) = h2::client::handshake(stream).await.map_err(failed)?;
    let mut answer = pin!(exchange(sender, authority, service));
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = connection => {
            ended.map_err(failed)?;
            // What has arrived before the end can still be read.
            answer.await
        }
    }
}

async fn exchange(
    sender: h2::client::SendRequest<Bytes>,
    authority: &str,
    service: &str,
) -> Result<(), String> {
    let failed = |e: h2::Error| format!("gRPC health check of {authority}: {e}");
    let request = Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.34")
        .body(())
        .map_err(|e| format!("gRPC health check of {authority}: {e}"))?;
    let mut sender = sender.ready().await.map_err(failed)?;
    let (response, mut body) = sender.send_request(request, false).map_err(failed)?;
    body.send_data(question(service).into(), true)
        .map_err(failed)?;
    let response = response.await.map_err(failed)?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!(
            "gRPC health check of {authority}: expected an answer of gRPC, found HTTP status {status}"
        ));
    }
    // A call that fails at once has no trailers: its headers say how it ended.
    let head = response.headers().clone();
    let mut stream = response.into_body();
    let mut answer = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.map_err(failed)?;
        answer.extend_from_slice(&data);
        if answer.len() > LONGEST_ANSWER {
            return Err(format!(
                "gRPC health check of {authority}: the answer is too long"
            ));
        }
        stream
            .flow_control()
            .release_capacity(data.len())
            .map_err(failed)?;
    }
    let trailers = stream.trailers().await.map_err(failed)?;
    outcome(&answer, trailers.as_ref().unwrap_or(&head))
}

/// The message `HealthCheckRequest{service = 1}` in the frame of gRPC.
fn question(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        put_varint(&mut message, service.len());
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend(message);
    frame
}

fn put_varint(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// What an answer and its end say.
fn outcome(answer: &[u8], end: &HeaderMap) -> Result<(), String> {
    let text = |name: &str| end.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => {}
        Some(UNIMPLEMENTED) => {
            let why = "the server does not implement the health service (grpc.health.v1.Health)";
            return Err(why.into());
        }
        Some(code) => {
            let message = text("grpc-message").unwrap_or_default();
            return Err(format!(
                "the health service answered with code {code}: {message}"
            ));
        }
        None => return Err("the answer of the health service has no end".into()),
    }
    let Some(state) = answer.get(5..).and_then(state) else {
        return Err("the answer of the health service is no HealthCheckResponse".into());
    };
    if state == SERVING {
        return Ok(());
    }
    let index = usize::try_from(state).unwrap_or(usize::MAX);
    let name = STATES.get(index).copied().unwrap_or("another state");
    Err(format!("service unhealthy (responded with {name:?})"))
}

/// The number in `HealthCheckResponse{status = 1}`; 0 when it is left out. `None`: it is another message.
fn state(message: &[u8]) -> Option<u64> {
    let Some((tag, rest)) = message.split_first() else {
        return Some(0);
    };
    let (value, more) = rest.split_first()?;
    // The states are small: one byte.
    (*tag == 0x08 && more.is_empty() && *value < 0x80).then(|| u64::from(*value))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::{outcome, question};

    #[test]
    fn a_question_names_the_service() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = "x".repeat(300);
        assert_eq!(question(&long)[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    }

    #[test]
    fn only_a_service_that_serves_is_healthy() {
        for (answer, status, expected) in [
            (&[0, 0, 0, 0, 2, 8, 1][..], Some("0"), "ok"),
            (&[0, 0, 0, 0, 2, 8, 2][..], Some("0"), "NOT_SERVING"),
            (&[0, 0, 0, 0, 0][..], Some("0"), "UNKNOWN"),
            (&[0, 0, 0, 0, 2, 8, 9][..], Some("0"), "another state"),
            (
                &[0, 0, 0, 0, 2, 16, 1][..],
                Some("0"),
                "no HealthCheckResponse",
            ),
            (&[][..], Some("0"), "no HealthCheckResponse"),
            (&[][..], Some("12"), "does not implement"),
            (&[][..], Some("5"), "code 5: no such service"),
            (&[0, 0, 0, 0, 2, 8, 1][..], None, "no end"),
        ] {
            let mut end = HeaderMap::new();
            if let Some(status) = status {
                end.insert("grpc-status", status.parse().unwrap());
                end.insert("grpc-message", "no such service".parse().unwrap());
            }
            let told = outcome(answer, &end).map_or_else(|why| why, |()| "ok".into());
            assert!(told.contains(expected), "{answer:?} {status:?}: {told}");
        }
    }
}
