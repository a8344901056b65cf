//! Services: defaults, addresses and ports of the nodes, rules. Pure.
//!
//! The order is kube-apiserver's: a write keeps or takes what is allocated ([`allocate`]), loses what its type does not
//! have ([`prepare_update`]), and is then judged ([`violations`]).

mod allocate;
mod families;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

pub(crate) use allocate::{Pool, Refusal, allocate};
pub(super) use rules::violations;

use crate::server::meta;

const CLUSTER_IP: &str = "ClusterIP";
const NODE_PORT: &str = "NodePort";
const LOAD_BALANCER: &str = "LoadBalancer";
const EXTERNAL_NAME: &str = "ExternalName";

/// Fills in what the type of Services fills in when it is decoded.
pub(super) fn set_defaults(service: &mut Value) {
    drop_empty(meta::member(service, "spec"));
    put_default(service, "sessionAffinity", json!("None"));
    put_default(service, "type", json!(CLUSTER_IP));
    set_affinity_defaults(service);
    ports_mut(service).for_each(set_port_defaults);
    if is_externally_accessible(service) {
        put_default(service, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind(service), CLUSTER_IP | NODE_PORT | LOAD_BALANCER) {
        put_default(service, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind(service) == LOAD_BALANCER {
        put_default(service, "allocateLoadBalancerNodePorts", json!(true));
    }
}

/// Takes away what Go's types leave out when it is empty.
fn drop_empty(spec: &mut Map<String, Value>) {
    let is_optional = |key: &str| key != "sessionAffinityConfig" && key != "type";
    spec.retain(|key, value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty() || !is_optional(key),
        Value::Number(number) => key != "healthCheckNodePort" || number.as_i64() != Some(0),
        Value::Null | Value::Bool(_) => true,
    });
}

fn set_affinity_defaults(service: &mut Value) {
    let affinity = spec_text(service, "sessionAffinity").to_owned();
    let has_timeout = service
        .pointer("/spec/sessionAffinityConfig/clientIP/timeoutSeconds")
        .is_some();
    let spec = meta::member(service, "spec");
    match affinity.as_str() {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" if !has_timeout => {
            let config = json!({"clientIP": {"timeoutSeconds": 10_800}});
            spec.insert("sessionAffinityConfig".into(), config);
        }
        _ => {}
    }
}

fn set_port_defaults(port: &mut Value) {
    let port = meta::members(port);
    for key in ["name", "protocol", "appProtocol"] {
        if port.get(key).is_some_and(|it| it == "") {
            port.remove(key);
        }
    }
    if port.get("nodePort").is_some_and(|it| it == 0) {
        port.remove("nodePort");
    }
    port.entry("protocol").or_insert(json!("TCP"));
    let target = port.get("targetPort");
    if target.is_none_or(|it| it == 0 || it == "") {
        let number = port.get("port").cloned().unwrap_or(json!(0));
        port.insert("targetPort".into(), number);
    }
}

/// Takes away what an earlier type of the Service had and the new one has not, unless the client has changed it.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    let has_same = |new: &Value, key: &str| new["spec"].get(key) == old["spec"].get(key);
    let mut gone: Vec<&str> = Vec::new();
    if needs_address(old) && !needs_address(new) {
        if has_same(new, "clusterIP") && has_same(new, "clusterIPs") {
            gone.extend(["clusterIP", "clusterIPs"]);
        }
        let families = ["ipFamilies", "ipFamilyPolicy"];
        gone.extend(families.iter().filter(|key| has_same(new, key)));
    }
    if needs_check_port(old) && !needs_check_port(new) && has_same(new, "healthCheckNodePort") {
        gone.push("healthCheckNodePort");
    }
    if kind(old) == LOAD_BALANCER && kind(new) != LOAD_BALANCER {
        let keys = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];
        gone.extend(keys.iter().filter(|key| has_same(new, key)));
    }
    if is_externally_accessible(old)
        && !is_externally_accessible(new)
        && has_same(new, "externalTrafficPolicy")
    {
        gone.push("externalTrafficPolicy");
    }
    let loses_ports =
        is_on_nodes(old) && !is_on_nodes(new) && node_ports(new).is_subset(&node_ports(old));
    let spec = meta::member(new, "spec");
    for key in gone {
        spec.remove(key);
    }
    if loses_ports {
        ports_mut(new).for_each(|port| drop(meta::members(port).remove("nodePort")));
    }
    if kind(new) != LOAD_BALANCER {
        meta::member(new, "status").insert("loadBalancer".into(), json!({}));
    }
}

fn kind(service: &Value) -> &str {
    spec_text(service, "type")
}

fn spec_text<'a>(service: &'a Value, key: &str) -> &'a str {
    let value = service.get("spec").and_then(|spec| spec.get(key));
    value.and_then(Value::as_str).unwrap_or("")
}

/// The texts of a list of the spec.
fn texts<'a>(service: &'a Value, key: &str) -> Vec<&'a str> {
    let list = service.get("spec").and_then(|spec| spec.get(key));
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// Sets a list of the spec; an empty one is left out.
fn set_texts(service: &mut Value, key: &str, list: &[String]) {
    let spec = meta::member(service, "spec");
    if list.is_empty() {
        spec.remove(key);
    } else {
        spec.insert(key.to_owned(), json!(list));
    }
}

fn put_default(service: &mut Value, key: &str, value: Value) {
    let spec = meta::member(service, "spec");
    spec.entry(key).or_insert(value);
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    let list = service.pointer("/spec/ports").and_then(Value::as_array);
    list.into_iter().flatten()
}

fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let list = service.pointer_mut("/spec/ports");
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// A number of a port; 0 when it is not there.
fn number(port: &Value, key: &str) -> i64 {
    port.get(key).and_then(Value::as_i64).unwrap_or(0)
}

/// The ports of the nodes that a Service has.
fn node_ports(service: &Value) -> BTreeSet<i64> {
    let numbers = ports(service).map(|port| number(port, "nodePort"));
    numbers.filter(|it| *it != 0).collect()
}

/// Whether a Service has addresses, or says that it wants none.
fn needs_address(service: &Value) -> bool {
    kind(service) != EXTERNAL_NAME
}

fn is_headless(service: &Value) -> bool {
    texts(service, "clusterIPs") == ["None"]
}

fn has_selector(service: &Value) -> bool {
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    selector.is_some_and(|it| !it.is_empty())
}

fn is_on_nodes(service: &Value) -> bool {
    matches!(kind(service), NODE_PORT | LOAD_BALANCER)
}

/// Whether each port of the Service gets a port of the nodes.
fn takes_node_ports(service: &Value) -> bool {
    let refuses = service.pointer("/spec/allocateLoadBalancerNodePorts") == Some(&json!(false));
    is_on_nodes(service) && !(kind(service) == LOAD_BALANCER && refuses)
}

/// Whether a load balancer asks each node whether it has endpoints.
fn needs_check_port(service: &Value) -> bool {
    kind(service) == LOAD_BALANCER && spec_text(service, "externalTrafficPolicy") == "Local"
}

fn is_externally_accessible(service: &Value) -> bool {
    let has_addresses = !texts(service, "externalIPs").is_empty();
    is_on_nodes(service) || (kind(service) == CLUSTER_IP && has_addresses)
}
