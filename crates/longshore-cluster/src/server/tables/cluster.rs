//! Namespaces, nodes, volumes and what happens in them.

use serde_json::Value;

use super::{
    Column, Printer, text,
    view::{NONE, View, join, or_none},
    wide,
};

const NAME: Column = text("Name");
const AGE: Column = text("Age");

#[expect(clippy::too_many_lines, reason = "a table: a row for each kind")]
pub(super) fn printer(qualified: &str) -> Option<Printer> {
    Some(match qualified {
        "namespaces" => Printer {
            columns: const { &[NAME, text("Status"), AGE] },
            cells: |view| vec![view.name(), view.text("/status/phase").into(), view.age()],
        },
        "nodes" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Status"),
                    text("Roles"),
                    AGE,
                    text("Version"),
                    wide("Internal-IP"),
                    wide("External-IP"),
                    wide("OS-Image"),
                    wide("Kernel-Version"),
                    wide("Container-Runtime"),
                ]
            },
            cells: node,
        },
        "events" | "events.events.k8s.io" => Printer {
            columns: const {
                &[
                    text("Last Seen"),
                    text("Type"),
                    text("Reason"),
                    text("Object"),
                    wide("Subobject"),
                    wide("Source"),
                    text("Message"),
                    wide("First Seen"),
                    wide("Count"),
                    wide("Name"),
                ]
            },
            cells: event,
        },
        "persistentvolumeclaims" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Status"),
                    text("Volume"),
                    text("Capacity"),
                    text("Access Modes"),
                    text("StorageClass"),
                    text("VolumeAttributesClass"),
                    AGE,
                    wide("VolumeMode"),
                ]
            },
            cells: claim,
        },
        "persistentvolumes" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Capacity"),
                    text("Access Modes"),
                    text("Reclaim Policy"),
                    text("Status"),
                    text("Claim"),
                    text("StorageClass"),
                    text("VolumeAttributesClass"),
                    text("Reason"),
                    AGE,
                    wide("VolumeMode"),
                ]
            },
            cells: volume,
        },
        "storageclasses.storage.k8s.io" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Provisioner"),
                    text("ReclaimPolicy"),
                    text("VolumeBindingMode"),
                    text("AllowVolumeExpansion"),
                    AGE,
                ]
            },
            cells: storage_class,
        },
        _ => return None,
    })
}

fn node(view: &View<'_>) -> Vec<Value> {
    let has_ready = view
        .items("/status/conditions")
        .iter()
        .any(|condition| condition["type"] == "Ready");
    let mut status = match (has_ready, view.is_condition_true("Ready")) {
        (false, _) => "Unknown",
        (true, true) => "Ready",
        (true, false) => "NotReady",
    }
    .to_owned();
    if view.flag("/spec/unschedulable") {
        status += ",SchedulingDisabled";
    }
    let address = |kind: &str| {
        let found = view
            .items("/status/addresses")
            .iter()
            .find(|address| address["type"] == kind);
        or_none(found.map_or_else(String::new, |found| {
            found["address"].as_str().unwrap_or("").to_owned()
        }))
    };
    vec![
        view.name(),
        status.into(),
        roles(view),
        view.age(),
        view.text("/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        view.text_or("/status/nodeInfo/osImage", "<unknown>"),
        view.text_or("/status/nodeInfo/kernelVersion", "<unknown>"),
        view.text_or("/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

/// Roles are labels.
fn roles(view: &View<'_>) -> Value {
    let labels = view.object.pointer("/metadata/labels");
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let roles = labels.filter_map(|(key, value)| {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str()?,
            None => return None,
        };
        (!role.is_empty()).then(|| role.to_owned())
    });
    or_none(join(roles))
}

fn event(view: &View<'_>) -> Vec<Value> {
    let has = |pointer: &str| !view.text(pointer).is_empty();
    let first = if has("/firstTimestamp") {
        view.since("/firstTimestamp")
    } else {
        view.since("/eventTime")
    };
    let has_series = view.object.pointer("/series").is_some();
    let last = match has_series {
        true => view.since("/series/lastObservedTime"),
        false if has("/lastTimestamp") => view.since("/lastTimestamp"),
        false => first.clone(),
    };
    let count = match has_series {
        true => view.number("/series/count"),
        false => view.number("/count").max(1),
    };
    let kind = view.text("/involvedObject/kind").to_lowercase();
    let target = match view.text("/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = [
        view.text("/source/component"),
        view.text("/source/host"),
        view.text("/reportingComponent"),
        view.text("/reportingInstance"),
    ];
    let (from_source, from_reporter) = source.split_at(2);
    let is_old = from_source.iter().any(|part| !part.is_empty());
    let source = if is_old { from_source } else { from_reporter };
    let parts = source.iter().filter(|part| !part.is_empty());
    let source = parts.copied().collect::<Vec<_>>().join(", ");
    vec![
        last.into(),
        view.text("/type").into(),
        view.text("/reason").into(),
        target.into(),
        view.text("/involvedObject/fieldPath").into(),
        source.into(),
        view.text("/message").trim().into(),
        first.into(),
        count.to_string().into(),
        view.name(),
    ]
}

/// Short names of ways to mount a volume.
fn access_modes(view: &View<'_>, pointer: &str) -> Value {
    let modes = view.items(pointer).iter();
    let short = modes.map(|mode| match mode.as_str().unwrap_or("") {
        "ReadWriteOnce" => "RWO".to_owned(),
        "ReadOnlyMany" => "ROX".to_owned(),
        "ReadWriteMany" => "RWX".to_owned(),
        "ReadWriteOncePod" => "RWOP".to_owned(),
        other => other.to_owned(),
    });
    join(short).into()
}

fn claim(view: &View<'_>) -> Vec<Value> {
    let phase = if view.is_deleting() {
        "Terminating"
    } else {
        view.text("/status/phase")
    };
    let is_bound = !view.text("/spec/volumeName").is_empty();
    let (capacity, modes) = if is_bound {
        (
            view.text("/status/capacity/storage").into(),
            access_modes(view, "/status/accessModes"),
        )
    } else {
        ("".into(), "".into())
    };
    vec![
        view.name(),
        phase.into(),
        view.text("/spec/volumeName").into(),
        capacity,
        modes,
        view.text("/spec/storageClassName").into(),
        view.text_or("/spec/volumeAttributesClassName", "<unset>"),
        view.age(),
        view.text_or("/spec/volumeMode", "<unset>"),
    ]
}

fn volume(view: &View<'_>) -> Vec<Value> {
    let claim = match view.text("/spec/claimRef/name") {
        "" => String::new(),
        name => format!("{}/{name}", view.text("/spec/claimRef/namespace")),
    };
    let phase = if view.is_deleting() {
        "Terminating"
    } else {
        view.text("/status/phase")
    };
    vec![
        view.name(),
        view.text("/spec/capacity/storage").into(),
        access_modes(view, "/spec/accessModes"),
        view.text("/spec/persistentVolumeReclaimPolicy").into(),
        phase.into(),
        claim.into(),
        view.text("/spec/storageClassName").into(),
        view.text_or("/spec/volumeAttributesClassName", "<unset>"),
        view.text("/status/reason").into(),
        view.age(),
        view.text_or("/spec/volumeMode", "<unset>"),
    ]
}

fn storage_class(view: &View<'_>) -> Vec<Value> {
    let default = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
    let mut name = view.text("/metadata/name").to_owned();
    if view.text(default) == "true" {
        name += " (default)";
    }
    let expands = view.flag("/allowVolumeExpansion");
    vec![
        name.into(),
        view.text_or("/provisioner", NONE),
        view.text_or("/reclaimPolicy", "Delete"),
        view.text_or("/volumeBindingMode", "Immediate"),
        expands.to_string().into(),
        view.age(),
    ]
}
