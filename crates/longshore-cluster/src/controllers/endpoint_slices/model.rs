//! The spec of a service, parsed, and a pod as an endpoint of it. Pure.

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use longshore_k8s::{Selector, names::is_label};
use serde_json::{Map, Value, json};

use crate::controllers::workloads::{Body, LABEL_SERVICE_NAME, pods, selector_of_labels};

pub(super) const LABEL_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The value that kube-controller-manager writes: clients that filter slices by it find ours.
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
pub(crate) const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";

/// A service with pods behind it.
#[derive(Debug, Clone)]
pub(crate) struct Desired {
    pub(crate) service: Body,
    pub(crate) selector: Selector,
    /// Pods count as ready although they are not.
    pub(crate) publishes_unready: bool,
}

impl Desired {
    /// `None` for a service whose slices another controller makes.
    pub(crate) fn of(service: Body) -> Option<Desired> {
        let is_name = service.at("/spec/type") == "ExternalName";
        if service.is_deleting() || is_name {
            return None;
        }
        Some(Desired {
            selector: selector_of_labels(service.at("/spec/selector"))?,
            publishes_unready: service.at("/spec/publishNotReadyAddresses") == &Value::Bool(true),
            service,
        })
    }

    /// The labels of the slices: the service's, and whose they are.
    pub(super) fn labels(&self) -> Map<String, Value> {
        let own = self.service.meta.labels.iter().flatten();
        let mut labels: Map<String, Value> = own
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        labels.insert(LABEL_SERVICE_NAME.into(), json!(self.service.name()));
        labels.insert(LABEL_MANAGED_BY.into(), json!(MANAGER));
        labels.remove(LABEL_HEADLESS);
        if self.service.at("/spec/clusterIP") == "None" {
            labels.insert(LABEL_HEADLESS.into(), json!(""));
        }
        labels
    }

    /// The ports of a slice that a pod can be in. Names stand for other numbers in other pods.
    pub(crate) fn ports_of(&self, pod: &Pod) -> Vec<Value> {
        let ports = self.service.at("/spec/ports").as_array();
        let found = ports.into_iter().flatten().filter_map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            let mut found = json!({
                "name": port["name"].as_str().unwrap_or(""),
                "port": number_of(&port["targetPort"], &port["port"], protocol, pod)?,
                "protocol": protocol,
            });
            if let Some(app) = port["appProtocol"].as_str() {
                found["appProtocol"] = json!(app);
            }
            Some(found)
        });
        found.collect()
    }
}

fn number_of(target: &Value, port: &Value, protocol: &str, pod: &Pod) -> Option<i64> {
    let Some(name) = target.as_str() else {
        return target
            .as_i64()
            .filter(|it| *it != 0)
            .or_else(|| port.as_i64());
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|it| pods::is_sidecar(it));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|it| it.ports.iter().flatten());
    let is_meant = |it: &&ContainerPort| {
        it.name.as_deref() == Some(name) && it.protocol.as_deref().unwrap_or("TCP") == protocol
    };
    ports
        .into_iter()
        .find(is_meant)
        .map(|it| it.container_port.into())
}

/// A pod as an endpoint; `None` for a pod without address and for one that has ended.
pub(crate) fn endpoint(desired: &Desired, pod: &Pod) -> Option<Value> {
    let status = pod.status.as_ref()?;
    let address = status.pod_ip.as_deref().filter(|ip| !ip.is_empty())?;
    if matches!(pods::phase(pod), "Succeeded" | "Failed") {
        return None;
    }
    let (serves, goes) = (pods::is_ready(pod), pods::is_deleting(pod));
    let mut endpoint = json!({
        "addresses": [address],
        "conditions": {
            "ready": desired.publishes_unready || (serves && !goes),
            "serving": serves,
            "terminating": goes,
        },
        "targetRef": {
            "kind": "Pod", "namespace": pod.metadata.namespace, "name": pods::name(pod),
            "uid": pods::uid(pod),
        },
    });
    let spec = pod.spec.as_ref()?;
    if let Some(node) = &spec.node_name {
        endpoint["nodeName"] = json!(node);
    }
    if spec.subdomain.as_deref() == Some(desired.service.name())
        // An earlier version has stored others.
        && let Some(hostname) = spec.hostname.as_ref().filter(|it| is_label(it))
    {
        endpoint["hostname"] = json!(hostname);
    }
    Some(endpoint)
}
