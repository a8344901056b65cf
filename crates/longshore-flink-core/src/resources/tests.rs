//! Objects of clusters, compared with those of the Java operator.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;
use crate::{
    conf::{
        effective::{self, ClusterName, DeploymentOwner, Effective},
        format,
        layers::OperatorConfig,
    },
    spec::FlinkDeployment,
};

mod cluster;
mod golden;

pub(super) fn testdata(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(path);
    fs::read_to_string(path).unwrap()
}

pub(super) fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&testdata(path)).unwrap()
}

/// The spec of a FlinkDeployment in the manifests.
pub(super) fn deployments(path: &str) -> Vec<FlinkDeployment> {
    let objects = documents(path).into_iter();
    objects
        .filter(|object| object["kind"] == "FlinkDeployment")
        .map(|object| serde_json::from_value(object).unwrap())
        .collect()
}

pub(super) fn effective(defaults: FlinkConfig, deployment: &FlinkDeployment) -> Effective {
    let name = ClusterName {
        namespace: "default",
        id: deployment.metadata.get("name").unwrap().as_str().unwrap(),
    };
    effective::deployment(defaults, name, &deployment.spec, &LogFiles::default()).unwrap()
}

pub(super) fn cluster<'a>(id: &'a str, effective: &'a Effective) -> Cluster<'a> {
    Cluster {
        namespace: "default",
        id,
        version: effective.version,
        config: &effective.config,
        job_manager_template: effective.job_manager_template.as_ref(),
        task_manager_template: effective.task_manager_template.as_ref(),
        logs: &effective.logs,
    }
}
