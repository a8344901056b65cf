//! A task that serves an editor says when that can be opened: the readiness of its container.

use longshore_api::flyte;
use serde_json::{Map, Value, json};

use super::raw::Pod;

/// Variable of a container that starts an editor first.
pub(crate) const ENV_EDITOR: &str = "_F_E_VS";
/// Where the editor of an SDK of this version listens.
const PORT: u16 = 6060;
/// The port of the editor in older versions.
const OLD_PORT: u16 = 8080;

/// Adds the probe of the editor to the primary container, or the only one.
pub(super) fn add_probe(pod: &mut Pod) {
    let Some(containers) = pod.spec.get_mut("containers").and_then(Value::as_array_mut) else {
        return;
    };
    let is_alone = containers.len() == 1;
    let is_meant = |container: &&mut Map<String, Value>| {
        is_alone || container.get("name").and_then(Value::as_str) == Some(&pod.primary)
    };
    let mut objects = containers.iter_mut().filter_map(Value::as_object_mut);
    let Some(container) = objects.find(is_meant) else {
        return;
    };
    let env = container.get("env").unwrap_or(&Value::Null);
    if !serves_editor(env) {
        return;
    }
    let port = match variable(env, flyte::ENV_ACTION_NAME) {
        Some(_) => PORT,
        None => OLD_PORT,
    };
    let probe = json!({
        "httpGet": {"port": port},
        "initialDelaySeconds": 15, "periodSeconds": 5, "failureThreshold": 50,
    });
    container.insert("readinessProbe".into(), probe);
}

/// Whether a container with these variables serves an editor.
pub(crate) fn serves_editor(env: &Value) -> bool {
    let value = variable(env, ENV_EDITOR).and_then(|variable| variable["value"].as_str());
    // The texts that Go parses as true.
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn variable<'a>(env: &'a Value, name: &str) -> Option<&'a Value> {
    let variables = env.as_array()?.iter();
    variables
        .into_iter()
        .find(|variable| variable["name"] == name)
}
