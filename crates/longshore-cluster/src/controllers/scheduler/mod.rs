//! Binds pods to nodes: the part of kube-scheduler that a cluster of process nodes needs.
//!
//! Takes pods of `default-scheduler` without node and without gates, chooses a node ([`fit`]) and
//! binds. A pod that fits nowhere gets the condition `PodScheduled=False` and an event, and is
//! tried again when something changes. One that is bound gets no event.

mod fit;
mod ledger;

use std::{cmp::Reverse, collections::BTreeMap};

use fit::choose;
use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Error, Resource,
    api::{Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        events::{Event as Announcement, EventType, Reporter},
        watcher::{Config, Event, watcher},
    },
};
use ledger::{Ledger, PodKey};
use serde_json::{Value, json};

use super::{queue::Queue, recorder::Recorder};

const SCHEDULER: &str = "default-scheduler";
/// A pod that has ended needs no node and takes no room, so its end is to the scheduler as its deletion, and it sees no
/// change of the pod after that.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Runs for ever.
pub(super) async fn run(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    let pod_events = watcher(pods, Config::default().fields(NOT_ENDED));
    let mut pod_events = pod_events.default_backoff().boxed();
    let mut node_events = watcher(nodes, Config::default()).default_backoff().boxed();
    let mut scheduler = Scheduler::new(client);
    loop {
        let is_ready = scheduler.is_ready();
        tokio::select! {
            biased;
            Some(event) = node_events.next() => match event {
                Ok(event) => scheduler.take_node(event),
                Err(error) => tracing::debug!(%error, "watch of nodes failed, starting again"),
            },
            Some(event) = pod_events.next() => match event {
                Ok(event) => scheduler.take_pod(event),
                Err(error) => tracing::debug!(%error, "watch of pods failed, starting again"),
            },
            ticket = scheduler.queue.next(), if is_ready => scheduler.schedule(ticket).await,
        }
    }
}

/// A pod's place among those that wait: by priority, then by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket {
    priority: Reverse<i32>,
    created_at: Option<Time>,
    key: PodKey,
}

impl Ticket {
    fn of(pod: &Pod) -> Ticket {
        let priority = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.priority)
            .unwrap_or(0);
        Ticket {
            priority: Reverse(priority),
            created_at: pod.metadata.creation_timestamp.clone(),
            key: key_of(pod),
        }
    }
}

struct Scheduler {
    client: Client,
    recorder: Recorder,
    nodes: BTreeMap<String, Node>,
    /// Pods that wait for a node, in the order in which they get one.
    pending: BTreeMap<Ticket, Pod>,
    ledger: Ledger,
    queue: Queue<Ticket>,
    /// Names that a list in progress has shown.
    listed_nodes: Option<BTreeMap<String, Node>>,
    has_nodes: bool,
    has_pods: bool,
}

impl Scheduler {
    fn new(client: Client) -> Scheduler {
        let reporter = Reporter {
            controller: SCHEDULER.into(),
            instance: None,
        };
        Scheduler {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            nodes: BTreeMap::new(),
            pending: BTreeMap::new(),
            ledger: Ledger::default(),
            queue: Queue::new(),
            listed_nodes: None,
            has_nodes: false,
            has_pods: false,
        }
    }

    /// Whether both lists are complete: before that, full nodes look empty.
    fn is_ready(&self) -> bool {
        self.has_nodes && self.has_pods
    }

    fn take_node(&mut self, event: Event<Node>) {
        let name_of = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Init => self.listed_nodes = Some(BTreeMap::new()),
            Event::InitApply(node) => {
                self.listed_nodes
                    .get_or_insert_default()
                    .insert(name_of(&node), node);
            }
            Event::InitDone => {
                self.nodes = self.listed_nodes.take().unwrap_or_default();
                self.has_nodes = true;
                self.try_all();
            }
            Event::Apply(node) => {
                let old = self.nodes.insert(name_of(&node), node.clone());
                // A heartbeat changes no decision.
                if old.is_none_or(|old| is_other_offer(&old, &node)) {
                    self.try_all();
                }
            }
            Event::Delete(node) => {
                self.nodes.remove(&name_of(&node));
            }
        }
    }

    fn take_pod(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => {
                self.pending.clear();
                self.ledger = Ledger::default();
                self.has_pods = false;
            }
            Event::InitDone => {
                self.has_pods = true;
                self.try_all();
            }
            Event::Apply(pod) | Event::InitApply(pod) => self.place(pod),
            Event::Delete(pod) => {
                self.pending.remove(&Ticket::of(&pod));
                if self.ledger.remove(&key_of(&pod)) {
                    self.try_all();
                }
            }
        }
    }

    fn place(&mut self, pod: Pod) {
        let ticket = Ticket::of(&pod);
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default();
        if !node.is_empty() {
            self.pending.remove(&ticket);
            self.ledger.enter(ticket.key, &node, &pod);
        } else if is_ours(&pod) {
            let spec = pod.spec.clone();
            let old = self.pending.insert(ticket.clone(), pod);
            // Our own note about a pod that fits nowhere is no reason to try again.
            if old.is_none_or(|old| old.spec != spec) {
                self.queue.add(ticket);
            }
        } else {
            self.pending.remove(&ticket);
        }
    }

    fn try_all(&mut self) {
        for ticket in self.pending.keys() {
            self.queue.add(ticket.clone());
        }
    }

    async fn schedule(&mut self, ticket: Ticket) {
        let Some(pod) = self.pending.get(&ticket).cloned() else {
            self.queue.succeed(&ticket);
            return;
        };
        let outcome = match choose(&pod, self.nodes.values(), &self.ledger) {
            Ok(node) => self.bind(&ticket, &pod, &node).await,
            Err(why) => self.refuse(&ticket.key, &pod, &why).await,
        };
        match outcome {
            Ok(()) => self.queue.succeed(&ticket),
            // The pod is gone; the watch will report that.
            Err(Error::Api(status)) if status.is_not_found() => self.queue.succeed(&ticket),
            // A conflict, too, is tried again until the watch shows what it was about.
            Err(error) => {
                let (namespace, name) = &ticket.key;
                tracing::debug!(%error, namespace, name, "pod not scheduled, trying again");
                self.queue.retry(ticket);
            }
        }
    }

    async fn bind(&mut self, ticket: &Ticket, pod: &Pod, node: &str) -> Result<(), Error> {
        let key = &ticket.key;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": key.1, "namespace": key.0, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let params = PostParams::default();
        let _: Value = pods
            .create_subresource("binding", &key.1, &params, &binding)
            .await?;
        // No Event: it would cost a request and an object for each pod, and the pod itself says where it runs, since when.
        self.pending.remove(ticket);
        self.ledger.enter(key.clone(), node, pod);
        Ok(())
    }

    /// Writes into the pod's status, and into an Event, why it has no node.
    async fn refuse(&self, key: &PodKey, pod: &Pod, why: &str) -> Result<(), Error> {
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let present = conditions
            .into_iter()
            .flatten()
            .find(|it| it.type_ == "PodScheduled");
        let is_said = |reason: Option<&String>, message: Option<&String>| {
            reason.is_some_and(|it| it == "Unschedulable") && message.is_some_and(|it| it == why)
        };
        if present.is_some_and(|it| is_said(it.reason.as_ref(), it.message.as_ref())) {
            return Ok(());
        }
        let since = match present {
            Some(condition) if condition.status == "False" => json!(condition.last_transition_time),
            _ => json!(now()),
        };
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
            "lastTransitionTime": since,
        });
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]},
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        pods.patch_status(&key.1, &PatchParams::default(), &Patch::Strategic(patch))
            .await?;
        self.announce_failure(pod, why).await;
        Ok(())
    }

    async fn announce_failure(&self, pod: &Pod, why: &str) {
        let announcement = Announcement {
            type_: EventType::Warning,
            reason: "FailedScheduling".into(),
            note: Some(why.to_owned()),
            action: "Scheduling".into(),
            secondary: None,
        };
        if let Err(error) = self
            .recorder
            .publish(&announcement, &pod.object_ref(&()))
            .await
        {
            tracing::debug!(%error, "event not written");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a controller beside the server, which has no clock of its own"
)]
fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

fn key_of(pod: &Pod) -> PodKey {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&pod.metadata.namespace), text(&pod.metadata.name))
}

/// Whether this scheduler may bind the pod now.
fn is_ours(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.scheduler_name.as_deref().unwrap_or(SCHEDULER) == SCHEDULER
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a node offers something else than before.
fn is_other_offer(old: &Node, new: &Node) -> bool {
    let ready = |node: &Node| -> Vec<(String, String)> {
        let conditions = node
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone());
        conditions
            .into_iter()
            .flatten()
            .map(|it| (it.type_, it.status))
            .collect()
    };
    let allocatable = |node: &Node| {
        node.status
            .as_ref()
            .and_then(|status| status.allocatable.clone())
    };
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || ready(old) != ready(new)
        || allocatable(old) != allocatable(new)
}
