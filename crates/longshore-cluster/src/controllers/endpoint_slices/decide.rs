//! Which slices a service gets, and which requests bring them about. Pure.
//!
//! An endpoint stays in the slice in which it is, so that a change of one pod changes one slice.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::model::{Desired, endpoint};
use crate::controllers::workloads::{
    Body,
    hands::{Request, Target},
};

/// The most endpoints in one slice.
const MAX_ENDPOINTS: usize = 100;
/// What comes before the random characters of a name is cut to this.
const LONGEST_BASE: usize = 57;

/// A slice as it shall be.
struct Draft<'a> {
    /// The one that is there.
    present: Option<&'a Body>,
    ports: Vec<Value>,
    endpoints: Vec<Value>,
}

pub(super) fn decide(desired: &Desired, pods: &[Pod], slices: &[Body]) -> Vec<Request> {
    let mut groups: BTreeMap<String, (Vec<Value>, BTreeMap<String, Value>)> = BTreeMap::new();
    for pod in pods {
        let Some(endpoint) = endpoint(desired, pod) else {
            continue;
        };
        let ports = desired.ports_of(pod);
        let group = groups.entry(json!(ports).to_string());
        let (_, endpoints) = group.or_insert_with(|| (ports, BTreeMap::new()));
        endpoints.insert(identity(&endpoint), endpoint);
    }
    let live: Vec<&Body> = slices.iter().filter(|slice| !slice.is_deleting()).collect();
    let mut free: Vec<&Body> = Vec::new();
    let mut drafts = Vec::new();
    for slice in &live {
        let is_wanted = groups
            .values()
            .any(|(ports, _)| slice.at("/ports") == &json!(ports));
        if !is_wanted {
            free.push(slice);
        }
    }
    for (ports, endpoints) in groups.into_values() {
        let present = live
            .iter()
            .filter(|slice| slice.at("/ports") == &json!(ports));
        drafts.extend(distribute(
            present.copied().collect(),
            &ports,
            endpoints,
            &mut free,
        ));
    }
    // An existing slice is changed, not replaced: a client that lists slices in between sees no
    // gap.
    for draft in drafts.iter_mut().filter(|it| it.present.is_none()) {
        draft.present = free.pop();
    }
    if drafts.is_empty() {
        // A service without pods still has one slice: clients then know that it has no endpoints.
        drafts.push(Draft {
            present: free.pop(),
            ports: Vec::new(),
            endpoints: Vec::new(),
        });
    }
    let written = drafts.iter().filter_map(|draft| write(desired, draft));
    written
        .chain(free.iter().map(|slice| delete(slice)))
        .collect()
}

/// The text that identifies an endpoint: equal texts mean the same endpoint.
fn identity(endpoint: &Value) -> String {
    let part = |pointer: &str| {
        endpoint
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    format!("{}/{}", part("/targetRef/name"), part("/targetRef/uid"))
}

/// Puts the endpoints of one set of ports into slices; slices that stay empty become free.
fn distribute<'a>(
    present: Vec<&'a Body>,
    ports: &[Value],
    mut endpoints: BTreeMap<String, Value>,
    free: &mut Vec<&'a Body>,
) -> Vec<Draft<'a>> {
    let draft = |present: Option<&'a Body>, endpoints: Vec<Value>| Draft {
        present,
        ports: ports.to_vec(),
        endpoints,
    };
    let mut drafts = Vec::new();
    for slice in present {
        let inside = slice.at("/endpoints").as_array();
        let order = inside.into_iter().flatten().map(identity);
        let kept = order.filter_map(|it| endpoints.remove(&it));
        let kept: Vec<Value> = kept.collect();
        drafts.push(draft(Some(slice), kept));
    }
    let mut rest = endpoints.into_values();
    // The fullest first: the fewer slices change, the better.
    drafts.sort_by_key(|draft| std::cmp::Reverse(draft.endpoints.len()));
    for draft in &mut drafts {
        let room = MAX_ENDPOINTS.saturating_sub(draft.endpoints.len());
        draft.endpoints.extend(rest.by_ref().take(room));
    }
    drafts.retain(|draft| {
        let is_used = !draft.endpoints.is_empty();
        if let (false, Some(slice)) = (is_used, draft.present) {
            free.push(slice);
        }
        is_used
    });
    loop {
        let chunk: Vec<Value> = rest.by_ref().take(MAX_ENDPOINTS).collect();
        if chunk.is_empty() {
            return drafts;
        }
        drafts.push(draft(None, chunk));
    }
}

fn write(desired: &Desired, draft: &Draft<'_>) -> Option<Request> {
    let service = &desired.service;
    let labels = Value::Object(desired.labels());
    let Some(slice) = draft.present else {
        let name = service.name();
        let base = &name[..name.floor_char_boundary(LONGEST_BASE)];
        return Some(Request::Create {
            target: Target::Slice,
            object: json!({
                "metadata": {
                    "generateName": format!("{base}-"), "labels": labels,
                    "ownerReferences": [service.as_controller("v1", "Service")],
                },
                "addressType": "IPv4",
                "endpoints": draft.endpoints,
                "ports": draft.ports,
            }),
        });
    };
    let mut patch = json!({"metadata": {
        "uid": slice.uid(), "resourceVersion": slice.meta.resource_version,
    }});
    let mut is_changed = false;
    if slice.at("/endpoints") != &json!(draft.endpoints) {
        patch["endpoints"] = json!(draft.endpoints);
        is_changed = true;
    }
    if slice.at("/ports") != &json!(draft.ports) {
        patch["ports"] = json!(draft.ports);
        is_changed = true;
    }
    let present = json!(slice.meta.labels);
    if present != labels {
        let gone = present
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| (key.clone(), Value::Null));
        let mut change: serde_json::Map<String, Value> = gone.collect();
        change.extend(desired.labels());
        patch["metadata"]["labels"] = change.into();
        is_changed = true;
    }
    is_changed.then(|| Request::Patch {
        target: Target::Slice,
        name: slice.name().to_owned(),
        patch,
    })
}

fn delete(slice: &Body) -> Request {
    Request::Delete {
        target: Target::Slice,
        name: slice.name().to_owned(),
        uid: slice.uid().to_owned(),
    }
}
