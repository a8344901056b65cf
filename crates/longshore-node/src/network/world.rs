//! The Services of the cluster as pods with a network see them: which name stands for which address, and which address
//! of a Service is relayed to which pods. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
};

use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointSlice},
};
use longshore_k8s::names::is_label;

use super::{API_PORT, API_SERVICE};
use crate::addresses::Pool;

const LABEL_SERVICE: &str = "kubernetes.io/service-name";
/// The Service of the API server, and its namespace.
pub(super) const API_NAME: &str = "kubernetes";
const API_NAMESPACE: &str = "default";

/// Namespace and name.
pub(super) type Key = (String, String);

/// What a watch of Services and EndpointSlices has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct World {
    pub(super) services: BTreeMap<Key, ServiceFacts>,
    pub(super) slices: BTreeMap<Key, SliceFacts>,
}

/// A Service whose names this node can show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceFacts {
    /// `None` for a headless one, whose address is the word `None`, and for one that has none yet.
    pub(super) cluster_ip: Option<Ipv4Addr>,
    pub(super) ports: Vec<ServicePort>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServicePort {
    pub(super) name: String,
    pub(super) number: u16,
    pub(super) protocol: String,
}

/// One EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SliceFacts {
    service: String,
    /// Name and number of its TCP ports.
    ports: Vec<(String, u16)>,
    /// Addresses of endpoints that are ready, with their host names.
    endpoints: Vec<(Ipv4Addr, Option<String>)>,
}

/// The pods of this node that share the network of the machine: their addresses, and their namespaces.
pub(super) type OnHost = BTreeMap<Ipv4Addr, String>;

/// One line of a hosts file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) namespace: String,
    /// The Service, or `hostname.service` for one of its pods.
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
}

/// What answers behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A server on the host's network.
    Host(SocketAddr),
    /// The ready pods of a Service.
    Endpoints(Vec<SocketAddrV4>),
    /// Where the connection was meant to go, outside of the pods' network.
    Original,
}

impl ServiceFacts {
    /// `None` for a name of another domain.
    pub(super) fn of(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        if spec.type_.as_deref() == Some("ExternalName") {
            return None;
        }
        let ports = spec.ports.iter().flatten();
        let ports = ports.filter_map(|it| {
            Some(ServicePort {
                name: it.name.clone().unwrap_or_default(),
                number: u16::try_from(it.port).ok()?,
                protocol: it.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            })
        });
        let cluster_ip = spec.cluster_ip.as_deref();
        Some(Self {
            cluster_ip: cluster_ip.and_then(|it| it.parse().ok()),
            ports: ports.collect(),
        })
    }
}

impl SliceFacts {
    /// `None` for a slice without a Service, and for one of another family of addresses.
    pub(super) fn of(slice: &EndpointSlice) -> Option<Self> {
        if slice.address_type != "IPv4" {
            return None;
        }
        let labels = slice.metadata.labels.as_ref()?;
        let ports = slice.ports.iter().flatten();
        let ports = ports.filter(|it| it.protocol.as_deref().unwrap_or("TCP") == "TCP");
        let ports = ports.filter_map(|it| {
            let number = u16::try_from(it.port?).ok()?;
            Some((it.name.clone().unwrap_or_default(), number))
        });
        let ready = slice.endpoints.iter().filter(|it| is_ready(it));
        let endpoints = ready.flat_map(|it| {
            let parsed = it.addresses.iter().filter_map(|text| text.parse().ok());
            // Hosts files of all pods take it: a blank or a line end in it would be names of others.
            let hostname = it.hostname.as_ref().filter(|name| is_label(name));
            parsed.map(move |address| (address, hostname.cloned()))
        });
        Some(Self {
            service: labels.get(LABEL_SERVICE)?.clone(),
            ports: ports.collect(),
            endpoints: endpoints.collect(),
        })
    }
}

fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|it| it.ready) != Some(false)
}

/// Whether a Service may lead to the address: an EndpointSlice opens no way to other machines, or to the servers of
/// this one. As those that listen at all addresses answer at each of the loopback network, such an address has to be
/// that of a pod in the namespace of the Service.
fn is_of_a_pod(address: Ipv4Addr, namespace: &str, on_host: &OnHost) -> bool {
    let is_on_host = || on_host.get(&address).is_some_and(|it| it == namespace);
    Pool::PodNetwork.owns(address) || (Pool::Loopback.owns(address) && is_on_host())
}

impl World {
    /// The names of Services, and of pods that have a name of their own in one.
    ///
    /// A headless Service, and one without address, stands for its ready pods. Of these, pods that share the host's
    /// network cannot be reached by address. The API server is there before its Service is.
    pub(super) fn names(&self, has_api_server: bool) -> BTreeSet<Entry> {
        let mut names = BTreeSet::new();
        let mut add = |key: &Key, name: String, address: Ipv4Addr| {
            let namespace = key.0.clone();
            names.insert(Entry {
                namespace,
                name,
                address,
            });
        };
        if has_api_server {
            let key = (API_NAMESPACE.to_owned(), API_NAME.to_owned());
            add(&key, API_NAME.to_owned(), self.api_address());
        }
        for (key, service) in self.services.iter().filter(|(key, _)| !is_api(key)) {
            if let Some(address) = service.cluster_ip {
                add(key, key.1.clone(), address);
            }
        }
        for ((namespace, _), slice) in &self.slices {
            let key = (namespace.clone(), slice.service.clone());
            let Some(service) = self.services.get(&key).filter(|_| !is_api(&key)) else {
                continue;
            };
            let endpoints = slice.endpoints.iter();
            for (address, host) in endpoints.filter(|it| Pool::PodNetwork.owns(it.0)) {
                if service.cluster_ip.is_none() {
                    add(&key, key.1.clone(), *address);
                }
                if let Some(host) = host {
                    add(&key, format!("{host}.{}", key.1), *address);
                }
            }
        }
        names
    }

    /// The addresses of Services and what answers there. A port without a ready pod has no entry: nothing listens.
    pub(super) fn relays(
        &self,
        api_server: Option<SocketAddr>,
        on_host: &OnHost,
    ) -> BTreeMap<SocketAddrV4, Target> {
        let mut relays = BTreeMap::new();
        for (key, service) in self.services.iter().filter(|(key, _)| !is_api(key)) {
            let Some(address) = service.cluster_ip.filter(|it| super::is_of_a_service(*it)) else {
                continue;
            };
            for port in service.ports.iter().filter(|it| it.protocol == "TCP") {
                let endpoints = self.endpoints(key, &port.name, on_host);
                if !endpoints.is_empty() {
                    relays.insert(
                        SocketAddrV4::new(address, port.number),
                        Target::Endpoints(endpoints),
                    );
                }
            }
        }
        if let Some(api_server) = api_server {
            let address = SocketAddrV4::new(self.api_address(), API_PORT);
            relays.insert(address, Target::Host(api_server));
        }
        relays
    }

    /// Whether an EndpointSlice has the address.
    pub(super) fn leads_to(&self, address: Ipv4Addr) -> bool {
        let endpoints = self.slices.values().flat_map(|it| &it.endpoints);
        endpoints.map(|(it, _)| *it).any(|it| it == address)
    }

    fn endpoints(
        &self,
        (namespace, service): &Key,
        port: &str,
        on_host: &OnHost,
    ) -> Vec<SocketAddrV4> {
        let slices = self.slices.iter();
        let of_service =
            slices.filter(|((it, _), slice)| it == namespace && slice.service == *service);
        let found = of_service.flat_map(|(_, slice)| {
            let number = slice.ports.iter().find(|(name, _)| name == port);
            let endpoints = slice.endpoints.iter().map(|(address, _)| *address);
            number.into_iter().flat_map(move |(_, number)| {
                let is_reachable = move |it: &Ipv4Addr| is_of_a_pod(*it, namespace, on_host);
                let reachable = endpoints.clone().filter(is_reachable);
                reachable.map(move |it| SocketAddrV4::new(it, *number))
            })
        });
        found.collect()
    }

    /// The address of the API server's Service, which has the first one of all Services unless it says another.
    pub(crate) fn api_address(&self) -> Ipv4Addr {
        let key = (API_NAMESPACE.to_owned(), API_NAME.to_owned());
        let service = self.services.get(&key);
        let said = service.and_then(|it| it.cluster_ip);
        said.filter(|it| super::is_of_a_service(*it))
            .unwrap_or(API_SERVICE)
    }
}

/// Whether this is the Service of the API server.
pub(super) fn is_api((namespace, name): &Key) -> bool {
    namespace == API_NAMESPACE && name == API_NAME
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn world(services: &[(&str, Value)], slices: &[Value]) -> World {
        let mut world = World::default();
        for (name, spec) in services {
            let service = json!({"metadata": {"name": name}, "spec": spec});
            let service: Service = serde_json::from_value(service).unwrap();
            if let Some(facts) = ServiceFacts::of(&service) {
                world.services.insert(key("team", name), facts);
            }
        }
        for (at, slice) in slices.iter().enumerate() {
            let slice: EndpointSlice = serde_json::from_value(slice.clone()).unwrap();
            if let Some(facts) = SliceFacts::of(&slice) {
                world.slices.insert(key("team", &at.to_string()), facts);
            }
        }
        world
    }

    fn key(namespace: &str, name: &str) -> Key {
        (namespace.to_owned(), name.to_owned())
    }

    fn slice(service: &str, ports: Value, endpoints: Value) -> Value {
        json!({
            "metadata": {"labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
        })
    }

    fn endpoint(address: &str) -> Value {
        json!({"addresses": [address], "conditions": {"ready": true}})
    }

    fn names(world: &World) -> Vec<String> {
        let names = world.names(false).into_iter();
        names
            .map(|it| format!("{} {}", it.name, it.address))
            .collect()
    }

    fn relays(world: &World) -> Vec<String> {
        let on_host = [([127, 1, 2, 3], "team"), ([127, 1, 2, 4], "other")];
        let on_host = on_host.map(|(ip, namespace)| (Ipv4Addr::from(ip), namespace.to_owned()));
        let shown = world.relays(None, &OnHost::from(on_host)).into_iter();
        shown.map(|(from, to)| format!("{from} {to:?}")).collect()
    }

    #[test]
    fn a_service_is_known_by_its_address_and_a_headless_one_by_its_ready_pods() {
        let endpoints = json!([
            endpoint("10.244.1.2"),
            {"addresses": ["10.244.1.3"], "conditions": {"ready": false}},
            // Without a condition, an endpoint is ready.
            {"addresses": ["10.244.1.4"], "hostname": "db-0"},
            endpoint("127.1.2.3"),
        ]);
        let slices = [
            slice(
                "plain",
                json!([{"name": "", "port": 8080}]),
                endpoints.clone(),
            ),
            slice("bare", json!([]), endpoints.clone()),
            slice("waits", json!([]), endpoints),
        ];
        let world = world(
            &[
                (
                    "plain",
                    json!({"clusterIP": "10.96.3.4", "ports": [{"port": 80}]}),
                ),
                ("bare", json!({"clusterIP": "None"})),
                ("waits", json!({"ports": [{"port": 80}]})),
                (
                    "other",
                    json!({"type": "ExternalName", "externalName": "example.org"}),
                ),
            ],
            &slices,
        );
        assert_eq!(
            names(&world),
            [
                "bare 10.244.1.2",
                "bare 10.244.1.4",
                "db-0.bare 10.244.1.4",
                "db-0.plain 10.244.1.4",
                "db-0.waits 10.244.1.4",
                "plain 10.96.3.4",
                "waits 10.244.1.2",
                "waits 10.244.1.4",
            ]
        );
        assert_eq!(
            relays(&world),
            ["10.96.3.4:80 Endpoints([10.244.1.2:8080, 10.244.1.4:8080, 127.1.2.3:8080])"]
        );
    }

    #[test]
    fn a_host_name_of_an_endpoint_is_a_name_or_none() {
        for (hostname, expected) in [
            ("db-0", Some("db-0")),
            ("q\n6.6.6.6\tpay.default.svc", None),
            ("x pypi.org y", None),
            ("a.b", None),
            ("", None),
        ] {
            let endpoints = json!([{"addresses": ["10.244.1.2"], "hostname": hostname}]);
            let slice: EndpointSlice =
                serde_json::from_value(slice("s", json!([]), endpoints)).unwrap();
            let facts = SliceFacts::of(&slice).unwrap();
            let found = facts.endpoints[0].1.as_deref();
            assert_eq!(found, expected, "{hostname:?}");
        }
    }

    #[test]
    fn each_port_of_a_service_goes_to_the_port_of_that_name() {
        let ports = json!([{"name": "web", "port": 8080}, {"name": "rpc", "port": 6123},
            {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let other = json!([{"name": "web", "port": 9090}]);
        let slices = [
            slice("s", ports, json!([endpoint("10.244.1.2")])),
            slice("s", other, json!([endpoint("10.244.1.3")])),
            slice(
                "t",
                json!([{"name": "web", "port": 1}]),
                json!([endpoint("10.244.1.4")]),
            ),
        ];
        let service = json!({"clusterIP": "10.96.3.4", "ports": [
            {"name": "web", "port": 80}, {"name": "rpc", "port": 1}, {"name": "none", "port": 2},
            {"name": "dns", "port": 53, "protocol": "UDP"}]});
        assert_eq!(
            relays(&world(&[("s", service)], &slices)),
            [
                "10.96.3.4:1 Endpoints([10.244.1.2:6123])",
                "10.96.3.4:80 Endpoints([10.244.1.2:8080, 10.244.1.3:9090])",
            ]
        );
    }

    #[test]
    fn endpoints_open_no_way_out_and_services_take_no_address_of_others() {
        for (cluster_ip, address) in [
            ("10.96.3.4", "169.254.169.254"),
            ("10.96.3.4", "127.0.0.1"),
            // No pod has the first one, and a pod of another namespace the second.
            ("10.96.3.4", "127.9.9.9"),
            ("10.96.3.4", "127.1.2.4"),
            ("10.96.3.4", "10.244.0.1"),
            ("10.96.3.4", "192.168.1.1"),
            ("10.244.1.1", "10.244.1.2"),
            ("8.8.8.8", "10.244.1.2"),
        ] {
            let ports = json!([{"port": 80}]);
            let slices = [slice("s", ports.clone(), json!([endpoint(address)]))];
            let service = json!({"clusterIP": cluster_ip, "ports": ports});
            let world = world(&[("s", service)], &slices);
            assert_eq!(relays(&world), [""; 0], "{cluster_ip} {address}");
        }
    }

    #[test]
    fn the_api_server_has_a_name_and_an_address_before_its_service_is_there() {
        let api_server: SocketAddr = "127.0.0.1:7443".parse().unwrap();
        let mut world = World::default();
        let found = |world: &World| {
            let names = world.names(true).into_iter();
            let names: Vec<_> = names
                .map(|it| (it.namespace, it.name, it.address))
                .collect();
            (names, world.relays(Some(api_server), &OnHost::new()))
        };
        let expected = |address: [u8; 4]| {
            let (namespace, name) = key("default", "kubernetes");
            let at = SocketAddrV4::new(address.into(), 443);
            let relays = BTreeMap::from([(at, Target::Host(api_server))]);
            (vec![(namespace, name, Ipv4Addr::from(address))], relays)
        };
        assert_eq!(found(&world), expected([10, 96, 0, 1]));
        assert_eq!(world.names(false), BTreeSet::new());
        // Its endpoints are addresses of the host, which this relay does not need.
        let service =
            json!({"spec": {"clusterIP": "10.96.7.7", "ports": [{"name": "https", "port": 443}]}});
        let service: Service = serde_json::from_value(service).unwrap();
        let facts = ServiceFacts::of(&service).unwrap();
        world.services.insert(key("default", "kubernetes"), facts);
        assert_eq!(found(&world), expected([10, 96, 7, 7]));
    }
}
