//! All requests that the service can serve: the interface between HTTP and the scheduler.

use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

use crate::{
    feed::Feed,
    names::{RunName, TaskName},
    objects::{Check, Clear, Dag, ImportError, Pool, Run, Task, Trigger},
};

/// A log as it comes. An error ends it.
pub type LogStream = Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>;

/// Which runs are listed, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQuery {
    /// Only of this DAG.
    pub dag_id: Option<String>,
    /// Only in one of these states; all where it is empty.
    pub states: Vec<String>,
    /// At most so many.
    pub limit: usize,
    /// Only those that come after this one: the last of the page before.
    pub after: Option<RunName>,
}

/// Runs, and whether there are more of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunPage {
    /// The runs, newest first.
    pub runs: Vec<Run>,
    /// Whether the query has more.
    pub has_more: bool,
}

/// Which part of a task's logs is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// The try, from 1; the last one where it is absent.
    pub attempt: Option<u32>,
    /// Only so many of its last lines.
    pub tail: Option<usize>,
    /// How long the log is read.
    pub until: Until,
}

/// How long a log is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// To the present end of the log.
    #[default]
    Now,
    /// To the end of the try, however long that takes.
    End,
}

/// Whether the schedule of a DAG makes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The schedule makes no runs.
    Paused,
    /// The schedule makes runs.
    Active,
}

/// The service.
///
/// *Guarantees of every implementation*: a change that was answered is durable; every call may be
/// repeated; dropping a call leaves it wholly done or not at all. All calls return within seconds;
/// [`logs`](Self::logs) returns a stream that may last.
#[async_trait]
pub trait Control: Checks {
    /// All DAGs in the order of their ids.
    async fn dags(&self) -> Result<Vec<Dag>, ControlError>;

    /// The files that could not be read as DAGs, in the order of their names.
    async fn import_errors(&self) -> Result<Vec<ImportError>, ControlError>;

    /// One DAG.
    async fn dag(&self, dag_id: &str) -> Result<Dag, ControlError>;

    /// Holds the schedule of a DAG, or lets it go on.
    async fn set_pause(&self, dag_id: &str, pause: Pause) -> Result<Dag, ControlError>;

    /// Creates a run.
    async fn trigger(&self, dag_id: &str, trigger: Trigger) -> Result<Run, ControlError>;

    /// Lists runs.
    async fn runs(&self, query: &RunQuery) -> Result<RunPage, ControlError>;

    /// One run.
    async fn run(&self, run: &RunName) -> Result<Run, ControlError>;

    /// Requests the end of a run: its pods are stopped within their grace periods.
    async fn cancel(&self, run: &RunName) -> Result<Run, ControlError>;

    /// Clears what did not get done in a run that is over: failed tasks, those that never ran because of them, and
    /// those that were cut off when it was cancelled or timed out. Returns these tasks.
    async fn retry(&self, run: &RunName) -> Result<Vec<Task>, ControlError>;

    /// The task instances of a run in the order of their ids.
    async fn tasks(&self, run: &RunName) -> Result<Vec<Task>, ControlError>;

    /// One task instance with its earlier tries.
    async fn task(&self, task: &TaskName) -> Result<Task, ControlError>;

    /// Lets a task run again. Returns the tasks that were cleared.
    async fn clear(&self, task: &TaskName, clear: Clear) -> Result<Vec<Task>, ControlError>;

    /// Reads the log of a try, live or stored, whichever exists.
    async fn logs(&self, task: &TaskName, query: LogQuery) -> Result<LogStream, ControlError>;

    /// The pools in the order of their names.
    async fn pools(&self) -> Result<Vec<Pool>, ControlError>;

    /// Creates or changes a pool.
    async fn set_pool(&self, pool: Pool) -> Result<Pool, ControlError>;

    /// Deletes a pool, and returns what it was.
    async fn delete_pool(&self, name: &str) -> Result<Pool, ControlError>;

    /// The state changes.
    fn feed(&self) -> &Feed;
}

/// The checks of a process: whether it lives, and whether it can serve.
#[async_trait]
pub trait Checks: Send + Sync + 'static {
    /// What must go on inside the process, whatever becomes of databases and clusters.
    fn vital_signs(&self) -> Vec<Check>;

    /// Everything that it needs in order to serve.
    async fn checks(&self) -> Vec<Check>;
}

/// Why the service refused or failed a request. The message is for the user.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no such DAG.
    #[error("there is no DAG {dag_id}")]
    UnknownDag {
        /// The id that was given.
        dag_id: String,
        /// The DAG that was probably meant.
        nearest: Option<String>,
    },
    /// There is no such run.
    #[error("there is no run {} of the DAG {}", .0.run_id, .0.dag_id)]
    UnknownRun(RunName),
    /// There is no such pool.
    #[error("there is no pool {0}")]
    UnknownPool(String),
    /// The run has no such task.
    #[error("there is no task {} in the run {}", .0.task_id, .0.run)]
    UnknownTask(TaskName),
    /// The try has no log: it has not started, or it never did.
    #[error("there is no log of {task}: {why}")]
    NoLog {
        /// The task.
        task: TaskName,
        /// Why the try has no log.
        why: String,
    },
    /// A file of the DAG folder names the pool, and would set it back.
    #[error("the pool {pool} comes from {file} in the DAG folder, which would set it back")]
    PoolInFile {
        /// The pool.
        pool: String,
        /// The file, relative to the folder.
        file: String,
    },
    /// The name is taken.
    #[error("the run {0} exists already")]
    RunExists(RunName),
    /// The state of the object does not allow the request.
    #[error("{what} is {state}: {expected}")]
    WrongState {
        /// The object, as `run etl/r1`.
        what: String,
        /// The state of the object.
        state: String,
        /// The states in which the request is possible.
        expected: &'static str,
    },
    /// The parameters are not those of the DAG.
    #[error("the DAG {dag_id} has no parameter {name}")]
    UnknownParam {
        /// The id of the DAG.
        dag_id: String,
        /// The parameter that it does not have.
        name: String,
    },
    /// The request has the right form and makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// This version cannot.
    #[error("{0} is not possible yet")]
    NotYet(&'static str),
    /// The request may succeed later: the database or the cluster does not answer.
    #[error("{what} does not answer")]
    Unavailable {
        /// The part that does not answer.
        what: &'static str,
        /// The error of that part.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Our mistake.
    #[error("internal error at {0}")]
    Internal(String),
}
