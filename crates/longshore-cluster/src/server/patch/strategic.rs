//! Strategic merge patch: a merge patch that knows which lists merge by key, with `$patch`,
//! `$retainKeys`, `$setElementOrder` and `$deleteFromPrimitiveList` directives.

use serde_json::{Map, Value};

use super::keys::{ListMerge, list_merge};
use crate::server::{
    error::{ApiError, Result},
    meta::members,
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// Merges a patch into an object of a kind.
pub(super) fn merge(kind: &str, target: &mut Value, patch: &Value) -> Result<()> {
    match patch.as_object() {
        Some(patch) => merge_map(kind, target, patch),
        None => {
            *target = patch.clone();
            Ok(())
        }
    }
}

fn merge_map(kind: &str, target: &mut Value, patch: &Map<String, Value>) -> Result<()> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            let mut replacement = patch.clone();
            replacement.remove(DIRECTIVE);
            *target = Value::Object(replacement);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(unknown_directive(other)),
    }
    let target = members(target);
    if let Some(retained) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        target.retain(|key, _| retained.iter().any(|retained| retained == key.as_str()));
    }
    for (key, value) in patch {
        if let Some(member) = key.strip_prefix(DELETE_PREFIX) {
            delete_from_set(target, member, value);
        }
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        merge_member(
            kind,
            target,
            key,
            value,
            patch.get(&format!("{ORDER_PREFIX}{key}")),
        )?;
    }
    // An order without new items still sorts.
    for (key, order) in patch {
        if let Some(member) = key.strip_prefix(ORDER_PREFIX)
            && !patch.contains_key(member)
            && let Some(Value::Array(items)) = target.get_mut(member)
        {
            let before = items.clone();
            sort(items, &before, order, list_merge(kind, member));
        }
    }
    Ok(())
}

fn merge_member(
    kind: &str,
    target: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    order: Option<&Value>,
) -> Result<()> {
    match value {
        Value::Null => {
            target.remove(key);
        }
        Value::Object(patch) => {
            let member = target
                .entry(key)
                .or_insert_with(|| Value::Object(Map::new()));
            let is_deleted = patch
                .get(DIRECTIVE)
                .is_some_and(|directive| directive == "delete");
            merge_map(kind, member, patch)?;
            if is_deleted {
                target.remove(key);
            }
        }
        Value::Array(patch) => {
            let rule = list_merge(kind, key);
            let present = target
                .get(key)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            let mut merged = merge_list(kind, rule, present.clone(), patch)?;
            // Without an order of its own the patch's list is one: what it adds comes first.
            sort(&mut merged, &present, order.unwrap_or(value), rule);
            target.insert(key.to_owned(), Value::Array(merged));
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            target.insert(key.to_owned(), value.clone());
        }
    }
    Ok(())
}

fn merge_list(
    kind: &str,
    rule: ListMerge,
    mut present: Vec<Value>,
    patch: &[Value],
) -> Result<Vec<Value>> {
    let is_replaced = |item: &Value| item.get(DIRECTIVE).is_some_and(|it| it == "replace");
    if patch.iter().any(is_replaced) {
        return Ok(patch
            .iter()
            .filter(|item| !is_replaced(item))
            .cloned()
            .collect());
    }
    match rule {
        ListMerge::Atomic => Ok(patch.to_vec()),
        ListMerge::Set => {
            for item in patch {
                if !present.contains(item) {
                    present.push(item.clone());
                }
            }
            Ok(present)
        }
        ListMerge::ByKey(key) => {
            for item in patch {
                merge_item(kind, key, &mut present, item)?;
            }
            Ok(present)
        }
    }
}

fn merge_item(kind: &str, key: &str, present: &mut Vec<Value>, item: &Value) -> Result<()> {
    let (Some(id), Some(patch)) = (item.get(key), item.as_object()) else {
        let message = format!("map: {item} does not contain declared merge key: {key}");
        return Err(ApiError::bad_request(message));
    };
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("delete") => present.retain(|old| old.get(key) != Some(id)),
        Some("merge") | None => match present.iter_mut().find(|old| old.get(key) == Some(id)) {
            Some(old) => merge_map(kind, old, patch)?,
            None => {
                // Merged into nothing, so that directives inside do not survive.
                let mut added = Value::Object(Map::new());
                merge_map(kind, &mut added, patch)?;
                present.push(added);
            }
        },
        Some(other) => return Err(unknown_directive(other)),
    }
    Ok(())
}

fn delete_from_set(target: &mut Map<String, Value>, member: &str, deleted: &Value) {
    let deleted = deleted.as_array().map_or(&[][..], Vec::as_slice);
    if let Some(Value::Array(items)) = target.get_mut(member) {
        items.retain(|item| !deleted.contains(item));
    }
}

/// Puts items into the patch's order; items that the order does not name keep their place among
/// those it does, as they stood before.
fn sort(items: &mut Vec<Value>, before: &[Value], order: &Value, rule: ListMerge) {
    let id = |item: &Value| -> Option<Value> {
        match rule {
            ListMerge::ByKey(key) => item.get(key).cloned(),
            ListMerge::Set => Some(item.clone()),
            ListMerge::Atomic => None,
        }
    };
    if rule == ListMerge::Atomic {
        return;
    }
    let order: Vec<Option<Value>> = order.as_array().into_iter().flatten().map(id).collect();
    let rank = |item: &Value| {
        order
            .iter()
            .position(|ordered| ordered.is_some() && *ordered == id(item))
    };
    let place = |item: &Value| before.iter().position(|old| id(old) == id(item));

    let (mut named, others): (Vec<Value>, Vec<Value>) =
        items.drain(..).partition(|item| rank(item).is_some());
    named.sort_by_key(|item| rank(item));
    let mut others = others.into_iter().peekable();
    for item in named {
        let stands_before =
            |other: &Value| matches!((place(other), place(&item)), (Some(a), Some(b)) if a < b);
        while let Some(other) = others.next_if(|other| stands_before(other)) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}

fn unknown_directive(directive: &str) -> ApiError {
    let message =
        format!("unknown patch type found: {directive}; expected replace, delete or merge");
    ApiError::bad_request(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: &str, object: Value, patch: Value, expected: Value) {
        let mut merged = object;
        merge(kind, &mut merged, &patch).unwrap();
        assert_eq!(merged, expected, "{patch}");
        let once = merged.clone();
        merge(kind, &mut merged, &patch).unwrap();
        assert_eq!(merged, once, "applied twice: {patch}");
    }

    #[test]
    fn lists_with_a_key_merge_item_by_item() {
        check(
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "x"}]},
                                           {"name": "b", "image": "2"}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "y"}]},
                                           {"name": "b", "$patch": "delete"}, {"name": "c", "image": "3"}]}}),
            json!({"spec": {"containers": [
                {"name": "a", "image": "1", "env": [{"name": "Y", "value": "y"}, {"name": "X", "value": "x"}]},
                {"name": "c", "image": "3"}]}}),
        );
    }

    #[test]
    fn conditions_of_other_writers_survive() {
        check(
            "Pod",
            json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": "m"}, {"type": "Gate"}]}}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "message": null}]}}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Gate"}]}}),
        );
    }

    #[test]
    fn sets_unite_and_atomic_lists_are_replaced() {
        check(
            "Pod",
            json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"tolerations": [{"key": "x"}]}}),
            json!({"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]},
                   "spec": {"tolerations": [{"key": "y"}]}}),
            json!({"metadata": {"finalizers": ["c", "b"]}, "spec": {"tolerations": [{"key": "y"}]}}),
        );
    }

    #[test]
    fn element_order_sorts_and_leaves_strangers_in_place() {
        check(
            "Pod",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "stranger"}, {"name": "b"}]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "new"}, {"name": "a"}, {"name": "b"}],
                            "containers": [{"name": "new"}]}}),
            json!({"spec": {"containers": [{"name": "new"}, {"name": "a"}, {"name": "stranger"}, {"name": "b"}]}}),
        );
    }

    #[test]
    fn retained_keys_and_replacement_drop_the_rest() {
        check(
            "Deployment",
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
                            "template": {"a": 1}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"},
                            "template": {"$patch": "replace", "b": 2}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}, "template": {"b": 2}}}),
        );
    }

    #[test]
    fn service_ports_merge_by_port() {
        check(
            "Service",
            json!({"spec": {"ports": [{"port": 80, "name": "a"}]}}),
            json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 81}]}}),
            json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 81}]}}),
        );
    }

    #[test]
    fn items_without_their_key_are_refused() {
        let mut object = json!({"spec": {"containers": []}});
        assert!(
            merge(
                "Pod",
                &mut object,
                &json!({"spec": {"containers": [{"image": "x"}]}})
            )
            .is_err()
        );
    }
}
