//! Objects in the form that a client asked for. The plain form shares the stored bytes; every other
//! one is made from the decoded object.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use super::accept::Form;
use crate::server::hub::{EventType, Object, frame_of};
use crate::server::registry::Resource;

/// How to show objects of a resource to one client.
#[derive(Debug, Clone)]
pub(crate) struct Rendering {
    form: Form,
    /// The resource as the client has addressed it.
    served: Arc<Resource>,
}

impl Rendering {
    pub(crate) fn new(form: Form, served: Arc<Resource>) -> Rendering {
        Rendering { form, served }
    }

    fn is_stored_form(&self, object: &Object) -> bool {
        self.form == Form::Whole && self.served.shows_stored(object.revision)
    }

    /// A decoded object.
    pub(crate) fn value(&self, object: Value) -> Value {
        match self.form {
            Form::Whole => self.served.to_served(object),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            }),
        }
    }

    /// A stored object.
    pub(crate) fn json(&self, object: &Object) -> Bytes {
        if self.is_stored_form(object) {
            object.json()
        } else {
            self.value(object.value()).to_string().into()
        }
    }

    /// A stored object as an item of a list.
    pub(crate) fn put_item(&self, object: &Object, out: &mut BytesMut) {
        // Items of built-in kinds do not repeat their type; custom ones do.
        let is_custom = self.served.custom.is_some();
        if is_custom && self.is_stored_form(object) {
            return out.put_slice(&object.json());
        }
        if self.is_stored_form(object) {
            out.put_u8(b'{');
            out.put_slice(object.item_tail());
            return;
        }
        let mut item = self.value(object.value());
        if self.form == Form::Whole
            && !is_custom
            && let Some(members) = item.as_object_mut()
        {
            members.remove("kind");
            members.remove("apiVersion");
        }
        out.put_slice(item.to_string().as_bytes());
    }

    /// The line of a watch event.
    pub(crate) fn frame(&self, event: EventType, object: &Object) -> Bytes {
        if self.is_stored_form(object) {
            object.frame(event)
        } else {
            frame_of(event.name(), &self.value(object.value()))
        }
    }

    /// The line of a bookmark.
    pub(crate) fn bookmark(&self, revision: u64, annotations: Option<Value>) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let (kind, api_version) = match self.form {
            Form::Whole => (self.served.kind.clone(), self.served.api_version()),
            Form::Metadata => (
                "PartialObjectMetadata".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
        };
        frame_of(
            "BOOKMARK",
            &json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}),
        )
    }

    /// `kind` and `apiVersion` of a list.
    pub(crate) fn list_type(&self) -> (String, String) {
        match self.form {
            Form::Whole => (self.served.list_kind(), self.served.api_version()),
            Form::Metadata => (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
        }
    }
}
