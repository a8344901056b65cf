//! The expected number of pods, by the workloads that own them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{apps::v1::ReplicaSet, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Error,
    core::{DynamicObject, GroupVersionKind, ObjectMeta},
    discovery::{self, ApiResource},
};

/// Why the pods of a budget cannot be counted.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScaleError {
    /// In upstream's words.
    #[error("found no controllers for pod {0:?}")]
    Unscaled(String),
    #[error("owner of a pod not read")]
    Api(#[from] Error),
}

/// The sum of the replicas of the distinct workloads that control the pods. Pods without a
/// controller do not count.
pub(super) async fn expected(
    client: &Client,
    namespace: &str,
    pods: &[Pod],
) -> Result<i32, ScaleError> {
    // By the uid of the direct owner: the uid of the workload and its number of replicas.
    let mut known: BTreeMap<String, (String, i32)> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller(&pod.metadata) else {
            continue;
        };
        if known.contains_key(&owner.uid) {
            continue;
        }
        let workload = match above(client, namespace, owner).await? {
            Some(deployment) => scale(client, namespace, &deployment).await?,
            None => scale(client, namespace, owner).await?,
        };
        let Some(workload) = workload else {
            let name = pod.metadata.name.clone();
            return Err(ScaleError::Unscaled(name.unwrap_or_default()));
        };
        known.insert(owner.uid.clone(), workload);
    }
    let workloads: BTreeMap<String, i32> = known.into_values().collect();
    Ok(workloads.values().fold(0, |sum, n| sum.saturating_add(*n)))
}

fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The Deployment that a ReplicaSet is of: it counts in its place.
async fn above(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<OwnerReference>, Error> {
    if owner.kind != "ReplicaSet" {
        return Ok(None);
    }
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
    let set = sets.get_metadata_opt(&owner.name).await?;
    let deployment = set.as_ref().and_then(|set| controller(&set.metadata));
    Ok(deployment.cloned().filter(|it| it.kind == "Deployment"))
}

/// The uid of a workload and its number of replicas; none when it is gone, or does not scale.
async fn scale(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<(String, i32)>, Error> {
    let (group, version) = owner
        .api_version
        .split_once('/')
        .unwrap_or(("", &owner.api_version));
    let kind = GroupVersionKind::gvk(group, version, &owner.kind);
    let resource = match group {
        "" | "apps" => ApiResource::from_gvk(&kind),
        _ => match discovery::pinned_kind(client, &kind).await {
            Ok((resource, _)) => resource,
            Err(Error::Discovery(_)) => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match api.get_scale(&owner.name).await {
        Ok(scale) if scale.metadata.uid.as_ref() == Some(&owner.uid) => {
            let n_replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
            Ok(Some((owner.uid.clone(), n_replicas)))
        }
        Ok(_) => Ok(None),
        Err(Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(None),
        Err(error) => Err(error),
    }
}
