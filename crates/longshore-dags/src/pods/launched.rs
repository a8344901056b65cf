//! A pod as the scheduler reads it.

use std::collections::BTreeMap;

use k8s_openapi::{
    Metadata, NamespaceResourceScope, Resource,
    api::core::v1::{Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{Deserialize, Deserializer};

/// The parts of a watched pod that are read and held: its identity and its status.
///
/// Most of a pod is the rest of its spec, which Longshore wrote itself, and `managedFields`, which a real API server adds. Reading
/// skips both.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct LaunchedPod {
    #[serde(default, deserialize_with = "metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: LaunchedSpec,
    #[serde(default)]
    pub(super) status: PodStatus,
}

/// The only field of the spec that changes after the creation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LaunchedSpec {
    pub(super) active_deadline_seconds: Option<i64>,
}

/// The metadata without the fields that no part of the scheduler reads.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Read {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        annotations: Option<BTreeMap<String, String>>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
    }

    let read = Read::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        annotations: read.annotations,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        deletion_grace_period_seconds: read.deletion_grace_period_seconds,
        ..ObjectMeta::default()
    })
}

impl Resource for LaunchedPod {
    const API_VERSION: &'static str = Pod::API_VERSION;
    const GROUP: &'static str = Pod::GROUP;
    const KIND: &'static str = Pod::KIND;
    const VERSION: &'static str = Pod::VERSION;
    const URL_PATH_SEGMENT: &'static str = Pod::URL_PATH_SEGMENT;
    type Scope = NamespaceResourceScope;
}

impl Metadata for LaunchedPod {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::dags::ANNOTATION_LAUNCH;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_asks_for_is_passed_over_whatever_it_is() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "annotations": {ANNOTATION_LAUNCH: "1"},
                "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30,
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}], "new": {},
            },
            "spec": {"containers": "many", "activeDeadlineSeconds": 9},
            "status": {"phase": "Running", "new": [1]},
        });
        let pod: LaunchedPod = serde_json::from_value(pod).unwrap();
        let meta = pod.metadata();
        assert_eq!(
            (meta.name.as_deref(), meta.namespace.as_deref()),
            (Some("a"), Some("n"))
        );
        assert_eq!(
            (meta.uid.as_deref(), meta.resource_version.as_deref()),
            (Some("u"), Some("7"))
        );
        assert_eq!(meta.annotations.as_ref().map(|it| it.len()), Some(1));
        assert_eq!(meta.deletion_grace_period_seconds, Some(30));
        assert!(meta.deletion_timestamp.is_some());
        assert!(meta.managed_fields.is_none());
        assert_eq!(pod.spec.active_deadline_seconds, Some(9));
        assert_eq!(pod.status.phase.as_deref(), Some("Running"));
    }
}
