//! The pods and claims of a StatefulSet. Pure.

use serde_json::{Value, json};

use super::{
    model::{Desired, LABEL_REVISION},
    revisions::Revision,
};
use crate::controllers::workloads::{
    Body,
    hands::{Request, Target},
    pods,
};

/// The pod of a number, of one revision.
pub(super) fn pod(desired: &Desired, ordinal: usize, revision: &Revision) -> Value {
    let mut pod = pods::from_template(&revision.template, desired.reference());
    let name = desired.pod_name(ordinal);
    pod["metadata"]["name"] = json!(name);
    let labels = &mut pod["metadata"]["labels"];
    labels[LABEL_REVISION] = json!(revision.name);
    labels["statefulset.kubernetes.io/pod-name"] = json!(name);
    labels["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    pod["spec"]["hostname"] = json!(name);
    if let Some(service) = desired.set.at("/spec/serviceName").as_str() {
        pod["spec"]["subdomain"] = json!(service);
    }
    let claims = desired.claim_templates();
    if !claims.is_empty() {
        let mut volumes = pod["spec"]["volumes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        // A claim stands in for a volume of the same name.
        volumes.retain(|volume| {
            claims
                .iter()
                .all(|it| it["metadata"]["name"] != volume["name"])
        });
        volumes.extend(claims.iter().map(|template| {
            json!({
                "name": template["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": claim_name(desired, template, ordinal)},
            })
        }));
        pod["spec"]["volumes"] = volumes.into();
    }
    pod
}

/// The claims of a pod that are not there yet. They outlive it.
pub(super) fn missing_claims(desired: &Desired, ordinal: usize, present: &[Body]) -> Vec<Request> {
    let claims = desired.claim_templates().iter().filter_map(|template| {
        let name = claim_name(desired, template, ordinal);
        if present.iter().any(|it| it.name() == name) {
            return None;
        }
        let mut metadata = template["metadata"].clone();
        metadata["name"] = json!(name);
        let selected = desired.set.at("/spec/selector/matchLabels").as_object();
        for (key, value) in selected.into_iter().flatten() {
            metadata["labels"][key] = value.clone();
        }
        Some(Request::Create {
            target: Target::Claim,
            object: json!({"metadata": metadata, "spec": template["spec"]}),
        })
    });
    claims.collect()
}

fn claim_name(desired: &Desired, template: &Value, ordinal: usize) -> String {
    let name = template["metadata"]["name"].as_str().unwrap_or_default();
    format!("{name}-{}", desired.pod_name(ordinal))
}
