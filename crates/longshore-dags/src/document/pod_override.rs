//! `executor_config.pod_override`: a pod, kept as it is written.
//!
//! Only what a merge relies on is checked; everything else is for the API server, whose fields may be newer than ours.

use serde_json::Value;

use super::{
    node::{Kind, Node},
    problem::Code,
    reader::{Object, Reader},
    suggest,
};

const HELP: &str = "write a pod with `metadata` and `spec`, as for `kubectl apply`";

/// The lists of objects in a pod's spec that a merge goes into, and whether the merge finds their items by name.
const LISTS: [(&str, bool); 3] = [
    ("containers", false),
    ("initContainers", true),
    ("volumes", true),
];

/// Reads `executor_config`.
pub(super) fn read(reader: &mut Reader<'_>, what: &str, node: &Node) -> Option<Value> {
    let config = reader.object(what.to_owned(), node, &["pod_override"], &[])?;
    let pod = config.get("pod_override")?;
    let what = format!("`pod_override` in {what}");
    check_pod(reader, &what, pod);
    Some(pod.to_json())
}

fn invalid(reader: &mut Reader<'_>, node: &Node, message: String, help: &str) {
    reader.report(Code::InvalidPodOverride, node.span, message, help);
}

fn check_pod(reader: &mut Reader<'_>, what: &str, pod: &Node) {
    const KNOWN: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
    let Kind::Map(entries) = &pod.kind else {
        let message = format!("{what} must be a pod, but is {}", pod.describe());
        return invalid(reader, pod, message, HELP);
    };
    for (key, _) in entries {
        if !KNOWN.contains(&key.text.as_str()) {
            let message = format!("{what} has no field `{}`", suggest::quoted(&key.text));
            let help = match suggest::closest(&key.text, &KNOWN) {
                Some(close) => format!("did you mean `{close}`?"),
                None => HELP.to_owned(),
            };
            reader.report(Code::InvalidPodOverride, key.span, message, help);
        }
    }
    let pod = Object::new(what.to_owned(), entries);
    match pod.get("kind").map(Node::to_json) {
        Some(kind) if kind != "Pod" => {
            let message = format!("{what} must be of kind `Pod`, but is of {kind}");
            if let Some(node) = pod.get("kind") {
                invalid(reader, node, message, HELP);
            }
        }
        Some(_) | None => {}
    }
    check_metadata(reader, &pod);
    check_spec(reader, &pod);
}

fn check_metadata(reader: &mut Reader<'_>, pod: &Object<'_>) {
    let metadata = pod.read("metadata", |what, node| mapping(reader, what, node));
    for field in ["labels", "annotations"] {
        let Some((what, texts)) = metadata
            .as_ref()
            .and_then(|metadata| metadata.read(field, |what, node| Some((what.to_owned(), node))))
        else {
            continue;
        };
        let Some(entries) = mapping(reader, &what, texts) else {
            continue;
        };
        for (key, node) in entries.entries() {
            if !matches!(node.kind, Kind::Text(_)) {
                let name = suggest::quoted(&key.text);
                let message = format!(
                    "`{name}` in {what} must be a text, but is {}",
                    node.describe()
                );
                invalid(reader, node, message, "put the value in quotes");
            }
        }
    }
}

fn check_spec(reader: &mut Reader<'_>, pod: &Object<'_>) {
    let Some(spec) = pod.read("spec", |what, node| mapping(reader, what, node)) else {
        return;
    };
    for (field, needs_name) in LISTS {
        let Some((what, list)) = spec.read(field, |what, node| Some((what.to_owned(), node)))
        else {
            continue;
        };
        let Kind::List(items) = &list.kind else {
            let message = format!("{what} must be a list, but is {}", list.describe());
            invalid(reader, list, message, "begin each item with `- `");
            continue;
        };
        for item in items {
            let each = format!("each item in {what}");
            let Some(object) = mapping(reader, &each, item) else {
                continue;
            };
            let name = object.get("name");
            if needs_name && !name.is_some_and(|name| matches!(name.kind, Kind::Text(_))) {
                let message = format!("{each} needs a `name`");
                invalid(reader, item, message, "write `name:` with a text");
            }
        }
    }
}

fn mapping<'n>(reader: &mut Reader<'_>, what: &str, node: &'n Node) -> Option<Object<'n>> {
    if let Kind::Map(entries) = &node.kind {
        return Some(Object::new(what.to_owned(), entries));
    }
    let message = format!("{what} must be a mapping, but is {}", node.describe());
    invalid(reader, node, message, HELP);
    None
}
