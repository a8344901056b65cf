//! Bodies of requests and answers.

use std::{convert::Infallible, pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream::BoxStream};
use http::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_TYPE, EXPECT, RETRY_AFTER},
};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;
use tower::BoxError;
use tower_http::compression::predicate::Predicate;

use crate::server::{
    error::{ApiError, Result},
    protobuf,
};

/// The body of an answer. Each event of a watch is one frame: a line of JSON, or a message behind its length.
pub type ApiBody = UnsyncBoxBody<Bytes, BoxError>;

/// Largest request body, as upstream.
const BODY_LIMIT: usize = 3_145_728;

/// How much of a body that is too large is read and thrown away, and for how long.
const REST_LIMIT: usize = 8 << 20;
const REST_TIME: Duration = Duration::from_secs(1);

/// What a client does with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// It sends the body at once.
    AtOnce,
    /// It asks first (`Expect: 100-continue`), and the first read of the body tells it to send.
    WhenRead,
}

impl Sending {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match headers.contains_key(EXPECT) {
            true => Self::WhenRead,
            false => Self::AtOnce,
        }
    }
}

/// Reads a whole request body.
///
/// A client that sends at once reads no answer before it has sent all: the end of the connection with a rest of the body in
/// it would reset the connection, and the answer would be lost. So the rest is read, up to a limit.
pub(crate) async fn collect<B>(body: B, sending: Sending) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    // A body that says how long it is need not be kept to be refused.
    if body.size_hint().lower() > BODY_LIMIT as u64 {
        if sending == Sending::AtOnce {
            throw_away(body).await;
        }
        return Err(ApiError::too_large(BODY_LIMIT));
    }
    if let Some(whole) = read_whole(body.as_mut()).await? {
        return Ok(whole);
    }
    throw_away(body).await;
    Err(ApiError::too_large(BODY_LIMIT))
}

/// Reads a body; `None` where it is too large.
async fn read_whole<B>(mut body: Pin<&mut B>) -> Result<Option<Bytes>>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("error reading the request body: {}", error.into()))
        })?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > BODY_LIMIT {
                return Ok(None);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(Some(whole.freeze()))
}

async fn throw_away<B>(mut body: Pin<&mut B>)
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let mut left = REST_LIMIT;
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let n_bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(n_bytes) else {
                return;
            };
            left = rest;
        }
    };
    // What comes later than that is not worth a connection.
    drop(tokio::time::timeout(REST_TIME, read).await);
}

/// Decodes a body of JSON, YAML or protobuf.
pub(crate) fn decode(content_type: &str, bytes: &[u8]) -> Result<Value> {
    match content_type.split(';').next().unwrap_or("").trim() {
        "" | "application/json" | "*/*" => decode_json(bytes),
        "application/yaml" => {
            let text = std::str::from_utf8(bytes).map_err(ApiError::bad_request_from)?;
            serde_saphyr::from_str(text).map_err(ApiError::bad_request_from)
        }
        protobuf::MEDIA_TYPE => protobuf::decode(bytes),
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            protobuf::MEDIA_TYPE,
        ])),
    }
}

/// Decodes JSON.
pub(crate) fn decode_json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message =
            format!("the object provided is unrecognized (must be of type JSON): {error}");
        ApiError::bad_request(message)
    })
}

fn respond(code: StatusCode, content_type: &'static str, body: ApiBody) -> Response<ApiBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// A body that is there as a whole.
pub(crate) fn full(bytes: Bytes) -> ApiBody {
    Full::new(bytes)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// An answer of encoded JSON.
pub(crate) fn json_bytes(code: StatusCode, bytes: Bytes) -> Response<ApiBody> {
    respond(code, "application/json", full(bytes))
}

/// An answer of an object in protobuf.
pub(crate) fn protobuf_bytes(code: StatusCode, bytes: Bytes) -> Response<ApiBody> {
    respond(code, protobuf::MEDIA_TYPE, full(bytes))
}

/// An answer of a JSON value.
pub(crate) fn json(code: StatusCode, value: &Value) -> Response<ApiBody> {
    json_bytes(code, value.to_string().into())
}

/// An answer of plain text.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<ApiBody> {
    respond(code, "text/plain; charset=utf-8", full(text.into()))
}

/// The response to a client that has the document already. It has no content type: caches would take it over.
pub(crate) fn not_modified() -> Response<ApiBody> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

/// Marks a response that streams until client or server ends it: each piece must reach the client
/// at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live;

/// Marks a response whose objects have no message in protobuf, so that nobody reads them to find out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoMessage;

/// An answer that goes on.
pub(crate) fn stream(
    content_type: &'static str,
    chunks: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
) -> Response<ApiBody> {
    let mut response = respond(StatusCode::OK, content_type, pieces(chunks));
    response.extensions_mut().insert(Live);
    response
}

/// An answer of JSON that is made piece by piece.
pub(crate) fn json_chunks(
    mut chunks: impl Iterator<Item = Bytes> + Send + 'static,
) -> Response<ApiBody> {
    let first = chunks.next().unwrap_or_default();
    match chunks.next() {
        None => json_bytes(StatusCode::OK, first),
        Some(second) => {
            let all = [first, second].into_iter().chain(chunks).map(Ok);
            let body = pieces(futures::stream::iter(all));
            respond(StatusCode::OK, "application/json", body)
        }
    }
}

fn pieces(chunks: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> ApiBody {
    let frames: BoxStream<'static, _> = chunks.map(|chunk| chunk.map(Frame::data)).boxed();
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

/// Which responses are compressed: long ones that end, as upstream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compressible;

impl Predicate for Compressible {
    fn should_compress<B: http_body::Body>(&self, response: &Response<B>) -> bool {
        const SHORTEST: u64 = 128 * 1024;
        let is_live = response.extensions().get::<Live>().is_some();
        let is_long = response
            .body()
            .size_hint()
            .exact()
            .is_none_or(|n| n > SHORTEST);
        !is_live && is_long
    }
}

/// The answer to an action that leaves no object of its own behind.
pub(crate) fn done() -> Response<ApiBody> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    json(StatusCode::CREATED, &status)
}

/// The answer to a refused request.
pub(crate) fn failure(error: &ApiError) -> Response<ApiBody> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &error.to_status());
    let retry_after = error
        .details
        .as_ref()
        .and_then(|details| details.get("retryAfterSeconds"));
    if let Some(seconds) = retry_after.and_then(Value::as_u64) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    const PIECE: usize = 1 << 20;

    /// Sends pieces of 1 MiB; returns how many were read, and whether the body was refused.
    async fn read_of(n_sent: usize, ends: bool, sending: Sending) -> (usize, bool) {
        let (send, sent) = mpsc::unbounded();
        for _ in 0..n_sent {
            let piece = Bytes::from(vec![b' '; PIECE]);
            send.unbounded_send(Ok::<_, BoxError>(Frame::data(piece)))
                .unwrap();
        }
        let held = (!ends).then_some(send);
        let mut n_read = 0;
        let counted = sent.inspect(|_| n_read += 1);
        let is_refused = match collect(StreamBody::new(counted), sending).await {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.code, 413);
                true
            }
        };
        drop(held);
        (n_read, is_refused)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_body_that_is_too_large_is_read_within_limits() {
        for (n_sent, ends, n_read, is_refused) in [
            (3, true, 3, false),
            (5, true, 5, true),
            // Three pieces are kept until the fourth is too much, eight more are thrown away, and the next is beyond.
            (40, true, 4 + 8 + 1, true),
            // The client stops in its middle.
            (5, false, 5, true),
        ] {
            let found = read_of(n_sent, ends, Sending::AtOnce).await;
            assert_eq!(found, (n_read, is_refused), "{n_sent} MiB");
        }
    }

    #[tokio::test]
    async fn a_client_that_asks_first_is_not_told_to_send_what_is_too_large() {
        struct Announced(Full<Bytes>, bool);
        impl http_body::Body for Announced {
            type Data = Bytes;
            type Error = Infallible;

            fn poll_frame(
                mut self: Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                assert!(self.1, "the body is read");
                Pin::new(&mut self.0).poll_frame(context)
            }

            fn size_hint(&self) -> http_body::SizeHint {
                self.0.size_hint()
            }
        }
        for (sending, may_be_read) in [(Sending::WhenRead, false), (Sending::AtOnce, true)] {
            let body = Full::new(Bytes::from(vec![b' '; BODY_LIMIT + 1]));
            let refused = collect(Announced(body, may_be_read), sending).await;
            assert_eq!(refused.unwrap_err().code, 413);
        }
    }
}
