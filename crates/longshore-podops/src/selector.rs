//! Label selectors as objects carry them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ParseExpressionError;
pub(crate) use kube::core::{Selector, SelectorExt};
use serde::Deserialize;
use serde_json::Value;

use crate::model::Labels;

/// A selector that says nothing that can be followed.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSelector {
    /// It does not have the shape of one.
    #[error("not a label selector: {0}")]
    Shape(#[from] serde_json::Error),
    /// One of its expressions makes no sense.
    #[error("not a label selector: {0}")]
    Expression(#[from] ParseExpressionError),
}

/// Reads a selector.
pub fn parse(selector: &Value) -> Result<Selector, InvalidSelector> {
    let selector = LabelSelector::deserialize(selector)?;
    Ok(Selector::try_from(selector)?)
}

/// What makes a selector at this path one that cannot be followed, or that selects nothing whatever the labels are:
/// where, what was found, and what was expected.
pub fn faults(path: &str, selector: &Value) -> Vec<String> {
    let selector = match LabelSelector::deserialize(selector) {
        Ok(selector) => selector,
        Err(error) => {
            return vec![format!(
                "{path}: Invalid value: {selector}: expected a label selector: {error}"
            )];
        }
    };
    let expressions = selector.match_expressions.unwrap_or_default();
    let mut faults = Vec::new();
    for (n, expression) in expressions.into_iter().enumerate() {
        let path = format!("{path}.matchExpressions[{n}]");
        let operator = expression.operator.as_str();
        let values: Vec<String> = expression.values.into_iter().flatten().collect();
        if expression.key.is_empty() {
            faults.push(format!(
                "{path}.key: Invalid value: \"\": expected the key of a label"
            ));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => faults.push(format!(
                "{path}.values: Invalid value: []: expected at least one value for the operator {operator}"
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => faults.push(format!(
                "{path}.values: Invalid value: {values:?}: expected no values for the operator {operator}"
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => faults.push(format!(
                "{path}.operator: Invalid value: {operator:?}: expected one of In, NotIn, Exists, DoesNotExist"
            )),
        }
    }
    faults
}

/// Whether a selector selects these labels; none where there is no selector, or none that can be read.
pub fn selects(selector: Option<&Value>, labels: &Labels) -> bool {
    let selector = selector.and_then(|selector| parse(selector).ok());
    selector.is_some_and(|selector| selector.matches(labels))
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
        ] {
            assert_eq!(faults("p", &selector).join("\n"), expected, "{selector}");
        }
        let shapeless = faults("p", &json!({"matchLabels": "a"})).join("\n");
        let place = "p: Invalid value: {\"matchLabels\":\"a\"}: expected a label selector: ";
        assert!(shapeless.starts_with(place), "{shapeless}");
    }
}
