//! The executor, running: three watches, the controller, the collector.

use std::{
    future::pending,
    sync::{Arc, atomic::AtomicBool},
};

use futures::{
    FutureExt, Stream, StreamExt,
    future::{BoxFuture, ready},
    stream,
};
use kube::{Client, Resource as _};
use longshore_api::flyte::KIND;
use longshore_core::{Incarnation, Resource};
use longshore_kit::{
    Applier, Cache, Clock, Gate, Kind, Memory, Notes, RawObject, Runner, Update, Wiring,
};
use longshore_plugins::{Plugin, Registry, RemotePlugin, Runner as RunsTask, TASK_ACTION};
use tokio_util::sync::CancellationToken;

use crate::{
    ask::Transport,
    catalog::{Caching, Catalog},
    collect::Collector,
    config::TasksConfig,
    controller::Actions,
    data::{StoredData, TaskData},
    events::{ActionEvents, BatchLimits, BatchedEvents, EventSink},
    facts::Facts,
    kinds::{Kinds, managed},
    model::ActionKey,
    observe::Observer,
    pod_events,
    pod_templates::PodTemplates,
    questions,
    remote::{AskConnectors, NoConnectors, Slots},
    sayings::Sayings,
};

/// The plugins of an executor, by task type.
pub trait Plugins: std::fmt::Debug + Send + Sync + 'static {
    /// The plugin that runs a task type; `None` where no plugin takes it.
    fn resolve(&self, task_type: &str) -> Option<RunsTask>;

    /// The plugin of connectors, for a task type that may be one of theirs: neither another plugin nor the configuration names
    /// it, and [`resolve`](Self::resolve) returns what takes every other type.
    fn of_connectors(&self, _: &str) -> Option<Arc<dyn RemotePlugin>> {
        None
    }

    /// Of each kind of resource that is made, a plugin that makes it.
    fn makers(&self) -> Vec<Arc<dyn Plugin>>;
}

impl Plugins for Registry {
    fn resolve(&self, task_type: &str) -> Option<RunsTask> {
        Some(self.runner(task_type).clone())
    }

    fn of_connectors(&self, task_type: &str) -> Option<Arc<dyn RemotePlugin>> {
        self.of_connectors(task_type).cloned()
    }

    fn makers(&self) -> Vec<Arc<dyn Plugin>> {
        self.makers().to_vec()
    }
}

/// The executor of TaskActions.
#[derive(Debug)]
pub struct Tasks {
    config: TasksConfig,
    plugins: Arc<dyn Plugins>,
    events: EventTarget,
    data: Arc<dyn TaskData>,
    caching: Option<Caching>,
    connectors: Arc<dyn AskConnectors>,
    clock: Arc<dyn Clock>,
    gate: Gate,
}

/// Where action events go.
#[derive(Debug)]
enum EventTarget {
    Nobody,
    OneByOne(Arc<dyn ActionEvents>),
    InBatches(Arc<dyn EventSink>, BatchLimits),
}

impl EventTarget {
    /// The receiver of events, if there is one, and the work that sends its batches, which ends once the receiver is
    /// dropped.
    fn start(self) -> (Option<Arc<dyn ActionEvents>>, BoxFuture<'static, ()>) {
        match self {
            Self::Nobody => (None, ready(()).boxed()),
            Self::OneByOne(events) => (Some(events), ready(()).boxed()),
            Self::InBatches(sink, limits) => {
                let (events, sending) = BatchedEvents::new(sink, limits);
                (Some(Arc::new(events)), sending.boxed())
            }
        }
    }
}

impl Tasks {
    /// An executor that sends action events to nobody, and caches nothing.
    pub fn new(config: TasksConfig, plugins: Arc<dyn Plugins>, clock: Arc<dyn Clock>) -> Self {
        let data = StoredData::new(Arc::clone(&config.storage));
        Self {
            data: Arc::new(data),
            events: EventTarget::Nobody,
            caching: None,
            connectors: Arc::new(NoConnectors),
            config,
            plugins,
            clock,
            gate: Gate::always_open(),
        }
    }

    /// Sends action events to `events`.
    #[must_use]
    pub fn with_events(mut self, events: Arc<dyn ActionEvents>) -> Self {
        self.events = EventTarget::OneByOne(events);
        self
    }

    /// Sends action events to `sink` in batches within `limits`: to the run service
    /// ([`RemoteEvents`](crate::events::RemoteEvents)), or to the log of this machine
    /// ([`EventLog`](crate::events::EventLog)).
    #[must_use]
    pub fn with_batched_events(mut self, sink: Arc<dyn EventSink>, limits: BatchLimits) -> Self {
        self.events = EventTarget::InBatches(sink, limits);
        self
    }

    /// Copies outputs that are cached instead of running the attempt again.
    #[must_use]
    pub fn with_caching(mut self, caching: Caching) -> Self {
        self.caching = Some(caching);
        self
    }

    /// Reads inputs and outputs of tasks with `data` instead of the storage of the configuration.
    #[must_use]
    pub fn with_data(mut self, data: Arc<dyn TaskData>) -> Self {
        self.data = data;
        self
    }

    /// Copies outputs that `catalog` names, and the storage of the configuration has, instead of running the attempt again.
    #[must_use]
    pub fn with_catalog(self, catalog: Arc<dyn Catalog>) -> Self {
        let TasksConfig {
            storage, plugins, ..
        } = &self.config;
        let (storage, clock) = (Arc::clone(storage), Arc::clone(&self.clock));
        let caching = Caching::new(catalog, storage, clock, plugins.max_cache_age);
        self.with_caching(caching)
    }

    /// Runs tasks of connectors with `connectors`.
    #[must_use]
    pub fn with_connectors(mut self, connectors: Arc<dyn AskConnectors>) -> Self {
        self.connectors = connectors;
        self
    }

    /// Acts only while this gate is open.
    #[must_use]
    pub fn gated_by(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Runs actions until `shutdown`.
    ///
    /// *Flow*: the pods are listed first, so that no action is decided upon before its pod can be seen.
    ///
    /// *Assumptions*: the `TaskAction` resource is installed; while it is not, the watch tries again with back-off.
    ///
    /// *Cancellation*: after `shutdown` no round starts, and running ones have 30 s to finish. Dropping the future is
    /// like a crash: the next process goes on with what is on record.
    pub async fn run(self, client: Client, shutdown: CancellationToken) {
        let kinds = Arc::new(Kinds::of(self.plugins.makers()));
        let actions = Cache::new();
        let namespaces = self.config.namespaces;
        let pod_templates = PodTemplates::new(self.config.shared_namespace, namespaces.clone());
        let (memory, notes) = Memory::new();
        let wiring = Wiring::new(&client, namespaces.clone())
            .keyed(Kind::new(TASK_ACTION, actions.clone()), key);
        let wiring = with_pods(wiring, kinds.pods(), memory.clone(), &notes, &self.clock);
        let wiring = pod_templates.wire(kinds.wire(wiring, &notes, &self.clock));
        let applier = Applier::new(client.clone(), "tasks", wiring.feeds())
            .with_metrics(self.config.metrics.clone())
            .learning();
        self.config.measures.restart();
        let connectors = self.connectors;
        let is_caching = self.caching.is_some();
        let (events, sending) = self.events.start();
        let has_event_receiver = events.is_some();
        let (transport, freed) =
            Transport::new(&self.data, self.caching, &connectors, events, notes.clone());
        let connector = &self.config.plugins.connector;
        let (slots, granted) = Slots::new(connector.quota);
        let limits = questions::limits(&connector.web_api);
        let listed = listed(&connectors, memory.clone());
        let wiring = wiring.facts(freed).facts(granted).facts(listed);
        let triggers = wiring.into_triggers();
        let collector = Collector {
            client: client.clone(),
            namespaces,
            collection: self.config.collection,
            measures: self.config.measures.clone(),
            clock: Arc::clone(&self.clock),
        };
        let collection = collector.run();
        let observer = Observer {
            actions,
            kinds,
            pod_templates,
            memory: memory.clone(),
            slots,
            requests: applier.requests().clone(),
            plugins: self.plugins,
            config: self.config.plugins,
            data: self.data,
            is_caching,
            has_event_receiver,
            connectors: Arc::clone(&connectors),
            sayings: Sayings::default(),
        };
        let controller = Arc::new(Actions {
            observer,
            policy: self.config.policy,
            applier: applier.clone(),
            transport,
            facts: notes,
            clock: Arc::clone(&self.clock),
            measures: self.config.measures,
            are_jobs_counted: AtomicBool::new(false),
        });
        let gate = self.gate.clone();
        let rounds = Runner::new(controller, applier, Arc::clone(&self.clock))
            .gated_by(self.gate)
            .asking(limits)
            .remembering(&memory)
            .concurrency(self.config.concurrency)
            .run(triggers, shutdown.clone());
        tokio::join!(
            Box::pin(sending_during(rounds, gate.while_open(sending))),
            Box::pin(shutdown.run_until_cancelled(collection)),
            Box::pin(shutdown.run_until_cancelled(gate.while_open(connectors.follow()))),
        );
    }
}

/// Sends batches of events for as long as there are rounds: after the last round nothing waits for an acknowledgement, and
/// a run service that never answers must not keep the process. It stops earlier where the lease is lost.
async fn sending_during(rounds: impl Future<Output = ()>, sending: impl Future) {
    let sending = async {
        sending.await;
        pending::<()>().await;
    };
    tokio::select! {
        () = rounds => {}
        () = sending => {}
    }
}

/// The actions that wait for the lists of connectors, each time one has changed.
fn listed(
    connectors: &Arc<dyn AskConnectors>,
    memory: Memory<ActionKey, Facts>,
) -> impl Stream<Item = ActionKey> + Send + use<> {
    let changes = connectors.changes();
    changes.flat_map(move |()| {
        let waiting = memory.keys(|facts| facts.unlisted_since.is_some());
        stream::iter(waiting)
    })
}

/// Adds the pods, which are listed before all others, so that no action is decided upon before its pod can be seen, and the
/// Events about them.
fn with_pods(
    wiring: Wiring<ActionKey>,
    pods: Arc<Cache<RawObject>>,
    memory: Memory<ActionKey, Facts>,
    notes: &Notes<ActionKey, Facts>,
    clock: &Arc<dyn Clock>,
) -> Wiring<ActionKey> {
    let managed = managed(Resource::POD, &pods).first();
    let events = pod_events::about(Resource::POD);
    let noted = pod_events::noted(notes.clone(), pods, Arc::clone(clock));
    wiring
        .watched(managed, move |update| {
            let pod = update.into_object();
            pod.map_or_else(Vec::new, |pod| actions_of(&pod, &memory))
        })
        .watched(events, noted)
}

fn key(update: Update<RawObject>) -> Option<ActionKey> {
    let object = update.into_object()?;
    let metadata = object.meta();
    Some(ActionKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone()?,
    })
}

/// The actions that a pod is of. A pod of an operator does not say it: it is of the actions whose last round has asked for
/// news of it.
fn actions_of(pod: &RawObject, memory: &Memory<ActionKey, Facts>) -> Vec<ActionKey> {
    if let Some(owner) = owner(pod) {
        return vec![owner];
    }
    let metadata = pod.meta();
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut actions = memory.keys(|facts| facts.has_head(name));
    actions.retain(|key| Some(&key.namespace) == metadata.namespace.as_ref());
    actions
}

/// The action that controls a resource.
pub(crate) fn owner(resource: &RawObject) -> Option<ActionKey> {
    owner_of(resource).map(|(action, _)| action)
}

/// The action that controls a resource, as memories know it.
pub(crate) fn owner_of(resource: &RawObject) -> Option<(ActionKey, Incarnation)> {
    let metadata = resource.meta();
    let owners = metadata.owner_references.as_ref()?;
    let owner = owners
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == KIND)?;
    let key = ActionKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: owner.name.clone(),
    };
    Some((key, Incarnation::of(owner.uid.clone())))
}
