//! The configuration of a node.

use std::{collections::BTreeMap, ffi::OsString, net::SocketAddr, num::NonZeroU64, path::PathBuf};

use crate::{
    images::{ImageMap, UnmappedImages},
    profile::Profile,
};

/// The default of [`NodeConfig::pod_pids_limit`]: more than a program with many threads needs, and so few that a machine,
/// which has 32,768 process ids at least, survives some pods that take all of theirs.
pub const POD_PIDS_LIMIT: Option<NonZeroU64> = NonZeroU64::new(4096);

/// The settings of one process node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The name of the Node object.
    pub name: String,
    /// The directory for everything that the node keeps: `pods/`, `volumes/`, and `logs/` where they stay for ever. Must be
    /// on a local file system that survives a restart if pods shall.
    pub root: PathBuf,
    /// Files and directories of the host that no container sees: at least `root`. Volumes below them are seen at their
    /// mount points.
    pub hidden: Vec<PathBuf>,
    /// The command that ends in [`shim::main`](crate::shim::main): our own binary and its hidden subcommand.
    pub shim_command: Vec<OsString>,
    /// What images mean on this machine.
    pub images: ImageMap,
    /// What happens with images that the map does not have.
    pub unmapped_images: UnmappedImages,
    /// What happens with pods whose PersistentVolumeClaims do not exist.
    pub missing_claims: MissingClaims,
    /// What happens to pods when the node goes away.
    pub lifetime: PodsLifetime,
    /// How long logs stay.
    pub logs: LogsLifetime,
    /// Which Events the node writes.
    pub events: EventVolume,
    /// The isolation to use; `None` = the best one that a trial shows to work.
    pub profile: Option<Profile>,
    /// The largest number of pods at a time, published as allocatable `pods`.
    pub max_pods: u32,
    /// How many processes and threads a pod may have at a time, where the node can make cgroups; `None`: as many as the
    /// machine has. A kubelet's `podPidsLimit`.
    pub pod_pids_limit: Option<NonZeroU64>,
    /// Further allocatable resources, or other amounts of `cpu` and `memory`, as Kubernetes quantities.
    pub resources: BTreeMap<String, String>,
    /// Further labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Variables that every container gets.
    pub pod_env: Vec<(String, String)>,
    /// Where pods reach the API server (`KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`). `None`: they do not.
    pub api_server: Option<SocketAddr>,
    /// The port on which API servers request logs: that of a [`LogListener`](crate::LogListener).
    /// `None`: API servers cannot request logs.
    pub log_port: Option<u16>,
    /// Whether all pods have a network of their own, except those that ask for the host's. Otherwise pods have one whose
    /// image says so ([`Image::network`](crate::images::Image)).
    pub pod_network: bool,
    /// Where pods with a way out ask for names. Empty: the name servers of the host, as they are at that time.
    pub name_servers: Vec<SocketAddr>,
    /// How many pods may be in the act of starting at the same time.
    pub n_concurrent_starts: usize,
}

impl NodeConfig {
    /// The defaults: pods die with the node, 110 pods of 4,096 processes, twice as many concurrent starts as processors.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        root: impl Into<PathBuf>,
        shim_command: Vec<OsString>,
    ) -> Self {
        let root = root.into();
        Self {
            name: name.into(),
            hidden: vec![root.clone()],
            root,
            shim_command,
            images: ImageMap::default(),
            unmapped_images: UnmappedImages::Run,
            missing_claims: MissingClaims::Wait,
            lifetime: PodsLifetime::DieWithNode,
            logs: LogsLifetime::UntilPodDeleted,
            events: EventVolume::Problems,
            profile: None,
            max_pods: 110,
            pod_pids_limit: POD_PIDS_LIMIT,
            resources: BTreeMap::new(),
            labels: BTreeMap::new(),
            pod_env: Vec::new(),
            api_server: None,
            log_port: None,
            pod_network: false,
            name_servers: Vec::new(),
            n_concurrent_starts: 2 * n_processors(),
        }
    }
}

/// How many processors this process may use.
pub(crate) fn n_processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What happens with pods whose PersistentVolumeClaims do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingClaims {
    /// They wait for the claims, as on Kubernetes.
    Wait,
    /// They get directories all the same: where no user could make the claims.
    Make,
}

/// What happens to pods when the node goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsLifetime {
    /// Their shims stop them within their grace. What is on disk about them survives the death of any process, and not a
    /// loss of power: their cluster must be one in memory.
    DieWithNode,
    /// The pods run on; the next node takes them over. What is known of their containers survives a loss of power.
    OutliveNode,
}

/// How long logs stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogsLifetime {
    /// Until the pod object is deleted, as on Kubernetes: the logs are in the pod's directory.
    UntilPodDeleted,
    /// Until the files are removed by hand, in the layout of a kubelet:
    /// `logs/<namespace>_<pod>_<uid>/<container>/<attempt>.log`.
    Forever,
}

/// Which Events the node writes; each one costs a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventVolume {
    /// Only what went wrong, and kills.
    Problems,
    /// Starts, too.
    All,
}
