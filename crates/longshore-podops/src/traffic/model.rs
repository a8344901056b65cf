//! Services and EndpointSlices, and what they are to a pod.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{ANNOTATION_DRAIN_DELAY, CONTROLLED, LABEL_CONTROL};
use longshore_core::{Resource, Scope};
use serde::{Deserialize, Deserializer};

use crate::model::{Labels, Pod};

/// `discovery.k8s.io/v1` EndpointSlice.
pub const ENDPOINT_SLICE: Resource = Resource {
    group: "discovery.k8s.io",
    version: "v1",
    kind: "EndpointSlice",
    plural: "endpointslices",
    scope: Scope::Namespaced,
};
/// The label of an EndpointSlice that names its Service.
const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The Services that route traffic to a pod and protect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The Services that select the pod, by name.
    pub services: Vec<Service>,
    /// The names of those Services whose EndpointSlices have the pod as ready.
    pub routed_by: Vec<String>,
    /// Since when no slice was seen that has the pod as ready. Not kept: a process that starts takes the instant of its
    /// first look, so that a restart makes a pod wait longer and never shorter.
    pub out_since: Timestamp,
    /// How long the pod is held after that, unless a Service says otherwise.
    pub drain_delay: Duration,
}

/// A Service that routes traffic to the pods that it selects when they are Ready, and has no other controller that
/// protects them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The labels that its pods have; never empty.
    pub selector: Labels,
    /// What it says about how long its traffic drains.
    pub drain_delay: DrainDelay,
}

/// What a Service says about how long its traffic drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainDelay {
    /// Nothing.
    Unsaid,
    /// That long.
    Of(Duration),
    /// This, which is no time.
    Invalid(String),
}

/// An EndpointSlice: which pods it has as ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its Service; empty where it has none.
    pub service: String,
    /// The uid of each pod to which traffic may go, by name.
    pub ready: BTreeMap<String, String>,
}

impl Service {
    /// Whether it selects a pod.
    pub fn selects(&self, pod: &Pod) -> bool {
        let mut pairs = self.selector.iter();
        pairs.all(|(key, value)| pod.labels.get(key) == Some(value))
    }
}

impl Slice {
    /// Whether it has a pod as ready: this incarnation, where it says which one it means, which slices that others write
    /// may not.
    pub fn routes_to(&self, pod: &Pod) -> bool {
        let uid = pod.target.uid.as_deref().unwrap_or_default();
        let meant = self.ready.get(&pod.target.name);
        meant.is_some_and(|meant| meant.is_empty() || meant == uid)
    }
}

impl Traffic {
    /// How long the pod is held after it has left the slices: as long as the most careful of its Services says.
    pub fn longest_delay(&self) -> Duration {
        let said = self
            .services
            .iter()
            .map(|service| match service.drain_delay {
                DrainDelay::Of(delay) => delay,
                DrainDelay::Unsaid | DrainDelay::Invalid(_) => self.drain_delay,
            });
        said.max().unwrap_or(self.drain_delay)
    }
}

impl DrainDelay {
    fn of(text: Option<&String>) -> Self {
        let Some(text) = text else {
            return Self::Unsaid;
        };
        let time = text.parse::<SignedDuration>().ok();
        match time.and_then(|time| Duration::try_from(time).ok()) {
            Some(delay) => Self::Of(delay),
            None => Self::Invalid(text.clone()),
        }
    }
}

/// A Service of which no pod is protected by us reads as `None` with [`Protects`]:
///
/// - one without selector has its slices from another client, which knows nothing of readiness;
/// - one that is a name for something outside has none;
/// - one with the label `kusionstack.io/control` has a controller of its own (ResourceConsist), which adds a finalizer of
///   its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Protects(pub(super) Option<Service>);

impl<'de> Deserialize<'de> for Protects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WireService { metadata, spec } = WireService::deserialize(deserializer)?;
        let labels = metadata.labels.unwrap_or_default();
        let has_own = labels.get(LABEL_CONTROL).map(String::as_str) == Some(CONTROLLED);
        let is_name = spec.kind.as_deref() == Some("ExternalName");
        let selector = spec.selector.unwrap_or_default();
        let is_ours = !has_own && !is_name && !selector.is_empty();
        let annotations = metadata.annotations.unwrap_or_default();
        Ok(Self(is_ours.then(|| Service {
            name: metadata.name.unwrap_or_default(),
            selector,
            drain_delay: DrainDelay::of(annotations.get(ANNOTATION_DRAIN_DELAY)),
        })))
    }
}

impl<'de> Deserialize<'de> for Slice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireSlice::deserialize(deserializer)?;
        let mut labels = wire.metadata.labels.unwrap_or_default();
        let endpoints = wire.endpoints.unwrap_or_default().into_iter();
        let routed = endpoints.filter(|endpoint| endpoint.conditions.is_routed());
        let pods = routed.filter_map(|endpoint| {
            let target = endpoint.target_ref.filter(|it| it.kind == "Pod")?;
            Some((target.name, target.uid))
        });
        Ok(Self {
            service: labels.remove(LABEL_SERVICE_NAME).unwrap_or_default(),
            ready: pods.collect(),
        })
    }
}

impl WireConditions {
    /// What is not said counts as true, as the API has it. A Service with `publishNotReadyAddresses` has every pod as
    /// ready, for ever: there only `serving` follows the pod.
    fn is_routed(&self) -> bool {
        self.ready.unwrap_or(true) && self.serving.unwrap_or(true)
    }
}

#[derive(Deserialize)]
struct WireService {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
}

#[derive(Deserialize)]
struct WireMetadata {
    name: Option<String>,
    labels: Option<Labels>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct WireSpec {
    #[serde(rename = "type")]
    kind: Option<String>,
    selector: Option<Labels>,
}

#[derive(Deserialize)]
struct WireSlice {
    metadata: WireMetadata,
    endpoints: Option<Vec<WireEndpoint>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEndpoint {
    #[serde(default)]
    conditions: WireConditions,
    target_ref: Option<WireTarget>,
}

#[derive(Default, Deserialize)]
struct WireConditions {
    ready: Option<bool>,
    serving: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireTarget {
    kind: String,
    name: String,
    uid: String,
}
