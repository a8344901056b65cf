//! Relays connections of pods to what is behind an address of a Service or a port.
//!
//! A relay copies in both directions with two small buffers: who reads slowly slows the sender, an end of one direction
//! is passed on as such, and each pod has a bounded number of connections open, so that none uses up the node.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, SocketAddrV4},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

use super::{Network, egress, world::Target};

/// Connections that one pod may have open through relays. One more is closed at once.
const MAX_OF_POD: usize = 512;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, because descriptors are used up, say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A relay at one listener. Dropping it ends its connections.
pub(super) struct Relay {
    target: watch::Sender<Target>,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    /// `pod` is the one in whose namespace the listener is.
    pub(super) fn start(
        pod: Option<String>,
        listener: TcpListener,
        target: Target,
        network: Arc<Network>,
        guests: Arc<Guests>,
    ) -> Self {
        let (target, targets) = watch::channel(target);
        let task = tokio::spawn(accept(pod, listener, targets, network, guests));
        Self {
            target,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Sends connections that are yet to come elsewhere.
    pub(super) fn turn(&self, target: Target) {
        self.target.send_if_modified(|known| {
            let is_news = *known != target;
            *known = target;
            is_news
        });
    }
}

/// Where a connection comes from: the pod in whose namespace it was accepted, `None` for the bridge, and its address
/// there.
pub(super) type Guest = (Option<String>, IpAddr);

/// The open connections by the pod that they come from.
#[derive(Debug, Default)]
pub(super) struct Guests {
    open: Mutex<BTreeMap<Guest, Arc<Semaphore>>>,
}

impl Guests {
    /// A place for one more connection; `None` when the pod has as many as it may.
    pub(super) fn admit(&self, from: Guest) -> Option<OwnedSemaphorePermit> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, places| places.available_permits() < MAX_OF_POD);
        let places = open
            .entry(from)
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_OF_POD)));
        Arc::clone(places).try_acquire_owned().ok()
    }
}

async fn accept(
    pod: Option<String>,
    listener: TcpListener,
    targets: watch::Receiver<Target>,
    network: Arc<Network>,
    guests: Arc<Guests>,
) {
    let mut open = JoinSet::new();
    let mut n_accepted: usize = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(place) = guests.admit((pod.clone(), peer.ip())) else {
                    tracing::debug!(%peer, "a pod has too many connections open");
                    refuse(stream);
                    continue;
                };
                n_accepted = n_accepted.wrapping_add(1);
                let at = stream.local_addr().ok();
                let name_server = || network.name_servers().first().copied();
                let to = choose(&targets.borrow(), n_accepted, at, name_server);
                let is_allowed = *targets.borrow() != Target::Original
                    || matches!(peer.ip(), IpAddr::V4(from) if network.has_way_out(from));
                let Some(to) = to.filter(|_| is_allowed) else {
                    refuse(stream);
                    continue;
                };
                let network = Arc::clone(&network);
                open.spawn(async move {
                    relay(stream, to, &network).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection of a pod was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// The endpoints take turns. `at` is the address at which a connection was accepted.
fn choose(
    target: &Target,
    turn: usize,
    at: Option<SocketAddr>,
    name_server: impl FnOnce() -> Option<SocketAddr>,
) -> Option<SocketAddr> {
    match target {
        Target::Original => egress::destination(at?, name_server),
        Target::Host(address) => Some(*address),
        Target::Endpoints(all) => {
            let at = turn.checked_rem(all.len())?;
            all.get(at).copied().map(SocketAddr::V4)
        }
    }
}

/// Resets a connection that leads nowhere: a client that found its end would take it for an empty answer.
fn refuse(stream: TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "a connection is closed, not reset");
    }
}

async fn relay(mut from: TcpStream, to: SocketAddr, network: &Network) {
    let connecting = async {
        match to {
            SocketAddr::V4(to) => network.connect(to).await,
            SocketAddr::V6(_) => TcpStream::connect(to).await,
        }
    };
    let Ok(Ok(mut to)) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await else {
        refuse(from);
        return;
    };
    // Small answers must not wait for a second one.
    drop((from.set_nodelay(true), to.set_nodelay(true)));
    if let Err(error) = copy_bidirectional(&mut from, &mut to).await {
        tracing::trace!(%error, "a connection of a pod broke");
    }
}

/// The listener at an address, in the bridge's namespace or in that of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The uid of the pod; `None` for the bridge.
    pub(super) pod: Option<String>,
    pub(super) address: SocketAddrV4,
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{config::NodeConfig, profile::Profile};

    #[test]
    fn endpoints_take_turns() {
        let all: Vec<SocketAddrV4> = ["10.244.1.2:80", "10.244.1.3:80"]
            .map(|it| it.parse().unwrap())
            .to_vec();
        let target = Target::Endpoints(all.clone());
        let chosen: Vec<_> = (0..3)
            .filter_map(|turn| choose(&target, turn, None, || None))
            .collect();
        let expected = [all[0], all[1], all[0]].map(SocketAddr::V4);
        assert_eq!(chosen, expected);
        let nobody = Target::Endpoints(Vec::new());
        assert_eq!(choose(&nobody, 1, None, || None), None);
        let at = Some(all[0].into());
        let inside = choose(&Target::Original, 1, at, || None);
        assert_eq!(inside, None, "it is inside");
    }

    #[test]
    fn a_pod_has_so_many_connections_and_no_other_pod_has_fewer_by_that() {
        let guests = Guests::default();
        let ip = IpAddr::from([127, 0, 0, 1]);
        let one: Guest = (Some("one".to_owned()), ip);
        let others: [Guest; 3] = [
            (Some("two".to_owned()), ip),
            (None, ip),
            (None, IpAddr::from([10, 244, 1, 3])),
        ];
        let mut places: Vec<_> = (0..MAX_OF_POD)
            .filter_map(|_| guests.admit(one.clone()))
            .collect();
        assert_eq!(places.len(), MAX_OF_POD);
        assert!(guests.admit(one.clone()).is_none());
        for other in &others {
            assert!(guests.admit(other.clone()).is_some());
        }
        places.pop();
        assert!(guests.admit(one.clone()).is_some());
        drop(places);
        drop(guests.admit(one));
        assert_eq!(
            guests.open.lock().unwrap().len(),
            1,
            "nothing is kept of a pod without"
        );
    }

    /// The end of a request is passed on before its answer comes, and the answer after it.
    #[tokio::test]
    async fn a_half_closed_connection_still_brings_its_answer() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let entry = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = entry.local_addr().unwrap();
        let target = Target::Host(server.local_addr().unwrap());
        let config = NodeConfig::new("node", "/nowhere", Vec::new());
        let network = Arc::new(Network::new(config, Profile::None));
        let relay = Relay::start(None, entry, target, network, Arc::default());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut request = Vec::new();
            stream.read_to_end(&mut request).await.unwrap();
            request.reverse();
            stream.write_all(&request).await.unwrap();
        });
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(b"abc").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"cba");
        serving.await.unwrap();
        drop(relay);
    }
    #[tokio::test]
    async fn a_connection_that_leads_nowhere_is_reset() {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = nobody.local_addr().unwrap();
        drop(nobody);
        for target in [Target::Host(closed), Target::Endpoints(Vec::new())] {
            let entry = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = entry.local_addr().unwrap();
            let config = NodeConfig::new("node", "/nowhere", Vec::new());
            let network = Arc::new(Network::new(config, Profile::None));
            let relay = Relay::start(None, entry, target, network, Arc::default());
            let mut client = TcpStream::connect(at).await.unwrap();
            let read = client.read_to_end(&mut Vec::new()).await;
            let error = read.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            drop(relay);
        }
    }
}
