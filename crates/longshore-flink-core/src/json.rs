//! JSON whose objects keep the order of their keys.
//!
//! Upstream compares serialised specs as texts. A spec that was read and written again must therefore be the same text,
//! also where another operator chose the order of the keys.

use std::fmt;

use serde::{
    de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor},
    ser::{Serialize, SerializeMap, SerializeSeq, Serializer},
};
use serde_json::Number;

use crate::jackson;

/// A value of JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Json {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number. `1` and `1.0` are different ones.
    Number(Number),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Self>),
    /// An object.
    Object(Object),
}

/// Keys with values, in the order in which they were written. Two objects are equal whatever their order is.
#[derive(Clone, Default)]
pub struct Object {
    entries: Vec<(String, Json)>,
}

impl Json {
    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    /// The object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) | Self::Array(_) => None,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// A scalar as text, without quotes; lists and objects are empty (Jackson: `JsonNode.asText`).
    pub fn as_text(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(number) => jackson::number_text(number),
            Self::String(text) => text.clone(),
            Self::Array(_) | Self::Object(_) => String::new(),
        }
    }

    /// Compact JSON, as Jackson writes it.
    pub fn to_compact(&self) -> String {
        jackson::to_text(self)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl Object {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let entry = self.entries.iter().find(|(name, _)| name == key)?;
        Some(&entry.1)
    }

    /// Sets a key. A new one is the last; a known one keeps its place.
    pub fn insert(&mut self, key: impl Into<String>, value: Json) {
        let key = key.into();
        match self.entries.iter_mut().find(|(name, _)| *name == key) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key, value)),
        }
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        let index = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.remove(index).1)
    }

    /// Keys and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .all(|(key, value)| other.get(key) == Some(value))
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<String>> FromIterator<(K, Json)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, Json)>>(entries: I) -> Self {
        let mut object = Self::default();
        for (key, value) in entries {
            object.insert(key, value);
        }
        object
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(elements) => {
                let mut sequence = serializer.serialize_seq(Some(elements.len()))?;
                for element in elements {
                    sequence.serialize_element(element)?;
                }
                sequence.end()
            }
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        Json::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = access.next_element()? {
            elements.push(element);
        }
        Ok(Json::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Json, A::Error> {
        ObjectVisitor.visit_map(access).map(Json::Object)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some((key, value)) = access.next_entry::<String, Json>()? {
            object.insert(key, value);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_of_keys_survives_and_does_not_matter_for_equality() {
        let text = r#"{"b":1,"a":{"d":[1.0,null,"x"],"c":true},"b2":-5}"#;
        let read: Json = serde_json::from_str(text).unwrap();
        assert_eq!(read.to_compact(), text);
        let sorted: Json =
            serde_json::from_str(r#"{"a":{"c":true,"d":[1.0,null,"x"]},"b":1,"b2":-5}"#).unwrap();
        assert_eq!(read, sorted);
        assert_ne!(read.to_compact(), sorted.to_compact());
        let more: Json = serde_json::from_str(r#"{"a":1}"#).unwrap();
        assert_ne!(read, more);
        let float: Json = serde_json::from_str("1.0").unwrap();
        assert_ne!(float, Json::Number(1.into()));
    }

    #[test]
    fn of_a_key_that_is_written_twice_the_last_value_counts_in_the_first_place() {
        let read: Json = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(read.to_compact(), r#"{"a":3,"b":2}"#);
    }

    proptest! {
        #[test]
        fn every_text_of_a_string_survives(text in ".{0,40}") {
            let json = Json::Array(vec![Json::String(text)]);
            let read: Json = serde_json::from_str(&json.to_compact()).unwrap();
            prop_assert_eq!(read, json);
        }
    }
}
