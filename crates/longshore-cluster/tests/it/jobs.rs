//! Jobs at work, on a node that is played.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::harness::{Api, PODS, controlled, eventually, gone};

pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// An end that is long over: no Job waits because of it.
const PAST: &str = "2026-01-01T00:00:00Z";

/// A node that ends pods as their images say, and lets go of those that are deleted.
pub(crate) struct PlayedNode(AbortHandle);

impl Drop for PlayedNode {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn play_node(api: &Api) -> PlayedNode {
    api.make(
        "/api/v1/nodes",
        json!({"metadata": {"name": "n1"}, "status": {
            "allocatable": {"pods": "110", "cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .await;
    let api = api.clone();
    let task = tokio::spawn(async move {
        let mut n_ended = 0;
        loop {
            let (_, list) = api
                .get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn1"))
                .await;
            for pod in list["items"].as_array().into_iter().flatten() {
                play_pod(&api, pod, &mut n_ended).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    PlayedNode(task.abort_handle())
}

async fn play_pod(api: &Api, pod: &Value, n_ended: &mut u32) {
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    let uid = &pod["metadata"]["uid"];
    if pod["metadata"]["deletionTimestamp"].is_string() {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        api.delete(&path, options).await;
    } else if pod["status"]["phase"] == "Pending" {
        *n_ended += 1;
        let status = match pod["spec"]["containers"][0]["image"].as_str().unwrap() {
            "runs" => json!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": PAST},
            ]}),
            "fails" => ended("Failed", 1),
            "mixed" if *n_ended % 3 == 2 => ended("Failed", 1),
            _ => ended("Succeeded", 0),
        };
        let change = json!({"metadata": {"uid": uid}, "status": status});
        api.patch("merge", &format!("{path}/status"), change).await;
    }
}

fn ended(phase: &str, code: i32) -> Value {
    let terminated = json!({"exitCode": code, "finishedAt": PAST});
    json!({"phase": phase, "containerStatuses": [{
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated},
    }]})
}

pub(crate) fn job(image: &str, change: Value) -> Value {
    let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": image}],
    }}}});
    json_patch::merge(&mut job["spec"], &change);
    job
}

/// Waits for a condition, as `kubectl wait` does.
pub(crate) async fn holds(api: &Api, kind: &str) -> Value {
    let is_held = |_, it: &Value| {
        let conditions = it["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == kind && it["status"] == "True")
    };
    eventually(api, &format!("{JOBS}/j"), is_held).await
}

pub(crate) async fn pods(api: &Api) -> Vec<Value> {
    api.get(PODS).await.1["items"].as_array().unwrap().clone()
}

/// How many pods are in a phase.
pub(crate) fn count(pods: &[Value], phase: &str) -> usize {
    pods.iter()
        .filter(|it| it["status"]["phase"] == phase)
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_its_pods_and_counts_each_once() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    api.make(
        JOBS,
        job("works", json!({"completions": 5, "parallelism": 2})),
    )
    .await;
    let done = holds(&api, "Complete").await;
    let status = &done["status"];
    assert_eq!(status["succeeded"], 5, "{status:#}");
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert_eq!(
        (&status["ready"], &status["terminating"]),
        (&json!(0), &json!(0))
    );
    assert!(status["startTime"].is_string() && status["completionTime"].is_string());
    let kinds: Vec<&Value> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["type"])
        .collect();
    assert_eq!(kinds, ["SuccessCriteriaMet", "Complete"]);
    let pods = pods(&api).await;
    assert_eq!(count(&pods, "Succeeded"), 5);
    assert!(
        pods.iter()
            .all(|it| it["metadata"].get("finalizers").is_none()),
        "{pods:#?}"
    );
    api.delete(
        &format!("{JOBS}/j"),
        json!({"propagationPolicy": "Background"}),
    )
    .await;
    eventually(&api, PODS, |_, list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_fail_gives_up() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    api.make(JOBS, job("fails", json!({"backoffLimit": 2})))
        .await;
    let failed = holds(&api, "Failed").await;
    assert_eq!(failed["status"]["failed"], 3, "{:#}", failed["status"]);
    let reasons = failed["status"]["conditions"].as_array().unwrap().iter();
    let reasons: Vec<&Value> = reasons.map(|it| &it["reason"]).collect();
    assert_eq!(reasons, ["BackoffLimitExceeded", "BackoffLimitExceeded"]);
    let mut late = job("runs", json!({"activeDeadlineSeconds": 0}));
    late["metadata"]["name"] = json!("late");
    api.make(JOBS, late).await;
    let is_late = |_, it: &Value| it["status"]["conditions"][1]["reason"] == "DeadlineExceeded";
    eventually(&api, &format!("{JOBS}/late"), is_late).await;
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_runs_each_index() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    let spec = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"});
    api.make(JOBS, job("works", spec)).await;
    let done = holds(&api, "Complete").await;
    assert_eq!(
        done["status"]["completedIndexes"], "0-3",
        "{:#}",
        done["status"]
    );
    let pods = pods(&api).await;
    let mut names: Vec<&str> = pods
        .iter()
        .map(|it| it["spec"]["hostname"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["j-0", "j-1", "j-2", "j-3"]);
    let labeled = format!("{PODS}?labelSelector=batch.kubernetes.io%2Fjob-completion-index%3D2");
    let (_, list) = api.get(&labeled).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_stops_and_goes_on() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    api.make(
        JOBS,
        job("runs", json!({"completions": 2, "parallelism": 2})),
    )
    .await;
    let path = format!("{JOBS}/j");
    eventually(&api, &path, |_, it| it["status"]["ready"] == 2).await;
    api.patch("merge", &path, json!({"spec": {"suspend": true}}))
        .await;
    let suspended = holds(&api, "Suspended").await;
    assert_eq!(suspended["status"].get("failed"), None);
    eventually(&api, PODS, |_, list| list["items"] == json!([])).await;
    api.patch("merge", &path, json!({"spec": {"suspend": false}}))
        .await;
    let is_resumed = |_, it: &Value| {
        it["status"]["ready"] == 2 && it["status"]["conditions"][0]["reason"] == "JobResumed"
    };
    let resumed = eventually(&api, &path, is_resumed).await;
    assert_eq!(
        resumed["status"].get("failed"),
        None,
        "{:#}",
        resumed["status"]
    );
    api.patch("merge", &path, json!({"spec": {"parallelism": 1}}))
        .await;
    eventually(&api, &path, |_, it| it["status"]["active"] == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_goes_leaves_no_finalizer() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    let path = format!("{JOBS}/j");
    let running = |_: u16, it: &Value| it["status"]["active"] == 2;
    let two = || job("runs", json!({"completions": 2, "parallelism": 2}));
    for policy in ["Background", "Foreground"] {
        api.make(JOBS, two()).await;
        eventually(&api, &path, running).await;
        api.delete(&path, json!({"propagationPolicy": policy}))
            .await;
        gone(&api, &path).await;
        eventually(&api, PODS, |_, list| list["items"] == json!([])).await;
    }
    // Without a word, the pods stay.
    api.make(JOBS, two()).await;
    eventually(&api, &path, running).await;
    api.delete(&path, Value::Null).await;
    gone(&api, &path).await;
    let is_free = |_, list: &Value| {
        let pods = list["items"].as_array().unwrap();
        let is_free = |it: &Value| {
            let metadata = &it["metadata"];
            metadata.get("finalizers").is_none() && metadata.get("ownerReferences").is_none()
        };
        pods.len() == 2 && pods.iter().all(is_free)
    };
    eventually(&api, PODS, is_free).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_when_its_time_after_the_end_is_over() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    api.make(JOBS, job("works", json!({"ttlSecondsAfterFinished": 0})))
        .await;
    gone(&api, &format!("{JOBS}/j")).await;
    eventually(&api, PODS, |_, list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_has_endpoints_of_both_kinds() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    let mut pod = crate::harness::pod("a");
    pod["metadata"]["labels"] = json!({"app": "a"});
    pod["spec"]["containers"][0]["image"] = json!("runs");
    api.make(PODS, pod).await;
    let services = "/api/v1/namespaces/default/services";
    let spec = json!({"selector": {"app": "a"}, "ports": [{"port": 80}]});
    api.make(services, json!({"metadata": {"name": "s"}, "spec": spec}))
        .await;
    let address = json!({"status": {"podIP": "127.1.1.1"}});
    let is_running = |_, it: &Value| it["status"]["phase"] == "Running";
    eventually(&api, &format!("{PODS}/a"), is_running).await;
    api.patch("merge", &format!("{PODS}/a/status"), address)
        .await;
    let endpoints = "/api/v1/namespaces/default/endpoints/s";
    let has_address = |_, it: &Value| it["subsets"][0]["addresses"][0]["ip"] == "127.1.1.1";
    let found = eventually(&api, endpoints, has_address).await;
    assert_eq!(
        found["subsets"][0]["ports"],
        json!([{"port": 80, "protocol": "TCP"}])
    );
    api.delete(&format!("{services}/s"), Value::Null).await;
    gone(&api, endpoints).await;
}
