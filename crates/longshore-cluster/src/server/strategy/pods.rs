//! Pods: a status that only `/status` writes, a specification that hardly ever changes.

use longshore_k8s::Quantity;
use serde_json::{Value, json};

use super::{
    pod_defaults::{set_admission_defaults, set_defaults},
    pod_rules,
};
use crate::server::{error::Cause, meta};

/// A new pod is pending.
pub(super) fn prepare_create(pod: &mut Value) {
    complete(pod, None);
    let qos_class = qos_class(pod);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos_class});
    let is_gated = pod
        .pointer("/spec/schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|it| !it.is_empty());
    if is_gated {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

/// Sets defaults. Values that admission had set in the stored pod stay when the client does not
/// send them.
pub(super) fn complete(pod: &mut Value, old: Option<&Value>) {
    let spec = meta::member(pod, "spec");
    for key in ["priority", "preemptionPolicy", "serviceAccountName"] {
        let decided = old.and_then(|old| old.pointer(&format!("/spec/{key}")));
        if let (None, Some(decided)) = (spec.get(key), decided) {
            spec.insert(key.into(), decided.clone());
        }
    }
    set_defaults(&mut pod["spec"]);
    set_admission_defaults(&mut pod["spec"]);
}

fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    pod.get("spec")
        .and_then(|spec| spec.get(list))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The pod's quality-of-service class, from requests and limits of CPU and memory.
fn qos_class(pod: &Value) -> &'static str {
    // As in Kubernetes, zero says nothing.
    let quantity = |container: &Value, kind: &str, resource: &str| {
        let quantity = container.pointer(&format!("/resources/{kind}/{resource}"))?;
        let quantity = match quantity.as_str() {
            Some(text) => Quantity::parse(text),
            None => Quantity::parse(&quantity.to_string()),
        };
        quantity.filter(|quantity| quantity.is_positive())
    };
    let all: Vec<&Value> = containers(pod, "containers")
        .chain(containers(pod, "initContainers"))
        .collect();
    let mut has_any = false;
    let mut is_guaranteed = true;
    for container in all {
        for resource in ["cpu", "memory"] {
            let limit = quantity(container, "limits", resource);
            let request = quantity(container, "requests", resource);
            has_any |= limit.is_some() || request.is_some();
            is_guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What is wrong with a new pod.
pub(super) fn create_violations(pod: &Value) -> Vec<Cause> {
    let mut causes = pod_rules::violations(&pod["spec"], "spec");
    if containers(pod, "ephemeralContainers").next().is_some() {
        causes.push(Cause::forbidden(
            "spec.ephemeralContainers",
            "cannot be set on create",
        ));
    }
    causes
}

const UPDATE_MESSAGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What is wrong with a change of a pod's specification.
pub(super) fn update_violations(new: &Value, old: &Value) -> Vec<Cause> {
    let (before, after) = (fixed_part(old, old), fixed_part(new, old));
    let mut causes = Vec::new();
    if containers(new, "containers").count() != containers(old, "containers").count() {
        if containers(new, "containers").next().is_none() {
            causes.push(Cause::required("spec.containers", ""));
        }
        let why = "pod updates may not add or remove containers";
        causes.push(Cause::forbidden("spec.containers", why));
        return causes;
    }
    let deadline = |pod: &Value| {
        pod.pointer("/spec/activeDeadlineSeconds")
            .and_then(Value::as_i64)
    };
    if let Some(before) = deadline(old)
        && let Some(after) = deadline(new).filter(|after| *after > before)
    {
        let why = "must be less than or equal to previous value";
        let field = "spec.activeDeadlineSeconds";
        causes.push(Cause::invalid(field, &after.into(), why));
    }
    if before != after {
        causes.push(Cause::forbidden("spec", UPDATE_MESSAGE));
    }
    let list = |pod: &Value, key: &str| -> Vec<Value> {
        pod.pointer(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (gates, tolerations) = ("/spec/schedulingGates", "/spec/tolerations");
    let gates_before = list(old, gates);
    if list(new, gates)
        .iter()
        .any(|gate| !gates_before.contains(gate))
    {
        let why = "only deletion is allowed, but found new scheduling gate";
        causes.push(Cause::forbidden("spec.schedulingGates", why));
    }
    let kept = list(new, tolerations);
    if list(old, tolerations)
        .iter()
        .any(|toleration| !kept.contains(toleration))
    {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", why));
    }
    causes
}

/// The specification without what may change. While the pod is gated, that includes where it may
/// run.
fn fixed_part(pod: &Value, old: &Value) -> Value {
    let is_gated = old
        .pointer("/spec/schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|it| !it.is_empty());
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    let members = meta::members(&mut spec);
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        members.remove(key);
    }
    if is_gated {
        members.remove("nodeSelector");
        members.remove("affinity");
    }
    for list in ["containers", "initContainers"] {
        for container in members
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let container = meta::members(container);
            container.remove("image");
            // Derived from the image when it was not given.
            container.remove("imagePullPolicy");
        }
    }
    spec
}
