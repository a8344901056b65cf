//! `pods/binding`: assigns a pod to a node.

use http::Response;
use serde_json::{Value, json};

use crate::server::{
    admission::{Operation, Question},
    error::{ApiError, Result},
    http::body::{self, ApiBody},
    meta,
    verbs::{
        Call,
        rewrite::{Part, rewrite_unasked},
    },
};

/// Binds the pod on the URL to the target of the binding, once.
pub(crate) async fn bind(call: &Call, binding: Value) -> Result<Response<ApiBody>> {
    let question = Question::new(call, Operation::Create, call.query.is_dry_run()?);
    let question = question.of_kind("", "v1", "Binding");
    let binding = &question.mutate(binding, None).await?;
    question.validate(Some(binding), None).await?;
    let node = meta::text(binding, "/target/name");
    let kind = meta::text(binding, "/target/kind");
    if node.is_empty() || !matches!(kind, "" | "Node") {
        return Err(ApiError::bad_request(
            "binding target: expected a kind Node with a name",
        ));
    }
    let uid = meta::text(binding, "/metadata/uid");
    let annotations = binding
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    let now = meta::seconds(call.server.now());
    rewrite_unasked(call, Part::Binding, |pod| {
        let refuse = |why: &str| Err(ApiError::conflict(call.resource(), &call.name, why));
        if !uid.is_empty() && uid != meta::text(pod, "/metadata/uid") {
            let found = meta::text(pod, "/metadata/uid");
            return refuse(&format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
            ));
        }
        if meta::is_deleting(pod) {
            return refuse(&format!(
                "pod {} is being deleted, cannot be assigned to a host",
                call.name
            ));
        }
        let gates = pod
            .pointer("/spec/schedulingGates")
            .and_then(Value::as_array);
        if gates.is_some_and(|gates| !gates.is_empty()) {
            return refuse(&format!(
                "pod {} has non-empty .spec.schedulingGates",
                call.name
            ));
        }
        let present = meta::text(pod, "/spec/nodeName");
        if !present.is_empty() {
            return refuse(&format!(
                "pod {} is already assigned to node {present:?}",
                call.name
            ));
        }
        let mut bound = pod.clone();
        bound["spec"]["nodeName"] = node.into();
        for (key, value) in annotations.into_iter().flatten() {
            meta::members(
                meta::metadata(&mut bound)
                    .entry("annotations")
                    .or_insert(json!({})),
            )
            .insert(key.clone(), value.clone());
        }
        set_scheduled(&mut bound, &now);
        Ok(bound)
    })
    .await?;
    Ok(body::done())
}

fn set_scheduled(pod: &mut Value, now: &str) {
    let conditions = meta::member(pod, "status")
        .entry("conditions")
        .or_insert(json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    conditions.retain(|condition| meta::text(condition, "/type") != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
}
