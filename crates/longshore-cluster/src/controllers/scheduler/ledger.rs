//! The resources that the pods of every node request, and the ports of the node that they take. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerPort, Pod},
    apimachinery::pkg::api::resource::Quantity as WireQuantity,
};
use longshore_k8s::{HostPort, Quantity};

use crate::controllers::workloads::pods::is_sidecar;

/// Amounts by resource name, in thousandths.
pub(super) type Amounts = BTreeMap<String, i128>;

/// Namespace and name of a pod.
pub(super) type PodKey = (String, String);

/// A quantity in thousandths, rounded up; `None` when the text is none.
pub(super) fn thousandths(quantity: &WireQuantity) -> Option<i128> {
    Some(Quantity::parse(&quantity.0)?.milli_rounded_up())
}

fn amounts(quantities: Option<&BTreeMap<String, WireQuantity>>) -> Amounts {
    quantities
        .into_iter()
        .flatten()
        .filter_map(|(name, quantity)| Some((name.clone(), thousandths(quantity)?)))
        .collect()
}

fn requests(container: &Container) -> Amounts {
    amounts(
        container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref()),
    )
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let present = most.entry(name.clone()).or_default();
        *present = (*present).max(*amount);
    }
}

/// The resources that a pod requests of its node: its containers together, or its most demanding
/// init container, whichever is more. Init containers that keep running (sidecars) count with both.
pub(super) fn demand(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else {
        return Amounts::new();
    };
    let mut running = Amounts::new();
    let mut starting = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = requests(container);
        if is_sidecar(container) {
            add(&mut running, &own);
            raise(&mut starting, &running);
        } else {
            let mut with_sidecars = running.clone();
            add(&mut with_sidecars, &own);
            raise(&mut starting, &with_sidecars);
        }
    }
    for container in &spec.containers {
        add(&mut running, &requests(container));
    }
    raise(&mut running, &starting);
    add(&mut running, &amounts(spec.overhead.as_ref()));
    add(&mut running, &Amounts::from([("pods".to_owned(), 1000)]));
    running
}

/// The ports of its node that a pod takes: those of its containers and sidecars (upstream: `util.GetHostPorts` of
/// kube-scheduler). On the network of the host, the API server has made each port of a container one of the node.
pub(super) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let init = spec.init_containers.iter().flatten();
    let sidecars = init.filter(|it| is_sidecar(it));
    let ports = sidecars.chain(&spec.containers).flat_map(|it| &it.ports);
    let read = |port: &ContainerPort| {
        let (ip, protocol) = (port.host_ip.as_deref(), port.protocol.as_deref());
        HostPort::read(ip, protocol, port.host_port)
    };
    ports.flatten().filter_map(read).collect()
}

/// The sums of all nodes, kept up to date pod by pod.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pods: BTreeMap<PodKey, (String, Amounts)>,
    nodes: BTreeMap<String, Amounts>,
    /// The ports of each node that pods have taken. Most pods take none.
    ports: BTreeMap<String, BTreeMap<PodKey, Vec<HostPort>>>,
}

impl Ledger {
    /// What the pods of a node ask for together.
    pub(super) fn used(&self, node: &str) -> Amounts {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    /// Whether a pod of a node has taken one of these ports.
    pub(super) fn has_taken(&self, node: &str, ports: &[HostPort]) -> bool {
        let taken = self.ports.get(node).into_iter().flat_map(BTreeMap::values);
        taken
            .flatten()
            .any(|taken| ports.iter().any(|port| port.clashes_with(taken)))
    }

    /// Enters a pod with its node.
    pub(super) fn enter(&mut self, key: PodKey, node: &str, pod: &Pod) {
        self.remove(&key);
        let (demand, ports) = (demand(pod), host_ports(pod));
        add(self.nodes.entry(node.to_owned()).or_default(), &demand);
        if !ports.is_empty() {
            let of_node = self.ports.entry(node.to_owned()).or_default();
            of_node.insert(key.clone(), ports);
        }
        self.pods.insert(key, (node.to_owned(), demand));
    }

    /// Removes a pod. Returns whether it was there.
    pub(super) fn remove(&mut self, pod: &PodKey) -> bool {
        let Some((node, demand)) = self.pods.remove(pod) else {
            return false;
        };
        if let Some(of_node) = self.ports.get_mut(&node) {
            of_node.remove(pod);
        }
        let used = self.nodes.entry(node).or_default();
        for (name, amount) in demand {
            *used.entry(name).or_default() -= amount;
        }
        true
    }
}
