//! `namespaces/finalize`: says that the content of a namespace is gone.

use serde_json::Value;

use crate::server::meta;

/// The namespace with the finalizers of the request `asked`.
pub(crate) fn with_finalizers(namespace: &Value, asked: &Value) -> Value {
    let mut changed = namespace.clone();
    let empty = Value::Null;
    let spec = asked.get("spec").unwrap_or(&empty);
    let has_none = spec
        .get("finalizers")
        .and_then(Value::as_array)
        .is_none_or(|finalizers| finalizers.is_empty());
    let target = meta::member(&mut changed, "spec");
    if has_none {
        target.remove("finalizers");
    } else {
        meta::keep(target, spec, "finalizers");
    }
    changed
}
