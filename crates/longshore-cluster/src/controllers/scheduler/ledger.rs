//! The resources that the pods of every node request. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::api::resource::Quantity as WireQuantity,
};
use longshore_k8s::Quantity;

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
        if container.restart_policy.as_deref() == Some("Always") {
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

/// The sums of all nodes, kept up to date pod by pod.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pods: BTreeMap<PodKey, (String, Amounts)>,
    nodes: BTreeMap<String, Amounts>,
}

impl Ledger {
    /// What the pods of a node ask for together.
    pub(super) fn used(&self, node: &str) -> Amounts {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    /// Enters a pod with its node and its requests.
    pub(super) fn enter(&mut self, pod: PodKey, node: &str, demand: Amounts) {
        self.remove(&pod);
        add(self.nodes.entry(node.to_owned()).or_default(), &demand);
        self.pods.insert(pod, (node.to_owned(), demand));
    }

    /// Removes a pod. Returns whether it was there.
    pub(super) fn remove(&mut self, pod: &PodKey) -> bool {
        let Some((node, demand)) = self.pods.remove(pod) else {
            return false;
        };
        let used = self.nodes.entry(node).or_default();
        for (name, amount) in demand {
            *used.entry(name).or_default() -= amount;
        }
        true
    }
}
