//! Where API servers listen, so that no webhook of a rule is one of them.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use futures::StreamExt;
use kube::{Api, Client};
use longshore_kit::{Cache, ListWatch, RawObject, Update, api_resource};
use longshore_outbound::Boundaries;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{service::key_of, traffic::ENDPOINT_SLICE};

/// The namespace of the Service through which pods reach API servers, and the selector of its slices.
const NAMESPACE: &str = "default";
const SLICES: &str = "kubernetes.io/service-name=kubernetes";

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
        let ports = self.ports.as_deref().unwrap_or_default();
        let addresses = addresses.filter_map(|address| address.parse().ok());
        addresses
            .flat_map(|ip| {
                let ports = ports.iter().filter_map(|port| port.port);
                ports.map(move |port| SocketAddr::new(ip, port))
            })
            .collect()
    }
}

/// Keeps `boundaries` up with the addresses of the API servers, as the slices of `default/kubernetes` have them, until
/// `shutdown`.
///
/// A cluster without that Service, as the embedded one, says nothing here: then the address of the kubeconfig is all
/// that is known.
pub async fn follow_api_servers(
    client: Client,
    boundaries: Arc<Boundaries>,
    shutdown: CancellationToken,
) {
    let api: Api<RawObject> =
        Api::namespaced_with(client, NAMESPACE, &api_resource(ENDPOINT_SLICE));
    let slices = ListWatch::new(api).labels(SLICES.to_owned());
    let following = slices.into_cache(Cache::passing_on());
    let following = async {
        let mut following = std::pin::pin!(following);
        let mut known: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
        while let Some(update) = following.next().await {
            match update {
                Update::Applied(object) => {
                    let slice: Slice = object.read().unwrap_or_default();
                    known.insert(key_of(&object).name, slice.sockets());
                }
                Update::Deleted(object) => {
                    known.remove(&key_of(&object).name);
                }
                Update::Reached(_) => {}
            }
            boundaries.set_known_api_servers(known.values().flatten().copied());
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
}
