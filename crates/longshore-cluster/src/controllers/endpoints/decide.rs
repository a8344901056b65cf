//! What the Endpoints of a Service say. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use crate::controllers::{
    endpoint_slices::model::{Desired, LABEL_HEADLESS, endpoint},
    workloads::{
        Body,
        hands::{Request, Target},
    },
};

const LABEL_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const ANNOTATION_OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The most addresses of one object.
const MAX_ADDRESSES: usize = 1000;

/// Whether this controller has made the object.
pub(super) fn is_ours(endpoints: &Body) -> bool {
    let labels = endpoints.meta.labels.as_ref();
    let manager = labels.and_then(|it| it.get(LABEL_MANAGED_BY));
    manager.is_some_and(|it| it == MANAGER)
}

/// The request that makes the Endpoints say what they should.
pub(super) fn decide(desired: &Desired, pods: &[Pod], present: Option<&Body>) -> Option<Request> {
    let name = desired.service.name();
    let mut subsets = subsets(desired, pods);
    let is_cut = cut(&mut subsets);
    let subsets = if subsets.is_empty() {
        Value::Null
    } else {
        subsets.into()
    };
    let labels = labels(desired);
    let annotation = if is_cut {
        json!("truncated")
    } else {
        Value::Null
    };
    let Some(present) = present else {
        let mut metadata = json!({"name": name, "labels": labels});
        if is_cut {
            metadata["annotations"] = json!({ANNOTATION_OVER_CAPACITY: annotation});
        }
        return Some(Request::Create {
            target: Target::Endpoints,
            object: json!({"metadata": metadata, "subsets": subsets}),
        });
    };
    let labeled = json!(present.meta.labels.clone().unwrap_or_default());
    let is_noted = present.annotation(ANNOTATION_OVER_CAPACITY) == annotation.as_str();
    if present.at("/subsets") == &subsets && labeled == Value::Object(labels.clone()) && is_noted {
        return None;
    }
    let gone = labeled.as_object().into_iter().flatten();
    let mut change: Map<String, Value> = gone.map(|(key, _)| (key.clone(), Value::Null)).collect();
    change.extend(labels);
    Some(Request::Patch {
        target: Target::Endpoints,
        name: name.to_owned(),
        patch: json!({
            "metadata": {
                "uid": present.uid(), "resourceVersion": present.meta.resource_version, "labels": change,
                "annotations": {ANNOTATION_OVER_CAPACITY: annotation},
            },
            "subsets": subsets,
        }),
    })
}

fn labels(desired: &Desired) -> Map<String, Value> {
    let own = desired.service.meta.labels.iter().flatten();
    let own = own.map(|(key, value)| (key.clone(), json!(value)));
    let mut labels: Map<String, Value> = own.collect();
    labels.insert(LABEL_MANAGED_BY.into(), json!(MANAGER));
    labels.remove(LABEL_HEADLESS);
    let address = desired.service.at("/spec/clusterIP").as_str();
    if matches!(address, None | Some("" | "None")) {
        labels.insert(LABEL_HEADLESS.into(), json!(""));
    }
    labels
}

/// The addresses of a subset by what identifies them, and whether each is ready.
type Addresses = BTreeMap<String, (bool, Value)>;

/// Ports with the same addresses behind them are one subset.
fn subsets(desired: &Desired, pods: &[Pod]) -> Vec<Value> {
    let mut of_port: BTreeMap<String, (Option<Value>, Addresses)> = BTreeMap::new();
    let is_headless = desired.service.at("/spec/clusterIP") == "None";
    let has_ports = desired.service.at("/spec/ports").is_array();
    for pod in pods {
        let Some(endpoint) = endpoint(desired, pod) else {
            continue;
        };
        if endpoint["conditions"]["terminating"] == true && !desired.publishes_unready {
            continue;
        }
        let is_ready = endpoint["conditions"]["ready"] == true;
        let address = address(&endpoint);
        let identity = format!("{}/{}", address["ip"], address["targetRef"]["uid"]);
        let mut add = |port: Option<Value>| {
            let key = port.as_ref().map(Value::to_string).unwrap_or_default();
            let (_, addresses) = of_port.entry(key).or_insert((port, BTreeMap::new()));
            addresses.insert(identity.clone(), (is_ready, address.clone()));
        };
        if has_ports {
            desired
                .ports_of(pod)
                .into_iter()
                .for_each(|port| add(Some(named(port))));
        } else if is_headless {
            add(None);
        }
    }
    let mut groups: BTreeMap<String, (Vec<Value>, Addresses)> = BTreeMap::new();
    for (port, addresses) in of_port.into_values() {
        let states = addresses.iter().map(|(id, (is_ready, _))| (id, is_ready));
        let key = json!(states.collect::<Vec<_>>()).to_string();
        let (ports, _) = groups.entry(key).or_insert((Vec::new(), addresses));
        ports.extend(port);
    }
    let subset = |(ports, addresses): (Vec<Value>, Addresses)| {
        let mut subset = Map::new();
        for (key, wants_ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let found = addresses.values().filter(|it| it.0 == wants_ready);
            let found: Vec<Value> = found.map(|it| it.1.clone()).collect();
            if !found.is_empty() {
                subset.insert(key.into(), found.into());
            }
        }
        if !ports.is_empty() {
            subset.insert("ports".into(), ports.into());
        }
        Value::Object(subset)
    };
    groups.into_values().map(subset).collect()
}

/// An endpoint of a slice as an address.
fn address(endpoint: &Value) -> Value {
    let mut address = json!({"ip": endpoint["addresses"][0], "targetRef": endpoint["targetRef"]});
    for key in ["hostname", "nodeName"] {
        if let Some(value) = endpoint.get(key) {
            address[key] = value.clone();
        }
    }
    address
}

/// The only port of a Service may have no name; then the name is left out here.
fn named(mut port: Value) -> Value {
    if let Some(members) = port.as_object_mut()
        && members.get("name").is_some_and(|it| it == "")
    {
        members.remove("name");
    }
    port
}

/// Keeps as many addresses as one object may have, those that are ready first. Returns whether there were more.
fn cut(subsets: &mut [Value]) -> bool {
    let mut room = MAX_ADDRESSES;
    let mut is_cut = false;
    for key in ["addresses", "notReadyAddresses"] {
        for subset in subsets.iter_mut() {
            let Some(addresses) = subset.get_mut(key).and_then(Value::as_array_mut) else {
                continue;
            };
            is_cut |= addresses.len() > room;
            addresses.truncate(room);
            room -= addresses.len();
        }
    }
    is_cut
}
