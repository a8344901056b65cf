//! What is wrong with the specification of a pod, or of a template: upstream's complaints, in its
//! words and in its order.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod_handlers::{self, Place};
use crate::server::{error::Cause, meta, names::NameRule};

const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Complaints about a specification that stands at a path.
pub(super) fn violations(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let volumes = volume_names(spec, path, &mut causes);
    if items(spec, "containers").next().is_none() {
        causes.push(Cause::required(&format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    let grace = spec
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    for (list, place) in [("containers", Place::Main), ("initContainers", Place::Init)] {
        for (index, container) in items(spec, list).enumerate() {
            let field = format!("{path}.{list}[{index}]");
            name_violations(container, &field, &mut names, &mut causes);
            container_violations(container, &field, &volumes, &mut causes);
            pod_handlers::of_container(container, place, grace, &field, &mut causes);
        }
    }
    let one_of = |key: &str, known: &[&str], causes: &mut Vec<Cause>| {
        let found = meta::text(spec, &format!("/{key}"));
        if !known.contains(&found) {
            causes.push(Cause::unsupported(&format!("{path}.{key}"), found, known));
        }
    };
    one_of("restartPolicy", RESTART_POLICIES, &mut causes);
    one_of("dnsPolicy", DNS_POLICIES, &mut causes);
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    let field = format!("{path}.nodeSelector");
    for (key, value) in selector.into_iter().flatten() {
        causes.extend(meta::label_violations(&field, key, value));
    }
    if let Some(seconds) = spec.get("activeDeadlineSeconds").and_then(Value::as_i64) {
        let field = format!("{path}.activeDeadlineSeconds");
        check_range(&field, seconds, i64::from(i32::MAX), &mut causes);
    }
    for key in ["hostname", "subdomain"] {
        let name = meta::text(spec, &format!("/{key}"));
        if !name.is_empty() {
            label_violations(name, &format!("{path}.{key}"), &mut causes);
        }
    }
    pod_handlers::of_pod(spec, path, &mut causes);
    for (index, toleration) in items(spec, "tolerations").enumerate() {
        let value = meta::text(toleration, "/value");
        if meta::text(toleration, "/operator") == "Exists" && !value.is_empty() {
            let field = format!("{path}.tolerations[{index}].operator");
            let why = "value must be empty when `operator` is 'Exists'";
            causes.push(Cause::invalid(&field, &value.into(), why));
        }
    }
    causes
}

pub(super) fn items<'a>(parent: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    let list = parent.get(list).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn check_range(field: &str, found: i64, highest: i64, causes: &mut Vec<Cause>) {
    if !(1..=highest).contains(&found) {
        let why = format!("must be between 1 and {highest}, inclusive");
        causes.push(Cause::invalid(field, &found.into(), &why));
    }
}

/// The names of the volumes, which containers mount.
pub(super) fn volume_names<'a>(
    spec: &'a Value,
    path: &str,
    causes: &mut Vec<Cause>,
) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in items(spec, "volumes").enumerate() {
        let field = format!("{path}.volumes[{index}].name");
        check_name(meta::text(volume, "/name"), &field, &mut names, causes);
    }
    names
}

/// A label that no item before it has.
fn check_name<'a>(
    name: &'a str,
    field: &str,
    names: &mut BTreeSet<&'a str>,
    causes: &mut Vec<Cause>,
) {
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
        return;
    }
    label_violations(name, field, causes);
    if !names.insert(name) {
        causes.push(Cause::duplicate(field, name));
    }
}

/// Complaints about a text that has to be a label.
pub(super) fn label_violations(name: &str, field: &str, causes: &mut Vec<Cause>) {
    let violations = NameRule::Label.violations(name);
    causes.extend(
        violations
            .iter()
            .map(|why| Cause::invalid(field, &name.into(), why)),
    );
}

pub(super) fn name_violations<'a>(
    container: &'a Value,
    field: &str,
    names: &mut BTreeSet<&'a str>,
    causes: &mut Vec<Cause>,
) {
    let name = meta::text(container, "/name");
    check_name(name, &format!("{field}.name"), names, causes);
    let image = meta::text(container, "/image");
    let at = format!("{field}.image");
    if image.is_empty() {
        causes.push(Cause::required(&at, ""));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        causes.push(Cause::invalid(&at, &image.into(), why));
    }
}

pub(super) fn container_violations(
    container: &Value,
    field: &str,
    volumes: &BTreeSet<&str>,
    causes: &mut Vec<Cause>,
) {
    for (index, port) in items(container, "ports").enumerate() {
        let number = port.get("containerPort").and_then(Value::as_i64);
        let field = format!("{field}.ports[{index}].containerPort");
        match number.unwrap_or(0) {
            0 => causes.push(Cause::required(&field, "")),
            number => check_range(&field, number, 65535, causes),
        }
    }
    for (index, variable) in items(container, "env").enumerate() {
        let name = meta::text(variable, "/name");
        let field = format!("{field}.env[{index}].name");
        if name.is_empty() {
            causes.push(Cause::required(&field, ""));
        } else if !name
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
        {
            let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            causes.push(Cause::invalid(&field, &name.into(), why));
        }
    }
    let mut places = BTreeSet::new();
    for (index, mount) in items(container, "volumeMounts").enumerate() {
        let (name, place) = (meta::text(mount, "/name"), meta::text(mount, "/mountPath"));
        let field = format!("{field}.volumeMounts[{index}]");
        if name.is_empty() {
            causes.push(Cause::required(&format!("{field}.name"), ""));
        } else if !volumes.contains(name) {
            causes.push(Cause::not_found(&format!("{field}.name"), name));
        }
        let at = format!("{field}.mountPath");
        if place.is_empty() {
            causes.push(Cause::required(&at, ""));
        } else if !places.insert(place) {
            causes.push(Cause::invalid(&at, &place.into(), "must be unique"));
        }
    }
    let policy = meta::text(container, "/imagePullPolicy");
    if !PULL_POLICIES.contains(&policy) {
        let field = format!("{field}.imagePullPolicy");
        causes.push(Cause::unsupported(&field, policy, PULL_POLICIES));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_host_name_of_a_pod_and_its_subdomain_are_labels() {
        let complaints = |key: &str, name: &str| {
            let container = json!({"name": "c", "image": "i", "imagePullPolicy": "Always"});
            let mut spec = json!({
                "containers": [container], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            });
            spec[key] = name.into();
            violations(&spec, "spec.template.spec")
        };
        for key in ["hostname", "subdomain"] {
            for (name, is_label) in [
                ("", true),
                ("db-0", true),
                ("q w", false),
                ("a.b", false),
                ("A", false),
                ("q\n6.6.6.7\tpayments.default.svc registry.npmjs.org", false),
            ] {
                let found = complaints(key, name);
                assert_eq!(found.is_empty(), is_label, "{key} {name:?}: {found:?}");
                for cause in found {
                    assert_eq!(cause.field, format!("spec.template.spec.{key}"));
                    let why = "a lowercase RFC 1123 label must consist of";
                    let expected = format!("Invalid value: {}: {why}", Value::from(name));
                    assert!(cause.message.starts_with(&expected), "{}", cause.message);
                }
            }
        }
    }
}
