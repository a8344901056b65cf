//! Rules about a job: 10 to 12.

use super::{Invalid, Validity, is_blank};
use crate::{
    conf::{FlinkConfig, operator, options},
    spec::{JobSpec, UpgradeMode},
};

/// `replicas` are those of the TaskManagers, which take the place of the parallelism.
pub(super) fn validate(job: &JobSpec, replicas: Option<i32>, config: &FlinkConfig) -> Validity {
    let checkpoints = config.find(&options::CHECKPOINT_DIR)?;
    if job.upgrade_mode != UpgradeMode::Stateless && is_blank(checkpoints.as_deref()) {
        return Err(Invalid(format!(
            "Checkpoint directory[{}] must be defined for last-state and savepoint upgrade modes",
            options::CHECKPOINT_DIR.name
        )));
    }
    if is_blank(config.find(&options::SAVEPOINT_DIR)?.as_deref()) {
        without_savepoint_directory(job, config)?;
    }
    match replicas {
        Some(replicas) if replicas < 1 => {
            Err(Invalid::new("TaskManager replicas must be larger than 0"))
        }
        None if job.parallelism < 1 => Err(Invalid::new("Job parallelism must be larger than 0")),
        Some(_) | None => Ok(()),
    }
}

/// Rule 11.
fn without_savepoint_directory(job: &JobSpec, config: &FlinkConfig) -> Validity {
    let key = options::SAVEPOINT_DIR.name;
    let message = if job.upgrade_mode == UpgradeMode::Savepoint {
        format!("Job could not be upgraded with savepoint while config key[{key}] is not set")
    } else if job.savepoint_trigger_nonce.is_some() {
        format!(
            "Savepoint could not be manually triggered for the running job while config key[{key}] is not set"
        )
    } else if config.contains(&operator::PERIODIC_SAVEPOINT.key) {
        format!("Periodic savepoints cannot be enabled when config key[{key}] is not set")
    } else if config.find(&operator::LAST_STATE_MAX_AGE)?.is_some() {
        format!(
            "In order to use max-checkpoint age functionality config key[{key}] must be set to allow triggering savepoint \
             upgrades."
        )
    } else {
        return Ok(());
    };
    Err(Invalid(message))
}
