//! The Ingress of a cluster's REST API (spec 15; upstream: `IngressUtils`).

use longshore_api::flink::{COMPONENT_INGRESS, LABEL_COMPONENT};
use serde_json::{Value, json};

use super::{FlinkConfig, InvalidOption, options};
use crate::spec::IngressSpec;

/// The resource that an object belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

/// Host and path of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The host; none for every host.
    pub host: Option<String>,
    /// The path; none for every path.
    pub path: Option<String>,
}

/// Why there can be no such Ingress.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngressError {
    /// The spec has no template (the message is upstream's).
    #[error("Ingress template must be defined")]
    NoTemplate,
    /// The template is no URL (the message is upstream's).
    #[error("Unable to process the Ingress template({template}). Error: {why}")]
    Template {
        /// The template.
        template: String,
        /// What is wrong with it.
        why: String,
    },
    /// The port of the REST API.
    #[error(transparent)]
    Option(#[from] InvalidOption),
}

/// The Ingress that leads to the REST Service of the owner's cluster.
///
/// # Errors
/// [`IngressError`] where the template is missing or is no URL.
pub fn ingress(
    owner: &Owner<'_>,
    spec: &IngressSpec,
    config: &FlinkConfig,
) -> Result<Value, IngressError> {
    let template = spec.template.as_deref().ok_or(IngressError::NoTemplate)?;
    let address = address(template, owner.name, owner.namespace)?;
    let service = json!({
        "name": format!("{}-rest", owner.name),
        "port": {"number": config.get(&options::REST_PORT)?},
    });
    let mut path = json!({"pathType": "ImplementationSpecific", "backend": {"service": service}});
    if let Some(text) = address.path {
        path["path"] = json!(text);
    }
    let mut rule = json!({"http": {"paths": [path]}});
    if let Some(host) = address.host {
        rule["host"] = json!(host);
    }
    let mut ingress_spec = json!({"rules": [rule]});
    if let Some(class) = &spec.class_name {
        ingress_spec["ingressClassName"] = json!(class);
    }
    if let Some(tls) = &spec.tls {
        ingress_spec["tls"] = json!(tls);
    }
    let mut labels = spec.labels.clone().unwrap_or_default();
    labels.insert(LABEL_COMPONENT.to_owned(), COMPONENT_INGRESS.to_owned());
    Ok(json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": owner.name,
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": spec.annotations.clone().unwrap_or_default(),
            "ownerReferences": [{
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": ingress_spec,
    }))
}

/// Host and path of a template: `{{name}}` and `{{namespace}}`, in whatever case, are those of the cluster; without a
/// scheme it is HTTP.
///
/// # Errors
/// [`IngressError::Template`] where it is no URL.
pub fn address(template: &str, name: &str, namespace: &str) -> Result<Address, IngressError> {
    let lower = template.to_ascii_lowercase();
    let has_scheme = lower.starts_with("http://") || lower.starts_with("https://");
    let rest = if has_scheme {
        template
            .split_once("://")
            .map_or(template, |(_, rest)| rest)
    } else {
        template
    };
    let rest = substitute(rest, "{{name}}", name);
    let rest = substitute(&rest, "{{namespace}}", namespace);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    let path_end = after.find(['?', '#']).unwrap_or(after.len());
    let host = host(authority).map_err(|why| IngressError::Template {
        template: template.to_owned(),
        why,
    })?;
    let given = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
    Ok(Address {
        host: given(host),
        path: given(&after[..path_end]),
    })
}

/// The host of `user@host:port`. The messages are those of `java.net.URL`.
fn host(authority: &str) -> Result<&str, String> {
    let address = authority.rsplit_once('@').map_or(authority, |(_, it)| it);
    let (host, port) = if address.starts_with('[') {
        let end = address
            .find(']')
            .ok_or_else(|| format!("Invalid authority field: {authority}"))?;
        let (host, port) = address.split_at(end + 1);
        (host, port.strip_prefix(':').unwrap_or(port))
    } else {
        address.split_once(':').unwrap_or((address, ""))
    };
    match port.parse::<i32>() {
        _ if port.is_empty() => Ok(host),
        Ok(number) if number >= -1 => Ok(host),
        Ok(number) => Err(format!("Invalid port number :{number}")),
        Err(_) => Err(format!("For input string: \"{port}\"")),
    }
}

fn substitute(text: &str, placeholder: &str, value: &str) -> String {
    let mut substituted = String::new();
    let mut rest = text;
    while let Some(at) = rest.to_ascii_lowercase().find(placeholder) {
        substituted.push_str(&rest[..at]);
        substituted.push_str(value);
        rest = &rest[at + placeholder.len()..];
    }
    substituted.push_str(rest);
    substituted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn templates_become_hosts_and_paths() {
        for (template, host, path) in [
            (
                "{{name}}.{{namespace}}.example.com",
                Some("app.ns.example.com"),
                None,
            ),
            (
                "https://{{Name}}.x:8080/{{NAMESPACE}}?q#f",
                Some("app.x"),
                Some("/ns"),
            ),
            (
                "/{{namespace}}/{{name}}(/|$)(.*)",
                None,
                Some("/ns/app(/|$)(.*)"),
            ),
            ("HTTP://x", Some("x"), None),
            ("http://", None, None),
            ("user@[::1]:80/a", Some("[::1]"), Some("/a")),
            ("{{name}}.{{other}}", Some("app.{{other}}"), None),
        ] {
            let found = address(template, "app", "ns").unwrap();
            assert_eq!(found.host.as_deref(), host, "{template}");
            assert_eq!(found.path.as_deref(), path, "{template}");
        }
    }

    #[test]
    fn templates_that_are_no_urls_are_refused() {
        for (template, why) in [
            ("example.com:port", "For input string: \"port\""),
            ("example.com:-5", "Invalid port number :-5"),
            ("http://[::1", "Invalid authority field: [::1"),
        ] {
            let error = address(template, "app", "ns").unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("Unable to process the Ingress template({template}). Error: {why}")
            );
        }
    }

    fn owner() -> Owner<'static> {
        Owner {
            api_version: "flink.apache.org/v1beta1",
            kind: "FlinkDeployment",
            name: "app",
            namespace: "ns",
            uid: "u-1",
        }
    }

    #[test]
    fn an_ingress_leads_to_the_rest_service() {
        let spec = IngressSpec {
            template: Some("/{{namespace}}/{{name}}".to_owned()),
            class_name: Some("nginx".to_owned()),
            annotations: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
            labels: Some(BTreeMap::from([(
                "component".to_owned(),
                "mine".to_owned(),
            )])),
            tls: serde_json::from_str(r#"[{"hosts": ["h"], "secretName": "s"}]"#).unwrap(),
            ..IngressSpec::default()
        };
        let config = [("rest.port", "9081")].into_iter().collect();
        let expected = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": "app",
                "namespace": "ns",
                "labels": {"component": "ingress"},
                "annotations": {"a": "b"},
                "ownerReferences": [{
                    "apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "name": "app", "uid": "u-1",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "ingressClassName": "nginx",
                "tls": [{"hosts": ["h"], "secretName": "s"}],
                "rules": [{"http": {"paths": [{
                    "path": "/ns/app",
                    "pathType": "ImplementationSpecific",
                    "backend": {"service": {"name": "app-rest", "port": {"number": 9081}}},
                }]}}],
            },
        });
        assert_eq!(ingress(&owner(), &spec, &config), Ok(expected));
    }

    #[test]
    fn an_ingress_without_a_template_is_refused() {
        let found = ingress(&owner(), &IngressSpec::default(), &FlinkConfig::new());
        assert_eq!(found, Err(IngressError::NoTemplate));
    }
}
