//! Compares an object with its type.

use serde_json::{Map, Value};

use super::types::{Fields, Shape, Types};

/// A value that its field cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal {found} into field {path} of type {expected}")]
pub(super) struct Mismatch {
    path: String,
    found: &'static str,
    expected: &'static str,
}

/// Names the fields that the type does not have, with their paths.
pub(super) fn unknown_fields(
    types: &Types,
    root: &Fields,
    object: &Value,
) -> Result<Vec<String>, Mismatch> {
    let mut walk = Walk {
        types,
        path: String::new(),
        unknown: Vec::new(),
    };
    if let Value::Object(members) = object {
        walk.members(root, members)?;
    }
    Ok(walk.unknown)
}

struct Walk<'a> {
    types: &'a Types,
    /// Where we are: `spec.containers[0].name`.
    path: String,
    unknown: Vec<String>,
}

impl Walk<'_> {
    /// Goes one step down, does something there, and comes back.
    fn at<T>(&mut self, step: &str, what: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        let result = what(self);
        self.path.truncate(length);
        result
    }

    fn members(&mut self, fields: &Fields, members: &Map<String, Value>) -> Result<(), Mismatch> {
        for (name, value) in members {
            self.at(name, |walk| match fields.get(name.as_str()) {
                Some(shape) => walk.value(shape, value),
                None => {
                    walk.unknown.push(super::unknown_field(&walk.path));
                    Ok(())
                }
            })?;
        }
        Ok(())
    }

    fn value(&mut self, shape: &Shape, value: &Value) -> Result<(), Mismatch> {
        match (shape, value) {
            // Null is as good as absent.
            (_, Value::Null)
            | (Shape::Any, _)
            | (Shape::Text, Value::String(_))
            | (Shape::Number, Value::Number(_))
            | (Shape::Boolean, Value::Bool(_))
            | (Shape::TextOrNumber, Value::String(_) | Value::Number(_)) => Ok(()),
            (Shape::Integer, Value::Number(number)) if is_whole(number) => Ok(()),
            (Shape::List(item), Value::Array(items)) => {
                for (index, value) in items.iter().enumerate() {
                    self.at(&format!("[{index}]"), |walk| walk.value(item, value))?;
                }
                Ok(())
            }
            (Shape::Map(item), Value::Object(members)) => {
                for (name, value) in members {
                    self.at(name, |walk| walk.value(item, value))?;
                }
                Ok(())
            }
            (Shape::Fields(index), Value::Object(members)) => {
                let types = self.types;
                self.members(types.fields(*index), members)
            }
            (shape, value) => Err(Mismatch {
                path: self.path.clone(),
                found: name_of_value(value),
                expected: name_of_shape(shape),
            }),
        }
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn name_of_value(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn name_of_shape(shape: &Shape) -> &'static str {
    match shape {
        Shape::Any => "any",
        Shape::Text => "string",
        Shape::Integer => "int",
        Shape::Number => "float64",
        Shape::Boolean => "bool",
        Shape::TextOrNumber => "string or number",
        Shape::List(_) => "array",
        Shape::Map(_) => "map",
        Shape::Fields(_) => "object",
    }
}
