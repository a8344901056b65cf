//! Airflow's Task Execution API over HTTP, which workers of Airflow 3 talk to (spec: DAG scheduler, 3 and 4).
//!
//! `longshore-airflow` knows the words: routes, bodies, versions, tokens. This crate is the service in front of them: it
//! admits a request by its token, reads its body within limits, asks [`ExecutionState`], and writes the answer in the
//! version and the shape that the task SDK reads. What a task instance is, and where its values are kept, is known to
//! whoever implements [`ExecutionState`]: neither scheduler nor SQL is here.
//!
//! Read [`ExecutionState`] first, then [`router`]. A request goes through `service` (version, route, token, fence), `body`
//! (limits) and `answer` (one file for each noun).
//!
//! **Invariants.** A token of an earlier try writes nothing. No answer is made before what it promises is durable:
//! [`ExecutionState`] says for each question what that is. Every error is `{"detail": …}` with the content type
//! `application/json`, else the worker loses the reason.

mod answer;
mod body;
mod json_text;
mod measures;
mod reply;
mod service;
mod state;

pub use body::BodyLimits;
pub use json_text::JsonText;
pub use measures::Measures;
pub use service::{ApiConfig, router};
pub use state::{Change, ExecutionState, Standing, StateError, StateResult};
