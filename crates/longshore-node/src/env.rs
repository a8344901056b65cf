//! The environment of a container and the `$(VAR)` references in its command, as Kubernetes defines them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EnvVarSource, ObjectFieldSelector, Pod, ResourceFieldSelector,
};
use longshore_k8s::Quantity;

use crate::{
    api_server::API_SERVER,
    sources::{Kind, Sources},
};

/// A variable cannot be given its value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum EnvError {
    #[error("{kind} \"{name}\" not found")]
    NoObject { kind: Kind, name: String },
    #[error("couldn't find key {key} in {kind} \"{name}\"")]
    NoKey {
        kind: Kind,
        name: String,
        key: String,
    },
    #[error("variable {name}: the node cannot give {what}")]
    Unsupported { name: String, what: String },
}

/// The node's side of a pod for the downward API.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFacts {
    pub(crate) ip: String,
    /// The pod's own address.
    pub(crate) pod_ip: String,
    /// The node's own allocatable amounts: what a container without limits may use.
    pub(crate) allocatable: BTreeMap<String, String>,
    /// The variables of the Services that the pod can reach.
    pub(crate) links: Vec<(String, String)>,
}

/// The variables of a container in the order in which they were set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// Node, image and pod together: what the program gets.
    pub(crate) all: Vec<(String, String)>,
    /// Only what the pod and Services gave: what `$(VAR)` can refer to.
    from_pod: BTreeMap<String, String>,
    /// Keys of `envFrom` that are no variable names.
    pub(crate) skipped: Vec<String>,
}

impl Environment {
    /// Replaces `$(VAR)`; `$$(VAR)` stands for itself and an unknown one stays as it is.
    pub(crate) fn expand(&self, text: &str) -> String {
        expand(text, &self.from_pod)
    }

    fn set(&mut self, name: &str, value: String) {
        set(&mut self.all, name, value.clone());
        self.from_pod.insert(name.to_owned(), value);
    }
}

/// Builds the environment: `base` (node and image), then the variables of Services, then `envFrom`, then `env`.
///
/// Where the API server is, `base` says: a node may send its pods to another one.
pub(crate) fn environment(
    base: Vec<(String, String)>,
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    host: &HostFacts,
) -> Result<Environment, EnvError> {
    let mut env = Environment::default();
    for (name, value) in base {
        set(&mut env.all, &name, value);
    }
    for (name, value) in &host.links {
        if API_SERVER.contains(&name.as_str()) {
            env.from_pod.insert(name.clone(), value.clone());
        } else {
            env.set(name, value.clone());
        }
    }
    for from in container.env_from.iter().flatten() {
        let (kind, name, optional) = match (&from.config_map_ref, &from.secret_ref) {
            (Some(r), _) => (Kind::ConfigMap, &r.name, r.optional),
            (None, Some(r)) => (Kind::Secret, &r.name, r.optional),
            (None, None) => continue,
        };
        let Some(data) = sources.get(kind, name) else {
            if optional == Some(true) {
                continue;
            }
            return Err(EnvError::NoObject {
                kind,
                name: name.clone(),
            });
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, value) in data {
            let variable = format!("{prefix}{key}");
            if is_variable_name(&variable) {
                env.set(&variable, String::from_utf8_lossy(value).into_owned());
            } else {
                env.skipped.push(variable);
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(env.expand(value)),
            (None, None) => Some(String::new()),
            (None, Some(from)) => value_from(&variable.name, from, pod, container, sources, host)?,
        };
        if let Some(value) = value {
            env.set(&variable.name, value);
        }
    }
    Ok(env)
}

fn value_from(
    name: &str,
    from: &EnvVarSource,
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    host: &HostFacts,
) -> Result<Option<String>, EnvError> {
    let unsupported = |what: String| EnvError::Unsupported {
        name: name.to_owned(),
        what,
    };
    if let Some(r) = &from.config_map_key_ref {
        return sources.key(Kind::ConfigMap, &r.name, &r.key, r.optional == Some(true));
    }
    if let Some(r) = &from.secret_key_ref {
        return sources.key(Kind::Secret, &r.name, &r.key, r.optional == Some(true));
    }
    if let Some(field) = &from.field_ref {
        let value = field_of(pod, field, host);
        return value
            .map(Some)
            .ok_or_else(|| unsupported(format!("the field {}", field.field_path)));
    }
    if let Some(resource) = &from.resource_field_ref {
        let value = resource_of(container, resource, host);
        return value
            .map(Some)
            .ok_or_else(|| unsupported(format!("the resource {}", resource.resource)));
    }
    Err(unsupported("a value from a source other than configMapKeyRef, secretKeyRef, fieldRef and resourceFieldRef".into()))
}

/// The value of a field of the pod, as variables and downward API volumes show it.
pub(crate) fn field_of(pod: &Pod, field: &ObjectFieldSelector, host: &HostFacts) -> Option<String> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref()?;
    let path = field.field_path.as_str();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return None,
        };
        return Some(
            map.as_ref()
                .and_then(|m| m.get(key))
                .cloned()
                .unwrap_or_default(),
        );
    }
    match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(lines(meta.labels.as_ref())),
        "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
        "spec.nodeName" => spec.node_name.clone(),
        "spec.serviceAccountName" => Some(spec.service_account_name.clone().unwrap_or_default()),
        "status.podIP" | "status.podIPs" => Some(host.pod_ip.clone()),
        "status.hostIP" | "status.hostIPs" => Some(host.ip.clone()),
        _ => None,
    }
}

/// A container's request or limit, divided; a missing one is the node's own amount.
pub(crate) fn resource_of(
    container: &Container,
    field: &ResourceFieldSelector,
    host: &HostFacts,
) -> Option<String> {
    let (side, resource) = field.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let wanted = |limits: bool| {
        let map = resources.and_then(|r| {
            if limits {
                r.limits.as_ref()
            } else {
                r.requests.as_ref()
            }
        });
        map.and_then(|m| m.get(resource)).map(|q| q.0.clone())
    };
    let amount = match side {
        "limits" => wanted(true).or_else(|| host.allocatable.get(resource).cloned())?,
        // As in Kubernetes, a request follows the limit where only that is given.
        "requests" => wanted(false)
            .or_else(|| wanted(true))
            .unwrap_or_else(|| "0".into()),
        _ => return None,
    };
    let divisor = field
        .divisor
        .as_ref()
        .filter(|divisor| !divisor.0.is_empty());
    let divisor = Quantity::parse(divisor.map_or("1", |divisor| divisor.0.as_str()))?;
    // As in Kubernetes, whose zero stands for a divisor that was left out.
    let divisor = if divisor.is_zero() {
        Quantity::ONE
    } else {
        divisor
    };
    let divided = Quantity::parse(&amount)?.divided_by(divisor)?;
    Some(divided.to_string())
}

fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let all: Vec<_> = map
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={v:?}"))
        .collect();
    all.join("\n")
}

fn set(all: &mut Vec<(String, String)>, name: &str, value: String) {
    match all.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value,
        None => all.push((name.to_owned(), value)),
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_graphic() && c != '=')
}

fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
            continue;
        }
        let reference = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'));
        match reference {
            Some((name, tail)) => {
                match variables.get(name) {
                    Some(value) => out.push_str(value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = tail;
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_expanded_as_in_kubernetes() {
        let variables = BTreeMap::from([("A".into(), "1".into()), ("B".into(), "$(A)".into())]);
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(MISSING)", "$(MISSING)"),
            ("$(B)", "$(A)"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("$(é)$(A)", "$(é)1"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    fn sources() -> Sources {
        let mut sources = Sources::default();
        let data = |pairs: &[(&str, &str)]| {
            Some(
                pairs
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
                    .collect(),
            )
        };
        sources.insert(
            Kind::ConfigMap,
            "conf",
            data(&[("one", "1"), ("7up", "no")]),
        );
        sources.insert(Kind::Secret, "key", data(&[("token", "s3cret")]));
        sources
    }

    fn pod_with(container: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}},
            "spec": {"containers": [container], "nodeName": "here"},
        }))
        .expect("a pod")
    }

    fn links() -> Vec<(String, String)> {
        [
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
            ("LANG", "of a Service"),
            ("DB_PORT", "tcp://10.96.0.2:1"),
            ("one", "of a Service"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    fn build(container: serde_json::Value) -> Result<Environment, EnvError> {
        let pod = pod_with(container);
        let Some(container) = pod.spec.iter().flat_map(|s| &s.containers).next() else {
            panic!("the pod has a container");
        };
        let host = HostFacts {
            ip: "127.0.0.1".into(),
            pod_ip: "127.1.2.3".into(),
            allocatable: BTreeMap::from([("cpu".into(), "4".into())]),
            links: links(),
        };
        let base = [
            ("PATH", "/bin"),
            ("LANG", "C"),
            ("KUBERNETES_SERVICE_HOST", "here"),
        ];
        let base = base
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        environment(base, &pod, container, &sources(), &host)
    }

    #[test]
    fn variables_come_from_the_image_then_services_then_env_from_then_env() {
        let env = build(json!({
            "name": "c",
            "envFrom": [{"prefix": "C_", "configMapRef": {"name": "conf"}}, {"configMapRef": {"name": "conf"}},
                {"secretRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "LANG", "value": "de"},
                {"name": "REF", "value": "$(one)-$(LANG)-$(PATH)"},
                {"name": "DB", "value": "$(DB_PORT) $(KUBERNETES_SERVICE_HOST)"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}},
                {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "key", "key": "x", "optional": true}}},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
        }))
        .expect("an environment");
        let all: Vec<String> = env.all.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(
            all,
            [
                "PATH=/bin",
                "LANG=de",
                "KUBERNETES_SERVICE_HOST=here",
                "DB_PORT=tcp://10.96.0.2:1",
                "one=1",
                "C_7up=no",
                "C_one=1",
                "REF=1-de-$(PATH)",
                "DB=tcp://10.96.0.2:1 10.96.0.1",
                "TOKEN=s3cret",
                "POD=p",
                "APP=x",
                "CPU=4",
            ]
        );
        assert_eq!(env.skipped, ["7up"]);
    }

    #[test]
    fn a_missing_source_is_named() {
        for (env, expected) in [
            (
                json!({"configMapKeyRef": {"name": "nope", "key": "k"}}),
                "configmap \"nope\" not found",
            ),
            (
                json!({"secretKeyRef": {"name": "key", "key": "k"}}),
                "couldn't find key k in secret \"key\"",
            ),
            (
                json!({"fieldRef": {"fieldPath": "status.phase"}}),
                "variable V: the node cannot give the field status.phase",
            ),
        ] {
            let error = build(json!({"name": "c", "env": [{"name": "V", "valueFrom": env}]}));
            assert_eq!(error.expect_err("must not pass").to_string(), expected);
        }
    }
}
