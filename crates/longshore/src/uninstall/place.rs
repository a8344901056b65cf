//! Whether a role is installed in the namespace that the command line names.
//!
//! The webhooks of a role serve the whole cluster, so that a wrong namespace would take them away
//! from the controller that runs elsewhere. The namespace is known from the Lease that a controller
//! holds; without a held Lease, from the Service that the webhooks call.

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

impl Place<'_> {
    /// Fails where the role is installed elsewhere, and where the namespace does not exist.
    ///
    /// A namespace that was deleted is good while something of the role names it: then the role is still to be removed.
    pub(super) async fn check(
        &self,
        configurations: &[ObjectRef],
        now: Timestamp,
    ) -> Result<(), UninstallError> {
        let mut services = Vec::new();
        for target in configurations {
            if let Some(found) = self.objects.get(target).await? {
                services.extend(called(&objects::name(target), &found));
            }
        }
        // Without webhooks, each namespace may have an installation of its own.
        let mut leases = Vec::new();
        if !configurations.is_empty() {
            leases = self.objects.everywhere(LEASE, self.role.mark).await?;
        }
        if let Some(sign) = elsewhere(self.namespace, &services, &leases, now) {
            return Err(UninstallError::Elsewhere {
                role: self.role.name,
                namespace: self.namespace.to_owned(),
                found: sign.what,
                installed: sign.namespace,
            });
        }
        let is_named = services.iter().any(|it| it.namespace == self.namespace);
        if is_named || self.exists().await? || self.is_bound(configurations).await? {
            return Ok(());
        }
        Err(UninstallError::NoNamespace {
            role: self.role.name,
            namespace: self.namespace.to_owned(),
        })
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

    /// Whether a ClusterRoleBinding is for the service account of this namespace. It stays when the webhook
    /// configurations are gone, as after a run that was killed.
    async fn is_bound(&self, configurations: &[ObjectRef]) -> Result<bool, UninstallError> {
        if configurations.is_empty() {
            return Ok(false);
        }
        let installation = Installation {
            namespace: self.namespace.to_owned(),
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
                Ok(Some(_)) => return Ok(true),
                Ok(None) => {}
                Err(UninstallError::Request(error)) if error.code() == Some(403) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
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

/// What says that the installation is in another namespace; `None` where something says that it is in this one, or
/// nothing says anything.
///
/// The Lease counts before the Service: `--dns-name` may name a Service of any namespace, and the mark has to be where
/// the controller looks for it.
fn elsewhere(namespace: &str, services: &[Sign], leases: &[Value], now: Timestamp) -> Option<Sign> {
    let held = leases.iter().filter(|lease| is_held(lease, now));
    let signs: Vec<Sign> = match held.map(holder).collect::<Vec<_>>() {
        held if held.is_empty() => services.to_vec(),
        held => held,
    };
    if signs.iter().any(|sign| sign.namespace == namespace) {
        return None;
    }
    signs.into_iter().next()
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

    fn found(services: &[&str], leases: &[Value]) -> Option<String> {
        let object = json!({"webhooks": services.iter().map(|namespace| json!({
            "clientConfig": {"service": {"namespace": namespace, "name": "longshore-podops"}},
        })).collect::<Vec<_>>()});
        let services = called("the configuration", &object);
        let sign = elsewhere("default", &services, leases, NOW.parse().unwrap());
        sign.map(|sign| sign.namespace)
    }

    #[test]
    fn the_service_of_the_webhooks_names_the_namespace_of_the_installation() {
        assert_eq!(found(&["longshore"], &[]).as_deref(), Some("longshore"));
        assert_eq!(found(&["default"], &[]), None);
        assert_eq!(found(&[], &[]), None);
        // Webhooks with URLs, and an empty configuration.
        let urls = json!({"webhooks": [{"clientConfig": {"url": "https://127.0.0.1:1/"}}]});
        assert!(called("c", &urls).is_empty());
        assert!(called("c", &json!({})).is_empty());
    }

    #[test]
    fn a_controller_that_holds_its_lease_names_the_namespace_of_the_installation() {
        let there = lease("longshore", "host_1", NOW);
        let here = lease("default", "host_2", NOW);
        assert_eq!(
            found(&[], std::slice::from_ref(&there)).as_deref(),
            Some("longshore")
        );
        assert_eq!(found(&[], &[there.clone(), here.clone()]), None);
        assert_eq!(found(&["longshore"], std::slice::from_ref(&here)), None);
        // The Service may be in another namespace than the controller.
        assert_eq!(
            found(&["default"], std::slice::from_ref(&there)).as_deref(),
            Some("longshore")
        );
        // The mark of this namespace says nothing about the controller of the other one.
        let mark = lease("default", HOLDER_UNINSTALLED, NOW);
        assert_eq!(
            found(&[], &[mark, there.clone()]).as_deref(),
            Some("longshore")
        );
    }

    #[test]
    fn a_lease_that_nobody_holds_names_no_installation() {
        for lease in [
            lease("longshore", "", NOW),
            lease("longshore", "host_1", "2026-11-23T05:00:00.000000Z"),
            lease("longshore", HOLDER_UNINSTALLED, NOW),
        ] {
            assert_eq!(found(&[], std::slice::from_ref(&lease)), None, "{lease}");
        }
    }
}
