//! Pods that are built on a PodTemplate (task action spec §11.7).

use serde_json::{Map, Value};

use super::merge::merge;

/// Containers of a template that stand for others.
struct Roles {
    list: &'static str,
    /// Says something of all containers.
    all: &'static str,
    /// Says something of the primary one.
    primary: &'static str,
}

const ROLES: [Roles; 2] = [
    Roles {
        list: "containers",
        all: "default",
        primary: "primary",
    },
    // No init container is primary, so that `primary-init` is merely kept out of the pod.
    Roles {
        list: "initContainers",
        all: "default-init",
        primary: "primary-init",
    },
];

/// Builds the pod on the spec of a template: what the pod says wins. The pod has no other containers than its own,
/// each built on what the template says of all, of the primary one, and of one with its name.
pub(super) fn build_on(template: &Value, spec: &mut Map<String, Value>, primary: &str) {
    let own = Value::Object(std::mem::take(spec));
    let mut merged = template.clone();
    merge(&mut merged, &own);
    for roles in ROLES {
        let containers = own[roles.list].as_array();
        let built: Vec<Value> = containers
            .into_iter()
            .flatten()
            .map(|container| container_on(&template[roles.list], container, &roles, primary))
            .collect();
        if let Some(merged) = merged.as_object_mut() {
            merged.remove(roles.list);
            if !built.is_empty() {
                merged.insert(roles.list.to_owned(), built.into());
            }
        }
    }
    if let Value::Object(merged) = merged {
        *spec = merged;
    }
}

/// Merges a user's pod onto a pod: what the user says wins, and containers that the pod does not have stay away.
pub(crate) fn overlay(spec: &mut Map<String, Value>, over: &Value) {
    let own = Value::Object(std::mem::take(spec));
    let mut merged = own.clone();
    merge(&mut merged, over);
    for Roles { list, .. } in ROLES {
        let containers = own[list].as_array().into_iter().flatten();
        let built: Vec<Value> = containers
            .map(|container| {
                let mut built = container.clone();
                let same = over[list].as_array().into_iter().flatten();
                for over in same.filter(|over| over["name"] == container["name"]) {
                    merge(&mut built, over);
                }
                built
            })
            .collect();
        if let Some(merged) = merged.as_object_mut() {
            merged.remove(list);
            if !built.is_empty() {
                merged.insert(list.to_owned(), built.into());
            }
        }
    }
    if let Value::Object(merged) = merged {
        *spec = merged;
    }
}

fn container_on(templates: &Value, container: &Value, roles: &Roles, primary: &str) -> Value {
    let name = container["name"].as_str().unwrap_or_default();
    let is_primary = roles.list == "containers" && name == primary;
    let is_of_role = [roles.all, roles.primary].contains(&name);
    let named = |wanted: &str| {
        let templates = templates.as_array().into_iter().flatten();
        templates
            .into_iter()
            .find(|template| template["name"] == wanted)
    };
    let layers = [
        named(roles.all),
        named(roles.primary).filter(|_| is_primary),
        // A container that has the name of a role has had the template of that name already.
        named(name).filter(|_| !is_of_role),
    ];
    let mut built = Value::Object(Map::new());
    for layer in layers.into_iter().flatten() {
        merge(&mut built, layer);
    }
    merge(&mut built, container);
    built
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(template: &Value, pod: &Value, expected: &Value) {
        let mut spec = pod.as_object().unwrap().clone();
        build_on(template, &mut spec, "main");
        assert_eq!(&Value::Object(spec), expected);
    }

    #[test]
    fn the_pod_wins_lists_are_joined_and_maps_are_united() {
        check(
            &json!({
                "schedulerName": "template", "dnsPolicy": "None",
                "tolerations": [{"key": "template"}],
                "nodeSelector": {"a": "template", "b": "template"},
            }),
            &json!({
                "schedulerName": "pod", "dnsPolicy": "",
                "tolerations": [{"key": "pod"}],
                "nodeSelector": {"a": "pod"},
            }),
            &json!({
                "schedulerName": "pod", "dnsPolicy": "None",
                "tolerations": [{"key": "template"}, {"key": "pod"}],
                "nodeSelector": {"a": "pod", "b": "template"},
            }),
        );
    }

    #[test]
    fn containers_are_built_on_default_then_primary_then_their_own_name() {
        let env = |name: &str| json!([{"name": name}]);
        check(
            &json!({
                "containers": [
                    {"name": "primary", "image": "primary", "env": env("PRIMARY"), "tty": true},
                    {"name": "default", "image": "default", "env": env("DEFAULT")},
                    {"name": "side", "workingDir": "/side", "env": env("SIDE")},
                    {"name": "nobody", "image": "x"},
                ],
                "initContainers": [
                    {"name": "default-init", "workingDir": "/init"},
                    {"name": "primary-init", "image": "x"},
                ],
            }),
            &json!({
                "containers": [
                    {"name": "main", "env": env("MAIN")},
                    {"name": "side", "image": "side"},
                ],
                "initContainers": [{"name": "main", "image": "init"}],
            }),
            &json!({
                "containers": [
                    {
                        "name": "main", "image": "primary", "tty": true,
                        "env": [{"name": "DEFAULT"}, {"name": "PRIMARY"}, {"name": "MAIN"}],
                    },
                    {
                        "name": "side", "image": "side", "workingDir": "/side",
                        "env": [{"name": "DEFAULT"}, {"name": "SIDE"}],
                    },
                ],
                "initContainers": [{"name": "main", "image": "init", "workingDir": "/init"}],
            }),
        );
    }

    #[test]
    fn a_users_pod_is_laid_over_the_containers_that_are_there() {
        let pod = json!({"containers": [{"name": "main", "image": "a", "env": [{"name": "A"}]}]});
        let mut spec = pod.as_object().unwrap().clone();
        overlay(
            &mut spec,
            &json!({
                "priorityClassName": "high",
                "containers": [
                    {"name": "main", "image": "b", "env": [{"name": "B"}]},
                    {"name": "other"},
                ],
                "initContainers": [{"name": "other"}],
            }),
        );
        assert_eq!(
            Value::Object(spec),
            json!({
                "priorityClassName": "high",
                "containers": [
                    {"name": "main", "image": "b", "env": [{"name": "A"}, {"name": "B"}]},
                ],
            })
        );
    }

    #[test]
    fn a_container_with_the_name_of_a_role_has_it_once() {
        check(
            &json!({
                "containers": [{"name": "default", "env": [{"name": "A"}]}],
                "initContainers": [{"name": "default-init"}],
            }),
            &json!({"containers": [{"name": "default", "image": "x"}]}),
            &json!({"containers": [{"name": "default", "image": "x", "env": [{"name": "A"}]}]}),
        );
    }
}
