//! The REST API of JobManagers: requests as typed questions of the kit, and their typed answers.
//!
//! [`RestCall::request`] makes the HTTP request of a question and [`RestCall::read`] reads the response; both are pure. A
//! [`Transport`] carries requests, one at a time. Every request that changes something may be repeated: savepoints,
//! checkpoints and stops carry a trigger id of ours, jobs run under an id of ours, and a job that is over cannot be
//! cancelled again.

mod heard;
mod limits;
mod proxied;
mod read;
mod request;
mod transport;

use std::{collections::BTreeMap, sync::Arc};

use longshore_core::{ObjectRef, Question};
use longshore_flink_core::{
    conf::operator::{CheckpointType, SavepointFormatType},
    status::JobState,
};

pub use self::{
    heard::Heard,
    limits::limits,
    proxied::ProxiedTransport,
    request::{HttpBody, HttpRequest},
    transport::{HttpAnswer, HttpTransport, Transport, ask},
};

/// Host and port of the JobManager's REST Service of a cluster.
pub(crate) fn address(cluster: &ObjectRef, port: i32) -> String {
    format!("{}-rest.{}:{port}", cluster.name, cluster.namespace)
}

/// A question to the JobManager at an address.
#[derive(Clone, Debug, PartialEq)]
pub struct RestQuestion {
    /// Host and port of the REST Service, as `name-rest.namespace:8081`.
    pub address: String,
    /// What is asked.
    pub call: RestCall,
}

/// A request to a JobManager.
#[derive(Clone, Debug, PartialEq)]
pub enum RestCall {
    /// The version of Flink (`GET /config`).
    Version,
    /// All jobs (`GET /jobs/overview`).
    Jobs,
    /// Why a job failed (`GET /jobs/:id/execution-result`).
    FailureCause {
        /// The id of the job.
        job: String,
    },
    /// What checkpoints and savepoints of a job there are (`GET /jobs/:id/checkpoints`).
    Checkpoints {
        /// The id of the job.
        job: String,
    },
    /// Where a checkpoint is (`GET /jobs/:id/checkpoints/details/:checkpoint`).
    CheckpointPath {
        /// The id of the job.
        job: String,
        /// The number of the checkpoint.
        checkpoint: i64,
    },
    /// Metrics of a job that say how healthy it is (`GET /jobs/:id/metrics`).
    Metrics {
        /// The id of the job.
        job: String,
    },
    /// Triggers a savepoint (`POST /jobs/:id/savepoints`).
    TriggerSavepoint(Trigger),
    /// Stops a job with a savepoint (`POST /jobs/:id/stop`).
    Stop {
        /// The savepoint.
        trigger: Trigger,
        /// Whether the sources of the job end first, so that event time reaches its end.
        drain: bool,
    },
    /// How far a savepoint or a stop is (`GET /jobs/:id/savepoints/:trigger`).
    Savepoint {
        /// The id of the job.
        job: String,
        /// The trigger id.
        trigger_id: String,
    },
    /// Triggers a checkpoint (`POST /jobs/:id/checkpoints`).
    TriggerCheckpoint {
        /// The id of the job.
        job: String,
        /// The trigger id.
        trigger_id: String,
        /// What the checkpoint holds.
        form: CheckpointType,
    },
    /// How far a checkpoint is (`GET /jobs/:id/checkpoints/:trigger`).
    Checkpoint {
        /// The id of the job.
        job: String,
        /// The trigger id.
        trigger_id: String,
    },
    /// Cancels a job (`PATCH /jobs/:id?mode=cancel`).
    Cancel {
        /// The id of the job.
        job: String,
    },
    /// Deletes the files of a savepoint (`POST /savepoint-disposal`).
    Dispose {
        /// Where the savepoint is.
        path: String,
    },
    /// Fetches a jar, uploads it and runs it (`POST /jars/upload`, `POST /jars/:id/run`, `DELETE /jars/:id`).
    Submit(Arc<Submission>),
}

/// A savepoint to be triggered.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// The id of the job.
    pub job: String,
    /// The trigger id: 32 hexadecimal digits. A repeat under the same id is the same operation.
    pub trigger_id: String,
    /// Where the savepoint is written; `None` for the directory that the job is configured with.
    pub directory: Option<String>,
    /// The format of the savepoint.
    pub format: SavepointFormatType,
}

/// A job for a session cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The id under which the job runs: 32 hexadecimal digits. A second job under the same id is refused.
    pub job: String,
    /// Where the jar is; `None` for an empty jar, where the main class is on the class path.
    pub jar: Option<String>,
    /// The body of the request that runs the jar.
    pub body: serde_json::Value,
}

/// What a JobManager answers.
#[derive(Clone, Debug, PartialEq)]
pub enum RestAnswer {
    /// The version of Flink.
    Version(Version),
    /// The jobs that the JobManager knows.
    Jobs(Arc<Vec<JobOverview>>),
    /// Why the job failed; `None` where it did not.
    FailureCause(Option<FailureCause>),
    /// Checkpoints and savepoints of a job.
    Checkpoints(Arc<Checkpoints>),
    /// Where a checkpoint is; `None` where it has no address.
    CheckpointPath(Option<String>),
    /// Values of metrics by their names.
    Metrics(Arc<BTreeMap<String, String>>),
    /// The request was taken in. For a cancellation: or the job is over already.
    Accepted,
    /// How far an operation is.
    Operation(Operation),
}

/// The version of Flink that a JobManager runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// As `1.20.3`.
    pub version: String,
    /// The commit and its time.
    pub revision: String,
}

/// A job in the list of a JobManager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOverview {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its state. A job of which not all tasks run or have finished counts as created.
    pub state: JobState,
    /// When it started, in milliseconds since 1970.
    pub start_time_ms: i64,
}

/// Why a job failed, in Flink's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCause {
    /// The class of the exception.
    pub class: String,
    /// The stack trace.
    pub stack_trace: String,
}

/// Checkpoints and savepoints of a job, as far as the JobManager knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// How many checkpoints and savepoints are complete.
    pub n_completed: i64,
    /// The newest complete checkpoint.
    pub completed: Option<Snapshot>,
    /// The newest complete savepoint.
    pub savepoint: Option<Snapshot>,
    /// What the job was restored from.
    pub restored: Option<Snapshot>,
    /// When the newest checkpoint under way was triggered, in milliseconds since 1970.
    pub pending_at_ms: Option<i64>,
}

/// A checkpoint or savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number; later ones have greater numbers.
    pub id: i64,
    /// Where it is; `None` where it has no address.
    pub path: Option<String>,
    /// When it was triggered, in milliseconds since 1970; 0 where the JobManager does not say.
    pub at_ms: i64,
}

impl Checkpoints {
    /// The newest state of the job.
    pub fn newest(&self) -> Option<&Snapshot> {
        let all = [&self.completed, &self.savepoint, &self.restored];
        all.into_iter().flatten().max_by_key(|it| it.id)
    }
}

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is under way.
    InProgress,
    /// A savepoint is complete.
    Savepoint {
        /// Where it is.
        path: String,
    },
    /// A checkpoint is complete.
    Checkpoint {
        /// Its number.
        id: i64,
    },
    /// It failed.
    Failed(FailureCause),
    /// The JobManager does not know the operation: nobody began it, it was forgotten some minutes after its end, or the
    /// JobManager was started anew.
    Unknown,
}

/// Kinds of questions, as labels of metrics.
mod kind {
    pub(super) const VERSION: &str = "flink_version";
    pub(super) const JOBS: &str = "flink_jobs";
    pub(super) const FAILURE: &str = "flink_failure";
    pub(super) const CHECKPOINTS: &str = "flink_checkpoints";
    pub(super) const CHECKPOINT_PATH: &str = "flink_checkpoint_path";
    pub(super) const METRICS: &str = "flink_metrics";
    pub(super) const TRIGGER_SAVEPOINT: &str = "flink_trigger_savepoint";
    pub(super) const STOP: &str = "flink_stop";
    pub(super) const SAVEPOINT: &str = "flink_savepoint";
    pub(super) const TRIGGER_CHECKPOINT: &str = "flink_trigger_checkpoint";
    pub(super) const CHECKPOINT: &str = "flink_checkpoint";
    pub(super) const CANCEL: &str = "flink_cancel";
    pub(super) const DISPOSE: &str = "flink_dispose";
    pub(super) const SUBMIT: &str = "flink_submit";
}

impl RestCall {
    /// Whether the request changes something, so that its intent is on record before it is sent.
    pub const fn is_effect(&self) -> bool {
        match self {
            Self::TriggerSavepoint(_)
            | Self::Stop { .. }
            | Self::TriggerCheckpoint { .. }
            | Self::Cancel { .. }
            | Self::Dispose { .. }
            | Self::Submit(_) => true,
            Self::Version
            | Self::Jobs
            | Self::FailureCause { .. }
            | Self::Checkpoints { .. }
            | Self::CheckpointPath { .. }
            | Self::Metrics { .. }
            | Self::Savepoint { .. }
            | Self::Checkpoint { .. } => false,
        }
    }
}

impl Question for RestQuestion {
    type Answer = RestAnswer;

    fn kind(&self) -> &'static str {
        match &self.call {
            RestCall::Version => kind::VERSION,
            RestCall::Jobs => kind::JOBS,
            RestCall::FailureCause { .. } => kind::FAILURE,
            RestCall::Checkpoints { .. } => kind::CHECKPOINTS,
            RestCall::CheckpointPath { .. } => kind::CHECKPOINT_PATH,
            RestCall::Metrics { .. } => kind::METRICS,
            RestCall::TriggerSavepoint(_) => kind::TRIGGER_SAVEPOINT,
            RestCall::Stop { .. } => kind::STOP,
            RestCall::Savepoint { .. } => kind::SAVEPOINT,
            RestCall::TriggerCheckpoint { .. } => kind::TRIGGER_CHECKPOINT,
            RestCall::Checkpoint { .. } => kind::CHECKPOINT,
            RestCall::Cancel { .. } => kind::CANCEL,
            RestCall::Dispose { .. } => kind::DISPOSE,
            RestCall::Submit(_) => kind::SUBMIT,
        }
    }

    fn host(&self) -> &str {
        &self.address
    }

    /// A job or an operation: what is known of another one says nothing about it.
    fn about(&self) -> String {
        match &self.call {
            RestCall::Version | RestCall::Jobs => String::new(),
            RestCall::FailureCause { job }
            | RestCall::Checkpoints { job }
            | RestCall::Metrics { job }
            | RestCall::Cancel { job } => job.clone(),
            RestCall::CheckpointPath { job, checkpoint } => format!("{job}/{checkpoint}"),
            RestCall::TriggerSavepoint(trigger) | RestCall::Stop { trigger, .. } => {
                format!("{}/{}", trigger.job, trigger.trigger_id)
            }
            RestCall::Savepoint { job, trigger_id }
            | RestCall::Checkpoint { job, trigger_id }
            | RestCall::TriggerCheckpoint {
                job, trigger_id, ..
            } => format!("{job}/{trigger_id}"),
            RestCall::Dispose { path } => path.clone(),
            RestCall::Submit(submission) => submission.job.clone(),
        }
    }

    fn may_drop_answer(&self) -> bool {
        !self.call.is_effect()
    }
}
