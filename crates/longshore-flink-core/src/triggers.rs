//! When a savepoint or checkpoint of a running job is due, and what its resource is called (spec 10.1; upstream:
//! `SnapshotUtils`).

#[cfg(test)]
mod tests;

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::{
    conf::{FlinkConfig, InvalidOption, duration, operator},
    cron::{CronExpression, InvalidCron},
    spec::{FlinkVersion, JobSpec},
    status::{JobState, JobStatus, SnapshotKind, TriggerType},
};

/// Kubernetes has no longer names.
const MAX_NAME: usize = 253;

/// When snapshots are due by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// So long after the last one.
    Interval(SignedDuration),
    /// At the instants of an expression.
    Cron(CronExpression),
}

/// A schedule that is neither an interval nor a cron expression. No snapshot is due by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected an interval such as `10 min`, or a cron expression, found {text:?}; correct `{key}` in flinkConfiguration"
)]
pub struct InvalidSchedule {
    key: &'static str,
    text: String,
    /// Why it is no cron expression.
    #[source]
    source: InvalidCron,
}

impl Schedule {
    /// The schedule of a configuration; none where there is none, and for an interval that is not above zero.
    ///
    /// # Errors
    /// The value is neither an interval nor a cron expression.
    pub fn of(kind: SnapshotKind, config: &FlinkConfig) -> Result<Option<Self>, TriggerError> {
        let option = match kind {
            SnapshotKind::Savepoint => &operator::PERIODIC_SAVEPOINT,
            SnapshotKind::Checkpoint => &operator::PERIODIC_CHECKPOINT,
        };
        let text = config.get(option)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        if let Ok(interval) = duration::parse(&text) {
            return Ok(interval.is_positive().then_some(Self::Interval(interval)));
        }
        match CronExpression::parse(&text) {
            Ok(cron) => Ok(Some(Self::Cron(cron))),
            Err(source) => Err(TriggerError::Schedule(InvalidSchedule {
                key: option.key.name,
                text,
                source,
            })),
        }
    }

    /// When the snapshot after the last one is due; none where the schedule has ended.
    pub fn next_at(&self, last: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Interval(interval) => last.checked_add(*interval).ok(),
            Self::Cron(cron) => cron.next_after(last),
        }
    }

    /// Whether a snapshot is due. At the instant itself it is not yet.
    fn is_due(&self, last: Timestamp, now: Timestamp) -> bool {
        self.next_at(last).is_some_and(|next| next < now)
    }
}

/// What decides whether a snapshot of a kind is due.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The job as it was last observed.
    pub status: &'a JobStatus,
    /// The wanted job.
    pub wanted: &'a JobSpec,
    /// The job that was last reconciled.
    pub reconciled: &'a JobSpec,
    /// The configuration by which the job is observed.
    pub config: &'a FlinkConfig,
    /// The version that runs.
    pub version: Option<FlinkVersion>,
    /// [`last_periodic`] of this kind.
    pub last_periodic_at: Timestamp,
    /// Now.
    pub now: Timestamp,
}

/// Why it cannot be said whether a snapshot is due, or why one that is due cannot be triggered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TriggerError {
    /// The schedule cannot be read.
    #[error(transparent)]
    Schedule(#[from] InvalidSchedule),
    /// The configuration cannot be read.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// The JobManager cannot be told to take one.
    #[error("checkpoints can be triggered from Flink 1.17 on, found {}; use savepoints", found(.0))]
    CheckpointsUnsupported(Option<FlinkVersion>),
}

fn found(version: &Option<FlinkVersion>) -> String {
    version.map_or_else(|| "no version".to_owned(), |version| version.to_string())
}

/// What triggers a snapshot of a kind now, if anything does: a nonce, or the schedule.
///
/// # Errors
/// The schedule cannot be read, or the version does not support it.
pub fn due(kind: SnapshotKind, facts: &Facts<'_>) -> Result<Option<TriggerType>, TriggerError> {
    if facts.status.state != Some(JobState::Running) || is_in_progress(kind, facts.status) {
        return Ok(None);
    }
    let nonce = kind.nonce(facts.wanted);
    let is_manual = nonce.is_some() && nonce != kind.nonce(facts.reconciled);
    let trigger = if is_manual {
        TriggerType::Manual
    } else {
        let schedule = Schedule::of(kind, facts.config)?;
        let is_due = schedule.is_some_and(|it| it.is_due(facts.last_periodic_at, facts.now));
        if !is_due {
            return Ok(None);
        }
        TriggerType::Periodic
    };
    let is_supported = facts
        .version
        .is_some_and(FlinkVersion::triggers_checkpoints);
    match kind {
        SnapshotKind::Checkpoint if !is_supported => {
            Err(TriggerError::CheckpointsUnsupported(facts.version))
        }
        SnapshotKind::Savepoint | SnapshotKind::Checkpoint => Ok(Some(trigger)),
    }
}

/// Whether a snapshot without a resource of its own is under way.
pub fn is_in_progress(kind: SnapshotKind, status: &JobStatus) -> bool {
    let id = match kind {
        SnapshotKind::Savepoint => &status.savepoint_info.trigger_id,
        SnapshotKind::Checkpoint => &status.checkpoint_info.trigger_id,
    };
    id.as_deref().is_some_and(|id| !id.is_empty())
}

/// When the last periodic snapshot of a kind was triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPeriodic {
    /// What this process remembers.
    pub remembered: Option<Timestamp>,
    /// When the newest complete periodic FlinkStateSnapshot was created.
    pub newest_resource: Option<Timestamp>,
    /// When the resource of the job was created.
    pub created: Timestamp,
}

/// When the last periodic snapshot of a kind was triggered. The memory wins; after a restart the resources of snapshots
/// tell; without any the schedule begins with the job's own resource, or with what the status of old operators says.
pub fn last_periodic(kind: SnapshotKind, status: &JobStatus, known: &LastPeriodic) -> Timestamp {
    let in_status_ms = match kind {
        SnapshotKind::Savepoint => status.savepoint_info.last_periodic_savepoint_timestamp,
        SnapshotKind::Checkpoint => status.checkpoint_info.last_periodic_checkpoint_timestamp,
    };
    let in_status = Timestamp::from_millisecond(in_status_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    let known_at = known.remembered.or(known.newest_resource);
    known_at.unwrap_or_else(|| in_status.max(known.created))
}

/// What a FlinkStateSnapshot is made for. Names begin with the name of the resource of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotName<'a> {
    /// For a nonce. The name follows from uid and nonce, so that a repeated creation meets the first one.
    Manual {
        /// Uid of the resource of the job.
        uid: &'a str,
        /// The nonce.
        nonce: i64,
    },
    /// By a schedule, triggered at an instant.
    Periodic(Timestamp),
    /// By an upgrade, at an instant.
    Upgrade(Timestamp),
}

impl SnapshotName<'_> {
    /// The name of the FlinkStateSnapshot of a kind for the resource `owner`, whose name is cut where the whole would be too
    /// long for Kubernetes.
    pub fn of(self, kind: SnapshotKind, owner: &str) -> String {
        let suffix = format!("-{}-{self}", kind_name(kind));
        let room = MAX_NAME.saturating_sub(suffix.len());
        let owner = owner.get(..room).unwrap_or(owner);
        // What is left of a name may end within it, where a name cannot end.
        format!("{}{suffix}", owner.trim_end_matches(['-', '.']))
    }
}

impl fmt::Display for SnapshotName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manual { uid, nonce } => write!(f, "manual-{uid}-{nonce}"),
            Self::Periodic(at) => write!(f, "periodic-{}", at.as_millisecond()),
            Self::Upgrade(at) => write!(f, "upgrade-{}", at.as_millisecond()),
        }
    }
}

fn kind_name(kind: SnapshotKind) -> &'static str {
    match kind {
        SnapshotKind::Savepoint => "savepoint",
        SnapshotKind::Checkpoint => "checkpoint",
    }
}
