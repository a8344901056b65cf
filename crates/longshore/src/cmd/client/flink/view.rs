//! A Flink resource as its commands show it.

use jiff::Timestamp;
use longshore_api::flink::{CONDITION_UPGRADE_BLOCKED, KIND_DEPLOYMENT, KIND_SESSION_JOB};
use serde::Serialize;
use serde_json::Value;

/// A FlinkDeployment or FlinkSessionJob. Field names are an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlinkView {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The session cluster of a FlinkSessionJob.
    pub(super) session_cluster: Option<String>,
    pub(super) flink_version: Option<String>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) lifecycle_state: Option<String>,
    /// The state that the spec wants of the job; `None` for a session cluster.
    pub(super) wanted_state: Option<String>,
    pub(super) upgrade_mode: Option<String>,
    pub(super) job_id: Option<String>,
    pub(super) job_state: Option<String>,
    pub(super) job_manager: Option<String>,
    /// Where the job is restored from, when it starts again with a savepoint.
    pub(super) savepoint: Option<String>,
    /// What the wanted spec waits for.
    pub(super) waits_for: Option<Waiting>,
    /// What else the conditions say that people should know.
    pub(super) conditions: Vec<Noted>,
    pub(super) error: Option<String>,
}

/// What an upgrade waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Waiting {
    pub(super) message: String,
    pub(super) since: Option<Timestamp>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Noted {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) message: String,
    pub(super) since: Option<Timestamp>,
}

impl FlinkView {
    /// The view of an object.
    pub(super) fn of(object: &Value) -> Self {
        let text = |at: &str| text(object, at);
        let is_application = object.pointer("/spec/job").is_some_and(Value::is_object);
        let deployment = text("/spec/deploymentName");
        // Objects of a list may come without their kind.
        let kind = text("/kind").unwrap_or_else(|| match deployment {
            Some(_) => KIND_SESSION_JOB.to_owned(),
            None => KIND_DEPLOYMENT.to_owned(),
        });
        let wanted = text("/spec/job/state").or_else(|| Some("running".to_owned()));
        let mode = text("/spec/job/upgradeMode").or_else(|| Some("stateless".to_owned()));
        let (mut waits_for, mut conditions) = (None, Vec::new());
        for found in object
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(noted)
        {
            if found.kind == CONDITION_UPGRADE_BLOCKED && found.status == "True" {
                let Noted { message, since, .. } = found;
                waits_for = Some(Waiting { message, since });
            } else {
                conditions.push(found);
            }
        }
        Self {
            kind,
            namespace: text("/metadata/namespace").unwrap_or_default(),
            name: text("/metadata/name").unwrap_or_default(),
            session_cluster: deployment,
            flink_version: text("/spec/flinkVersion"),
            created_at: instant(object, "/metadata/creationTimestamp"),
            lifecycle_state: text("/status/lifecycleState"),
            wanted_state: wanted.filter(|_| is_application),
            upgrade_mode: mode.filter(|_| is_application),
            job_id: text("/status/jobStatus/jobId"),
            job_state: text("/status/jobStatus/state"),
            job_manager: text("/status/jobManagerDeploymentStatus"),
            savepoint: text("/status/jobStatus/upgradeSavepointPath"),
            waits_for,
            conditions,
            error: text("/status/error").map(|error| message(&error)),
        }
    }
}

fn noted(condition: &Value) -> Noted {
    let text = |at: &str| text(condition, at).unwrap_or_default();
    Noted {
        kind: text("/type"),
        status: text("/status"),
        message: text("/message"),
        since: instant(condition, "/lastTransitionTime"),
    }
}

/// What the error of a status says: it is JSON with a message, or plain text.
fn message(error: &str) -> String {
    let read: Option<Value> = serde_json::from_str(error).ok();
    let message = read.as_ref().and_then(|read| text(read, "/message"));
    message.unwrap_or_else(|| error.to_owned())
}

fn text(object: &Value, at: &str) -> Option<String> {
    let found = object.pointer(at)?.as_str()?;
    (!found.is_empty()).then(|| found.to_owned())
}

fn instant(object: &Value, at: &str) -> Option<Timestamp> {
    text(object, at)?.parse().ok()
}
