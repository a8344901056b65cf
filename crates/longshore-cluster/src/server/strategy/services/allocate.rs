//! Gives a Service its address and its ports of the nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use serde_json::{Value, json};

use super::{
    families, is_headless, is_on_nodes, needs_address, needs_check_port, node_ports, number, ports,
    ports_mut, set_defaults, set_texts, spec_text, takes_node_ports, texts,
};
use crate::server::{
    error::Cause,
    hub::Claim,
    meta,
    service_range::{
        ServiceRange, is_node_port, node_ports as range_of_ports, node_ports_in_order,
    },
};

/// What may be given to a Service.
pub(crate) struct Pool<'a> {
    pub(crate) range: ServiceRange,
    /// Whether no other Service has it.
    pub(crate) is_free: &'a dyn Fn(Claim) -> bool,
    pub(crate) random: u64,
    /// The Service is the one of the API server, which has the first address.
    pub(crate) is_of_server: bool,
}

/// Why a Service does not get what it needs.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// The client has asked for something that it cannot have.
    Invalid(Vec<Cause>),
    /// Everything is given away.
    Full(&'static str),
}

const NO_ADDRESS: Refusal = Refusal::Full("failed to allocate a serviceIP: range is full");
const NO_PORT: Refusal = Refusal::Full("failed to allocate a nodePort: range is full");

/// Completes a Service: what it had it keeps, and what it needs it gets. `old` is the stored one.
pub(crate) fn allocate(
    pool: &Pool<'_>,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    set_defaults(service);
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    pair_addresses(service, old);
    families::complete(service, old).map_err(Refusal::Invalid)?;
    if needs_new_address(service, old) {
        pool.take_address(service)?;
    }
    pool.take_ports(service, old)
}

/// An update that leaves out what was allocated does not give it back.
fn keep_allocated(service: &mut Value, old: &Value) {
    if needs_address(old) && needs_address(service) {
        for key in ["clusterIP", "clusterIPs"] {
            let spec = meta::member(service, "spec");
            if let (None, Some(before)) = (spec.get(key), old["spec"].get(key)) {
                spec.insert(key.to_owned(), before.clone());
            }
        }
    }
    if takes_node_ports(old) && takes_node_ports(service) {
        let in_both = &node_ports(old) & &node_ports(service);
        let before: BTreeMap<String, i64> = ports(old)
            .map(|port| (name(port), number(port, "nodePort")))
            .collect();
        for port in ports_mut(service).filter(|port| number(port, "nodePort") == 0) {
            let kept = before.get(&name(port)).filter(|it| !in_both.contains(*it));
            if let Some(kept) = kept.filter(|it| **it != 0) {
                port["nodePort"] = json!(kept);
            }
        }
    }
    if needs_check_port(old) && needs_check_port(service) {
        let spec = meta::member(service, "spec");
        if let (None, Some(before)) = (
            spec.get("healthCheckNodePort"),
            old["spec"].get("healthCheckNodePort"),
        ) {
            spec.insert("healthCheckNodePort".into(), before.clone());
        }
    }
}

fn name(port: &Value) -> String {
    meta::text(port, "/name").to_owned()
}

/// Old clients know `clusterIP` alone; what they change there holds for `clusterIPs` too.
fn pair_addresses(service: &mut Value, old: Option<&Value>) {
    let address = spec_text(service, "clusterIP").to_owned();
    let has_list = !texts(service, "clusterIPs").is_empty();
    let Some(old) = old else {
        if !address.is_empty() && !has_list {
            set_texts(service, "clusterIPs", &[address]);
        }
        return;
    };
    let before = spec_text(old, "clusterIP");
    if !address.is_empty() && !has_list && texts(old, "clusterIPs").is_empty() {
        // An earlier version has stored it without the list.
        set_texts(service, "clusterIPs", &[address]);
        return;
    }
    let is_same_list = texts(service, "clusterIPs") == texts(old, "clusterIPs");
    if address != before && is_same_list {
        if address.is_empty() {
            set_texts(service, "clusterIPs", &[]);
        } else {
            set_texts(service, "clusterIPs", &[address]);
        }
    }
}

/// Whether a Service has to get an address: a new one, one that was a name so far, and one that an earlier version
/// has stored without.
fn needs_new_address(service: &Value, old: Option<&Value>) -> bool {
    if !needs_address(service) || is_headless(service) {
        return false;
    }
    old.is_none_or(|old| !needs_address(old) || texts(old, "clusterIPs").is_empty())
}

impl Pool<'_> {
    fn take_address(&self, service: &mut Value) -> Result<(), Refusal> {
        let list = texts(service, "clusterIPs");
        let address = match list.first() {
            Some(asked) => self.asked_address(asked, &list)?,
            None => {
                let mut free = self.range.in_order(self.random);
                let found = free.find(|it| self.has(*it));
                found.ok_or(NO_ADDRESS)?.to_string()
            }
        };
        meta::member(service, "spec").insert("clusterIP".into(), json!(address));
        set_texts(service, "clusterIPs", &[address]);
        Ok(())
    }

    /// Whether a Service may have an address of the range.
    fn has(&self, address: Ipv4Addr) -> bool {
        let is_of_another = address == self.range.first() && !self.is_of_server;
        !is_of_another && (self.is_free)(Claim::Address(address))
    }

    fn asked_address(&self, asked: &str, list: &[&str]) -> Result<String, Refusal> {
        let refuse = |why: String| {
            let why = format!("failed to allocate IP {asked}: {why}");
            Refusal::Invalid(vec![Cause::invalid("spec.clusterIPs", &json!(list), &why)])
        };
        let Ok(address) = asked.parse::<Ipv4Addr>() else {
            return Err(refuse("expected an IPv4 address".to_owned()));
        };
        if !self.range.contains(address) || self.range.is_network(address) {
            let why = "the provided network does not match the current range";
            Err(refuse(why.to_owned()))
        } else if !self.range.is_usable(address) {
            Err(refuse(format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                self.range
            )))
        } else if self.has(address) {
            Ok(address.to_string())
        } else {
            Err(refuse("provided IP is already allocated".to_owned()))
        }
    }

    fn take_ports(&self, service: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
        let mut taken = Taken {
            pool: self,
            is_update: old.is_some(),
            before: old.map(node_ports).unwrap_or_default(),
            new: BTreeSet::new(),
        };
        if is_on_nodes(service) {
            taken.fill(service)?;
        }
        let had_check = old.is_some_and(needs_check_port);
        if needs_check_port(service) && !had_check {
            let port = match service.pointer("/spec/healthCheckNodePort") {
                Some(asked) => taken.asked(asked.as_i64().unwrap_or(0)).map_err(|why| {
                    let field = "spec.healthCheckNodePort";
                    Refusal::Invalid(vec![Cause::invalid(field, asked, why.as_str())])
                })?,
                None => taken.any()?,
            };
            meta::member(service, "spec").insert("healthCheckNodePort".into(), json!(port));
        }
        Ok(())
    }
}

/// The ports of the nodes that one write takes.
struct Taken<'a> {
    pool: &'a Pool<'a>,
    is_update: bool,
    /// What the Service has already.
    before: BTreeSet<i64>,
    new: BTreeSet<i64>,
}

impl Taken<'_> {
    /// Gives each port of a Service a port of the nodes. In a new Service, ports of one number and several protocols
    /// share it.
    fn fill(&mut self, service: &mut Value) -> Result<(), Refusal> {
        let is_new = !self.is_update;
        let all = takes_node_ports(service);
        let asked: Vec<(i64, i64)> = ports(service)
            .map(|port| (number(port, "port"), number(port, "nodePort")))
            .collect();
        let mut of_number: BTreeMap<i64, i64> = BTreeMap::new();
        for (index, port) in ports_mut(service).enumerate() {
            let (own, number) = (number(port, "nodePort"), number(port, "port"));
            if own == 0 && !all {
                continue;
            }
            let shared = of_number.get(&number).copied().filter(|_| is_new);
            let found = match (shared, own) {
                (Some(shared), 0) => shared,
                (Some(shared), own) if shared == own => own,
                (Some(_), own) => self.ask(index, own)?,
                (None, own) => {
                    let same = asked.iter().find(|it| it.0 == number && it.1 != 0);
                    let wanted = same.filter(|_| is_new).map_or(own, |it| it.1);
                    match wanted {
                        0 => self.any()?,
                        wanted => self.ask(index, wanted)?,
                    }
                }
            };
            of_number.entry(number).or_insert(found);
            port["nodePort"] = json!(found);
        }
        Ok(())
    }

    fn ask(&mut self, index: usize, asked: i64) -> Result<i64, Refusal> {
        self.asked(asked).map_err(|why| {
            let field = format!("spec.ports[{index}].nodePort");
            Refusal::Invalid(vec![Cause::invalid(&field, &json!(asked), &why)])
        })
    }

    /// Takes one port, or says why not. An update may name one several times, for several protocols.
    fn asked(&mut self, asked: i64) -> Result<i64, String> {
        if self.before.contains(&asked) {
            return Ok(asked);
        }
        let Some(port) = u16::try_from(asked).ok().filter(|it| is_node_port(*it)) else {
            let range = range_of_ports();
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {range}"
            ));
        };
        let is_ours = self.new.contains(&asked);
        if (is_ours && !self.is_update) || !(self.pool.is_free)(Claim::NodePort(port)) {
            return Err("provided port is already allocated".to_owned());
        }
        self.new.insert(asked);
        Ok(asked)
    }

    fn any(&mut self) -> Result<i64, Refusal> {
        let is_free = |port: &u16| {
            let number = i64::from(*port);
            let is_ours = self.new.contains(&number) || self.before.contains(&number);
            !is_ours && (self.pool.is_free)(Claim::NodePort(*port))
        };
        let found = node_ports_in_order(self.pool.random).find(is_free);
        let port = i64::from(found.ok_or(NO_PORT)?);
        self.new.insert(port);
        Ok(port)
    }
}
