//! The merge of one object onto another, as upstream merges pods: what the second sets wins, lists are joined.

use serde_json::Value;

/// Merges `over` onto `base`. Objects are merged field by field, lists are joined with the base's first, and anything
/// else replaces the base unless it is a zero value (`null`, `false`, `0`, an empty text), which says nothing in Go.
pub(crate) fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (field, value) in over {
                match base.get_mut(field) {
                    Some(own) => merge(own, value),
                    None => {
                        base.insert(field.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(base), Value::Array(over)) => base.extend(over.iter().cloned()),
        (base, over) if !is_zero(over) => *base = over.clone(),
        _ => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_second_says_wins_and_lists_are_joined() {
        for (base, over, merged) in [
            (
                json!({"a": 1}),
                json!({"a": 2, "b": 0}),
                json!({"a": 2, "b": 0}),
            ),
            (
                json!({"a": 1, "b": "x"}),
                json!({"a": 0, "b": ""}),
                json!({"a": 1, "b": "x"}),
            ),
            (json!({"a": true}), json!({"a": false}), json!({"a": true})),
            (
                json!({"a": [1]}),
                json!({"a": [1, 2]}),
                json!({"a": [1, 1, 2]}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"a": {"c": 2}}),
                json!({"a": {"b": 1, "c": 2}}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"a": {}}),
                json!({"a": {"b": 1}}),
            ),
            (json!({"a": null}), json!({"a": {}}), json!({"a": {}})),
        ] {
            let mut found = base.clone();
            merge(&mut found, &over);
            assert_eq!(found, merged, "{over} onto {base}");
        }
    }
}
