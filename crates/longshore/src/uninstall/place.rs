//! Whether a role is installed in the namespace that the command line names.
//!
//! The webhooks of a role serve the whole cluster, so that a wrong namespace would take them away
//! from the controller that runs elsewhere. Three kinds of objects name the namespace of a
//! controller: a ClusterRoleBinding of its service account, the Service that the webhooks call, and
//! the Lease that a controller holds. Only administrators write the first two. Everyone with
//! Kubernetes' role `edit` in a namespace writes Leases there, so a Lease alone decides nothing: it
//! counts where another object names the same namespace.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_kit::lease::{LEASE, is_uninstalled};
use longshore_tasks::WebhookSettings;
use serde_json::Value;

use super::{
    left,
    objects::{self, Objects},
    steps::named,
};
use crate::{
    controller::{
        namespaces::Others,
        rbac::{self, Installation},
        roles::Role,
    },
    error::UninstallError,
};

const NAMESPACE: Resource = left::resource("", "Namespace", "namespaces", Scope::Cluster);
/// How much longer than it says a Lease counts as held: clocks differ.
const SLACK_SECONDS: i64 = 60;

/// The namespace that the command line names.
pub(super) struct Place<'a> {
    pub(super) role: &'static Role,
    pub(super) namespace: &'a str,
    pub(super) settings: &'a WebhookSettings,
    pub(super) objects: &'a Objects,
}

/// What names the namespace of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sign {
    namespace: String,
    /// The object, in words for the user.
    what: String,
}

/// All of them.
#[derive(Debug, Default)]
struct Signs {
    /// ClusterRoleBindings.
    bound: Vec<Sign>,
    /// The Services that the webhooks call. `--dns-name` may name one of another namespace than the controller's.
    services: Vec<Sign>,
    /// Leases that are held.
    held: Vec<Sign>,
}

/// Where a role is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// In the namespace that is named, or nothing says otherwise.
    Here,
    /// In another one, as this says.
    Elsewhere(Sign),
    /// Only this Lease speaks against the namespace that is named, and nothing that only administrators write settles it.
    Unsure(Sign),
}

impl Place<'_> {
    /// Fails where the role is installed elsewhere, and where the namespace does not exist.
    ///
    /// A namespace that was deleted is good while something of the role names it: then the role is still to be removed.
    pub(super) async fn check(
        &self,
        configurations: &[ObjectRef],
        now: Timestamp,
    ) -> Result<(), UninstallError> {
        let signs = self.signs(configurations, now).await?;
        let (role, namespace) = (self.role.name, self.namespace.to_owned());
        match found(self.namespace, &signs) {
            Found::Here => {}
            Found::Elsewhere(sign) => {
                return Err(UninstallError::Elsewhere {
                    role,
                    namespace,
                    found: sign.what,
                    installed: sign.namespace,
                });
            }
            Found::Unsure(sign) => {
                return Err(UninstallError::Unsure {
                    role,
                    namespace,
                    found: sign.what,
                    lease: self.role.mark,
                    of: sign.namespace,
                });
            }
        }
        if names(&signs.services, self.namespace)
            || names(&signs.bound, self.namespace)
            || self.exists().await?
        {
            return Ok(());
        }
        Err(UninstallError::NoNamespace { role, namespace })
    }

    /// None without webhooks: then each namespace may have an installation of its own.
    async fn signs(
        &self,
        configurations: &[ObjectRef],
        now: Timestamp,
    ) -> Result<Signs, UninstallError> {
        let mut signs = Signs::default();
        if configurations.is_empty() {
            return Ok(signs);
        }
        for target in configurations {
            if let Some(found) = self.objects.get(target).await? {
                signs
                    .services
                    .extend(called(&objects::name(target), &found));
            }
        }
        let leases = self.objects.everywhere(LEASE, self.role.mark).await?;
        let held = leases.iter().filter(|lease| is_held(lease, now));
        signs.held = held.map(holder).collect();
        let others = signs.services.iter().chain(&signs.held);
        let mut namespaces: BTreeSet<&str> = others.map(|sign| sign.namespace.as_str()).collect();
        namespaces.insert(self.namespace);
        let mut bound = Vec::new();
        for namespace in namespaces {
            bound.extend(self.binding(namespace).await?);
        }
        signs.bound = bound;
        Ok(signs)
    }

    /// Without the right to read it, the namespace counts as there.
    async fn exists(&self) -> Result<bool, UninstallError> {
        match self
            .objects
            .get(&named(NAMESPACE, "", self.namespace))
            .await
        {
            Ok(found) => Ok(found.is_some()),
            Err(UninstallError::Request(error)) if error.code() == Some(403) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// A ClusterRoleBinding of the role for the service account of a namespace, as far as the user may read it. It stays
    /// when the webhook configurations are gone, as after a run that was killed.
    async fn binding(&self, namespace: &str) -> Result<Option<Sign>, UninstallError> {
        let installation = Installation {
            namespace: namespace.to_owned(),
            others: Others::NONE,
            webhook: self.settings.clone(),
            reads_secrets: true,
            has_policies: true,
            webhooks_on_loopback: false,
        };
        for object in rbac::objects(&[self.role], &installation) {
            if object["kind"] != "ClusterRoleBinding" {
                continue;
            }
            let Some(target) = left::target(&object) else {
                continue;
            };
            match self.objects.get(&target).await {
                Ok(Some(_)) => {
                    let binding = objects::name(&target);
                    return Ok(Some(Sign {
                        namespace: namespace.to_owned(),
                        what: format!("there is a {binding} for its service account"),
                    }));
                }
                Ok(None) => {}
                Err(UninstallError::Request(error)) if error.code() == Some(403) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// The namespaces in which a role was uninstalled, as far as the user may list Leases.
pub(super) async fn marked(role: &Role, objects: &Objects) -> Result<Vec<String>, UninstallError> {
    let leases = objects.everywhere(LEASE, role.mark).await?;
    let marked = leases.iter().filter(|lease| is_uninstalled(lease));
    Ok(marked.map(namespace_of).collect())
}

/// The Services that the webhooks of a configuration call.
fn called(configuration: &str, object: &Value) -> Vec<Sign> {
    let webhooks = object["webhooks"].as_array().into_iter().flatten();
    let services = webhooks.map(|webhook| &webhook["clientConfig"]["service"]);
    let signs = services.filter_map(|service| {
        let (namespace, name) = (service["namespace"].as_str()?, service["name"].as_str()?);
        Some(Sign {
            namespace: namespace.to_owned(),
            what: format!("{configuration} calls the Service {namespace}/{name}"),
        })
    });
    signs.collect()
}

/// Where the role is installed.
///
/// A namespace that two kinds of objects name is one, and what else there is counts for nothing: an earlier
/// ClusterRoleBinding, a Service behind `--dns-name`, the Lease of somebody. Without such a namespace the
/// ClusterRoleBindings say it, and without them the Services, where no Lease contradicts them.
fn found(namespace: &str, signs: &Signs) -> Found {
    let Signs {
        bound,
        services,
        held,
    } = signs;
    let in_both = |one: &[Sign], other: &[Sign]| -> Vec<Sign> {
        let both = one.iter().filter(|sign| names(other, &sign.namespace));
        both.cloned().collect()
    };
    let mut trusted = in_both(bound, services);
    trusted.extend(in_both(bound, held));
    trusted.extend(in_both(services, held));
    let is_agreed = !trusted.is_empty();
    if !is_agreed {
        trusted.clone_from(if bound.is_empty() { services } else { bound });
    }
    if let Some(sign) = trusted.first()
        && !names(&trusted, namespace)
    {
        return Found::Elsewhere(sign.clone());
    }
    let is_certain = is_agreed || !bound.is_empty() || names(held, namespace);
    match held.first() {
        Some(lease) if !is_certain => Found::Unsure(lease.clone()),
        Some(_) | None => Found::Here,
    }
}

fn names(signs: &[Sign], namespace: &str) -> bool {
    signs.iter().any(|sign| sign.namespace == namespace)
}

/// The controller that holds a Lease.
fn holder(lease: &Value) -> Sign {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = namespace_of(lease);
    let name = text(&lease["metadata"]["name"]);
    let holder = text(&lease["spec"]["holderIdentity"]);
    Sign {
        what: format!("{holder} holds the Lease {namespace}/{name}"),
        namespace,
    }
}

/// Whether a controller holds a Lease: the mark of an uninstalled role is no controller.
fn is_held(lease: &Value, now: Timestamp) -> bool {
    let spec = &lease["spec"];
    let has_holder = spec["holderIdentity"]
        .as_str()
        .is_some_and(|holder| !holder.is_empty());
    if !has_holder || is_uninstalled(lease) {
        return false;
    }
    let renewed = spec["renewTime"].as_str();
    let renewed = renewed.and_then(|text| text.parse::<Timestamp>().ok());
    let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let limit = SignedDuration::from_secs(seconds.saturating_add(SLACK_SECONDS));
    renewed.is_none_or(|at| now.duration_since(at) <= limit)
}

fn namespace_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str();
    namespace.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use longshore_api::uninstall::HOLDER_UNINSTALLED;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-11-23T06:00:00Z";

    fn lease(namespace: &str, holder: &str, renewed: &str) -> Value {
        json!({
            "metadata": {"name": "longshore-podops", "namespace": namespace},
            "spec": {
                "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15,
            },
        })
    }

    /// What these namespaces say about `longshore`: those of the bindings, of the Services, and of the Leases that are held.
    fn said(bound: &[&str], services: &[&str], held: &[&str]) -> String {
        let signs = |namespaces: &[&str]| -> Vec<Sign> {
            let namespaces = namespaces.iter();
            let sign = |namespace: &&str| Sign {
                namespace: (*namespace).to_owned(),
                what: String::new(),
            };
            namespaces.map(sign).collect()
        };
        let signs = Signs {
            bound: signs(bound),
            services: signs(services),
            held: signs(held),
        };
        match found("longshore", &signs) {
            Found::Here => "here".to_owned(),
            Found::Elsewhere(sign) => sign.namespace,
            Found::Unsure(sign) => format!("{}?", sign.namespace),
        }
    }

    const NONE: &[&str] = &[];

    #[test]
    fn bindings_and_services_say_where_a_role_is_and_a_lease_only_beside_one_of_them() {
        let (here, other) = (&["longshore"][..], &["other"][..]);
        let both = &["other", "longshore"][..];
        for (what, bound, services, held, expected) in [
            ("nothing", NONE, NONE, NONE, "here"),
            ("all of them", here, here, here, "here"),
            ("a tenant's lease alone", here, here, other, "here"),
            ("the same, without webhooks", here, NONE, other, "here"),
            ("a tenant's lease as well", here, here, both, "here"),
            ("the tenant's namespace", other, other, here, "other"),
            ("the same, and a controller", other, other, both, "other"),
            ("the same, and no binding", NONE, other, here, "other"),
            ("another service", NONE, other, NONE, "other"),
            ("another binding", other, NONE, NONE, "other"),
            ("a service of --dns-name", here, other, here, "here"),
            ("the same, and no controller", here, other, NONE, "here"),
            ("the namespace of that service", other, here, other, "other"),
            ("an earlier binding", both, here, NONE, "here"),
            ("the namespace of that one", both, other, NONE, "other"),
            ("no binding", NONE, here, here, "here"),
            ("a later installation", here, other, other, "other"),
            ("a lease against a service", NONE, here, other, "other?"),
            ("a lease alone", NONE, NONE, other, "other?"),
            ("its own lease alone", NONE, NONE, both, "here"),
        ] {
            assert_eq!(said(bound, services, held), expected, "{what}");
        }
    }

    #[test]
    fn the_service_of_the_webhooks_names_a_namespace() {
        let object = json!({"webhooks": [{"clientConfig": {
            "service": {"namespace": "longshore", "name": "longshore-podops"},
        }}]});
        let signs = called("the configuration", &object);
        assert!(signs.len() == 1 && names(&signs, "longshore"), "{signs:?}");
        // Webhooks with URLs, and an empty configuration.
        let urls = json!({"webhooks": [{"clientConfig": {"url": "https://127.0.0.1:1/"}}]});
        assert!(called("c", &urls).is_empty());
        assert!(called("c", &json!({})).is_empty());
    }

    #[test]
    fn a_lease_that_nobody_holds_names_no_installation() {
        let now: Timestamp = NOW.parse().unwrap();
        assert!(is_held(&lease("longshore", "host_1", NOW), now));
        for lease in [
            lease("longshore", "", NOW),
            lease("longshore", "host_1", "2026-11-23T05:00:00.000000Z"),
            lease("longshore", HOLDER_UNINSTALLED, NOW),
        ] {
            assert!(!is_held(&lease, now), "{lease}");
        }
    }
}
