//! Answers calls, for the services that standalone offers itself.

use std::future::Future;

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE};
use prost::Message;

use crate::{Code, JSON, PROTO, WireError};

/// A service says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// The same for people.
    pub message: String,
}

impl Refusal {
    /// A refusal with this code and these words.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// The answer to one call: what `work` makes of its message.
pub async fn answer<Q, A, W>(
    headers: &HeaderMap,
    body: &Bytes,
    work: impl FnOnce(Q) -> W,
) -> Response
where
    Q: Message + Default,
    A: Message,
    W: Future<Output = Result<A, Refusal>>,
{
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind != Some(PROTO.as_bytes()) {
        // Connect's way to say which encodings are spoken.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let accepted = HeaderValue::from_static(PROTO);
        response.headers_mut().insert("accept-post", accepted);
        return response;
    }
    let answered = match Q::decode(body.as_ref()) {
        Ok(request) => work(request).await,
        Err(error) => Err(Refusal::new(Code::InvalidArgument, error.to_string())),
    };
    match answered {
        Ok(answer) => response(StatusCode::OK, PROTO, answer.encode_to_vec()),
        Err(Refusal { code, message }) => {
            let error = WireError {
                code: code.name().to_owned(),
                message,
            };
            let body = serde_json::to_vec(&error).unwrap_or_default();
            response(code.status(), JSON, body)
        }
    }
}

fn response(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
