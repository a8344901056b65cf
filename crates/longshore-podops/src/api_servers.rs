//! Where API servers listen, so that no webhook of a rule is one of them.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use futures::{StreamExt, future::ready, stream};
use kube::{Api, Client};
use longshore_core::Resource;
use longshore_kit::{Cache, ListWatch, RawObject, Update, api_resource};
use longshore_outbound::Boundaries;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{pods::SERVICE, service::key_of, traffic::ENDPOINT_SLICE};

/// The namespace of the Service through which pods reach API servers, and the selectors of the Service and its slices.
const NAMESPACE: &str = "default";
const NAME: &str = "metadata.name=kubernetes";
const SLICES: &str = "kubernetes.io/service-name=kubernetes";

/// What is read of the Service.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Service {
    spec: ServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceSpec {
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Option<Vec<String>>,
    ports: Option<Vec<Port>>,
}

/// What is read of an EndpointSlice.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Slice {
    endpoints: Vec<Endpoint>,
    ports: Option<Vec<Port>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    addresses: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Port {
    port: Option<u16>,
}

impl Slice {
    fn sockets(&self) -> Vec<SocketAddr> {
        let endpoints = self.endpoints.iter();
        let addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
        sockets(addresses, self.ports.as_deref())
    }
}

impl Service {
    fn sockets(&self) -> Vec<SocketAddr> {
        let first = self.spec.cluster_ip.iter();
        let addresses = first.chain(self.spec.cluster_ips.iter().flatten());
        sockets(addresses, self.spec.ports.as_deref())
    }
}

/// Each address with each port. A Service without an address says `None` in its place.
fn sockets<'a>(
    addresses: impl Iterator<Item = &'a String>,
    ports: Option<&[Port]>,
) -> Vec<SocketAddr> {
    let ports = ports.unwrap_or_default();
    let addresses = addresses.filter_map(|address| address.parse().ok());
    addresses
        .flat_map(|ip| {
            let ports = ports.iter().filter_map(|port| port.port);
            ports.map(move |port| SocketAddr::new(ip, port))
        })
        .collect()
}

/// Where an object says that API servers listen, by its kind and name.
type Known = ((&'static str, String), Vec<SocketAddr>);

/// What an update says about API servers. An object that is gone says that they listen nowhere.
fn known(
    resource: Resource,
    update: Update<RawObject>,
    read: fn(&RawObject) -> Vec<SocketAddr>,
) -> Option<Known> {
    let of = |object: &RawObject| (resource.kind, key_of(object).name);
    match update {
        Update::Applied(object) => Some((of(&object), read(&object))),
        Update::Deleted(object) => Some((of(&object), Vec::new())),
        Update::Reached(_) => None,
    }
}

fn of_slice(object: &RawObject) -> Vec<SocketAddr> {
    object.read::<Slice>().unwrap_or_default().sockets()
}

fn of_service(object: &RawObject) -> Vec<SocketAddr> {
    object.read::<Service>().unwrap_or_default().sockets()
}

/// Keeps `boundaries` up with the addresses of the API servers, as the Service `default/kubernetes` and its slices have
/// them, until `shutdown`.
///
/// A cluster without that Service says nothing here: then the address of the kubeconfig is all that is known.
pub async fn follow_api_servers(
    client: Client,
    boundaries: Arc<Boundaries>,
    shutdown: CancellationToken,
) {
    let watch = |resource: Resource| -> ListWatch<RawObject> {
        let resource = api_resource(resource);
        ListWatch::new(Api::namespaced_with(client.clone(), NAMESPACE, &resource))
    };
    let slices = watch(ENDPOINT_SLICE).labels(SLICES.to_owned());
    let slices = slices.into_cache(Cache::passing_on());
    let slices = slices.filter_map(|update| ready(known(ENDPOINT_SLICE, update, of_slice)));
    let services = watch(SERVICE).fields(NAME.to_owned());
    let services = services.into_cache(Cache::passing_on());
    let services = services.filter_map(|update| ready(known(SERVICE, update, of_service)));
    let following = async {
        let mut following = std::pin::pin!(stream::select(slices, services));
        let mut all: BTreeMap<(&str, String), Vec<SocketAddr>> = BTreeMap::new();
        while let Some((object, sockets)) = following.next().await {
            all.insert(object, sockets);
            boundaries.set_known_api_servers(all.values().flatten().copied());
        }
    };
    shutdown.run_until_cancelled(Box::pin(following)).await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slice_has_each_address_with_each_port() {
        let slice = json!({
            "endpoints": [{"addresses": ["10.0.0.1", "x"]}, {"addresses": ["fd00::1"]}],
            "ports": [{"name": "https", "port": 6443}, {}],
        });
        let slice: Slice = serde_json::from_value(slice).unwrap();
        let expected = ["10.0.0.1:6443", "[fd00::1]:6443"].map(|it| it.parse().unwrap());
        assert_eq!(slice.sockets(), expected);
        let none: Slice = serde_json::from_value(json!({"ports": null})).unwrap();
        assert!(none.sockets().is_empty());
    }

    #[test]
    fn a_service_has_each_of_its_addresses_with_each_port() {
        let ports = json!([{"name": "https", "port": 443, "targetPort": 6443}]);
        for (spec, expected) in [
            (
                json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"], "ports": ports}),
                vec!["10.96.0.1:443", "10.96.0.1:443", "[fd00::1]:443"],
            ),
            (
                json!({"clusterIP": "10.96.0.1", "ports": ports}),
                vec!["10.96.0.1:443"],
            ),
            (
                json!({"clusterIP": "None", "clusterIPs": null, "ports": ports}),
                vec![],
            ),
        ] {
            let service: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
            let expected: Vec<SocketAddr> =
                expected.into_iter().map(|it| it.parse().unwrap()).collect();
            assert_eq!(service.sockets(), expected, "{spec}");
        }
    }
}
