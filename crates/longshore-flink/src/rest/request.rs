//! The HTTP requests of questions to JobManagers.

use http::Method;
use longshore_flink_core::{
    conf::operator::{CheckpointType, SavepointFormatType},
    health::METRICS,
};
use serde_json::{Value, json};

use super::{RestCall, Trigger};

/// An HTTP request to a JobManager.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    /// The body.
    pub body: HttpBody,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum HttpBody {
    /// No body.
    None,
    /// JSON.
    Json(Value),
    /// A jar, as the one file of a form.
    Jar(bytes::Bytes),
}

impl HttpRequest {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: HttpBody::None,
        }
    }

    pub(super) fn post(path: impl Into<String>, body: Value) -> Self {
        Self {
            method: Method::POST,
            path: path.into(),
            body: HttpBody::Json(body),
        }
    }
}

impl RestCall {
    /// The HTTP request; `None` for a submission, which takes more than one.
    pub fn request(&self) -> Option<HttpRequest> {
        Some(match self {
            Self::Version => HttpRequest::get("/config"),
            Self::Jobs => HttpRequest::get("/jobs/overview"),
            Self::FailureCause { job } => HttpRequest::get(format!("/jobs/{job}/execution-result")),
            Self::Checkpoints { job } => HttpRequest::get(format!("/jobs/{job}/checkpoints")),
            Self::CheckpointPath { job, checkpoint } => {
                HttpRequest::get(format!("/jobs/{job}/checkpoints/details/{checkpoint}"))
            }
            Self::Metrics { job } => {
                let names = METRICS.join(",");
                HttpRequest::get(format!("/jobs/{job}/metrics?get={names}"))
            }
            Self::TriggerSavepoint(trigger) => savepoint(trigger),
            Self::Stop { trigger, drain } => stop(trigger, *drain),
            Self::Savepoint { job, trigger_id } => {
                HttpRequest::get(format!("/jobs/{job}/savepoints/{trigger_id}"))
            }
            Self::TriggerCheckpoint {
                job,
                trigger_id,
                form,
            } => HttpRequest::post(
                format!("/jobs/{job}/checkpoints"),
                json!({"checkpointType": form_name(*form), "triggerId": trigger_id}),
            ),
            Self::Checkpoint { job, trigger_id } => {
                HttpRequest::get(format!("/jobs/{job}/checkpoints/{trigger_id}"))
            }
            Self::Cancel { job } => HttpRequest {
                method: Method::PATCH,
                path: format!("/jobs/{job}?mode=cancel"),
                body: HttpBody::None,
            },
            Self::Dispose { path } => {
                HttpRequest::post("/savepoint-disposal", json!({"savepoint-path": path}))
            }
            Self::Submit(_) => return None,
        })
    }
}

fn savepoint(trigger: &Trigger) -> HttpRequest {
    let mut body = json!({
        "cancel-job": false,
        "formatType": format_name(trigger.format),
        "triggerId": trigger.trigger_id,
    });
    if let Some(directory) = &trigger.directory {
        body["target-directory"] = json!(directory);
    }
    HttpRequest::post(format!("/jobs/{}/savepoints", trigger.job), body)
}

fn stop(trigger: &Trigger, drain: bool) -> HttpRequest {
    let mut body = json!({
        "drain": drain,
        "formatType": format_name(trigger.format),
        "triggerId": trigger.trigger_id,
    });
    if let Some(directory) = &trigger.directory {
        body["targetDirectory"] = json!(directory);
    }
    HttpRequest::post(format!("/jobs/{}/stop", trigger.job), body)
}

const fn format_name(format: SavepointFormatType) -> &'static str {
    match format {
        SavepointFormatType::Canonical => "CANONICAL",
        SavepointFormatType::Native => "NATIVE",
    }
}

const fn form_name(form: CheckpointType) -> &'static str {
    match form {
        CheckpointType::Configured => "CONFIGURED",
        CheckpointType::Full => "FULL",
        CheckpointType::Incremental => "INCREMENTAL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_carry_their_trigger_ids() {
        let trigger = Trigger {
            job: "j".to_owned(),
            trigger_id: "t".to_owned(),
            directory: Some("file:///sp".to_owned()),
            format: SavepointFormatType::Native,
        };
        let without_directory = Trigger {
            directory: None,
            ..trigger.clone()
        };
        let table = [
            (
                RestCall::TriggerSavepoint(trigger.clone()),
                "/jobs/j/savepoints",
                json!({"target-directory": "file:///sp", "cancel-job": false, "formatType": "NATIVE", "triggerId": "t"}),
            ),
            (
                RestCall::Stop {
                    trigger,
                    drain: true,
                },
                "/jobs/j/stop",
                json!({"targetDirectory": "file:///sp", "drain": true, "formatType": "NATIVE", "triggerId": "t"}),
            ),
            (
                RestCall::Stop {
                    trigger: without_directory,
                    drain: false,
                },
                "/jobs/j/stop",
                json!({"drain": false, "formatType": "NATIVE", "triggerId": "t"}),
            ),
            (
                RestCall::TriggerCheckpoint {
                    job: "j".to_owned(),
                    trigger_id: "t".to_owned(),
                    form: CheckpointType::Full,
                },
                "/jobs/j/checkpoints",
                json!({"checkpointType": "FULL", "triggerId": "t"}),
            ),
        ];
        for (call, path, body) in table {
            let request = call.request().unwrap();
            assert_eq!(request, HttpRequest::post(path, body), "{call:?}");
            assert!(call.is_effect());
        }
    }
}
