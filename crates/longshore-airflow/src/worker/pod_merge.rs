//! Airflow's merge of two pods: a base, and a client pod that wins.
//!
//! Works on JSON, so that unknown fields survive. A client value wins if it is *truthy* in the sense
//! of the Python objects that upstream merges: `null`, `false`, `0`, `""`, `[]` and an empty string map never win over
//! the base, but an empty object that stands for a type of its own (`securityContext: {}`) does.

use serde_json::Value;

/// Fields whose type is a map of strings: an empty one is not truthy.
const STRING_MAPS: [&str; 4] = ["labels", "annotations", "nodeSelector", "overhead"];

/// Lists of a container that are joined, base first, duplicates kept.
const CONTAINER_LISTS: [&str; 5] = ["volumeMounts", "env", "envFrom", "ports", "volumeDevices"];

/// Merges two pods; whatever `client` sets wins.
///
/// Labels and annotations are united, volumes and the lists of containers are joined, init containers are merged by
/// name and containers **by position**; everything else is replaced as a whole where the client's value is truthy.
pub fn merge_pods(base: &Value, client: &Value) -> Value {
    merge_with(base, client, |field, base, client| match field {
        "metadata" => Some(merge_metadata(base, client)),
        "spec" => Some(merge_spec(base, client)),
        _ => None,
    })
}

fn merge_metadata(base: &Value, client: &Value) -> Value {
    merge_with(base, client, |field, base, client| match field {
        "labels" | "annotations" => Some(united(base, client)),
        // Upstream means to join finalizers, owner references and managed fields, but drops the result: the client's
        // replace the base's.
        _ => None,
    })
}

fn merge_spec(base: &Value, client: &Value) -> Value {
    merge_with(base, client, |field, base, client| match field {
        "containers" => merge_lists(base, client, merge_by_position),
        "initContainers" => merge_lists(base, client, merge_by_name),
        "volumes" => joined(base, client),
        _ => None,
    })
}

fn merge_container(base: &Value, client: &Value) -> Value {
    merge_with(base, client, |field, base, client| {
        if CONTAINER_LISTS.contains(&field) {
            joined(base, client)
        } else {
            None
        }
    })
}

/// The union of two objects. Where both have a truthy value, `special` may merge the two; else the client's wins.
fn merge_with(
    base: &Value,
    client: &Value,
    special: impl Fn(&str, &Value, &Value) -> Option<Value>,
) -> Value {
    let (Value::Object(base), Value::Object(client)) = (base, client) else {
        return if client.is_null() { base } else { client }.clone();
    };
    let mut merged = base.clone();
    for (field, value) in client {
        let kept = base.get(field).filter(|base| is_truthy(field, base));
        let result = match kept {
            None => value.clone(),
            Some(base) if is_truthy(field, value) => {
                special(field, base, value).unwrap_or_else(|| value.clone())
            }
            Some(_) => continue,
        };
        merged.insert(field.clone(), result);
    }
    Value::Object(merged)
}

/// Both maps, the client's value where a key is in both.
fn united(base: &Value, client: &Value) -> Value {
    let (Value::Object(base), Value::Object(client)) = (base, client) else {
        return client.clone();
    };
    let pairs = base.iter().chain(client);
    Value::Object(pairs.map(|(k, v)| (k.clone(), v.clone())).collect())
}

/// Both lists, base first; `None` if one of them is no list.
fn joined(base: &Value, client: &Value) -> Option<Value> {
    merge_lists(base, client, |base, client| [base, client].concat())
}

fn merge_lists(
    base: &Value,
    client: &Value,
    merge: impl FnOnce(&[Value], &[Value]) -> Vec<Value>,
) -> Option<Value> {
    match (base, client) {
        (Value::Array(base), Value::Array(client)) => Some(Value::Array(merge(base, client))),
        _ => None,
    }
}

fn merge_by_position(base: &[Value], client: &[Value]) -> Vec<Value> {
    let both = base.iter().zip(client).map(|(b, c)| merge_container(b, c));
    let n_both = base.len().min(client.len());
    let surplus = base[n_both..].iter().chain(&client[n_both..]).cloned();
    both.chain(surplus).collect()
}

fn merge_by_name(base: &[Value], client: &[Value]) -> Vec<Value> {
    let same_name = |a: &Value, b: &Value| a.get("name") == b.get("name");
    let of_base = base
        .iter()
        .map(|b| match client.iter().find(|c| same_name(b, c)) {
            Some(client) => merge_container(b, client),
            None => b.clone(),
        });
    let new = client
        .iter()
        .filter(|client| !base.iter().any(|b| same_name(b, client)))
        .cloned();
    of_base.chain(new).collect()
}

fn is_truthy(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty() || !STRING_MAPS.contains(&field),
    }
}

#[cfg(test)]
mod tests;
