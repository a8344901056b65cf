//! Which object of a try is to be created or removed: its pod, or its TaskAction. One round is about one try, that is:
//! one task-instance id.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_api::airflow::ANNOTATION_TASK_INSTANCE_ID;
use longshore_core::{
    Action, Asked, ChildIdentity, Create, Delete, Never, Next, ObjectRef, Patch, PatchKind, Plan,
    Seen,
};
use longshore_store::TaskState;
use serde_json::{Value, json};
use uuid::Uuid;

pub use self::log::{LogAnswer, LogNote, LogNotes, LogQuestion, OnError};
use crate::{logs::LogPath, model::Launcher};

pub(crate) mod log;

/// What a round does.
pub type LaunchPlan = Plan<Never, LaunchEffect, LogQuestion>;
/// One action of a round.
pub type LaunchAction = Action<Never, LaunchEffect, LogQuestion>;

/// What could not be seen is looked at again after this, if no change comes before.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a pod that an earlier process has left stuck stays. Its node may have started anew with the scheduler, and
/// be about to start the pod, which a deletion would then kill.
const NODE_TRIES_AGAIN: Duration = Duration::from_secs(10);

/// All that a round is decided upon.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The clock.
    pub now: Timestamp,
    /// The try.
    pub ti_id: Uuid,
    /// The committed row of the try, current or archived. It must not be older than the facts about the `pods` that
    /// the scheduler has recorded.
    pub task: Seen<TaskView>,
    /// What the try is launched as.
    pub launcher: Launcher,
    /// The objects that carry the id of the try.
    pub pods: Seen<Vec<LaunchedView>>,
    /// Whether the launcher's watch has caught up since the start, so that an object which is not seen is not there.
    pub replay_done: bool,
    /// When this process began.
    pub started_at: Timestamp,
    /// What becomes of objects that have ended.
    pub config: Disposal,
    /// How far the copies of logs are, by the uid of the object.
    pub asked: BTreeMap<String, Asked<LogAnswer>>,
    /// What is remembered of the logs.
    pub log_notes: Arc<LogNotes>,
    /// The newest of the failed objects that are too many: it and all that are older go.
    pub newest_surplus: Option<FailedObject>,
}

/// A failed object among the others, which sort by their age: when it was created, and its uid.
pub type FailedObject = (Option<Timestamp>, String);

/// What becomes of pods that have ended, from Airflow's `[kubernetes_executor]`, and for how long failed ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposal {
    /// Delete a pod whose task has ended; `delete_worker_pods`.
    pub delete_worker_pods: bool,
    /// Delete it at once also if it failed; `delete_worker_pods_on_failure`. A failed one that is not deleted at once is
    /// kept for people to look at, and deleted after `keep_failed_for`, or when it is not among the `keep_failed` newest.
    pub delete_worker_pods_on_failure: bool,
    /// For how long after the end of its try a failed pod is kept; default 1 day.
    pub keep_failed_for: Duration,
    /// How many failed pods of one scheduler are kept; default 100.
    pub keep_failed: usize,
}

impl Default for Disposal {
    fn default() -> Self {
        Self {
            delete_worker_pods: true,
            delete_worker_pods_on_failure: false,
            keep_failed_for: Duration::from_secs(24 * 60 * 60),
            keep_failed: 100,
        }
    }
}

/// What the row of a try says about its object.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// The state of the try; an archived one is `Failed`.
    pub state: Option<TaskState>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Its current launch.
    pub launch: u32,
    /// The uid of the object of the current launch, once the scheduler has recorded it: from then on a missing one was
    /// deleted, and is not created again under the same name.
    pub pod_uid: Option<String>,
    /// The object that it wants, where one is to be created, or why it cannot be built.
    pub pod: Option<Result<Value, String>>,
    /// When the scheduler stops it. `None` for a pod, which the kubelet stops.
    pub deadline: Option<Timestamp>,
    /// When the kubelet stops its pod. `None` for an object that is no pod.
    pub limit: Option<Timestamp>,
    /// Until when its pod may run on: its worker has told the end of the try, and may still upload its log. `None` for a
    /// try that did not end so.
    pub lingers_until: Option<Timestamp>,
    /// Where the archive stores the log of the try.
    pub log: LogPath,
}

/// What a try was launched as, as far as the decision goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchedView {
    /// The object, with its uid.
    pub object: ObjectRef,
    /// The version of the object that is seen here.
    pub resource_version: Option<String>,
    /// Which launch of the try it is.
    pub launch: u32,
    /// Where it is in its life.
    pub phase: LaunchedPhase,
    /// Whether its deletion is under way.
    pub is_deleting: bool,
    /// The IP address of the node that has its log; empty where that is not known.
    pub node: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// How long it may run.
    pub time: PodTime,
}

/// How long a pod may run. Its kubelet counts from when it took the pod up: the images and the init containers count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodTime {
    /// When its kubelet took it up; in whole seconds.
    pub began_at: Option<Timestamp>,
    /// Its `activeDeadlineSeconds`.
    pub limit: Option<i64>,
}

/// Where an object is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchedPhase {
    /// Not ended: pending, running or unknown.
    Live,
    /// Not ended, and waiting for what will not come.
    Stuck,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl LaunchedPhase {
    /// Whether none of its processes runs, or will.
    fn has_ended(self) -> bool {
        match self {
            Self::Live | Self::Stuck => false,
            Self::Succeeded | Self::Failed => true,
        }
    }
}

/// What the controller does besides creating and deleting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchEffect {
    /// Remember what came of the copy of a log, before the answer is used up. After a restart the log is copied again.
    NoteLog {
        /// The object that has the log.
        object: ObjectRef,
        /// What is remembered from now on.
        note: LogNote,
    },
    /// Tell the scheduler that nothing of a restarting try lives
    /// ([`Fact::LaunchEnded`](crate::scheduler::Fact::LaunchEnded)).
    ReportEnded,
    /// Tell the scheduler that the object cannot be built
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
/// - A pod that waits for what will not come is deleted, and only its end says whether its process ran: until then its
///   node may start it, so that its launch has not failed. After a start of the scheduler, the node gets some time.
/// - A pod that no row wants is deleted. The log of one that has ended is copied to the archive first, beside the rounds
///   ([`LogQuestion`]), and once it is, whether and when the pod goes is the configuration's to say: a failed one stays
///   for some time. By then the row has why it failed, and the archive its log.
/// - A worker that has told the end of its try may live on for some time, whatever the end was.
/// - A restarting try has ended once none of its pods lives. That is reported before their logs are kept, so that a
///   log which cannot be read does not hold the next try.
/// - A pod whose container has started gets its time limit, which its node keeps, whatever becomes of the scheduler.
/// - A TaskAction that runs beyond its deadline is deleted; once it is gone, the try has failed.
/// - What could not be seen, and an object of a launch newer than the row, lead to nothing.
///
/// Whether the object is a pod or a TaskAction makes no difference: a TaskAction is gone only after its pods have ended.
///
/// At most three actions for each object, one for each question about an object that is gone, one report, and one
/// create.
pub fn decide_launch(observed: &Observed) -> LaunchPlan {
    let pods: &[LaunchedView] = match &observed.pods {
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
    actions.extend(log::cancelled(observed, pods));
    let mut next = task.map_or(Next::AwaitChange, |task| {
        until_deadline(task, observed.now).min(until_lingered(task, pods, observed.now))
    });
    for pod in pods.iter().filter(|pod| !pod.is_deleting) {
        if let Some(left) = second_chance(pod, observed) {
            next = next.min(Next::After(left));
        }
        match (fate(pod, task, observed), task) {
            (Fate::IsArchived { then_delete }, Some(task)) => {
                let step = log::keep(observed, task, pod);
                actions.extend(step.actions);
                next = next.min(step.next);
                if let Some(left) = then_delete.filter(|left| step.is_kept && !left.is_zero()) {
                    next = next.min(Next::After(left));
                } else if step.is_kept && then_delete.is_some() {
                    // One that has ended in time, while no watch reported it, is not stopped.
                    let is_overdue = task.state == Some(TaskState::Running);
                    let seen = pod.resource_version.clone().filter(|_| is_overdue);
                    actions.push(delete(pod, seen));
                }
            }
            (Fate::IsDeleted, _) => actions.push(delete(pod, None)),
            (Fate::Stays, Some(task)) => actions.extend(limit(task, pod)),
            // Only a row asks for a log.
            (Fate::Stays, None) | (Fate::IsArchived { .. }, None) => {}
        }
    }
    if let Some(task) = task {
        actions.extend(create(observed, task, pods));
    }
    Plan { actions, next }
}

/// A running try is looked at again when it has to end.
fn until_deadline(task: &TaskView, now: Timestamp) -> Next {
    let left = task
        .deadline
        .filter(|_| task.state == Some(TaskState::Running))
        .and_then(|deadline| Duration::try_from(deadline.duration_since(now)).ok());
    match left {
        Some(left) if !left.is_zero() => Next::After(left),
        Some(_) | None => Next::AwaitChange,
    }
}

/// A worker that lives on is looked at again when its time is over.
fn until_lingered(task: &TaskView, pods: &[LaunchedView], now: Timestamp) -> Next {
    let lives = pods.iter().any(|pod| !pod.phase.has_ended());
    let until = task.lingers_until.filter(|_| lives);
    let left = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok());
    match left {
        Some(left) if !left.is_zero() => Next::After(left),
        Some(_) | None => Next::AwaitChange,
    }
}

/// What becomes of a pod.
enum Fate {
    Stays,
    IsDeleted,
    IsArchived {
        /// After this time; never where there is none.
        then_delete: Option<Duration>,
    },
}

fn fate(pod: &LaunchedView, task: Option<&TaskView>, observed: &Observed) -> Fate {
    let config = observed.config;
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
    let may_linger = task.lingers_until.is_some_and(|until| observed.now < until);
    if may_linger && !pod.phase.has_ended() {
        return Fate::Stays;
    }
    match task.state {
        Some(TaskState::Running)
            if !pod.phase.has_ended()
                && task
                    .deadline
                    .is_some_and(|deadline| deadline <= observed.now) =>
        {
            Fate::IsArchived {
                then_delete: Some(Duration::ZERO),
            }
        }
        Some(TaskState::Queued | TaskState::Running)
            if pod.phase == LaunchedPhase::Stuck && second_chance(pod, observed).is_none() =>
        {
            Fate::IsDeleted
        }
        Some(TaskState::Queued | TaskState::Running) => Fate::Stays,
        // Its run was interrupted.
        None | Some(TaskState::Scheduled | TaskState::UpForRetry) => Fate::IsDeleted,
        // It has ended by itself, or has given up its worker; the pod as we see it is older.
        Some(
            TaskState::Success
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput,
        ) if !pod.phase.has_ended() => Fate::Stays,
        Some(
            TaskState::Success
            | TaskState::UpForReschedule
            | TaskState::Deferred
            | TaskState::AwaitingInput
            | TaskState::Restarting
            | TaskState::Failed
            | TaskState::UpstreamFailed
            | TaskState::Skipped
            | TaskState::Removed,
        ) => Fate::IsArchived {
            then_delete: match pod.phase {
                // Its run was cancelled, it was cleared, or it will never start: what it has said so far is kept.
                LaunchedPhase::Live | LaunchedPhase::Stuck => Some(Duration::ZERO),
                LaunchedPhase::Succeeded => config.delete_worker_pods.then_some(Duration::ZERO),
                LaunchedPhase::Failed => config
                    .delete_worker_pods
                    .then(|| kept_for(pod, task, observed)),
            },
        },
    }
}

/// For how long a failed pod is still kept.
fn kept_for(pod: &LaunchedView, task: &TaskView, observed: &Observed) -> Duration {
    let config = observed.config;
    let uid = pod.object.uid.clone().unwrap_or_default();
    let surplus = observed.newest_surplus.as_ref();
    let is_surplus = surplus.is_some_and(|newest| (pod.created_at, uid) <= *newest);
    if config.delete_worker_pods_on_failure || is_surplus {
        return Duration::ZERO;
    }
    let since = task.ended_at.or(pod.created_at).unwrap_or(observed.now);
    let age = Duration::try_from(observed.now.duration_since(since)).unwrap_or_default();
    config.keep_failed_for.saturating_sub(age)
}

/// What is left of the time that a stuck pod of an earlier process has.
fn second_chance(pod: &LaunchedView, observed: &Observed) -> Option<Duration> {
    let is_earlier = pod.created_at.is_some_and(|at| at < observed.started_at);
    let since_start = observed.now.duration_since(observed.started_at);
    let since_start = Duration::try_from(since_start).unwrap_or_default();
    let left = NODE_TRIES_AGAIN.checked_sub(since_start)?;
    (pod.phase == LaunchedPhase::Stuck && is_earlier && !left.is_zero()).then_some(left)
}

/// The limit of a pod that has started without it.
fn limit(task: &TaskView, pod: &LaunchedView) -> Option<LaunchAction> {
    let is_its = pod.launch == task.launch && task.state == Some(TaskState::Running);
    let limit = task
        .limit
        .filter(|_| is_its && pod.phase == LaunchedPhase::Live)?;
    // A start that is a time of the pod, in whole seconds, may be up to a second early: no task gets less time than it has.
    let time = limit.duration_since(pod.time.began_at?);
    let seconds = time.as_secs() + i64::from(time.subsec_nanos() > 0) + 1;
    let is_limited = pod.time.limit.is_some_and(|known| known <= seconds);
    (!is_limited).then(|| {
        Action::Patch(Patch {
            target: pod.object.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            patch: json!({"spec": {"activeDeadlineSeconds": seconds.max(1)}}),
        })
    })
}

/// The pod that the row wants and that was never there.
fn create(observed: &Observed, task: &TaskView, pods: &[LaunchedView]) -> Option<LaunchAction> {
    let is_wanted = task.state == Some(TaskState::Queued) && task.pod_uid.is_none();
    let is_blocked = pods
        .iter()
        .any(|pod| pod.launch >= task.launch || pod.phase != LaunchedPhase::Failed);
    if !is_wanted || is_blocked || !observed.replay_done {
        return None;
    }
    Some(match task.pod.clone()? {
        Ok(object) => Action::Create(Create {
            resource: observed.launcher.resource(),
            object,
            identity: ChildIdentity::annotation(
                ANNOTATION_TASK_INSTANCE_ID,
                observed.ti_id.to_string(),
            ),
        }),
        Err(message) => Action::Call(LaunchEffect::ReportBuildFailure {
            launch: task.launch,
            message,
        }),
    })
}

/// A restarting try whose pods have all ended.
fn ended(observed: &Observed, task: &TaskView, pods: &[LaunchedView]) -> Option<LaunchAction> {
    let is_restarting = task.state == Some(TaskState::Restarting);
    let is_over = observed.replay_done && pods.iter().all(|pod| pod.phase.has_ended());
    (is_restarting && is_over).then_some(Action::Call(LaunchEffect::ReportEnded))
}

fn delete(pod: &LaunchedView, resource_version: Option<String>) -> LaunchAction {
    Action::Delete(Delete {
        target: pod.object.clone(),
        resource_version,
        grace_period_seconds: None,
        waits_for_dependents: false,
    })
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
