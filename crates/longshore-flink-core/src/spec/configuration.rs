//! `flinkConfiguration`: any YAML object, flat or nested (spec 1.3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::{Json, Object};

/// What a user configured, in the shape in which it was written. Comparisons use [`Self::flat`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlinkConfiguration(Object);

impl FlinkConfiguration {
    /// The object as it was written.
    pub fn as_written(&self) -> &Object {
        &self.0
    }

    /// Sets a top-level key, as the autoscaler does.
    pub fn set(&mut self, key: impl Into<String>, value: &str) {
        self.0.insert(key, Json::from(value));
    }

    /// Removes a top-level key, and returns whether it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        self.0.remove(key).is_some()
    }

    /// The keys with their values as texts (upstream: `ConfigObjectNode.asFlatMap`). Keys of nested objects are joined
    /// with `.`, elements of lists with `;`. An empty list or object sets nothing; `null` is the text `null`. Of a key
    /// that is written flat and nested, the later value counts.
    pub fn flat(&self) -> BTreeMap<String, String> {
        let mut flat = BTreeMap::new();
        flatten("", &self.0, &mut flat);
        flat
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for FlinkConfiguration {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        Self(
            entries
                .map(|(key, value)| (key, Json::String(value.into())))
                .collect(),
        )
    }
}

fn flatten(prefix: &str, object: &Object, flat: &mut BTreeMap<String, String>) {
    for (key, value) in object.iter() {
        let key = if prefix.is_empty() {
            key.to_owned()
        } else {
            format!("{prefix}.{key}")
        };
        match value {
            Json::Object(nested) => flatten(&key, nested, flat),
            Json::Array(elements) if elements.is_empty() => {}
            Json::Array(elements) => {
                let texts: Vec<String> = elements.iter().map(Json::as_text).collect();
                flat.insert(key, texts.join(";"));
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {
                flat.insert(key, value.as_text());
            }
        }
    }
}
