//! Workloads, and what is missing of them.

use std::collections::BTreeMap;

use longshore_core::{Resource, Scope};
use serde::{Deserialize, Deserializer};

use crate::model::{Labels, Pod};

/// `apps/v1` StatefulSet.
pub const STATEFUL_SET: Resource = Resource {
    group: "apps",
    version: "v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    scope: Scope::Namespaced,
};

/// `apps/v1` ReplicaSet: those of Deployments are among them.
pub const REPLICA_SET: Resource = Resource {
    group: "apps",
    version: "v1",
    kind: "ReplicaSet",
    plural: "replicasets",
    scope: Scope::Namespaced,
};

/// A workload that is to have a number of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its uid, which its pods name.
    pub uid: String,
    /// How many pods it is to have.
    pub replicas: usize,
    /// The labels of its pods.
    pub labels: Labels,
}

/// How many pods of these workloads do not exist. A pod that is being deleted still does: it is counted where it is.
pub fn missing<'a>(workloads: impl IntoIterator<Item = &'a Workload>, pods: &[Pod]) -> usize {
    let mut existing: BTreeMap<&str, usize> = BTreeMap::new();
    for owner in pods.iter().filter_map(|pod| pod.owner.as_deref()) {
        *existing.entry(owner).or_default() += 1;
    }
    let of = |workload: &Workload| {
        existing
            .get(workload.uid.as_str())
            .copied()
            .unwrap_or_default()
    };
    let workloads = workloads.into_iter();
    workloads.map(|it| it.replicas.saturating_sub(of(it))).sum()
}

/// Passes over everything else that the object has. One that is being deleted makes no more pods.
impl<'de> Deserialize<'de> for Workload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec } = Wire::deserialize(deserializer)?;
        let replicas = match metadata.deletion_timestamp {
            Some(_) => 0,
            None => spec.replicas.unwrap_or(1),
        };
        Ok(Self {
            uid: metadata.uid,
            replicas: usize::try_from(replicas).unwrap_or_default(),
            labels: spec.template.metadata.labels,
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    replicas: Option<i64>,
    template: WireTemplate,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireTemplate {
    metadata: WireTemplateMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireTemplateMetadata {
    labels: Labels,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workload(change: impl FnOnce(&mut Value)) -> Workload {
        let mut object = json!({
            "metadata": {"name": "set", "uid": "s"},
            "spec": {"replicas": 6, "template": {"metadata": {"labels": {"app": "web"}}}},
        });
        change(&mut object);
        serde_json::from_value(object).unwrap()
    }

    fn pods(n: usize, of: &str) -> Vec<Pod> {
        let owner = json!({"uid": of, "controller": true});
        let pod = json!({"metadata": {"name": "p", "ownerReferences": [owner]}});
        vec![Pod::of(&pod).unwrap(); n]
    }

    #[test]
    fn a_pod_that_its_workload_has_yet_to_make_is_missing() {
        let nothing = |_: &mut Value| {};
        let deleted = |object: &mut Value| {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        };
        let unsaid = |object: &mut Value| object["spec"]["replicas"] = Value::Null;
        for (what, workload, pods, expected) in [
            ("all are there", workload(nothing), pods(6, "s"), 0),
            ("one was deleted", workload(nothing), pods(5, "s"), 1),
            ("too many", workload(nothing), pods(7, "s"), 0),
            ("of another owner", workload(nothing), pods(6, "other"), 6),
            ("the workload goes", workload(deleted), pods(2, "s"), 0),
            ("one by default", workload(unsaid), Vec::new(), 1),
        ] {
            assert_eq!(missing([&workload], &pods), expected, "{what}");
        }
    }
}
