//! Which pod of a try is to be created or removed. One round is about one try, that is: one task-instance id.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_api::airflow::ANNOTATION_TASK_INSTANCE_ID;
use longshore_core::{Action, Create, Delete, Never, ObjectRef, Plan, Resource, Seen};
use longshore_store::TaskState;
use serde_json::Value;
use uuid::Uuid;

use crate::pods::events::launch_of;

/// What could not be seen is looked at again after this, if no change comes before.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// All that a round is decided upon.
#[derive(Clone, Debug)]
pub struct PodsObserved {
    /// The clock.
    pub now: Timestamp,
    /// The try.
    pub ti_id: Uuid,
    /// The committed row of the try, current or archived. It must be at least as new as what the scheduler was told
    /// about the `pods`.
    pub task: Seen<TaskView>,
    /// The pods that carry the id of the try.
    pub pods: Seen<Vec<PodView>>,
    /// Whether the watch has caught up since the start, so that a pod which is not seen is not there.
    pub replay_done: bool,
    /// What becomes of pods that have ended.
    pub config: PodsConfig,
    /// Uids of the pods whose log is kept, as far as it could be read.
    pub archived: BTreeSet<String>,
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
    /// The uid of the pod of the current launch, once the scheduler has recorded it: from then on a missing pod was
    /// deleted, and is not created again under the same name.
    pub pod_uid: Option<String>,
    /// The pod that it wants, where one is to be created, or why it cannot be built.
    pub pod: Option<Result<Value, String>>,
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

impl PodView {
    /// The pod as the API server has it; `None` where it is not ours.
    pub fn of(pod: &Pod) -> Option<Self> {
        let (_, launch) = launch_of(pod)?;
        let meta = &pod.metadata;
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        Some(Self {
            object: ObjectRef {
                resource: Resource::POD,
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone()?,
                uid: Some(meta.uid.clone()?),
            },
            launch,
            phase: match phase {
                Some("Succeeded") => PodPhase::Succeeded,
                Some("Failed") => PodPhase::Failed,
                _ => PodPhase::Live,
            },
            is_deleting: meta.deletion_timestamp.is_some(),
        })
    }
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
    /// Have the pod's log copied to where it outlives the pod. That is done beside the rounds, which do not wait for it:
    /// a node that does not give its logs must not hold any other pod.
    ArchiveLog {
        /// The pod.
        pod: ObjectRef,
        /// The try.
        ti_id: Uuid,
    },
    /// Tell the scheduler that no pod of a restarting try lives
    /// ([`Fact::PodsEnded`](crate::scheduler::Fact::PodsEnded)).
    ReportEnded,
    /// Tell the scheduler that the pod cannot be built
    /// ([`Fact::LaunchBuildFailed`](crate::scheduler::Fact::LaunchBuildFailed)).
    ReportBuildFailure {
        /// The launch that it was for.
        launch: u32,
        /// What is wrong, for the user.
        message: String,
    },
}

/// Decides one round.
///
/// - A queued try without a pod of its launch gets it, once the pods of earlier launches have failed or are gone: two
///   pods of one try never live at the same time, even if that means to wait for a node that is gone, and the scheduler
///   decides first upon one that has succeeded.
/// - A pod that no row wants is deleted. The log of one that has ended is archived first, and once it is, whether the
///   pod goes is the configuration's to say.
/// - A restarting try has ended once none of its pods lives. That is told before their logs are kept, so that a log
///   which cannot be read does not hold the next try.
/// - What could not be seen, and a pod of a launch newer than the row, lead to nothing.
///
/// At most one action for each pod, one report, and one create.
pub fn decide_pods(observed: &PodsObserved) -> Plan<Never, PodsEffect> {
    let pods: &[PodView] = match &observed.pods {
        Seen::Present(pods) => pods,
        Seen::Absent => &[],
        Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
    };
    let task = match &observed.task {
        Seen::Present(task) => Some(task),
        Seen::Absent => None,
        Seen::Unknown(_) => return Plan::after(LOOK_AGAIN),
    };
    let mut actions: Vec<_> = task
        .and_then(|task| ended(observed, task, pods))
        .into_iter()
        .collect();
    for pod in pods.iter().filter(|pod| !pod.is_deleting) {
        match fate(pod, task, observed.config) {
            Fate::Stays => {}
            Fate::IsDeleted => actions.push(delete(pod)),
            Fate::IsArchived { then_delete } => {
                let uid = pod.object.uid.as_ref();
                if !uid.is_some_and(|uid| observed.archived.contains(uid)) {
                    actions.push(Action::Call(PodsEffect::ArchiveLog {
                        pod: pod.object.clone(),
                        ti_id: observed.ti_id,
                    }));
                } else if then_delete {
                    actions.push(delete(pod));
                }
            }
        }
    }
    if let Some(task) = task {
        actions.extend(create(observed, task, pods));
    }
    Plan::of(actions)
}

/// What becomes of a pod.
enum Fate {
    Stays,
    IsDeleted,
    IsArchived { then_delete: bool },
}

fn fate(pod: &PodView, task: Option<&TaskView>, config: PodsConfig) -> Fate {
    let Some(task) = task else {
        return Fate::IsDeleted;
    };
    // A row that does not know of this launch yet is an old one: it has no say.
    if pod.launch > task.launch {
        return Fate::Stays;
    }
    let is_recorded = task.pod_uid.is_some() && task.pod_uid == pod.object.uid;
    if pod.launch < task.launch && !is_recorded {
        return Fate::IsDeleted;
    }
    match task.state {
        Some(TaskState::Queued | TaskState::Running) => Fate::Stays,
        // Its run was interrupted.
        None | Some(TaskState::Scheduled | TaskState::UpForRetry) => Fate::IsDeleted,
        // It has ended by itself; the pod as we see it is older.
        Some(TaskState::Success) if pod.phase == PodPhase::Live => Fate::Stays,
        Some(
            TaskState::Success
            | TaskState::Restarting
            | TaskState::Failed
            | TaskState::UpstreamFailed
            | TaskState::Skipped
            | TaskState::Removed,
        ) => match pod.phase {
            // Its run was cancelled, it was cleared, or it will never start: what it has said so far is kept.
            PodPhase::Live => Fate::IsArchived { then_delete: true },
            PodPhase::Succeeded => Fate::IsArchived {
                then_delete: config.delete_worker_pods,
            },
            PodPhase::Failed => Fate::IsArchived {
                then_delete: config.delete_worker_pods && config.delete_worker_pods_on_failure,
            },
        },
    }
}

/// The pod that the row wants and that was never there.
fn create(
    observed: &PodsObserved,
    task: &TaskView,
    pods: &[PodView],
) -> Option<Action<Never, PodsEffect>> {
    let is_wanted = task.state == Some(TaskState::Queued) && task.pod_uid.is_none();
    let is_blocked = pods
        .iter()
        .any(|pod| pod.launch >= task.launch || pod.phase != PodPhase::Failed);
    if !is_wanted || is_blocked || !observed.replay_done {
        return None;
    }
    Some(match task.pod.clone()? {
        Ok(object) => Action::Create(Create {
            resource: Resource::POD,
            object,
            identity: (ANNOTATION_TASK_INSTANCE_ID, observed.ti_id.to_string()),
        }),
        Err(message) => Action::Call(PodsEffect::ReportBuildFailure {
            launch: task.launch,
            message,
        }),
    })
}

/// A restarting try whose pods have all ended.
fn ended(
    observed: &PodsObserved,
    task: &TaskView,
    pods: &[PodView],
) -> Option<Action<Never, PodsEffect>> {
    let is_restarting = task.state == Some(TaskState::Restarting);
    let is_over = observed.replay_done && pods.iter().all(|pod| pod.phase != PodPhase::Live);
    (is_restarting && is_over).then_some(Action::Call(PodsEffect::ReportEnded))
}

fn delete(pod: &PodView) -> Action<Never, PodsEffect> {
    Action::Delete(Delete {
        target: pod.object.clone(),
        grace_period_seconds: None,
    })
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
