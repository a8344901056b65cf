//! `/scale` of workloads and custom resources: their number of replicas as an `autoscaling/v1` Scale.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use longshore_k8s::Selector;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::{
    crd::ScalePaths,
    error::{ApiError, Cause, Result},
    http::body::{self, ApiBody},
    meta,
    patch::{self, PatchType},
    verbs::{
        Call,
        rewrite::{Part, rewrite},
    },
};

/// Serves the scale of the object on the URL.
pub(crate) fn get(call: &Call) -> Result<Response<ApiBody>> {
    Ok(body::json(
        StatusCode::OK,
        &scale_of(paths(call), &call.stored()?.value()),
    ))
}

/// Where a custom resource has its replicas.
fn paths(call: &Call) -> Option<&ScalePaths> {
    call.served.custom.as_ref()?.scale.as_ref()
}

/// Sets the number of replicas that the body names.
pub(crate) async fn update(call: &Call, scale: &Value) -> Result<Response<ApiBody>> {
    write(call, |_| Ok(scale.clone())).await
}

/// Patches the scale.
pub(crate) async fn patch(
    call: &Call,
    patch_type: PatchType,
    patch: &Value,
) -> Result<Response<ApiBody>> {
    write(call, |scale| {
        patch::apply(patch_type, "Scale", scale, patch)
    })
    .await
}

/// The scale of a workload of this call.
pub(crate) fn of(call: &Call, workload: &Value) -> Value {
    scale_of(paths(call), workload)
}

/// The workload with the number of replicas of a scale.
pub(crate) fn applied(call: &Call, workload: &Value, scale: &Value) -> Value {
    let n_replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64);
    let n_replicas = n_replicas.unwrap_or(0);
    let mut scaled = workload.clone();
    match paths(call) {
        Some(paths) => paths.set_replicas(&mut scaled, n_replicas),
        None => {
            meta::member(&mut scaled, "spec").insert("replicas".into(), n_replicas.into());
        }
    }
    scaled
}

async fn write(call: &Call, change: impl Fn(&Value) -> Result<Value>) -> Result<Response<ApiBody>> {
    let written = rewrite(call, Part::Main, |workload| {
        let scale = change(&of(call, workload))?;
        let n_replicas = scale
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if n_replicas < 0 {
            let why = "must be greater than or equal to 0";
            let cause = Cause::invalid("spec.replicas", &n_replicas.into(), why);
            return Err(ApiError::invalid(
                "autoscaling",
                "Scale",
                &call.name,
                vec![cause],
            ));
        }
        let mut scaled = applied(call, workload, &scale);
        let version = meta::text(&scale, "/metadata/resourceVersion");
        if !version.is_empty() {
            meta::metadata(&mut scaled).insert("resourceVersion".into(), version.into());
        }
        Ok(scaled)
    })
    .await?;
    Ok(body::json(
        StatusCode::OK,
        &scale_of(paths(call), &written.value()),
    ))
}

/// The requested number of replicas, the present number, and the selector of a workload.
fn read_workload(workload: &Value) -> (i64, i64, String) {
    let number = |pointer: &str| workload.pointer(pointer).and_then(Value::as_i64);
    (
        number("/spec/replicas").unwrap_or(1),
        number("/status/replicas").unwrap_or(0),
        selector_text(&workload["spec"]["selector"]),
    )
}

fn scale_of(paths: Option<&ScalePaths>, workload: &Value) -> Value {
    let metadata = &workload["metadata"];
    let (n_replicas, n_present, selector) = match paths {
        Some(paths) => paths.read(workload),
        None => read_workload(workload),
    };
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": n_replicas},
        "status": {"replicas": n_present},
    });
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// A selector object in the form of query options. ReplicationControllers have plain labels.
fn selector_text(selector: &Value) -> String {
    let is_object = ["matchLabels", "matchExpressions"]
        .iter()
        .any(|field| selector.get(field).is_some());
    if is_object {
        return Selector::read(selector).unwrap_or_default().to_string();
    }
    let labels = BTreeMap::<String, String>::deserialize(selector);
    Selector::of_labels(&labels.unwrap_or_default()).to_string()
}
