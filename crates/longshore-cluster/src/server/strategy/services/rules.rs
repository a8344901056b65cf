//! What is wrong with a Service: upstream's complaints, in its words and in its order.

use std::{collections::BTreeSet, net::IpAddr};

use longshore_k8s::names::{key_violations, label_violations, subdomain_violations};
use serde_json::{Value, json};

use super::{
    CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT, is_externally_accessible, is_headless,
    kind, needs_check_port, number, ports, spec_text, texts,
};
use crate::server::{
    error::Cause,
    meta,
    strategy::{
        NO_ADDRESS,
        addresses::{self, Loopback},
    },
};

const TYPES: &[&str] = &[CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const AFFINITIES: &[&str] = &["ClientIP", "None"];
const POLICIES: &[&str] = &["Cluster", "Local"];
const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const FAMILY_POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
/// The longest time for which a client stays with a pod: a day.
const LONGEST_AFFINITY: i64 = 86_400;

/// Complaints about a Service; `old` is there when it is not a new one.
pub(in crate::server::strategy) fn violations(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(old) = old {
        causes.extend(address_changes(new, old));
        causes.extend(family_changes(new, old));
        causes.extend(class_violations(new, Some(old)));
        if needs_check_port(new) && needs_check_port(old) {
            let key = "healthCheckNodePort";
            if new["spec"].get(key) != old["spec"].get(key) {
                let field = "spec.healthCheckNodePort";
                causes.push(Cause::forbidden(field, "field is immutable"));
            }
        }
    }
    causes.extend(of_type(new));
    let mut names = BTreeSet::new();
    let n_ports = ports(new).count();
    for (index, port) in ports(new).enumerate() {
        port_violations(port, index, n_ports > 1, &mut names, &mut causes);
    }
    let selector = new.pointer("/spec/selector").and_then(Value::as_object);
    for (key, value) in selector.into_iter().flatten() {
        causes.extend(meta::label_violations("spec.selector", key, value));
    }
    causes.extend(affinity_violations(new));
    causes.extend(address_violations(new));
    causes.extend(external_address_violations(new));
    if !TYPES.contains(&kind(new)) {
        causes.push(Cause::unsupported("spec.type", kind(new), TYPES));
    }
    causes.extend(duplicate_ports(new));
    causes.extend(load_balancer_violations(new));
    causes.extend(traffic_violations(new));
    causes
}

fn one_of(service: &Value, key: &str, known: &[&str]) -> Option<Cause> {
    let found = spec_text(service, key);
    let field = format!("spec.{key}");
    (!found.is_empty() && !known.contains(&found)).then(|| Cause::unsupported(&field, found, known))
}

/// What the type of a Service needs and forbids.
fn of_type(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = kind(service);
    if ports(service).next().is_none() && !is_headless(service) && kind != EXTERNAL_NAME {
        causes.push(Cause::required("spec.ports", ""));
    }
    if matches!(kind, LOAD_BALANCER | NODE_PORT) && is_headless(service) {
        let why = format!("may not be set to 'None' for {kind} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &why));
    }
    if kind == EXTERNAL_NAME {
        for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if service["spec"].get(key).is_some() {
                let why = "may not be set for ExternalName services";
                causes.push(Cause::forbidden(&format!("spec.{key}"), why));
            }
        }
        let name = spec_text(service, "externalName");
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.is_empty() {
            causes.push(Cause::required("spec.externalName", ""));
        } else {
            let complaints = subdomain_violations(name);
            let complaints = complaints.iter();
            let cause = |why: &String| Cause::invalid("spec.externalName", &name.into(), why);
            causes.extend(complaints.map(cause));
        }
    }
    causes
}

fn port_violations<'a>(
    port: &'a Value,
    index: usize,
    needs_name: bool,
    names: &mut BTreeSet<&'a str>,
    causes: &mut Vec<Cause>,
) {
    let field = |key: &str| format!("spec.ports[{index}].{key}");
    let name = meta::text(port, "/name");
    if name.is_empty() {
        if needs_name {
            causes.push(Cause::required(&field("name"), ""));
        }
    } else {
        let complaints = label_violations(name);
        let complaints = complaints.iter();
        causes.extend(complaints.map(|why| Cause::invalid(&field("name"), &name.into(), why)));
        if !names.insert(name) {
            causes.push(Cause::duplicate(&field("name"), name));
        }
    }
    causes.extend(number_violation(&field("port"), number(port, "port")));
    let protocol = meta::text(port, "/protocol");
    if protocol.is_empty() {
        causes.push(Cause::required(&field("protocol"), ""));
    } else if !PROTOCOLS.contains(&protocol) {
        let cause = Cause::unsupported(&field("protocol"), protocol, PROTOCOLS);
        causes.push(cause);
    }
    match port.get("targetPort").and_then(Value::as_str) {
        Some(name) => {
            let complaints = port_name_violations(name).into_iter();
            let field = field("targetPort");
            causes.extend(complaints.map(|why| Cause::invalid(&field, &name.into(), why)));
        }
        None => causes.extend(number_violation(
            &field("targetPort"),
            number(port, "targetPort"),
        )),
    }
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        let complaints = key_violations(protocol);
        let complaints = complaints.iter();
        let field = field("appProtocol");
        causes.extend(complaints.map(|why| Cause::invalid(&field, &protocol.into(), why)));
    }
}

fn number_violation(field: &str, port: i64) -> Option<Cause> {
    let why = "must be between 1 and 65535, inclusive";
    (!(1..=65_535).contains(&port)).then(|| Cause::invalid(field, &port.into(), why))
}

/// What is wrong with the name of a port of a container.
fn port_name_violations(name: &str) -> Vec<&'static str> {
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            name.is_empty() || !name.chars().all(is_known),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !name.contains(|c: char| c.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (
            name.starts_with('-') || name.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ]
    .into_iter()
    .filter_map(|(is_wrong, why)| is_wrong.then_some(why))
    .collect()
}

fn affinity_violations(service: &Value) -> Vec<Cause> {
    let mut causes: Vec<Cause> = one_of(service, "sessionAffinity", AFFINITIES)
        .into_iter()
        .collect();
    if spec_text(service, "sessionAffinity") == "ClientIP" {
        let pointer = "/spec/sessionAffinityConfig/clientIP/timeoutSeconds";
        let seconds = service
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if !(1..=LONGEST_AFFINITY).contains(&seconds) {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            let why = format!("must be greater than 0 and less than {LONGEST_AFFINITY}");
            causes.push(Cause::invalid(field, &seconds.into(), &why));
        }
    }
    causes
}

/// The family of an address.
pub(super) fn family_of(address: &str) -> &'static str {
    match address.parse() {
        Ok(IpAddr::V4(_)) => "IPv4",
        Ok(IpAddr::V6(_)) => "IPv6",
        Err(_) => "unknown",
    }
}

/// Complaints about addresses and their families.
pub(super) fn address_violations(service: &Value) -> Vec<Cause> {
    if kind(service) == EXTERNAL_NAME {
        return Vec::new();
    }
    let (first, list) = (
        spec_text(service, "clusterIP"),
        texts(service, "clusterIPs"),
    );
    let field = "spec.clusterIPs";
    let shown = json!(list);
    let refuse = |why: &str| Cause::invalid(field, &shown, why);
    let mut causes = Vec::new();
    match list.first() {
        None if !first.is_empty() => causes.push(Cause::required(field, "")),
        Some(_) if first.is_empty() => {
            causes.push(refuse("must be empty when `clusterIP` is not specified"));
        }
        Some(listed) if *listed != first => {
            causes.push(refuse("first value must match `clusterIP`"));
        }
        None | Some(_) => {}
    }
    causes.extend(unknown_families(service));
    let (mut has_invalid, families) = (false, texts(service, "ipFamilies"));
    for (index, address) in list.iter().enumerate() {
        if index == 0 && *address == "None" {
            if list.len() > 1 {
                has_invalid = true;
                causes.push(refuse("'None' must be the first and only value"));
            }
        } else if address.parse::<IpAddr>().is_err() {
            has_invalid = true;
            let field = format!("{field}[{index}]");
            causes.push(Cause::invalid(&field, &json!(address), NO_ADDRESS));
        }
    }
    if list.len() > 2 {
        causes.push(refuse("may only hold up to 2 values"));
    }
    if has_invalid || list.first() == Some(&"None") {
        return causes;
    }
    let different: BTreeSet<&str> = list.iter().map(|it| family_of(it)).collect();
    if list.len() > 1 && !(list.len() == 2 && different.len() == 2) {
        causes.push(refuse("may specify no more than one IP for each IP family"));
    }
    for (index, (address, family)) in list.iter().zip(families).enumerate() {
        if FAMILIES.contains(&family) && family_of(address) != family {
            let field = format!("{field}[{index}]");
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            causes.push(Cause::invalid(&field, &json!(address), &why));
        }
    }
    causes
}

fn unknown_families(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, family) in texts(service, "ipFamilies").into_iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if !FAMILIES.contains(&family) {
            causes.push(Cause::unsupported(&field, family, FAMILIES));
        }
        if !seen.insert(family) {
            causes.push(Cause::duplicate(&field, family));
        }
    }
    causes.extend(one_of(service, "ipFamilyPolicy", FAMILY_POLICIES));
    causes
}

/// An address that was given stays.
fn address_changes(new: &Value, old: &Value) -> Vec<Cause> {
    let is_name = [new, old].iter().any(|it| kind(it) == EXTERNAL_NAME);
    if is_name || (is_headless(new) && is_headless(old)) {
        return Vec::new();
    }
    let (after, before) = (texts(new, "clusterIPs"), texts(old, "clusterIPs"));
    let shown = json!(after);
    let refuse =
        |index: usize, why: &str| Cause::invalid(&format!("spec.clusterIPs[{index}]"), &shown, why);
    let mut causes = Vec::new();
    if after.is_empty() && !before.is_empty() {
        causes.push(refuse(0, "primary clusterIP can not be unset"));
    }
    let compared = if after.len() == before.len() {
        after.len()
    } else {
        1
    };
    let pairs = before.iter().zip(&after).take(compared).enumerate();
    let changed = pairs.filter(|(_, (before, after))| before != after);
    causes.extend(changed.map(|(index, _)| refuse(index, "may not change once set")));
    causes
}

/// The first family stays.
fn family_changes(new: &Value, old: &Value) -> Vec<Cause> {
    let is_name = [new, old].iter().any(|it| kind(it) == EXTERNAL_NAME);
    if is_name || is_headless(new) || is_headless(old) {
        return Vec::new();
    }
    let (after, before) = (texts(new, "ipFamilies"), texts(old, "ipFamilies"));
    let is_changed = matches!((after.first(), before.first()), (Some(a), Some(b)) if a != b);
    let why = "may not change once set";
    let cause = || Cause::invalid("spec.ipFamilies[0]", &json!(after), why);
    is_changed.then(cause).into_iter().collect()
}

fn external_address_violations(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, text) in texts(service, "externalIPs").into_iter().enumerate() {
        let why = addresses::complaint(text, Loopback::Refused);
        let field = format!("spec.externalIPs[{index}]");
        causes.extend(why.map(|why| Cause::invalid(&field, &text.into(), &why)));
    }
    causes
}

fn duplicate_ports(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if kind(service) == CLUSTER_IP {
        for (index, _) in ports(service)
            .enumerate()
            .filter(|it| number(it.1, "nodePort") != 0)
        {
            let field = format!("spec.ports[{index}].nodePort");
            let why = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(&field, why));
        }
    }
    let protocol = |port: &Value| meta::text(port, "/protocol").to_owned();
    let mut of_nodes = BTreeSet::new();
    for (index, port) in ports(service).enumerate() {
        let found = number(port, "nodePort");
        if found != 0 && !of_nodes.insert((protocol(port), found)) {
            let field = format!("spec.ports[{index}].nodePort");
            let message = format!("Duplicate value: {found}");
            causes.push(Cause::new("FieldValueDuplicate", &field, message));
        }
    }
    let mut own = BTreeSet::new();
    for (index, port) in ports(service).enumerate() {
        let (protocol, found) = (protocol(port), number(port, "port"));
        if !own.insert((protocol.clone(), found)) {
            let field = format!("spec.ports[{index}]");
            let message = format!(
                "Duplicate value: {{\"Name\":\"\",\"Protocol\":{protocol:?},\"AppProtocol\":null,\"Port\":{found},\
                 \"TargetPort\":0,\"NodePort\":0}}"
            );
            causes.push(Cause::new("FieldValueDuplicate", &field, message));
        }
    }
    causes
}

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

fn load_balancer_violations(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let is_balanced = kind(service) == LOAD_BALANCER;
    if !texts(service, "loadBalancerSourceRanges").is_empty() && !is_balanced {
        let field = "spec.LoadBalancerSourceRanges";
        causes.push(Cause::forbidden(field, ONLY_BALANCED));
    }
    let allocates = service.pointer("/spec/allocateLoadBalancerNodePorts");
    if allocates.is_some() && !is_balanced {
        let field = "spec.allocateLoadBalancerNodePorts";
        causes.push(Cause::forbidden(field, ONLY_BALANCED));
    }
    causes.extend(class_violations(service, None));
    causes
}

fn class_violations(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let field = "spec.loadBalancerClass";
    let class = new.pointer("/spec/loadBalancerClass");
    let mut causes = Vec::new();
    let is_balanced = kind(new) == LOAD_BALANCER;
    if let Some(old) = old.filter(|old| is_balanced && kind(old) == LOAD_BALANCER)
        && class != old.pointer("/spec/loadBalancerClass")
    {
        let found = class.unwrap_or(&Value::Null);
        causes.push(Cause::invalid(field, found, "may not change once set"));
    }
    match class {
        Some(_) if !is_balanced => causes.push(Cause::forbidden(field, ONLY_BALANCED)),
        Some(class) => {
            let complaints = key_violations(class.as_str().unwrap_or(""));
            let complaints = complaints.iter();
            causes.extend(complaints.map(|why| Cause::invalid(field, class, why)));
        }
        None => {}
    }
    causes
}

fn traffic_violations(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let policy = spec_text(service, "externalTrafficPolicy");
    if !is_externally_accessible(service) && !policy.is_empty() {
        let why = "may only be set for externally-accessible services";
        let field = "spec.externalTrafficPolicy";
        causes.push(Cause::invalid(field, &policy.into(), why));
    } else {
        causes.extend(one_of(service, "externalTrafficPolicy", POLICIES));
    }
    let port = service.pointer("/spec/healthCheckNodePort");
    if let Some(port) = port.filter(|_| !needs_check_port(service)) {
        let why =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid("spec.healthCheckNodePort", port, why));
    }
    causes.extend(one_of(service, "internalTrafficPolicy", POLICIES));
    causes.extend(one_of(service, "trafficDistribution", DISTRIBUTIONS));
    causes
}
