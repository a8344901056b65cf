use serde_json::{Value, json};

use super::*;
use crate::{
    spec::{FlinkSessionJobSpec, FlinkStateSnapshotSpec},
    status::SnapshotState,
};

mod deployments;
mod session_jobs;

/// Merges `changed` into `base`; a null removes a field.
fn merged(base: &Value, changed: &Value) -> Value {
    match (base, changed) {
        (Value::Object(base), Value::Object(changed)) => {
            let mut merged = base.clone();
            for (key, value) in changed {
                let old = base.get(key).unwrap_or(&Value::Null);
                merged.insert(key.clone(), self::merged(old, value));
            }
            Value::Object(merged)
        }
        _ => changed.clone(),
    }
}

/// The configuration of a spec as its defaults and its own keys.
fn config(
    defaults: &[(&str, &str)],
    spec: Option<&crate::spec::FlinkConfiguration>,
) -> FlinkConfig {
    let mut config: FlinkConfig = defaults.iter().copied().collect();
    if let Some(own) = spec {
        config.merge(&own.flat().into_iter().collect());
    }
    config
}

#[test]
fn a_snapshot_is_one_of_a_job_that_exists() {
    use SnapshotTarget::{Found, Missing};
    let reference = json!({"kind": "FlinkDeployment", "name": "a"});
    let with = |part: Value| merged(&json!({"jobReference": reference}), &part);
    let both = "Exactly one of checkpoint or savepoint configurations has to be set.";
    let absent = "Target for snapshot ns/a was not found";
    let pending = Some(SnapshotState::TriggerPending);
    for (spec, target, state, expected) in [
        (with(json!({})), Found, None, both),
        (
            with(json!({"savepoint": {}, "checkpoint": {}})),
            Found,
            None,
            both,
        ),
        (with(json!({"savepoint": {}})), Found, None, ""),
        (with(json!({"checkpoint": {}})), Found, pending, ""),
        (with(json!({"savepoint": {}})), Missing, None, absent),
        (with(json!({"checkpoint": {}})), Missing, pending, absent),
        (
            with(json!({"checkpoint": {}})),
            Missing,
            Some(SnapshotState::InProgress),
            "",
        ),
        (
            with(json!({"savepoint": {}})),
            Missing,
            Some(SnapshotState::Failed),
            "",
        ),
        (
            json!({"savepoint": {}}),
            Missing,
            None,
            "Job reference must be supplied for this snapshot",
        ),
        (
            json!({"savepoint": {"alreadyExists": true, "path": "p"}}),
            Missing,
            None,
            "",
        ),
    ] {
        let read: FlinkStateSnapshotSpec = serde_json::from_value(spec.clone()).unwrap();
        let found = validate_snapshot("ns", &read, target, state);
        let found = found.map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(found, expected, "{spec}");
    }
}
