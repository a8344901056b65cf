//! Answers of success, from what was found to HTTP.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE},
};
use longshore_airflow::api::{ApiError, ApiVersion, CONTENT_TYPE as JSON, Route, map_indexes};
use serde::Serialize;

use crate::{
    json_text::JsonText,
    state::{StateError, StateResult},
};

/// An answer of success. Its status is that of the route.
pub(crate) enum Reply {
    /// No body.
    Empty,
    /// No body, and the status 200: nothing had to be done.
    Already,
    /// A body.
    Json(Bytes),
    /// A body in pieces, because one of them may be large.
    Pieces(Vec<Bytes>),
    /// A list whose items are read while they are sent.
    List(BoxStream<'static, StateResult<JsonText>>),
    /// The head of an XCom.
    MapIndexes(u64),
}

impl Reply {
    /// A body of a type, as the client's version has it.
    pub(crate) fn of(
        route: &Route,
        answer: &impl Serialize,
        version: ApiVersion,
    ) -> StateResult<Self> {
        let body = route.write(answer, version);
        let body = body.and_then(|body| serde_json::to_vec(&body));
        Ok(Self::Json(body.map_err(StateError::unavailable)?.into()))
    }

    /// The answer over HTTP.
    ///
    /// # Errors
    /// The first item of a list cannot be read. With a later one the connection breaks off.
    pub(crate) async fn into_response(self, route: &Route) -> StateResult<Response> {
        let status = StatusCode::from_u16(route.status).unwrap_or(StatusCode::OK);
        Ok(match self {
            Self::Empty => status.into_response(),
            Self::Already => StatusCode::OK.into_response(),
            Self::Json(body) => json(status, Body::from(body)),
            Self::Pieces(pieces) => {
                let pieces = stream::iter(pieces.into_iter().map(Ok::<_, StateError>));
                json(status, Body::from_stream(pieces))
            }
            Self::List(mut items) => {
                let first = items.next().await.transpose()?;
                let items = stream::iter(first.map(Ok)).chain(items);
                json(status, Body::from_stream(list(items)))
            }
            Self::MapIndexes(n) => {
                let mut response = status.into_response();
                if let Ok(range) = HeaderValue::from_str(&map_indexes(n)) {
                    response.headers_mut().insert(CONTENT_RANGE, range);
                }
                response
            }
        })
    }
}

/// `[`, the items with commas between them, `]`.
fn list(
    items: impl Stream<Item = StateResult<JsonText>> + Send + 'static,
) -> impl Stream<Item = StateResult<Bytes>> + Send + 'static {
    let items = items.enumerate().flat_map(|(place, item)| {
        let comma = (place > 0).then(|| Ok(Bytes::from_static(b",")));
        let item = item.map(|text| text.bytes());
        stream::iter(comma.into_iter().chain([item]))
    });
    let bracket = |text: &'static [u8]| stream::iter([Ok(Bytes::from_static(text))]);
    bracket(b"[").chain(items).chain(bracket(b"]"))
}

/// An error, in the shape that the task SDK reads.
pub(crate) fn refused(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(status, Body::from(error.body().to_string()))
}

fn json(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(JSON);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
