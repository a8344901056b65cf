//! The spec of a Deployment, parsed, and the observed objects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_k8s::{IntOrPercent, Rounding, Selector};
use serde_json::Value;

use crate::controllers::workloads::{Body, Malformed};

pub(super) const ANNOTATION_REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const ANNOTATION_DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const ANNOTATION_MAX: &str = "deployment.kubernetes.io/max-replicas";

/// A Deployment that can be read.
#[derive(Debug, Clone)]
pub(crate) struct Desired {
    pub(crate) deployment: Body,
    pub(crate) selector: Selector,
    pub(crate) n_replicas: i64,
    pub(crate) strategy: Strategy,
    /// How many old ReplicaSets stay for a rollback.
    pub(crate) history_limit: usize,
    /// `progressDeadlineSeconds`; `None` when there is none.
    pub(crate) deadline: Option<Duration>,
    pub(crate) is_paused: bool,
}

/// How pods are replaced, in numbers of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Recreate,
    Rolling {
        max_surge: i64,
        max_unavailable: i64,
    },
}

impl Desired {
    pub(crate) fn of(deployment: Body) -> Result<Desired, Malformed> {
        let n_replicas = deployment.at("/spec/replicas").as_i64().unwrap_or(1);
        let deadline = deployment.at("/spec/progressDeadlineSeconds").as_u64();
        // The largest value stands for none.
        let deadline = deadline.filter(|it| *it != u64::from(i32::MAX.unsigned_abs()));
        let limit = deployment.at("/spec/revisionHistoryLimit").as_u64();
        Ok(Desired {
            selector: deployment.selector()?,
            n_replicas,
            strategy: strategy(&deployment, n_replicas),
            history_limit: usize::try_from(limit.unwrap_or(10)).unwrap_or(usize::MAX),
            deadline: deadline.map(Duration::from_secs),
            is_paused: deployment.at("/spec/paused") == &Value::Bool(true),
            deployment,
        })
    }

    pub(super) fn template(&self) -> &Value {
        self.deployment.at("/spec/template")
    }

    pub(super) fn reference(&self) -> Value {
        self.deployment.as_controller("apps/v1", "Deployment")
    }

    pub(super) fn max_surge(&self) -> i64 {
        match self.strategy {
            Strategy::Recreate => 0,
            Strategy::Rolling { max_surge, .. } => max_surge,
        }
    }

    /// How many pods may be missing while the deployment counts as available.
    pub(super) fn max_unavailable(&self) -> i64 {
        match self.strategy {
            Strategy::Rolling {
                max_unavailable, ..
            } => max_unavailable.min(self.n_replicas),
            Strategy::Recreate => 0,
        }
    }
}

fn strategy(deployment: &Body, n_replicas: i64) -> Strategy {
    if deployment.at("/spec/strategy/type") == "Recreate" {
        return Strategy::Recreate;
    }
    let rolling = deployment.at("/spec/strategy/rollingUpdate");
    // What API servers refuse counts as 0.
    let scaled = |field: &str, rounding: Rounding| {
        let amount = IntOrPercent::read(&rolling[field]);
        amount.map_or(0, |it| it.scaled(n_replicas, rounding).max(0))
    };
    let max_surge = scaled("maxSurge", Rounding::Up);
    let max_unavailable = scaled("maxUnavailable", Rounding::Down);
    Strategy::Rolling {
        max_surge,
        // Otherwise nothing would ever move.
        max_unavailable: if max_surge == 0 && max_unavailable == 0 {
            1
        } else {
            max_unavailable
        },
    }
}

/// The snapshot of one round.
#[derive(Debug)]
pub(crate) struct Observed {
    /// All ReplicaSets of the namespace.
    pub(crate) sets: Vec<Body>,
    /// The pods that the deployment selects; none are read when they do not matter.
    pub(crate) pods: Vec<Pod>,
}

/// One ReplicaSet of the deployment.
#[derive(Debug, Clone)]
pub(super) struct Set(pub(super) Body);

impl Set {
    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    /// The number of pods that it shall have.
    pub(super) fn n_replicas(&self) -> i64 {
        self.0.at("/spec/replicas").as_i64().unwrap_or(1)
    }

    pub(super) fn n_available(&self) -> i64 {
        self.0.count("/status/availableReplicas")
    }

    pub(super) fn number(&self, annotation: &str) -> Option<i64> {
        self.0.annotation(annotation)?.parse().ok()
    }

    pub(super) fn revision(&self) -> i64 {
        self.number(ANNOTATION_REVISION).unwrap_or(0)
    }

    /// Its place among the others: by age, then by name.
    pub(super) fn age(&self) -> (Option<Timestamp>, &str) {
        let created = self.0.meta.creation_timestamp.as_ref();
        (created.map(|it| it.0), self.name())
    }
}

/// The ReplicaSets of a deployment.
#[derive(Debug, Clone, Default)]
pub(super) struct Sets {
    /// The one with the present template.
    pub(super) new: Option<Set>,
    /// All others, oldest first.
    pub(super) old: Vec<Set>,
}

impl Sets {
    pub(super) fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    /// The ReplicaSets with replicas.
    pub(super) fn active(&self) -> impl Iterator<Item = &Set> {
        self.all().filter(|set| set.n_replicas() > 0)
    }

    pub(super) fn n_replicas(&self) -> i64 {
        self.all().map(Set::n_replicas).sum()
    }

    pub(super) fn n_available(&self) -> i64 {
        self.all().map(Set::n_available).sum()
    }

    /// A number of their statuses, added up.
    pub(super) fn sum(&self, pointer: &str) -> i64 {
        self.all().map(|set| set.0.count(pointer)).sum()
    }
}
