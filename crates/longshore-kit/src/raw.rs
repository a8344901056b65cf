//! An object of any kind, held as small as it came.

use std::borrow::Cow;

use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::{Value, value::RawValue};

/// An object as the API server sent it: what tells it from others, and the whole of it as text.
///
/// A parsed object of an unknown kind takes five times the memory of its text, and a cache holds thousands of which a
/// round reads one. Hence each round parses its own, with [`to_value`](Self::to_value), and the metadata that is held
/// beside the text has neither labels nor annotations. Who wrote which field (`managedFields`), which may be much of
/// the text, is not held at all: it reads as null, and a patch that does not say it leaves it as it is.
///
/// It is read from JSON text, or from a JSON value.
#[derive(Clone, Debug)]
pub struct RawObject {
    metadata: ObjectMeta,
    json: Box<RawValue>,
}

impl RawObject {
    /// All of it, but for `managedFields`.
    ///
    /// # Errors
    /// It is nested deeper than a JSON value may be.
    pub fn to_value(&self) -> serde_json::Result<Value> {
        serde_json::from_str(self.json.get())
    }

    /// How long its text is, in bytes.
    pub fn size(&self) -> usize {
        self.json.get().len()
    }

    /// A part of it, as a type that passes over the rest.
    ///
    /// # Errors
    /// It does not have the shape of that type.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> serde_json::Result<T> {
        serde_json::from_str(self.json.get())
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            metadata: ObjectMeta,
        }

        let json = Box::<RawValue>::deserialize(deserializer)?;
        let json = without_managed_fields(json).map_err(D::Error::custom)?;
        let Head { mut metadata } = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        (metadata.labels, metadata.annotations) = (None, None);
        Ok(Self { metadata, json })
    }
}

/// The same text with null in place of `metadata.managedFields`.
fn without_managed_fields(json: Box<RawValue>) -> serde_json::Result<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow, default)]
        metadata: Metadata<'a>,
    }
    #[derive(Default, Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default, rename = "managedFields")]
        managed_fields: Option<&'a RawValue>,
    }

    let text = json.get();
    let Object { metadata } = serde_json::from_str(text)?;
    let Some(fields) = metadata.managed_fields.map(RawValue::get) else {
        return Ok(json);
    };
    // Borrowed from the text, it is a part of it.
    let start = fields.as_ptr().addr() - text.as_ptr().addr();
    let (before, rest) = text.split_at(start);
    let shorter = [before, "null", &rest[fields.len()..]].concat();
    RawValue::from_string(shorter)
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.api_version)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_who_wrote_it_is_lost_whether_it_comes_as_text_or_as_a_value() {
        let mut object = json!({
            "apiVersion": "example.org/v1",
            "kind": "Thing",
            "metadata": {
                "name": "a", "labels": {"l": "ä"}, "managedFields": [{"manager": "m", "x": "]}\""}], "new": 1,
            },
            "spec": {"deep": [{"x": 1.5, "managedFields": [2]}]},
        });
        let text = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let event: WatchEvent<RawObject> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Added(from_text) = event else {
            panic!("{event:?}");
        };
        let from_value: RawObject = serde_json::from_value(object.clone()).unwrap();
        let none = json!({"metadata": {"name": "b"}});
        let raw: RawObject = serde_json::from_value(none.clone()).unwrap();
        assert_eq!(raw.to_value().unwrap(), none);
        object["metadata"]["managedFields"] = json!(null);
        for raw in [from_text, from_value] {
            assert_eq!(raw.meta().name.as_deref(), Some("a"));
            assert_eq!(raw.to_value().unwrap(), object);
            assert_eq!(raw.size(), object.to_string().len());
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["1", "{\"metadata\": 1}", "{"] {
            assert!(serde_json::from_str::<RawObject>(text).is_err(), "{text}");
        }
    }
}
