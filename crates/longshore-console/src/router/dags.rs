//! `/dags`: the DAGs that the service knows.

use axum::{Json, extract::State, response::IntoResponse};
use http::StatusCode;

use super::{
    Shared,
    extract::{Body, DagId},
};
use crate::{
    control::Pause,
    names::is_new_run_id,
    objects::{Dag, DagPatch, ImportError, List, Trigger},
    problem::Problem,
};

pub(super) async fn list(State(shared): State<Shared>) -> Result<Json<List<Dag>>, Problem> {
    Ok(Json(List::of(shared.control.dags().await?)))
}

/// As Airflow calls the files that it cannot read.
pub(super) async fn import_errors(
    State(shared): State<Shared>,
) -> Result<Json<List<ImportError>>, Problem> {
    Ok(Json(List::of(shared.control.import_errors().await?)))
}

pub(super) async fn show(
    State(shared): State<Shared>,
    DagId(dag_id): DagId,
) -> Result<Json<Dag>, Problem> {
    Ok(Json(shared.control.dag(&dag_id).await?))
}

pub(super) async fn patch(
    State(shared): State<Shared>,
    DagId(dag_id): DagId,
    Body(patch): Body<DagPatch>,
) -> Result<Json<Dag>, Problem> {
    let dag = match patch.is_paused {
        None => shared.control.dag(&dag_id).await,
        Some(true) => shared.control.set_pause(&dag_id, Pause::Paused).await,
        Some(false) => shared.control.set_pause(&dag_id, Pause::Active).await,
    };
    Ok(Json(dag?))
}

pub(super) async fn trigger(
    State(shared): State<Shared>,
    DagId(dag_id): DagId,
    Body(trigger): Body<Trigger>,
) -> Result<impl IntoResponse, Problem> {
    if let Some(run_id) = &trigger.run_id
        && !is_new_run_id(run_id)
    {
        let shown: String = run_id.chars().take(32).collect();
        return Err(Problem::bad_request(
            StatusCode::BAD_REQUEST,
            format!(
                "expected a run id of at most 250 letters, digits and any of _.~:+-, found {shown:?}"
            ),
        ));
    }
    let run = shared.control.trigger(&dag_id, trigger).await?;
    Ok((StatusCode::CREATED, Json(run)))
}
