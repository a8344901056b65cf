//! Objects as JSON with their metadata read: templates that a user wrote stay what they are.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use longshore_k8s::Selector;
use serde_json::{Value, json};

/// An object is not what its kind says.
#[derive(Debug, thiserror::Error)]
#[error("{field} of {name} cannot be used: expected {expected}")]
pub(crate) struct Malformed {
    name: String,
    field: &'static str,
    expected: &'static str,
}

/// An object of one of the kinds that the controllers here read.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) meta: ObjectMeta,
    /// Everything besides metadata and type.
    pub(crate) data: Value,
}

impl From<DynamicObject> for Body {
    fn from(object: DynamicObject) -> Body {
        Body {
            meta: object.metadata,
            data: object.data,
        }
    }
}

impl Body {
    pub(crate) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.data.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// A number, 0 when it is not there: Kubernetes leaves those out.
    pub(crate) fn count(&self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap_or(0)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.meta.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// `spec.selector` of a workload. An empty one selects nothing here, as upstream's controllers
    /// have it.
    pub(crate) fn selector(&self) -> Result<Selector, Malformed> {
        let expected = "a label selector that selects something";
        workload_selector(self.at("/spec/selector"))
            .ok_or_else(|| self.malformed("spec.selector", expected))
    }

    /// `spec.selector` of a ReplicationController.
    pub(crate) fn plain_selector(&self) -> Result<Selector, Malformed> {
        let expected = "labels";
        selector_of_labels(self.at("/spec/selector"))
            .ok_or_else(|| self.malformed("spec.selector", expected))
    }

    /// The complaint that a field of this object is not what it should be.
    pub(crate) fn malformed(&self, field: &'static str, expected: &'static str) -> Malformed {
        Malformed {
            name: self.name().to_owned(),
            field,
            expected,
        }
    }

    /// The reference by which this object controls another one.
    pub(crate) fn as_controller(&self, api_version: &str, kind: &str) -> Value {
        json!({
            "apiVersion": api_version, "kind": kind, "name": self.name(), "uid": self.uid(),
            "controller": true, "blockOwnerDeletion": true,
        })
    }
}

/// The selector of a Service or a ReplicationController, which have plain labels; `None` for an empty one.
pub(crate) fn selector_of_labels(labels: &Value) -> Option<Selector> {
    let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).ok()?;
    let selector = Selector::of_labels(&labels);
    (!selector.selects_all()).then_some(selector)
}

/// A label selector that selects something.
pub(crate) fn workload_selector(selector: &Value) -> Option<Selector> {
    let selector = Selector::read(selector).ok()?;
    (!selector.selects_all()).then_some(selector)
}

/// The owner that controls an object.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = meta.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true))
}
