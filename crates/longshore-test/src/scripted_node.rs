//! A node that runs scripts instead of processes, in simulated time.

mod history;
mod kubelet;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use longshore_kit::{Cache, Clock, ListWatch, Update};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

pub use history::{History, PodRun};

/// The annotation that says what a pod does; see [`Script`](crate::script::Script).
pub const ANNOTATION_SCRIPT: &str = "test.longshore.dev/script";
/// The variable that says it where no annotation does. Else the container's command and arguments do, if they are a
/// script; else it runs for a second and succeeds.
pub const ENV_SCRIPT: &str = "SCRIPT";

/// How the node behaves.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The name of the Node.
    pub name: String,
    /// The namespace of its pods; `None`: all of them.
    pub namespace: Option<String>,
    /// What binds pods to the node.
    pub binding: Binding,
    /// From the binding to `Running`.
    pub start_delay: Duration,
    /// Which attempt a pod is, counted from 1.
    pub attempt: fn(&Pod) -> usize,
    /// What the code of a pod does right before it ends by itself with this exit code, as writing its outputs.
    pub at_the_end: fn(&Pod, i32),
}

/// What binds pods to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The node takes every pod that has none.
    ByNode,
    /// A scheduler or a template binds them.
    ByOthers,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: "scripted".to_owned(),
            namespace: None,
            binding: Binding::ByNode,
            start_delay: Duration::from_millis(100),
            attempt: by_try_number,
            at_the_end: |_, _| {},
        }
    }
}

/// The attempt by the label `try_number`; 1 without.
fn by_try_number(pod: &Pod) -> usize {
    let label = pod.metadata.labels.as_ref();
    let label = label.and_then(|labels| labels.get("try_number"));
    label.and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// A running node. Dropping it stops it, as a lost node would: its pods keep the status that they have.
#[derive(Debug)]
pub struct ScriptedNode {
    history: Arc<Mutex<History>>,
    task: AbortHandle,
}

impl ScriptedNode {
    /// Starts a node with a client of its own: the faults of the process under test do not touch it.
    pub fn start(client: Client, clock: Arc<dyn Clock>, config: NodeConfig) -> Self {
        let history = Arc::new(Mutex::new(History::default()));
        let node = Node {
            client,
            clock,
            config: Arc::new(config),
            history: Arc::clone(&history),
        };
        let task = tokio::spawn(node.run()).abort_handle();
        Self { history, task }
    }

    /// The pods that the node ran so far.
    pub fn history(&self) -> History {
        lock(&self.history).clone()
    }
}

impl Drop for ScriptedNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Node {
    client: Client,
    clock: Arc<dyn Clock>,
    config: Arc<NodeConfig>,
    history: Arc<Mutex<History>>,
}

/// What a pod's task is told of changes of the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    /// The pod is being deleted.
    is_deleting: bool,
    /// How long the pod may run.
    limit: Option<Duration>,
}

impl Node {
    async fn run(self) {
        let pods: Api<Pod> = match &self.config.namespace {
            None => Api::all(self.client.clone()),
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
        };
        let updates = ListWatch::new(pods).into_cache(Cache::new());
        let mut updates = std::pin::pin!(updates);
        let mut running: BTreeMap<String, watch::Sender<Told>> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                Some(update) = updates.next() => match update {
                    Update::Applied(pod) => self.see(&pod, &mut running, &mut tasks),
                    Update::Deleted(pod) => {
                        // Gone without grace: its container is killed.
                        let uid = pod.metadata.uid.clone().unwrap_or_default();
                        lock(&self.history).end(&uid, None, self.clock.now());
                        running.remove(&uid);
                    }
                    Update::Reached(_) => {}
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    fn see(
        &self,
        pod: &Arc<Pod>,
        running: &mut BTreeMap<String, watch::Sender<Told>>,
        tasks: &mut JoinSet<()>,
    ) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let is_deleting = pod.metadata.deletion_timestamp.is_some();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        match node {
            None if self.config.binding == Binding::ByNode && !is_deleting => {
                tasks.spawn(self.clone().bind(Arc::clone(pod)));
            }
            Some(name) if name == self.config.name => {
                let teller = running.entry(uid).or_insert_with(|| {
                    let (sender, receiver) = watch::channel(Told::default());
                    tasks.spawn(self.clone().play(Arc::clone(pod), receiver));
                    sender
                });
                let seconds = pod.spec.as_ref().and_then(|it| it.active_deadline_seconds);
                let seconds = seconds.and_then(|it| u64::try_from(it).ok());
                teller.send_if_modified(|told| {
                    let before = *told;
                    told.is_deleting |= is_deleting;
                    told.limit = seconds.map(Duration::from_secs);
                    *told != before
                });
            }
            None | Some(_) => {}
        }
    }
}
