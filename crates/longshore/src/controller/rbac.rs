//! The rights that the controller needs, made from what its code declares: RBAC grants nothing else.
//!
//! Each role of the controller has objects of its own, so that any manifests can be applied one after another, and none
//! takes away what another one gave. What RBAC cannot restrict to a name (`create`) is not granted where it would be a
//! way to more rights: the manifest has the object instead, without content, and the role may only change it.

use longshore_kit::{Grant, Reach, Rule};
use longshore_tasks::WebhookSettings;
use serde_json::{Value, json};

use super::{policies::policies, roles::Role};

/// The service account, and how the names of all other objects begin.
const NAME: &str = "longshore";
const RBAC: &str = "rbac.authorization.k8s.io";

/// For which installation rights are made.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    /// The namespace of the controller.
    pub(crate) namespace: String,
    /// Names of webhook objects, from the configuration.
    pub(crate) webhook: WebhookSettings,
    /// Whether the Secrets of tasks may be read, all of their namespace.
    pub(crate) reads_secrets: bool,
    /// Whether the API server knows policies: since 1.30.
    pub(crate) has_policies: bool,
    /// Whether the webhooks of podops listen on the loopback address of the API server, which reaches them by URL.
    pub(crate) webhooks_on_loopback: bool,
}

/// What a role does with its lease, if it has one. `create` cannot be restricted to a name.
pub(super) fn lease_rules(leases: &'static [&'static str]) -> Vec<Rule> {
    const GROUP: &str = "coordination.k8s.io";
    if leases.is_empty() {
        return Vec::new();
    }
    vec![
        Rule::new(GROUP, &["leases"], &["create"]),
        Rule::new(GROUP, &["leases"], &["get", "patch"]).named(leases),
    ]
}

/// A ServiceAccount, what the roles find and only change, and the roles that let it do what `roles` do.
pub(crate) fn objects(roles: &[&'static Role], installation: &Installation) -> Vec<Value> {
    let namespace = installation.namespace.as_str();
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
    })];
    for role in roles {
        let mut grants = (role.grants)(&installation.webhook);
        if !installation.reads_secrets {
            grants.retain(|grant| grant.elsewhere.is_none());
        }
        objects.extend(grants.iter().flat_map(|grant| prepared(grant, namespace)));
        let of_lease = lease_rules(role.lease.as_slice());
        grants.extend(of_lease.into_iter().map(Rule::granted));
        for place in [Place::Own, Place::Cluster, Place::Elsewhere] {
            objects.extend(role_and_binding(role.name, place, namespace, &grants));
        }
        if installation.has_policies {
            objects.extend(policies(role.name, NAME, installation, &grants));
        }
    }
    objects
}

/// The objects as a stream of YAML documents.
pub(crate) fn yaml(objects: &[Value]) -> String {
    let documents = objects.iter().map(|object| {
        // The objects of this program always serialise; if one did not, the reason would be no YAML.
        serde_saphyr::to_string(object).unwrap_or_else(|why| format!("{{{{ {why}\n"))
    });
    documents.collect::<Vec<_>>().join("---\n")
}

/// Empty objects for the grants that allow a patch but no create. To apply them a second time changes nothing.
fn prepared(grant: &Grant, namespace: &str) -> Vec<Value> {
    if !grant.rule.verbs.contains(&"patch") || grant.elsewhere.is_some() {
        return Vec::new();
    }
    let kind = match grant.rule.resources {
        // Without a type, which cannot be changed: an earlier Secret may have another type.
        ["secrets"] => ("v1", "Secret"),
        ["mutatingwebhookconfigurations"] => (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
        ),
        ["validatingwebhookconfigurations"] => (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
        ),
        _ => return Vec::new(),
    };
    let object = |name: &String| {
        let (api_version, kind) = kind;
        let mut metadata = json!({"name": name});
        if grant.rule.reach == Reach::Namespace {
            metadata["namespace"] = namespace.into();
        }
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    };
    grant.names.iter().map(object).collect()
}

/// The scope of a group of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the namespace of the controller.
    Own,
    /// In the whole cluster.
    Cluster,
    /// In a namespace that the configuration names.
    Elsewhere,
}

impl Place {
    fn of(grant: &Grant) -> Self {
        match (grant.rule.reach, &grant.elsewhere) {
            (Reach::Cluster, _) => Self::Cluster,
            (Reach::Namespace, None) => Self::Own,
            (Reach::Namespace, Some(_)) => Self::Elsewhere,
        }
    }
}

fn rules<'a>(grants: impl Iterator<Item = &'a Grant>) -> Vec<Value> {
    let rule = |grant: &Grant| {
        let Rule {
            group,
            resources,
            verbs,
            ..
        } = grant.rule;
        let mut object = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        if !grant.names.is_empty() {
            object["resourceNames"] = json!(grant.names);
        }
        object
    };
    grants.map(rule).collect()
}

/// The Role or ClusterRole for a role of the controller at a place, and its binding to the service account.
fn role_and_binding(role: &str, place: Place, namespace: &str, grants: &[Grant]) -> Vec<Value> {
    let here = || grants.iter().filter(|grant| Place::of(grant) == place);
    let Some(first) = here().next() else {
        return Vec::new();
    };
    let kind = match place {
        Place::Own | Place::Elsewhere => "Role",
        Place::Cluster => "ClusterRole",
    };
    // Outside of its namespace a controller shares names with those of other namespaces.
    let metadata = match place {
        Place::Own => json!({"name": format!("{NAME}-{role}"), "namespace": namespace}),
        Place::Cluster => json!({"name": format!("{NAME}-{role}:{namespace}")}),
        Place::Elsewhere => json!({
            "name": format!("{NAME}-{role}:{namespace}"),
            "namespace": first.elsewhere,
        }),
    };
    let api_version = format!("{RBAC}/v1");
    let name = metadata["name"].clone();
    vec![
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules(here())}),
        json!({
            "apiVersion": api_version,
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        controller::roles::{ROLES, defaults},
        reference::is_in_the_repository,
    };

    fn installation(reads_secrets: bool) -> Installation {
        Installation {
            namespace: "longshore".to_owned(),
            webhook: WebhookSettings::default(),
            reads_secrets,
            has_policies: true,
            webhooks_on_loopback: false,
        }
    }

    #[test]
    fn the_manifest_in_the_repository_is_what_the_code_declares() {
        let objects = objects(&defaults(), &installation(false));
        let made = format!("{HEAD}{}", yaml(&objects));
        is_in_the_repository("deploy/rbac.yaml", &made);
    }

    #[test]
    fn the_manifest_of_podops_is_what_the_code_declares_with_its_resource_and_service() {
        let podops: Vec<_> = ROLES.iter().filter(|role| role.name == "podops").collect();
        let resource = podops[0].definition.unwrap();
        let roles = yaml(&objects(&podops, &installation(false)));
        let made = format!("{PODOPS_HEAD}{resource}---\n{roles}---\n{PODOPS_SERVICE}");
        is_in_the_repository("deploy/podops.yaml", &made);
    }

    const HEAD: &str = "\
# What `longshore controller` needs in a cluster, for the namespace `longshore`; made by
# `longshore controller rbac --namespace longshore` from what the code declares. Do not edit.
";

    const PODOPS_HEAD: &str = "\
# What `longshore controller --enable podops` needs in a cluster, for the namespace `longshore`: its resource, its roles, what
# it changes and may not create, and the Service through which API servers reach its webhooks; made from what the code
# declares. Do not edit.
";

    const PODOPS_SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: longshore-podops
  namespace: longshore
spec:
  selector:
    app.kubernetes.io/name: longshore
  ports:
  - port: 443
    targetPort: 9443
";

    /// What each manifest has, by kind, namespace and name.
    fn identities(objects: &[Value]) -> BTreeSet<String> {
        let identity = |object: &Value| {
            let metadata = &object["metadata"];
            format!(
                "{} {} {}",
                object["kind"], metadata["namespace"], metadata["name"]
            )
        };
        objects.iter().map(identity).collect()
    }

    #[test]
    fn no_manifest_has_an_object_of_another_one_but_the_service_account() {
        let of = |role| identities(&objects(&[role], &installation(true)));
        for (at, role) in ROLES.iter().enumerate() {
            for other in &ROLES[at + 1..] {
                let both: Vec<String> = of(role).intersection(&of(other)).cloned().collect();
                assert_eq!(
                    both,
                    [r#""ServiceAccount" "longshore" "longshore""#],
                    "{} and {}",
                    role.name,
                    other.name
                );
            }
        }
    }

    #[test]
    fn no_role_may_create_what_gives_it_more_rights_or_change_what_is_not_named() {
        let roles: Vec<_> = ROLES.iter().collect();
        let text = yaml(&objects(&roles, &installation(true)));
        assert!(!text.contains('*'), "{text}");
        let of_others = [
            "secrets",
            "serviceaccounts",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ];
        for role in &roles {
            for grant in (role.grants)(&WebhookSettings::default()) {
                let Rule {
                    group,
                    resources,
                    verbs,
                    ..
                } = grant.rule;
                assert_ne!(group, RBAC, "{grant:?}");
                if !resources.iter().any(|it| of_others.contains(it)) {
                    continue;
                }
                assert!(
                    verbs.iter().all(|verb| ["get", "patch"].contains(verb)),
                    "{grant:?}"
                );
                // The Secrets of tasks, which are given on purpose.
                let is_elsewhere = grant.elsewhere.is_some() && verbs == ["get"];
                assert!(!grant.names.is_empty() || is_elsewhere, "{grant:?}");
            }
        }
    }

    #[test]
    fn reading_the_secrets_of_tasks_is_granted_on_purpose_and_where_they_are() {
        let webhook: Vec<_> = ROLES.iter().filter(|role| role.name == "webhook").collect();
        let readers = |reads_secrets| {
            let objects = objects(&webhook, &installation(reads_secrets));
            let unnamed = objects.into_iter().filter(|object| {
                let rules = object["rules"].as_array();
                rules.is_some_and(|rules| {
                    rules.iter().any(|rule| {
                        rule["resources"][0] == "secrets" && rule["resourceNames"].is_null()
                    })
                })
            });
            let metadata = unnamed.map(|role| role["metadata"].clone());
            metadata.collect::<Vec<_>>()
        };
        assert_eq!(readers(false), [] as [Value; 0]);
        let in_flyte = json!({"name": "longshore-webhook:longshore", "namespace": "flyte"});
        assert_eq!(readers(true), [in_flyte]);
    }
}
