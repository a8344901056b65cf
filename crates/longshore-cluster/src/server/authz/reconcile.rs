//! What a stored role or binding lacks of the one that every cluster has. Pure.

use serde_json::{Map, Value, json};

use super::{coverage::missing, rules::Rule};
use crate::server::meta;

/// Set to `false` by users who want no more changes of an object.
pub(super) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The outcome of a comparison.
#[derive(Debug, PartialEq)]
pub(super) enum Reconciled {
    /// The stored object has all that is expected, or its users want no changes.
    Unchanged,
    /// The stored object with what it lacked.
    Completed(Value),
    /// The stored binding grants another role: the expected one takes its place.
    Replaced,
}

/// Compares a stored object with the expected one. Rules, subjects and labels that users have added stay.
pub(super) fn reconcile(stored: &Value, expected: &Value) -> Reconciled {
    let annotations = &stored["metadata"]["annotations"];
    if annotations[AUTOUPDATE] == "false" {
        return Reconciled::Unchanged;
    }
    let mut new = stored.clone();
    for key in ["annotations", "labels"] {
        add_missing(
            meta::member(&mut new["metadata"], key),
            &expected["metadata"][key],
        );
    }
    if expected.get("roleRef").is_some() {
        if stored["roleRef"] != expected["roleRef"] {
            return Reconciled::Replaced;
        }
        add_items(&mut new, "subjects", &expected["subjects"]);
    } else {
        add_rules(&mut new, stored, expected);
        add_selectors(&mut new, expected);
    }
    match new == *stored {
        true => Reconciled::Unchanged,
        false => Reconciled::Completed(new),
    }
}

fn add_missing(members: &mut Map<String, Value>, expected: &Value) {
    for (key, value) in expected.as_object().into_iter().flatten() {
        members.entry(key).or_insert_with(|| value.clone());
    }
}

/// Adds the items that a list does not have yet.
fn add_items(object: &mut Value, key: &str, expected: &Value) {
    let mut items = object[key].as_array().cloned().unwrap_or_default();
    for item in expected.as_array().into_iter().flatten() {
        if !items.contains(item) {
            items.push(item.clone());
        }
    }
    if !items.is_empty() {
        object[key] = items.into();
    }
}

fn add_rules(new: &mut Value, stored: &Value, expected: &Value) {
    // The roles of the server itself are small.
    let lacking = missing(&Rule::all_of(stored), &Rule::all_of(expected), usize::MAX).pieces;
    if lacking.is_empty() {
        return;
    }
    let mut rules = stored["rules"].as_array().cloned().unwrap_or_default();
    rules.extend(lacking.iter().map(Rule::to_json));
    new["rules"] = rules.into();
}

fn add_selectors(new: &mut Value, expected: &Value) {
    match expected.get("aggregationRule") {
        Some(rule) => {
            if !new["aggregationRule"].is_object() {
                new["aggregationRule"] = json!({});
            }
            let selectors = "clusterRoleSelectors";
            add_items(&mut new["aggregationRule"], selectors, &rule[selectors]);
        }
        None => {
            meta::members(new).remove("aggregationRule");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value) -> Value {
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let annotations = json!({AUTOUPDATE: "true"});
        json!({"metadata": {"name": "r", "labels": labels, "annotations": annotations}, "rules": rules})
    }

    fn rule(verbs: &[&str]) -> Value {
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs})
    }

    #[test]
    fn missing_rules_are_added_and_others_stay() {
        let expected = role(json!([rule(&["get", "list"])]));
        assert_eq!(reconcile(&expected, &expected), Reconciled::Unchanged);
        let more = role(json!([rule(&["*"])]));
        assert_eq!(reconcile(&more, &expected), Reconciled::Unchanged);
        let other = role(json!([rule(&["get", "delete"])]));
        let completed = role(json!([rule(&["get", "delete"]), rule(&["list"])]));
        assert_eq!(
            reconcile(&other, &expected),
            Reconciled::Completed(completed)
        );
    }

    #[test]
    fn an_object_that_its_users_keep_stays_as_it_is() {
        let expected = role(json!([rule(&["get"])]));
        let mut kept = role(json!([]));
        kept["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(reconcile(&kept, &expected), Reconciled::Unchanged);
    }

    #[test]
    fn labels_and_selectors_are_added() {
        let selector = json!({"matchLabels": {"a": "true"}});
        let mut expected = role(json!([]));
        expected["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        let mut stored = role(json!([rule(&["get"])]));
        stored["metadata"]["labels"] = json!({"mine": "1"});
        let Reconciled::Completed(new) = reconcile(&stored, &expected) else {
            panic!("nothing was added");
        };
        assert_eq!(new["aggregationRule"], expected["aggregationRule"]);
        assert_eq!(new["rules"], stored["rules"]);
        let labels = json!({"mine": "1", "kubernetes.io/bootstrapping": "rbac-defaults"});
        assert_eq!(new["metadata"]["labels"], labels);
        // A role that is not expected to gather rules stops that.
        let plain = role(json!([]));
        let Reconciled::Completed(new) = reconcile(&expected, &plain) else {
            panic!("it still gathers rules");
        };
        assert_eq!(new.get("aggregationRule"), None);
    }

    #[test]
    fn a_binding_gets_the_missing_subjects_or_the_right_role() {
        let binding = |role: &str, subjects: &[&str]| {
            let subjects: Vec<Value> = subjects.iter().map(|it| json!({"name": it})).collect();
            let mut binding = role_less();
            binding["roleRef"] = json!({"name": role});
            binding["subjects"] = subjects.into();
            binding
        };
        let expected = binding("r", &["a"]);
        let stored = binding("r", &["b"]);
        let completed = binding("r", &["b", "a"]);
        assert_eq!(
            reconcile(&stored, &expected),
            Reconciled::Completed(completed)
        );
        let other = binding("x", &["a"]);
        assert_eq!(reconcile(&other, &expected), Reconciled::Replaced);
    }

    fn role_less() -> Value {
        let mut object = role(json!([]));
        meta::members(&mut object).remove("rules");
        object
    }
}
