//! What a world stands on: the embedded cluster in simulated time, or a namespace of a real API server in real time.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use futures::StreamExt;
use longshore_cluster::{LogError, LogOptions, LogStream as PodLogStream, PodLogs};
use longshore_kit::{Clock, SystemClock};
use longshore_node::{ContainerLogs, log_server::LogStream};
use longshore_test::{
    NodeConfig, Place, RealNamespace, RealServer, ScriptedNode,
    clock::{self, SimClock},
};
use serde_json::Value;

/// A cluster with a scripted node, and a clock.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) place: Place,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: Arc<ScriptedNode>,
    pub(crate) logs: Logs,
}

impl Surroundings {
    /// An embedded cluster in simulated time, which begins now.
    pub(crate) fn embedded() -> Self {
        Self::embedded_at(SimClock::start(), Logs::default(), 1)
    }

    /// Another embedded cluster at the same time.
    pub(crate) fn elsewhere(&self) -> Self {
        Self::embedded_at(self.clock.clone(), self.logs.clone(), 2)
    }

    fn embedded_at(clock: Arc<dyn Clock>, logs: Logs, seed: u64) -> Self {
        let cluster = clock::cluster(clock.clone(), seed);
        cluster.set_pod_logs(Arc::new(ScriptedLogs(logs.clone())));
        let place = Place::embedded(&cluster);
        Self::with_node(place, clock, logs, NodeConfig::default())
    }

    /// A namespace of a real API server, in real time. The caller removes the namespace.
    pub(crate) async fn real(server: &RealServer, name: &str) -> (Self, RealNamespace) {
        let logs = Logs::default();
        let mut namespace = RealNamespace::create(server, name).await.unwrap();
        let scripted = Arc::new(ScriptedLogs(logs.clone()));
        let node = namespace.add_node(scripted).await.unwrap();
        let clock = Arc::new(SystemClock);
        (
            Self::with_node(namespace.place(), clock, logs, node),
            namespace,
        )
    }

    fn with_node(place: Place, clock: Arc<dyn Clock>, logs: Logs, config: NodeConfig) -> Self {
        let node = ScriptedNode::start(place.client(), clock.clone(), config);
        Self {
            place,
            clock,
            node: Arc::new(node),
            logs,
        }
    }
}

/// The logs of a world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    pub(crate) are_unreadable: Arc<AtomicBool>,
    /// They begin, and nothing more comes.
    pub(crate) stall: Arc<AtomicBool>,
    /// The archive takes them, and never says that it has stored them.
    pub(crate) archive_hangs: Arc<AtomicBool>,
    /// The archive takes them, and stores them once this is off again.
    pub(crate) archive_pauses: Arc<AtomicBool>,
    stored: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Logs {
    /// What is stored, by path.
    pub(crate) fn stored(&self) -> BTreeMap<String, String> {
        self.stored.lock().unwrap().clone()
    }

    pub(crate) fn store(&self, path: &str, text: String) {
        self.stored.lock().unwrap().insert(path.to_owned(), text);
    }
}

/// The log of every scripted pod.
struct ScriptedLogs(Logs);

const LINE: &str = "a line\n";

/// What the embedded API server asks.
#[async_trait]
impl PodLogs for ScriptedLogs {
    async fn logs(&self, _pod: &Value, _options: LogOptions) -> Result<PodLogStream, LogError> {
        if self.0.are_unreadable.load(Ordering::Relaxed) {
            return Err(LogError::Unavailable("the node is gone".to_owned()));
        }
        let line = futures::stream::once(async { Ok(LINE.into()) });
        if self.0.stall.load(Ordering::Relaxed) {
            return Ok(Box::pin(line.chain(futures::stream::pending())));
        }
        Ok(Box::pin(line))
    }
}

/// What a real one asks.
#[async_trait]
impl ContainerLogs for ScriptedLogs {
    async fn logs(
        &self,
        _namespace: &str,
        pod: &str,
        _container: &str,
        _options: &longshore_node::LogOptions,
    ) -> Result<LogStream, longshore_node::LogError> {
        if self.0.are_unreadable.load(Ordering::Relaxed) {
            return Err(longshore_node::LogError::Read {
                path: pod.to_owned(),
                source: io::Error::other("the node is gone"),
            });
        }
        Ok(futures::stream::once(async { Ok(LINE.into()) }).boxed())
    }
}
