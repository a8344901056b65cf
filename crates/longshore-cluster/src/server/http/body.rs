//! Bodies of requests and answers.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;
use tower::BoxError;

use crate::server::error::{ApiError, Result};

/// The body of an answer.
pub type ApiBody = UnsyncBoxBody<Bytes, BoxError>;

/// Largest request body, as upstream.
const BODY_LIMIT: usize = 3_145_728;

/// Reads a whole request body.
pub(crate) async fn collect<B>(body: B) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("error reading the request body: {}", error.into()))
        })?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > BODY_LIMIT {
                return Err(ApiError::too_large(BODY_LIMIT));
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// Decodes a JSON or YAML body.
pub(crate) fn decode(content_type: &str, bytes: &[u8]) -> Result<Value> {
    match content_type.split(';').next().unwrap_or("").trim() {
        "" | "application/json" | "*/*" => decode_json(bytes),
        "application/yaml" => {
            let text = std::str::from_utf8(bytes).map_err(ApiError::bad_request_from)?;
            serde_saphyr::from_str(text).map_err(ApiError::bad_request_from)
        }
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json",
            "application/yaml",
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

fn full(bytes: Bytes) -> ApiBody {
    Full::new(bytes)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// An answer of encoded JSON.
pub(crate) fn json_bytes(code: StatusCode, bytes: Bytes) -> Response<ApiBody> {
    respond(code, "application/json", full(bytes))
}

/// An answer of a JSON value.
pub(crate) fn json(code: StatusCode, value: &Value) -> Response<ApiBody> {
    json_bytes(code, value.to_string().into())
}

/// An answer of plain text.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<ApiBody> {
    respond(code, "text/plain; charset=utf-8", full(text.into()))
}

/// An answer that goes on.
pub(crate) fn stream(
    content_type: &'static str,
    chunks: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
) -> Response<ApiBody> {
    let frames: BoxStream<'static, _> = chunks.map(|chunk| chunk.map(Frame::data)).boxed();
    respond(
        StatusCode::OK,
        content_type,
        BodyExt::boxed_unsync(StreamBody::new(frames)),
    )
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
