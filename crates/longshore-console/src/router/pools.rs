//! `/pools`: how many slots tasks share.

use axum::{Json, extract::State};
use http::StatusCode;

use super::{
    Shared,
    extract::{Body, PoolName},
};
use crate::{
    objects::{List, Pool, PoolSize},
    problem::Problem,
};

pub(super) async fn list(State(shared): State<Shared>) -> Result<Json<List<Pool>>, Problem> {
    Ok(Json(List::of(shared.control.pools().await?)))
}

pub(super) async fn set(
    State(shared): State<Shared>,
    PoolName(name): PoolName,
    Body(PoolSize { slots }): Body<PoolSize>,
) -> Result<Json<Pool>, Problem> {
    let slots = slots.ok_or_else(|| {
        Problem::bad_request(
            StatusCode::BAD_REQUEST,
            "expected {\"slots\": NUMBER}, found no number of slots",
        )
    })?;
    let pool = Pool {
        name,
        slots,
        file: None,
    };
    Ok(Json(shared.control.set_pool(pool).await?))
}

pub(super) async fn delete(
    State(shared): State<Shared>,
    PoolName(name): PoolName,
) -> Result<Json<Pool>, Problem> {
    Ok(Json(shared.control.delete_pool(&name).await?))
}
