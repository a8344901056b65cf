//! Objects in the form that a client requests. The plain form shares the stored bytes; every other
//! one is made from the decoded object.

use std::{fmt, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use super::accept::{Encoding, Form};
use crate::server::{
    Clock,
    hub::{EventType, Object, frame_of},
    protobuf::{self, ListBody},
    registry::Resource,
    tables::{self, RowObject},
};

/// How to show objects of a resource to one client.
#[derive(Clone)]
pub(crate) struct Rendering {
    form: Form,
    /// The encoding of lists and watches; the last step of a response rewrites the others.
    encoding: Encoding,
    /// The resource as the client has addressed it.
    served: Arc<Resource>,
    row_object: RowObject,
    /// The time that ages are counted to.
    clock: Clock,
    /// Tables of a watch name their columns once.
    has_named_columns: bool,
}

impl fmt::Debug for Rendering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendering")
            .field("form", &self.form)
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}

impl Rendering {
    pub(crate) fn new(
        form: Form,
        row_object: RowObject,
        served: Arc<Resource>,
        clock: Clock,
    ) -> Rendering {
        Rendering {
            form,
            encoding: Encoding::Json,
            served,
            row_object,
            clock,
            has_named_columns: false,
        }
    }

    /// The same with lists and events in this encoding.
    pub(crate) fn encoded_as(self, encoding: Encoding) -> Rendering {
        Rendering { encoding, ..self }
    }

    /// Whether lists and events are messages.
    pub(crate) fn is_protobuf(&self) -> bool {
        self.encoding == Encoding::Protobuf
    }

    fn is_stored_form(&self, object: &Object) -> bool {
        self.form == Form::Whole && self.served.shows_stored(object.revision)
    }

    /// A decoded object.
    pub(crate) fn value(&self, object: Value) -> Value {
        match self.form {
            Form::Whole => self.served.to_served(object),
            Form::Metadata => metadata_of(&object),
            Form::Table => {
                let mut table = self.table(&object);
                table["columnDefinitions"] = tables::columns(&self.served);
                table
            }
        }
    }

    /// A table of one row, without the names of its columns.
    fn table(&self, object: &Value) -> Value {
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
            "rows": [self.row(object)],
        })
    }

    fn row(&self, object: &Value) -> Value {
        let cells = tables::cells(&self.served, object, (self.clock)());
        let shown = match self.row_object {
            RowObject::None => Value::Null,
            RowObject::Metadata => metadata_of(object),
            RowObject::Whole => self.served.to_served(object.clone()),
        };
        json!({"cells": cells, "object": shown})
    }

    /// A stored object.
    pub(crate) fn json(&self, object: &Object) -> Bytes {
        match self.form {
            Form::Metadata => object.metadata_json(),
            Form::Whole if self.is_stored_form(object) => object.json(),
            Form::Whole | Form::Table => self.value(object.value()).to_string().into(),
        }
    }

    /// The begin of a list, up to its first item.
    pub(crate) fn list_head(&self, metadata: &Value) -> String {
        let (kind, api_version) = self.list_type();
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata}",
            json!(kind),
            json!(api_version)
        );
        match self.form {
            Form::Whole | Form::Metadata => head + ",\"items\":[",
            Form::Table => {
                let columns = tables::columns(&self.served);
                format!("{head},\"columnDefinitions\":{columns},\"rows\":[")
            }
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
        let mut item = match self.form {
            Form::Metadata => return out.put_slice(&object.metadata_json()),
            Form::Whole => self.value(object.value()),
            Form::Table => self.row(&object.value()),
        };
        if self.form == Form::Whole
            && !is_custom
            && let Some(members) = item.as_object_mut()
        {
            members.remove("kind");
            members.remove("apiVersion");
        }
        out.put_slice(item.to_string().as_bytes());
    }

    /// A list in protobuf; `None` when its items have no message.
    pub(crate) fn message_list(&self, metadata: &Value, objects: &[Arc<Object>]) -> Option<Bytes> {
        let (list_kind, api_version) = self.list_type();
        let kind = list_kind.strip_suffix("List")?;
        let mut list = ListBody::new(&api_version, kind)?;
        for object in objects {
            list.push(&self.value(object.value()));
        }
        Some(list.finish(&list_kind, metadata).into())
    }

    /// A watch event that was made up, of an object in the client's form.
    pub(crate) fn event_of(&self, event: &str, object: &Value) -> Bytes {
        let message = match self.encoding {
            Encoding::Protobuf => protobuf::watch_frame(event, object),
            Encoding::Json | Encoding::Yaml => None,
        };
        message.unwrap_or_else(|| frame_of(event, object))
    }

    /// A watch event: a line, or a message behind its length.
    pub(crate) fn frame(&mut self, event: EventType, object: &Object) -> Bytes {
        if self.is_protobuf() {
            return self.event_of(event.name(), &self.value(object.value()));
        }
        if self.is_stored_form(object) {
            return object.frame(event);
        }
        let shown = match self.form {
            Form::Metadata => return object.metadata_frame(event),
            Form::Table if self.has_named_columns => self.table(&object.value()),
            Form::Whole | Form::Table => self.value(object.value()),
        };
        self.has_named_columns = true;
        frame_of(event.name(), &shown)
    }

    /// The event of a bookmark.
    pub(crate) fn bookmark(&self, revision: u64, annotations: Option<Value>) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let (kind, api_version) = match self.form {
            Form::Whole => (self.served.kind.clone(), self.served.api_version()),
            Form::Metadata => meta_type("PartialObjectMetadata"),
            Form::Table => {
                let table = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata",
                        "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}],
                });
                return self.event_of("BOOKMARK", &table);
            }
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        self.event_of("BOOKMARK", &object)
    }

    /// `kind` and `apiVersion` of a list.
    fn list_type(&self) -> (String, String) {
        match self.form {
            Form::Whole => (self.served.list_kind(), self.served.api_version()),
            Form::Metadata => meta_type("PartialObjectMetadataList"),
            Form::Table => meta_type("Table"),
        }
    }
}

fn meta_type(kind: &str) -> (String, String) {
    (kind.to_owned(), "meta.k8s.io/v1".to_owned())
}

/// The metadata alone.
pub(crate) fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}
