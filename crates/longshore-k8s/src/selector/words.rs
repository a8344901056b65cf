//! What is wrong with a selector, in the words of a webhook that refuses its object.

use serde_json::Value;

use super::object::{self, Fault};

/// What makes a selector at this path one that cannot be followed, or that selects nothing whatever the labels are:
/// where, what was found, and what was expected.
pub fn faults_at(path: &str, selector: &Value) -> Vec<String> {
    if selector.is_null() {
        return vec![format!(
            "{path}: Invalid value: null: expected a label selector"
        )];
    }
    let faults = object::faults(selector).into_iter();
    faults
        .map(|fault| describe(path, selector, fault))
        .collect()
}

fn describe(path: &str, selector: &Value, fault: Fault) -> String {
    let (place, found, expected) = match fault {
        Fault::Shape(why) => {
            let expected = format!("a label selector: {why}");
            return format!("{path}: Invalid value: {selector}: expected {expected}");
        }
        Fault::Label { key, value } => {
            let expected = "the key and the value of a label".to_owned();
            let found = format!("\"{key}={value}\"");
            return format!("{path}.matchLabels: Invalid value: {found}: expected {expected}");
        }
        Fault::Key { at, key } => (
            format!("[{at}].key"),
            format!("{key:?}"),
            "the key of a label".to_owned(),
        ),
        Fault::Operator { at, operator } => (
            format!("[{at}].operator"),
            format!("{operator:?}"),
            "one of In, NotIn, Exists, DoesNotExist".to_owned(),
        ),
        Fault::ValuesMissing { at, operator } => (
            format!("[{at}].values"),
            "[]".to_owned(),
            format!("at least one value for the operator {operator}"),
        ),
        Fault::ValuesForbidden {
            at,
            operator,
            values,
        } => (
            format!("[{at}].values"),
            format!("{values:?}"),
            format!("no values for the operator {operator}"),
        ),
        Fault::Value { at, n, value } => (
            format!("[{at}].values[{n}]"),
            format!("{value:?}"),
            "the value of a label".to_owned(),
        ),
    };
    format!("{path}.matchExpressions{place}: Invalid value: {found}: expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_that_nothing_can_meet_is_named_with_its_place() {
        let one = |expression: Value| json!({"matchExpressions": [expression]});
        for (selector, expected) in [
            (json!({}), ""),
            (json!({"matchLabels": {"a": "b"}}), ""),
            (
                one(json!({"key": "a", "operator": "In", "values": ["b"]})),
                "",
            ),
            (one(json!({"key": "a", "operator": "DoesNotExist"})), ""),
            (
                one(json!({"key": "a", "operator": "Is", "values": ["b"]})),
                "p.matchExpressions[0].operator: Invalid value: \"Is\": expected one of In, NotIn, Exists, DoesNotExist",
            ),
            (
                one(json!({"key": "a", "operator": "In"})),
                "p.matchExpressions[0].values: Invalid value: []: expected at least one value for the operator In",
            ),
            (
                one(json!({"key": "a", "operator": "NotIn", "values": []})),
                "p.matchExpressions[0].values: Invalid value: []: expected at least one value for the operator NotIn",
            ),
            (
                one(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
                "p.matchExpressions[0].values: Invalid value: [\"b\"]: expected no values for the operator Exists",
            ),
            (
                one(json!({"key": "", "operator": "Exists"})),
                "p.matchExpressions[0].key: Invalid value: \"\": expected the key of a label",
            ),
            (
                one(json!({"key": "a", "operator": "In", "values": ["b", "c d"]})),
                "p.matchExpressions[0].values[1]: Invalid value: \"c d\": expected the value of a label",
            ),
            (
                json!({"matchLabels": {"a": "b c"}}),
                "p.matchLabels: Invalid value: \"a=b c\": expected the key and the value of a label",
            ),
        ] {
            assert_eq!(faults_at("p", &selector).join("\n"), expected, "{selector}");
        }
        let shapeless = faults_at("p", &json!({"matchLabels": "a"})).join("\n");
        let place = "p: Invalid value: {\"matchLabels\":\"a\"}: expected a label selector: ";
        assert!(shapeless.starts_with(place), "{shapeless}");
    }
}
