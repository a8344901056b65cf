//! The outermost layers: request ids, problems written out, deadlines, panics.

use std::any::Any;

use axum::{
    body::Body,
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tracing::Instrument;
use uuid::Uuid;

use super::ANSWER_TIMEOUT;
use crate::problem::{self, Problem};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Assigns every request an id, sets the headers of every response, and writes out problems.
pub(super) async fn finish(request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let span = tracing::info_span!("request", request_id = %id, %method, %path);
    let mut response = next.run(request).instrument(span.clone()).await;
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.instance = path.into();
        problem.request_id = id.as_str().into();
        let _entered = span.enter();
        tracing::debug!(code = %problem.code, detail = %problem.detail, "refused");
        write(&mut response, &problem);
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // States are out of date at once, and a shared cache must not keep what needed a token.
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

fn write(response: &mut Response, problem: &Problem) {
    let body = serde_json::to_vec(problem).unwrap_or_default();
    *response.body_mut() = Body::from(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(problem::CONTENT_TYPE),
    );
    headers.remove(header::CONTENT_LENGTH);
    if problem.status == 401 {
        headers.insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"longshore\""),
        );
    }
}

/// The caller's own id where it has a sensible one, so that it finds its request in our log; else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let is_sensible = |id: &&str| {
        (1..=64).contains(&id.len())
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    headers
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .filter(is_sensible)
        .map_or_else(|| Uuid::new_v4().to_string(), str::to_owned)
}

/// Bounds the time until an answer begins: a body that comes in drops, a handler that waits for a lost database.
pub(super) async fn deadline(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::busy(format!(
            "the request was not answered within {} seconds",
            ANSWER_TIMEOUT.as_secs()
        ))
        .into_response(),
    }
}

/// A panic in a handler is a bug of ours; the others go on.
pub(super) fn panicked(_payload: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a request handler panicked");
    Problem::internal().into_response()
}
