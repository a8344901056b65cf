//! The nodes of these tests: containers start at once, and a pod is Ready when all of its readiness gates are True.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use longshore_kit::{Cache, Clock, ListWatch, SystemClock, Update};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use super::http::{self, Asked};

/// The label of the pods that are played.
pub(super) const PLAYED: &str = "test.longshore.dev/played";
/// The annotation of a pod that takes so long to start, as `2s`.
pub(super) const READY_AFTER: &str = "test.longshore.dev/ready-after";
/// Between attempts of what was refused.
const RETRY: Duration = Duration::from_millis(100);
/// Controllers give nodes up that are silent for 40 s.
const BEAT: Duration = Duration::from_secs(10);

/// Two nodes. Dropping it stops both, as a power cut would.
pub(super) struct Kubelet {
    nodes: [String; 2],
    /// To which of them new pods go.
    to: Arc<Mutex<usize>>,
    tasks: [AbortHandle; 2],
}

impl Kubelet {
    /// Makes the nodes, and plays the pods whose label [`PLAYED`] has this value.
    pub(super) async fn start(client: &Client, id: &str) -> Self {
        let nodes = ["a", "b"].map(|letter| format!("podops-{id}-{letter}"));
        for node in &nodes {
            join(client, node).await;
        }
        let to = Arc::new(Mutex::new(0));
        let player = Player {
            client: client.clone(),
            nodes: nodes.clone(),
            to: Arc::clone(&to),
        };
        let beating = tokio::spawn(beat(client.clone(), nodes.clone())).abort_handle();
        let playing = tokio::spawn(player.run(format!("{PLAYED}={id}"))).abort_handle();
        Self {
            nodes,
            to,
            tasks: [beating, playing],
        }
    }

    /// New pods go to the other node from now on; the one where they went before.
    pub(super) fn switch(&self) -> &str {
        let mut to = self.to.lock().unwrap();
        let before = *to;
        *to = 1 - before;
        &self.nodes[before]
    }

    /// Takes the nodes away.
    pub(super) async fn leave(&self, client: &Client) {
        for node in &self.nodes {
            let _ = http::delete(client, &format!("/api/v1/nodes/{node}"), json!({})).await;
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// No scheduler chooses it, or there would be two who give pods their node.
async fn join(client: &Client, name: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name}, "spec": {"unschedulable": true},
    });
    http::create(client, "/api/v1/nodes", &node).await.unwrap();
}

/// Says that the nodes live.
async fn beat(client: Client, nodes: [String; 2]) {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    loop {
        for node in &nodes {
            let now = SystemClock.now();
            let ready = json!({
                "type": "Ready", "status": "True", "reason": "Played",
                "lastHeartbeatTime": seconds(now), "lastTransitionTime": seconds(now),
            });
            let status = json!({"status": {"conditions": [ready]}});
            let path = format!("/api/v1/nodes/{node}/status");
            let _ = http::patch(&client, &path, Asked::Strategic, &status).await;
            let micro = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micro},
            });
            let path = format!("{LEASES}/{node}");
            let renewed = http::patch(&client, &path, Asked::Merge, &lease).await;
            if renewed.is_err() {
                let _ = http::create(&client, LEASES, &lease).await;
            }
        }
        tokio::time::sleep(BEAT).await;
    }
}

#[derive(Clone)]
struct Player {
    client: Client,
    nodes: [String; 2],
    to: Arc<Mutex<usize>>,
}

impl Player {
    async fn run(self, labels: String) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let updates = ListWatch::new(pods).labels(labels).into_cache(Cache::new());
        let mut updates = std::pin::pin!(updates);
        let mut played: BTreeMap<String, watch::Sender<Arc<Pod>>> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        while let Some(update) = updates.next().await {
            match update {
                Update::Applied(pod) => {
                    let uid = pod.metadata.uid.clone().unwrap();
                    if let Some(known) = played.get(&uid) {
                        known.send_replace(pod);
                    } else {
                        let (sender, seen) = watch::channel(pod);
                        played.insert(uid, sender);
                        tasks.spawn(self.clone().play(seen));
                    }
                }
                Update::Deleted(pod) => {
                    played.remove(&pod.metadata.uid.clone().unwrap());
                }
                Update::Reached(_) => {}
            }
        }
    }

    /// One pod, to its end.
    async fn play(self, mut seen: watch::Receiver<Arc<Pod>>) {
        let annotations = seen
            .borrow()
            .metadata
            .annotations
            .clone()
            .unwrap_or_default();
        if let Some(start) = annotations.get(READY_AFTER) {
            let start: jiff::SignedDuration = start.parse().unwrap();
            tokio::time::sleep(start.unsigned_abs()).await;
        }
        loop {
            let pod = seen.borrow_and_update().clone();
            if !self.act(&pod).await {
                tokio::time::sleep(RETRY).await;
            } else if seen.changed().await.is_err() {
                return;
            }
        }
    }

    /// Does what is to be done about a pod; whether that is done.
    async fn act(&self, pod: &Pod) -> bool {
        let metadata = &pod.metadata;
        let (namespace, name) = (
            metadata.namespace.as_ref().unwrap(),
            metadata.name.as_ref().unwrap(),
        );
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let is_deleting = metadata.deletion_timestamp.is_some();
        let done = match node {
            _ if is_deleting && metadata.deletion_grace_period_seconds == Some(0) => return true,
            _ if is_deleting => {
                let options = json!({
                    "gracePeriodSeconds": 0, "preconditions": {"uid": metadata.uid},
                });
                http::delete(&self.client, &path, options).await
            }
            None => {
                let node = &self.nodes[*self.to.lock().unwrap()];
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                });
                http::create(&self.client, &format!("{path}/binding"), &binding).await
            }
            Some(_) => match status(pod) {
                None => return true,
                Some(status) => {
                    let path = format!("{path}/status");
                    http::patch(&self.client, &path, Asked::Strategic, &status).await
                }
            },
        };
        match done {
            Ok(_) => true,
            // Gone, or bound already: what is next shows.
            Err(kube::Error::Api(status)) => matches!(status.code, 404 | 409),
            Err(_) => false,
        }
    }
}

/// The status of a running pod, where it is not as it should be.
fn status(pod: &Pod) -> Option<Value> {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let is_true = |kind: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.as_ref());
    let is_ready = gates
        .into_iter()
        .flatten()
        .all(|gate| is_true(&gate.condition_type));
    if phase == Some("Running") && is_ready == is_true("Ready") {
        return None;
    }
    let at = seconds(SystemClock.now());
    let status = |is: bool| if is { "True" } else { "False" };
    let condition = |kind: &str, is: bool| json!({"type": kind, "status": status(is), "lastTransitionTime": at});
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let containers: Vec<Value> = containers
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
                "ready": true, "started": true, "state": {"running": {"startedAt": at}},
            })
        })
        .collect();
    Some(json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": "Running", "podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}], "startTime": at,
            "conditions": [condition("ContainersReady", true), condition("Ready", is_ready)],
            "containerStatuses": containers,
        },
    }))
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
