//! `google.protobuf.Struct` as the JSON that it stands for.

use prost_types::{Struct, value::Kind};
use serde_json::{Map, Number, Value};

/// The object.
pub(crate) fn to_json(object: &Struct) -> Value {
    let fields = object.fields.iter();
    Value::Object(
        fields
            .map(|(name, value)| (name.clone(), value_to_json(value)))
            .collect::<Map<_, _>>(),
    )
}

/// A field of an object, whatever the case of its name: Go reads JSON so.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object
        .as_object()?
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

fn value_to_json(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(*value),
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::NumberValue(number)) => to_number(*number),
        Some(Kind::ListValue(list)) => {
            Value::Array(list.values.iter().map(value_to_json).collect())
        }
        Some(Kind::StructValue(object)) => to_json(object),
    }
}

/// All numbers of a `Struct` are floats; ports and counts have to be whole again.
fn to_number(number: f64) -> Value {
    /// Up to here every whole number is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough")]
        return Value::Number(Number::from(number as i64));
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// The other way.
pub(crate) fn from_json(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(prost_types::ListValue {
            values: values.iter().map(from_json).collect(),
        }),
        Value::Object(_) => Kind::StructValue(struct_from_json(value)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// An object as a message; of anything else the empty one.
pub(crate) fn struct_from_json(object: &Value) -> Struct {
    let fields = object.as_object().into_iter().flatten();
    Struct {
        fields: fields.map(|(k, v)| (k.clone(), from_json(v))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_struct_is_its_json_again_and_whole_numbers_are_whole() {
        let object = json!({
            "port": 80, "ratio": 0.5, "minus": -3, "list": [null, true, "x", {"a": {}}],
        });
        assert_eq!(to_json(&struct_from_json(&object)), object);
        assert_eq!(to_number(f64::NAN), Value::Null);
        assert_eq!(to_number(1e300), json!(1e300));
    }
}
