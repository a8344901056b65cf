//! The seam to everything that makes a run happen: embedded cluster, process node, scheduler, database.
//!
//! The command line hands over an [`Order`] and gets a [`Started`] run, whose state changes it follows to the [`End`].

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use longshore_dags::model::Dag;
use longshore_store::{Run, RunKey, TaskInstance};
use serde_json::{Map, Value};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{error::CliError, progress::change::StateChange};

pub(crate) mod places;

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Order {
    /// The DAG.
    pub(crate) dag: Dag,
    /// Parameters, over the DAG's defaults.
    pub(crate) params: Map<String, Value>,
    /// A run to go on with; `None` starts a new one.
    pub(crate) resume: Option<String>,
    /// Pods at the same time.
    pub(crate) parallelism: Option<NonZeroU32>,
    /// The data directory, locked by the caller.
    pub(crate) data_dir: PathBuf,
}

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its address.
    pub(crate) run: RunKey,
    /// Every transition, in order. Closed when the run is over or was stopped.
    pub(crate) changes: mpsc::UnboundedReceiver<StateChange>,
    /// Cancel it to stop the pods within their grace and leave the run resumable.
    pub(crate) stop: CancellationToken,
    /// How it ended; ready once `changes` is closed.
    pub(crate) end: JoinHandle<Result<End, CliError>>,
}

/// A run that is over, or was stopped on the way.
#[derive(Debug)]
pub(crate) struct End {
    /// The run as it stands; finished unless it was stopped.
    pub(crate) run: Run,
    /// Its task instances, in the order of their ids.
    pub(crate) tasks: Vec<TaskEnd>,
    /// The directory that the tasks shared, where the DAG has one: the outputs.
    pub(crate) workspace: Option<PathBuf>,
    /// The directory with the tasks' logs.
    pub(crate) logs: PathBuf,
}

/// A task instance as it stands.
#[derive(Debug)]
pub(crate) struct TaskEnd {
    /// Its row.
    pub(crate) task_instance: TaskInstance,
    /// The log of its last try, where it had one.
    pub(crate) log: Option<PathBuf>,
}

/// Starts a run, or goes on with one.
pub(crate) async fn start(order: Order) -> Result<Started, CliError> {
    let _: (&Path, &Dag) = (&order.data_dir, &order.dag);
    Err(CliError::NotYet {
        what: "a run".to_owned(),
        when: "with the scheduler",
    })
}
