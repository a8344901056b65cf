//! `/runs`, and one run below its DAG.

use axum::{Json, extract::State, response::IntoResponse};
use http::StatusCode;
use serde::Deserialize;

use super::{
    Shared,
    extract::{InRun, Params, words},
};
use crate::{
    control::RunQuery,
    names::RunName,
    objects::{List, RUN_STATES, Run, Task},
    problem::Problem,
};

/// Runs on a page, where the query does not say.
const DEFAULT_LIMIT: usize = 50;
/// Runs on a page at most.
const MAX_LIMIT: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListParams {
    dag_id: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Newest first; a page continues after the last run of the page before, whatever was created meanwhile.
pub(super) async fn list(
    State(shared): State<Shared>,
    Params(params): Params<ListParams>,
) -> Result<Json<List<Run>>, Problem> {
    let after = params.next.map(|next| next.parse::<RunName>()).transpose();
    let after = after.map_err(|why| {
        Problem::bad_request(
            StatusCode::BAD_REQUEST,
            format!("the value of continue is not one of ours: {why}"),
        )
    })?;
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 {
        return Err(Problem::bad_request(
            StatusCode::BAD_REQUEST,
            "expected a limit of at least 1, found 0",
        ));
    }
    let query = RunQuery {
        dag_id: params.dag_id,
        states: words(params.state.as_deref(), RUN_STATES)?,
        limit: limit.min(MAX_LIMIT),
        after,
    };
    let page = shared.control.runs(&query).await?;
    let last = page.runs.last().filter(|_| page.has_more);
    let next = last.map(|run| format!("{}/{}", run.dag_id, run.run_id));
    Ok(Json(List {
        next,
        ..List::of(page.runs)
    }))
}

pub(super) async fn get(
    State(shared): State<Shared>,
    InRun(run): InRun,
) -> Result<Json<Run>, Problem> {
    Ok(Json(shared.control.run(&run).await?))
}

/// 202: the run ends when its pods have.
pub(super) async fn cancel(
    State(shared): State<Shared>,
    InRun(run): InRun,
) -> Result<impl IntoResponse, Problem> {
    let run = shared.control.cancel(&run).await?;
    Ok((StatusCode::ACCEPTED, Json(run)))
}

pub(super) async fn retry(
    State(shared): State<Shared>,
    InRun(run): InRun,
) -> Result<Json<List<Task>>, Problem> {
    Ok(Json(List::of(shared.control.retry(&run).await?)))
}
