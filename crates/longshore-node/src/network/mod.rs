//! Networks of pods: a network namespace each, in which a pod has one address, and all ports for itself.
//!
//! The namespaces and the bridge between them belong to the [`keeper`], a process of the node that stays in none of the
//! host's networks. Nothing of it is visible on the host, and no packet filter is used. What pods need from outside of
//! their networks goes through sockets that the keeper makes and the node serves ([`relay`]): the addresses of Services,
//! the API server, ports of the host that an image lists, and other networks where an image says so ([`egress`]).
//! Names are in a hosts file for each pod ([`hosts`]), which follows Services and EndpointSlices ([`world`]); the
//! variables of containers are those of the moment at which the pod starts ([`links`]).

mod channel;
mod egress;
mod hosts;
mod keeper;
mod link;
mod links;
mod lost;
mod names;
mod namespace;
mod netlink;
mod protocol;
mod relay;
mod serve;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::{Notify, watch},
};

use self::{
    link::Link,
    protocol::Ask,
    world::{OnHost, World},
};
use crate::{config::NodeConfig, profile::Profile};

pub(crate) use self::{
    keeper::{Rights, keep},
    names::{ApiServer, equip, hostname, is_wanted},
    namespace::{join, join_that_of},
    serve::serve,
};

/// The bridge, where the node answers for Services.
const BRIDGE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
/// The length of the prefix of the pods' network.
const PREFIX: u8 = 16;
/// The network of Services' addresses, as the API server assigns them.
const SERVICES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const SERVICES_PREFIX: u8 = 16;
/// The first address of Services, and the port: here pods reach the API server.
const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const API_PORT: u16 = 443;

/// How many addresses pods may have: the network without its own address, the bridge's, and that of broadcasts.
pub(crate) const N_ADDRESSES: u32 = (1 << (32 - PREFIX)) - 3;

/// How long a pod waits until the names of Services have been read.
const NAMES_TIMEOUT: Duration = Duration::from_secs(30);

/// The address of a pod at a place below [`N_ADDRESSES`].
pub(crate) fn address(place: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(BRIDGE) + 1 + place)
}

/// Whether this is the address of a pod that has a network of its own.
pub(crate) fn is_of_a_pod(it: Ipv4Addr) -> bool {
    (address(0)..=address(N_ADDRESSES - 1)).contains(&it)
}

/// The parent in `/proc/PID/stat`. A name may have spaces and parentheses.
fn parent(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// An address to connect to, of a server that listens here.
fn reachable(it: SocketAddr) -> SocketAddr {
    if it.ip().is_unspecified() {
        SocketAddr::from((Ipv4Addr::LOCALHOST, it.port()))
    } else {
        it
    }
}

/// Whether Services may have this address.
fn is_of_a_service(it: Ipv4Addr) -> bool {
    let mask = u32::MAX << (32 - SERVICES_PREFIX);
    u32::from(it) & mask == u32::from(SERVICES)
}

/// A pod that has a network, as the node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodFacts {
    /// The name of the object.
    name: String,
    names: hosts::OwnNames,
    /// Ports of the host that are shown at the pod's own loopback address.
    host_ports: BTreeSet<u16>,
    /// Whether the node relays to the host's network what the pod sends to other networks.
    has_way_out: bool,
    /// The pod's directory, which holds its hosts file.
    dir: PathBuf,
    /// The namespace is there, and the hosts file is written.
    is_attached: bool,
    /// The keeper was killed since, or has lost the pod: the namespace is left, without a link to the bridge.
    is_cut_off: bool,
    /// The shim.
    holder: Option<i32>,
}

/// The networks of one node's pods.
pub(crate) struct Network {
    config: NodeConfig,
    profile: Profile,
    link: tokio::sync::Mutex<Option<Link>>,
    /// How many keepers were started: the sockets of an earlier one lead nowhere.
    n_keepers: AtomicU64,
    pods: Mutex<Pods>,
    /// Pods have come or gone.
    changed: Notify,
    /// `None` until Services and EndpointSlices have been read.
    world: watch::Sender<Option<Arc<World>>>,
    /// Where the API server listens on the host's network.
    api_server: watch::Sender<Option<SocketAddr>>,
}

#[derive(Debug, Default)]
struct Pods {
    by_uid: BTreeMap<String, PodFacts>,
    /// Those that share the network of the machine: namespace and address.
    on_host: BTreeMap<String, (String, Ipv4Addr)>,
    /// Ended, but still attached.
    gone: Vec<String>,
}

impl Pods {
    fn on_host(&self) -> OnHost {
        let pods = self.on_host.values();
        pods.map(|(namespace, address)| (*address, namespace.clone()))
            .collect()
    }

    /// Takes down that there is a new keeper, which knows none of them. Returns a process of one that has a network.
    fn cut_off(&mut self) -> Option<i32> {
        let mut survivor = None;
        for facts in self.by_uid.values_mut().filter(|it| it.is_attached) {
            (facts.is_attached, facts.is_cut_off) = (false, true);
            let known = survivor.or(facts.holder);
            survivor = known.or_else(|| lost::shim_of(&facts.dir));
        }
        survivor
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network")
            .field("pods", &self.pods)
            .finish_non_exhaustive()
    }
}

impl Network {
    pub(crate) fn new(config: NodeConfig, profile: Profile) -> Self {
        let api_server = config.api_server.map(reachable);
        Self {
            config,
            profile,
            link: tokio::sync::Mutex::default(),
            n_keepers: AtomicU64::new(0),
            pods: Mutex::default(),
            changed: Notify::new(),
            world: watch::channel(None).0,
            api_server: watch::channel(api_server).0,
        }
    }

    /// Pods reach the API server that listens here, on the host's network.
    pub(crate) fn set_api_server(&self, address: SocketAddr) {
        self.api_server.send_replace(Some(reachable(address)));
    }

    /// Where a pod of this address reaches the API server; `None` for one that shares the host's network, and without
    /// an API server.
    pub(crate) fn api_server_of(&self, pod_ip: Ipv4Addr) -> Option<ApiServer> {
        let on_host = *self.api_server.borrow();
        let on_host = on_host.filter(|_| is_of_a_pod(pod_ip))?;
        let world = self.world.borrow();
        let address = world.as_ref().map_or(API_SERVICE, |it| it.api_address());
        Some(ApiServer {
            on_host,
            inside: SocketAddrV4::new(address, API_PORT),
        })
    }

    /// Whether the pod of this address may talk to other networks.
    fn has_way_out(&self, from: Ipv4Addr) -> bool {
        let pods = self.pods();
        let mut pods = pods.by_uid.values().filter(|it| it.has_way_out);
        pods.any(|it| it.names.address == from)
    }

    /// Where pods with a way out ask for names.
    fn name_servers(&self) -> Vec<SocketAddr> {
        let given = &self.config.name_servers;
        if given.is_empty() {
            egress::name_servers()
        } else {
            given.clone()
        }
    }

    /// Takes up a pod that has an address of the pod network, before its namespace is made. `is_attached`: an earlier
    /// node has made it.
    pub(crate) fn register(
        &self,
        uid: &str,
        pod: &Pod,
        ip: Ipv4Addr,
        dir: &Path,
        is_attached: bool,
    ) {
        let facts = PodFacts {
            name: pod.metadata.name.clone().unwrap_or_default(),
            names: names::own(pod, ip),
            host_ports: names::host_ports(pod, &self.config.images),
            has_way_out: names::has_way_out(pod, &self.config.images),
            dir: dir.to_owned(),
            is_attached,
            is_cut_off: false,
            holder: None,
        };
        self.pods().by_uid.insert(uid.to_owned(), facts);
        self.changed.notify_one();
    }

    /// Takes up a pod that shares the network of the machine, and has this address there.
    pub(crate) fn register_on_host(&self, uid: &str, namespace: String, ip: Ipv4Addr) {
        self.pods().on_host.insert(uid.to_owned(), (namespace, ip));
        self.relay_again(ip);
    }

    /// Wakes the relays where an EndpointSlice has the address. Where none has, they are woken when that slice comes.
    fn relay_again(&self, ip: Ipv4Addr) {
        let world = self.world.borrow();
        if world.as_ref().is_some_and(|it| it.leads_to(ip)) {
            self.changed.notify_one();
        }
    }

    /// A container of the pod runs. The parent of its first process is the shim, which lives as long as the pod and shows
    /// the namespace to a keeper that knows nothing of it.
    pub(crate) fn set_holder(&self, uid: &str, init: i32) {
        let mut pods = self.pods();
        if let Some(facts) = pods.by_uid.get_mut(uid)
            && let Ok(stat) = std::fs::read_to_string(format!("/proc/{init}/stat"))
        {
            facts.holder = parent(&stat);
        }
    }

    /// A pod has ended for good: its network is removed, and no Service leads to its address.
    pub(crate) fn forget(&self, uid: &str) {
        let on_host = self.pods().on_host.remove(uid);
        if let Some((_, ip)) = on_host {
            self.relay_again(ip);
        }
        let mut pods = self.pods();
        if pods.by_uid.remove(uid).is_some() {
            pods.gone.push(uid.to_owned());
            self.changed.notify_one();
        }
    }

    /// Makes the namespace and the hosts file of a registered pod, where they are missing; `None` for a pod that shares
    /// the host's network.
    ///
    /// # Errors
    /// The kernel refuses, or the names of Services cannot be read.
    pub(crate) async fn attach(&self, uid: &str) -> io::Result<Option<OwnedFd>> {
        let Some(facts) = self.pods().by_uid.get(uid).cloned() else {
            return Ok(None);
        };
        let world = self.world_when_read().await?;
        let names = world.names(self.has_api_server());
        let lines = hosts::render(&facts.names, &names);
        hosts::write(&facts.dir.join(names::HOSTS), &lines)?;
        let resolver = hosts::resolver(facts.has_way_out.then_some(BRIDGE));
        hosts::write(&facts.dir.join(names::RESOLVER), &resolver)?;
        let namespace = self.attach_known(uid, &facts).await?;
        // What has changed in between reaches the file now.
        self.changed.notify_one();
        Ok(Some(namespace))
    }

    /// The variables with which the containers of a pod find Services. A pod that shares the host's network, where the
    /// addresses of Services lead nowhere, has none.
    ///
    /// # Errors
    /// The Services of the cluster cannot be read.
    pub(crate) async fn links_of(
        &self,
        pod: &Pod,
        ip: Ipv4Addr,
    ) -> io::Result<Vec<(String, String)>> {
        if !is_of_a_pod(ip) {
            return Ok(Vec::new());
        }
        let spec = pod.spec.as_ref();
        let has_links = spec.and_then(|it| it.enable_service_links) != Some(false);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let world = self.world_when_read().await?;
        Ok(world.variables(namespace, has_links))
    }

    async fn world_when_read(&self) -> io::Result<Arc<World>> {
        let mut world = self.world.subscribe();
        tokio::time::timeout(NAMES_TIMEOUT, world.wait_for(Option::is_some))
            .await
            .map_err(|_| io::Error::other("the Services of the cluster have not been read"))?
            .map(|world| world.clone().unwrap_or_default())
            .map_err(io::Error::other)
    }

    async fn attach_known(&self, uid: &str, facts: &PodFacts) -> io::Result<OwnedFd> {
        // A node that was started since knows no process of a pod before its shim has told one.
        let holder = if facts.is_cut_off {
            facts.holder.or_else(|| lost::shim_of(&facts.dir))
        } else {
            None
        };
        let attach = Ask::Attach {
            pod: uid.to_owned(),
            address: facts.names.address,
            has_way_out: facts.has_way_out,
            holder,
        };
        let (_, namespace) = self.ask(&attach).await?;
        if let Some(facts) = self.pods().by_uid.get_mut(uid) {
            (facts.is_attached, facts.is_cut_off) = (true, false);
        }
        namespace.ok_or_else(no_descriptor)
    }

    /// Removes the networks that an earlier node has left of pods that no longer exist. Call when all pods are
    /// registered.
    pub(crate) async fn sweep(&self) {
        if let Err(error) = self.try_sweep().await {
            tracing::warn!(%error, "cannot remove what is left of pods' networks");
        }
    }

    async fn try_sweep(&self) -> io::Result<()> {
        {
            let mut link = self.link.lock().await;
            if link.is_none() {
                *link = Link::find(&self.dir())?;
            }
            if link.is_none() {
                return Ok(());
            }
        }
        for pod in self.attached().await? {
            if !self.pods().by_uid.contains_key(&pod) {
                self.ask(&Ask::Detach { pod }).await?;
            }
        }
        Ok(())
    }

    /// Connects to a server at the address of a pod: from the bridge where the pod has a network of its own.
    pub(crate) async fn connect(&self, to: SocketAddrV4) -> io::Result<TcpStream> {
        if !is_of_a_pod(*to.ip()) {
            return TcpStream::connect(to).await;
        }
        self.socket(None).await?.connect(to.into()).await
    }

    /// Connects to a server at the loopback address of a pod that has a network of its own.
    async fn connect_within(&self, uid: &str, port: u16) -> io::Result<TcpStream> {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        self.socket(Some(uid)).await?.connect(to.into()).await
    }

    async fn socket(&self, pod: Option<&str>) -> io::Result<TcpSocket> {
        let pod = pod.map(str::to_owned);
        let (_, socket) = self.ask(&Ask::Socket { pod }).await?;
        let socket = socket.ok_or_else(no_descriptor)?;
        Ok(TcpSocket::from_std_stream(socket.into()))
    }

    async fn ask(&self, ask: &Ask) -> io::Result<(protocol::Answer, Option<OwnedFd>)> {
        let mut link = self.link.lock().await;
        let mut broken = None;
        // A keeper that was about to end may have taken the connection.
        for _ in 0..2 {
            let open = match link.take() {
                Some(open) => open,
                None => self.open()?,
            };
            let open = link.insert(open);
            match open.ask(ask).await {
                Ok((answer, descriptors)) => {
                    return match answer.error {
                        Some(why) => Err(io::Error::other(why)),
                        None => Ok((answer, descriptors.into_iter().next())),
                    };
                }
                Err(error) => {
                    *link = None;
                    broken = Some(error);
                }
            }
        }
        Err(broken.unwrap_or_else(|| io::Error::other("no answer")))
    }

    fn open(&self) -> io::Result<Link> {
        if let Some(found) = Link::find(&self.dir())? {
            return Ok(found);
        }
        self.n_keepers.fetch_add(1, Ordering::Relaxed);
        let survivor = self.pods().cut_off();
        if survivor.is_some() {
            tracing::warn!(
                "the keeper of pods' networks was killed: connecting running pods again"
            );
            self.changed.notify_one();
        }
        Link::start(&self.config, self.profile, &self.dir(), survivor)
    }

    fn dir(&self) -> PathBuf {
        self.config.root.join("network")
    }

    fn has_api_server(&self) -> bool {
        self.api_server.borrow().is_some()
    }

    fn pods(&self) -> MutexGuard<'_, Pods> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a pod, and the way to it.
#[derive(Clone, Debug)]
pub(crate) struct PodAddress {
    pub(crate) ip: Ipv4Addr,
    pub(crate) network: Arc<Network>,
}

impl PodAddress {
    /// Connects to a port of the pod, or of another host where one is named.
    pub(crate) async fn connect(&self, host: Option<&str>, port: u16) -> io::Result<TcpStream> {
        let ip = host.map_or(Ok(self.ip), |host| host.parse::<Ipv4Addr>());
        match (ip, host) {
            (Ok(ip), _) => self.network.connect(SocketAddrV4::new(ip, port)).await,
            (Err(_), host) => TcpStream::connect((host.unwrap_or_default(), port)).await,
        }
    }

    /// Connects to a port at the loopback address of the pod with this uid: the host's where it shares the host's network.
    pub(crate) async fn connect_within(&self, uid: &str, port: u16) -> io::Result<TcpStream> {
        if is_of_a_pod(self.ip) {
            self.network.connect_within(uid, port).await
        } else {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await
        }
    }
}

impl std::fmt::Display for PodAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.ip.fmt(f)
    }
}

fn no_descriptor() -> io::Error {
    io::Error::other("the keeper of pods' networks is of another version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_an_address_of_the_network_and_none_is_the_bridges() {
        assert_eq!(address(0), Ipv4Addr::new(10, 244, 0, 2));
        assert_eq!(address(N_ADDRESSES - 1), Ipv4Addr::new(10, 244, 255, 254));
        for (it, expected) in [
            (BRIDGE, false),
            ([10, 244, 255, 255].into(), false),
            ([10, 243, 255, 255].into(), false),
            ([10, 244, 0, 2].into(), true),
        ] {
            assert_eq!(is_of_a_pod(it), expected, "{it}");
        }
    }

    #[test]
    fn the_parent_stands_behind_the_name() {
        for (stat, expected) in [
            ("12 (longshore) S 7 12 12", Some(7)),
            ("12 (a) 1 (b) S 7 12", Some(7)),
            ("12 (a", None),
            ("", None),
        ] {
            assert_eq!(parent(stat), expected, "{stat}");
        }
    }

    #[test]
    fn services_have_addresses_of_their_own() {
        for (it, expected) in [
            (API_SERVICE, true),
            ([10, 96, 255, 255].into(), true),
            ([10, 97, 0, 1].into(), false),
            (BRIDGE, false),
        ] {
            assert_eq!(is_of_a_service(it), expected, "{it}");
        }
    }
}
