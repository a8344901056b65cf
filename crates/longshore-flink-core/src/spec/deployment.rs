//! The specs of FlinkDeployments and FlinkBlueGreenDeployments.

use std::collections::BTreeMap;

use longshore_k8s::Quantity;
use serde::{Deserialize, Deserializer, Serialize};

use super::{FlinkConfiguration, FlinkVersion, JobSpec, Spec};
use crate::json::{Json, Object};

/// An application cluster, or a session cluster where there is no job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkDeploymentSpec {
    /// The job of an application cluster. Absent: a session cluster. One cannot become the other.
    pub job: Option<JobSpec>,
    /// Another value than before restarts job and cluster.
    pub restart_nonce: Option<i64>,
    /// Configuration of Flink, and of this operator for this resource.
    pub flink_configuration: Option<FlinkConfiguration>,
    /// Image of JobManager and TaskManagers.
    pub image: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: Option<String>,
    /// Service account of the JobManager. Required, although the schema does not say so.
    pub service_account: Option<String>,
    /// Version of Flink in the image. Required, although the schema does not say so.
    pub flink_version: Option<FlinkVersion>,
    /// Ingress of the REST API.
    pub ingress: Option<IngressSpec>,
    /// Pod template under those of JobManager and TaskManagers.
    pub pod_template: Option<Json>,
    /// The JobManager.
    pub job_manager: Option<JobManagerSpec>,
    /// The TaskManagers.
    pub task_manager: Option<TaskManagerSpec>,
    /// Contents of files by their names.
    pub log_configuration: Option<BTreeMap<String, String>>,
    /// Who creates the TaskManagers. It cannot be changed.
    pub mode: Option<DeploymentMode>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for FlinkDeploymentSpec {
    fn default() -> Self {
        Self {
            job: None,
            restart_nonce: None,
            // Absent is empty, `null` is none: upstream writes the one as `{}`, the other as `null`.
            flink_configuration: Some(FlinkConfiguration::default()),
            image: None,
            image_pull_policy: None,
            service_account: None,
            flink_version: None,
            ingress: None,
            pod_template: None,
            job_manager: None,
            task_manager: None,
            log_configuration: None,
            mode: None,
            other: Object::default(),
        }
    }
}

impl FlinkDeploymentSpec {
    /// Who creates the TaskManagers. Default: Flink.
    pub fn deployment_mode(&self) -> DeploymentMode {
        self.mode.unwrap_or_default()
    }
}

impl Spec for FlinkDeploymentSpec {
    const CLASS: &'static str = "FlinkDeploymentSpec";

    fn job(&self) -> Option<&JobSpec> {
        self.job.as_ref()
    }

    fn job_mut(&mut self) -> Option<&mut JobSpec> {
        self.job.as_mut()
    }

    fn configuration(&self) -> Option<&FlinkConfiguration> {
        self.flink_configuration.as_ref()
    }
}

/// Who creates the TaskManagers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeploymentMode {
    /// Flink requests pods from Kubernetes.
    #[default]
    Native,
    /// The operator creates a Deployment of TaskManagers.
    Standalone,
}

/// An Ingress of the REST API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressSpec {
    /// Host and path; `{{name}}` and `{{namespace}}` are those of the cluster.
    pub template: Option<String>,
    /// Class of the Ingress.
    pub class_name: Option<String>,
    /// Annotations of the Ingress.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels of the Ingress.
    pub labels: Option<BTreeMap<String, String>>,
    /// Certificates of the Ingress.
    pub tls: Option<Json>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// The JobManager of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobManagerSpec {
    /// CPU and memory in upstream's own form. Deprecated there.
    pub resource: Option<ResourceSpec>,
    /// CPU and memory in Kubernetes' form. Wins over `resource` where it requests or limits anything.
    pub resources: Option<ResourceRequirements>,
    /// Default 1; more need high availability.
    pub replicas: i32,
    /// Pod template above that of the spec.
    pub pod_template: Option<Json>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for JobManagerSpec {
    fn default() -> Self {
        Self {
            resource: None,
            resources: None,
            replicas: 1,
            pod_template: None,
            other: Object::default(),
        }
    }
}

/// The TaskManagers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskManagerSpec {
    /// CPU and memory in upstream's own form. Deprecated there.
    pub resource: Option<ResourceSpec>,
    /// CPU and memory in Kubernetes' form. Wins over `resource` where it requests or limits anything.
    pub resources: Option<ResourceRequirements>,
    /// How many TaskManagers. Then the parallelism follows from it.
    pub replicas: Option<i32>,
    /// Pod template above that of the spec.
    pub pod_template: Option<Json>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// CPU and memory in upstream's own form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSpec {
    /// Cores.
    pub cpu: Option<f64>,
    /// A size of Flink, as `2048m` for 2,048 MiB, or a quantity of Kubernetes.
    pub memory: Option<String>,
    /// A quantity of Kubernetes.
    pub ephemeral_storage: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// CPU and memory in Kubernetes' form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    /// Claims of devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<Json>,
    /// What a pod may use at most, by the names of resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, QuantityText>>,
    /// What a pod gets, by the names of resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, QuantityText>>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

impl ResourceRequirements {
    /// Whether anything is requested or limited. `resources: {}` does not hide `resource`.
    pub fn has_any(&self) -> bool {
        let has = |map: &Option<BTreeMap<_, _>>| map.as_ref().is_some_and(|map| !map.is_empty());
        has(&self.requests) || has(&self.limits)
    }

    /// What is requested of a resource; its limit where nothing is, as Kubernetes itself defaults it.
    pub fn request_or_limit(&self, resource: &str) -> Option<&QuantityText> {
        let find = |map: &'_ Option<BTreeMap<String, QuantityText>>| {
            map.as_ref().is_some_and(|map| map.contains_key(resource))
        };
        let map = if find(&self.requests) {
            &self.requests
        } else {
            &self.limits
        };
        map.as_ref()?.get(resource)
    }
}

/// A quantity as it was written, also where it is none. Two are equal where they are the same amount.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct QuantityText(String);

impl QuantityText {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for QuantityText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl PartialEq for QuantityText {
    fn eq(&self, other: &Self) -> bool {
        match (Quantity::parse(&self.0), Quantity::parse(&other.0)) {
            (Some(one), Some(two)) => one == two,
            (Some(_) | None, Some(_) | None) => self.0 == other.0,
        }
    }
}

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `cpu: 1` is a number, and upstream writes it back as a text.
        match Json::deserialize(deserializer)? {
            Json::String(text) => Ok(Self(text)),
            number @ Json::Number(_) => Ok(Self(number.as_text())),
            found @ (Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_)) => {
                let found = found.to_compact();
                Err(serde::de::Error::custom(format!(
                    "expected a quantity, found {found}"
                )))
            }
        }
    }
}

/// Two FlinkDeployments that replace each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlinkBlueGreenDeploymentSpec {
    /// Options of the transition.
    pub configuration: Option<BTreeMap<String, String>>,
    /// Ingress of the active one.
    pub ingress: Option<IngressSpec>,
    /// Both of them.
    pub template: Option<BlueGreenTemplate>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}

/// What both FlinkDeployments of a FlinkBlueGreenDeployment are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlueGreenTemplate {
    /// Labels and annotations.
    pub metadata: Option<Json>,
    /// Their spec.
    pub spec: Option<FlinkDeploymentSpec>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub other: Object,
}
