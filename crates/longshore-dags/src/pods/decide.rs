//! Which pod of a try is to be created or removed. One round is about one try, that is: one task-instance id.

use jiff::Timestamp;
use longshore_core::{Never, ObjectRef, Plan, Seen};
use longshore_store::TaskState;
use serde_json::Value;
use uuid::Uuid;

/// All that a round is decided upon.
#[derive(Clone, Debug)]
pub struct PodsObserved {
    /// The clock.
    pub now: Timestamp,
    /// The try.
    pub ti_id: Uuid,
    /// The committed row of the try, current or archived.
    pub task: Seen<TaskView>,
    /// The pods that carry the id of the try.
    pub pods: Seen<Vec<PodView>>,
    /// Whether the watch has caught up since the start, so that a pod which is not seen is not there.
    pub replay_done: bool,
    /// What becomes of pods that have ended.
    pub config: PodsConfig,
    /// Whether the log of the pod that ended is archived.
    pub is_log_archived: bool,
}

/// What becomes of pods that have ended, from Airflow's `[kubernetes_executor]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodsConfig {
    /// Delete a pod whose task has ended; `delete_worker_pods`.
    pub delete_worker_pods: bool,
    /// Delete it also if it failed; `delete_worker_pods_on_failure`.
    pub delete_worker_pods_on_failure: bool,
}

impl Default for PodsConfig {
    fn default() -> Self {
        Self {
            delete_worker_pods: true,
            delete_worker_pods_on_failure: false,
        }
    }
}

/// What the row of a try says about its pod.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// The state of the try; an archived one is `Failed`.
    pub state: Option<TaskState>,
    /// Its current launch.
    pub launch: u32,
    /// The pod that it wants, where one is to be created; `None` where the pod cannot be built, which the scheduler
    /// hears as [`Fact::LaunchBuildFailed`](crate::scheduler::Fact::LaunchBuildFailed).
    pub pod: Option<Value>,
}

/// A pod as far as the decision goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// The pod, with its uid.
    pub object: ObjectRef,
    /// Which launch of the try it is.
    pub launch: u32,
    /// Where it is in its life.
    pub phase: PodPhase,
    /// Whether its deletion is under way.
    pub is_deleting: bool,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not ended: pending, running or unknown.
    Live,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// What the pods controller does besides creating and deleting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodsEffect {
    /// Copy the pod's log to where it outlives the pod.
    ArchiveLog {
        /// The pod.
        pod: ObjectRef,
        /// The try.
        ti_id: Uuid,
    },
}

/// Decides one round.
pub fn decide_pods(observed: &PodsObserved) -> Plan<Never, PodsEffect> {
    todo!("{observed:?}")
}
