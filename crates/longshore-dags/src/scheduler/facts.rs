//! What has happened since the last commit.
//!
//! Facts may come twice, late, or after the task instance has moved on: each one about a pod carries the id of the try
//! and the number of the launch that it belongs to, and changes nothing unless both are current (fencing). The one
//! exception is an earlier launch of the current try that succeeded by itself: the work is done. What a worker says carries
//! the id of its try, and each such fact gets an answer.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_store::{DocumentHash, Failure, RunDetails, RunKey, RunType, StoredDocument};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    model::Dag,
    scheduler::{clear::Clearing, worker::WorkerFact},
};

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A user or a timetable requests a run. A run of that name that exists already, unfinished, is left as it is; a
    /// finished one is known only to the store, so the caller looks there first.
    RunRequested(NewRun),
    /// The objects that all pods of a run share exist in the cluster.
    RunPrepared(RunKey),
    /// Those objects cannot be created: the run fails.
    RunPrepareRefused {
        /// The run.
        run: RunKey,
        /// The API server's own words.
        message: String,
    },
    /// End the run now. Its task instances end too, and their pods go because no row needs them any more.
    CancelRun(RunKey),
    /// Stop the run without ending it: queued and running task instances go back to `Scheduled` within the same try,
    /// and nothing starts until [`Fact::Resume`]. The run is `Queued` with the reason `interrupted` meanwhile, also for
    /// the next process. A success that is reported only after this counts if the pod ended by itself, so that nothing runs
    /// twice; one that was stopped does not.
    Interrupt(RunKey),
    /// Let an interrupted run go on.
    Resume(RunKey),
    /// Give task instances a new try.
    Clear(Clearing),
    /// No pod of a try lives, and none will be made while it is `Restarting`.
    LaunchEnded {
        /// The try.
        ti_id: Uuid,
    },
    /// The rows are in another cluster than before, where nothing of ours exists: what had a slot goes back within the
    /// same try, and what the pods of each run share has to be made again.
    ClusterChanged,
    /// Something about a pod.
    Launched(LaunchFact),
    /// The worker of a try says something.
    Worker(WorkerFact),
    /// The API server refused a pod for good (section 2.4 of the DAG scheduler spec): the try fails, the retry rule
    /// applies.
    LaunchRefused {
        /// The try.
        ti_id: Uuid,
        /// The launch that was refused.
        launch: u32,
        /// The API server's own words.
        message: String,
    },
    /// The pod could not be built (template, `executor_config`): the task fails without a retry.
    LaunchBuildFailed {
        /// The try.
        ti_id: Uuid,
        /// The launch that could not be built.
        launch: u32,
        /// What is wrong, for the user.
        message: String,
    },
}

impl Fact {
    /// The run that it asks for, if it asks for one.
    pub(crate) fn requested(&self) -> Option<RunKey> {
        if let Self::RunRequested(new) = self {
            Some(new.key())
        } else {
            None
        }
    }

    /// The clear that it asks for, if it asks for one.
    pub(crate) fn clearing(&self) -> Option<&Clearing> {
        if let Self::Clear(clearing) = self {
            Some(clearing)
        } else {
            None
        }
    }

    /// The try that it is about, if it is about one.
    pub fn ti_id(&self) -> Option<Uuid> {
        match self {
            Self::Launched(fact) => Some(fact.ti_id),
            Self::Worker(fact) => Some(fact.ti_id),
            Self::LaunchEnded { ti_id } => Some(*ti_id),
            Self::LaunchRefused { ti_id, .. } | Self::LaunchBuildFailed { ti_id, .. } => {
                Some(*ti_id)
            }
            Self::RunRequested(_)
            | Self::RunPrepared(_)
            | Self::RunPrepareRefused { .. }
            | Self::CancelRun(_)
            | Self::Interrupt(_)
            | Self::Resume(_)
            | Self::Clear(_)
            | Self::ClusterChanged => None,
        }
    }
}

/// A run that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// The DAG that the run is pinned to.
    pub dag: Arc<Dag>,
    /// The hash of the document of `dag`.
    pub dag_hash: DocumentHash,
    /// That document, where the database may not have it: it is stored with the run.
    pub document: Option<StoredDocument>,
    /// The name of the run, unique within the DAG.
    pub run_id: String,
    /// What asks for it.
    pub run_type: RunType,
    /// The instant that it is about.
    pub logical_date: Option<Timestamp>,
    /// Parameters over the DAG's defaults.
    pub conf: Value,
    /// What Airflow knows of a run beside that. Where it names a version of the DAG, workers run the tasks.
    pub details: RunDetails,
}

impl NewRun {
    /// A run of a DAG that the database may not have, started by a user.
    pub fn manual(dag: Arc<Dag>, run_id: String) -> Self {
        let document = StoredDocument::of(&dag.to_json());
        Self {
            dag,
            dag_hash: document.hash().clone(),
            document: Some(document),
            run_id,
            run_type: RunType::Manual,
            logical_date: None,
            conf: json!({}),
            details: RunDetails::default(),
        }
    }

    /// The address of the run.
    pub fn key(&self) -> RunKey {
        RunKey {
            dag_id: self.dag.dag_id.clone(),
            run_id: self.run_id.clone(),
        }
    }
}

/// Something about a pod of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchFact {
    /// The try that the pod belongs to.
    pub ti_id: Uuid,
    /// Which launch of that try it is.
    pub launch: u32,
    /// Its name.
    pub pod_name: String,
    /// Its uid.
    pub pod_uid: String,
    /// The `resourceVersion` of the event; `None` where the fact comes from a comparison.
    pub resource_version: Option<String>,
    /// What happened to it.
    pub what: LaunchChange,
}

/// What happened to a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum LaunchChange {
    /// It exists and has not started its process.
    Exists,
    /// It waits for what will not come. That is no end: its node may still start the process.
    Stuck {
        /// What it waits for.
        failure: Failure,
    },
    /// Its process runs.
    Running {
        /// When its process started; `None` where the node did not say.
        started_at: Option<Timestamp>,
    },
    /// Its process ended well.
    Succeeded {
        /// When its process started.
        started_at: Option<Timestamp>,
        /// When it ended.
        ended_at: Option<Timestamp>,
        /// Whether its deletion had begun before: a process that was asked to end may well exit with 0.
        was_stopped: bool,
        /// The task's small result, where it wrote one.
        result: Option<Value>,
        /// Why what it wrote is no result, for the user. The task has succeeded all the same.
        note: Option<String>,
    },
    /// It ended badly.
    Failed {
        /// When its process started, where it did.
        started_at: Option<Timestamp>,
        /// When it ended.
        ended_at: Option<Timestamp>,
        /// What was seen.
        failure: Failure,
        /// Whether the task's process never ran: a launch failure, which does not consume a try at first.
        before_start: bool,
    },
    /// It is gone, and its process never ran.
    Gone,
    /// It is gone, no final state was seen, and its process may have run. Where this comes from a comparison with a list,
    /// the pod that is not listed is the one with the uid that the row has recorded, not the one with its name.
    Lost,
}
