//! The Kubernetes objects of a native cluster, as Flink's own client makes them (spec 12.3, 13, 15; upstream:
//! `KubernetesClusterDescriptor` and the decorators of `flink-kubernetes`).
//!
//! [`native`] makes the JobManager's Deployment and what goes with it out of the effective configuration and the pod
//! templates. Everything is JSON, so that fields of a template that nobody here knows survive. The JobManager makes the
//! TaskManagers itself.

use longshore_api::flink::{
    COMPONENT_JOB_MANAGER, LABEL_APP, LABEL_COMPONENT, LABEL_TYPE, TYPE_NATIVE,
};
use serde_json::{Map, Value, json};

use crate::{
    conf::{FlinkConfig, InvalidOption, format::FormatError, operator, options},
    memory::MemoryError,
    spec::FlinkVersion,
};

mod client;
mod config_maps;
mod deployment;
pub mod ingress;
mod pod;
mod services;
pub mod template;

pub use client::{ClusterKind, submitted};
pub use config_maps::LogFiles;
pub use services::ExposedType;

/// Name of the container that Flink runs in.
pub const MAIN_CONTAINER: &str = "flink-main-container";
/// What a native cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Namespace of the cluster.
    pub namespace: &'a str,
    /// Name of the cluster: that of its FlinkDeployment.
    pub id: &'a str,
    /// Version of Flink in the image.
    pub version: FlinkVersion,
    /// The effective configuration.
    pub config: &'a FlinkConfig,
    /// The merged pod template of the JobManager.
    pub job_manager_template: Option<&'a Value>,
    /// The merged pod template of the TaskManagers.
    pub task_manager_template: Option<&'a Value>,
    /// Configuration of logging.
    pub logs: &'a LogFiles,
}

/// The objects of a native cluster, in the order in which they are created.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    /// The JobManager's Deployment, which is created first.
    pub deployment: Value,
    /// What the user should know about them.
    pub notes: Vec<Note>,
    accompanying: Vec<Value>,
}

/// Something in a configuration that has no effect, or another one than it seems to have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// Flink 1.x reads a value up to a `#` or a line break.
    #[error(
        "Flink reads the value of `{key}` only up to its first `#` or line break; remove it, or use Flink 2.0 or later"
    )]
    Cut {
        /// The key.
        key: String,
    },
    /// Upstream reads these files from its own disk.
    #[error(
        "`{key}` names a file on the operator's disk and is not read; use `podTemplate` in the spec"
    )]
    LocalFile {
        /// The key.
        key: String,
    },
}

/// Why there can be no such cluster.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResourceError {
    /// A value that its option cannot have.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// The JobManager's memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The configuration file.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A limit below its request.
    #[error("{key} should be greater or equal to 1, found {factor}")]
    LimitFactor {
        /// Key of the factor.
        key: &'static str,
        /// Its value.
        factor: f64,
    },
    /// The configuration describes no native cluster.
    #[error(
        "expected `execution.target` to be kubernetes-application or kubernetes-session, found `{found}`"
    )]
    NotNative {
        /// What it is.
        found: String,
    },
    /// Another number of jars than this version of Flink starts an application with.
    #[error(
        "expected {expected} in `pipeline.jars` of an application of Flink {version}, found {found}; set `job.jarURI`"
    )]
    Jars {
        /// How many there may be.
        expected: &'static str,
        /// How many there are.
        found: usize,
        /// Version of Flink.
        version: FlinkVersion,
    },
    /// What this operator does not do.
    #[error("`{key}` is set, but {what} is not supported; remove the key")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// What it would need.
        what: &'static str,
    },
    /// A pod template that is not an object, or has a field of another type than Kubernetes' own.
    #[error(
        "expected {field} of the pod template to be {expected}, found {found}; correct the template"
    )]
    Template {
        /// Path of the field.
        field: &'static str,
        /// Its type.
        expected: &'static str,
        /// What is there.
        found: String,
    },
}

/// The objects of a native cluster.
///
/// # Errors
/// [`ResourceError`] where the configuration or a template describes no cluster that could start.
pub fn native(cluster: &Cluster<'_>) -> Result<Resources, ResourceError> {
    let (kind, config) = client::client_config(cluster)?;
    let file = config_maps::config_file(cluster, &config)?;
    let mut notes: Vec<Note> = file
        .cut
        .iter()
        .map(|key| Note::Cut { key: key.clone() })
        .collect();
    let local = config
        .below("kubernetes.pod-template-file.")
        .map(|(rest, _)| Note::LocalFile {
            key: format!("kubernetes.pod-template-file.{rest}"),
        });
    notes.extend(local);

    let mut accompanying = Vec::new();
    if !options::is_highly_available(&config)? {
        accompanying.push(services::internal(cluster, &config)?);
    }
    accompanying.push(services::rest(cluster, &config)?);
    accompanying.push(config_maps::flink_config(cluster, &file));
    accompanying.extend(config_maps::pod_template(cluster));
    Ok(Resources {
        deployment: deployment::job_manager(cluster, kind, &config, file.name)?,
        notes,
        accompanying,
    })
}

impl Resources {
    /// What accompanies the Deployment, owned by it, in the order in which it is created.
    #[must_use]
    pub fn accompanying(&self, deployment_uid: &str) -> Vec<Value> {
        let name = &self.deployment["metadata"]["name"];
        let owner = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": name,
            "uid": deployment_uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        let owned = |object: &Value| {
            let mut object = object.clone();
            object["metadata"]["ownerReferences"] = json!([owner]);
            object
        };
        self.accompanying.iter().map(owned).collect()
    }
}

impl Cluster<'_> {
    /// Labels of everything in the cluster.
    fn common_labels(&self) -> Map<String, Value> {
        [
            (LABEL_APP.to_owned(), json!(self.id)),
            (LABEL_TYPE.to_owned(), json!(TYPE_NATIVE)),
        ]
        .into_iter()
        .collect()
    }

    /// Labels by which JobManagers are found.
    fn job_manager_selector(&self) -> Map<String, Value> {
        let mut labels = self.common_labels();
        labels.insert(LABEL_COMPONENT.to_owned(), json!(COMPONENT_JOB_MANAGER));
        labels
    }
}

#[cfg(test)]
mod tests;
