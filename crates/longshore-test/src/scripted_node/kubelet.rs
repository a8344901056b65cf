//! One pod on the scripted node: bound, started, ended, deleted.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_api::tasks::ANNOTATION_LAUNCH;
use longshore_core::{ObjectRef, PatchKind, Resource};
use longshore_kit::{Answer, ApiError, Requests, cache::reference};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ANNOTATION_SCRIPT, ENV_SCRIPT, Node, Told, lock};
use crate::script::{End, Script};

/// Between attempts of a request that failed.
const RETRY: Duration = Duration::from_millis(200);
/// Exit codes of a process that ended upon SIGTERM, and of one that had to be killed.
const SIGTERM: i32 = 143;
const SIGKILL: i32 = 137;

impl Node {
    /// Takes a pod that has no node.
    pub(super) async fn bind(self, pod: Arc<Pod>) {
        let target = reference(Resource::POD, pod.as_ref());
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/binding",
            target.namespace, target.name
        );
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": target.name, "uid": target.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.config.name},
        });
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(binding.to_string().into_bytes());
        if let Ok(request) = request {
            // Refused: the pod is gone, or another client has bound it. Either way, the watch says what is next.
            let _ = self.client.request::<Value>(request).await;
        }
    }

    /// Plays a bound pod to its end, and takes it away once it is being deleted.
    pub(super) async fn play(self, pod: Arc<Pod>, mut termination: watch::Receiver<Told>) {
        let target = reference(Resource::POD, pod.as_ref());
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Succeeded" | "Failed")) {
            self.play_containers(&pod, &target, &mut termination).await;
        }
        let is_told = termination.wait_for(|told| told.is_deleting).await.is_ok();
        if is_told {
            let requests = Requests::new(self.client.clone());
            self.insist(|| requests.delete(&target, Some(0))).await;
        }
    }

    async fn play_containers(
        &self,
        pod: &Pod,
        target: &ObjectRef,
        termination: &mut watch::Receiver<Told>,
    ) {
        let script = script_of(pod, (self.config.attempt)(pod));
        tokio::time::sleep(self.config.start_delay).await;
        if let End::Waiting(reason) = &script.end {
            let waiting = json!({"waiting": {"reason": reason}});
            self.write_status(pod, target, "Pending", &waiting).await;
            return;
        }
        if termination.borrow().is_deleting {
            return; // Deleted before it started: nothing runs.
        }
        let started_at = self.clock.now();
        lock(&self.history).start(pod, started_at);
        let running = json!({"running": {"startedAt": seconds(started_at)}});
        self.write_status(pod, target, "Running", &running).await;
        let overrun = overrun(termination.clone());
        let code = tokio::select! {
            code = run(pod, &script, termination) => code,
            () = overrun => {
                return self.kill_late(pod, target, started_at).await;
            }
        };
        let Some(code) = code else {
            return;
        };
        (self.config.at_the_end)(pod, code);
        self.write_end(pod, target, &script, code, started_at).await;
    }

    /// The container has ended with this code.
    async fn write_end(
        &self,
        pod: &Pod,
        target: &ObjectRef,
        script: &Script,
        code: i32,
        started_at: Timestamp,
    ) {
        let now = self.clock.now();
        lock(&self.history).end(target.uid.as_deref().unwrap_or_default(), Some(code), now);
        let terminated = json!({"terminated": {
            "exitCode": code,
            "reason": match (code, &script.end) {
                (0, _) => "Completed",
                (SIGKILL, End::OutOfMemory) => "OOMKilled",
                _ => "Error",
            },
            "message": script.message,
            "startedAt": seconds(started_at),
            "finishedAt": seconds(now),
        }});
        let is_evicted = script.end == End::Evicted(code);
        let phase = match code {
            0 if !is_evicted => "Succeeded",
            _ => "Failed",
        };
        let reason = if is_evicted { evicted() } else { json!({}) };
        self.write_status_because(pod, target, phase, &terminated, reason)
            .await;
    }

    /// The pod has run for as long as it may.
    async fn kill_late(&self, pod: &Pod, target: &ObjectRef, started_at: Timestamp) {
        let now = self.clock.now();
        lock(&self.history).end(
            target.uid.as_deref().unwrap_or_default(),
            Some(SIGKILL),
            now,
        );
        let terminated = json!({"terminated": {
            "exitCode": SIGKILL,
            "reason": "Error",
            "startedAt": seconds(started_at),
            "finishedAt": seconds(now),
        }});
        let reason = json!({
            "reason": "DeadlineExceeded",
            "message": "Pod was active on the node longer than the specified deadline",
        });
        self.write_status_because(pod, target, "Failed", &terminated, reason)
            .await;
    }

    async fn write_status(&self, pod: &Pod, target: &ObjectRef, phase: &str, state: &Value) {
        self.write_status_because(pod, target, phase, state, json!({}))
            .await;
    }

    /// Writes a status with these fields too.
    async fn write_status_because(
        &self,
        pod: &Pod,
        target: &ObjectRef,
        phase: &str,
        state: &Value,
        reason: Value,
    ) {
        let is_running = phase == "Running";
        let ready = if is_running { "True" } else { "False" };
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let statuses: Vec<Value> = containers
            .map(|container| {
                json!({
                    "name": container.name,
                    "image": container.image.as_deref().unwrap_or_default(),
                    "imageID": "",
                    "ready": is_running,
                    "started": is_running,
                    "restartCount": 0,
                    "state": state,
                })
            })
            .collect();
        let now = seconds(self.clock.now());
        let mut patch = json!({"metadata": {"uid": target.uid}, "status": {
            "phase": phase,
            "startTime": now,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}],
            "containerStatuses": statuses,
        }});
        if let (Some(status), Value::Object(reason)) = (patch["status"].as_object_mut(), reason) {
            status.extend(reason);
        }
        let requests = Requests::new(self.client.clone());
        self.insist(|| requests.patch(target, Some("status"), PatchKind::Merge, patch.clone()))
            .await;
    }

    /// Repeats a request until it is answered for good.
    async fn insist<F>(&self, mut request: impl FnMut() -> F)
    where
        F: Future<Output = Result<Answer, ApiError>>,
    {
        loop {
            match request().await {
                Ok(_) => return,
                Err(error) if error.code() == Some(404) || error.is_precondition_failure() => {
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "scripted node tries again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Runs the script; `None` where the pod is gone from under it.
async fn run(pod: &Pod, script: &Script, termination: &mut watch::Receiver<Told>) -> Option<i32> {
    let by_itself = async {
        tokio::time::sleep(script.time).await;
        match &script.end {
            End::Exit(code) | End::Evicted(code) => *code,
            End::OutOfMemory => SIGKILL,
            End::Hang | End::Waiting(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        code = by_itself => return Some(code),
        told = termination.wait_for(|told| told.is_deleting) => { told.ok()?; }
    }
    if script.end != End::Hang {
        return Some(SIGTERM);
    }
    let spec = pod.spec.as_ref();
    let grace = spec
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(30);
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    tokio::time::sleep(grace).await;
    Some(SIGKILL)
}

/// Waits from the start of the pod until it has run for as long as it may, which may change meanwhile.
async fn overrun(mut told: watch::Receiver<Told>) {
    let start = tokio::time::Instant::now();
    loop {
        let limit = told.borrow_and_update().limit;
        let left = async {
            match limit {
                Some(limit) => tokio::time::sleep_until(start + limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = left => return,
            changed = told.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
        }
    }
}

/// What a kubelet says of a pod that it ends because its node is short of memory.
fn evicted() -> Value {
    let message = "The node was low on resource: memory.";
    json!({
        "reason": "Evicted",
        "message": message,
        "conditions": [
            {"type": "Ready", "status": "False"},
            {
                "type": "DisruptionTarget", "status": "True",
                "reason": "TerminationByKubelet", "message": message,
            },
        ],
    })
}

/// Which launch of its attempt a pod of a TaskAction is, counted from 1; 1 for other pods.
fn launch_of(pod: &Pod) -> usize {
    let annotations = pod.metadata.annotations.as_ref();
    let launch = annotations.and_then(|annotations| annotations.get(ANNOTATION_LAUNCH));
    let n_before = launch.and_then(|launch| launch.rsplit('/').next()?.parse::<usize>().ok());
    n_before.unwrap_or(0) + 1
}

/// Where the script of a pod stands, and the part for this attempt and its launch.
fn script_of(pod: &Pod, attempt: usize) -> Script {
    let annotations = pod.metadata.annotations.as_ref();
    let annotation = annotations.and_then(|annotations| annotations.get(ANNOTATION_SCRIPT));
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let text = annotation.cloned().or_else(|| {
        let container = container?;
        let mut env = container.env.iter().flatten();
        let variable = env.find(|variable| variable.name == ENV_SCRIPT);
        let command = container.command.iter().flatten();
        let words: Vec<&str> = command
            .chain(container.args.iter().flatten())
            .map(String::as_str)
            .collect();
        let command = Some(words.join(" ")).filter(|text| Script::is_script(text));
        variable
            .and_then(|variable| variable.value.clone())
            .or(command)
    });
    let script = text.map(|text| Script::of_launch(&text, attempt, launch_of(pod)));
    match script.transpose() {
        Ok(script) => script.unwrap_or_default(),
        Err(error) => {
            tracing::error!(%error, "scripted node");
            Script {
                end: End::Waiting("UnreadableScript".to_owned()),
                ..Script::default()
            }
        }
    }
}

/// Kubernetes' Time.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
