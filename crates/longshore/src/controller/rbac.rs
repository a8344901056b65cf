//! The rights that the controller needs, made from what its code declares: RBAC grants nothing else.
//!
//! Each role of the controller has objects of its own, so that any manifests can be applied one after another, and none
//! takes away what another one gave. What RBAC cannot restrict to a name (`create`) is not granted where it would be a
//! way to more rights: the manifest has the object instead, without content, and the role may only change it.

use std::collections::BTreeSet;

use longshore_kit::{Grant, Reach, Rule};
use longshore_tasks::WebhookSettings;
use serde_json::{Value, json};

use super::{
    namespaces::Others,
    policies::policies,
    roles::{Role, Works},
};

/// The service account, and how the names of all other objects begin.
const NAME: &str = "longshore";
const RBAC: &str = "rbac.authorization.k8s.io";

/// For which installation rights are made.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    /// The namespace of the controller.
    pub(crate) namespace: String,
    /// The namespaces beside it whose TaskActions the controller runs.
    pub(crate) others: Others,
    /// Names of webhook objects, from the configuration.
    pub(crate) webhook: WebhookSettings,
    /// Whether the Secrets of tasks may be read, all of their namespace.
    pub(crate) reads_secrets: bool,
    /// Whether the API server knows policies: since 1.30.
    pub(crate) has_policies: bool,
    /// Whether the webhooks of podops listen on the loopback address of the API server, which reaches them by URL.
    pub(crate) webhooks_on_loopback: bool,
}

/// The API group of leases.
const LEASES: &str = "coordination.k8s.io";

/// What a role does with its lease, if it has one. `create` cannot be restricted to a name.
fn lease_rules(leases: &'static [&'static str]) -> Vec<Rule> {
    if leases.is_empty() {
        return Vec::new();
    }
    vec![
        Rule::new(LEASES, &["leases"], &["create"]),
        Rule::new(LEASES, &["leases"], &["get", "patch"]).named(leases),
    ]
}

/// Where a role that works in named namespaces looks for controllers that work in all of them, or the other way round.
fn survey_rule(role: &'static Role) -> Option<Rule> {
    let lease = role.lease.as_slice();
    let rule = Rule::new(LEASES, &["leases"], &["list"]).named(lease);
    (role.works == Works::InNamed).then(|| rule.cluster_wide())
}

/// What a role does beside its leases, in each of its namespaces: `own` are the grants in the controller's.
fn in_all(own: Vec<Grant>, others: &Others) -> Vec<Grant> {
    let mut grants = Vec::new();
    for grant in own {
        let is_of_own = Place::of(&grant) == Place::Own;
        match others {
            Others::All if is_of_own => grants.push(Grant {
                rule: grant.rule.cluster_wide(),
                ..grant
            }),
            Others::These(_) if is_of_own => {
                grants.extend(others.names().map(|namespace| Grant {
                    elsewhere: Some(namespace.to_owned()),
                    ..grant.clone()
                }));
                grants.push(grant);
            }
            Others::All | Others::These(_) => grants.push(grant),
        }
    }
    grants
}

/// Whether a role needs in all namespaces what it needs in its own without `--all-namespaces`.
pub(super) fn is_widened(role: &Role, webhook: &WebhookSettings, grant: &Grant) -> bool {
    let mut own = (role.grants)(webhook).into_iter();
    grant.rule.reach == Reach::Cluster
        && own.any(|it| it.rule.reach == Reach::Namespace && it.rule.cluster_wide() == grant.rule)
}

/// What a role needs to hold its leases: in each namespace that is named, or in the controller's own for all.
fn of_leases(role: &'static Role, others: &Others) -> Vec<Grant> {
    let rules = lease_rules(role.lease.as_slice()).into_iter();
    let own = rules.map(Rule::granted).collect();
    match others {
        Others::All => own,
        Others::These(_) => in_all(own, others),
    }
}

/// What a role needs, or it does not start.
pub(super) fn needed(
    role: &'static Role,
    webhook: &WebhookSettings,
    others: &Others,
    has_leases: bool,
) -> Vec<Grant> {
    let others = others.of(role);
    let mut grants = in_all((role.grants)(webhook), &others);
    if has_leases {
        grants.extend(of_leases(role, &others));
        // Where the role works in named namespaces, it does without.
        let survey = survey_rule(role).filter(|_| others == Others::All);
        grants.extend(survey.map(Rule::granted));
    }
    grants
}

/// A ServiceAccount, what the roles find and only change, and the roles that let it do what `roles` do.
pub(crate) fn objects(roles: &[&'static Role], installation: &Installation) -> Vec<Value> {
    let namespace = installation.namespace.as_str();
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": namespace},
    })];
    for &role in roles {
        let others = installation.others.of(role);
        let mut grants = (role.grants)(&installation.webhook);
        if !installation.reads_secrets {
            grants.retain(|grant| grant.elsewhere.is_none());
        }
        objects.extend(grants.iter().flat_map(|grant| prepared(grant, namespace)));
        let mut grants = in_all(grants, &others);
        grants.extend(of_leases(role, &others));
        grants.extend(survey_rule(role).map(Rule::granted));
        let places: BTreeSet<Place<'_>> = grants.iter().map(Place::of).collect();
        for place in places {
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

/// The scope of a group of grants, in the order of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place<'a> {
    /// In the namespace of the controller.
    Own,
    /// In the whole cluster.
    Cluster,
    /// In another namespace, which the configuration or the command line names.
    Elsewhere(&'a str),
}

impl<'a> Place<'a> {
    fn of(grant: &'a Grant) -> Self {
        match (grant.rule.reach, &grant.elsewhere) {
            (Reach::Cluster, _) => Self::Cluster,
            (Reach::Namespace, None) => Self::Own,
            (Reach::Namespace, Some(namespace)) => Self::Elsewhere(namespace),
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
fn role_and_binding(role: &str, place: Place<'_>, namespace: &str, grants: &[Grant]) -> [Value; 2] {
    let here = grants.iter().filter(|grant| Place::of(grant) == place);
    let kind = match place {
        Place::Own | Place::Elsewhere(_) => "Role",
        Place::Cluster => "ClusterRole",
    };
    // Outside of its namespace a controller shares names with those of other namespaces.
    let metadata = match place {
        Place::Own => json!({"name": format!("{NAME}-{role}"), "namespace": namespace}),
        Place::Cluster => json!({"name": format!("{NAME}-{role}:{namespace}")}),
        Place::Elsewhere(other) => json!({
            "name": format!("{NAME}-{role}:{namespace}"),
            "namespace": other,
        }),
    };
    let api_version = format!("{RBAC}/v1");
    let name = metadata["name"].clone();
    [
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules(here)}),
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
    use super::*;
    use crate::{
        controller::roles::{ROLES, defaults},
        reference::is_in_the_repository,
        service::flink,
    };

    fn installation(reads_secrets: bool) -> Installation {
        Installation {
            namespace: "longshore".to_owned(),
            others: Others::NONE,
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
        let resource = podops[0].definitions[0];
        let roles = yaml(&objects(&podops, &installation(false)));
        let made = format!("{PODOPS_HEAD}{resource}---\n{roles}---\n{PODOPS_SERVICE}");
        is_in_the_repository("deploy/podops.yaml", &made);
    }

    #[test]
    fn the_manifest_of_flink_is_what_the_code_declares_with_the_account_of_job_managers() {
        let flink: Vec<_> = ROLES.iter().filter(|role| role.name == "flink").collect();
        let mut objects = objects(&flink, &installation(false));
        objects.extend(flink::account("default").map(|(_, object)| object));
        let made = format!("{FLINK_HEAD}{}", yaml(&objects));
        is_in_the_repository("deploy/flink.yaml", &made);
    }

    const FLINK_HEAD: &str = "\
# What `longshore controller --enable flink` needs in a cluster, for the namespace `longshore`, and the account of JobManagers
# in the namespace `default`; made by `longshore controller rbac --enable flink` and `longshore flink account` from what the
# code declares. Do not edit. The resources: `longshore controller crd --enable flink`.
";

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

    /// Each rule with its place, `-` for the cluster.
    fn granted(objects: &[Value]) -> BTreeSet<String> {
        let roles = objects.iter().filter(|it| it["rules"].is_array());
        let lines = roles.flat_map(|role| {
            let place = role["metadata"]["namespace"].as_str().unwrap_or("-");
            let rules = role["rules"].as_array().unwrap().iter();
            rules.map(move |rule| format!("{place} {rule}"))
        });
        lines.collect()
    }

    #[test]
    fn the_start_asks_for_what_the_manifest_grants_in_each_namespace() {
        let several = ["longshore", "a", "b"].map(str::to_owned);
        for others in [Others::NONE, Others::named(&several, false), Others::All] {
            for role in ROLES {
                let installation = Installation {
                    others: others.clone(),
                    ..installation(true)
                };
                let granted = granted(&objects(&[role], &installation));
                let needed = needed(role, &installation.webhook, &others, true);
                let own = installation.namespace.as_str();
                let needed = needed.iter().map(|grant| {
                    let place = match Place::of(grant) {
                        Place::Own => own,
                        Place::Cluster => "-",
                        Place::Elsewhere(namespace) => namespace,
                    };
                    format!("{place} {}", rules([grant].into_iter())[0])
                });
                let needed: BTreeSet<String> = needed.collect();
                let missing: Vec<_> = needed.difference(&granted).collect();
                assert!(missing.is_empty(), "{} {others:?}: {missing:?}", role.name);
                // What a controller of named namespaces can do without.
                let more = granted.difference(&needed);
                let more: Vec<_> = more.filter(|it| !it.contains("leases")).collect();
                assert!(more.is_empty(), "{} {others:?}: {more:?}", role.name);
            }
        }
    }

    #[test]
    fn rights_for_all_namespaces_are_told_from_those_on_the_cluster() {
        let tasks = ROLES.iter().find(|role| role.name == "tasks").unwrap();
        let webhook = WebhookSettings::default();
        let words = |others: &Others| {
            let needed = needed(tasks, &webhook, others, true);
            let widened = needed.iter().filter(|it| is_widened(tasks, &webhook, it));
            let resources = widened.flat_map(|grant| grant.rule.resources);
            resources.copied().collect::<BTreeSet<_>>()
        };
        assert!(words(&Others::NONE).is_empty());
        let all = words(&Others::All);
        assert!(
            all.contains("pods") && all.contains("taskactions"),
            "{all:?}"
        );
        for others in ["customresourcedefinitions", "leases"] {
            assert!(!all.contains(others), "{all:?}");
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
