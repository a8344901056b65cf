//! Whether the service lives, and whether it can serve. Both paths are public: they reveal nothing else.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::extract::Params;
use crate::{control::Checks, objects::Check};

/// The state of the health endpoints: the checks, and whether the process stops.
#[derive(Clone)]
pub(super) struct Health {
    pub(super) checks: Arc<dyn Checks>,
    pub(super) stopping: CancellationToken,
}

/// 200 while the loops of the process turn. 503 makes Kubernetes restart it, so only failures that
/// a restart repairs count.
pub(super) async fn live(
    State(health): State<Health>,
    Params(Verbose { verbose }): Params<Verbose>,
) -> Response {
    answer(&health.checks.vital_signs(), verbose, "not alive")
}

#[derive(Deserialize)]
pub(super) struct Verbose {
    verbose: Option<String>,
}

/// 200 while the process can serve, else 503. `?verbose` lists the checks, without the causes, which the log has.
pub(super) async fn ready(
    State(health): State<Health>,
    Params(Verbose { verbose }): Params<Verbose>,
) -> Response {
    let mut checks = health.checks.checks().await;
    checks.push(Check {
        name: "shutdown".to_owned(),
        problem: health
            .stopping
            .is_cancelled()
            .then(|| "the service is stopping".to_owned()),
    });
    answer(&checks, verbose, "not ready")
}

fn answer(checks: &[Check], verbose: Option<String>, bad: &str) -> Response {
    let mut text = String::new();
    let mut status = StatusCode::OK;
    for check in checks {
        let (sign, word) = match &check.problem {
            None => ('+', "ok"),
            Some(problem) => {
                status = StatusCode::SERVICE_UNAVAILABLE;
                tracing::debug!(check = check.name, problem, bad);
                ('-', "failed")
            }
        };
        text.push_str(&format!("[{sign}]{} {word}\n", check.name));
    }
    if status == StatusCode::OK && verbose.is_none() {
        text.clear();
    }
    text.push_str(if status == StatusCode::OK { "ok" } else { bad });
    text.push('\n');
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (status, content_type, text).into_response()
}
