//! The nodes of these tests: containers start at once or after a while, and a pod is Ready when its containers are and all
//! of its readiness gates are True.

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
    time::{Instant, sleep_until},
};

use super::http::{self, Asked};

/// The label of the pods that are played.
pub(super) const PLAYED: &str = "test.longshore.dev/played";
/// The annotation of a pod whose containers take so long to be ready, as `2s`, whatever the pace of the nodes is.
pub(super) const READY_AFTER: &str = "test.longshore.dev/ready-after";
/// Between attempts of what was refused.
const RETRY: Duration = Duration::from_millis(100);
/// Controllers give nodes up that are silent for 40 s.
const BEAT: Duration = Duration::from_secs(10);

/// What binds pods to nodes, and how long things take on a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) binding: Binding,
    /// From the binding of a pod until its containers are ready.
    pub(super) ready_after: Duration,
    /// From the deletion of a pod until its containers have ended.
    pub(super) gone_after: Duration,
}

/// What binds pods to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Binding {
    /// The simulated nodes; no scheduler runs, or two writers would bind the same pods.
    #[default]
    ByNodes,
    /// The scheduler of the cluster.
    ByScheduler,
}

/// Two nodes. Dropping it stops both, as a power cut would.
pub(super) struct Kubelet {
    nodes: [String; 2],
    /// To which of them new pods go.
    to: Arc<Mutex<usize>>,
    tasks: [AbortHandle; 2],
}

impl Kubelet {
    /// Makes the nodes, and plays the pods whose label [`PLAYED`] has this value.
    pub(super) async fn start(client: &Client, id: &str, pace: Pace) -> Self {
        let nodes = ["a", "b"].map(|letter| format!("podops-{id}-{letter}"));
        for node in &nodes {
            join(client, node, id, pace.binding).await;
        }
        let to = Arc::new(Mutex::new(0));
        let player = Player {
            client: client.clone(),
            nodes: nodes.clone(),
            to: Arc::clone(&to),
            pace,
        };
        let beating = tokio::spawn(beat(client.clone(), nodes.clone())).abort_handle();
        let playing = tokio::spawn(player.run(format!("{PLAYED}={id}"))).abort_handle();
        Self {
            nodes,
            to,
            tasks: [beating, playing],
        }
    }

    /// Their names.
    pub(super) fn nodes(&self) -> &[String; 2] {
        &self.nodes
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

/// Makes the object of a node. Its label is that of its pods, which can choose it so.
async fn join(client: &Client, name: &str, id: &str, binding: Binding) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {PLAYED: id, "kubernetes.io/hostname": name}},
        "spec": {"unschedulable": binding == Binding::ByNodes},
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
            let room = json!({"cpu": "100", "memory": "100Gi", "pods": "1000"});
            let status = json!({"status": {
                "conditions": [ready], "capacity": room, "allocatable": room,
            }});
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
    pace: Pace,
}

/// What is to be done next about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// What its next change asks for.
    AwaitChange,
    /// The same again, at this time.
    At(Instant),
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
        let mut times = Times::default();
        loop {
            let pod = seen.borrow_and_update().clone();
            times.note(&pod);
            let changed = match self.act(&pod, &times).await {
                Next::AwaitChange => seen.changed().await,
                Next::At(at) => tokio::select! {
                    changed = seen.changed() => changed,
                    () = sleep_until(at) => Ok(()),
                },
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Does what is to be done about a pod.
    async fn act(&self, pod: &Pod, times: &Times) -> Next {
        let metadata = &pod.metadata;
        let (namespace, name) = (
            metadata.namespace.as_ref().unwrap(),
            metadata.name.as_ref().unwrap(),
        );
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let done = match (times.deleted_at, times.bound_at) {
            // The API server removes the pod next. Where a webhook fails at that step, the pod stays as it is.
            (Some(_), _) if times.is_being_removed() => {
                return Next::At(Instant::now() + RETRY);
            }
            (Some(deleted_at), Some(_)) if !is_over(deleted_at, self.pace.gone_after) => {
                return Next::At(deleted_at + self.pace.gone_after);
            }
            (Some(_), _) => {
                let options = json!({
                    "gracePeriodSeconds": 0, "preconditions": {"uid": metadata.uid},
                });
                http::delete(&self.client, &path, options).await
            }
            (None, None) if self.pace.binding == Binding::ByScheduler => return Next::AwaitChange,
            (None, None) => {
                let node = &self.nodes[*self.to.lock().unwrap()];
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                });
                http::create(&self.client, &format!("{path}/binding"), &binding).await
            }
            (None, Some(bound_at)) => {
                let ready_after = ready_after(pod).unwrap_or(self.pace.ready_after);
                let has_started = is_over(bound_at, ready_after);
                match status(pod, has_started) {
                    None if has_started => return Next::AwaitChange,
                    None => return Next::At(bound_at + ready_after),
                    Some(status) => {
                        let path = format!("{path}/status");
                        http::patch(&self.client, &path, Asked::Strategic, &status).await
                    }
                }
            }
        };
        match done {
            Ok(_) => Next::AwaitChange,
            // Gone, or bound already: what is next shows.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Next::AwaitChange,
            Err(_) => Next::At(Instant::now() + RETRY),
        }
    }
}

/// When a pod got its node, and when it was deleted, as its node has seen it.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    bound_at: Option<Instant>,
    deleted_at: Option<Instant>,
    /// When its grace period was seen to be over, after the last delete of a client.
    removed_at: Option<Instant>,
}

impl Times {
    fn note(&mut self, pod: &Pod) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if node.is_some() {
            self.bound_at.get_or_insert_with(Instant::now);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            self.deleted_at.get_or_insert_with(Instant::now);
        }
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            self.removed_at.get_or_insert_with(Instant::now);
        }
    }

    fn is_being_removed(&self) -> bool {
        self.removed_at.is_some_and(|at| !is_over(at, RETRY))
    }
}

fn ready_after(pod: &Pod) -> Option<Duration> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let time: jiff::SignedDuration = annotations.get(READY_AFTER)?.parse().unwrap();
    Some(time.unsigned_abs())
}

fn is_over(since: Instant, time: Duration) -> bool {
    since.elapsed() >= time
}

/// The status of a pod whose containers run, where it is not as it should be.
fn status(pod: &Pod, has_started: bool) -> Option<Value> {
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
    let is_open = gates
        .into_iter()
        .flatten()
        .all(|gate| is_true(&gate.condition_type));
    let is_ready = has_started && is_open;
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
                "ready": has_started, "started": has_started, "state": {"running": {"startedAt": at}},
            })
        })
        .collect();
    let ip = address(pod);
    Some(json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": at,
            "conditions": [condition("ContainersReady", has_started), condition("Ready", is_ready)],
            "containerStatuses": containers,
        },
    }))
}

/// The address of a pod, of which no two have the same: part of its uid.
fn address(pod: &Pod) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let part = u32::from_str_radix(uid.get(..6).unwrap_or_default(), 16).unwrap_or_default();
    let [_, a, b, c] = part.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
