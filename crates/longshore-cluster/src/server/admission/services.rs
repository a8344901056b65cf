//! The addresses of the pods behind a Service, by its EndpointSlices.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Service, ServicePort},
    discovery::v1::EndpointSlice,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::Deserialize;

use crate::server::hub::{Collection, Key, Object};

const LABEL_SERVICE: &str = "kubernetes.io/service-name";

/// Why a service has no address to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoEndpoint {
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("no service port {port} found for service {name:?}")]
    NoPort { name: String, port: i32 },
    #[error("no endpoints available for service {0:?}")]
    NoneReady(String),
}

/// The services of the cluster and what is behind them.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) services: Arc<Collection>,
    pub(super) slices: Arc<Collection>,
}

impl Services {
    /// The addresses of the ready endpoints of a service's port.
    pub(super) fn endpoints(
        &self,
        namespace: &str,
        name: &str,
        port: i32,
    ) -> Result<Vec<SocketAddr>, NoEndpoint> {
        let service = self.services.get(&Key::new(Some(namespace), name));
        let service = service.and_then(|it| read::<Service>(&it));
        let Some(service) = service else {
            return Err(NoEndpoint::NoService(name.to_owned()));
        };
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let Some(port) = ports.into_iter().find(|it| it.port == port) else {
            let name = name.to_owned();
            return Err(NoEndpoint::NoPort { name, port });
        };
        let found: Vec<SocketAddr> = self
            .slices(namespace, name)
            .flat_map(|slice| ready(&slice, &port))
            .collect();
        match found.is_empty() {
            true => Err(NoEndpoint::NoneReady(name.to_owned())),
            false => Ok(found),
        }
    }

    fn slices(&self, namespace: &str, service: &str) -> impl Iterator<Item = EndpointSlice> {
        let (objects, _) = self.slices.snapshot(0);
        let prefix = format!("{namespace}/");
        let of_service = |object: &&Arc<Object>| {
            let label = object.facets.labels.get(LABEL_SERVICE);
            object.key.as_str().starts_with(&prefix) && label.is_some_and(|it| it == service)
        };
        let slices: Vec<_> = objects.values().filter(of_service).cloned().collect();
        slices.into_iter().filter_map(|slice| read(&slice))
    }

    /// The addresses behind a name of the form `service.namespace.svc`, whatever their ports.
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let (service, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
        let ready = self
            .slices(namespace, service)
            .flat_map(|slice| ready_ips(&slice));
        Some(ready.collect())
    }
}

impl Resolve for Services {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let inside = self.addresses(&host);
        Box::pin(async move {
            let found: Vec<SocketAddr> = match inside {
                Some(ips) => ips.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect(),
                None => tokio::net::lookup_host((host, 0)).await?.collect(),
            };
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

fn read<T: for<'de> Deserialize<'de>>(object: &Object) -> Option<T> {
    T::deserialize(object.value()).ok()
}

fn ready_ips(slice: &EndpointSlice) -> Vec<IpAddr> {
    let endpoints = slice.endpoints.iter();
    let ready = endpoints.filter(|it| {
        let conditions = it.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    });
    let addresses = ready.flat_map(|it| &it.addresses);
    addresses.filter_map(|it| it.parse().ok()).collect()
}

fn ready(slice: &EndpointSlice, port: &ServicePort) -> Vec<SocketAddr> {
    let name = port.name.as_deref().unwrap_or("");
    let ports = slice.ports.iter().flatten();
    let number = ports
        .filter(|it| it.name.as_deref().unwrap_or("") == name)
        .find_map(|it| u16::try_from(it.port?).ok());
    let Some(number) = number else {
        return Vec::new();
    };
    let ips = ready_ips(slice).into_iter();
    ips.map(|ip| SocketAddr::new(ip, number)).collect()
}
