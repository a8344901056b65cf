//! A PodTransitionRule.

use longshore_api::podops::{
    GROUP, KIND_POD_TRANSITION_RULE, PodTransitionRuleSpec, PodTransitionRuleStatus, Stage, VERSION,
};
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_k8s::Selector;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    lifecycle::RuleSays,
    model::{Labels, Pod, PodKey},
    replicas::Workload,
};

/// `apps.kusionstack.io/v1alpha1` PodTransitionRule.
pub const RULE: Resource = Resource {
    group: GROUP,
    version: VERSION,
    kind: KIND_POD_TRANSITION_RULE,
    plural: "podtransitionrules",
    scope: Scope::Namespaced,
};

/// A rule's name, in its namespace.
pub type RuleKey = PodKey;

/// A PodTransitionRule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its address.
    pub target: ObjectRef,
    /// Its version: a write upon it is refused where another client wrote first.
    pub resource_version: Option<String>,
    /// Of its spec.
    pub generation: i64,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Whether it was deleted and is about to go.
    pub is_deleting: bool,
    /// What it says.
    pub spec: PodTransitionRuleSpec,
    /// What came of it. Its details are sorted by the names of their pods, whichever program wrote them.
    pub status: PodTransitionRuleStatus,
    /// The selector of its spec, read once: it is held against many pods. `None` where it selects no pod, because it is
    /// missing or cannot be read.
    selector: Option<Selector>,
}

/// Passes over everything else that the object has.
impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[cfg(test)]
        crate::model::reads::count();
        let mut wire = Wire::deserialize(deserializer)?;
        // Of several about one pod, the first stays the first.
        wire.status.details.sort_by(|a, b| a.name.cmp(&b.name));
        let metadata = wire.metadata;
        let selector = wire.spec.selector.as_ref();
        Ok(Self {
            selector: selector.and_then(|selector| Selector::read(selector).ok()),
            target: ObjectRef {
                resource: RULE,
                namespace: metadata.namespace,
                name: metadata.name,
                uid: metadata.uid,
            },
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            finalizers: metadata.finalizers,
            is_deleting: metadata.deletion_timestamp.is_some(),
            spec: wire.spec,
            status: wire.status,
        })
    }
}

impl Rule {
    /// Reads a rule.
    pub fn of(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    /// Whether the rule is about pods with the labels of this one.
    pub fn selects(&self, pod: &Pod) -> bool {
        pod.is_controlled() && self.matches(&pod.labels)
    }

    /// Whether the rule is about the pods of a workload.
    pub fn is_of(&self, workload: &Workload) -> bool {
        self.matches(&workload.labels)
    }

    /// Whether its selector matches these labels.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        let selector = self.selector.as_ref();
        selector.is_some_and(|selector| selector.matches(labels))
    }

    /// Its selector; `None` where it selects no pod.
    pub(crate) fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// Whether its status holds any pod before the operation of the pod begins.
    pub(crate) fn rejects(&self) -> bool {
        let mut details = self.status.details.iter();
        details.any(|detail| detail.stage == Stage::PreCheck.as_str() && !detail.passed)
    }

    /// What the rule says of a pod; `None` where the rule is not about the pod.
    ///
    /// Upstream looks only at the pods that it has noted already, in all namespaces: a pod is passed unguarded before
    /// that, and guarded by strangers after.
    pub fn says_of(&self, pod: &Pod) -> Option<RuleSays> {
        let is_here = self.target.namespace == pod.target.namespace;
        if !is_here || self.is_deleting || !self.selects(pod) {
            return None;
        }
        let (details, name) = (&self.status.details, &pod.target.name);
        let first = details.partition_point(|detail| detail.name < *name);
        let detail = details.get(first).filter(|detail| detail.name == *name);
        // What an earlier version of the rules has said is not what they say.
        let is_current = self.status.observed_generation == self.generation;
        Some(RuleSays {
            rule: self.target.name.clone(),
            detail: detail.filter(|_| is_current).cloned(),
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
    #[serde(default)]
    spec: PodTransitionRuleSpec,
    #[serde(default)]
    status: PodTransitionRuleStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    namespace: String,
    name: String,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: i64,
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}
