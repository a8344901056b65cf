//! Errors as the API answers them: `application/problem+json` (RFC 9457) with our codes.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::control::ControlError;

/// The content type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The content of an error answer. Boxed texts keep a `Result` with it small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `urn:longshore:error:LS1391`: the same for every occurrence.
    #[serde(rename = "type")]
    pub kind: Box<str>,
    /// The reason phrase of the status.
    pub title: Box<str>,
    /// The HTTP status.
    pub status: u16,
    /// What failed and for which object, in one sentence.
    pub detail: Box<str>,
    /// The stable code; its page is `docs/errors/<code>.md`.
    pub code: Box<str>,
    /// What the user can do about the problem.
    pub help: Box<str>,
    /// The path of the request.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub instance: Box<str>,
    /// The id of the request, which the service's log has too.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub request_id: Box<str>,
}

impl Problem {
    /// A problem.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Box<str>>,
        help: impl Into<Box<str>>,
    ) -> Self {
        Self {
            kind: format!("urn:longshore:error:{code}").into(),
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into(),
            help: help.into(),
            instance: "".into(),
            request_id: "".into(),
        }
    }

    /// The request is malformed.
    pub(crate) fn bad_request(status: StatusCode, detail: impl Into<Box<str>>) -> Self {
        Self::new(
            status,
            "LS1024",
            detail,
            "compare the request with what `longshore explain LS1024` says",
        )
    }

    /// The request took too long, or there are too many of them.
    pub(crate) fn busy(detail: impl Into<Box<str>>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "LS1903",
            detail,
            "repeat the request; the service's log says what it is busy with",
        )
    }

    /// Our mistake. The cause is in the log, not in the answer.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "LS1901",
            "the service made a mistake",
            "report it with the lines of the service's log that have this request id",
        )
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let (status, code, help) = match &error {
            ControlError::UnknownDag { nearest, .. } => {
                let all = "`longshore dags list` has all of them";
                let help = match nearest {
                    Some(nearest) => format!("did you mean {nearest}? {all}"),
                    None => all.to_owned(),
                };
                (404, "LS1390", help)
            }
            ControlError::UnknownRun(run) => (
                404,
                "LS1391",
                format!("`longshore runs list {}` has all of them", run.dag_id),
            ),
            ControlError::UnknownPool(_) => (
                404,
                "LS1397",
                "`longshore pools list` has all of them".to_owned(),
            ),
            ControlError::PoolInFile { file, .. } => {
                (409, "LS1398", format!("change {file} instead"))
            }
            ControlError::UnknownTask(task) => (
                404,
                "LS1392",
                format!("`longshore tasks list {}` has all of them", task.run),
            ),
            ControlError::NoLog { task, .. } => (
                404,
                "LS1393",
                format!("`longshore tasks get {task}` shows where it stands"),
            ),
            ControlError::RunExists(_) => (
                409,
                "LS1394",
                "choose another run id, or give none".to_owned(),
            ),
            ControlError::WrongState { .. } => (
                409,
                "LS1395",
                "look at its state first: it may have changed meanwhile".to_owned(),
            ),
            ControlError::UnknownParam { dag_id, .. } => (
                422,
                "LS1382",
                format!("`longshore dags show {dag_id}` has its parameters"),
            ),
            ControlError::Invalid(_) => (
                422,
                "LS1396",
                "correct the value and repeat the request".to_owned(),
            ),
            ControlError::NotYet(_) => (501, "LS1005", "a later version will do it".to_owned()),
            ControlError::Unavailable { .. } => (
                503,
                "LS1903",
                "repeat the request; nothing that was recorded is lost".to_owned(),
            ),
            ControlError::Internal(_) => return Self::internal(),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, code, error.to_string(), help)
    }
}

/// Carries the problem to the edge (`router::edge`), which alone knows path and request id and writes the body.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
