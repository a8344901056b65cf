//! The rows of the database as types.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

mod airflow;

pub use airflow::{
    AirflowTask, Bundle, BundleVersion, DagVersion, Deferral, Expansion, FileKey, ImportError,
    Looks, Reschedule, RunDetails, Trigger, WorkerProcess,
};

/// A DAG run's address: Airflow's `dag_id` and `run_id`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// The id of the DAG.
    pub dag_id: String,
    /// The id of the run, unique within the DAG: `manual__2026-11-21T10:00:00+00:00`.
    pub run_id: String,
}

impl RunKey {
    /// A task of this run that is not mapped.
    pub fn task(&self, task_id: impl Into<String>) -> TaskKey {
        TaskKey {
            run: self.clone(),
            task_id: task_id.into(),
            map_index: -1,
        }
    }
}

impl std::fmt::Display for RunKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.dag_id, self.run_id)
    }
}

/// The state of a run, in Airflow's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Created, not started: its DAG has `max_active_runs` running.
    Queued,
    /// Its tasks are being scheduled.
    Running,
    /// Every leaf ended in success or was skipped.
    Success,
    /// A leaf failed, it timed out, or it was cancelled.
    Failed,
}

impl RunState {
    /// Whether the run has ended.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Success | Self::Failed)
    }
}

/// What started a run, in Airflow's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunType {
    /// The timetable of the DAG.
    Scheduled,
    /// A user.
    Manual,
    /// A backfill.
    Backfill,
    /// A task of another run.
    OperatorTriggered,
    /// Events of assets.
    AssetTriggered,
    /// The materialization of an asset.
    AssetMaterialization,
}

/// The address of a DAG document: the SHA-256 of its text, in hexadecimal. Rows refer to their document by it, so that a
/// document is stored, and read, once for all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentHash(Arc<str>);

impl DocumentHash {
    /// The hash in a column.
    pub(crate) fn stored(text: String) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DocumentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A DAG document as it is stored. A clone shares the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    hash: DocumentHash,
    body: Arc<str>,
}

impl StoredDocument {
    /// The validated document of a DAG, as its file had it, files beside it included.
    pub fn of(document: &Value) -> Self {
        Self::of_text(document.to_string())
    }

    fn of_text(body: String) -> Self {
        let hash = Sha256::digest(&body);
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            hash: DocumentHash(hash.into()),
            body: body.into(),
        }
    }

    /// The text of a DAG file, in the same table. NUL bytes, which Postgres cannot store and Python does not read, become
    /// replacement characters.
    pub fn of_source(text: &str) -> Self {
        Self::of_text(text.replace('\0', "\u{fffd}"))
    }

    /// A document and its address from their row.
    pub(crate) fn stored(hash: String, body: String) -> Self {
        Self {
            hash: DocumentHash::stored(hash),
            body: body.into(),
        }
    }

    /// The address of the document.
    pub fn hash(&self) -> &DocumentHash {
        &self.hash
    }

    /// The document as JSON text.
    pub fn body(&self) -> &str {
        &self.body
    }
}

/// One run of a DAG, pinned to the DAG as it was when the run was created.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The key of the run.
    pub key: RunKey,
    /// What started the run.
    pub run_type: RunType,
    /// The state of the run.
    pub state: RunState,
    /// The instant that the run is about; `None` for a manual run without one.
    pub logical_date: Option<Timestamp>,
    /// When it was created.
    pub queued_at: Timestamp,
    /// When its first task could start.
    pub start_date: Option<Timestamp>,
    /// When it ended.
    pub end_date: Option<Timestamp>,
    /// Parameters given at the trigger, over the DAG's defaults.
    pub conf: Value,
    /// The document that the run is pinned to. A run of a DAG from Python may move on to that of a later version.
    pub dag_hash: DocumentHash,
    /// Whether the objects that all its pods share (files, workspace) exist in the cluster.
    pub is_prepared: bool,
    /// Why the run ended so, where that is not plain from its tasks (`timed_out`, `cancelled`, `all_tasks_deadlocked`).
    pub reason: Option<String>,
    /// What Airflow knows of a run beside that.
    pub details: RunDetails,
    /// Row version for optimistic locking; 0 before the first commit, the store counts it up.
    pub version: i64,
}

/// The state of a task instance, in Airflow's words. "None" of Airflow is `Option::None` in [`TaskInstance::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Its dependencies hold; waits for a slot.
    Scheduled,
    /// Has a slot; its pod is to be created or has not started yet.
    Queued,
    /// Its pod runs.
    Running,
    /// A user cleared it, and a pod of this try may still live; a new try follows once no pod does.
    Restarting,
    /// Ended well.
    Success,
    /// Ended badly, with no try left.
    Failed,
    /// Ended badly; tries again after its delay.
    UpForRetry,
    /// A sensor that gave up its worker; the same try looks again later.
    UpForReschedule,
    /// Gave up its worker; the same try goes on when its trigger says so.
    Deferred,
    /// Gave up its worker; the same try goes on when a human has answered.
    AwaitingInput,
    /// Never ran: a dependency failed.
    UpstreamFailed,
    /// Never ran: a dependency was skipped, or its rule said so.
    Skipped,
    /// The task is gone from the DAG.
    Removed,
}

impl TaskState {
    /// Whether the task has ended for this run.
    pub fn is_finished(self) -> bool {
        match self {
            Self::Success | Self::Failed | Self::UpstreamFailed | Self::Skipped | Self::Removed => {
                true
            }
            Self::Scheduled
            | Self::Queued
            | Self::Running
            | Self::Restarting
            | Self::UpForRetry
            | Self::UpForReschedule
            | Self::Deferred
            | Self::AwaitingInput => false,
        }
    }

    /// Whether a task instance in this state holds slots of its pool and of its run.
    pub fn is_occupying(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// Whether it has begun and gave up its worker to wait, and with it the slot of its run.
    pub fn is_waiting_outside(self) -> bool {
        matches!(self, Self::Deferred | Self::AwaitingInput)
    }
}

/// A task of a run, or one instance of a mapped task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// The run of the task.
    pub run: RunKey,
    /// The id of the task within the DAG.
    pub task_id: String,
    /// Counts from 0; -1 for an unmapped task, and for a mapped one whose length is not known yet.
    pub map_index: i32,
}

impl std::fmt::Display for TaskKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.run, self.task_id)?;
        if self.map_index >= 0 {
            write!(f, "[{}]", self.map_index)
        } else {
            Ok(())
        }
    }
}

/// Why a try ended badly: what was seen of its pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One sentence for the user: what ended, how, with which code.
    pub message: String,
    /// Reason of the container or the pod (`Error`, `OOMKilled`, `Evicted`, `DeadlineExceeded`, `PodDeleted`, …).
    pub reason: Option<String>,
    /// Exit code of the container that ended badly first.
    pub exit_code: Option<i32>,
    /// Name of that container.
    pub container: Option<String>,
}

/// One task instance: the current try of one task of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskInstance {
    /// Regenerated for every try: the fencing id, in the pod's label `ti_id`.
    pub id: Uuid,
    /// The key of the task instance.
    pub key: TaskKey,
    /// The state of the task instance; `None` before its dependencies hold.
    pub state: Option<TaskState>,
    /// 0 before the first try; counted up when it becomes `Scheduled` for a new try.
    pub try_number: u32,
    /// The try after which there is no retry is `max_tries` + 1. A clear moves it on: as many retries again.
    pub max_tries: u32,
    /// Which launch of this try is current, from 1; counted up before each relaunch of the same try, part of the pod's
    /// name. 0 before the first launch.
    pub launch: u32,
    /// Launches of this try that died before the task process ran (upstream's `pod_launch_failure_retries` bounds them).
    pub launch_failures: u32,
    /// The pool whose slots the task takes.
    pub pool: String,
    /// The number of slots that the task takes.
    pub pool_slots: u32,
    /// The weight in the queue, computed at creation.
    pub priority_weight: i64,
    /// When it became `Scheduled`.
    pub scheduled_at: Option<Timestamp>,
    /// When it became `Queued`.
    pub queued_at: Option<Timestamp>,
    /// When its process started.
    pub start_date: Option<Timestamp>,
    /// When it ended.
    pub end_date: Option<Timestamp>,
    /// The pod of the current launch, or its TaskAction, from the moment that the launch is decided.
    pub pod_name: Option<String>,
    /// The uid of that object once the scheduler saw it: from then on, a missing object was deleted, not "not created
    /// yet".
    pub pod_uid: Option<String>,
    /// Why the last try ended badly.
    pub failure: Option<Failure>,
    /// The task's small result (`$LONGSHORE_RETURN`), read downstream as `{{ xcom.TASK.field }}`.
    pub result: Option<Value>,
    /// Why what the task left is no result, for the user; `None` where it left one, or nothing.
    pub result_note: Option<String>,
    /// What only a task of a DAG from Python has; `None` for a task of a container DAG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub airflow: Option<Box<AirflowTask>>,
    /// Row version for optimistic locking; 0 before the first commit, the store counts it up.
    pub version: i64,
}

impl TaskInstance {
    /// A task instance that has not begun: in the default pool, without retries, and not stored yet.
    pub fn new(id: Uuid, key: TaskKey) -> Self {
        Self {
            id,
            key,
            state: None,
            try_number: 0,
            max_tries: 0,
            launch: 0,
            launch_failures: 0,
            pool: DEFAULT_POOL.to_owned(),
            pool_slots: 1,
            priority_weight: 1,
            scheduled_at: None,
            queued_at: None,
            start_date: None,
            end_date: None,
            pod_name: None,
            pod_uid: None,
            failure: None,
            result: None,
            result_note: None,
            airflow: None,
            version: 0,
        }
    }
}

/// A try that has ended and that another try follows: Airflow's task instance history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchivedTry {
    /// The task instance as it was when the try ended, with its own id.
    pub task_instance: TaskInstance,
}

/// The pool of tasks that name none. It always exists.
pub const DEFAULT_POOL: &str = "default_pool";

/// A pool of slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The name of the pool.
    pub name: String,
    /// How many slots; -1 is unlimited.
    pub slots: i64,
    /// Whether deferred tasks hold their slots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_deferred: bool,
    /// The file that the slots come from; `None` where they come from a request of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PoolFile>,
}

/// The file of the DAG folder that names a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFile {
    /// Its path, relative to the folder.
    pub name: String,
    /// How many slots a user had given the pool before the file named it: it gets them back when the file no longer
    /// does. `None` where there was no such pool, which is then deleted.
    pub slots_before: Option<i64>,
}

impl Pool {
    /// A pool that no file names.
    pub fn new(name: impl Into<String>, slots: i64) -> Self {
        Self {
            name: name.into(),
            slots,
            include_deferred: false,
            file: None,
        }
    }
}

/// What the service knows of a DAG in its folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Dag {
    /// The id of the DAG.
    pub dag_id: String,
    /// The DAG file, relative to the folder; `None` once the file is gone.
    pub file: Option<String>,
    /// Whether no scheduled run may be created.
    pub is_paused: bool,
    /// The next scheduled run; `None` where there is none to come.
    pub next_run: Option<NextRun>,
    /// The data interval of its latest scheduled run: where its schedule goes on from.
    pub last_interval: Option<(Timestamp, Timestamp)>,
    /// When the service last read the file and found that it had changed.
    pub parsed_at: Timestamp,
    /// What was wrong with the file then.
    pub error: Option<String>,
    /// The last document without errors. Each DAG has one from the beginning.
    pub document_hash: DocumentHash,
    /// Row version for optimistic locking; 0 before the first commit, the store counts it up.
    pub version: i64,
}

/// A scheduled run to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextRun {
    /// When it is due.
    pub run_after: Timestamp,
    /// The instant that the run will be about.
    pub logical_date: Option<Timestamp>,
    /// The interval that the run will be about: start and end.
    pub data_interval: Option<(Timestamp, Timestamp)>,
}
