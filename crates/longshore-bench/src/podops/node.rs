//! A node that answers at once: its pods run as soon as they are made, are Ready when all of their readiness gates are
//! True, and are gone as soon as they were deleted.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use longshore_kit::{Cache, Clock, ListWatch, SystemClock, Update};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

/// The label of the pods that are played: the name of the node.
pub(super) const PLAYED: &str = "bench.longshore.dev/played";
/// Between attempts of what was refused.
const RETRY: Duration = Duration::from_millis(20);
/// Controllers give nodes up that are silent for 40 s.
const BEAT: Duration = Duration::from_secs(10);

/// The running node. Dropping it stops it.
pub(super) struct Node {
    name: String,
    nodes: Api<NodeObject>,
    tasks: [AbortHandle; 2],
}

impl Node {
    /// Makes the node, and plays its pods in all namespaces.
    pub(super) async fn start(client: &Client, name: String) -> Result<Self> {
        let nodes: Api<NodeObject> = Api::all(client.clone());
        let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": true}});
        let node = serde_json::from_value(node)?;
        nodes.create(&PostParams::default(), &node).await?;
        let beating = tokio::spawn(beat(nodes.clone(), name.clone()));
        let playing = tokio::spawn(run(client.clone(), format!("{PLAYED}={name}")));
        Ok(Self {
            name,
            nodes,
            tasks: [beating.abort_handle(), playing.abort_handle()],
        })
    }

    /// What the label [`PLAYED`] of its pods says.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes the node away.
    pub(super) async fn leave(self) -> Result<()> {
        self.nodes
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Reports periodically that the node is Ready.
async fn beat(nodes: Api<NodeObject>, name: String) {
    loop {
        let now = now();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Played",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let status = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
        // A write that fails is repeated at the next beat.
        let _ = nodes
            .patch_status(&name, &PatchParams::default(), &status)
            .await;
        tokio::time::sleep(BEAT).await;
    }
}

async fn run(client: Client, played: String) {
    let pods = ListWatch::new(Api::<Pod>::all(client.clone())).labels(played);
    let mut updates = pin!(pods.into_cache(Cache::new()));
    let mut known: BTreeMap<String, watch::Sender<Arc<Pod>>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Some(update) = updates.next() => match update {
                Update::Applied(pod) => {
                    let uid = pod.uid().unwrap_or_default();
                    if let Some(known) = known.get(&uid) {
                        known.send_replace(pod);
                    } else {
                        let api = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
                        let (sender, seen) = watch::channel(pod);
                        known.insert(uid, sender);
                        tasks.spawn(play(api, seen));
                    }
                }
                Update::Deleted(pod) => {
                    known.remove(&pod.uid().unwrap_or_default());
                }
                Update::Reached(_) => {}
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// One pod, to its end.
async fn play(api: Api<Pod>, mut seen: watch::Receiver<Arc<Pod>>) {
    loop {
        let pod = seen.borrow_and_update().clone();
        if !act(&api, &pod).await {
            tokio::time::sleep(RETRY).await;
        } else if seen.changed().await.is_err() {
            return;
        }
    }
}

/// Does what is to be done about a pod; whether that is done.
async fn act(api: &Api<Pod>, pod: &Pod) -> bool {
    let name = pod.name_any();
    let metadata = &pod.metadata;
    let done = match (&metadata.deletion_timestamp, status(pod)) {
        (Some(_), _) if metadata.deletion_grace_period_seconds == Some(0) => return true,
        (Some(_), _) => {
            let at_once = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: pod.uid(),
                    ..Preconditions::default()
                }),
                ..DeleteParams::default().grace_period(0)
            };
            api.delete(&name, &at_once).await.map(drop)
        }
        (None, None) => return true,
        (None, Some(status)) => {
            let status = Patch::Strategic(status);
            let patched = api
                .patch_status(&name, &PatchParams::default(), &status)
                .await;
            patched.map(drop)
        }
    };
    match done {
        Ok(()) => true,
        // Gone, or another one: what is next shows.
        Err(kube::Error::Api(status)) => matches!(status.code, 404 | 409),
        Err(_) => false,
    }
}

/// The status of a running pod, where it is not as it should be.
fn status(pod: &Pod) -> Option<Value> {
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.as_ref());
    let is_ready = gates
        .into_iter()
        .flatten()
        .all(|gate| is_true(pod, &gate.condition_type));
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if phase == Some("Running") && is_ready == is_true(pod, "Ready") {
        return None;
    }
    let now = now();
    let condition = |kind: &str, is: bool| {
        let status = if is { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": now})
    };
    Some(json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": "Running", "startTime": now,
            "conditions": [condition("ContainersReady", true), condition("Ready", is_ready)],
        },
    }))
}

/// Whether a condition of a pod holds.
pub(super) fn is_true(pod: &Pod, kind: &str) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Kubernetes' Time.
fn now() -> String {
    SystemClock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
