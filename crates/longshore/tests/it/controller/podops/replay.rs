//! Upstream's recorded requests, replayed against the running binary.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::replica::{Plan, free_port, until},
    forged::Door,
    world::install,
};
use crate::{cluster::TestCluster, repository};

/// A recorded request, and what upstream said to it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    operation: String,
    sub_resource: String,
    dry_run: bool,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    expect: Expected,
}

#[derive(Deserialize)]
struct Expected {
    mutating: Value,
    #[serde(default)]
    validating: Value,
}

impl Vector {
    fn review(&self, object: &Value) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": self.name, "operation": self.operation, "dryRun": self.dry_run,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "subResource": self.sub_resource, "namespace": "default", "name": "p",
                "object": object, "oldObject": self.old_object, "options": {},
            },
        })
    }
}

/// New stamps are not those of the recording: all that are not of the request are `TS`.
fn normal(labels: &Value, of_request: &str) -> BTreeMap<String, String> {
    let labels = labels.as_object().into_iter().flatten();
    let pair = |(key, value): (&String, &Value)| {
        let value = value.as_str().unwrap();
        let is_stamp = value.len() == 19 && value.bytes().all(|byte| byte.is_ascii_digit());
        let is_new = is_stamp && !of_request.contains(value);
        (key.clone(), if is_new { "TS" } else { value }.to_owned())
    };
    labels.map(pair).collect()
}

/// Asks the webhooks as API servers do. What differs from upstream, if anything.
async fn replay(webhooks: &Door, vector: &Vector) -> Option<String> {
    let ask = |path: &'static str, object: Value| async move {
        let token = Some(webhooks.token.as_str());
        let (code, answer) = webhooks.ask(path, token, &vector.review(&object)).await;
        assert_eq!(code, 200);
        assert_eq!(answer["response"]["uid"], vector.name.as_str(), "{answer}");
        answer["response"].clone()
    };
    let mut object = vector.object.clone();
    let response = ask("/mutating-generic", object.clone()).await;
    let expected = &vector.expect.mutating;
    if response["allowed"] != true {
        let status = &response["status"];
        // The mutating webhook says of an update what the validating one of upstream says.
        if vector.operation == "UPDATE" && expected["allowed"] == true {
            return differs(&response, &vector.expect.validating);
        }
        let seen = json!({"allowed": false, "code": status["code"], "message": status["message"]});
        return (seen != *expected).then(|| format!("mutating: {seen}, expected {expected}"));
    }
    if let Some(patch) = response["patch"].as_str() {
        let patch = BASE64_STANDARD.decode(patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    if !object.is_null() {
        let of_request = vector.object.to_string();
        let labels = normal(&object["metadata"]["labels"], &of_request);
        let wanted = normal(&expected["labels"], &of_request);
        let gates = object["spec"]["readinessGates"]
            .as_array()
            .into_iter()
            .flatten();
        let gates: Vec<&Value> = gates.map(|gate| &gate["conditionType"]).collect();
        if labels != wanted || json!(gates) != expected["readinessGates"] {
            return Some(format!(
                "mutating: {labels:?} {gates:?}, expected {expected}"
            ));
        }
    }
    let expected = &vector.expect.validating;
    if expected.is_null() {
        return None;
    }
    let response = ask("/validating-generic", object).await;
    differs(&response, expected)
}

/// What differs in a verdict of the validating webhook of upstream.
fn differs(response: &Value, expected: &Value) -> Option<String> {
    let seen = match response["allowed"].as_bool() {
        Some(true) => json!({"allowed": true}),
        _ => {
            let status = &response["status"];
            json!({
                "allowed": false, "code": status["code"], "reason": status["reason"],
                "message": status["message"],
            })
        }
    };
    (seen != *expected).then(|| format!("validating: {seen}, expected {expected}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_binary_gives_every_recorded_verdict() {
    // A real API server has the webhooks of one controller only, and another test uses them.
    let cluster = TestCluster::embedded().await;
    install(&cluster.admin).await;
    let port = free_port();
    let mut plan = Plan::of(&cluster, "podops");
    plan.lease = "0";
    let address = format!("127.0.0.1:{port}");
    let arguments = [
        "--webhook-address",
        &address,
        "--feature-gates=GraceDeleteWebhook=true",
    ];
    plan.more = arguments.map(str::to_owned).to_vec();
    let mut controller = plan.start("controller");
    until("it runs", || controller.leads()).await;
    let webhooks = Door::find(&cluster.admin, &address).await;
    let text = repository().join("crates/longshore-podops/testdata/pod-webhook-vectors.json");
    let vectors: Vec<Vector> =
        serde_json::from_str(&std::fs::read_to_string(text).unwrap()).unwrap();
    assert_eq!(vectors.len(), 65);
    let mut differing = Vec::new();
    for vector in &vectors {
        if let Some(differs) = replay(&webhooks, vector).await {
            differing.push(format!("{}: {differs}", vector.name));
        }
    }
    // Ours names the annotation; upstream's is a message of Go's JSON decoder. A dry run is answered as the real request
    // would be.
    assert_eq!(differing.len(), 2, "{differing:#?}");
    for name in [
        "1id/begin/gate=False/fin=None/avail=malformed: ",
        "create/dry: ",
    ] {
        let is_known = differing.iter().any(|differs| differs.starts_with(name));
        assert!(is_known, "{differing:?}");
    }
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
}
