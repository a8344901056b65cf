//! Keeps names and relays of pods' networks current: follows Services and EndpointSlices, and the pods of the node.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt as _,
        events::EventType,
        watcher::{self, Event, watcher},
    },
};
use longshore_api::node::REASON_NETWORK_LOST;
use tokio::{net::TcpListener, time::MissedTickBehavior};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Network, PodFacts, egress, hosts, names, no_descriptor,
    protocol::Ask,
    relay::{Guests, Place, Relay},
    world::{Key, OnHost, ServiceFacts, SliceFacts, Target, World},
};
use crate::node::Shared;

/// Changes come in groups: those that follow within this time are taken together.
const SETTLE: Duration = Duration::from_millis(10);
/// When to try again what did not work.
const AGAIN: Duration = Duration::from_secs(1);
/// How often to look whether the keeper is there and has all pods, while pods have networks.
const LOOK: Duration = Duration::from_secs(5);

/// What a watch of one kind has shown.
#[derive(Debug)]
struct Watched<F> {
    current: BTreeMap<Key, F>,
    /// The list under way.
    listed: BTreeMap<Key, F>,
    is_complete: bool,
}

impl<F> Default for Watched<F> {
    fn default() -> Self {
        Self {
            current: BTreeMap::new(),
            listed: BTreeMap::new(),
            is_complete: false,
        }
    }
}

impl<F> Watched<F> {
    /// Takes an event. `of` returns `None` for an object that does not count.
    fn take<K: Resource>(&mut self, event: Event<K>, of: impl Fn(&K) -> Option<F>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                if let Some(facts) = of(&object) {
                    self.listed.insert(key(&object), facts);
                }
            }
            Event::InitDone => {
                self.current = std::mem::take(&mut self.listed);
                self.is_complete = true;
            }
            Event::Apply(object) => match of(&object) {
                Some(facts) => drop(self.current.insert(key(&object), facts)),
                None => drop(self.current.remove(&key(&object))),
            },
            Event::Delete(object) => drop(self.current.remove(&key(&object))),
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Serves the pods' networks until `shutdown`. Nothing is watched before the first pod has a network.
pub(crate) async fn serve(shared: Arc<Shared>, shutdown: CancellationToken) {
    let network = &shared.network;
    let work = async {
        while network.pods().by_uid.is_empty() {
            network.changed.notified().await;
        }
        // The first pass must not wait for another pod.
        network.changed.notify_one();
        follow(&shared).await;
    };
    shutdown.run_until_cancelled(work).await;
    let gone = std::mem::take(&mut network.pods().gone);
    detach(network, gone).await;
}

/// Removes the networks of pods that have ended.
async fn detach(network: &Network, pods: Vec<String>) {
    for pod in pods {
        if let Err(error) = network.ask(&Ask::Detach { pod: pod.clone() }).await {
            tracing::warn!(uid = pod, %error, "cannot remove the network of a pod");
        }
    }
}

async fn follow(shared: &Arc<Shared>) {
    let (network, client) = (&shared.network, shared.client.clone());
    let services = watcher(
        Api::<Service>::all(client.clone()),
        watcher::Config::default(),
    );
    let slices = watcher(
        Api::<EndpointSlice>::all(client),
        watcher::Config::default(),
    );
    let mut services = Box::pin(services.default_backoff());
    let mut slices = Box::pin(slices.default_backoff());
    let mut api_server = network.api_server.subscribe();
    let (mut seen, mut relays) = (Watches::default(), Relays::new(Arc::clone(shared)));
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_done = true;
    loop {
        tokio::select! {
            Some(event) = services.next() => seen.services(event),
            Some(event) = slices.next() => seen.slices(event),
            () = network.changed.notified() => {}
            Ok(()) = api_server.changed() => {}
            _ = looks.tick() => relays.look().await,
            () = tokio::time::sleep(AGAIN), if !is_done => {}
        }
        tokio::time::sleep(SETTLE).await;
        drain(&mut services, |event| seen.services(event));
        drain(&mut slices, |event| seen.slices(event));
        if let Some(world) = seen.world() {
            network.world.send_replace(Some(Arc::new(world)));
        }
        is_done = relays.pass().await;
    }
}

/// Takes what has arrived by now.
fn drain<T>(stream: &mut (impl Stream<Item = T> + Unpin), mut take: impl FnMut(T)) {
    while let Some(Some(event)) = stream.next().now_or_never() {
        take(event);
    }
}

/// Both watches.
#[derive(Debug, Default)]
struct Watches {
    services: Watched<ServiceFacts>,
    slices: Watched<SliceFacts>,
}

impl Watches {
    fn services(&mut self, event: watcher::Result<Event<Service>>) {
        match event {
            Ok(event) => self.services.take(event, ServiceFacts::of),
            Err(error) => tracing::debug!(%error, "the watch of Services broke, connecting again"),
        }
    }

    fn slices(&mut self, event: watcher::Result<Event<EndpointSlice>>) {
        match event {
            Ok(event) => self.slices.take(event, SliceFacts::of),
            Err(error) => {
                tracing::debug!(%error, "the watch of EndpointSlices broke, connecting again");
            }
        }
    }

    /// `None` before both have been read once.
    fn world(&self) -> Option<World> {
        let is_complete = self.services.is_complete && self.slices.is_complete;
        is_complete.then(|| World {
            services: self.services.current.clone(),
            slices: self.slices.current.clone(),
        })
    }
}

/// The relays that run.
struct Relays {
    shared: Arc<Shared>,
    network: Arc<Network>,
    /// Running pods that have no network, of which an Event tells.
    told: BTreeSet<String>,
    running: BTreeMap<Place, Relay>,
    guests: Arc<Guests>,
    /// Open while a pod may talk to other networks.
    way_out: Option<AbortOnDropHandle<()>>,
    n_keepers: u64,
}

impl Relays {
    fn new(shared: Arc<Shared>) -> Self {
        let network = Arc::clone(&shared.network);
        Self {
            n_keepers: network.n_keepers.load(Ordering::Relaxed),
            shared,
            network,
            told: BTreeSet::new(),
            running: BTreeMap::new(),
            guests: Arc::default(),
            way_out: None,
        }
    }

    /// Has the node start another keeper where that was killed, and finds the pods that the keeper has lost.
    async fn look(&self) {
        let is_needed = self.network.pods().by_uid.values().any(|it| it.is_attached);
        if is_needed && let Err(error) = self.network.attached().await {
            tracing::warn!(%error, "the keeper of pods' networks does not answer");
        }
    }

    /// Brings hosts files, relays and the keeper's pods up to date. Returns whether all of it worked.
    async fn pass(&mut self) -> bool {
        let mut is_done = self.connect_again().await;
        let (pods, on_host, gone) = {
            let mut known = self.network.pods();
            let gone = std::mem::take(&mut known.gone);
            (known.by_uid.clone(), known.on_host(), gone)
        };
        let world = self.network.world.borrow().clone();
        let api_server = *self.network.api_server.borrow();
        let n_keepers = self.network.n_keepers.load(Ordering::Relaxed);
        if n_keepers != self.n_keepers {
            // The sockets of an earlier keeper lead to a bridge that is no more.
            self.running.clear();
            self.way_out = None;
            self.n_keepers = n_keepers;
        }
        if let Some(world) = &world {
            is_done &= write_hosts(&pods, world, api_server.is_some());
        }
        let world = world.unwrap_or_default();
        let wanted = wanted(&pods, &on_host, &world, api_server);
        self.running.retain(|place, _| wanted.contains_key(place));
        for (place, target) in wanted {
            is_done &= self.relay(place, target).await;
        }
        is_done &= self.way_out(&pods).await;
        detach(&self.network, gone).await;
        is_done
    }

    /// Connects running pods that are cut off, and tells of each.
    async fn connect_again(&mut self) -> bool {
        let pods = self.network.pods().by_uid.clone();
        self.told.retain(|uid| pods.contains_key(uid));
        let mut is_done = true;
        for (uid, facts) in pods.iter().filter(|(_, it)| it.is_cut_off) {
            match self.network.attach_known(uid, facts).await {
                Ok(_) => {
                    self.told.remove(uid);
                    tracing::warn!(uid, "a running pod had lost its network, and has it again");
                    let note = "The network of the pod was gone while it ran, and is made again";
                    self.announce(uid, facts, note.to_owned());
                }
                Err(error) => {
                    tracing::warn!(uid, %error, "a pod has no network, trying again");
                    if self.told.insert(uid.clone()) {
                        let note = format!("The pod has no network, trying again: {error}");
                        self.announce(uid, facts, note);
                    }
                    is_done = false;
                }
            }
        }
        is_done
    }

    /// Publishes an Event beside the work on networks, which must not wait for the API server.
    fn announce(&self, uid: &str, facts: &PodFacts, note: String) {
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(facts.name.clone()),
                namespace: Some(facts.names.namespace.clone()),
                uid: Some(uid.to_owned()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        };
        let announcement =
            self.shared
                .announcement(&pod, EventType::Warning, REASON_NETWORK_LOST, note);
        tokio::spawn(announcement);
    }

    async fn way_out(&mut self, pods: &BTreeMap<String, PodFacts>) -> bool {
        let is_wanted = pods.values().any(|it| it.is_attached && it.has_way_out);
        if is_wanted == self.way_out.is_some() {
            return true;
        }
        self.way_out = None;
        if !is_wanted {
            return true;
        }
        let (network, guests) = (Arc::clone(&self.network), Arc::clone(&self.guests));
        match egress::open(network, guests).await {
            Ok(way_out) => {
                self.way_out = Some(way_out);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "pods cannot talk to other networks, trying again");
                false
            }
        }
    }

    async fn relay(&mut self, place: Place, target: Target) -> bool {
        if let Some(relay) = self.running.get(&place) {
            relay.turn(target);
            return true;
        }
        match self.listen(&place).await {
            Ok(listener) => {
                let (network, guests) = (Arc::clone(&self.network), Arc::clone(&self.guests));
                let relay = Relay::start(place.pod.clone(), listener, target, network, guests);
                self.running.insert(place, relay);
                true
            }
            Err(error) => {
                tracing::warn!(?place, %error, "an address of pods' networks is not served, trying again");
                false
            }
        }
    }

    async fn listen(&self, place: &Place) -> io::Result<TcpListener> {
        let ask = Ask::Listen {
            pod: place.pod.clone(),
            address: *place.address.ip(),
            port: place.address.port(),
        };
        let (_, socket) = self.network.ask(&ask).await?;
        let socket: OwnedFd = socket.ok_or_else(no_descriptor)?;
        TcpListener::from_std(socket.into())
    }
}

/// Writes the files of all pods. Returns whether that worked.
fn write_hosts(pods: &BTreeMap<String, PodFacts>, world: &World, has_api_server: bool) -> bool {
    let names = world.names(has_api_server);
    let mut is_done = true;
    for facts in pods.values().filter(|it| it.is_attached) {
        let text = hosts::render(&facts.names, &names);
        // A full disk leaves the earlier names.
        if let Err(error) = hosts::write(&facts.dir.join(names::HOSTS), &text) {
            tracing::warn!(pod = facts.names.hostname, %error, "names of a pod not written, trying again");
            is_done = false;
        }
    }
    is_done
}

/// What has to listen for these pods. Pure.
fn wanted(
    pods: &BTreeMap<String, PodFacts>,
    on_host: &OnHost,
    world: &World,
    api_server: Option<SocketAddr>,
) -> BTreeMap<Place, Target> {
    let attached = || pods.iter().filter(|(_, facts)| facts.is_attached);
    if attached().next().is_none() {
        return BTreeMap::new();
    }
    let of_services = world.relays(api_server, on_host).into_iter();
    let of_services = of_services.map(|(address, target)| (Place { pod: None, address }, target));
    let of_pods = attached().flat_map(|(uid, facts)| {
        facts.host_ports.iter().map(move |port| {
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port);
            let pod = Some(uid.clone());
            (Place { pod, address }, Target::Host(address.into()))
        })
    });
    of_services.chain(of_pods).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(is_attached: bool, host_ports: &[u16]) -> PodFacts {
        PodFacts {
            name: "p".into(),
            names: hosts::OwnNames {
                address: Ipv4Addr::new(10, 244, 1, 2),
                namespace: "n".into(),
                hostname: "p".into(),
                subdomain: None,
                aliases: Vec::new(),
            },
            host_ports: host_ports.iter().copied().collect(),
            has_way_out: false,
            dir: "/pods/u".into(),
            is_attached,
            is_cut_off: false,
            holder: None,
        }
    }

    #[test]
    fn nothing_listens_for_pods_that_are_not_there() {
        let api_server: SocketAddr = "127.0.0.1:7443".parse().unwrap();
        for (pods, expected) in [
            (vec![], vec![]),
            (vec![("a", pod(false, &[5432]))], vec![]),
            (vec![("a", pod(true, &[]))], vec!["- 10.96.0.1:443"]),
            (
                vec![
                    ("a", pod(true, &[1, 2])),
                    ("b", pod(true, &[1])),
                    ("c", pod(false, &[3])),
                ],
                vec![
                    "- 10.96.0.1:443",
                    "a 127.0.0.1:1",
                    "a 127.0.0.1:2",
                    "b 127.0.0.1:1",
                ],
            ),
        ] {
            let pods = pods.into_iter().map(|(uid, facts)| (uid.to_owned(), facts));
            let (on_host, world) = (OnHost::new(), World::default());
            let wanted = wanted(&pods.collect(), &on_host, &world, Some(api_server));
            let shown = |place: &Place| {
                let pod = place.pod.as_deref().unwrap_or("-");
                format!("{pod} {}", place.address)
            };
            let shown: Vec<String> = wanted.keys().map(shown).collect();
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn a_list_replaces_what_was_known_and_is_seen_when_it_is_complete() {
        let service = |name: &str, kind: &str| -> Service {
            let service = serde_json::json!({
                "metadata": {"name": name, "namespace": "n"},
                "spec": {"type": kind},
            });
            serde_json::from_value(service).unwrap()
        };
        let of = |event: Event<Service>, watched: &mut Watched<ServiceFacts>| {
            watched.take(event, ServiceFacts::of);
            let known: BTreeSet<String> = watched.current.keys().map(|it| it.1.clone()).collect();
            (
                known.into_iter().collect::<Vec<_>>().join(" "),
                watched.is_complete,
            )
        };
        let mut watched = Watched::default();
        for (event, known, is_complete) in [
            (Event::Init, "", false),
            (Event::InitApply(service("a", "ClusterIP")), "", false),
            (Event::InitDone, "a", true),
            (Event::Apply(service("b", "ClusterIP")), "a b", true),
            (Event::Apply(service("a", "ExternalName")), "b", true),
            (Event::Init, "b", true),
            (Event::InitApply(service("c", "ClusterIP")), "b", true),
            (Event::InitDone, "c", true),
            (Event::Delete(service("c", "ClusterIP")), "", true),
        ] {
            assert_eq!(of(event, &mut watched), (known.to_owned(), is_complete));
        }
    }
}
