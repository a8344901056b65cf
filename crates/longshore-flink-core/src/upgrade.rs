//! How a running job is stopped for an upgrade, and what the new one restores (spec 9.4 with decisions 1 to 3).
//!
//! One total function over enums: [`decide`]. A job with state is never started without it: where no state is known and
//! none can be taken, the decision is to wait, or that a user has to act.

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};

use crate::{
    spec::UpgradeMode,
    status::{
        JobManagerStatus, JobState, JobStatus, LAST_STATE_PATH, MESSAGE_HA_METADATA_NOT_AVAILABLE,
        MESSAGE_JOB_FINISHED_OR_DELETED, MESSAGE_MANUAL_RESTORE_REQUIRED,
    },
};

/// Everything that the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Facts {
    /// The upgrade mode of the wanted spec.
    pub requested: UpgradeMode,
    /// What runs the job.
    pub runner: Runner,
    /// The state of the job as it was last observed; none where nothing is known.
    pub job: Option<JobState>,
    /// Whether the wanted spec has another version of Flink than the deployed one.
    pub version: VersionChange,
    /// The metadata of high availability by the configuration of what runs.
    pub ha_observed: HaMetadata,
    /// The metadata of high availability by the configuration that is to be deployed.
    pub ha_wanted: HaMetadata,
    /// What the status says about the state that the job left.
    pub last_snapshot: LastSnapshot,
    /// Whether the latest checkpoint of a running job is young enough.
    pub checkpoint_age: CheckpointAge,
    /// What the configuration allows.
    pub options: Options,
}

/// What runs the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runner {
    /// A cluster of its own.
    Application {
        /// The JobManager's Deployment.
        job_manager: JobManagerStatus,
        /// Whether a pod of the JobManager has started since the Deployment was created.
        pod: PodStart,
        /// The upgrade mode of the reconciled spec: how the current deployment restored.
        reconciled: UpgradeMode,
    },
    /// A session cluster, whose REST API serves: a session job is reconciled only then.
    SessionCluster,
}

/// Whether a pod of the JobManager has started since the Deployment was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodStart {
    /// One has, or it is not known.
    Started,
    /// None has: the Deployment's condition `Available` is false since the Deployment was created.
    Never,
}

/// Whether the version of Flink changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VersionChange {
    /// It does not.
    Same,
    /// It does. Metadata of high availability are never restored by another version.
    Changed,
}

/// The metadata of high availability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HaMetadata {
    /// High availability is off.
    Off,
    /// It is on, and there are no metadata.
    Absent,
    /// It is on, and there are metadata.
    Present,
}

/// What the status says about the state that a job left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LastSnapshot {
    /// The path of a savepoint or checkpoint.
    Path,
    /// There is none: the job was started without state, and it is proven that it completed no snapshot.
    ProvenEmpty,
    /// No path, and no proof that there is none.
    Unknown,
    /// Only that the job restored from metadata of high availability.
    LastState,
}

impl LastSnapshot {
    /// What a status says. `is_proven_empty` is whether the job was started without state and Flink said that it completed
    /// neither a checkpoint nor a savepoint.
    pub fn of(status: &JobStatus, is_proven_empty: bool) -> Self {
        match status.last_savepoint() {
            Some(LAST_STATE_PATH) => Self::LastState,
            Some(_) => Self::Path,
            None if is_proven_empty => Self::ProvenEmpty,
            None => Self::Unknown,
        }
    }
}

/// Whether the latest checkpoint of a running job is young enough for an upgrade from it
/// (`kubernetes.operator.job.upgrade.last-state.max.allowed.checkpoint.age`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckpointAge {
    /// It is, or there is no limit.
    Young,
    /// It is not, but one is under way that is.
    Pending,
    /// It is not.
    Old,
}

impl CheckpointAge {
    /// Compares the instants of a running job with the limit.
    pub fn of(times: &CheckpointTimes, limit: Option<SignedDuration>, now: Timestamp) -> Self {
        let Some(limit) = limit else {
            return Self::Young;
        };
        // An instant that is exactly as old as the limit is too old.
        let is_young = |at: Timestamp| at.duration_until(now) < limit;
        if is_young(times.started_at) || times.completed_at.is_some_and(is_young) {
            Self::Young
        } else if times.pending_at.is_some_and(is_young) {
            Self::Pending
        } else {
            Self::Old
        }
    }
}

/// When a job and its checkpoints were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointTimes {
    /// The job.
    pub started_at: Timestamp,
    /// The newest checkpoint that is complete.
    pub completed_at: Option<Timestamp>,
    /// The newest checkpoint that is under way.
    pub pending_at: Option<Timestamp>,
}

/// What the configuration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Options {
    /// `kubernetes.operator.job.upgrade.last-state-fallback.enabled`, by the configuration to be deployed.
    pub fallback: Switch,
    /// `kubernetes.operator.job.upgrade.last-state.job-cancel.enabled`, by the configuration of what runs.
    pub job_cancel: Switch,
    /// Whether what runs has a savepoint directory.
    pub savepoint_directory: Switch,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fallback: Switch::On,
            job_cancel: Switch::Off,
            savepoint_directory: Switch::On,
        }
    }
}

/// Whether an option is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

impl From<bool> for Switch {
    fn from(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

/// What to do with the running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Stop it, or find it stopped, and restore.
    Upgrade(Way),
    /// Wait. Whether other changes may be made meanwhile (spec 9.6).
    Wait(Waiting),
    /// A user has to act.
    Fail(Failure),
}

/// How a job stops, and what the next one restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Cancel it, and restore nothing.
    Stateless,
    /// It is over; restore nothing.
    StatelessEnded,
    /// It is over; restore what the status says, which is nothing for [`LastSnapshot::ProvenEmpty`].
    Ended,
    /// Stop it with a savepoint, and restore that.
    Savepoint,
    /// Cancel it, and restore its latest checkpoint, once it is known.
    Cancel,
    /// Delete its cluster, and restore by the metadata of high availability.
    HaMetadata,
    /// Delete its cluster, whose JobManager never started, and restore what the status says: the job that never started was
    /// to restore the same, and made nothing newer. That may be nothing. Persist the intent before the deletion: a lost
    /// JobManager alone does not show that it never started.
    Unstarted,
}

/// What is done to a job so that it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspend {
    /// Nothing: it is over.
    Noop,
    /// It is cancelled, and its state is given up.
    Stateless,
    /// It is stopped with a savepoint.
    Savepoint,
    /// It is cancelled, and its checkpoints are kept.
    Cancel,
    /// Its cluster is deleted, and the metadata of high availability are kept.
    LastState,
}

impl Way {
    /// What is done to the job so that it stops.
    pub const fn suspend(self) -> Suspend {
        match self {
            Self::Stateless => Suspend::Stateless,
            Self::StatelessEnded | Self::Ended => Suspend::Noop,
            Self::Savepoint => Suspend::Savepoint,
            Self::Cancel => Suspend::Cancel,
            Self::HaMetadata | Self::Unstarted => Suspend::LastState,
        }
    }

    /// The upgrade mode by which the next deployment restores.
    pub const fn restore(self) -> UpgradeMode {
        match self {
            Self::Stateless | Self::StatelessEnded => UpgradeMode::Stateless,
            Self::Ended | Self::Savepoint | Self::Cancel | Self::Unstarted => {
                UpgradeMode::Savepoint
            }
            Self::HaMetadata => UpgradeMode::LastState,
        }
    }
}

/// What an upgrade waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The end of a cancellation. Nothing else is done meanwhile.
    Cancellation,
    /// The job to run: only a running one gives a savepoint, and nothing else may be used.
    Running,
    /// A job that can be stopped with a savepoint or cancelled: another version of Flink needs one of them.
    Stoppable,
    /// The checkpoint under way, which will be young enough.
    Checkpoint,
    /// A job that runs, or whose state is known.
    Upgradeable,
}

impl Waiting {
    /// Whether other changes may be made meanwhile (spec 9.6).
    pub const fn allows_other_changes(self) -> bool {
        match self {
            Self::Cancellation => false,
            Self::Running | Self::Stoppable | Self::Checkpoint | Self::Upgradeable => true,
        }
    }

    /// Whether the metadata of high availability may be used instead.
    const fn allows_ha_metadata(self) -> bool {
        match self {
            Self::Upgradeable => true,
            Self::Cancellation | Self::Running | Self::Stoppable | Self::Checkpoint => false,
        }
    }

    /// What is waited for, for people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Cancellation => "waiting until the cancellation of the job is over",
            Self::Running => {
                "waiting until the job runs: only a running job gives a savepoint, and the fallback to last-state is off"
            }
            Self::Stoppable => {
                "waiting until the job can be stopped with a savepoint or cancelled: a change of flinkVersion needs one"
            }
            Self::Checkpoint => "waiting until the checkpoint under way is complete",
            Self::Upgradeable => "waiting until the job runs or its last state is known",
        }
    }
}

/// Why only a user can go on. The reason of the Event is `UpgradeFailed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// The job is over, and where its state is is not known.
    LastSnapshotUnknown,
    /// There is neither a JobManager nor metadata of high availability.
    NoJobManager,
}

impl Failure {
    /// The message of the error and of the Event, word for word upstream's.
    pub fn message(self) -> String {
        match self {
            Self::LastSnapshotUnknown => format!(
                "Job is in terminal state but last checkpoint is unknown, possibly due to an unrecoverable restore error. \
                 {MESSAGE_MANUAL_RESTORE_REQUIRED}"
            ),
            // Upstream has no space between the last two sentences.
            Self::NoJobManager => format!(
                "JobManager deployment is missing and {MESSAGE_HA_METADATA_NOT_AVAILABLE} to make stateful upgrades. \
                 {MESSAGE_JOB_FINISHED_OR_DELETED}{MESSAGE_MANUAL_RESTORE_REQUIRED}"
            ),
        }
    }
}

/// Decides. The comments number the rows of spec 9.4.
pub fn decide(facts: &Facts) -> Decision {
    match decide_for_any_runner(facts) {
        Decision::Wait(waiting) => match facts.runner {
            Runner::SessionCluster => Decision::Wait(waiting),
            Runner::Application {
                job_manager,
                pod,
                reconciled,
            } => decide_for_application(facts, waiting, job_manager, pod, reconciled),
        },
        decided @ (Decision::Upgrade(_) | Decision::Fail(_)) => decided,
    }
}

fn decide_for_any_runner(facts: &Facts) -> Decision {
    let is_terminal = facts.job.is_some_and(JobState::is_globally_terminal);
    let is_running = facts.job == Some(JobState::Running);
    // 1
    if facts.requested == UpgradeMode::Stateless {
        return Decision::Upgrade(if is_terminal {
            Way::StatelessEnded
        } else {
            Way::Stateless
        });
    }
    // 2
    if is_terminal && is_last_snapshot_final(facts) {
        return match facts.last_snapshot {
            LastSnapshot::Path | LastSnapshot::ProvenEmpty => Decision::Upgrade(Way::Ended),
            LastSnapshot::Unknown | LastSnapshot::LastState => {
                Decision::Fail(Failure::LastSnapshotUnknown)
            }
        };
    }
    // 3
    if facts.job == Some(JobState::Cancelling) {
        return Decision::Wait(Waiting::Cancellation);
    }
    if facts.requested == UpgradeMode::Savepoint {
        // 4
        if is_running {
            return Decision::Upgrade(Way::Savepoint);
        }
        // 5, else 6
        if facts.version == VersionChange::Same && facts.options.fallback == Switch::Off {
            return Decision::Wait(Waiting::Running);
        }
    }
    match (facts.version, is_running) {
        // 7
        (VersionChange::Changed, true) if facts.options.savepoint_directory == Switch::On => {
            Decision::Upgrade(Way::Savepoint)
        }
        // 8
        (VersionChange::Changed, _) if is_cancellable(facts) => Decision::Upgrade(Way::Cancel),
        // 9
        (VersionChange::Changed, _) => Decision::Wait(Waiting::Stoppable),
        // 10
        (VersionChange::Same, true) => decide_by_checkpoint_age(facts),
        // 11
        (VersionChange::Same, false) if may_cancel(facts) => Decision::Upgrade(Way::Cancel),
        // 12 to 15
        (VersionChange::Same, false) => Decision::Wait(Waiting::Upgradeable),
    }
}

/// Rows 12 to 15. After another wait than the last one they still hold, but for the metadata of high availability.
fn decide_for_application(
    facts: &Facts,
    waiting: Waiting,
    job_manager: JobManagerStatus,
    pod: PodStart,
    reconciled: UpgradeMode,
) -> Decision {
    let is_ha_on = facts.ha_observed != HaMetadata::Off;
    let has_metadata = facts.ha_wanted == HaMetadata::Present;
    // 12
    if waiting.allows_ha_metadata() && is_ha_on && has_metadata {
        return Decision::Upgrade(Way::HaMetadata);
    }
    let is_unstarted = pod == PodStart::Never && job_manager != JobManagerStatus::Missing;
    // 13. One that restores by metadata of high availability is left alone: they are all that is known of its state. So is
    // one beside such metadata: upstream deletes it, and waits then.
    let is_replaceable =
        reconciled != UpgradeMode::LastState && facts.ha_observed != HaMetadata::Present;
    if is_unstarted && is_replaceable {
        return match facts.last_snapshot {
            LastSnapshot::Path | LastSnapshot::ProvenEmpty | LastSnapshot::Unknown => {
                Decision::Upgrade(Way::Unstarted)
            }
            LastSnapshot::LastState => Decision::Fail(Failure::LastSnapshotUnknown),
        };
    }
    match job_manager {
        // 14
        JobManagerStatus::Missing | JobManagerStatus::Error if !has_metadata => {
            Decision::Fail(Failure::NoJobManager)
        }
        // 15
        JobManagerStatus::Missing
        | JobManagerStatus::Error
        | JobManagerStatus::Ready
        | JobManagerStatus::DeployedNotReady
        | JobManagerStatus::Deploying => Decision::Wait(waiting),
    }
}

/// Whether what the status says about the state of a job that is over is the last word. It is not where the job may have
/// gone on in a JobManager that nobody could ask: then there are metadata of high availability and no REST API.
fn is_last_snapshot_final(facts: &Facts) -> bool {
    let is_cancelled = facts.job == Some(JobState::Canceled);
    is_cancelled || facts.ha_observed != HaMetadata::Present || is_rest_available(facts)
}

fn is_rest_available(facts: &Facts) -> bool {
    match facts.runner {
        Runner::Application { job_manager, .. } => job_manager.is_rest_available(),
        Runner::SessionCluster => true,
    }
}

fn is_cancellable(facts: &Facts) -> bool {
    is_rest_available(facts) && facts.job.is_some_and(JobState::is_cancellable)
}

/// Whether a job is cancelled rather than its cluster deleted.
fn may_cancel(facts: &Facts) -> bool {
    let is_preferred = match facts.runner {
        Runner::SessionCluster => true,
        Runner::Application { .. } => {
            !is_ha_usable(facts) || facts.options.job_cancel == Switch::On
        }
    };
    is_preferred && is_cancellable(facts)
}

/// Whether what runs has metadata of high availability that what is to be deployed finds. Upstream asks only the former;
/// then a spec that turns high availability off deletes the cluster and finds nothing to restore.
fn is_ha_usable(facts: &Facts) -> bool {
    facts.ha_observed == HaMetadata::Present && facts.ha_wanted == HaMetadata::Present
}

/// Row 10.
fn decide_by_checkpoint_age(facts: &Facts) -> Decision {
    match facts.checkpoint_age {
        CheckpointAge::Young if may_cancel(facts) => Decision::Upgrade(Way::Cancel),
        CheckpointAge::Young if is_ha_usable(facts) => Decision::Upgrade(Way::HaMetadata),
        // Upstream deletes the cluster here, too. Nothing would restore the job then.
        CheckpointAge::Young => Decision::Wait(Waiting::Upgradeable),
        CheckpointAge::Pending => Decision::Wait(Waiting::Checkpoint),
        CheckpointAge::Old => Decision::Upgrade(Way::Savepoint),
    }
}
