//! Reads what a decision about a FlinkDeployment depends on.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::KIND_DEPLOYMENT;
use longshore_core::{Incarnation, Seen};
use longshore_flink_core::conf::layers::OperatorConfig;
use longshore_kit::{Answers, Cache, Parsed, RawObject};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::model::{Desired, HaConfigMap, JobManager, JobManagerPod, Observed, SnapshotResource};
use crate::{
    kinds::FlinkKey,
    rest::{Heard, RestQuestion},
};

/// A FlinkSessionJob, as far as its session cluster is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionJobOf {
    pub(crate) name: String,
    pub(crate) deployment: String,
}

impl<'de> Deserialize<'de> for SessionJobOf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        Ok(Self {
            name: text("/metadata/name").unwrap_or_default().to_owned(),
            deployment: text("/spec/deploymentName").unwrap_or_default().to_owned(),
        })
    }
}

/// The caches that the controllers of this crate share.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    pub(crate) deployments: Arc<Cache<RawObject>>,
    pub(crate) session_jobs: Arc<Cache<Parsed<SessionJobOf>>>,
    pub(crate) snapshots: Arc<Cache<Parsed<SnapshotResource>>>,
    pub(crate) job_managers: Arc<Cache<Parsed<JobManager>>>,
    pub(crate) pods: Arc<Cache<Parsed<JobManagerPod>>>,
    pub(crate) config_maps: Arc<Cache<Parsed<HaConfigMap>>>,
}

impl Caches {
    pub(crate) fn new() -> Self {
        Self {
            deployments: Cache::new(),
            session_jobs: Cache::new(),
            snapshots: Cache::new(),
            job_managers: Cache::new(),
            pods: Cache::new(),
            config_maps: Cache::new(),
        }
    }

    /// A FlinkDeployment.
    pub(crate) fn deployment(
        &self,
        namespace: &str,
        name: &str,
    ) -> serde_json::Result<Seen<Arc<Desired>>> {
        let object = whole(self.deployments.get(namespace, name))?;
        Ok(object.map(|object| Arc::new(Desired::of(object))))
    }

    /// The snapshots of the job of a resource.
    pub(crate) fn snapshots_of(
        &self,
        kind: &str,
        key: &FlinkKey,
    ) -> Seen<Vec<Arc<SnapshotResource>>> {
        let all = self.snapshots.beginning(&key.namespace, "");
        all.map(|all| {
            let all = all.iter().filter_map(|it| it.value().cloned());
            all.filter(|it| it.job.0 == kind && it.job.1 == key.name)
                .collect()
        })
    }

    /// The names of the session jobs of a session cluster.
    fn session_jobs_of(&self, key: &FlinkKey) -> Seen<Vec<String>> {
        let all = self.session_jobs.beginning(&key.namespace, "");
        all.map(|all| {
            let is_ours = |it: &&SessionJobOf| it.deployment == key.name;
            let all = all.iter().filter_map(|it| it.value().map(Arc::as_ref));
            all.filter(is_ours).map(|it| it.name.clone()).collect()
        })
    }
}

/// All of an object.
pub(crate) fn whole(object: Seen<Arc<RawObject>>) -> serde_json::Result<Seen<Value>> {
    Ok(match object {
        Seen::Present(object) => Seen::Present(object.to_value()?),
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    })
}

/// What was read of an object.
fn read<T: DeserializeOwned>(object: Seen<Arc<Parsed<T>>>) -> serde_json::Result<Seen<Arc<T>>> {
    Ok(match object {
        Seen::Present(object) => Seen::Present(object.read()?),
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    })
}

/// The objects of a cluster among those of its namespace.
fn of_cluster<T: DeserializeOwned>(
    all: Seen<Vec<Arc<Parsed<T>>>>,
    is_of: impl Fn(&T) -> bool,
) -> Seen<Vec<Arc<T>>> {
    all.map(|all| {
        let all = all.iter().filter_map(|it| it.value().cloned());
        all.filter(|it| is_of(it)).collect()
    })
}

/// Which incarnation of a FlinkDeployment there is: what was asked of one JobManager says nothing of the next one.
pub(super) fn incarnation(observed: &Observed) -> Seen<Incarnation> {
    match (&observed.desired, &observed.job_manager) {
        (Seen::Absent, _) => Seen::Absent,
        (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why.clone()),
        (Seen::Present(desired), job_manager) => {
            let uid = desired.target.uid.clone().unwrap_or_default();
            let job_manager = job_manager.present();
            let epoch = job_manager.and_then(|it| it.target.uid.clone());
            Seen::Present(Incarnation::of(uid).since(epoch.unwrap_or_default()))
        }
    }
}

pub(super) fn assemble(
    caches: &Caches,
    operator: &Arc<OperatorConfig>,
    key: &FlinkKey,
    now: Timestamp,
    answers: &Answers<RestQuestion>,
) -> serde_json::Result<Observed> {
    let (namespace, name) = (&key.namespace, &key.name);
    let pods = caches.pods.beginning(namespace, name);
    let config_maps = caches.config_maps.beginning(namespace, "");
    let mut observed = Observed {
        now,
        desired: caches.deployment(namespace, name)?,
        job_manager: read(caches.job_managers.get(namespace, name))?,
        pods: of_cluster(pods, |pod| pod.cluster == *name),
        config_maps: of_cluster(config_maps, |it| it.cluster == *name),
        session_jobs: caches.session_jobs_of(key),
        snapshots: caches.snapshots_of(KIND_DEPLOYMENT, key),
        heard: Heard::default(),
        operator: Arc::clone(operator),
    };
    if let Seen::Present(incarnation) = incarnation(&observed) {
        observed.heard = Heard::of(answers, &incarnation);
    }
    Ok(observed)
}
