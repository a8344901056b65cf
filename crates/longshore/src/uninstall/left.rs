//! The objects that stay in a cluster after a role was uninstalled, and why.

use jiff::Timestamp;
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_plugins::TASK_ACTION;
use longshore_podops::{leave, model::Pod, rule::RULE};
use longshore_tasks::WebhookSettings;
use serde::Serialize;
use serde_json::Value;

use super::{
    Mode, mark,
    objects::{self, Objects, name_of},
    steps::{BINDING, FLINK_KINDS, POLICY, named},
};
use crate::{
    controller::{
        namespaces::Others,
        rbac::{self, Installation},
        roles::Role,
    },
    error::UninstallError,
};

/// An object that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Left {
    pub(crate) object: String,
    pub(crate) why: String,
}

/// The objects that stay. An object that cannot be read is named as if it existed.
pub(super) async fn of(
    role: &'static Role,
    namespace: &str,
    settings: &WebhookSettings,
    objects: &Objects,
    mode: Mode,
) -> Result<Vec<Left>, UninstallError> {
    let mut left = Vec::new();
    if role.name == "podops" {
        left.extend(pods(objects).await?);
        left.extend(kept(objects, RULE, None).await?);
    }
    if role.name == "tasks" {
        left.extend(kept(objects, TASK_ACTION, Some(namespace)).await?);
    }
    if role.name == "flink" {
        for kind in FLINK_KINDS {
            left.extend(kept(objects, kind, Some(namespace)).await?);
        }
    }
    left.extend(applied(role, namespace, settings, objects).await);
    if mode == Mode::Real {
        left.push(Left {
            object: objects::name(&mark::target(namespace, role)),
            why: format!(
                "stops controllers that run still; {} lets the role run again",
                mark::undo(role.name, namespace)
            ),
        });
    }
    Ok(left)
}

/// Pods that finalizers of other controllers still hold, or that stay out of service.
async fn pods(objects: &Objects) -> Result<Vec<Left>, UninstallError> {
    let all = objects.list(Resource::POD, None, None).await?;
    let mut left = Vec::new();
    for object in &all {
        let Ok(pod) = Pod::of(object) else {
            continue;
        };
        let found = leave::of_pod(&pod, Timestamp::MIN);
        let name = format!("pod {}", name_of(object));
        for finalizer in found.protections {
            left.push(Left {
                object: name.clone(),
                why: format!(
                    "carries the finalizer {finalizer} of another controller: a deletion of the pod ends only after that controller removes it"
                ),
            });
        }
        if found.stays_offline {
            left.push(Left {
                object: name,
                why: "a user keeps it offline, by a label: its readiness gate stays closed"
                    .to_owned(),
            });
        }
    }
    Ok(left)
}

/// The number of custom resources that stay, and that no controller reconciles any more.
async fn kept(
    objects: &Objects,
    resource: Resource,
    namespace: Option<&str>,
) -> Result<Option<Left>, UninstallError> {
    let n = objects.list(resource, namespace, None).await?.len();
    Ok((n > 0).then(|| Left {
        object: format!("{n} {}", resource.plural),
        why: "kept; whoever deletes their definition would delete them too".to_owned(),
    }))
}

/// The objects that an administrator has applied.
async fn applied(
    role: &'static Role,
    namespace: &str,
    settings: &WebhookSettings,
    objects: &Objects,
) -> Vec<Left> {
    let installation = Installation {
        namespace: namespace.to_owned(),
        // Every object that a manifest may have in this namespace, or in the cluster.
        others: Others::All,
        webhook: settings.clone(),
        reads_secrets: true,
        has_policies: true,
        webhooks_on_loopback: false,
    };
    let mut targets: Vec<ObjectRef> = rbac::objects(&[role], &installation)
        .iter()
        .filter_map(target)
        .collect();
    if role.name == "podops" {
        const SERVICE: Resource = resource("", "Service", "services", Scope::Namespaced);
        targets.push(named(SERVICE, namespace, crate::service::podops::SERVICE));
    }
    let mut left = Vec::new();
    for target in targets {
        if matches!(objects.get(&target).await, Ok(None)) {
            continue;
        }
        left.push(Left {
            object: objects::name(&target),
            why: "applied by an administrator, who may delete it where no other role needs it"
                .to_owned(),
        });
    }
    left
}

pub(super) const fn resource(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    scope: Scope,
) -> Resource {
    Resource {
        group,
        version: "v1",
        kind,
        plural,
        scope,
    }
}

/// The address of an object of a manifest; `None` for kinds that are deleted otherwise.
pub(super) fn target(object: &Value) -> Option<ObjectRef> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let resource = match object["kind"].as_str()? {
        "ServiceAccount" => resource("", "ServiceAccount", "serviceaccounts", Scope::Namespaced),
        "Role" => resource(RBAC, "Role", "roles", Scope::Namespaced),
        "RoleBinding" => resource(RBAC, "RoleBinding", "rolebindings", Scope::Namespaced),
        "ClusterRole" => resource(RBAC, "ClusterRole", "clusterroles", Scope::Cluster),
        "ClusterRoleBinding" => resource(
            RBAC,
            "ClusterRoleBinding",
            "clusterrolebindings",
            Scope::Cluster,
        ),
        "ValidatingAdmissionPolicy" => POLICY,
        "ValidatingAdmissionPolicyBinding" => BINDING,
        _ => return None,
    };
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Some(named(resource, namespace, metadata["name"].as_str()?))
}
