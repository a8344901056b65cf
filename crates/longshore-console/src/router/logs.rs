//! Logs, as the task wrote them: bytes, not text. The client that shows them handles control characters.

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use http::header;
use serde::Deserialize;

use super::{
    Shared,
    extract::{InTask, Params},
};
use crate::{
    control::{LogQuery, Until},
    problem::Problem,
};

#[derive(Deserialize)]
pub(super) struct LogParams {
    attempt: Option<u32>,
    tail: Option<usize>,
    follow: Option<bool>,
}

pub(super) async fn read(
    State(shared): State<Shared>,
    InTask(task): InTask,
    Params(params): Params<LogParams>,
) -> Result<Response, Problem> {
    let query = LogQuery {
        attempt: params.attempt,
        tail: params.tail,
        until: match params.follow {
            Some(true) => Until::End,
            Some(false) | None => Until::Now,
        },
    };
    let log = shared.control.logs(&task, query).await?;
    let log = log.take_until(shared.stopping.clone().cancelled_owned());
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((content_type, Body::from_stream(log)).into_response())
}
