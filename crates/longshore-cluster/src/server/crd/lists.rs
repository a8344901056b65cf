//! What schemas promise beyond the keywords of OpenAPI: items of sets and keys of list maps are
//! unique, embedded objects say what they are.

use serde_json::{Map, Value};

use super::{
    schema::{Additional, ListType, Schema},
    validate::cause,
};
use crate::server::error::Cause;

impl Schema {
    /// Items that occur twice in sets and list maps.
    pub(crate) fn duplicates(&self, value: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        walk(self, value, "", &mut |schema, value, path| {
            find_duplicates(schema, value, path, &mut causes);
        });
        causes
    }

    /// Embedded objects without a type.
    pub(crate) fn untyped_embedded(&self, value: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        walk(self, value, "", &mut |schema, value, path| {
            if !schema.is_embedded || !value.is_object() {
                return;
            }
            for key in ["apiVersion", "kind"] {
                if value
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or("")
                    .is_empty()
                {
                    let message = "Required value: must not be empty".to_owned();
                    causes.push(cause(
                        "FieldValueRequired",
                        &format!("{path}.{key}"),
                        message,
                    ));
                }
            }
        });
        causes
    }
}

/// Visits every value that a schema describes. Keys of maps stand in brackets.
fn walk(schema: &Schema, value: &Value, path: &str, visit: &mut impl FnMut(&Schema, &Value, &str)) {
    visit(schema, value, path);
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(property) = schema.properties.get(name) {
                    walk(property, member, &format!("{path}.{name}"), visit);
                } else if let Additional::Like(like) = &schema.additional {
                    walk(like, member, &format!("{path}[{name}]"), visit);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Some(like) = &schema.items {
                    walk(like, item, &format!("{path}[{index}]"), visit);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn find_duplicates(schema: &Schema, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Value::Array(items) = value else { return };
    let mut seen: Vec<Value> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let identity = match &schema.list {
            ListType::Atomic => return,
            ListType::Set => item.clone(),
            ListType::Map(keys) => identity(schema, keys, item),
        };
        if seen.contains(&identity) {
            let message = format!("Duplicate value: {identity}");
            causes.push(cause(
                "FieldValueDuplicate",
                &format!("{path}[{index}]"),
                message,
            ));
        }
        seen.push(identity);
    }
}

/// The keys of an item; a missing one has its default.
fn identity(schema: &Schema, keys: &[String], item: &Value) -> Value {
    let default = |key: &str| {
        let property = schema.items.as_ref()?.properties.get(key)?;
        property.default.as_deref().cloned()
    };
    let mut identity = Map::new();
    for key in keys {
        if let Some(value) = item.get(key).cloned().or_else(|| default(key)) {
            identity.insert(key.clone(), value);
        }
    }
    Value::Object(identity)
}
