//! Built-in admission of new pods that name a RuntimeClass: it must exist, and says what its pods cost beside their
//! containers, and where they run.
//!
//! Upstream's plugin `RuntimeClass`.

use longshore_k8s::Quantity;
use serde_json::{Map, Value};

use super::shown_name;
use crate::server::{
    error::{ApiError, Result},
    hub::Key,
    meta,
    registry::Strategy,
    strategy,
    verbs::Call,
};

const OTHER_OVERHEAD: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const NO_OVERHEAD: &str =
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// Completes a new pod with what its RuntimeClass says; other objects stay as they are.
///
/// # Errors
/// The RuntimeClass does not exist, or contradicts the pod.
pub(crate) fn admit(call: &Call, mut pod: Value) -> Result<Value> {
    if !is_new_pod(call) {
        return Ok(pod);
    }
    let Some(class) = class_of(call, &pod)? else {
        return Ok(pod);
    };
    let has_scheduling = class.get("scheduling").is_some_and(|it| !it.is_null());
    if has_scheduling {
        // The tolerations that each pod gets come before those of the class.
        strategy::set_defaults(call.resource(), &mut pod, None);
    }
    complete(&mut pod, &class)
        .map_err(|why| ApiError::forbidden(call.resource(), shown_name(&pod), &why))?;
    Ok(pod)
}

/// Refuses a complete new pod whose overhead is not that of its RuntimeClass: a webhook may have changed either.
///
/// # Errors
/// They differ, or the RuntimeClass does not exist.
pub(crate) fn check(call: &Call, pod: &Value) -> Result<()> {
    if !is_new_pod(call) {
        return Ok(());
    }
    let class = class_of(call, pod)?;
    let of_class = class.as_ref().and_then(overhead_of_class);
    let why = match (of_class, overhead_of_pod(pod)) {
        (None, Some(_)) => NO_OVERHEAD,
        (Some(of_class), of_pod) if !is_same(of_class, of_pod) => OTHER_OVERHEAD,
        (Some(_) | None, _) => return Ok(()),
    };
    Err(ApiError::forbidden(call.resource(), shown_name(pod), why))
}

fn is_new_pod(call: &Call) -> bool {
    call.resource().strategy == Strategy::Pod && call.subresource.is_none()
}

/// The RuntimeClass that a pod names, if it names one.
fn class_of(call: &Call, pod: &Value) -> Result<Option<Value>> {
    let name = pod.pointer("/spec/runtimeClassName");
    let Some(name) = name.and_then(Value::as_str) else {
        return Ok(None);
    };
    let classes = call
        .server
        .registry
        .find("node.k8s.io", "v1", "runtimeclasses");
    let class = classes.and_then(|classes| classes.collection.get(&Key::new(None, name)));
    match class {
        Some(class) => Ok(Some(class.value())),
        None => {
            let why = format!("pod rejected: RuntimeClass {name:?} not found");
            Err(ApiError::forbidden(call.resource(), shown_name(pod), &why))
        }
    }
}

/// What a class says its pods cost; `None` where it says nothing about it.
fn overhead_of_class(class: &Value) -> Option<Option<&Map<String, Value>>> {
    let overhead = class.get("overhead").filter(|it| !it.is_null())?;
    Some(overhead.get("podFixed").and_then(Value::as_object))
}

fn overhead_of_pod(pod: &Value) -> Option<&Map<String, Value>> {
    pod.pointer("/spec/overhead").and_then(Value::as_object)
}

/// Whether two lists have the same amounts. An empty one is as good as none.
fn is_same(one: Option<&Map<String, Value>>, other: Option<&Map<String, Value>>) -> bool {
    let nothing = Map::new();
    let (one, other) = (one.unwrap_or(&nothing), other.unwrap_or(&nothing));
    let quantity = |it: &Value| it.as_str().and_then(Quantity::parse);
    one.len() == other.len()
        && one.iter().all(|(name, amount)| {
            let same = |it: &Value| {
                it == amount || quantity(it).is_some_and(|it| Some(it) == quantity(amount))
            };
            other.get(name).is_some_and(same)
        })
}

/// Gives a pod the overhead of its class, and its selector and tolerations.
fn complete(pod: &mut Value, class: &Value) -> Result<(), String> {
    if let Some(of_class) = overhead_of_class(class) {
        let of_pod = overhead_of_pod(pod).filter(|it| !it.is_empty());
        if of_pod.is_some() && !is_same(of_class, of_pod) {
            return Err(OTHER_OVERHEAD.to_owned());
        }
        let spec = meta::member(pod, "spec");
        match of_class.filter(|it| !it.is_empty()) {
            Some(of_class) => spec.insert("overhead".into(), of_class.clone().into()),
            None => spec.remove("overhead"),
        };
    }
    let Some(scheduling) = class.get("scheduling").filter(|it| !it.is_null()) else {
        return Ok(());
    };
    if let Some(of_class) = scheduling.get("nodeSelector").and_then(Value::as_object) {
        select(pod, of_class)?;
    }
    let list = |of: &Value, pointer: &str| {
        let list = of.pointer(pointer).and_then(Value::as_array).cloned();
        list.unwrap_or_default()
    };
    let all = [
        list(pod, "/spec/tolerations"),
        list(scheduling, "/tolerations"),
    ];
    pod["spec"]["tolerations"] = merged(&all.concat()).into();
    Ok(())
}

/// Adds the selector of a class to that of a pod.
fn select(pod: &mut Value, of_class: &Map<String, Value>) -> Result<(), String> {
    let spec = meta::member(pod, "spec");
    let selector = spec
        .entry("nodeSelector")
        .or_insert_with(|| Map::new().into());
    let selector = meta::members(selector);
    for (key, value) in of_class {
        if let Some(other) = selector.get(key).filter(|other| *other != value) {
            let shown = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                shown(value),
                shown(other)
            ));
        }
        selector.insert(key.clone(), value.clone());
    }
    Ok(())
}

/// The tolerations without those that another one covers. Of equal ones the first stays.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let is_covered = merged.iter().any(|it| covers(it, toleration));
        let mut later = all[at + 1..].iter();
        if !is_covered && !later.any(|it| it != toleration && covers(it, toleration)) {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Whether one toleration tolerates all that another one does.
fn covers(one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let (text, seconds) = (meta::text, |it: &Value| {
        it.get("tolerationSeconds").and_then(Value::as_i64)
    });
    let operator = text(one, "/operator");
    let is_any = text(one, "/key").is_empty() && operator == "Exists";
    if text(one, "/key") != text(other, "/key") && !is_any {
        return false;
    }
    let effect = text(one, "/effect");
    if !effect.is_empty() && effect != text(other, "/effect") {
        return false;
    }
    if effect == "NoExecute"
        && let Some(longest) = seconds(one)
        && seconds(other).is_none_or(|it| it > longest)
    {
        return false;
    }
    match operator {
        "Exists" => true,
        "" | "Equal" => {
            text(other, "/operator") == "Equal" && text(one, "/value") == text(other, "/value")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn completed(spec: &Value, class: &Value) -> Result<Value, String> {
        let mut pod = json!({"spec": spec});
        complete(&mut pod, class)?;
        Ok(pod["spec"].take())
    }

    #[test]
    fn a_pod_gets_the_overhead_of_its_class() {
        let class = json!({"overhead": {"podFixed": {"cpu": "10m", "memory": "1Mi"}}});
        let overhead = json!({"cpu": "10m", "memory": "1Mi"});
        for of_pod in [
            json!(null),
            json!({}),
            json!({"cpu": "0.01", "memory": "1024Ki"}),
        ] {
            let found = completed(&json!({"overhead": of_pod}), &class).unwrap();
            assert_eq!(found["overhead"], overhead, "{of_pod}");
        }
        for of_pod in [
            json!({"cpu": "10m"}),
            json!({"cpu": "11m", "memory": "1Mi"}),
        ] {
            let found = completed(&json!({"overhead": of_pod}), &class);
            assert_eq!(found.unwrap_err(), OTHER_OVERHEAD, "{of_pod}");
        }
        let none = completed(&json!({"overhead": {}}), &json!({"overhead": {}})).unwrap();
        assert_eq!(none, json!({}));
        let silent = json!({"handler": "x"});
        assert_eq!(completed(&json!({}), &silent).unwrap(), json!({}));
    }

    #[test]
    fn a_pod_runs_where_its_class_does() {
        let class = json!({"scheduling": {"nodeSelector": {"a": "b"}}});
        let found = completed(&json!({"nodeSelector": {"c": "d"}}), &class).unwrap();
        assert_eq!(found["nodeSelector"], json!({"a": "b", "c": "d"}));
        assert_eq!(
            completed(&json!({"nodeSelector": {"a": "x"}}), &class).unwrap_err(),
            "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = x"
        );
    }

    #[test]
    fn of_the_tolerations_of_pod_and_class_the_widest_stay() {
        let exists =
            |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
        let equal = |value: &str| json!({"key": "a", "operator": "Equal", "value": value});
        let for_seconds = |seconds: i64| json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        for (all, expected) in [
            (vec![equal("1"), equal("1")], vec![equal("1")]),
            (vec![equal("1"), equal("2")], vec![equal("1"), equal("2")]),
            (vec![equal("1"), exists("a", "")], vec![exists("a", "")]),
            (
                vec![exists("", ""), equal("1"), exists("b", "NoSchedule")],
                vec![exists("", "")],
            ),
            (
                vec![exists("a", "NoSchedule"), exists("a", "NoExecute")],
                vec![exists("a", "NoSchedule"), exists("a", "NoExecute")],
            ),
            (vec![for_seconds(5), for_seconds(9)], vec![for_seconds(9)]),
            (
                vec![for_seconds(5), exists("a", "NoExecute")],
                vec![exists("a", "NoExecute")],
            ),
        ] {
            assert_eq!(merged(&all), expected, "{all:?}");
        }
    }
}
