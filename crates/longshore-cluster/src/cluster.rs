//! A whole cluster as a value.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::server::{
    ApiService, Clock, Durability, OpenError, PodLogs, ServeConfig, ServeError, Server, Serving,
    Settings, wire,
};

/// An embedded cluster: an API server and its objects. Clones share it.
#[derive(Clone, Debug)]
pub struct Cluster {
    server: Arc<Server>,
}

impl Cluster {
    /// An empty cluster in memory, on the machine's clock.
    pub fn in_memory() -> Cluster {
        Cluster::builder().build()
    }

    /// The cluster that lives in a directory, which is made when it is not there: every write that
    /// was answered before, with the same uids and revisions, whatever ended the last process.
    ///
    /// One process at a time; objects hold secrets, so only their owner can read the files.
    ///
    /// # Errors
    /// When the directory is in use, damaged, of a newer format, or cannot be written.
    pub fn open(directory: impl AsRef<Path>) -> Result<Cluster, OpenError> {
        Cluster::builder().open(directory)
    }

    /// A cluster with other settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The API server as a `tower` service of HTTP requests.
    pub fn service(&self) -> ApiService {
        ApiService::new(Arc::clone(&self.server))
    }

    /// An ordinary client whose requests stay in this process; its default namespace is `default`.
    ///
    /// Must be called inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// Puts pods of an earlier cluster into this one, with the uid and the status that each of them has. A name that is
    /// taken stays as it is. Blocks as a write does.
    ///
    /// *Assumption*: nobody uses the cluster yet. What a request would check is not checked.
    pub fn put_back_pods(&self, pods: impl IntoIterator<Item = Value>) {
        for pod in pods {
            self.server.put_back_pod(pod);
        }
    }

    /// Serves the API over TLS to clients that present the bearer token, until the returned value is stopped or
    /// dropped. The server keeps keys, token and kubeconfig in the directory of the configuration.
    ///
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The directory cannot be used, what it keeps is damaged, or the address is not free.
    pub fn serve(&self, config: ServeConfig) -> Result<Serving, ServeError> {
        let authority = self.webhook_client_authority()?;
        wire::serve(self.service(), config, &authority)
    }

    /// The authority of the client certificate that this API server shows to admission webhooks, in PEM. It is another one
    /// for each process.
    ///
    /// # Errors
    /// No certificate can be made.
    pub fn webhook_client_authority(&self) -> Result<String, ServeError> {
        let authority = self.server.webhook_client_authority();
        authority.map_err(ServeError::Certificate)
    }

    /// Forgets every event, as a compaction would: each `resourceVersion` handed out so far answers
    /// 410, and open watches end with an in-stream 410. For tests.
    pub fn expire_watches(&self) {
        self.server.expire_watches();
    }

    /// Ends a cluster in a directory: stores what was answered and lets go of the directory. Later
    /// writes fail. Blocks for as long as the disk takes; dropping the last clone does the same.
    pub fn close(&self) {
        self.server.close();
    }

    /// Why the cluster takes no writes any more, when that is so: a disk that failed once is not
    /// written again before a restart. Reads still work.
    pub fn stopped(&self) -> Option<String> {
        self.server.stopped()
    }

    /// Sets the source that answers `GET pods/{name}/log` from now on. Without a source the answer is 503.
    pub fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        self.server.set_pod_logs(logs);
    }
}

/// Settings of a cluster that is not built yet.
#[must_use]
pub struct ClusterBuilder {
    clock: Clock,
    watch_window: usize,
    bookmark_interval: Duration,
    seed: Option<u64>,
    durability: Durability,
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("watch_window", &self.watch_window)
            .field("bookmark_interval", &self.bookmark_interval)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the API server is the one that stamps times; tests give it another clock"
        )]
        let clock: Clock = Arc::new(Timestamp::now);
        let (watch_window, bookmark_interval) = (10_000, Duration::from_secs(60));
        ClusterBuilder {
            clock,
            watch_window,
            bookmark_interval,
            seed: None,
            durability: Durability::Strict,
        }
    }
}

impl ClusterBuilder {
    /// Takes the time of day for metadata from here. Timers follow tokio's clock in any case.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How many events each resource remembers for watches that resume. Default 10,000. Fewer where they have more than
    /// 1 KiB on average.
    pub fn watch_window(mut self, n_events: usize) -> Self {
        self.watch_window = n_events;
        self
    }

    /// Time between the bookmarks of an idle watch. Default 60 seconds.
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.bookmark_interval = interval;
        self
    }

    /// Makes uids and generated names the same in every run. Default: different ones.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// When a write is answered. Default: when it is on the disk. Of no meaning in memory.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Builds the cluster in memory.
    pub fn build(self) -> Cluster {
        let server = Server::in_memory(self.settings());
        Cluster { server }
    }

    /// Opens the cluster that lives in a directory, see [`Cluster::open`].
    ///
    /// # Errors
    /// As [`Cluster::open`].
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Cluster, OpenError> {
        let server = Server::in_directory(directory.as_ref(), self.settings())?;
        Ok(Cluster { server })
    }

    fn settings(self) -> Settings {
        Settings {
            clock: self.clock,
            watch_window: self.watch_window,
            bookmark_interval: self.bookmark_interval,
            seed: self.seed,
            durability: self.durability,
        }
    }
}
