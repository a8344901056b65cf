//! What makes two documents the same version of a DAG.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::dag::Document;

/// SHA-256 of what a document says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DagHash([u8; 32]);

impl DagHash {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for DagHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for DagHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Document {
    /// The hash of this version. Two documents with the same hash are the same version of the DAG.
    ///
    /// As in upstream's `SerializedDagModel.hash`, the order of keys, of tasks and of lists of texts does not matter, and
    /// neither does where the file lies. (Upstream counts the folder of all DAGs, `_processor_dags_folder`, but it says
    /// where, too.)
    #[must_use]
    pub fn hash(&self) -> DagHash {
        let mut document = self.to_json();
        if let Some(dag) = document["dag"].as_object_mut() {
            dag.remove("fileloc");
            dag.remove("_processor_dags_folder");
        }
        let mut text = String::new();
        canonical(&document, &mut text);
        DagHash(Sha256::digest(text.as_bytes()).into())
    }
}

/// Writes a value so that equal ones have equal texts.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, member) in members {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                canonical(member, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            let mut items: Vec<&Value> = items.iter().collect();
            if items.iter().all(|item| item.is_string()) {
                items.sort_by_key(|item| item.as_str());
            } else if items.iter().all(|item| task_id(item).is_some()) {
                items.sort_by_key(|item| task_id(item));
            }
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string());
        }
    }
}

fn task_id(value: &Value) -> Option<&str> {
    value.get("__var")?.get("task_id")?.as_str()
}
