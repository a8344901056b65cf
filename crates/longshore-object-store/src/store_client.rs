//! The HTTP client of stores, which takes no part of a file for the file.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{
    Request, Response, StatusCode, Uri,
    header::{CONTENT_RANGE, RANGE},
};
use http_body_util::{BodyExt, Full, StreamBody};
use longshore_outbound::{Incoming, OperatorClient, Permit, RequestError, shown};
use object_store::{
    ClientOptions, Error,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use tokio::time::{Instant, timeout_at};
use tower::{ServiceExt, service_fn};
use tower_http::follow_redirect::{
    FollowRedirect,
    policy::{FilterCredentials, Limited, PolicyExt, clone_body_fn},
};

/// How long one request to a store may take, the end of its answer included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a store may send us elsewhere.
const MAX_REDIRECTS: usize = 3;

/// Makes the clients of stores: their addresses are those of the configuration, or of the machine's own credentials.
#[derive(Clone, Debug)]
pub(crate) struct OperatorNamed(pub(crate) Permit);

/// An answer without the end of the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CutOff {
    #[error("the answer of its store is cut off after {n} of {size} bytes")]
    Body { n: u64, size: u64 },
    /// By its `Content-Range`.
    #[error("its store answered with a part of it only ({0})")]
    Part(String),
}

/// A store that takes too long.
#[derive(Debug, thiserror::Error)]
#[error("its store did not answer within {0:?}")]
struct TimedOut(Duration);

impl HttpConnector for OperatorNamed {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient, Error> {
        let client = OperatorClient::new(self.0.clone());
        let client = client.map_err(|error| Error::Generic {
            store: "http",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(Whole(client)))
    }
}

/// A request without an answer. It has no source, because [`DataError::why`](crate::DataError::why) shows the last cause
/// only, and that is this one.
#[derive(Debug, thiserror::Error)]
#[error("the request to {server} failed: {why}")]
struct Unanswered {
    /// As `https://minio:9000`: without the path, and without what may be secret.
    server: String,
    /// The last of the causes.
    why: String,
}

/// Refuses parts of files that it did not ask for, and names the server of a request that failed.
#[derive(Debug)]
struct Whole(OperatorClient);

#[async_trait]
impl HttpService for Whole {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asks_for_part = request.headers().contains_key(RANGE);
        let uri = request.uri().clone();
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let answer = timeout_at(deadline, self.exchange(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(timed_out()));
        let answer = answer.map_err(|error| unanswered(&uri, &error))?;
        if asks_for_part || answer.status() != StatusCode::PARTIAL_CONTENT {
            return Ok(answer.map(|body| until(deadline, body)));
        }
        let range = answer.headers().get(CONTENT_RANGE);
        let range = range.and_then(|range| range.to_str().ok());
        let part = CutOff::Part(range.unwrap_or("of unknown range").to_owned());
        Err(HttpError::new(HttpErrorKind::Interrupted, part))
    }
}

impl Whole {
    /// Sends a request, and where the answer is where a bucket is now, sends it there.
    async fn exchange(&self, request: HttpRequest) -> Result<Response<Incoming>, HttpError> {
        let (head, body) = request.into_parts();
        let body = Full::new(body.collect().await?.to_bytes());
        let client = self.0.clone();
        let send = service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        // A signature of one host is nothing for another one.
        let clone = |body: &Full<Bytes>| Some(body.clone());
        let policy = Limited::new(MAX_REDIRECTS)
            .and::<_, Full<Bytes>, RequestError>(FilterCredentials::new())
            .and::<_, Full<Bytes>, RequestError>(clone_body_fn(clone));
        let sent = FollowRedirect::with_policy(send, policy);
        let answer = sent.oneshot(Request::from_parts(head, body)).await;
        answer.map_err(of_request)
    }
}

/// The body of an answer, which fails where it is not there in time.
fn until(deadline: Instant, body: Incoming) -> HttpResponseBody {
    let frames = stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => Some((Ok(frame), Some(body))),
            Ok(Some(Err(error))) => Some((Err(of_request(error.into())), None)),
            Ok(None) => None,
            Err(_) => Some((Err(timed_out()), None)),
        }
    });
    HttpResponseBody::new(StreamBody::new(Box::pin(frames.fuse())))
}

fn timed_out() -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, TimedOut(REQUEST_TIMEOUT))
}

/// What the library makes of it: it repeats what was not sent, and what may be sent twice.
fn of_request(error: RequestError) -> HttpError {
    let kind = match &error {
        RequestError::NotConnected(_) => HttpErrorKind::Connect,
        RequestError::Broken(_) => HttpErrorKind::Interrupted,
    };
    HttpError::new(kind, error)
}

/// The same kind of error, which names the server: of a machine's own credentials it is another one than that of the files.
fn unanswered(uri: &Uri, error: &HttpError) -> HttpError {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let why = last.to_string();
    HttpError::new(
        error.kind(),
        Unanswered {
            server: server(uri),
            why,
        },
    )
}

/// Scheme, host and port.
fn server(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}"));
    shown(&format!("{scheme}://{host}{}", port.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_without_anything_that_may_be_secret() {
        for (uri, expected) in [
            (
                "https://minio:9000/bucket/key?X-Amz-Signature=s",
                "https://minio:9000",
            ),
            (
                "https://id:secret@s3.eu.amazonaws.com/key",
                "https://s3.eu.amazonaws.com",
            ),
            ("http://[::1]:9000/", "http://[::1]:9000"),
        ] {
            assert_eq!(server(&uri.parse().unwrap()), expected);
        }
    }
}
