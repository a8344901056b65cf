//! A PodDisruptionBudget, as its disruption controller has counted it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_k8s::Selector;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::count::Held;
use crate::model::Pod;

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
/// The age at which a reserved disruption is written again. The disruption controller drops the entry after
/// [`DISRUPTION_TIMEOUT`] by its own clock: the other half of that time is for late watches, for retries and for clocks
/// that differ.
pub(super) const RENEWED_AFTER: SignedDuration = SignedDuration::from_secs(60);

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
    /// What the disruption controller has counted, or why there is no current count.
    pub counted: Result<Counted, String>,
    /// Pods for which the API server or this controller has taken a disruption, and when.
    pub(super) disrupted: BTreeMap<String, Timestamp>,
    /// So many disruptions are left (`disruptionsAllowed`): each taker decrements the number, and the disruption
    /// controller counts it anew.
    pub(super) allowed: i64,
    /// Its uid.
    pub(super) uid: Option<String>,
    /// Its version: a reservation upon it is refused where the API server or the disruption controller was first.
    pub(super) resource_version: Option<String>,
}

/// Whether a disruption of a budget is reserved for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    /// The pod has no entry: a disruption has to be left.
    Missing,
    /// There is an entry of this name, so that the disruption controller does not count the pod as healthy. The entry
    /// ends soon, or was made for an earlier pod: it has to be written again before an operation relies on it.
    Ending,
    /// There is an entry, and it lasts.
    Valid,
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

    /// Whether a disruption of this budget has to be reserved for the pod: as for API servers, only pods that run and are
    /// Ready cost one. That does not depend on whether the budget is counted: a budget that is not counted has no disruption
    /// to give, and still [holds](Self::holds) every pod that it selects.
    pub(super) fn charges(&self, pod: &Pod) -> bool {
        pod.is_ready && !pod.is_pending && self.selects(pod)
    }

    /// Whether as many pods were healthy as have to stay, without those that have an entry: the pods that have one may
    /// leave. False where the budget was raised after the disruptions were reserved, where another pod has failed, and
    /// where the budget has no count.
    pub(super) fn has_enough(&self) -> bool {
        let counted = self.counted.as_ref();
        counted.is_ok_and(|counted| counted.healthy >= counted.desired)
    }

    /// Whether a disruption is reserved for the pod, whichever client wrote the entry.
    pub(super) fn reservation(&self, pod: &Pod, now: Timestamp) -> Reservation {
        let Some(since) = self.disrupted.get(&pod.target.name) else {
            return Reservation::Missing;
        };
        // Entries have names only, and the next pod of a StatefulSet has the name of the last one.
        let is_of_earlier = pod.created_at.is_some_and(|created_at| *since < created_at);
        if is_of_earlier || now.duration_since(*since) >= RENEWED_AFTER {
            Reservation::Ending
        } else {
            Reservation::Valid
        }
    }

    /// The budget as the target of a write.
    pub(super) fn target(&self) -> ObjectRef {
        ObjectRef {
            resource: BUDGET,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }

    /// Whether the disruption controller has seen more pods, and more available ones, than these numbers.
    pub(super) fn has_seen_more(&self, n_pods: usize, n_available: usize) -> bool {
        let as_number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.counted.as_ref().is_ok_and(|counted| {
            counted.expected > as_number(n_pods) && counted.healthy > as_number(n_available)
        })
    }

    /// Kind, namespace and name of the budget, for messages.
    pub fn title(&self) -> String {
        format!("{} {}/{}", BUDGET.kind, self.namespace, self.name)
    }

    /// What it asks for, where only the disruption controller has counted.
    pub(crate) fn says_of_status(&self) -> String {
        self.says(self.counted.as_ref().map_or(0, |counted| counted.healthy))
    }

    /// Whether it spares this pod, by what the disruption controller has counted; without a count it spares none.
    pub(crate) fn has_room_for(&self, pod: &Pod, now: Timestamp) -> bool {
        if self.charges(pod) && self.reservation(pod, now) != Reservation::Missing {
            // The pod is not among the healthy pods.
            return self.has_enough();
        }
        let counted = self.counted.as_ref();
        let has_more = counted.is_ok_and(|counted| counted.healthy > counted.desired);
        has_more && (self.allowed > 0 || !self.charges(pod))
    }

    /// What it asks for, to a pod for which it has no room.
    pub(crate) fn says_to(&self, pod: &Pod, now: Timestamp) -> String {
        let is_charged = self.charges(pod) && self.reservation(pod, now) == Reservation::Missing;
        let has_more = self.counted.as_ref();
        let has_more = has_more.is_ok_and(|counted| counted.healthy > counted.desired);
        if is_charged && has_more && self.allowed < 1 {
            return self.holds_without_disruption().message;
        }
        self.says_of_status()
    }

    /// The budget has room for a pod whose operation has not begun all the same.
    pub(super) fn holds_with_room(&self, what: &str) -> Held {
        let says = self.says_of_status();
        Held {
            budget: self.name.clone(),
            message: format!("{says}: it has room, and {what}; Events of the pod say why"),
        }
    }

    /// A pod is held by it: by what the disruption controller has counted.
    pub(crate) fn holds(&self) -> Held {
        Held {
            budget: self.name.clone(),
            message: self.says_of_status(),
        }
    }

    /// A pod is held by it although the count has room: no disruption is left to reserve.
    pub(super) fn holds_without_disruption(&self) -> Held {
        let message = format!(
            "{}, and no further disruption is allowed",
            self.says_of_status()
        );
        Held {
            budget: self.name.clone(),
            message,
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
        let at = |(name, at): (&String, &Option<String>)| {
            Some((name.clone(), at.as_ref()?.parse().ok()?))
        };
        Ok(Self {
            disrupted: disrupted.filter_map(at).collect(),
            allowed: status.disruptions_allowed,
            counted: status.counted(metadata.generation),
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            namespace: metadata.namespace,
            name: metadata.name,
            spares_unready: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            // A selector that cannot be read selects nothing, as for API servers.
            selector: spec
                .selector
                .and_then(|selector| Selector::read(&selector).ok()),
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
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    namespace: String,
    name: String,
    uid: Option<String>,
    resource_version: Option<String>,
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
    disruptions_allowed: i64,
    /// API servers print the first instant of the year 1 as `null`.
    disrupted_pods: Option<BTreeMap<String, Option<String>>>,
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
        // The condition comes first: the disruption controller leaves the observed generation as it is where it fails.
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
        let seen = self.observed_generation;
        if seen.is_none_or(|seen| seen < generation) {
            let why = "the disruption controller has not counted the pods for its present spec";
            return Err(why.to_owned());
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
