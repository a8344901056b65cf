//! What a round about a FlinkDeployment sees.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::{
    ANNOTATION_ATTEMPT, ANNOTATION_GENERATION, COMPONENT_AUTOSCALER, FINALIZER_DEPLOYMENT,
    LABEL_APP, LABEL_COMPONENT, LABEL_JOB_REFERENCE_KIND, LABEL_JOB_REFERENCE_NAME,
    LABEL_SNAPSHOT_STATE, LABEL_SNAPSHOT_TRIGGER_TYPE, LABEL_SNAPSHOT_TYPE,
};
use longshore_core::{ObjectRef, Resource, Seen};
use longshore_flink_core::{
    conf::layers::OperatorConfig, spec::FlinkDeploymentSpec, status::FlinkDeploymentStatus,
    upgrade::PodStart,
};
use longshore_k8s::metadata::{condition, is_deleting};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    kinds::{DEPLOYMENT, FLINK_DEPLOYMENT, FLINK_STATE_SNAPSHOT},
    resource::{FlinkResource, instant, label, reference},
    rest::Heard,
};

/// Reasons of waiting containers that do not pass by themselves.
const FAILED_REASONS: [&str; 6] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "RunContainerError",
    "CreateContainerConfigError",
    "OOMKilled",
];

/// A snapshot of all reads of one round.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Now.
    pub now: Timestamp,
    /// The FlinkDeployment.
    pub desired: Seen<Arc<Desired>>,
    /// The JobManager's Deployment.
    pub job_manager: Seen<Arc<JobManager>>,
    /// The pods of the JobManager.
    pub pods: Seen<Vec<Arc<JobManagerPod>>>,
    /// The ConfigMaps of the cluster: its metadata of high availability are among them.
    pub config_maps: Seen<Vec<Arc<HaConfigMap>>>,
    /// The names of the FlinkSessionJobs of the session cluster.
    pub session_jobs: Seen<Vec<String>>,
    /// The FlinkStateSnapshots of the job.
    pub snapshots: Seen<Vec<Arc<SnapshotResource>>>,
    /// What the JobManager has answered.
    pub heard: Heard,
    /// The configuration of the operator.
    pub operator: Arc<OperatorConfig>,
}

/// A FlinkDeployment.
pub type Desired = FlinkResource<FlinkDeploymentSpec, FlinkDeploymentStatus>;

impl Desired {
    /// Reads a FlinkDeployment.
    pub fn of(object: Value) -> Self {
        Self::read(object, FLINK_DEPLOYMENT, FINALIZER_DEPLOYMENT)
    }

    /// The spec of what runs, or is to.
    pub(crate) fn running(&self) -> Option<FlinkDeploymentSpec> {
        let status = self.status.as_ref().ok();
        let deployed = status.and_then(|it| it.common.deployed().ok().flatten());
        let deployed = deployed.map(|it| it.spec);
        deployed.or_else(|| self.spec.clone().ok())
    }
}

/// The Deployment of a JobManager.
#[derive(Clone, Debug, PartialEq)]
pub struct JobManager {
    /// The object.
    pub target: ObjectRef,
    /// The uids of the owners.
    pub owners: Vec<String>,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// The generation of the FlinkDeployment that the attempt deployed.
    pub generation: Option<i64>,
    /// The attempt that made the object; `None` where another operator did.
    pub attempt: Option<String>,
    /// How many replicas serve.
    pub n_available: i64,
    /// Why no pod can be created.
    pub failure: Option<String>,
    /// Whether a pod has started.
    pub pod_start: PodStart,
}

impl JobManager {
    /// Reads a Deployment.
    pub fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let annotation = |key: &str| metadata["annotations"][key].as_str();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owners = owners.filter_map(|owner| owner["uid"].as_str());
        Self {
            target: reference(DEPLOYMENT, object),
            owners: owners.map(str::to_owned).collect(),
            is_deleting: is_deleting(object),
            generation: annotation(ANNOTATION_GENERATION).and_then(|it| it.parse().ok()),
            attempt: annotation(ANNOTATION_ATTEMPT).map(str::to_owned),
            n_available: object["status"]["availableReplicas"].as_i64().unwrap_or(0),
            failure: replica_failure(object),
            pod_start: pod_start(object),
        }
    }

    /// Whether the object belongs to the FlinkDeployment of this uid.
    pub fn is_of(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner == uid)
    }
}

fn replica_failure(object: &Value) -> Option<String> {
    let failure = condition(object, "ReplicaFailure")?;
    let is_failed = failure["status"] == "True" && failure["reason"] == "FailedCreate";
    is_failed.then(|| failure["message"].as_str().unwrap_or_default().to_owned())
}

/// No pod has ever served where the Deployment is unavailable since its creation.
fn pod_start(object: &Value) -> PodStart {
    let created = &object["metadata"]["creationTimestamp"];
    match condition(object, "Available") {
        Some(available)
            if available["status"] == "False" && available["lastTransitionTime"] == *created =>
        {
            PodStart::Never
        }
        Some(_) | None => PodStart::Started,
    }
}

/// A pod of a JobManager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobManagerPod {
    /// The id of the cluster.
    pub cluster: String,
    /// Why the pod does not start: the reason of Kubernetes, and a message.
    pub failure: Option<(&'static str, String)>,
}

impl JobManagerPod {
    /// Reads a pod.
    pub fn of(object: &Value) -> Self {
        Self {
            cluster: label(object, LABEL_APP).unwrap_or_default().to_owned(),
            failure: container_failure(object),
        }
    }
}

fn container_failure(pod: &Value) -> Option<(&'static str, String)> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let containers = lists.iter().filter_map(|it| pod["status"][it].as_array());
    containers.flatten().find_map(|container| {
        let waiting = &container["state"]["waiting"];
        let reason = waiting["reason"].as_str()?;
        let reason = FAILED_REASONS.into_iter().find(|it| *it == reason)?;
        let name = container["name"].as_str().unwrap_or_default();
        let last = &container["lastState"]["terminated"]["message"];
        let message = if reason == "CrashLoopBackOff" {
            format!("CrashLoop - {}", last.as_str().unwrap_or_default())
        } else {
            waiting["message"].as_str().unwrap_or_default().to_owned()
        };
        Some((reason, format!("[{name}] {message}")))
    })
}

/// A ConfigMap of a cluster, as far as high availability is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaConfigMap {
    /// The object.
    pub target: ObjectRef,
    /// The id of the cluster.
    pub cluster: String,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// Whether another part of the operator keeps something in it.
    pub is_of_operator: bool,
    /// Whether another object owns it: those that Flink makes for high availability have no owner.
    pub is_owned: bool,
    /// Whether it names a checkpoint.
    pub has_checkpoint: bool,
    /// Its keys that hold the graph of a job.
    pub job_graphs: Vec<String>,
}

impl HaConfigMap {
    /// Reads a ConfigMap.
    pub fn of(object: &Value) -> Self {
        let keys = || {
            object["data"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key)
        };
        let is_graph =
            |key: &&String| key.starts_with("jobGraph-") || key.starts_with("executionPlan-");
        let owners = object["metadata"]["ownerReferences"].as_array();
        Self {
            target: reference(Resource::CONFIG_MAP, object),
            cluster: label(object, LABEL_APP).unwrap_or_default().to_owned(),
            is_deleting: is_deleting(object),
            is_of_operator: label(object, LABEL_COMPONENT) == Some(COMPONENT_AUTOSCALER),
            is_owned: owners.is_some_and(|owners| !owners.is_empty()),
            has_checkpoint: keys().any(|key| key.starts_with("checkpointID-")),
            job_graphs: keys().filter(is_graph).cloned().collect(),
        }
    }

    /// Whether it belongs to what a cluster keeps for high availability.
    pub fn is_ha(&self) -> bool {
        !self.is_of_operator && !self.is_owned
    }

    /// Whether it shows that there are metadata of high availability (spec 11.2).
    pub fn is_metadata(&self) -> bool {
        let name = &self.target.name;
        let is_of_job = name.ends_with("-config-map") && !name.ends_with("-cluster-config-map");
        self.is_ha() && !self.is_deleting && (is_of_job || name.ends_with("-jobmanager-leader"))
    }
}

/// A FlinkStateSnapshot, as far as the controllers of jobs are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotResource {
    /// The object.
    pub target: ObjectRef,
    /// The kind and the name of the resource whose job it is of.
    pub job: (String, String),
    /// `SAVEPOINT` or `CHECKPOINT`.
    pub kind: String,
    /// What triggered it, as `PERIODIC`.
    pub trigger: String,
    /// The state of its status, as `COMPLETED`.
    pub state: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
}

impl SnapshotResource {
    /// Reads a FlinkStateSnapshot.
    pub fn of(object: &Value) -> Self {
        let text = |key| label(object, key).unwrap_or_default().to_owned();
        let reference_of = &object["spec"]["jobReference"];
        let field = |name: &str, key| match reference_of[name].as_str() {
            Some(value) => value.to_owned(),
            None => text(key),
        };
        Self {
            target: reference(FLINK_STATE_SNAPSHOT, object),
            job: (
                field("kind", LABEL_JOB_REFERENCE_KIND),
                field("name", LABEL_JOB_REFERENCE_NAME),
            ),
            kind: text(LABEL_SNAPSHOT_TYPE),
            trigger: text(LABEL_SNAPSHOT_TRIGGER_TYPE),
            state: match object["status"]["state"].as_str() {
                Some(state) => state.to_owned(),
                None => text(LABEL_SNAPSHOT_STATE),
            },
            created_at: instant(&object["metadata"]["creationTimestamp"]),
            is_deleting: is_deleting(object),
        }
    }
}

/// Reads an object out of a cache: nothing of it is held but what is read.
macro_rules! read_from_object {
    ($($kind:ty),*) => {
        $(impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::of(&Value::deserialize(deserializer)?))
            }
        })*
    };
}

read_from_object!(JobManager, JobManagerPod, HaConfigMap, SnapshotResource);
