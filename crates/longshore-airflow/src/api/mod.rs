//! The Execution API (`/execution`), which workers of Airflow 3 talk to: routes, bodies, errors, and what differs between
//! its versions. Pure: who answers is in another crate.
//!
//! The way through: [`ApiVersion::negotiate`] reads the header, [`RawRequest::route`] finds the [`Route`], its
//! [`Access`] says whose token may use it, [`RawRequest::read`] makes a [`Request`] of it, and [`Route::write`] brings
//! the answer to the client's version. What is refused is an [`ApiError`] in upstream's form.
//!
//! Source: Airflow 3.3.2, `airflow.api_fastapi.execution_api`; its OpenAPI documents are in `testdata`.

mod answer;
pub mod asset;
mod call;
mod check;
pub mod dag_run;
mod error;
mod invalid;
pub mod query;
mod request;
mod routes;
mod schema;
pub mod schemas;
pub mod store;
pub mod task_instance;
mod time;
mod version;
mod words;

pub use answer::to_version;
pub use call::{Matched, RawRequest};
pub use error::{ApiError, CONTENT_TYPE};
pub use invalid::{InvalidRequest, LocPart, ValidationError};
pub use request::{
    Request, RunAddress, StoreRequest, TaskInstanceRequest, XComAddress, XComRequest,
};
pub use routes::{Access, Method, ROUTES, Route};
pub use schema::{Alternative, Life, Member, Others, Presence, Schema, ValueKind};
pub use time::{IsoDuration, UtcDateTime};
pub use version::{ApiVersion, HEADER_VERSION};
pub use words::{
    ConnectionTestState, DagRunState, DagRunType, IntermediateTiState, TaskInstanceState,
    TerminalStateNonSuccess,
};

/// Header of an answer: the token that the worker uses from now on.
pub const HEADER_REFRESHED_TOKEN: &str = "Refreshed-API-Token";
/// Header of the answer to `HEAD /xcoms/…`: see [`map_indexes`].
pub const HEADER_CONTENT_RANGE: &str = "Content-Range";

/// How many values of a key a task has: the range that the head of an XCom tells.
#[must_use]
pub fn map_indexes(n: u64) -> String {
    format!("map_indexes {n}")
}

/// Header of a request that its answer repeats.
pub const HEADER_CORRELATION_ID: &str = "correlation-id";

#[cfg(test)]
mod tests;
