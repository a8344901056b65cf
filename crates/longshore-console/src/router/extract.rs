//! What handlers take out of a request. What is wrong with it becomes a problem that says where.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use http::{StatusCode, header, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};

use super::MAX_BODY_BYTES;
use crate::{
    names::{RunName, TaskName, is_id},
    problem::Problem,
};

/// The JSON of the body; an empty body is an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let content_type = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes =
            Bytes::from_request(request, state)
                .await
                .map_err(|rejection| match rejection.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => Problem::bad_request(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        format!("the body is larger than {MAX_BODY_BYTES} bytes"),
                    ),
                    _ => Problem::bad_request(
                        StatusCode::BAD_REQUEST,
                        "the body cannot be read to its end",
                    ),
                })?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        let essence = content_type
            .as_ref()
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .unwrap_or("no content type")
            .trim();
        if !["application/json", "application/merge-patch+json"].contains(&essence) {
            return Err(Problem::bad_request(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("expected a body of application/json, found {essence:?}"),
            ));
        }
        // An array would be taken for the values of the fields in their order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Problem::bad_request(
                StatusCode::BAD_REQUEST,
                "expected a JSON object as the body",
            ));
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|why| {
            Problem::bad_request(
                StatusCode::BAD_REQUEST,
                format!("the body is not the JSON that was expected: {why}"),
            )
        })
    }
}

/// The parameters after the `?`.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(Problem::bad_request(
                StatusCode::BAD_REQUEST,
                rejection.body_text(),
            )),
        }
    }
}

/// The DAG in the path.
pub(super) struct DagId(pub(super) String);

/// The pool in the path.
pub(super) struct PoolName(pub(super) String);

/// The run in the path.
pub(super) struct InRun(pub(super) RunName);

/// The task in the path, and the query's `mapIndex`.
pub(super) struct InTask(pub(super) TaskName);

#[derive(Deserialize)]
struct DagPath {
    dag_id: String,
}

#[derive(Deserialize)]
struct PoolPath {
    pool: String,
}

#[derive(Deserialize)]
struct RunPath {
    dag_id: String,
    run_id: String,
}

#[derive(Deserialize)]
struct TaskPath {
    task_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MapIndex {
    map_index: Option<i32>,
}

async fn path<T, S>(parts: &mut Parts, state: &S) -> Result<T, Problem>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    match Path::<T>::from_request_parts(parts, state).await {
        Ok(Path(path)) => Ok(path),
        Err(rejection) => Err(Problem::bad_request(
            StatusCode::BAD_REQUEST,
            rejection.body_text(),
        )),
    }
}

/// Refuses a text that can be no id, before the service searches for it or logs it.
fn id(text: String) -> Result<String, Problem> {
    if is_id(&text) {
        return Ok(text);
    }
    let shown: String = text.chars().take(32).collect();
    Err(Problem::bad_request(
        StatusCode::BAD_REQUEST,
        format!("an id has 1 to 250 characters and no control characters, found {shown:?}"),
    ))
}

impl<S: Send + Sync> FromRequestParts<S> for DagId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let DagPath { dag_id } = path(parts, state).await?;
        Ok(Self(id(dag_id)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PoolName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let PoolPath { pool } = path(parts, state).await?;
        Ok(Self(id(pool)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RunPath { dag_id, run_id } = path(parts, state).await?;
        Ok(Self(RunName {
            dag_id: id(dag_id)?,
            run_id: id(run_id)?,
        }))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InTask {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let InRun(run) = InRun::from_request_parts(parts, state).await?;
        let TaskPath { task_id } = path(parts, state).await?;
        let Params(MapIndex { map_index }) = Params::from_request_parts(parts, state).await?;
        Ok(Self(TaskName {
            run,
            task_id: id(task_id)?,
            map_index: map_index.unwrap_or(-1),
        }))
    }
}

/// The words of a comma-separated filter, all of which must be known.
pub(super) fn words(given: Option<&str>, known: &[&str]) -> Result<Vec<String>, Problem> {
    let words = given.unwrap_or_default().split(',');
    words
        .filter(|word| !word.is_empty())
        .map(|word| {
            if known.contains(&word) {
                return Ok(word.to_owned());
            }
            let shown: String = word.chars().take(32).collect();
            Err(Problem::bad_request(
                StatusCode::BAD_REQUEST,
                format!("expected one of {}, found {shown:?}", known.join(", ")),
            ))
        })
        .collect()
}
