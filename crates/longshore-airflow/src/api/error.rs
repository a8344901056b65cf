//! Answers that are errors: a status, and a body `{"detail": …}` in the shapes that the task SDK reads.
//!
//! The content type of such an answer must be exactly `application/json`, else the worker loses the reason (spec 3.2).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    invalid::{InvalidRequest, LocPart, ValidationError},
    store::MAX_STORE_VALUE,
    version::{ApiVersion, HEADER_VERSION},
    words::TaskInstanceState,
};

/// The content type of every error.
pub const CONTENT_TYPE: &str = "application/json";

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    status: u16,
    detail: Detail,
}

/// What the `detail` of an error holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Detail {
    /// The request is invalid: FastAPI's list of problems.
    Invalid(Vec<ValidationError>),
    /// A reason that a program reads, a message, and facts about it.
    Reason {
        reason: String,
        message: String,
        #[serde(flatten)]
        facts: Map<String, Value>,
    },
    /// A message alone.
    Text(String),
}

impl ApiError {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The `reason` of the detail, where it has one: `invalid_state`, `not_found`, ….
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.detail {
            Detail::Reason { reason, .. } => Some(reason),
            Detail::Invalid(_) | Detail::Text(_) => None,
        }
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({ "detail": self.detail })
    }

    /// Reads an answer of this form; `None` for a body of another form.
    #[must_use]
    pub fn read(status: u16, body: &Value) -> Option<Self> {
        let detail = Detail::deserialize(body.get("detail")?).ok()?;
        Some(Self { status, detail })
    }

    fn text(status: u16, message: impl Into<String>) -> Self {
        let detail = Detail::Text(message.into());
        Self { status, detail }
    }

    fn with(
        status: u16,
        reason: &str,
        message: impl Into<String>,
        facts: &[(&str, Value)],
    ) -> Self {
        let facts = facts.iter();
        let detail = Detail::Reason {
            reason: reason.to_owned(),
            message: message.into(),
            facts: facts
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        };
        Self { status, detail }
    }

    fn not_found(message: impl Into<String>) -> Self {
        Self::with(404, "not_found", message, &[])
    }

    // The way in: version, route, token, body.

    /// 404: there is no such path in this version.
    #[must_use]
    pub fn no_route() -> Self {
        Self::text(404, "Not Found")
    }

    /// 405: the path exists, but not with this method.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::text(405, "Method Not Allowed")
    }

    /// 422: the header names no version.
    #[must_use]
    pub fn invalid_version(header: &str) -> Self {
        let error = ValidationError {
            kind: "date_from_datetime_parsing".to_owned(),
            loc: vec![LocPart::from("header"), LocPart::from(HEADER_VERSION)],
            msg: "Input should be a valid date or datetime, expected a date such as 2026-06-30"
                .to_owned(),
            input: header.into(),
            ctx: None,
        };
        InvalidRequest(vec![error]).into()
    }

    /// 404: the client speaks a version that is no longer served.
    #[must_use]
    pub fn version_too_old(header: &str) -> Self {
        let oldest = ApiVersion::OLDEST;
        Self::text(
            404,
            format!(
                "version {header} of the Execution API is not served, the oldest one is {oldest} (task SDK 1.1.8, \
                 Airflow 3.1.8); use a newer worker image"
            ),
        )
    }

    /// 413: the body has more than `limit` bytes.
    #[must_use]
    pub fn body_too_large(limit: usize) -> Self {
        Self::with(
            413,
            "body_too_large",
            format!(
                "expected a body of at most {limit} bytes, found a larger one; keep large values in an object store, and \
                 pass their addresses"
            ),
            &[],
        )
    }

    /// 400: the body ended early, or came too slowly.
    #[must_use]
    pub fn incomplete_body() -> Self {
        Self::with(
            400,
            "invalid_request",
            "the body of the request did not arrive as a whole",
            &[],
        )
    }

    /// 401: the request has no token.
    #[must_use]
    pub fn missing_token() -> Self {
        Self::text(401, "Missing auth token")
    }

    /// 403: the token is not accepted. `why` is shown to the client.
    #[must_use]
    pub fn invalid_token(why: &impl fmt::Display) -> Self {
        Self::text(403, format!("Invalid auth token: {why}"))
    }

    /// 403: a token of this scope is not accepted here.
    #[must_use]
    pub fn scope_not_allowed(scope: &str, allowed: &[&str]) -> Self {
        let allowed = allowed.join(", ");
        Self::text(
            403,
            format!("Token type '{scope}' not allowed for this endpoint. Allowed types: {allowed}"),
        )
    }

    /// 403: the token is that of another task instance, perhaps of an earlier try.
    #[must_use]
    pub fn other_task_instance() -> Self {
        Self::text(403, "Token subject does not match task instance ID")
    }

    /// 403: the task may not see the variable, connection or XCom. `what` names it: `variable greeting`.
    #[must_use]
    pub fn no_access(what: &str) -> Self {
        Self::text(403, format!("Task does not have access to {what}"))
    }

    // Task instances.

    /// 404: no task instance has this id.
    #[must_use]
    pub fn no_task_instance() -> Self {
        Self::not_found("Task Instance not found")
    }

    /// 410: the id is that of an earlier try.
    #[must_use]
    pub fn archived_task_instance() -> Self {
        let message =
            "Task Instance not found, it may have been moved to the Task Instance History table";
        Self::with(410, "not_found", message, &[])
    }

    /// 409 of `/run`: the task instance is in a state from which it cannot start.
    #[must_use]
    pub fn cannot_start(previous: Option<TaskInstanceState>) -> Self {
        let message = "TI was not in a state where it could be marked as running";
        let facts = [("previous_state", json!(previous))];
        Self::with(409, "invalid_state", message, &facts)
    }

    /// 409 of `/state`: the task instance does not run.
    #[must_use]
    pub fn cannot_change(previous: Option<TaskInstanceState>) -> Self {
        let message = "TI was not in the running state so it cannot be updated";
        let facts = [("previous_state", json!(previous))];
        Self::with(409, "invalid_state", message, &facts)
    }

    /// 409 of `/heartbeat`: another process runs the task instance.
    #[must_use]
    pub fn running_elsewhere(hostname: Option<&str>, pid: Option<i64>) -> Self {
        let facts = [
            ("current_hostname", json!(hostname)),
            ("current_pid", json!(pid)),
        ];
        Self::with(
            409,
            "running_elsewhere",
            "TI is already running elsewhere",
            &facts,
        )
    }

    /// 409 of `/heartbeat`: the task instance no longer runs.
    #[must_use]
    pub fn not_running(current: Option<TaskInstanceState>) -> Self {
        let message = "TI is no longer in the running state and task should terminate";
        let facts = [("current_state", json!(current))];
        Self::with(409, "not_running", message, &facts)
    }

    /// 422 of `/rendered-map-index`: the text is empty.
    #[must_use]
    pub fn empty_rendered_map_index() -> Self {
        Self::text(422, "rendered_map_index cannot be empty")
    }

    /// 422 of `/state`: an outlet event has a partition key that cannot be stored.
    #[must_use]
    pub fn invalid_partition_key(message: &str) -> Self {
        Self::with(422, "invalid_partition_key", message, &[])
    }

    // Everything else that a task reads and writes.

    /// 404: no such variable.
    #[must_use]
    pub fn no_variable(key: &str) -> Self {
        Self::not_found(format!("Variable with key '{key}' not found"))
    }

    /// 404: no such connection.
    #[must_use]
    pub fn no_connection(id: &str) -> Self {
        Self::not_found(format!("Connection with ID {id} not found"))
    }

    /// 404: no such XCom. `which` tells which one of the task's was asked for: `map_index=-1`, `offset=3`.
    #[must_use]
    pub fn no_xcom(key: &str, which: &str, task_id: &str, run_id: &str, dag_id: &str) -> Self {
        Self::not_found(format!(
            "XCom with key='{key}' {which} not found for task '{task_id}' in DAG run '{run_id}' of '{dag_id}'"
        ))
    }

    /// 400: the head of an XCom counts all map indexes.
    #[must_use]
    pub fn map_index_in_head() -> Self {
        let message = "Cannot specify map_index in a HEAD request";
        Self::with(400, "invalid_request", message, &[])
    }

    /// 400: the value is longer than `[core] max_map_length`.
    #[must_use]
    pub fn unmappable_length() -> Self {
        let message = "pushed value is too large to map as a downstream's dependency";
        Self::with(400, "unmappable_return_value_length", message, &[])
    }

    /// 404: no such DAG.
    #[must_use]
    pub fn no_dag(dag_id: &str) -> Self {
        Self::not_found(format!("Dag with dag_id: '{dag_id}' not found"))
    }

    /// 404: the DAG has no such task group.
    #[must_use]
    pub fn no_task_group(group_id: &str) -> Self {
        Self::not_found(format!("Task group {group_id} not found"))
    }

    /// 404: no such run.
    #[must_use]
    pub fn no_dag_run(dag_id: &str, run_id: &str) -> Self {
        Self::not_found(format!(
            "Dag run with dag_id '{dag_id}' and run_id '{run_id}' was not found"
        ))
    }

    /// 400: the DAG's file has an import error, so no run of it can start.
    #[must_use]
    pub fn import_errors(dag_id: &str) -> Self {
        let message =
            format!("Dag with dag_id '{dag_id}' has import errors and cannot be triggered");
        Self::with(400, "import_errors", message, &[])
    }

    /// 400: the DAG's `allowed_run_types` do not hold the type of the run.
    #[must_use]
    pub fn denied_run_type(message: &str) -> Self {
        Self::with(400, "denied_run_type", message, &[])
    }

    /// 409: the run exists.
    #[must_use]
    pub fn run_exists(dag_id: &str, run_id: &str) -> Self {
        let message = format!("A run already exists for Dag '{dag_id}' with run_id '{run_id}'");
        Self::with(409, "already_exists", message, &[])
    }

    /// 404: no active asset of that name or address. `which` tells it: `name orders`, `URI s3://b/orders`.
    #[must_use]
    pub fn no_asset(which: &str) -> Self {
        Self::not_found(format!("Asset with {which} not found"))
    }

    /// 404: the store of the task or asset has no such key.
    #[must_use]
    pub fn no_store_key(what: &str, key: &str) -> Self {
        Self::not_found(format!("{what} key '{key}' not found"))
    }

    /// 422: the value of a store is longer than [`MAX_STORE_VALUE`].
    #[must_use]
    pub fn store_value_too_large() -> Self {
        Self::with(
            422,
            "value_too_large",
            format!(
                "expected a value of at most {MAX_STORE_VALUE} bytes of JSON, found a longer one"
            ),
            &[],
        )
    }

    /// 404: the task instance waits for no human.
    #[must_use]
    pub fn no_hitl_detail() -> Self {
        Self::not_found(
            "HITLDetail not found. This happens most likely due to clearing task instance before receiving response.",
        )
    }

    /// 409: a human has answered already.
    #[must_use]
    pub fn hitl_answered(task_instance_id: &impl fmt::Display) -> Self {
        Self::text(
            409,
            format!(
                "Human-in-the-loop detail for Task Instance with id {task_instance_id} already exists."
            ),
        )
    }

    /// 400: this server does not do it. `what` names it: `questions to humans`. The client does not ask again.
    #[must_use]
    pub fn not_supported(what: &str) -> Self {
        let message = format!("Longshore does not support {what} yet");
        Self::with(400, "not_supported", message, &[])
    }

    /// 503: there is no answer in time. The client asks again.
    #[must_use]
    pub fn no_answer_in_time() -> Self {
        Self::text(503, "the request was not answered in time; ask again")
    }

    /// 500: the store failed. The client asks again.
    #[must_use]
    pub fn database() -> Self {
        Self::text(500, "Database error occurred")
    }
}

impl From<InvalidRequest> for ApiError {
    fn from(invalid: InvalidRequest) -> Self {
        Self {
            status: 422,
            detail: Detail::Invalid(invalid.0),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, detail } = self;
        match detail {
            Detail::Text(message) => write!(formatter, "{status}: {message}"),
            Detail::Reason {
                reason, message, ..
            } => write!(formatter, "{status} {reason}: {message}"),
            Detail::Invalid(errors) => {
                write!(formatter, "{status}: the request is invalid")?;
                for error in errors {
                    write!(formatter, "; {error}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_bodies_that_the_sdk_reads() {
        let running = Some(TaskInstanceState::Running);
        for (error, status, detail) in [
            (
                ApiError::cannot_start(running),
                409,
                json!({
                    "reason": "invalid_state", "previous_state": "running",
                    "message": "TI was not in a state where it could be marked as running",
                }),
            ),
            (
                ApiError::cannot_change(None),
                409,
                json!({
                    "reason": "invalid_state", "previous_state": null,
                    "message": "TI was not in the running state so it cannot be updated",
                }),
            ),
            (
                ApiError::running_elsewhere(Some("vm"), Some(7)),
                409,
                json!({
                    "reason": "running_elsewhere", "message": "TI is already running elsewhere",
                    "current_hostname": "vm", "current_pid": 7,
                }),
            ),
            (
                ApiError::no_xcom("k", "offset=3", "t", "r", "d"),
                404,
                json!({
                    "reason": "not_found",
                    "message": "XCom with key='k' offset=3 not found for task 't' in DAG run 'r' of 'd'",
                }),
            ),
            (ApiError::no_route(), 404, json!("Not Found")),
            (ApiError::missing_token(), 401, json!("Missing auth token")),
            (
                ApiError::scope_not_allowed("workload", &["execution"]),
                403,
                json!(
                    "Token type 'workload' not allowed for this endpoint. Allowed types: execution"
                ),
            ),
        ] {
            assert_eq!(error.status(), status);
            assert_eq!(error.body(), json!({ "detail": detail }));
            assert_eq!(ApiError::read(status, &error.body()), Some(error));
        }
    }

    #[test]
    fn a_worker_is_told_why_it_has_to_stop() {
        for (error, status, reason) in [
            (ApiError::no_task_instance(), 404, "not_found"),
            (ApiError::archived_task_instance(), 410, "not_found"),
            (
                ApiError::running_elsewhere(None, None),
                409,
                "running_elsewhere",
            ),
            (ApiError::not_running(None), 409, "not_running"),
            (ApiError::run_exists("d", "r"), 409, "already_exists"),
            (ApiError::import_errors("d"), 400, "import_errors"),
            (
                ApiError::unmappable_length(),
                400,
                "unmappable_return_value_length",
            ),
        ] {
            assert_eq!((error.status(), error.reason()), (status, Some(reason)));
        }
    }
}
