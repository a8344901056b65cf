//! From JSON to messages: what Go's encoder would have sent of the same object.
//!
//! A value that does not fit the type of its field is left out, as fields are that the type does not
//! have: a client of Go's libraries could not read such an object at all.

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    MAGIC,
    catalog::{Catalog, Field, Shape, When},
    wire::{put, put_double, put_integer},
};

/// An object in its envelope; `None` when its kind has no message, as those of custom resources.
pub(crate) fn encode(object: &Value) -> Option<Vec<u8>> {
    let catalog = Catalog::built_in();
    let text = |member: &str| object.get(member).and_then(Value::as_str);
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let encoder = Encoder { catalog };
    let members = object.as_object()?;
    let message = match catalog.kind(api_version, kind) {
        Some(place) => encoder.message(place, members),
        None => {
            let mut list = ListBody::new(api_version, kind.strip_suffix("List")?)?;
            for item in members.get("items")?.as_array()? {
                list.push(item);
            }
            return Some(list.finish(kind, members.get("metadata")?));
        }
    };
    Some(enveloped(api_version, kind, &[&message]))
}

/// A list, encoded item by item.
#[derive(Debug)]
pub(crate) struct ListBody {
    api_version: String,
    item: usize,
    items: Vec<u8>,
}

impl ListBody {
    /// A list without items yet; `None` when their kind has no message.
    pub(crate) fn new(api_version: &str, kind: &str) -> Option<ListBody> {
        Some(ListBody {
            api_version: api_version.to_owned(),
            item: Catalog::built_in().kind(api_version, kind)?,
            items: Vec::new(),
        })
    }

    /// Appends an item.
    pub(crate) fn push(&mut self, item: &Value) {
        let encoder = Encoder {
            catalog: Catalog::built_in(),
        };
        if let Some(members) = item.as_object() {
            put(&mut self.items, 2, &encoder.message(self.item, members));
        }
    }

    /// The list in its envelope. The first field of every list is its metadata, the second one its items.
    pub(crate) fn finish(self, kind: &str, metadata: &Value) -> Vec<u8> {
        let catalog = Catalog::built_in();
        let mut head = Vec::new();
        if let (Some(place), Some(metadata)) = (catalog.list_metadata(), metadata.as_object()) {
            put(&mut head, 1, &Encoder { catalog }.message(place, metadata));
        }
        enveloped(&self.api_version, kind, &[&head, &self.items])
    }
}

/// An event of a watch, after its length; `None` when the kind of the object has no message.
pub(crate) fn watch_frame(event: &str, object: &Value) -> Option<Bytes> {
    let mut raw = Vec::new();
    put(&mut raw, 1, &encode(object)?);
    let mut message = Vec::with_capacity(raw.len() + 32);
    put(&mut message, 1, event.as_bytes());
    put(&mut message, 2, &raw);
    let length = u32::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes()[..], &message].concat().into())
}

/// `runtime.Unknown` around the parts of a message.
fn enveloped(api_version: &str, kind: &str, message: &[&[u8]]) -> Vec<u8> {
    let mut envelope_type = Vec::new();
    put(&mut envelope_type, 1, api_version.as_bytes());
    put(&mut envelope_type, 2, kind.as_bytes());
    let message = message.concat();
    let mut out = Vec::with_capacity(message.len() + envelope_type.len() + 32);
    out.extend_from_slice(MAGIC);
    put(&mut out, 1, &envelope_type);
    put(&mut out, 2, &message);
    // The encoding and the type of the content: those of the whole body.
    put(&mut out, 3, &[]);
    put(&mut out, 4, &[]);
    out
}

/// Encodes with the messages of a catalog.
#[derive(Clone, Copy)]
struct Encoder<'a> {
    catalog: &'a Catalog,
}

impl Encoder<'_> {
    /// The fields of a message.
    fn message(self, place: usize, members: &Map<String, Value>) -> Vec<u8> {
        let mut out = Vec::new();
        for field in self.catalog.fields(place) {
            self.member(field, members, &mut out);
        }
        out
    }

    /// Appends the field that is a member of an object.
    fn member(self, field: &Field, members: &Map<String, Value>, out: &mut Vec<u8>) {
        if let (When::Inline, Shape::Message(place)) = (field.when, &field.shape) {
            return put(out, field.number, &self.message(*place, members));
        }
        if let Some(value) = members.get(&field.name) {
            self.field(field.number, &field.shape, value, out);
        }
    }

    /// Appends a field. `null` is no value.
    fn field(self, number: u32, shape: &Shape, value: &Value, out: &mut Vec<u8>) {
        match (shape, value) {
            (_, Value::Null) => {}
            (Shape::Pointer(inner), value) => self.field(number, inner, value, out),
            (Shape::List(inner), Value::Array(items)) => {
                for item in items {
                    // An enumeration of JSON values may have this one.
                    if item.is_null() && **inner == Shape::Json {
                        put(out, number, &[]);
                    }
                    self.field(number, inner, item, out);
                }
            }
            (Shape::Map(inner), Value::Object(members)) => {
                for (key, value) in members {
                    put(out, number, &self.entry(inner, key, value));
                }
            }
            (Shape::Boolean, Value::Bool(is_set)) => put_integer(out, number, (*is_set).into()),
            (Shape::Integer, Value::Number(_)) => {
                if let Some(integer) = value.as_i64() {
                    put_integer(out, number, integer);
                }
            }
            (Shape::Double, Value::Number(_)) => {
                if let Some(double) = value.as_f64() {
                    put_double(out, number, double);
                }
            }
            (Shape::Text, Value::String(text)) => put(out, number, text.as_bytes()),
            (shape, value) => {
                if let Some(message) = self.in_message(shape, value) {
                    put(out, number, &message);
                }
            }
        }
    }

    /// An entry of a map: a message of a key and a value, which is there in any case.
    fn entry(self, inner: &Shape, key: &str, value: &Value) -> Vec<u8> {
        let mut entry = Vec::new();
        put(&mut entry, 1, key.as_bytes());
        match value {
            Value::Null => put(&mut entry, 2, &[]),
            Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => self.field(2, inner, value, &mut entry),
        }
        entry
    }

    /// The bytes of a value that is a message or bytes; `None` when it does not fit.
    fn in_message(self, shape: &Shape, value: &Value) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match (shape, value) {
            (
                Shape::Message(place)
                | Shape::SchemaOrBoolean(place)
                | Shape::SchemaOrList(place)
                | Shape::SchemaOrTexts(place),
                Value::Object(members),
            ) => return Some(self.schema(shape, self.message(*place, members))),
            (Shape::Bytes, Value::String(_)) => {
                return Some(ByteString::deserialize(value).ok()?.0);
            }
            (Shape::Time, Value::String(text)) => put_time(&mut out, text, 1_000_000_000)?,
            (Shape::MicroTime, Value::String(text)) => put_time(&mut out, text, 1_000)?,
            (Shape::Quantity, Value::String(text)) => put(&mut out, 1, text.as_bytes()),
            (Shape::Quantity, Value::Number(number)) => {
                put(&mut out, 1, number.to_string().as_bytes());
            }
            (Shape::IntOrString, Value::String(text)) => {
                put_integer(&mut out, 1, 1);
                put_integer(&mut out, 2, 0);
                put(&mut out, 3, text.as_bytes());
            }
            (Shape::IntOrString, Value::Number(number)) => {
                put_integer(&mut out, 1, 0);
                put_integer(&mut out, 2, number.as_i64()?);
                put(&mut out, 3, &[]);
            }
            (Shape::Json, value) => put(&mut out, 1, value.to_string().as_bytes()),
            (Shape::Texts, Value::Array(items)) => {
                let shape = Shape::Text;
                items
                    .iter()
                    .for_each(|item| self.field(1, &shape, item, &mut out));
            }
            (Shape::SchemaOrBoolean(_), Value::Bool(is_allowed)) => {
                put_integer(&mut out, 1, (*is_allowed).into());
            }
            (Shape::SchemaOrList(place), Value::Array(items)) => {
                let shape = Shape::Message(*place);
                items
                    .iter()
                    .for_each(|item| self.field(2, &shape, item, &mut out));
            }
            (Shape::SchemaOrTexts(_), Value::Array(items)) => {
                let shape = Shape::Text;
                items
                    .iter()
                    .for_each(|item| self.field(2, &shape, item, &mut out));
            }
            (_, _) => return None,
        }
        Some(out)
    }

    /// The message of an object where something else may stand, too.
    fn schema(self, shape: &Shape, message: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        match shape {
            Shape::SchemaOrBoolean(_) => {
                put_integer(&mut out, 1, 1);
                put(&mut out, 2, &message);
            }
            Shape::SchemaOrList(_) | Shape::SchemaOrTexts(_) => put(&mut out, 1, &message),
            Shape::Text
            | Shape::Boolean
            | Shape::Integer
            | Shape::Double
            | Shape::Bytes
            | Shape::Time
            | Shape::MicroTime
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::Json
            | Shape::Texts
            | Shape::List(_)
            | Shape::Map(_)
            | Shape::Pointer(_)
            | Shape::Message(_) => return message,
        }
        out
    }
}

/// Appends seconds since 1970, and nanoseconds in steps of `step`; `None` when the text is no time.
fn put_time(out: &mut Vec<u8>, text: &str, step: i64) -> Option<()> {
    let time: Timestamp = text.parse().ok()?;
    let nanoseconds = i64::from(time.subsec_nanosecond());
    put_integer(out, 1, time.as_second());
    put_integer(out, 2, nanoseconds / step * step);
    Some(())
}
