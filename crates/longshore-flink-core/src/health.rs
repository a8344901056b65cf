//! Whether a running cluster is healthy: it does not restart too often, and its checkpoints complete (spec 6.5; upstream:
//! `ClusterHealthEvaluator`).
//!
//! What the evaluation remembers is in the status of the FlinkDeployment, so that it goes on after a restart of the
//! operator.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::{
    conf::{Defaulted, FlinkConfig, InvalidOption, Key, operator, options},
    jackson,
};

/// Key of the health in `status.clusterInfo`.
pub const CLUSTER_INFO_KEY: &str = "ClusterHealthInfo";
/// The metrics of a job that are needed, as its REST API names them.
pub const METRICS: [&str; 3] = [FULL_RESTARTS, RESTARTS, COMPLETED_CHECKPOINTS];

const FULL_RESTARTS: &str = "fullRestarts";
const RESTARTS: &str = "numRestarts";
const COMPLETED_CHECKPOINTS: &str = "numberOfCompletedCheckpoints";

const CHECKPOINT_TIMEOUT: Defaulted<SignedDuration> =
    Key::new("execution.checkpointing.timeout").or("10 min");
const TOLERABLE_FAILURES: Defaulted<i32> =
    Key::new("execution.checkpointing.tolerable-failed-checkpoints").or("0");

/// What the status holds. Instants are in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterHealth {
    /// When it was last observed.
    pub time_stamp: i64,
    /// The number of restarts from which new ones are counted.
    pub num_restarts: i32,
    /// When that number was observed.
    pub num_restarts_evaluation_time_stamp: i64,
    /// The number of complete checkpoints.
    pub num_completed_checkpoints: i32,
    /// When that number last increased.
    pub num_completed_checkpoints_increased_time_stamp: i64,
    /// Whether the cluster is healthy.
    pub health_result: HealthResult,
}

/// Whether a cluster is healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthResult {
    /// Whether it is.
    pub healthy: bool,
    /// What is wrong; empty or none where nothing is.
    pub error: Option<String>,
}

impl Default for HealthResult {
    fn default() -> Self {
        Self {
            healthy: true,
            error: None,
        }
    }
}

/// What a job says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When it said so, in milliseconds since 1970.
    pub at_ms: i64,
    /// How often it restarted since it started.
    pub n_restarts: i32,
    /// How many of its checkpoints are complete.
    pub n_completed_checkpoints: i32,
}

/// Metrics that do not say how healthy a job is. They may come a moment later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the job's metric {metric} is missing or no number: expected a whole number, found {found:?}"
)]
pub struct MissingMetric {
    metric: &'static str,
    found: Option<String>,
}

impl Observation {
    /// Reads the [`METRICS`] of a job. `numRestarts` wins over the older `fullRestarts`.
    ///
    /// # Errors
    /// A metric is missing, or no number.
    pub fn of(metrics: &BTreeMap<String, String>, at_ms: i64) -> Result<Self, MissingMetric> {
        let number = |metric: &'static str| {
            let found = metrics.get(metric);
            let number = found.and_then(|text| text.parse().ok());
            number.ok_or_else(|| MissingMetric {
                metric,
                found: found.cloned(),
            })
        };
        let restarts = if metrics.contains_key(RESTARTS) || !metrics.contains_key(FULL_RESTARTS) {
            RESTARTS
        } else {
            FULL_RESTARTS
        };
        Ok(Self {
            at_ms,
            n_restarts: number(restarts)?,
            n_completed_checkpoints: number(COMPLETED_CHECKPOINTS)?,
        })
    }
}

/// From when on a cluster is not healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    /// Time in which restarts are counted.
    pub restarts_window: SignedDuration,
    /// As many restarts in that time are healthy.
    pub max_restarts: i32,
    /// Time in which a checkpoint must complete; none where that is not checked.
    pub checkpoint_window: Option<SignedDuration>,
}

impl HealthLimits {
    /// Reads the limits. A window for checkpoints that is too short for the ones that may fail is not used.
    ///
    /// # Errors
    /// An option has an invalid value.
    pub fn of(config: &FlinkConfig) -> Result<Self, InvalidOption> {
        Ok(Self {
            restarts_window: config.get(&operator::RESTARTS_WINDOW)?,
            max_restarts: config.get(&operator::RESTARTS_THRESHOLD)?,
            checkpoint_window: checkpoint_window(config)?,
        })
    }
}

fn checkpoint_window(config: &FlinkConfig) -> Result<Option<SignedDuration>, InvalidOption> {
    if !config.get(&operator::CHECKPOINT_PROGRESS)? {
        return Ok(None);
    }
    let window = config.find(&operator::CHECKPOINT_PROGRESS_WINDOW)?;
    let interval = config
        .find(&options::CHECKPOINT_INTERVAL)?
        .unwrap_or(SignedDuration::ZERO);
    let timeout = config.get(&CHECKPOINT_TIMEOUT)?;
    let n_attempts = config.get(&TOLERABLE_FAILURES)?.saturating_add(2);
    let min = interval.max(timeout).saturating_mul(n_attempts);
    Ok(match window {
        Some(window) => Some(window.max(min)),
        None if interval.is_positive() => Some(min),
        // Without checkpoints none can complete.
        None => None,
    })
}

/// The clock went back since the last observation: nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cluster health was last observed {ms_ahead} ms after now: expected the clock to go forward; set the clock, or wait"
)]
pub struct ClockWentBack {
    ms_ahead: i64,
}

/// A text in the status that is no health.
#[derive(Debug, thiserror::Error)]
#[error("status.clusterInfo.ClusterHealthInfo cannot be read: expected JSON; remove the key")]
pub struct UnreadableHealth(#[from] serde_json::Error);

impl ClusterHealth {
    /// Reads what `status.clusterInfo` holds; none before the first observation.
    ///
    /// # Errors
    /// The text is no health.
    pub fn read(cluster_info: &BTreeMap<String, String>) -> Result<Option<Self>, UnreadableHealth> {
        let text = cluster_info.get(CLUSTER_INFO_KEY);
        Ok(text.map(|text| serde_json::from_str(text)).transpose()?)
    }

    /// The text for `status.clusterInfo`.
    pub fn to_text(&self) -> String {
        jackson::to_text(self)
    }

    /// What is remembered after the first observation.
    pub fn first(seen: &Observation) -> Self {
        Self {
            time_stamp: seen.at_ms,
            num_restarts: seen.n_restarts,
            num_restarts_evaluation_time_stamp: seen.at_ms,
            num_completed_checkpoints: seen.n_completed_checkpoints,
            num_completed_checkpoints_increased_time_stamp: seen.at_ms,
            health_result: HealthResult::default(),
        }
    }

    /// What is remembered after another observation.
    ///
    /// # Errors
    /// The observation is older than the last one.
    pub fn next(&self, seen: &Observation, limits: &HealthLimits) -> Result<Self, ClockWentBack> {
        if seen.at_ms < self.time_stamp {
            let ms_ahead = self.time_stamp.saturating_sub(seen.at_ms);
            return Err(ClockWentBack { ms_ahead });
        }
        let mut next = self.clone();
        let errors = [
            next.count_restarts(seen, limits),
            next.count_checkpoints(seen, limits),
        ];
        let errors: Vec<String> = errors.into_iter().flatten().collect();
        next.time_stamp = seen.at_ms;
        next.health_result = HealthResult {
            healthy: errors.is_empty(),
            error: Some(errors.join("|")),
        };
        Ok(next)
    }

    /// Returns what is wrong with the restarts.
    fn count_restarts(&mut self, seen: &Observation, limits: &HealthLimits) -> Option<String> {
        if seen.n_restarts < self.num_restarts {
            // Another JobManager counts from the start.
            self.set_restarts(seen);
            return None;
        }
        let window_ms = millis(limits.restarts_window);
        let elapsed_ms = seen
            .at_ms
            .saturating_sub(self.num_restarts_evaluation_time_stamp);
        let n_new = i64::from(seen.n_restarts) - i64::from(self.num_restarts);
        // Of a longer time than the window only its share counts.
        let n_in_window = if elapsed_ms <= window_ms {
            n_new
        } else {
            (n_new as f64 * (window_ms as f64 / elapsed_ms as f64)) as i64
        };
        if elapsed_ms > window_ms {
            self.set_restarts(seen);
        }
        let max = limits.max_restarts;
        (n_in_window > i64::from(max)).then(|| format!("Restart count hit threshold: {max}"))
    }

    fn set_restarts(&mut self, seen: &Observation) {
        self.num_restarts = seen.n_restarts;
        self.num_restarts_evaluation_time_stamp = seen.at_ms;
    }

    /// Returns what is wrong with the checkpoints.
    fn count_checkpoints(&mut self, seen: &Observation, limits: &HealthLimits) -> Option<String> {
        let window_ms = millis(limits.checkpoint_window?);
        if seen.n_completed_checkpoints != self.num_completed_checkpoints {
            // More of them, or another JobManager that counts from the start.
            self.num_completed_checkpoints = seen.n_completed_checkpoints;
            self.num_completed_checkpoints_increased_time_stamp = seen.at_ms;
            return None;
        }
        let since_ms = self.num_completed_checkpoints_increased_time_stamp;
        let is_stuck = since_ms.saturating_add(window_ms) < seen.at_ms;
        is_stuck.then(|| "Cluster is not able to complete checkpoints".to_owned())
    }
}

fn millis(duration: SignedDuration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
