//! What the API server is configured by, and what is asked of it: API services, priorities, certificates.

use serde_json::Value;

use super::{
    Column, Printer, age, integer, text,
    view::{NONE, View},
};

const NAME: Column = text("Name");
const AGE: Column = text("Age");

pub(super) fn printer(qualified: &str) -> Option<Printer> {
    Some(match qualified {
        "apiservices.apiregistration.k8s.io" => Printer {
            columns: const { &[NAME, text("Service"), text("Available"), AGE] },
            cells: api_service,
        },
        "certificatesigningrequests.certificates.k8s.io" => Printer {
            columns: const {
                &[
                    NAME,
                    AGE,
                    text("SignerName"),
                    text("Requestor"),
                    text("RequestedDuration"),
                    text("Condition"),
                ]
            },
            cells: signing_request,
        },
        "csinodes.storage.k8s.io" => Printer {
            columns: const { &[NAME, integer("Drivers"), AGE] },
            cells: |view| {
                vec![
                    view.name(),
                    view.items("/spec/drivers").len().into(),
                    view.age(),
                ]
            },
        },
        "flowschemas.flowcontrol.apiserver.k8s.io" => Printer {
            columns: const {
                &[
                    NAME,
                    text("PriorityLevel"),
                    text("MatchingPrecedence"),
                    text("DistinguisherMethod"),
                    AGE,
                    text("MissingPL"),
                ]
            },
            cells: flow_schema,
        },
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Type"),
                    text("NominalConcurrencyShares"),
                    text("Queues"),
                    text("HandSize"),
                    text("QueueLengthLimit"),
                    AGE,
                ]
            },
            cells: priority_level,
        },
        _ => return None,
    })
}

/// A condition of the status.
fn condition<'a>(view: &View<'a>, kind: &str) -> Option<&'a Value> {
    let mut conditions = view.items("/status/conditions").iter();
    conditions.find(|condition| condition["type"] == kind)
}

fn api_service(view: &View<'_>) -> Vec<Value> {
    let service = match view.text("/spec/service/name") {
        "" => "Local".to_owned(),
        name => format!("{}/{name}", view.text("/spec/service/namespace")),
    };
    let text = |condition: &'_ Value, key: &str| condition[key].as_str().unwrap_or("").to_owned();
    let available = condition(view, "Available").map(|it| (text(it, "status"), text(it, "reason")));
    let available = match available {
        None => "Unknown".to_owned(),
        Some((status, reason)) if status == "True" || reason.is_empty() => status,
        Some((status, reason)) => format!("{status} ({reason})"),
    };
    vec![view.name(), service.into(), available.into(), view.age()]
}

fn signing_request(view: &View<'_>) -> Vec<Value> {
    let duration = match view
        .object
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
    {
        Some(seconds) => age::brief(seconds).into(),
        None => NONE.into(),
    };
    let has = |kind: &str| condition(view, kind).is_some();
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state += ",Failed";
    }
    if !view.text("/status/certificate").is_empty() {
        state += ",Issued";
    }
    vec![
        view.name(),
        view.age(),
        view.text_or("/spec/signerName", NONE),
        view.text("/spec/username").into(),
        duration,
        state.into(),
    ]
}

fn flow_schema(view: &View<'_>) -> Vec<Value> {
    let dangling = condition(view, "Dangling").and_then(|it| it["status"].as_str());
    vec![
        view.name(),
        view.text("/spec/priorityLevelConfiguration/name").into(),
        view.number("/spec/matchingPrecedence").into(),
        view.text_or("/spec/distinguisherMethod/type", NONE),
        view.age(),
        dangling.unwrap_or("?").into(),
    ]
}

fn priority_level(view: &View<'_>) -> Vec<Value> {
    let of_limit = |pointer: &str| {
        let value = view.object.pointer(&format!("/spec/limited/{pointer}"));
        value.cloned().unwrap_or_else(|| NONE.into())
    };
    vec![
        view.name(),
        view.text("/spec/type").into(),
        of_limit("nominalConcurrencyShares"),
        of_limit("limitResponse/queuing/queues"),
        of_limit("limitResponse/queuing/handSize"),
        of_limit("limitResponse/queuing/queueLengthLimit"),
        view.age(),
    ]
}
