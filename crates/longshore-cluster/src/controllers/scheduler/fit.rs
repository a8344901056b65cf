//! Which node a pod goes to, and why it cannot go to the others. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration,
};
use longshore_k8s::{HostPort, Operator, Requirement};

use super::ledger::{Amounts, Ledger, demand, host_ports, thousandths};

/// The node with the fewest pods among those that fit; else what stands in the way, as `kubectl
/// describe` shows it.
pub(super) fn choose<'a>(
    pod: &Pod,
    nodes: impl Iterator<Item = &'a Node>,
    ledger: &Ledger,
) -> Result<String, String> {
    let (demand, ports) = (demand(pod), host_ports(pod));
    let mut n_nodes = 0;
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(i128, &str)> = None;
    for node in nodes {
        n_nodes += 1;
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let used = ledger.used(name);
        let reasons = match refusal(pod, &ports, node, ledger) {
            Some(reason) => vec![reason],
            None => shortages(&demand, node, &used),
        };
        if reasons.is_empty() {
            let n_pods = used.get("pods").copied().unwrap_or(0);
            if best.is_none_or(|candidate| (n_pods, name) < candidate) {
                best = Some((n_pods, name));
            }
        }
        for reason in reasons {
            *refusals.entry(reason).or_default() += 1;
        }
    }
    match best {
        Some((_, name)) => Ok(name.to_owned()),
        None if n_nodes == 0 => Err("no nodes available to schedule pods".to_owned()),
        None => {
            let reasons: Vec<String> = refusals
                .into_iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            Err(format!(
                "0/{n_nodes} nodes are available: {}.",
                reasons.join(", ")
            ))
        }
    }
}

/// Why a node cannot take a pod, whatever room it has; `None` where it can.
fn refusal(pod: &Pod, ports: &[HostPort], node: &Node, ledger: &Ledger) -> Option<String> {
    let spec = node.spec.as_ref();
    if spec.and_then(|spec| spec.unschedulable) == Some(true) {
        return Some("node(s) were unschedulable".to_owned());
    }
    if !is_ready(node) {
        return Some("node(s) were not ready".to_owned());
    }
    if !matches_selectors(pod, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let taints = spec
        .and_then(|spec| spec.taints.as_ref())
        .into_iter()
        .flatten();
    if let Some(taint) = taints.into_iter().find(|taint| !is_tolerated(pod, taint)) {
        let value = taint.value.as_deref().unwrap_or("");
        return Some(format!(
            "node(s) had untolerated taint {{{}: {value}}}",
            taint.key
        ));
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let is_taken = ledger.has_taken(name, ports);
    is_taken.then(|| "node(s) didn't have free ports for the requested pod ports".to_owned())
}

/// What a node has too little of for a pod; empty where it has enough.
fn shortages(demand: &Amounts, node: &Node, used: &Amounts) -> Vec<String> {
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    let lacks = |name: &&String| {
        let offered = match allocatable.map(|offered| offered.get(name.as_str())) {
            Some(Some(quantity)) => thousandths(quantity).unwrap_or(0),
            // A node that does not say how many pods it takes takes them all.
            None | Some(None) if name.as_str() == "pods" => return false,
            None | Some(None) => 0,
        };
        let wanted = demand.get(*name).copied().unwrap_or(0);
        wanted > 0 && used.get(*name).copied().unwrap_or(0) + wanted > offered
    };
    demand
        .keys()
        .filter(lacks)
        .map(|name| match name.as_str() {
            "pods" => "Too many pods".to_owned(),
            name => format!("Insufficient {name}"),
        })
        .collect()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    if !matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") {
        return true;
    }
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    tolerations
        .into_iter()
        .flatten()
        .any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or("");
    let effect = toleration.effect.as_deref().unwrap_or("");
    let is_any = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && is_any))
        && (is_any
            || toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""))
}

fn matches_selectors(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selector = spec.node_selector.iter().flatten();
    if !selector
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
    {
        return false;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let name = node.metadata.name.as_deref().unwrap_or_default();
    required.is_none_or(|required| {
        required
            .node_selector_terms
            .iter()
            .any(|term| matches_term(term, labels, name))
    })
}

fn matches_term(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions
            .iter()
            .all(|it| satisfies(it, labels.get(&it.key).map(String::as_str)))
        && fields.iter().all(|it| is_of_name(it, name))
}

/// Fields are no labels: `metadata.name` is the only one, and has one value.
fn is_of_name(requirement: &NodeSelectorRequirement, name: &str) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let [value] = values else { return false };
    requirement.key == "metadata.name"
        && match Operator::parse(&requirement.operator) {
            Some(Operator::In) => value == name,
            Some(Operator::NotIn) => value != name,
            Some(_) | None => false,
        }
}

/// A requirement that API servers would refuse is met by no node, as for kube-scheduler.
fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.iter().flatten().cloned();
    let operator = Operator::parse(&requirement.operator);
    let read = operator.and_then(|it| Requirement::new(&requirement.key, it, values).ok());
    read.is_some_and(|requirement| requirement.allows(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, changes: Value) -> Node {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"disk": "ssd", "size": "3"}},
            "spec": {},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2"},
                       "conditions": [{"type": "Ready", "status": "True"}]},
        });
        json_patch::merge(&mut node, &changes);
        serde_json::from_value(node).unwrap()
    }

    fn pod(spec: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
        json_patch::merge(&mut pod["spec"], &spec);
        serde_json::from_value(pod).unwrap()
    }

    fn check(pod_spec: Value, node_changes: Value, expected: Result<&str, &str>) {
        let found = choose(
            &pod(pod_spec.clone()),
            [&node("n", node_changes)].into_iter(),
            &Ledger::default(),
        );
        let expected = expected
            .map(str::to_owned)
            .map_err(|why| format!("0/1 nodes are available: 1 {why}."));
        assert_eq!(found, expected, "{pod_spec}");
    }

    #[test]
    fn nodes_are_refused_for_the_reasons_of_the_scheduler() {
        let fits = Ok("n");
        let unmatched = Err("node(s) didn't match Pod's node affinity/selector");
        let taint =
            json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}});
        let request = |cpu: &str| json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        let affinity = |operator: &str, values: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "size", "operator": operator, "values": values}]}]}}}})
        };
        check(json!({}), json!({}), fits);
        check(
            json!({}),
            json!({"spec": {"unschedulable": true}}),
            Err("node(s) were unschedulable"),
        );
        check(
            json!({}),
            json!({"status": {"conditions": null}}),
            Err("node(s) were not ready"),
        );
        check(json!({"nodeSelector": {"disk": "ssd"}}), json!({}), fits);
        check(
            json!({"nodeSelector": {"disk": "hdd"}}),
            json!({}),
            unmatched,
        );
        check(affinity("In", json!(["3"])), json!({}), fits);
        check(affinity("NotIn", json!(["3"])), json!({}), unmatched);
        check(affinity("Gt", json!(["2"])), json!({}), fits);
        check(affinity("Lt", json!(["2"])), json!({}), unmatched);
        check(
            json!({}),
            taint.clone(),
            Err("node(s) had untolerated taint {k: v}"),
        );
        check(
            json!({"tolerations": [{"operator": "Exists"}]}),
            taint.clone(),
            fits,
        );
        check(
            json!({"tolerations": [{"key": "k", "value": "x"}]}),
            taint.clone(),
            Err("node(s) had untolerated taint {k: v}"),
        );
        check(
            json!({"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
            taint,
            fits,
        );
        check(request("2"), json!({}), fits);
        check(request("2001m"), json!({}), Err("Insufficient cpu"));
        check(request("2000001u"), json!({}), Err("Insufficient cpu"));
        check(request("3e0"), json!({}), Err("Insufficient cpu"));
    }

    fn with_ports(ports: Value) -> Pod {
        pod(json!({"containers": [{"name": "c", "ports": ports}]}))
    }

    #[test]
    fn a_port_of_the_node_is_one_pods() {
        let taken = json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 53,
                            "protocol": "UDP", "hostIP": "127.0.0.1"}]);
        let sidecar = json!({"name": "s", "ports": [{"containerPort": 3, "hostPort": 80}]});
        let sidecar = |policy: Value| {
            let mut sidecar = sidecar.clone();
            sidecar["restartPolicy"] = policy;
            pod(json!({"initContainers": [sidecar]}))
        };
        let mut ledger = Ledger::default();
        let key = ("ns".to_owned(), "holder".to_owned());
        ledger.enter(key.clone(), "n", &with_ports(taken));
        let nodes = [node("n", json!({}))];
        for (pod, fits) in [
            (with_ports(json!([{"containerPort": 80}])), true),
            (
                with_ports(json!([{"containerPort": 1, "hostPort": 80}])),
                false,
            ),
            (
                with_ports(json!([{"containerPort": 9, "hostPort": 80, "hostIP": "127.0.0.1"}])),
                false,
            ),
            (
                with_ports(json!([{"containerPort": 9, "hostPort": 80, "protocol": "UDP"}])),
                true,
            ),
            (
                with_ports(json!([{"containerPort": 9, "hostPort": 53, "protocol": "UDP"}])),
                false,
            ),
            (
                with_ports(
                    json!([{"containerPort": 9, "hostPort": 53, "protocol": "UDP",
                                   "hostIP": "127.0.0.2"}]),
                ),
                true,
            ),
            (
                with_ports(json!([{"containerPort": 9, "hostPort": 81},
                                  {"containerPort": 8, "hostPort": 80}])),
                false,
            ),
            (sidecar(json!("Always")), false),
            (sidecar(Value::Null), true),
        ] {
            let found = choose(&pod, nodes.iter(), &ledger);
            let why = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
            let expected = if fits {
                Ok("n".into())
            } else {
                Err(why.into())
            };
            assert_eq!(found, expected, "{pod:?}");
        }
        // Another node has ports of its own, and the port is free once its pod has gone.
        let wanting = with_ports(json!([{"containerPort": 1, "hostPort": 80}]));
        let both = [node("n", json!({})), node("other", json!({}))];
        let chosen = choose(&wanting, both.iter(), &ledger);
        assert_eq!(chosen, Ok("other".to_owned()));
        ledger.remove(&key);
        let chosen = choose(&wanting, nodes.iter(), &ledger);
        assert_eq!(chosen, Ok("n".to_owned()));
    }

    #[test]
    fn the_emptiest_node_that_fits_is_chosen() {
        let mut ledger = Ledger::default();
        let one = pod(json!({}));
        ledger.enter(("ns".into(), "a".into()), "a", &one);
        let nodes = [node("a", json!({})), node("b", json!({}))];
        assert_eq!(
            choose(&pod(json!({})), nodes.iter(), &ledger),
            Ok("b".to_owned())
        );
        for name in ["b", "c"] {
            ledger.enter(("ns".into(), name.into()), "b", &one);
        }
        assert_eq!(
            choose(&pod(json!({})), nodes.iter(), &ledger),
            Ok("a".to_owned())
        );
        ledger.enter(("ns".into(), "d".into()), "a", &one);
        let full = Err("0/2 nodes are available: 2 Too many pods.".to_owned());
        assert_eq!(choose(&pod(json!({})), nodes.iter(), &ledger), full);
        ledger.remove(&("ns".into(), "d".into()));
        assert_eq!(
            choose(&pod(json!({})), nodes.iter(), &ledger),
            Ok("a".to_owned())
        );
        assert_eq!(
            choose(&pod(json!({})), std::iter::empty(), &ledger),
            Err("no nodes available to schedule pods".to_owned())
        );
    }
}
