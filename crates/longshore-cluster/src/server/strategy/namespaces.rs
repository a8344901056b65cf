//! Namespaces: a phase, a finalizer that stands for their content, and a label with their name.

use serde_json::{Value, json};

use crate::server::meta;

const LABEL_NAME: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

/// A new namespace is active and holds content.
pub(super) fn prepare_create(namespace: &mut Value) {
    namespace["status"] = json!({"phase": "Active"});
    let spec = meta::member(namespace, "spec");
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|finalizer| finalizer == FINALIZER)
    {
        list.push(FINALIZER.into());
    }
    set_label(namespace);
}

/// Only `/finalize` changes the finalizers of the content.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    meta::keep(meta::members(new), old, "spec");
    set_label(new);
}

fn set_label(namespace: &mut Value) {
    let name = meta::name(namespace).to_owned();
    if name.is_empty() {
        return;
    }
    let metadata = meta::metadata(namespace);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    meta::members(labels).insert(LABEL_NAME.into(), name.into());
}
