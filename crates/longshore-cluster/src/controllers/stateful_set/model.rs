//! The spec of a StatefulSet, parsed, and the observed objects.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_k8s::Selector;
use serde_json::Value;

use crate::controllers::workloads::{Body, Malformed};

/// The revision of a pod's template.
pub(super) const LABEL_REVISION: &str = "controller-revision-hash";

/// A StatefulSet that can be read.
#[derive(Debug, Clone)]
pub(crate) struct Desired {
    pub(crate) set: Body,
    pub(crate) selector: Selector,
    pub(crate) n_replicas: usize,
    /// The number of the first pod.
    pub(crate) start: usize,
    /// One pod after the other, each when the one before it is available.
    pub(crate) is_ordered: bool,
    pub(crate) update: Update,
    pub(crate) min_ready: Duration,
    pub(crate) history_limit: usize,
}

/// The update strategy: when the pods of an old template are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    /// The controller replaces a pod after a user has deleted it.
    OnDelete,
    /// The controller deletes pods of the old revision, from the highest ordinal down to
    /// `partition`.
    Rolling { partition: usize },
}

impl Desired {
    pub(crate) fn of(set: Body) -> Result<Desired, Malformed> {
        let size = |pointer: &str, default: usize| {
            let number = set.at(pointer).as_i64();
            number.map_or(default, |it| usize::try_from(it).unwrap_or(0))
        };
        let min_ready = set.at("/spec/minReadySeconds").as_u64().unwrap_or(0);
        Ok(Desired {
            selector: set.selector()?,
            n_replicas: size("/spec/replicas", 1),
            start: size("/spec/ordinals/start", 0),
            is_ordered: set.at("/spec/podManagementPolicy") != "Parallel",
            update: if set.at("/spec/updateStrategy/type") == "OnDelete" {
                Update::OnDelete
            } else {
                let partition = size("/spec/updateStrategy/rollingUpdate/partition", 0);
                Update::Rolling { partition }
            },
            min_ready: Duration::from_secs(min_ready),
            history_limit: size("/spec/revisionHistoryLimit", 10),
            set,
        })
    }

    pub(super) fn template(&self) -> &Value {
        self.set.at("/spec/template")
    }

    pub(super) fn claim_templates(&self) -> &[Value] {
        let templates = self.set.at("/spec/volumeClaimTemplates").as_array();
        templates.map_or(&[], Vec::as_slice)
    }

    pub(super) fn reference(&self) -> Value {
        self.set.as_controller("apps/v1", "StatefulSet")
    }

    pub(super) fn pod_name(&self, ordinal: usize) -> String {
        format!("{}-{ordinal}", self.set.name())
    }

    /// The number in the name of one of its pods.
    pub(super) fn ordinal_of(&self, pod_name: &str) -> Option<usize> {
        let rest = pod_name.strip_prefix(self.set.name())?.strip_prefix('-')?;
        let is_number = rest.bytes().all(|byte| byte.is_ascii_digit());
        rest.parse().ok().filter(|_| is_number)
    }
}

/// The snapshot of one round.
#[derive(Debug)]
pub(crate) struct Observed {
    /// All pods that the selector selects, whatever their controller, and pods that the owner controls
    /// but no longer selects.
    pub(crate) pods: Vec<Pod>,
    /// All ControllerRevisions of the namespace.
    pub(crate) revisions: Vec<Body>,
    /// All claims of the namespace; empty for a set without claim templates.
    pub(crate) claims: Vec<Body>,
    pub(crate) now: Timestamp,
}

/// The revision of a pod's template.
pub(super) fn revision_of(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|it| it.get(LABEL_REVISION))
        .map_or("", String::as_str)
}
