//! The caches that the controllers of this crate share.

use std::sync::Arc;

use longshore_core::Seen;
use longshore_kit::{Cache, Definition, Parsed, RawObject};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    deployment::{Desired, HaConfigMap, JobManager, JobManagerPod, SnapshotResource},
    kinds::{FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_STATE_SNAPSHOT, FlinkKey},
    session_job,
    snapshot::Wanted,
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

/// Which of our kinds the API server serves. Of a kind that it does not serve there are no objects.
#[derive(Clone, Debug)]
pub(crate) struct Definitions {
    pub(crate) deployments: Arc<Definition>,
    pub(crate) session_jobs: Arc<Definition>,
    pub(crate) snapshots: Arc<Definition>,
}

/// The caches that the controllers of this crate share.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    pub(crate) definitions: Definitions,
    pub(crate) deployments: Arc<Cache<RawObject>>,
    pub(crate) session_jobs: Arc<Cache<Parsed<SessionJobOf>>>,
    pub(crate) snapshots: Arc<Cache<Parsed<SnapshotResource>>>,
    pub(crate) job_managers: Arc<Cache<Parsed<JobManager>>>,
    pub(crate) pods: Arc<Cache<Parsed<JobManagerPod>>>,
    pub(crate) config_maps: Arc<Cache<Parsed<HaConfigMap>>>,
}

impl Caches {
    pub(crate) fn new() -> Self {
        let definition = |resource| Definition::new(resource, |_| {});
        Self {
            definitions: Definitions {
                deployments: definition(FLINK_DEPLOYMENT),
                session_jobs: definition(FLINK_SESSION_JOB),
                snapshots: definition(FLINK_STATE_SNAPSHOT),
            },
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
        let definition = &self.definitions.deployments;
        let object = whole(
            definition,
            || self.deployments.get(namespace, name),
            |it| it,
        )?;
        Ok(object.map(|object| Arc::new(Desired::of(object))))
    }

    /// A FlinkSessionJob.
    pub(crate) fn session_job(
        &self,
        namespace: &str,
        name: &str,
    ) -> serde_json::Result<Seen<Arc<session_job::Desired>>> {
        let definition = &self.definitions.session_jobs;
        let get = || self.session_jobs.get(namespace, name);
        let object = whole(definition, get, |it| it.raw())?;
        Ok(object.map(|object| Arc::new(session_job::Desired::of(object))))
    }

    /// A FlinkStateSnapshot.
    pub(crate) fn snapshot(
        &self,
        namespace: &str,
        name: &str,
    ) -> serde_json::Result<Seen<Arc<Wanted>>> {
        let definition = &self.definitions.snapshots;
        let get = || self.snapshots.get(namespace, name);
        let object = whole(definition, get, |it| it.raw())?;
        Ok(object.map(|object| Arc::new(Wanted::of(object))))
    }

    /// The snapshots of the job of a resource; `Absent` while the API server does not serve their kind.
    pub(crate) fn snapshots_of(
        &self,
        kind: &str,
        key: &FlinkKey,
    ) -> Seen<Vec<Arc<SnapshotResource>>> {
        if self.definitions.snapshots.is_missing() {
            return Seen::Absent;
        }
        let all = self.snapshots.beginning(&key.namespace, "");
        all.map(|all| {
            let all = all.iter().filter_map(|it| it.value().cloned());
            all.filter(|it| it.job.0 == kind && it.job.1 == key.name)
                .collect()
        })
    }

    /// The names of the session jobs of a session cluster; `Absent` while the API server does not serve their kind.
    pub(crate) fn session_jobs_of(&self, key: &FlinkKey) -> Seen<Vec<String>> {
        if self.definitions.session_jobs.is_missing() {
            return Seen::Absent;
        }
        let all = self.session_jobs.beginning(&key.namespace, "");
        all.map(|all| {
            let is_ours = |it: &&SessionJobOf| it.deployment == key.name;
            let all = all.iter().filter_map(|it| it.value().map(Arc::as_ref));
            all.filter(is_ours).map(|it| it.name.clone()).collect()
        })
    }
}

/// All of an object of a kind.
fn whole<T>(
    definition: &Definition,
    get: impl Fn() -> Seen<Arc<T>>,
    raw: impl Fn(&T) -> &RawObject,
) -> serde_json::Result<Seen<Value>> {
    if definition.is_missing() {
        return Ok(Seen::Absent);
    }
    Ok(match get() {
        Seen::Present(object) => Seen::Present(raw(&object).to_value()?),
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    })
}
