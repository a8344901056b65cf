//! An object of any kind, held as small as it came.

use std::borrow::Cow;

use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::{Value, value::RawValue};

/// An object as the API server sent it: its metadata, and the whole of it as text.
///
/// A parsed object of an unknown kind takes five times the memory of its text, and a cache holds thousands of which a
/// round reads one. Hence each round parses its own, with [`to_value`](Self::to_value).
///
/// It is read from JSON text, or from a JSON value.
#[derive(Clone, Debug)]
pub struct RawObject {
    metadata: ObjectMeta,
    json: Box<RawValue>,
}

impl RawObject {
    /// All of it.
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
        let Head { mut metadata } = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        // Nobody asks who wrote which field, and it is the larger part.
        metadata.managed_fields = None;
        Ok(Self { metadata, json })
    }
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
    fn nothing_is_lost_whether_it_comes_as_text_or_as_a_value() {
        let object = json!({
            "apiVersion": "example.org/v1",
            "kind": "Thing",
            "metadata": {"name": "a", "uid": "u", "managedFields": [{"manager": "m"}], "new": 1},
            "spec": {"deep": [{"x": 1.5}]},
        });
        let text = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let event: WatchEvent<RawObject> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Added(from_text) = event else {
            panic!("{event:?}");
        };
        let from_value: RawObject = serde_json::from_value(object.clone()).unwrap();
        for raw in [from_text, from_value] {
            assert_eq!(raw.meta().name.as_deref(), Some("a"));
            assert_eq!(raw.meta().managed_fields, None);
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
