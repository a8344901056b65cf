//! The node: registers itself, watches the pods bound to it, and starts an actor for each.

mod way_in;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        events::{Event as KubeEvent, EventType, Reporter},
        watcher as watch_pods,
        watcher::{self, Event},
    },
};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    addresses::{Addresses, Pool},
    cgroups::Cgroups,
    claims,
    config::{LogsLifetime, NodeConfig, PodsLifetime},
    earlier_layout,
    env::HostFacts,
    followed::Followed,
    host_ports::HostPorts,
    left_behind,
    log_book::{AttemptWatch, LogBook, choose},
    logs::{self, LogError, LogOptions},
    network::{self, Network, PodAddress},
    pod::{
        actor::{Actor, Ended, News},
        directory,
        publish::PodRef,
        security::Powers,
        shim_forks::ShimForks,
    },
    private_dir,
    profile::{self, Profile},
    recorder::Recorder,
    register,
    shim::{
        protocol::{AttemptId, Command},
        record::{attempt_dir, beside},
    },
};

/// The address of the node, and of pods that ask for the host's network.
const HOST_IP: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The longest note that API servers take.
const NOTE_BYTES: usize = 1024;
/// How many images without an entry are remembered; beyond that, each is told once more.
const MAX_TOLD_IMAGES: usize = 4096;
/// Commands of clients that wait for the actor of a pod.
const ASKED: usize = 16;

/// The node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The directory cannot be used.
    #[error("cannot use {} for the process node", path.display())]
    Root {
        /// `NodeConfig::root` or a directory below it.
        path: PathBuf,
        /// Why the directory cannot be used.
        source: io::Error,
    },
    /// The name of an image map's or shim's command is missing.
    #[error("the node has no shim command: expected our own binary and its hidden subcommand")]
    NoShimCommand,
}

/// What all actors of a node share.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) client: Client,
    pub(crate) profile: Profile,
    pub(crate) host: HostFacts,
    pub(crate) shims: ShimForks,
    /// What the node may give to containers.
    pub(crate) powers: Powers,
    /// Where limits of memory and processes can be set, if they can.
    pub(crate) cgroups: Cgroups,
    /// The objects that volumes of running pods show.
    pub(crate) followed: Arc<Followed>,
    /// The ports of the host that pods have taken.
    pub(crate) host_ports: HostPorts,
    /// Told when a pod no longer uses its claims.
    pub(crate) claims_are_left: Notify,
    starts: Arc<Semaphore>,
    recorder: Recorder,
    pub(crate) network: Arc<Network>,
    addresses: Addresses,
    books: Mutex<BTreeMap<(String, String), Book>>,
    told_images: Mutex<BTreeSet<String>>,
}

/// The logs of one pod.
#[derive(Clone, Debug)]
struct Book {
    uid: String,
    book: watch::Receiver<LogBook>,
    commands: mpsc::Sender<Command>,
    address: Ipv4Addr,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn pods_dir(&self) -> PathBuf {
        self.config.root.join("pods")
    }

    /// The directory of all claims.
    pub(crate) fn volumes_dir(&self) -> PathBuf {
        self.config.root.join("volumes")
    }

    /// Where the log of a new attempt will be, once it says anything: with all that goes with the pod, or in the layout of
    /// a kubelet.
    pub(crate) fn log_path(&self, pod: &PodRef, id: &AttemptId) -> PathBuf {
        match self.config.logs {
            LogsLifetime::UntilPodDeleted => {
                beside(&attempt_dir(&self.pods_dir().join(&pod.uid), id), "log")
            }
            LogsLifetime::Forever => {
                let dir = self.config.root.join("logs").join(pod.log_directory());
                let dir = dir.join(&id.container);
                dir.join(format!("{}.log", id.attempt))
            }
        }
    }

    /// The log of an attempt, if it has said anything.
    pub(crate) fn written_log(&self, pod: &PodRef, id: &AttemptId) -> PathBuf {
        let earlier = earlier_layout::log(&self.config, pod, id);
        earlier.unwrap_or_else(|| self.log_path(pod, id))
    }

    /// The address of a pod: the host's for a pod that asks for the host's network, else its own, which also says
    /// whether the pod has a network of its own.
    pub(crate) fn pod_ip(&self, pod: &Pod) -> Ipv4Addr {
        let is_hosts = pod
            .spec
            .as_ref()
            .is_some_and(|it| it.host_network == Some(true));
        if is_hosts {
            return HOST_IP;
        }
        let published = pod
            .status
            .as_ref()
            .and_then(|it| it.pod_ip.as_ref()?.parse().ok());
        let is_wanted = || network::is_wanted(pod, &self.config.images, self.config.pod_network);
        // A pod keeps what it was given, whatever the image map says by now.
        let has_network = match published {
            Some(ip) if network::is_of_a_pod(ip) => true,
            Some(ip) if Pool::Loopback.owns(ip) => false,
            Some(_) | None => is_wanted() && self.profile != Profile::None,
        };
        let pool = if has_network {
            Pool::PodNetwork
        } else {
            Pool::Loopback
        };
        self.addresses
            .assign(pool, &pod.uid().unwrap_or_default(), published)
    }

    /// The address of a pod, and the way to it.
    pub(crate) fn pod_address(&self, ip: Ipv4Addr) -> PodAddress {
        PodAddress {
            ip,
            network: Arc::clone(&self.network),
        }
    }

    /// Waits until one more pod may start.
    pub(crate) async fn start_permit(&self) -> OwnedSemaphorePermit {
        #[expect(clippy::expect_used, reason = "the semaphore is never closed")]
        self.starts.clone().acquire_owned().await.expect("open")
    }

    /// Publishes an Event about a pod: best effort.
    pub(crate) fn announcement(
        &self,
        pod: &Pod,
        kind: EventType,
        reason: &str,
        note: String,
    ) -> impl Future<Output = ()> + Send + 'static {
        let reference = pod.object_ref(&());
        let event = KubeEvent {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note[..note.floor_char_boundary(NOTE_BYTES)].to_owned()),
            action: reason.to_owned(),
            secondary: None,
        };
        let recorder = self.recorder.clone();
        async move {
            if let Err(error) = recorder.publish(&event, &reference).await {
                tracing::debug!(%error, reason = event.reason, "Event not published");
            }
        }
    }

    /// Whether this run of the node meets an image that has no entry in the map for the first time.
    pub(crate) fn is_first_use(&self, image: &str) -> bool {
        let told = self.told_images.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        if told.contains(image) {
            return false;
        }
        if told.len() >= MAX_TOLD_IMAGES {
            told.clear();
        }
        told.insert(image.to_owned())
    }

    fn books(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Book>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process node.
#[derive(Clone, Debug)]
pub struct Node {
    shared: Arc<Shared>,
}

impl Node {
    /// Makes the node's directory and finds out how far pods can be isolated here.
    ///
    /// # Errors
    /// The directory cannot be made, or there is no shim command.
    pub async fn new(client: Client, config: NodeConfig) -> Result<Self, NodeError> {
        if config.shim_command.is_empty() {
            return Err(NodeError::NoShimCommand);
        }
        let path = config.root.clone();
        let root = |source| NodeError::Root {
            path: path.clone(),
            source,
        };
        let kept_logs = match config.logs {
            LogsLifetime::UntilPodDeleted => None,
            LogsLifetime::Forever => Some("logs"),
        };
        for dir in ["pods"].into_iter().chain(kept_logs) {
            // Other users must neither command a shim nor read the specifications of pods.
            private_dir::make(&config.root.join(dir)).map_err(root)?;
        }
        // Mounts and sockets are found by this path from other working directories.
        let config = NodeConfig {
            root: config.root.canonicalize().map_err(root)?,
            ..config
        };
        let profile = match config.profile {
            Some(profile) => profile,
            None => profile::detect(&config).await,
        };
        let reporter = Reporter {
            controller: format!("{}node", longshore_api::REPORTING_CONTROLLER_PREFIX),
            instance: Some(config.name.clone()),
        };
        let host = HostFacts {
            ip: HOST_IP.to_string(),
            pod_ip: HOST_IP.to_string(),
            allocatable: register::allocatable(&config),
            links: Vec::new(),
        };
        let cgroups = Cgroups::find(config.pod_pids_limit);
        let network = Arc::new(Network::new(config.clone(), profile));
        let shared = Shared {
            powers: Powers::of_this_process(profile),
            cgroups,
            followed: Arc::default(),
            host_ports: HostPorts::default(),
            claims_are_left: Notify::new(),
            network,
            starts: Arc::new(Semaphore::new(config.n_concurrent_starts.max(1))),
            recorder: Recorder::new(client.clone(), reporter),
            addresses: Addresses::default(),
            books: Mutex::default(),
            told_images: Mutex::default(),
            shims: ShimForks::new(&config),
            config,
            client,
            profile,
            host,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// How far pods are isolated.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.shared.profile
    }

    /// Whether memory limits of containers are enforced.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        self.shared.cgroups.limits_memory()
    }

    /// Whether the number of processes of pods is limited.
    #[must_use]
    pub fn limits_processes(&self) -> bool {
        self.shared.cgroups.limits_processes()
    }

    /// Runs pods until `shutdown`.
    ///
    /// # Flow
    /// Registers the Node and keeps its Lease; starts an actor for every pod that is bound to it,
    /// which takes over what an earlier node left behind.
    ///
    /// # Guarantees
    /// An attempt of a container is started once, whatever dies in between. With
    /// [`PodsLifetime::DieWithNode`](crate::PodsLifetime) it returns when the pods' processes have ended.
    ///
    /// # Assumptions
    /// No other node uses the same name or the same directory.
    pub async fn run(&self, shutdown: CancellationToken) {
        let shared = &self.shared;
        let registration = register::keep(
            shared.client.clone(),
            shared.config.clone(),
            shared.profile,
            shared.host.ip.clone(),
            shutdown.clone(),
        );
        let network = network::serve(Arc::clone(shared), shutdown.clone());
        // On the heap, or every caller's future would carry them along.
        tokio::join!(
            Box::pin(registration),
            Box::pin(network),
            Box::pin(claims::collect(Arc::clone(shared), shutdown.clone())),
            Box::pin(self.run_pods(shutdown))
        );
        shared.shims.stop().await;
    }

    async fn run_pods(&self, shutdown: CancellationToken) {
        if self.shared.config.lifetime == PodsLifetime::DieWithNode {
            left_behind::end_all(&self.shared.pods_dir()).await;
        }
        let api = Api::<Pod>::all(self.shared.client.clone());
        let selector = format!("spec.nodeName={}", self.shared.config.name);
        let events =
            watch_pods(api, watcher::Config::default().fields(&selector)).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut pods = Pods::new(self.shared.clone(), shutdown.clone());
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(event) = events.next() => match event {
                    Ok(event) => pods.on_event(event).await,
                    Err(error) => tracing::warn!(%error, "the watch of pods broke, connecting again"),
                },
                Some(ended) = pods.tasks.join_next() => pods.on_end(ended),
            }
        }
        while pods.tasks.join_next().await.is_some() {}
    }

    /// The log of a container.
    ///
    /// # Errors
    /// There is no such pod, container or attempt here, or the file cannot be read.
    pub async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        container: Option<&str>,
        options: &LogOptions,
    ) -> Result<impl Stream<Item = Result<Bytes, LogError>> + Send + use<>, LogError> {
        let key = (namespace.to_owned(), pod.to_owned());
        let entry = self.shared.books().get(&key).cloned();
        let Book { uid, book, .. } = entry.ok_or_else(|| LogError::NoPod {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
        })?;
        let (container, attempt) = choose(&book.borrow(), pod, container, options.previous)?;
        let this = PodRef {
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
            uid,
        };
        let id = AttemptId {
            container: container.clone(),
            attempt,
        };
        let path = self.shared.written_log(&this, &id);
        logs::stream(
            &path,
            options,
            AttemptWatch {
                book,
                container,
                attempt,
            },
        )
        .await
    }
}

/// The actors by the uid of their pods.
struct Pods {
    shared: Arc<Shared>,
    shutdown: CancellationToken,
    actors: BTreeMap<String, Mailbox>,
    tasks: JoinSet<(String, Ended)>,
    /// What the list under way has shown; `None` when no list is.
    listed: Option<Vec<Pod>>,
}

struct Mailbox {
    key: (String, String),
    news: watch::Sender<News>,
}

impl Pods {
    fn new(shared: Arc<Shared>, shutdown: CancellationToken) -> Self {
        let (actors, tasks) = (BTreeMap::new(), JoinSet::new());
        Self {
            shared,
            shutdown,
            actors,
            tasks,
            listed: None,
        }
    }

    async fn on_event(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) => self.present(pod),
            Event::Delete(pod) => self.gone(&pod.uid().unwrap_or_default()),
            Event::Init => self.listed = Some(Vec::new()),
            Event::InitApply(pod) => self.listed.get_or_insert_default().push(pod),
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.take_list(listed).await;
            }
        }
    }

    async fn take_list(&mut self, mut listed: Vec<Pod>) {
        let uids: BTreeSet<String> = listed.iter().filter_map(Pod::uid).collect();
        let actors = self.actors.keys();
        let missing: Vec<_> = actors.filter(|uid| !uids.contains(*uid)).cloned().collect();
        missing.iter().for_each(|uid| self.gone(uid));
        // Pods that have begun come first, as they keep their ports of the host; of the others, the older ones.
        let pods_dir = self.shared.pods_dir();
        listed.sort_by_cached_key(|pod| {
            let has_begun = pods_dir.join(pod.uid().unwrap_or_default()).is_dir();
            (!has_begun, pod.creation_timestamp())
        });
        listed.into_iter().for_each(|pod| self.present(pod));
        self.shared.network.sweep().await;
        self.sweep(&uids).await;
    }

    fn present(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        let key = (pod.namespace().unwrap_or_default(), pod.name_any());
        let pod = Arc::new(pod);
        if let Some(mailbox) = self.actors.get(&uid) {
            mailbox.news.send_replace(News::Present(pod));
            return;
        }
        // A watch may merge a deletion and the creation of the next pod of that name.
        let of_key =
            |(uid, mailbox): (&String, &Mailbox)| (mailbox.key == key).then(|| uid.clone());
        let older: Vec<_> = self.actors.iter().filter_map(of_key).collect();
        older.iter().for_each(|uid| self.gone(uid));
        let (news, inbox) = watch::channel(News::Present(pod.clone()));
        let (told, book) = watch::channel(LogBook::new());
        let (commands, asked) = mpsc::channel(ASKED);
        match Actor::new(self.shared.clone(), pod, inbox, told, asked) {
            Ok(actor) => {
                let address = actor.pod_ip();
                let (shutdown, id) = (self.shutdown.clone(), uid.clone());
                self.tasks.spawn(async move {
                    let ended = actor.run(shutdown).await;
                    (id, ended)
                });
                self.shared.books().insert(
                    key.clone(),
                    Book {
                        uid: uid.clone(),
                        book,
                        commands,
                        address,
                    },
                );
                self.actors.insert(uid, Mailbox { key, news });
            }
            Err(error) => {
                tracing::error!(pod = key.1, %error, "cannot read what is kept of a pod; it is left alone");
            }
        }
    }

    fn gone(&mut self, uid: &str) {
        // Not only once it has ended: the pod that gets its ports may be the next event.
        self.shared.host_ports.release(uid);
        if let Some(mailbox) = self.actors.get(uid) {
            mailbox.news.send_replace(News::Gone);
        }
    }

    fn on_end(&mut self, ended: Result<(String, Ended), tokio::task::JoinError>) {
        match ended {
            // The pod may run on, with its network and its ports.
            Ok((_, Ended::WithNode)) => {}
            Ok((uid, Ended::WithPod)) => {
                self.shared.network.forget(&uid);
                self.shared.addresses.release(&uid);
                self.shared.host_ports.release(&uid);
                self.shared.claims_are_left.notify_one();
                if let Some(mailbox) = self.actors.remove(&uid) {
                    self.shared
                        .books()
                        .retain(|key, book| *key != mailbox.key || book.uid != uid);
                }
            }
            Err(error) => tracing::error!(%error, "the actor of a pod broke"),
        }
    }

    /// Ends what an earlier node left of pods that no longer exist.
    async fn sweep(&mut self, listed: &BTreeSet<String>) {
        let entries = fs::read_dir(self.shared.pods_dir())
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let Ok(uid) = entry.file_name().into_string() else {
                continue;
            };
            if listed.contains(&uid) || self.actors.contains_key(&uid) {
                continue;
            }
            let (dir, shared) = (entry.path(), self.shared.clone());
            self.tasks.spawn(async move {
                if let Err(error) = end_orphan(&shared, &dir, &uid).await {
                    tracing::warn!(uid, %error, "cannot remove what is left of a pod");
                }
                (uid, Ended::WithPod)
            });
        }
    }
}

async fn end_orphan(shared: &Shared, dir: &Path, uid: &str) -> io::Result<()> {
    left_behind::end_one(dir).await?;
    shared.cgroups.forget(uid, []);
    directory::remove(dir, uid, &earlier_layout::log_dirs(&shared.config, uid))
}
