//! Training jobs, run by the training operator of Kubeflow: PyTorchJob, TFJob and MPIJob (task action spec §11.10).

mod mpi;
mod phase;
mod pytorch;
mod replica;
mod tensorflow;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::{Resource, Scope};
use serde_json::{Value, json};

pub(crate) use phase::newest_condition;

use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    phase::PhaseInfo,
    plugin::{BuildError, HeadPod, Plugin},
};

/// `plugins.kf-operator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeflowConfig {
    /// `timeout`: how long a job may go unnoticed by its operator. Default: 1 minute.
    pub timeout: Duration,
}

impl Default for KubeflowConfig {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(1),
        }
    }
}

/// What differs between the kinds of jobs.
#[derive(Debug)]
struct Kind {
    id: &'static str,
    task_types: &'static [&'static str],
    resource: Resource,
    /// The container that the operator looks at.
    container: &'static str,
    /// The field of the spec with the roles.
    roles: &'static str,
    /// The pod that shows a failure first, by the suffix of its name.
    head: Option<&'static str>,
    build: fn(&TaskContext, &Config) -> Result<Job, BuildError>,
}

const fn resource(kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: "kubeflow.org",
        version: "v1",
        kind,
        plural,
        scope: Scope::Namespaced,
    }
}

const PYTORCH: Kind = Kind {
    id: "pytorch",
    task_types: &["pytorch"],
    resource: resource("PyTorchJob", "pytorchjobs"),
    container: "pytorch",
    roles: "pytorchReplicaSpecs",
    head: Some("worker-0"),
    build: pytorch::build,
};

const TENSORFLOW: Kind = Kind {
    id: "tensorflow",
    task_types: &["tensorflow"],
    resource: resource("TFJob", "tfjobs"),
    container: "tensorflow",
    roles: "tfReplicaSpecs",
    head: None,
    build: tensorflow::build,
};

const MPI: Kind = Kind {
    id: "mpi",
    task_types: &["mpi"],
    resource: resource("MPIJob", "mpijobs"),
    container: "mpi",
    roles: "mpiReplicaSpecs",
    head: None,
    build: mpi::build,
};

/// The spec of a job, and the metadata that its pods bring along.
struct Job {
    metadata: Value,
    /// By name, as `Worker`.
    roles: Vec<(&'static str, Value)>,
    run_policy: Value,
    /// The fields that only this kind has.
    more: Vec<(&'static str, Value)>,
}

/// The plugin of one kind of training jobs.
#[derive(Clone, Debug)]
pub(crate) struct KubeflowPlugin {
    kind: &'static Kind,
    config: Arc<Config>,
}

impl KubeflowPlugin {
    pub(crate) fn pytorch(config: Arc<Config>) -> Self {
        let kind = &PYTORCH;
        Self { kind, config }
    }

    pub(crate) fn tensorflow(config: Arc<Config>) -> Self {
        let kind = &TENSORFLOW;
        Self { kind, config }
    }

    pub(crate) fn mpi(config: Arc<Config>) -> Self {
        let kind = &MPI;
        Self { kind, config }
    }
}

impl Plugin for KubeflowPlugin {
    fn id(&self) -> &'static str {
        self.kind.id
    }

    fn task_types(&self) -> &'static [&'static str] {
        self.kind.task_types
    }

    fn resource(&self) -> Resource {
        self.kind.resource
    }

    fn needs_inputs(&self, context: &TaskContext) -> bool {
        context.pod_needs_inputs(&self.config.k8s)
    }

    fn build(&self, context: &TaskContext) -> Result<Value, BuildError> {
        let job = (self.kind.build)(context, &self.config)?;
        let workers = job.roles.iter().find(|(role, _)| *role == replica::WORKER);
        let n_workers = workers.and_then(|(_, spec)| spec["replicas"].as_i64());
        if n_workers.unwrap_or_default() <= 0 {
            return Err(BuildError::bad_specification(format!(
                "expected at least one worker, found {}",
                n_workers.unwrap_or_default()
            )));
        }
        let mut spec = json!({"runPolicy": job.run_policy});
        for (role, replicas) in job.roles {
            spec[self.kind.roles][role] = replicas;
        }
        for (field, value) in job.more {
            spec[field] = value;
        }
        let resource = self.kind.resource;
        Ok(json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": job.metadata,
            "spec": spec,
        }))
    }

    fn head_pod(&self, _: &TaskContext, resource: &Value) -> Option<HeadPod> {
        let name = text(&resource["metadata"], "name");
        self.kind
            .head
            .map(|head| HeadPod::Named(format!("{name}-{head}")))
    }

    fn phase(&self, context: &TaskContext, resource: &Value, now: Timestamp) -> PhaseInfo {
        phase::of(context, resource, self.kind, &self.config, now)
    }
}

#[cfg(test)]
mod tests;
