//! The spec of a ReplicaSet, parsed, and the observed objects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_k8s::Selector;
use serde_json::Value;

use crate::controllers::workloads::{Body, Malformed};

/// A ReplicaSet that can be read.
#[derive(Debug, Clone)]
pub(crate) struct Desired {
    pub(crate) set: Body,
    pub(crate) selector: Selector,
    pub(crate) n_replicas: usize,
    /// `minReadySeconds`.
    pub(crate) min_ready: Duration,
}

impl Desired {
    pub(crate) fn of(set: Body) -> Result<Desired, Malformed> {
        let n_replicas = set.at("/spec/replicas").as_i64().unwrap_or(1);
        let min_ready = set.count("/spec/minReadySeconds");
        Ok(Desired {
            selector: set.selector()?,
            n_replicas: usize::try_from(n_replicas).unwrap_or(0),
            min_ready: Duration::from_secs(u64::try_from(min_ready).unwrap_or(0)),
            set,
        })
    }

    pub(crate) fn template(&self) -> &Value {
        self.set.at("/spec/template")
    }

    pub(crate) fn reference(&self) -> Value {
        self.set.as_controller("apps/v1", "ReplicaSet")
    }
}

/// The snapshot of one round.
#[derive(Debug)]
pub(crate) struct Observed {
    /// All pods that the selector selects, whatever their controller, and pods that the owner controls
    /// but no longer selects.
    pub(crate) pods: Vec<Pod>,
    pub(crate) now: Timestamp,
}
