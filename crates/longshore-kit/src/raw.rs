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
/// beside the text has neither labels nor annotations. The writers of its fields (`managedFields`), which may be much
/// of the text, are not held at all: it reads as null, and a patch that does not say it leaves it as it is.
///
/// Deserializes from JSON text, or from a JSON value.
#[derive(Clone, Debug)]
pub struct RawObject {
    metadata: ObjectMeta,
    json: Box<str>,
}

impl RawObject {
    /// All of it, but for `managedFields`.
    ///
    /// # Errors
    /// The object is nested deeper than a JSON value may be.
    pub fn to_value(&self) -> serde_json::Result<Value> {
        serde_json::from_str(&self.json)
    }

    /// How long its text is, in bytes.
    pub fn size(&self) -> usize {
        self.json.len()
    }

    /// A part of it, as a type that passes over the rest.
    ///
    /// # Errors
    /// The object does not have the shape of that type.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> serde_json::Result<T> {
        serde_json::from_str(&self.json)
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::of(json.get()).map_err(D::Error::custom)
    }
}

impl RawObject {
    fn of(text: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow)]
            metadata: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Metadata<'a> {
            #[serde(borrow, rename = "managedFields")]
            managed_fields: Option<&'a RawValue>,
        }

        let Object { metadata } = serde_json::from_str(text)?;
        let part = metadata.map_or("{}", RawValue::get);
        let Metadata { managed_fields } = serde_json::from_str(part)?;
        // Read without them: they would become the larger part of it.
        let (part, text) = match managed_fields {
            Some(fields) => (with_null(part, fields).into(), with_null(text, fields)),
            None => (Cow::Borrowed(part), text.to_owned()),
        };
        let mut metadata: ObjectMeta = serde_json::from_str(&part)?;
        (metadata.labels, metadata.annotations) = (None, None);
        let json = text.into_boxed_str();
        Ok(Self { metadata, json })
    }
}

/// The same text with null in place of a part of it.
fn with_null(text: &str, part: &RawValue) -> String {
    let part = part.get();
    // Borrowed from the text, it is a part of it.
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    let (before, rest) = text.split_at(start);
    [before, "null", &rest[part.len()..]].concat()
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
