//! Takes out of an answer what is different each time.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

/// Texts inside longer texts, and what is put in their place.
static TEXTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "<uid>",
        ),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (
            r"resource version: (\d+) \(\d+\)",
            "resource version: $1 (<version>)",
        ),
        (r"127\.0\.0\.1:\d+", "<webhook>"),
        (r"current: \d+", "current: <version>"),
        (r"in object meta: \d+", "in object meta: <version>"),
        (
            r"ResourceVersion in record \(\d+\)",
            "ResourceVersion in record (<version>)",
        ),
        // An object in quotes.
        (r#"(resourceVersion\\+":\\+")\d+"#, "${1}<version>"),
        // The age of an object, alone in a cell of a table.
        (r"^\d+s$", "<age>"),
    ]
    .map(|(pattern, mask)| (Regex::new(pattern).unwrap(), mask))
    .into()
});

/// Masks an answer: what every answer has, and the values at these pointers into the body. With
/// `only`, nothing else of the body is kept.
pub(super) fn mask(mut answer: Value, pointers: &[String], only: &[String]) -> Value {
    for pointer in pointers {
        if let Some(value) = answer["body"].pointer_mut(pointer) {
            *value = json!("<masked>");
        }
    }
    if !only.is_empty() {
        let body = &answer["body"];
        let kept = only.iter().map(|pointer| {
            let value = body.pointer(pointer).cloned().unwrap_or_default();
            (pointer.clone(), value)
        });
        answer["body"] = Value::Object(kept.collect());
    }
    mask_value(&mut answer);
    answer
}

fn mask_value(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("managedFields");
            for (key, member) in members {
                let is_version = key == "resourceVersion"
                    && member
                        .as_str()
                        .is_some_and(|text| text.parse::<u64>().is_ok_and(|n| n > 0));
                if is_version || (key == "continue" && member != "") {
                    *member = json!(format!("<{key}>"));
                }
                mask_value(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::String(text) => {
            for (pattern, mask) in TEXTS.iter() {
                if pattern.is_match(text) {
                    *text = pattern.replace_all(text, *mask).into_owned();
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
