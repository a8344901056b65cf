//! A Job and its pods, without an API server: the requests of a plan change them as an API server would.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, from_value, json};

use crate::controllers::{
    job::{
        decide::{Plan, decide},
        model::{Desired, Observed},
    },
    workloads::{Body, hands::Request},
};

/// Pods end an hour before the rounds: no wait after failures is left.
pub(super) const PAST: &str = "2026-01-01T00:00:00Z";

pub(super) fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// The data of a Job, its spec changed by a merge.
pub(super) fn job(change: Value) -> Value {
    let mut spec = json!({
        "completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
        "selector": {"matchLabels": {"job": "u"}},
        "template": {"metadata": {"labels": {"job": "u"}}, "spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }},
    });
    json_patch::merge(&mut spec, &change);
    json!({"spec": spec})
}

/// A pod of the Job, changed by a merge.
pub(super) fn pod(name: &str, phase: &str, change: Value) -> Value {
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true,
    });
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
            "labels": {"job": "u"}, "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [owner], "creationTimestamp": PAST,
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": phase},
    });
    json_patch::merge(&mut pod, &change);
    pod
}

/// A change that gives a pod an index.
pub(super) fn index(index: usize) -> Value {
    json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()}}})
}

/// A change that ends the container of a pod with a code.
pub(super) fn exit(code: i32, at: &str) -> Value {
    let terminated = json!({"exitCode": code, "finishedAt": at});
    json!({"status": {"containerStatuses": [{
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated},
    }]}})
}

/// A Job and its pods.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) job: Value,
    pub(super) pods: Vec<Value>,
    version: u64,
    n_made: usize,
}

impl World {
    pub(super) fn new(job: Value, pods: Vec<Value>) -> World {
        World {
            job,
            pods,
            version: 1,
            n_made: 0,
        }
    }

    pub(super) fn desired(&self) -> Desired {
        let meta = json!({
            "name": "j", "namespace": "default", "uid": "u", "resourceVersion": self.version.to_string(),
            "deletionTimestamp": self.job.get("deletedAt"),
        });
        Desired::of(Body {
            meta: from_value(meta).unwrap(),
            data: self.job.clone(),
        })
        .unwrap()
    }

    pub(super) fn plan(&self) -> Plan {
        let pods = self.pods.iter().cloned();
        let pods: Vec<Pod> = pods.map(|it| from_value(it).unwrap()).collect();
        decide(&self.desired(), &Observed { pods, now: now() })
    }

    /// Carries out one request.
    pub(super) fn send(&mut self, request: &Request) {
        match request {
            Request::PatchStatus { patch, .. } => {
                let version = self.version.to_string();
                assert_eq!(
                    patch["metadata"]["resourceVersion"], version,
                    "decided on this version"
                );
                json_patch::merge(&mut self.job["status"], &patch["status"]);
                self.version += 1;
            }
            Request::Patch { name, patch, .. } => {
                let mut patch = patch.clone();
                let version = patch["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("resourceVersion");
                let pod = self.pod(name);
                assert_eq!(
                    pod["metadata"]["resourceVersion"],
                    version.unwrap(),
                    "{name}"
                );
                json_patch::merge(pod, &patch);
                touch(pod);
            }
            Request::Delete { name, .. } => {
                let pod = self.pod(name);
                pod["metadata"]["deletionTimestamp"] = json!(PAST);
                touch(pod);
            }
            Request::Create { object, .. } => {
                let name = format!("p{}", self.n_made);
                self.n_made += 1;
                let mut made = object.clone();
                made["metadata"]["name"] = json!(name);
                made["metadata"]["namespace"] = json!("default");
                made["metadata"]["uid"] = json!(name);
                made["metadata"]["resourceVersion"] = json!("1");
                made["metadata"]["creationTimestamp"] = json!(PAST);
                made["status"] = json!({"phase": "Pending"});
                self.pods.push(made);
            }
            Request::Announce(_) => panic!("{request:?}"),
        }
        self.pods.retain(|it| !is_gone(it));
    }

    pub(super) fn pod(&mut self, name: &str) -> &mut Value {
        let found = self
            .pods
            .iter_mut()
            .find(|it| it["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no pod {name}"))
    }

    pub(super) fn count(&self, key: &str) -> i64 {
        self.job["status"][key].as_i64().unwrap_or(0)
    }

    /// The conditions that hold.
    pub(super) fn conditions(&self) -> Vec<&str> {
        let conditions = self.job["status"]["conditions"].as_array();
        let held = conditions
            .into_iter()
            .flatten()
            .filter(|it| it["status"] == "True");
        held.filter_map(|it| it["type"].as_str()).collect()
    }
}

/// Ends a pod, as a node does.
pub(super) fn end(pod: &mut Value, phase: &str) {
    let code = if phase == "Failed" { 1 } else { 0 };
    json_patch::merge(pod, &exit(code, PAST));
    pod["status"]["phase"] = json!(phase);
    touch(pod);
}

fn touch(pod: &mut Value) {
    let version: u64 = pod["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    pod["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}

/// A deleted pod stays while a finalizer holds it, or until its node has ended it.
fn is_gone(pod: &Value) -> bool {
    let metadata = &pod["metadata"];
    let is_held = metadata["finalizers"]
        .as_array()
        .is_some_and(|it| !it.is_empty());
    let is_over = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    metadata["deletionTimestamp"].is_string() && !is_held && is_over
}

/// The requests of a plan, in the order in which they are made.
pub(super) fn requests(plan: &Plan) -> Vec<Request> {
    let mut requests = plan.claims.clone();
    requests.extend(plan.status.clone());
    requests.extend(plan.let_go.iter().cloned());
    for (free, delete) in &plan.retire {
        requests.extend([free.clone(), delete.clone()]);
    }
    requests.extend(plan.delete.iter().cloned());
    let create = plan.create.iter().map(|object| Request::Create {
        target: crate::controllers::workloads::hands::Target::Pod,
        object: object.clone(),
    });
    requests.extend(create);
    requests
}
