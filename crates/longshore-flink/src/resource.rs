//! A resource of Flink as it was read, whatever its kind, and what every object has.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Incarnation, ObjectRef, Resource, Seen, error::chain};
use longshore_flink_core::{spec::read_spec, status::read_status};
use longshore_k8s::metadata::is_deleting;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A resource with the spec `S` and the status `T` of its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct FlinkResource<S, T> {
    /// The object.
    pub target: ObjectRef,
    /// The object as it was read.
    pub seen: Arc<Value>,
    /// The generation of the spec.
    pub generation: i64,
    /// When the object was created.
    pub created_at: Timestamp,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// Whether the finalizer of the kind's controller is there.
    pub has_finalizer: bool,
    /// The spec, or why it cannot be read.
    pub spec: Result<S, String>,
    /// The status, or why it cannot be read.
    pub status: Result<T, String>,
}

impl<S, T> FlinkResource<S, T>
where
    S: DeserializeOwned + Default,
    T: DeserializeOwned + Default,
{
    /// Reads an object of this kind, whose controller has this finalizer.
    pub(crate) fn read(object: Value, kind: Resource, finalizer: &str) -> Self {
        let spec = read_spec(kind.kind, object.get("spec"));
        let status = read_status(kind.kind, object.get("status"));
        Self {
            target: reference(kind, &object),
            generation: object["metadata"]["generation"].as_i64().unwrap_or(1),
            created_at: instant(&object["metadata"]["creationTimestamp"]),
            is_deleting: is_deleting(&object),
            has_finalizer: has_finalizer(&object, finalizer),
            spec: spec.map_err(|error| chain(&error)),
            status: status.map_err(|error| chain(&error)),
            seen: Arc::new(object),
        }
    }
}

/// Which incarnation of a resource there is. `around` is what the resource runs on; what was asked of it says nothing once
/// `epoch` names another one.
pub(crate) fn incarnation<S, T, A>(
    resource: &Seen<Arc<FlinkResource<S, T>>>,
    around: &Seen<A>,
    epoch: impl FnOnce(&A) -> Option<String>,
) -> Seen<Incarnation> {
    match (resource, around) {
        (Seen::Absent, _) => Seen::Absent,
        (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why.clone()),
        (Seen::Present(resource), around) => {
            let uid = resource.target.uid.clone().unwrap_or_default();
            let epoch = around.present().and_then(epoch);
            Seen::Present(Incarnation::of(uid).since(epoch.unwrap_or_default()))
        }
    }
}

/// The address of an object that was read.
pub(crate) fn reference(resource: Resource, object: &Value) -> ObjectRef {
    let text = |field: &str| object["metadata"][field].as_str();
    ObjectRef {
        resource,
        namespace: text("namespace").unwrap_or_default().to_owned(),
        name: text("name").unwrap_or_default().to_owned(),
        uid: text("uid").map(str::to_owned),
    }
}

pub(crate) fn label<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object["metadata"]["labels"][key].as_str()
}

pub(crate) fn instant(text: &Value) -> Timestamp {
    let instant = text.as_str().and_then(|text| text.parse().ok());
    instant.unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Whether this finalizer of an object is there.
pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|it| it.iter().any(|it| it == finalizer))
}
