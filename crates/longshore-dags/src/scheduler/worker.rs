//! What the workers of tasks from Python say about their try, and what they are answered
//! (sections 3.2, 4 and 4.1 of the DAG scheduler spec).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use longshore_store::{Run, TaskInstance, TaskState, Trigger, WorkerProcess};
use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

/// A worker says something about its try, and waits for the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerFact {
    /// The try: the id that the worker got with its workload.
    pub ti_id: Uuid,
    /// The request that waits for the answer.
    pub request: RequestId,
    /// What it says.
    pub report: Arc<WorkerReport>,
}

/// A request of a worker, counted by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a worker says.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerReport {
    /// It begins.
    Started {
        /// The process that runs the task.
        process: WorkerProcess,
        /// When it began, by the worker's clock.
        started_at: Timestamp,
    },
    /// The try is over.
    Ended {
        /// How.
        end: TryEnd,
        /// When, by the worker's clock.
        ended_at: Timestamp,
    },
    /// The try failed, and asks for the next one: the worker knows from its start whether one is left.
    Retry {
        /// When it failed, by the worker's clock.
        ended_at: Timestamp,
        /// The wait that a retry policy wants instead of the task's.
        delay: Option<SignedDuration>,
        /// Why the retry policy wants that.
        reason: Option<String>,
    },
    /// A sensor gives up its worker, and looks again later.
    Reschedule {
        /// When this look ended, by the worker's clock.
        ended_at: Timestamp,
        /// When the next one is due.
        next_at: Timestamp,
    },
    /// The try gives up its worker, and goes on later: when a trigger says so, or a human has answered.
    Suspended {
        /// What it waits for; `None` for a human.
        trigger: Option<Trigger>,
        /// How long it waits at most, from now on.
        timeout: Option<SignedDuration>,
        /// The method that goes on.
        next_method: String,
        /// Its arguments, as the worker sent them.
        next_kwargs: Value,
    },
    /// A branch was taken: other task instances of the run are skipped. The try goes on.
    Skips {
        /// Which ones: the task and the map index.
        instances: Vec<(String, i32)>,
    },
}

/// How a try is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryEnd {
    /// It succeeded.
    Success,
    /// It failed for good.
    Failed,
    /// It skipped itself.
    Skipped,
    /// It found that its task is no longer in the DAG.
    Removed,
    /// It found that a task before it failed.
    UpstreamFailed,
}

impl From<TryEnd> for TaskState {
    fn from(end: TryEnd) -> Self {
        match end {
            TryEnd::Success => Self::Success,
            TryEnd::Failed => Self::Failed,
            TryEnd::Skipped => Self::Skipped,
            TryEnd::Removed => Self::Removed,
            TryEnd::UpstreamFailed => Self::UpstreamFailed,
        }
    }
}

impl WorkerReport {
    /// The state that the task instance is to have; `None` where the report is about others.
    pub fn state(&self) -> Option<TaskState> {
        Some(match self {
            Self::Started { .. } => TaskState::Running,
            Self::Ended { end, .. } => (*end).into(),
            Self::Retry { .. } => TaskState::UpForRetry,
            Self::Reschedule { .. } => TaskState::UpForReschedule,
            Self::Suspended {
                trigger: Some(_), ..
            } => TaskState::Deferred,
            Self::Suspended { trigger: None, .. } => TaskState::AwaitingInput,
            Self::Skips { .. } => return None,
        })
    }
}

/// The answer to a worker, which it gets once the round that decided it is committed.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerAnswer {
    /// It began: what it needs to run.
    Started(Box<Started>),
    /// The task instance has the state that the worker asked for.
    Changed,
    /// It had it: the worker has lost the first answer.
    Already,
    /// It is in a state in which the worker cannot do that.
    Refused(Option<TaskState>),
}

/// What a worker that begins needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// The run.
    pub run: Run,
    /// The task instance, which runs.
    pub task_instance: TaskInstance,
}

/// Workers that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct WaitingWorkers {
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    n_asked: u64,
    waiting: BTreeMap<RequestId, oneshot::Sender<Option<WorkerAnswer>>>,
}

impl WaitingWorkers {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request, and where its answer comes. A caller that goes away needs to say nothing.
    pub(crate) fn ask(&self) -> (RequestId, oneshot::Receiver<Option<WorkerAnswer>>) {
        let (answer, answered) = oneshot::channel();
        let mut requests = self.requests();
        requests.n_asked += 1;
        let id = RequestId(requests.n_asked);
        requests.waiting.insert(id, answer);
        (id, answered)
    }

    /// Answers these requests.
    pub(crate) fn answer(&self, answers: &[(RequestId, Option<WorkerAnswer>)]) {
        if answers.is_empty() {
            return;
        }
        let mut requests = self.requests();
        for (id, answer) in answers {
            if let Some(waiting) = requests.waiting.remove(id) {
                // A client that went away asks again.
                let _ = waiting.send(answer.clone());
            }
        }
    }
}
