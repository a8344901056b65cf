//! Whether the service lives, and whether it can serve. Both are public: they tell nothing else.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::extract::Params;
use crate::control::Checks;

/// What health is asked of.
#[derive(Clone)]
pub(super) struct Health {
    pub(super) checks: Arc<dyn Checks>,
    pub(super) stopping: CancellationToken,
}

/// It lives: whoever reads this was answered.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

#[derive(Deserialize)]
pub(super) struct Verbose {
    verbose: Option<String>,
}

/// It can serve, or not: 503. `?verbose` lists what was checked, without the causes, which the log has.
pub(super) async fn ready(
    State(health): State<Health>,
    Params(Verbose { verbose }): Params<Verbose>,
) -> Response {
    let mut checks = health.checks.checks().await;
    checks.push(crate::objects::Check {
        name: "shutdown".to_owned(),
        problem: health
            .stopping
            .is_cancelled()
            .then(|| "the service is stopping".to_owned()),
    });
    let mut text = String::new();
    let mut status = StatusCode::OK;
    for check in checks {
        let (sign, word) = match &check.problem {
            None => ('+', "ok"),
            Some(problem) => {
                status = StatusCode::SERVICE_UNAVAILABLE;
                tracing::debug!(check = check.name, problem, "not ready");
                ('-', "failed")
            }
        };
        text.push_str(&format!("[{sign}]{} {word}\n", check.name));
    }
    if status == StatusCode::OK && verbose.is_none() {
        text.clear();
    }
    text.push_str(if status == StatusCode::OK {
        "ok\n"
    } else {
        "not ready\n"
    });
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (status, content_type, text).into_response()
}
