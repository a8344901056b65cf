//! The options that decisions about a resource depend on, read once in a round.

use std::time::Duration;

use jiff::SignedDuration;
use longshore_flink_core::{
    conf::{
        Defaulted, FlinkConfig, InvalidOption, Key,
        layers::OperatorConfig,
        operator::{self, SavepointFormatType},
        options,
    },
    health::HealthLimits,
    status::{ErrorLimits, LabelMapper},
};

const CHECKPOINT_TIMEOUT: Defaulted<SignedDuration> =
    Key::new("execution.checkpointing.timeout").or("10 min");
const AUTOSCALER: Defaulted<bool> = Key::with_older(
    "job.autoscaler.enabled",
    &["kubernetes.operator.job.autoscaler.enabled"],
)
.or("false");

/// Why snapshots are not triggered: the configuration says so.
const SWITCHED_OFF: &str = "a savepoint or checkpoint is due and not triggered: snapshots without resources of their own are not supported yet; expected kubernetes.operator.snapshot.resource.enabled: true";
/// Why snapshots are not triggered: they cannot be written down.
const NOT_SERVED: &str = "a savepoint or checkpoint is due and not triggered: the API server does not serve flinkstatesnapshots.flink.apache.org; install its definition";

/// The options of a resource, as its observation has them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// From one look at a running job to the next.
    pub(crate) reconcile_interval: Duration,
    /// From one look to the next while something is under way.
    pub(crate) progress_interval: Duration,
    /// Where savepoints are written.
    pub(crate) savepoint_directory: Option<String>,
    pub(crate) savepoint_format: SavepointFormatType,
    /// How long a stop with a savepoint may take.
    pub(crate) checkpoint_timeout: SignedDuration,
    pub(crate) drains: bool,
    pub(crate) savepoint_on_deletion: bool,
    pub(crate) last_state_cancel: bool,
    pub(crate) last_state_max_age: Option<SignedDuration>,
    pub(crate) restarts_failed: bool,
    pub(crate) recovers: bool,
    pub(crate) shutdown_ttl: SignedDuration,
    pub(crate) rolls_back: bool,
    pub(crate) readiness_timeout: SignedDuration,
    /// `None` where the health of clusters is not checked.
    pub(crate) health: Option<HealthLimits>,
    pub(crate) has_snapshot_resources: bool,
    /// Why snapshots that are due are not triggered.
    pub(crate) no_snapshots: &'static str,
    pub(crate) disposes_on_delete: bool,
    pub(crate) blocks_on_session_jobs: bool,
    pub(crate) blocks_on_unmanaged_jobs: bool,
    pub(crate) is_autoscaled: bool,
    pub(crate) rest_port: i32,
}

impl Settings {
    /// Reads the options of a configuration.
    ///
    /// # Errors
    /// An option has an invalid value.
    pub(crate) fn of(config: &FlinkConfig) -> Result<Self, InvalidOption> {
        let is_checked = config.get(&operator::HEALTH_CHECK)?;
        Ok(Self {
            reconcile_interval: positive(config.get(&operator::RECONCILE_INTERVAL)?),
            progress_interval: positive(config.get(&operator::PROGRESS_CHECK_INTERVAL)?),
            savepoint_directory: config.find(&options::SAVEPOINT_DIR)?,
            savepoint_format: config.get(&operator::SAVEPOINT_FORMAT)?,
            checkpoint_timeout: config.get(&CHECKPOINT_TIMEOUT)?,
            drains: config.get(&operator::DRAIN_ON_DELETION)?,
            savepoint_on_deletion: config.get(&operator::SAVEPOINT_ON_DELETION)?,
            last_state_cancel: config.get(&operator::LAST_STATE_CANCEL)?,
            last_state_max_age: config.find(&operator::LAST_STATE_MAX_AGE)?,
            restarts_failed: config.get(&operator::RESTART_FAILED)?,
            recovers: config.get(&operator::JM_RECOVERY)?,
            shutdown_ttl: config.get(&operator::JM_SHUTDOWN_TTL)?,
            rolls_back: config.get(&operator::ROLLBACK)?,
            readiness_timeout: config.get(&operator::READINESS_TIMEOUT)?,
            health: is_checked.then(|| HealthLimits::of(config)).transpose()?,
            has_snapshot_resources: config.get(&operator::SNAPSHOT_RESOURCES)?,
            no_snapshots: SWITCHED_OFF,
            disposes_on_delete: config.get(&operator::DISPOSE_ON_DELETE)?,
            blocks_on_session_jobs: config.get(&operator::BLOCK_ON_SESSION_JOBS)?,
            blocks_on_unmanaged_jobs: config.get(&operator::BLOCK_ON_UNMANAGED_JOBS)?,
            is_autoscaled: config.get(&AUTOSCALER)?,
            rest_port: config.get(&options::REST_PORT)?,
        })
    }

    /// The same for an API server that serves FlinkStateSnapshots, or does not.
    pub(crate) fn where_snapshots_are_served(self, is_served: bool) -> Self {
        if is_served {
            return self;
        }
        Self {
            has_snapshot_resources: false,
            no_snapshots: NOT_SERVED,
            ..self
        }
    }
}

/// What the error of a status may hold. Options of the operator that cannot be read are its defaults here: the error of a
/// resource is shown in any case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wording {
    pub(crate) limits: ErrorLimits,
    pub(crate) labels: LabelMapper,
}

impl Wording {
    pub(crate) fn of(operator: &OperatorConfig) -> Self {
        let config = operator.file();
        Self {
            limits: ErrorLimits::of(config).unwrap_or_default(),
            labels: LabelMapper::of(config).unwrap_or_default(),
        }
    }
}

/// At least a second: an interval of zero would be a loop.
fn positive(time: SignedDuration) -> Duration {
    Duration::try_from(time)
        .unwrap_or_default()
        .max(Duration::from_secs(1))
}
