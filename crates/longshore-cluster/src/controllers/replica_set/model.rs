//! The spec of a ReplicaSet or a ReplicationController, parsed, and the observed objects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_k8s::Selector;
use serde_json::Value;

use crate::controllers::workloads::{
    Body, Malformed,
    hands::{Speaker, Target},
};

/// The kinds that keep a number of pods. They differ in their names, and in the form of their selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    ReplicaSet,
    ReplicationController,
}

impl Keeper {
    pub(super) fn target(self) -> Target {
        match self {
            Keeper::ReplicaSet => Target::ReplicaSet,
            Keeper::ReplicationController => Target::ReplicationController,
        }
    }

    pub(super) fn speaker(self) -> Speaker {
        match self {
            Keeper::ReplicaSet => Speaker::ReplicaSets,
            Keeper::ReplicationController => Speaker::ReplicationControllers,
        }
    }

    fn selector(self, set: &Body) -> Result<Selector, Malformed> {
        match self {
            Keeper::ReplicaSet => set.selector(),
            Keeper::ReplicationController => set.plain_selector(),
        }
    }
}

/// A ReplicaSet or a ReplicationController that can be read.
#[derive(Debug, Clone)]
pub(crate) struct Desired {
    pub(crate) keeper: Keeper,
    pub(crate) set: Body,
    pub(crate) selector: Selector,
    pub(crate) n_replicas: usize,
    /// `minReadySeconds`.
    pub(crate) min_ready: Duration,
}

impl Desired {
    pub(crate) fn of(keeper: Keeper, set: Body) -> Result<Desired, Malformed> {
        let n_replicas = set.at("/spec/replicas").as_i64().unwrap_or(1);
        let min_ready = set.count("/spec/minReadySeconds");
        Ok(Desired {
            selector: keeper.selector(&set)?,
            n_replicas: usize::try_from(n_replicas).unwrap_or(0),
            min_ready: Duration::from_secs(u64::try_from(min_ready).unwrap_or(0)),
            keeper,
            set,
        })
    }

    pub(crate) fn template(&self) -> &Value {
        self.set.at("/spec/template")
    }

    pub(crate) fn reference(&self) -> Value {
        match self.keeper {
            Keeper::ReplicaSet => self.set.as_controller("apps/v1", "ReplicaSet"),
            Keeper::ReplicationController => self.set.as_controller("v1", "ReplicationController"),
        }
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
