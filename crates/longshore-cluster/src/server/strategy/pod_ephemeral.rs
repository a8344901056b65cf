//! What is wrong with the containers that a client adds to a running pod: upstream's complaints, in its words.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod_rules::{container_violations, items, name_violations, volume_names};
use crate::server::{error::Cause, meta};

const PATH: &str = "spec.ephemeralContainers";
const NOT_FOR_THEM: &str = "cannot be set for an Ephemeral Container";
/// Fields of containers that do not fit a container that runs once, for a while.
const FORBIDDEN: [&str; 6] = [
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Complaints about the ephemeral containers of a pod, which had those of `old` before.
pub(super) fn violations(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    let volumes = volume_names(spec, "spec", &mut Vec::new());
    let others = items(spec, "containers").chain(items(spec, "initContainers"));
    let others: BTreeSet<&str> = others.map(|it| meta::text(it, "/name")).collect();
    let mut names = others.clone();
    for (index, container) in items(spec, "ephemeralContainers").enumerate() {
        let field = format!("{PATH}[{index}]");
        name_violations(container, &field, &mut names, &mut causes);
        container_violations(container, &field, &volumes, &mut causes);
        let target = meta::text(container, "/targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            let field = format!("{field}.targetContainerName");
            causes.push(Cause::not_found(&field, target));
        }
        causes.extend(forbidden(container, &field));
    }
    causes.extend(changes(new, old));
    causes
}

fn forbidden(container: &Value, field: &str) -> Vec<Cause> {
    let is_set = |value: &&Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let fields = FORBIDDEN.into_iter();
    let fields = fields.filter(|key| container.get(key).filter(is_set).is_some());
    let mut causes: Vec<Cause> = fields
        .map(|key| Cause::forbidden(&format!("{field}.{key}"), NOT_FOR_THEM))
        .collect();
    for (index, mount) in items(container, "volumeMounts").enumerate() {
        for key in ["subPath", "subPathExpr"] {
            if !meta::text(mount, &format!("/{key}")).is_empty() {
                let field = format!("{field}.volumeMounts[{index}].{key}");
                causes.push(Cause::forbidden(&field, NOT_FOR_THEM));
            }
        }
    }
    causes
}

/// What has been added stays as it is.
fn changes(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for before in items(&old["spec"], "ephemeralContainers") {
        let name = meta::text(before, "/name");
        let mut after = items(&new["spec"], "ephemeralContainers");
        let why = match after.find(|it| meta::text(it, "/name") == name) {
            Some(after) if after == before => continue,
            Some(_) => "changed",
            None => "removed",
        };
        let why = format!("existing ephemeral containers {name:?} may not be {why}\n");
        causes.push(Cause::forbidden(PATH, &why));
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ephemeral: &Value) -> Value {
        json!({"spec": {
            "containers": [{"name": "main"}], "initContainers": [{"name": "init"}],
            "volumes": [{"name": "v"}], "ephemeralContainers": ephemeral,
        }})
    }

    fn told(new: &Value, old: &Value) -> Vec<String> {
        let causes = violations(&pod(new), &pod(old));
        causes
            .iter()
            .map(|it| format!("{}: {}", it.field, it.message))
            .collect()
    }

    fn container(more: &Value) -> Value {
        let mut container = json!({"name": "debug", "image": "i", "imagePullPolicy": "Always"});
        let more = more.as_object().unwrap();
        container.as_object_mut().unwrap().extend(more.clone());
        container
    }

    #[test]
    fn an_added_container_has_a_name_of_its_own_and_no_duties() {
        let none = json!([]);
        for (more, expected) in [
            (json!({"resources": {}, "targetContainerName": "main"}), ""),
            (json!({"name": ""}), "[0].name: Required value"),
            (
                json!({"name": "main"}),
                "[0].name: Duplicate value: \"main\"",
            ),
            (
                json!({"name": "init"}),
                "[0].name: Duplicate value: \"init\"",
            ),
            (json!({"image": ""}), "[0].image: Required value"),
            (
                json!({"targetContainerName": "x"}),
                "[0].targetContainerName: Not found: \"x\"",
            ),
            (
                json!({"lifecycle": {"preStop": {}}}),
                "[0].lifecycle: Forbidden: cannot be set for an Ephemeral Container",
            ),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}]}),
                "[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container",
            ),
        ] {
            let expected: Vec<String> = match expected {
                "" => Vec::new(),
                it => vec![format!("{PATH}{it}")],
            };
            assert_eq!(told(&json!([container(&more)]), &none), expected, "{more}");
        }
        let one = container(&json!({}));
        let twice = told(&json!([one, one]), &none);
        assert_eq!(
            twice,
            [format!("{PATH}[1].name: Duplicate value: \"debug\"")]
        );
    }

    #[test]
    fn what_was_added_stays() {
        let (one, two) = (container(&json!({})), container(&json!({"name": "two"})));
        let other = container(&json!({"image": "j"}));
        let change = |why: &str| {
            vec![format!(
                "{PATH}: Forbidden: existing ephemeral containers \"debug\" may not be {why}\n"
            )]
        };
        for (new, expected) in [
            (json!([one, two]), vec![]),
            (json!([two, one]), vec![]),
            (json!([other]), change("changed")),
            (json!([two]), change("removed")),
        ] {
            assert_eq!(told(&new, &json!([one])), expected, "{new}");
        }
    }
}
