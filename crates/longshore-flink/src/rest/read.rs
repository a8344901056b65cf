//! The responses of JobManagers, as answers. Nothing here trusts a response: it may be HTML of a proxy, of any size, or
//! of another job.

use std::{collections::BTreeMap, sync::Arc};

use longshore_core::{AskError, NoAnswer};
use longshore_flink_core::status::JobState;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    Checkpoints, FailureCause, HttpAnswer, JobOverview, Operation, RestAnswer, RestCall, Snapshot,
    Version,
};

/// What Flink shows in place of the path of a checkpoint that has none.
const NOT_ADDRESSABLE: &str = "<checkpoint-not-externally-addressable>";
/// What the exception of a job id that is taken is named.
const DUPLICATE: &str = "DuplicateJobSubmissionException";
/// The most of an error of Flink that is shown, in bytes: the rest is a stack trace.
const ERROR_BYTES: usize = 512;

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;

impl RestCall {
    /// Reads a response.
    ///
    /// # Errors
    /// The JobManager refused, or the response has not the form of this call.
    pub fn read(&self, answer: &HttpAnswer) -> Result<RestAnswer, AskError> {
        if !(200..300).contains(&answer.status) {
            return self.read_refusal(answer);
        }
        let body = &answer.body;
        Ok(match self {
            Self::Version => RestAnswer::Version(version(json(body)?)),
            Self::Jobs => RestAnswer::Jobs(Arc::new(jobs(json(body)?))),
            Self::FailureCause { .. } => RestAnswer::FailureCause(failure_cause(json(body)?)),
            Self::Checkpoints { .. } => RestAnswer::Checkpoints(Arc::new(checkpoints(json(body)?))),
            Self::CheckpointPath { checkpoint, .. } => {
                RestAnswer::CheckpointPath(checkpoint_path(json(body)?, *checkpoint)?)
            }
            Self::Metrics { .. } => RestAnswer::Metrics(Arc::new(metrics(json(body)?))),
            Self::TriggerSavepoint(trigger) | Self::Stop { trigger, .. } => {
                accepted(body, &trigger.trigger_id)?
            }
            Self::TriggerCheckpoint { trigger_id, .. } => accepted(body, trigger_id)?,
            Self::Savepoint { .. } | Self::Checkpoint { .. } => {
                RestAnswer::Operation(operation(json(body)?)?)
            }
            // Their bodies say nothing that is needed.
            Self::Cancel { .. } | Self::Dispose { .. } | Self::Submit(_) => RestAnswer::Accepted,
        })
    }

    fn read_refusal(&self, answer: &HttpAnswer) -> Result<RestAnswer, AskError> {
        let is_poll = matches!(self, Self::Savepoint { .. } | Self::Checkpoint { .. });
        if is_poll && answer.status == NOT_FOUND {
            return Ok(RestAnswer::Operation(Operation::Unknown));
        }
        let is_cancel = matches!(self, Self::Cancel { .. });
        if is_cancel && answer.status == CONFLICT {
            return Ok(RestAnswer::Accepted);
        }
        let is_submitted = matches!(self, Self::Submit(_))
            && answer.status == 400
            && errors(&answer.body).is_some_and(|text| text.contains(DUPLICATE));
        if is_submitted {
            return Ok(RestAnswer::Accepted);
        }
        Err(refusal(answer))
    }
}

/// The error of a response that is no success.
pub(super) fn refusal(answer: &HttpAnswer) -> AskError {
    // A JobManager that starts or looks for its leader answers 5xx: that passes.
    let why = if answer.status < 500 {
        NoAnswer::Refused
    } else {
        NoAnswer::Unreachable
    };
    let status = answer.status;
    let message = match errors(&answer.body) {
        Some(text) => format!("the JobManager answered {status}: {}", first_lines(&text)),
        None => format!("the JobManager answered {status}"),
    };
    AskError::new(why, message)
}

/// The id of an uploaded jar: the last part of its path on the JobManager.
///
/// # Errors
/// The response names no file.
pub(super) fn jar_id(answer: &HttpAnswer) -> Result<String, AskError> {
    #[derive(Deserialize)]
    struct Uploaded {
        filename: String,
    }
    if !(200..300).contains(&answer.status) {
        return Err(refusal(answer));
    }
    let uploaded: Uploaded = json(&answer.body)?;
    let name = uploaded.filename.rsplit('/').next().unwrap_or_default();
    let is_name = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(not_understood("the name of an uploaded jar"));
    }
    Ok(name.to_owned())
}

fn first_lines(text: &str) -> &str {
    let end = text.find("\n\tat ").unwrap_or(text.len());
    let end = end.min(ERROR_BYTES);
    &text[..text.floor_char_boundary(end)]
}

/// What `{"errors":[…]}` says.
fn errors(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<String>,
    }
    let read: Errors = serde_json::from_slice(body).ok()?;
    Some(read.errors.join("\n")).filter(|text| !text.is_empty())
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, AskError> {
    // An array would be read as the fields of a struct, one after the other.
    serde_json::from_slice(body).map_err(|_| not_understood("JSON of Flink's REST API"))
}

fn not_understood(expected: &str) -> AskError {
    let message = format!("the JobManager's response is not understood: expected {expected}");
    AskError::new(NoAnswer::NotUnderstood, message)
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireVersion {
    flink_version: String,
    #[serde(default)]
    flink_revision: String,
}

fn version(read: WireVersion) -> Version {
    Version {
        version: read.flink_version,
        revision: read.flink_revision,
    }
}

#[derive(Deserialize)]
struct WireJobs {
    jobs: Vec<WireJob>,
}

#[derive(Deserialize)]
struct WireJob {
    jid: String,
    #[serde(default)]
    name: String,
    state: JobState,
    #[serde(rename = "start-time", default)]
    start_time: i64,
    tasks: Option<WireTasks>,
}

#[derive(Deserialize)]
struct WireTasks {
    #[serde(default)]
    total: i64,
    #[serde(default)]
    running: i64,
    #[serde(default)]
    finished: i64,
}

fn jobs(read: WireJobs) -> Vec<JobOverview> {
    let jobs = read.jobs.into_iter();
    jobs.map(|job| {
        let is_partial = |tasks: &WireTasks| tasks.running + tasks.finished < tasks.total;
        let is_created =
            job.state == JobState::Running && job.tasks.as_ref().is_some_and(is_partial);
        JobOverview {
            id: job.jid,
            name: job.name,
            state: if is_created {
                JobState::Created
            } else {
                job.state
            },
            start_time_ms: job.start_time,
        }
    })
    .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireCause {
    #[serde(default)]
    class: String,
    #[serde(default)]
    stack_trace: String,
}

impl From<WireCause> for FailureCause {
    fn from(wire: WireCause) -> Self {
        Self {
            class: wire.class,
            stack_trace: wire.stack_trace,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireResult {
    job_execution_result: Option<WireExecution>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireExecution {
    failure_cause: Option<WireCause>,
}

fn failure_cause(read: WireResult) -> Option<FailureCause> {
    let execution = read.job_execution_result?;
    execution.failure_cause.map(FailureCause::from)
}

#[derive(Deserialize)]
struct WireCheckpoints {
    counts: WireCounts,
    #[serde(default)]
    latest: WireLatest,
    #[serde(default)]
    history: Vec<WireSnapshot>,
}

#[derive(Deserialize)]
struct WireCounts {
    completed: i64,
}

#[derive(Default, Deserialize)]
struct WireLatest {
    completed: Option<WireSnapshot>,
    savepoint: Option<WireSnapshot>,
    restored: Option<WireSnapshot>,
}

#[derive(Deserialize)]
struct WireSnapshot {
    id: i64,
    status: Option<String>,
    external_path: Option<String>,
    trigger_timestamp: Option<i64>,
}

impl From<WireSnapshot> for Snapshot {
    fn from(wire: WireSnapshot) -> Self {
        Self {
            id: wire.id,
            path: wire.external_path.filter(|path| is_path(path)),
            at_ms: wire.trigger_timestamp.unwrap_or_default(),
        }
    }
}

fn is_path(path: &str) -> bool {
    !path.is_empty() && path != NOT_ADDRESSABLE
}

fn checkpoints(read: WireCheckpoints) -> Checkpoints {
    let pending = read.history.iter();
    let pending = pending.filter(|it| it.status.as_deref() == Some("IN_PROGRESS"));
    Checkpoints {
        n_completed: read.counts.completed,
        pending_at_ms: pending.filter_map(|it| it.trigger_timestamp).max(),
        completed: read.latest.completed.map(Snapshot::from),
        savepoint: read.latest.savepoint.map(Snapshot::from),
        restored: read.latest.restored.map(Snapshot::from),
    }
}

fn checkpoint_path(read: WireSnapshot, checkpoint: i64) -> Result<Option<String>, AskError> {
    if read.id != checkpoint {
        return Err(not_understood("the checkpoint that was asked about"));
    }
    Ok(read.external_path.filter(|path| is_path(path)))
}

#[derive(Deserialize)]
struct WireMetric {
    id: String,
    value: Option<String>,
}

fn metrics(read: Vec<WireMetric>) -> BTreeMap<String, String> {
    let values = read.into_iter();
    values
        .filter_map(|metric| Some((metric.id, metric.value?)))
        .collect()
}

/// A JobManager that does not take the trigger id of its client has begun another operation with each repeat.
fn accepted(body: &[u8], trigger_id: &str) -> Result<RestAnswer, AskError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Triggered {
        request_id: String,
    }
    let read: Triggered = json(body)?;
    if read.request_id != trigger_id {
        return Err(not_understood("the trigger id of the request"));
    }
    Ok(RestAnswer::Accepted)
}

#[derive(Deserialize)]
struct WireOperation {
    status: WireProgress,
    operation: Option<WireOutcome>,
}

#[derive(Deserialize)]
struct WireProgress {
    id: String,
}

#[derive(Deserialize)]
struct WireOutcome {
    location: Option<String>,
    #[serde(rename = "checkpointId")]
    checkpoint_id: Option<i64>,
    #[serde(rename = "failure-cause")]
    failure_cause: Option<WireCause>,
}

fn operation(read: WireOperation) -> Result<Operation, AskError> {
    let unexpected = || not_understood("the outcome of an operation");
    match (read.status.id.as_str(), read.operation) {
        ("IN_PROGRESS", _) => Ok(Operation::InProgress),
        ("COMPLETED", Some(outcome)) => match outcome {
            WireOutcome {
                failure_cause: Some(cause),
                ..
            } => Ok(Operation::Failed(cause.into())),
            WireOutcome {
                location: Some(path),
                ..
            } if is_path(&path) => Ok(Operation::Savepoint { path }),
            WireOutcome {
                checkpoint_id: Some(id),
                ..
            } => Ok(Operation::Checkpoint { id }),
            WireOutcome { .. } => Err(unexpected()),
        },
        (_, _) => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests;
