//! The JobManager's Deployment (spec 13.1; upstream: `KubernetesJobManagerFactory`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Cluster, ClusterKind, FlinkConfig, InvalidOption, ResourceError, options, pod};
use crate::conf::{FromConf, InvalidValue};

pub(super) fn job_manager(
    cluster: &Cluster<'_>,
    kind: ClusterKind,
    config: &FlinkConfig,
    config_file: &str,
) -> Result<Value, ResourceError> {
    let template = pod::job_manager(cluster, kind, config, config_file)?;
    let owners: Vec<Value> = config
        .get(&options::JOB_MANAGER_OWNERS)?
        .iter()
        .map(owner)
        .collect::<Result<_, _>>()?;
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": cluster.id,
            "namespace": cluster.namespace,
            "labels": pod::labels(cluster, config)?,
            "annotations": config.map(&options::JOB_MANAGER_ANNOTATIONS)?,
            "ownerReferences": owners,
        },
        "spec": {
            "replicas": config.get(&options::JOB_MANAGER_REPLICAS)?,
            "selector": {"matchLabels": cluster.job_manager_selector()},
            "template": template,
        },
    }))
}

/// An owner, as `kubernetes.jobmanager.owner.reference` has it.
fn owner(fields: &BTreeMap<String, String>) -> Result<Value, InvalidOption> {
    let flag = |name: &str| {
        let text = fields.get(name).map_or("false", String::as_str);
        bool::from_conf(text).map_err(invalid)
    };
    let text = |name: &'static str| {
        let found = fields.get(name);
        found.ok_or_else(|| invalid(InvalidValue::new("apiVersion, kind, name and uid", name)))
    };
    Ok(json!({
        "apiVersion": text("apiVersion")?,
        "kind": text("kind")?,
        "name": text("name")?,
        "uid": text("uid")?,
        "controller": flag("controller")?,
        "blockOwnerDeletion": flag("blockOwnerDeletion")?,
    }))
}

fn invalid(why: InvalidValue) -> InvalidOption {
    InvalidOption {
        key: options::JOB_MANAGER_OWNERS.key.name.to_owned(),
        why,
    }
}
