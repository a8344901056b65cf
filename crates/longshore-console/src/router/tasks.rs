//! Task instances below their run.

use axum::{Json, extract::State};
use serde::Deserialize;

use super::{
    Shared,
    extract::{Body, InRun, InTask, Params, words},
};
use crate::{
    objects::{Clear, List, TASK_STATES, Task},
    problem::Problem,
};

#[derive(Deserialize)]
pub(super) struct ListParams {
    state: Option<String>,
}

pub(super) async fn list(
    State(shared): State<Shared>,
    InRun(run): InRun,
    Params(params): Params<ListParams>,
) -> Result<Json<List<Task>>, Problem> {
    let states = words(params.state.as_deref(), TASK_STATES)?;
    let mut tasks = shared.control.tasks(&run).await?;
    tasks.retain(|task| {
        let state = task.state.as_deref().unwrap_or("waiting");
        states.is_empty() || states.iter().any(|wanted| wanted == state)
    });
    Ok(Json(List::of(tasks)))
}

pub(super) async fn get(
    State(shared): State<Shared>,
    InTask(task): InTask,
) -> Result<Json<Task>, Problem> {
    Ok(Json(shared.control.task(&task).await?))
}

pub(super) async fn clear(
    State(shared): State<Shared>,
    InTask(task): InTask,
    Body(clear): Body<Clear>,
) -> Result<Json<List<Task>>, Problem> {
    Ok(Json(List::of(shared.control.clear(&task, clear).await?)))
}
