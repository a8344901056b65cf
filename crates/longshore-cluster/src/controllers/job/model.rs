//! The spec of a Job, parsed, and the observed objects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::{JobCondition, JobSpec, JobStatus},
    core::v1::Pod,
};
use longshore_k8s::Selector;
use serde_json::from_value;

use crate::controllers::workloads::{Body, Malformed};

/// The controller that kube-controller-manager is to Jobs; other names mean other controllers.
const OWN_NAME: &str = "kubernetes.io/job-controller";

/// What the completions of a Job are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Any pods; `None` for a work queue, of which one success ends the growth.
    Plain { completions: Option<usize> },
    /// One pod of each index.
    Indexed {
        completions: usize,
        /// Failures that each index may have, if they are counted so.
        limit: Option<i32>,
    },
}

/// A Job that can be read.
#[derive(Debug, Clone)]
pub(super) struct Desired {
    pub(super) job: Body,
    pub(super) selector: Selector,
    pub(super) spec: JobSpec,
    pub(super) status: JobStatus,
    pub(super) mode: Mode,
}

/// The snapshot of one round.
#[derive(Debug)]
pub(super) struct Observed {
    /// All pods that the selector selects, whatever their controller, and those that the Job controls, or held, without
    /// selecting them.
    pub(super) pods: Vec<Pod>,
    pub(super) now: Timestamp,
}

impl Desired {
    pub(super) fn of(job: Body) -> Result<Desired, Malformed> {
        let spec: Option<JobSpec> = from_value(job.at("/spec").clone()).ok();
        let spec = spec.ok_or_else(|| job.malformed("spec", "the spec of a Job"))?;
        let status: Option<Option<JobStatus>> = from_value(job.at("/status").clone()).ok();
        let status = status.map(Option::unwrap_or_default);
        let status = status.ok_or_else(|| job.malformed("status", "the status of a Job"))?;
        let completions = spec.completions.map(count);
        let mode = match spec.completion_mode.as_deref() {
            None | Some("NonIndexed") => Mode::Plain { completions },
            Some("Indexed") => Mode::Indexed {
                completions: completions.unwrap_or(0),
                limit: spec.backoff_limit_per_index,
            },
            Some(_) => {
                let expected = "NonIndexed or Indexed";
                return Err(job.malformed("spec.completionMode", expected));
            }
        };
        Ok(Desired {
            selector: job.selector()?,
            spec,
            status,
            mode,
            job,
        })
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Another controller takes care of it.
    pub(super) fn is_managed_elsewhere(&self) -> bool {
        self.spec
            .managed_by
            .as_deref()
            .is_some_and(|it| it != OWN_NAME)
    }

    /// Pods are replaced when they have ended, not already when they go.
    pub(super) fn awaits_ends(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    pub(super) fn parallelism(&self) -> usize {
        self.spec.parallelism.map_or(1, count)
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&JobCondition> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.find(|it| it.type_ == kind)
    }

    /// The condition, when it holds.
    pub(super) fn holds(&self, kind: &str) -> Option<&JobCondition> {
        self.condition(kind).filter(|it| it.status == "True")
    }

    /// The condition with which the Job has ended.
    pub(super) fn end(&self) -> Option<&JobCondition> {
        self.holds("Complete").or_else(|| self.holds("Failed"))
    }

    /// Since when the Job runs; a Job that begins now runs since now.
    pub(super) fn started_at(&self, now: Timestamp) -> Option<Timestamp> {
        let known = self.status.start_time.as_ref().map(|it| it.0);
        known.or_else(|| (!self.is_suspended()).then_some(now))
    }

    /// How long the Job may still run; zero when its time is over.
    pub(super) fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let seconds = self.spec.active_deadline_seconds?;
        let started_at = self.started_at(now).filter(|_| !self.is_suspended())?;
        Some(until(started_at, seconds, now))
    }

    /// An index of a Job whose pods have one each.
    pub(super) fn is_index(&self, index: Option<usize>) -> bool {
        match self.mode {
            Mode::Plain { .. } => true,
            Mode::Indexed { completions, .. } => index.is_some_and(|it| it < completions),
        }
    }
}

/// How long until some seconds after an instant are over; zero when they are.
pub(super) fn until(begin: Timestamp, seconds: i64, now: Timestamp) -> Duration {
    let seconds = jiff::SignedDuration::from_secs(seconds);
    let end = begin.checked_add(seconds).unwrap_or(Timestamp::MAX);
    if end <= now {
        Duration::ZERO
    } else {
        end.duration_since(now).unsigned_abs()
    }
}

/// A number of Kubernetes as a count.
pub(super) fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}
