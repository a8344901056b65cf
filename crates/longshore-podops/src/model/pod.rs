//! A pod, as far as its lifecycle is concerned.

use std::collections::BTreeMap;

use jiff::Timestamp;
use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, AvailableConditions, CONDITION_SERVICE_READY, CONTROLLED,
    LABEL_CONTROL, LABEL_RELEASED, LABEL_SERVICE_AVAILABLE, PROTECTION_FINALIZER_PREFIX,
};
use longshore_core::{ObjectRef, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Whether the condition holds is unknown.
    Unknown,
}

/// A pod, as far as its lifecycle is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Its address.
    pub target: ObjectRef,
    /// Its version: a write upon it is refused where another client wrote first.
    pub resource_version: Option<String>,
    /// Its labels: all state of its operations.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Whether its readiness waits for us. A pod made before the webhook was there does not, and never will.
    pub has_gate: bool,
    /// What we said of it; `None` where nothing was said.
    pub service_ready: Option<ConditionStatus>,
    /// Whether it is Ready, by its node.
    pub is_ready: bool,
    /// Since when it is, or is not.
    pub ready_changed_at: Option<Timestamp>,
    /// Whether it runs no more (`Succeeded`, `Failed`).
    pub has_ended: bool,
    /// Whether it has yet to run (`Pending`): disruption budgets do not protect it.
    pub is_pending: bool,
    /// The uid of the workload that controls it; `None` where none does.
    pub owner: Option<String>,
    /// Whether it was deleted and is about to go.
    pub is_deleting: bool,
    /// By when it is to be gone.
    pub deleted_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
}

/// Passes over everything else that the object has.
impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[cfg(test)]
        super::reads::count();
        WirePod::deserialize(deserializer).map(Self::from)
    }
}

/// An object that is no pod.
#[derive(Debug, thiserror::Error)]
#[error("the object is no pod")]
pub struct Undecodable(#[from] serde_json::Error);

/// An annotation that does not say which finalizers are expected.
#[derive(Debug, thiserror::Error)]
#[error(
    "the annotation {ANNOTATION_AVAILABLE_CONDITIONS} is not {{\"expectedFinalizers\": {{…}}}}: {0}"
)]
pub struct MalformedConditions(serde_json::Error);

impl Pod {
    /// Reads a pod.
    pub fn of(object: &Value) -> Result<Self, Undecodable> {
        Ok(Self::deserialize(object)?)
    }

    /// Whether it takes part.
    pub fn is_controlled(&self) -> bool {
        self.labels.get(LABEL_CONTROL).map(String::as_str) == Some(CONTROLLED)
    }

    /// Whether it took part, and its gate has yet to be opened for good.
    pub fn is_released(&self) -> bool {
        self.labels.contains_key(LABEL_RELEASED)
    }

    /// Whether it serves.
    pub fn is_available(&self) -> bool {
        self.labels.contains_key(LABEL_SERVICE_AVAILABLE)
    }

    /// The finalizers that say that traffic is still routed to it. All that begin with upstream's prefix, whatever follows:
    /// one too many makes an operation wait, and one too few makes it break traffic.
    pub fn protections(&self) -> impl Iterator<Item = &str> {
        let finalizers = self.finalizers.iter().map(String::as_str);
        finalizers.filter(|finalizer| finalizer.starts_with(PROTECTION_FINALIZER_PREFIX))
    }

    /// Whether nothing stands in the way of touching it. Without our condition no operation waits for it: upstream's
    /// rule, which other programs rely on; the controller says something before it lets an operation pass its rules.
    pub fn is_ready_to_operate(&self) -> bool {
        match self.service_ready {
            None => true,
            Some(status) => status == ConditionStatus::False && self.protections().next().is_none(),
        }
    }

    /// The finalizers that it has to carry before it serves, by holder.
    pub fn expected_finalizers(&self) -> Result<BTreeMap<String, String>, MalformedConditions> {
        let Some(annotation) = self.annotations.get(ANNOTATION_AVAILABLE_CONDITIONS) else {
            return Ok(BTreeMap::new());
        };
        let conditions: AvailableConditions =
            serde_json::from_str(annotation).map_err(MalformedConditions)?;
        Ok(conditions.expected_finalizers.unwrap_or_default())
    }

    /// Whether it carries every finalizer that it has to carry before it serves.
    pub fn has_expected_finalizers(&self) -> Result<bool, MalformedConditions> {
        let expected = self.expected_finalizers()?;
        Ok(expected
            .values()
            .all(|finalizer| self.finalizers.contains(finalizer)))
    }
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        let metadata = wire.metadata;
        let status = wire.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let find = |kind: &str| conditions.iter().find(|condition| condition.kind == kind);
        let condition = |kind: &str| {
            Some(match find(kind)?.status.as_str() {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            })
        };
        // A text that is no instant counts as none: nothing is decided upon it.
        let instant = |text: Option<&String>| text.and_then(|text| text.parse().ok());
        let gates = wire.spec.and_then(|spec| spec.readiness_gates);
        let gates = gates.unwrap_or_default();
        let ready = find("Ready").and_then(|it| it.last_transition_time.as_ref());
        Self {
            has_gate: gates
                .iter()
                .any(|gate| gate.condition_type == CONDITION_SERVICE_READY),
            service_ready: condition(CONDITION_SERVICE_READY),
            is_ready: condition("Ready") == Some(ConditionStatus::True),
            ready_changed_at: instant(ready),
            has_ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            is_pending: status.phase.as_deref() == Some("Pending"),
            owner: metadata.owner_references.and_then(controller),
            is_deleting: metadata.deletion_timestamp.is_some(),
            deleted_at: instant(metadata.deletion_timestamp.as_ref()),
            created_at: instant(metadata.creation_timestamp.as_ref()),
            target: ObjectRef {
                resource: Resource::POD,
                namespace: metadata.namespace.unwrap_or_default(),
                name: metadata.name.unwrap_or_default(),
                uid: metadata.uid,
            },
            resource_version: metadata.resource_version,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            finalizers: metadata.finalizers.unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct WirePod {
    metadata: WireMetadata,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<Labels>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    owner_references: Option<Vec<WireOwner>>,
}

#[derive(Deserialize)]
struct WireOwner {
    uid: String,
    controller: Option<bool>,
}

fn controller(owners: Vec<WireOwner>) -> Option<String> {
    let controller = owners.into_iter().find(|it| it.controller == Some(true));
    controller.map(|owner| owner.uid)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    readiness_gates: Option<Vec<WireGate>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireGate {
    condition_type: String,
}

#[derive(Default, Deserialize)]
struct WireStatus {
    phase: Option<String>,
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<String>,
}
