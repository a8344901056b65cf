//! What Kubernetes has and this server does not: resources that are not served, kinds of which objects are only stored,
//! and rules that are not enforced. Clients are told, so that nobody waits for what never comes.

use ::http::Response;
use serde_json::Value;

use super::{
    crd::n_rules,
    error::{ApiError, Result},
    http::{body::ApiBody, discovery, route::ResourcePath},
    registry::{Registry, Resource, Strategy},
};

/// Resources of Kubernetes 1.34 in their stable versions, by group and version.
const NOT_SERVED: &[(&str, &str, &[&str])] = &[
    ("", "v1", &["componentstatuses"]),
    (
        "admissionregistration.k8s.io",
        "v1",
        &[
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ],
    ),
    ("networking.k8s.io", "v1", &["ipaddresses", "servicecidrs"]),
    (
        "resource.k8s.io",
        "v1",
        &[
            "deviceclasses",
            "resourceclaims",
            "resourceclaimtemplates",
            "resourceslices",
        ],
    ),
    (
        "storage.k8s.io",
        "v1",
        &[
            "csidrivers",
            "csistoragecapacities",
            "volumeattachments",
            "volumeattributesclasses",
        ],
    ),
];

/// Parts of served objects.
const PARTS_NOT_SERVED: &[(&str, &str)] = &[("nodes", "proxy"), ("pods", "resize")];

/// Kinds of which no controller here reads the objects.
const ONLY_STORED: &[&str] = &[
    "apiservices.apiregistration.k8s.io",
    "certificatesigningrequests.certificates.k8s.io",
    "cronjobs.batch",
    "csinodes.storage.k8s.io",
    "daemonsets.apps",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "horizontalpodautoscalers.autoscaling",
    "ingressclasses.networking.k8s.io",
    "ingresses.networking.k8s.io",
    "limitranges",
    "networkpolicies.networking.k8s.io",
    "persistentvolumes",
    "priorityclasses.scheduling.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "resourcequotas",
    "storageclasses.storage.k8s.io",
];

/// Labels of a namespace that say what its pods may be.
const POD_SECURITY: &str = "pod-security.kubernetes.io/";
const POD_SECURITY_MODES: [&str; 3] = ["enforce", "warn", "audit"];

/// The answer to a request for a resource that is not served.
pub(crate) fn answer(registry: &Registry, path: &ResourcePath) -> Result<Response<ApiBody>> {
    match resource(path) {
        Some(not_implemented) => Err(not_implemented),
        None => Ok(discovery::unknown(registry, &path.group, &path.version)),
    }
}

/// The refusal of a request for a resource that Kubernetes has and this server does not; `None` for one that Kubernetes
/// does not have either.
fn resource(path: &ResourcePath) -> Option<ApiError> {
    let ResourcePath {
        group,
        version,
        plural,
        ..
    } = path;
    let is_not_served = NOT_SERVED.iter().any(|(of_group, of_version, plurals)| {
        group == of_group && version == of_version && plurals.contains(&plural.as_str())
    });
    let what = if group.is_empty() {
        format!("{plural} ({version})")
    } else {
        format!("{plural}.{group} ({version})")
    };
    is_not_served.then(|| ApiError::not_implemented(&what))
}

/// The refusal of a request for a part of an object that is not served.
pub(crate) fn part(resource: &Resource, subresource: &str) -> ApiError {
    let qualified = resource.qualified();
    if PARTS_NOT_SERVED.contains(&(qualified.as_str(), subresource)) {
        ApiError::not_implemented(&format!("{qualified}/{subresource}"))
    } else {
        ApiError::no_such_resource()
    }
}

/// What a client should know that has written this object.
pub(crate) fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    let kind = &resource.kind;
    if let Some(custom) = &resource.custom {
        let unenforced =
            (custom.n_rules > 0).then(|| not_enforced("of its definition", custom.n_rules));
        return unenforced.into_iter().collect();
    }
    if resource.strategy == Strategy::Definition {
        let versions = object.pointer("/spec/versions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten().enumerate();
        let of_version = |(index, version): (usize, &Value)| {
            let n_rules = n_rules(&version["schema"]["openAPIV3Schema"]);
            let place = format!("in spec.versions[{index}].schema.openAPIV3Schema");
            (n_rules > 0).then(|| not_enforced(&place, n_rules))
        };
        return versions.filter_map(of_version).collect();
    }
    if resource.qualified() == "namespaces" {
        return pod_security(object).into_iter().collect();
    }
    if ONLY_STORED.contains(&resource.qualified().as_str()) {
        return vec![format!(
            "{kind} objects are only stored: no controller of this cluster acts on them"
        )];
    }
    Vec::new()
}

/// What the labels of Pod Security ask for, which nothing here looks at. The level `privileged` asks for nothing.
fn pod_security(namespace: &Value) -> Option<String> {
    let labels = namespace.pointer("/metadata/labels");
    let asks = POD_SECURITY_MODES.iter().filter_map(|mode| {
        let label = format!("{POD_SECURITY}{mode}");
        let level = labels?.get(&label)?.as_str()?;
        (level != "privileged").then(|| format!("{label}={level}"))
    });
    let asks = asks.collect::<Vec<_>>().join(", ");
    (!asks.is_empty()).then(|| {
        format!("this cluster does not enforce Pod Security, and pods of this namespace may do more than it says: {asks}")
    })
}

fn not_enforced(place: &str, n_rules: usize) -> String {
    let rules = if n_rules == 1 { "rule" } else { "rules" };
    format!("this cluster does not enforce x-kubernetes-validations: {n_rules} {rules} {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_as_not_served_is_not_and_what_is_only_stored_is() {
        let registry = Registry::built_in(1);
        for (group, version, plurals) in NOT_SERVED {
            for plural in *plurals {
                let served = registry.find(group, version, plural);
                assert!(served.is_none(), "{plural}.{group}/{version} is served");
            }
        }
        let served: Vec<String> = registry
            .all()
            .iter()
            .map(|served| served.resource.qualified())
            .collect();
        for name in ONLY_STORED {
            assert!(served.iter().any(|it| it == name), "{name} is not served");
        }
    }

    #[test]
    fn levels_of_pod_security_are_said_not_to_be_enforced() {
        let registry = Registry::built_in(1);
        let resource = registry.find("", "v1", "namespaces").unwrap();
        let secure = |labels: &[(&str, &str)]| {
            let labels = labels
                .iter()
                .map(|(mode, level)| (format!("pod-security.kubernetes.io/{mode}"), *level));
            let labels: std::collections::BTreeMap<String, &str> = labels.collect();
            serde_json::json!({"metadata": {"labels": labels}})
        };
        for (labels, expected) in [
            (vec![], None),
            (vec![("enforce", "privileged")], None),
            (vec![("enforce-version", "latest")], None),
            (
                vec![("enforce", "restricted")],
                Some("pod-security.kubernetes.io/enforce=restricted"),
            ),
            (
                vec![
                    ("enforce", "privileged"),
                    ("warn", "baseline"),
                    ("audit", "baseline"),
                ],
                Some(
                    "pod-security.kubernetes.io/warn=baseline, pod-security.kubernetes.io/audit=baseline",
                ),
            ),
        ] {
            let warnings = warnings(&resource.resource, &secure(&labels));
            let warning = expected.map(|asks| {
                format!(
                    "this cluster does not enforce Pod Security, and pods of this namespace may do more than it says: {asks}"
                )
            });
            assert_eq!(warnings, Vec::from_iter(warning), "{labels:?}");
        }
        assert!(warnings(&resource.resource, &serde_json::json!({})).is_empty());
    }

    #[test]
    fn only_what_kubernetes_has_is_not_implemented() {
        for (group, version, plural, expected) in [
            ("", "v1", "componentstatuses", Some(501)),
            ("storage.k8s.io", "v1", "csidrivers", Some(501)),
            ("storage.k8s.io", "v1beta1", "csidrivers", None),
            ("storage.k8s.io", "v1", "nothings", None),
            ("metrics.k8s.io", "v1beta1", "pods", None),
            ("", "v1", "csidrivers", None),
        ] {
            let path = ResourcePath {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: plural.to_owned(),
                ..ResourcePath::default()
            };
            let found = resource(&path).map(|error| error.code);
            assert_eq!(found, expected, "{plural}.{group}/{version}");
        }
    }
}
