//! The Services of a cluster (spec 13.1; upstream: `InternalServiceDecorator`, `ExternalServiceDecorator`).

use serde_json::{Value, json};

use super::{Cluster, FlinkConfig, ResourceError, client, options};
use crate::conf::{FromConf, InvalidOption, InvalidValue};

/// How the REST Service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposedType {
    /// From within the cluster.
    ClusterIp,
    /// From within the cluster, without an address of its own.
    HeadlessClusterIp,
    /// On a port of every node.
    NodePort,
    /// Through a load balancer.
    LoadBalancer,
}

impl FromConf for ExposedType {
    fn from_conf(text: &str) -> Result<Self, InvalidValue> {
        match text.to_ascii_lowercase().as_str() {
            "clusterip" => Ok(Self::ClusterIp),
            "headless_clusterip" => Ok(Self::HeadlessClusterIp),
            "nodeport" => Ok(Self::NodePort),
            "loadbalancer" => Ok(Self::LoadBalancer),
            _ => Err(InvalidValue::new(
                "`ClusterIP`, `Headless_ClusterIP`, `NodePort` or `LoadBalancer`",
                text,
            )),
        }
    }
}

impl ExposedType {
    fn service_type(self) -> &'static str {
        match self {
            Self::ClusterIp | Self::HeadlessClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// The Service of the REST API.
pub(super) fn rest(cluster: &Cluster<'_>, config: &FlinkConfig) -> Result<Value, ResourceError> {
    let exposed = config.get(&options::REST_EXPOSED_TYPE)?;
    let exposed = ExposedType::from_conf(&exposed).map_err(|why| InvalidOption {
        key: options::REST_EXPOSED_TYPE.key.name.to_owned(),
        why,
    })?;
    let mut spec = json!({
        "type": exposed.service_type(),
        "selector": cluster.job_manager_selector(),
        "ports": [{
            "name": "rest",
            "port": config.get(&options::REST_PORT)?,
            "targetPort": client::port(config, &options::REST_BIND_PORT)?,
        }],
    });
    if exposed == ExposedType::HeadlessClusterIp {
        spec["clusterIP"] = json!("None");
    }
    let annotations = config.map(&options::REST_SERVICE_ANNOTATIONS)?;
    let name = format!("{}-rest", cluster.id);
    Ok(service(cluster, &name, json!(annotations), spec))
}

/// The Service by which TaskManagers find the JobManager where there is no high availability.
pub(super) fn internal(
    cluster: &Cluster<'_>,
    config: &FlinkConfig,
) -> Result<Value, ResourceError> {
    let port = |name: &str, port: i32| json!({"name": name, "port": port, "targetPort": port});
    let spec = json!({
        "clusterIP": "None",
        "selector": cluster.job_manager_selector(),
        "ports": [
            port("jobmanager-rpc", config.get(&options::JOB_MANAGER_PORT)?),
            port("blobserver", client::port(config, &options::BLOB_PORT)?),
        ],
    });
    let annotations = config.map(&options::INTERNAL_SERVICE_ANNOTATIONS)?;
    Ok(service(cluster, cluster.id, json!(annotations), spec))
}

fn service(cluster: &Cluster<'_>, name: &str, annotations: Value, spec: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": cluster.common_labels(),
            "annotations": annotations,
        },
        "spec": spec,
    })
}
