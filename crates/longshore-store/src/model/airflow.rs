//! What only DAGs from Python have.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{DocumentHash, RunKey, TaskKey};

/// A place of DAG files, as it was last seen: an Airflow bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The name of the bundle.
    pub name: String,
    /// The version that was last seen (a commit); `None` for a bundle without versions.
    pub bundle_version: Option<String>,
    /// When it was last looked at; `None` before.
    pub refreshed_at: Option<Timestamp>,
    /// Whether the configuration names it.
    pub is_active: bool,
    /// Row version for optimistic locking; 0 before the first commit, the store counts it up.
    pub version: i64,
}

/// A bundle, and which of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleVersion {
    /// The name of the bundle.
    pub name: String,
    /// The version; `None` for a bundle without versions.
    pub version: Option<String>,
}

/// A version of a DAG. What it says never changes; where and in which text it was last seen may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DagVersion {
    /// `dag_version_id` of workloads.
    pub id: Uuid,
    /// The id of the DAG.
    pub dag_id: String,
    /// Counts from 1 for each DAG.
    pub number: u32,
    /// SHA-256, in hexadecimal, of what the document says: `Document::hash` of `longshore-airflow`. An update leaves this
    /// and all above as they were.
    pub content_hash: String,
    /// The serialized DAG. An update leaves it as it was.
    pub document: DocumentHash,
    /// The text of the DAG file: [`StoredDocument::of_source`](super::StoredDocument::of_source).
    pub source: Option<DocumentHash>,
    /// The bundle that it was last parsed in.
    pub bundle: Option<BundleVersion>,
    /// The file, relative to the bundle.
    pub file: String,
    /// When it was first seen. An update leaves it as it was.
    pub created_at: Timestamp,
    /// Row version for optimistic locking; 0 before the first commit, the store counts it up.
    pub version: i64,
}

impl fmt::Display for DagVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of DAG {}", self.number, self.dag_id)
    }
}

/// The address of a DAG file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// The name of the bundle.
    pub bundle: String,
    /// The file, relative to the bundle.
    pub file: String,
}

impl fmt::Display for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bundle, self.file)
    }
}

/// Why no DAG could be read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The file.
    pub key: FileKey,
    /// What the parser said: a traceback, or a sentence.
    pub error: String,
    /// When it said so.
    pub seen_at: Timestamp,
    /// Row version for optimistic locking; 0 before the first commit, the store counts it up.
    pub version: i64,
}

/// What a run has beside what every run has. The default is a run that may start at once and is about no interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunDetails {
    /// Before this the run does not start.
    pub run_after: Option<Timestamp>,
    /// The interval that the run is about: start and end.
    pub data_interval: Option<(Timestamp, Timestamp)>,
    /// The [`DagVersion`] whose document the run refers to; `None` for container DAGs.
    pub dag_version: Option<Uuid>,
    /// The version of the bundle that the run is pinned to.
    pub bundle_version: Option<String>,
    /// How often users cleared tasks of the run.
    pub clear_number: u32,
    /// Who asked for the run.
    pub triggered_by: Option<String>,
    /// For people.
    pub note: Option<String>,
}

/// What a task instance of a DAG from Python has beside what every task instance has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AirflowTask {
    /// The [`DagVersion`] that the try belongs to.
    pub dag_version: Uuid,
    /// The process that runs it, as it said itself.
    pub process: Option<WorkerProcess>,
    /// The method that goes on after a deferral; `None` where the try begins at its beginning.
    pub next_method: Option<String>,
    /// When the wait for a trigger, or for a human, is over.
    pub timeout_at: Option<Timestamp>,
    /// The looks of a sensor in this try that gave up their worker.
    pub looks: Option<Looks>,
    /// The wait before the next try that a retry policy wants instead of the task's. Whole microseconds are stored.
    pub retry_delay: Option<SignedDuration>,
    /// Why the retry policy wants that.
    pub retry_reason: Option<String>,
}

impl AirflowTask {
    /// A try that has not begun, of this version of its DAG.
    pub fn new(dag_version: Uuid) -> Self {
        Self {
            dag_version,
            process: None,
            next_method: None,
            timeout_at: None,
            looks: None,
            retry_delay: None,
            retry_reason: None,
        }
    }
}

/// The process that runs a try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerProcess {
    /// Its host.
    pub hostname: String,
    /// The user whose process it is.
    pub unixname: String,
    /// Its id on that host.
    pub pid: i64,
}

/// How often and until when a sensor gave up its worker, in one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// How often.
    pub n: u32,
    /// When the first look began: the timeout of the sensor counts from it.
    pub first_at: Timestamp,
    /// When the next one is due.
    pub next_at: Timestamp,
}

/// One look of a sensor that gave up its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reschedule {
    /// The try.
    pub task_instance_id: Uuid,
    /// Counts from 1 for each try.
    pub number: u32,
    /// When the look began.
    pub start_date: Timestamp,
    /// When it ended.
    pub end_date: Timestamp,
    /// When the next one is due.
    pub reschedule_date: Timestamp,
}

/// How a try goes on that gave up its worker to wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Deferral {
    /// The try.
    pub task_instance_id: Uuid,
    /// What it waits for; `None` for a human.
    pub trigger: Option<Trigger>,
    /// Arguments of the method that goes on, as the worker sent them.
    pub next_kwargs: Value,
}

/// What a try waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// Its class.
    pub classpath: String,
    /// Its arguments, as the worker sent them.
    pub kwargs: Value,
    /// Its queue; `None` for the default.
    pub queue: Option<String>,
}

/// A mapped task whose length is known: its task instance with map index -1 becomes the one with map index 0, and keeps its
/// id and its row version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// The run.
    pub run: RunKey,
    /// The task.
    pub task_id: String,
    /// The row version of the task instance.
    pub version: i64,
}

impl Expansion {
    /// The task instance before it was expanded.
    pub fn key(&self) -> TaskKey {
        self.run.task(&self.task_id)
    }
}
