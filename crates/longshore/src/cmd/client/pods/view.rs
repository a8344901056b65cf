//! A pod as its commands show it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use longshore_kit::RawObject;
use longshore_podops::{
    eviction::Held, model::Pod, rule::Rule, standing::Standing, traffic::Slice,
};
use serde::{Deserialize, Serialize};

/// The disruption budgets that hold evictions, by the namespace and the name of the pod.
pub(super) type Evictions = BTreeMap<String, BTreeMap<String, Vec<Held>>>;

/// A pod that takes part. Field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodView {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The node that it is on.
    pub(super) node: Option<String>,
    pub(super) created_at: Option<Timestamp>,
    /// Phase, operations, and what holds the pod.
    #[serde(flatten)]
    pub(super) standing: Standing,
}

impl PodView {
    /// The view at `now`, without instants that are too early or too far in the future to be true.
    pub(super) fn seen_at(self, now: Timestamp) -> Self {
        Self {
            standing: self.standing.seen_at(now),
            ..self
        }
    }

    /// The view of an object, with the rules and the EndpointSlices of its namespace, and what holds evictions; `None`
    /// where it is no pod.
    pub(super) fn of(
        object: &RawObject,
        rules: &[Rule],
        slices: &[Slice],
        held: &Evictions,
    ) -> Option<Self> {
        #[derive(Deserialize)]
        struct Bound {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            node_name: Option<String>,
        }

        let pod: Pod = object.read().ok()?;
        let bound: Bound = object.read().ok()?;
        let says: Vec<_> = rules.iter().filter_map(|rule| rule.says_of(&pod)).collect();
        let routing = slices.iter().filter(|slice| slice.routes_to(&pod));
        let routing: BTreeSet<&str> = routing.map(|slice| slice.service.as_str()).collect();
        let held = held.get(&pod.target.namespace);
        let held = held.and_then(|held| held.get(&pod.target.name));
        let held = held.map_or(&[][..], Vec::as_slice);
        Some(Self {
            standing: Standing::of(&pod, &says).routed_by(&routing).held_by(held),
            namespace: pod.target.namespace,
            name: pod.target.name,
            node: bound.spec.node_name,
            created_at: pod.created_at,
        })
    }
}
