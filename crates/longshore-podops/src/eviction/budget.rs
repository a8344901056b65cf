//! A PodDisruptionBudget, as its disruption controller has counted it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::core::{Selector, SelectorExt};
use longshore_core::{Resource, Scope};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::count::Held;
use crate::{model::Pod, selector::parse};

/// `policy/v1` PodDisruptionBudget.
pub const BUDGET: Resource = Resource {
    group: "policy",
    version: "v1",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    scope: Scope::Namespaced,
};

/// How long a disruption that the API server has allowed counts while the pod is still there, as for the disruption
/// controller.
const DISRUPTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `None` where it selects no pod.
    selector: Option<Selector>,
    /// Whether a pod that is not Ready may always go (`unhealthyPodEvictionPolicy: AlwaysAllow`).
    pub spares_unready: bool,
    /// What the disruption controller has counted; *Errors*: why there is no current count.
    pub counted: Result<Counted, String>,
    /// Pods whose eviction the API server has allowed, and since when.
    disrupted: BTreeMap<String, Timestamp>,
}

/// What a disruption controller has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many pods there are to be.
    pub expected: i64,
    /// How many of them have to stay available.
    pub desired: i64,
    /// How many were available.
    pub healthy: i64,
}

impl Budget {
    /// Whether it is about a pod. A budget without selector is about none, one with an empty selector about all.
    pub fn selects(&self, pod: &Pod) -> bool {
        let is_here = self.namespace == pod.target.namespace;
        let selector = self.selector.as_ref();
        is_here && selector.is_some_and(|selector| selector.matches(&pod.labels))
    }

    /// Whether the API server has allowed the eviction of a pod of this name, which counts although it is still there.
    pub(super) fn is_disrupting(&self, pod: &Pod, now: Timestamp) -> bool {
        let since = self.disrupted.get(&pod.target.name);
        since.is_some_and(|since| now.duration_since(*since) < DISRUPTION_TIMEOUT)
    }

    /// Whether the disruption controller has seen more pods, and more available ones, than these.
    pub(super) fn has_seen_more(&self, n_pods: usize, n_available: usize) -> bool {
        let as_number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.counted.as_ref().is_ok_and(|counted| {
            counted.expected > as_number(n_pods) && counted.healthy > as_number(n_available)
        })
    }

    /// How people find it.
    pub fn title(&self) -> String {
        format!("{} {}/{}", BUDGET.kind, self.namespace, self.name)
    }

    /// What it asks for, where only the disruption controller has counted.
    pub(crate) fn says_of_status(&self) -> String {
        self.says(self.counted.as_ref().map_or(0, |counted| counted.healthy))
    }

    /// Whether it spares a pod, by what the disruption controller has counted; without a count it spares none.
    pub(crate) fn has_room(&self) -> bool {
        self.counted
            .as_ref()
            .is_ok_and(|counted| counted.healthy > counted.desired)
    }

    /// A pod is held by it: by what the disruption controller has counted.
    pub(crate) fn holds(&self) -> Held {
        Held {
            budget: self.name.clone(),
            message: self.says_of_status(),
        }
    }

    /// What it asks for, where so many pods are available.
    pub(super) fn says(&self, n_available: i64) -> String {
        match &self.counted {
            Err(why) => format!("{}: {why}", self.title()),
            Ok(Counted {
                expected, desired, ..
            }) => {
                let (title, are) = (self.title(), if n_available == 1 { "is" } else { "are" });
                format!("{title}: {desired} of {expected} must stay available, {n_available} {are}")
            }
        }
    }
}

/// Passes over everything else that the object has.
impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire {
            metadata,
            spec,
            status,
        } = Wire::deserialize(deserializer)?;
        let status = status.unwrap_or_default();
        let disrupted = status.disrupted_pods.iter().flatten();
        let at = |(name, at): (&String, &String)| Some((name.clone(), at.parse().ok()?));
        Ok(Self {
            disrupted: disrupted.filter_map(at).collect(),
            counted: status.counted(metadata.generation),
            namespace: metadata.namespace,
            name: metadata.name,
            spares_unready: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            // One that cannot be read selects nothing, as for API servers.
            selector: spec.selector.and_then(|selector| parse(&selector).ok()),
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
    status: Option<WireStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireMetadata {
    namespace: String,
    name: String,
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    selector: Option<Value>,
    unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    observed_generation: Option<i64>,
    expected_pods: i64,
    desired_healthy: i64,
    current_healthy: i64,
    disrupted_pods: Option<BTreeMap<String, String>>,
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    #[serde(rename = "type")]
    kind: String,
    reason: Option<String>,
    message: Option<String>,
}

impl WireStatus {
    /// What was counted, where that is about the present spec.
    fn counted(&self, generation: i64) -> Result<Counted, String> {
        if self
            .observed_generation
            .is_none_or(|seen| seen < generation)
        {
            let why = "the disruption controller has not counted the pods for its present spec";
            return Err(why.to_owned());
        }
        let mut conditions = self.conditions.iter().flatten();
        let failed = conditions.find(|condition| {
            condition.kind == "DisruptionAllowed"
                && condition.reason.as_deref() == Some("SyncFailed")
        });
        if let Some(failed) = failed {
            let why = failed.message.as_deref().unwrap_or_default();
            return Err(format!(
                "the disruption controller cannot count the pods: {why}"
            ));
        }
        if self.expected_pods <= 0 {
            return Err("the disruption controller has counted no pods yet".to_owned());
        }
        Ok(Counted {
            expected: self.expected_pods,
            desired: self.desired_healthy,
            healthy: self.current_healthy,
        })
    }
}
