//! The controller of FlinkStateSnapshots.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{AskError, Incarnation, Never, Seen};
use longshore_flink_core::{
    conf::{
        InvalidOption,
        effective::{self, ClusterName},
        layers::OperatorConfig,
        operator, options,
    },
    resources::LogFiles,
    spec::{FlinkDeploymentSpec, FlinkSessionJobSpec, JobKind},
};
use longshore_kit::{Answers, Applier, Controller};

use super::{
    decide,
    model::{Job, Observed, Wanted},
};
use crate::{
    deployment::{Desired, controller::write, observe::Caches},
    error::FlinkError,
    kinds::FlinkKey,
    record::{FlinkPlan, Record},
    rest::{self, Heard, RestAnswer, RestQuestion, Transport},
    session_job,
};

/// Decides about FlinkStateSnapshots.
#[derive(Debug)]
pub struct Snapshots {
    pub(crate) caches: Caches,
    pub(crate) operator: Arc<OperatorConfig>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) applier: Applier,
}

impl Controller for Snapshots {
    type Key = FlinkKey;
    type Observed = Observed;
    type Status = Record;
    type Effect = Never;
    type Question = RestQuestion;
    type Error = FlinkError;

    fn name(&self) -> &'static str {
        "flink.snapshots"
    }

    fn group<'a>(&self, key: &'a FlinkKey) -> &'a str {
        &key.namespace
    }

    async fn observe(
        &self,
        key: &FlinkKey,
        now: Timestamp,
        answers: &Answers<RestQuestion>,
    ) -> Result<Observed, FlinkError> {
        let observed = self.load(key, now, answers);
        observed.map_err(|source| FlinkError::Unreadable {
            key: key.clone(),
            source,
        })
    }

    fn incarnation(&self, observed: &Observed) -> Seen<Incarnation> {
        incarnation(observed)
    }

    fn decide(&self, observed: &Observed) -> FlinkPlan {
        decide(observed)
    }

    async fn persist(&self, key: &FlinkKey, record: &Record) -> Result<(), FlinkError> {
        write(&self.applier, key, record).await
    }

    async fn call(&self, _: &FlinkKey, effect: &Never) -> Result<(), FlinkError> {
        match *effect {}
    }

    async fn ask(
        &self,
        _: &FlinkKey,
        question: &RestQuestion,
        _: usize,
    ) -> Result<RestAnswer, AskError> {
        rest::ask(&*self.transport, question).await
    }
}

/// What was asked about one job says nothing about another one.
fn incarnation(observed: &Observed) -> Seen<Incarnation> {
    match (&observed.wanted, &observed.job) {
        (Seen::Absent, _) => Seen::Absent,
        (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why.clone()),
        (Seen::Present(wanted), job) => {
            let uid = wanted.target.uid.clone().unwrap_or_default();
            let job = job.present().and_then(|job| job.id.clone());
            Seen::Present(Incarnation::of(uid).since(job.unwrap_or_default()))
        }
    }
}

impl Snapshots {
    fn load(
        &self,
        key: &FlinkKey,
        now: Timestamp,
        answers: &Answers<RestQuestion>,
    ) -> serde_json::Result<Observed> {
        let object = self.caches.snapshots.get(&key.namespace, &key.name);
        let wanted = match object {
            Seen::Present(object) => Seen::Present(Arc::new(Wanted::of(object.raw().to_value()?))),
            Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why),
        };
        let mut job = Seen::Absent;
        if let Seen::Present(wanted) = &wanted
            && let Ok(spec) = &wanted.spec
            && let Some(reference) = &spec.job_reference
            && let Some(name) = &reference.name
        {
            job = match reference.kind {
                Some(JobKind::FlinkDeployment) => self.application(&key.namespace, name)?,
                Some(JobKind::FlinkSessionJob) => self.session_job(&key.namespace, name)?,
                None => Seen::Absent,
            };
        }
        let mut observed = Observed {
            now,
            wanted,
            job,
            heard: Heard::default(),
            operator: Arc::clone(&self.operator),
        };
        if let Seen::Present(incarnation) = incarnation(&observed) {
            observed.heard = Heard::of(answers, &incarnation);
        }
        Ok(observed)
    }

    fn application(&self, namespace: &str, name: &str) -> serde_json::Result<Seen<Job>> {
        let deployment = self.caches.deployment(namespace, name)?;
        Ok(flatten(deployment.map(|desired| {
            let spec = running(&desired)?;
            let status = desired.status.as_ref().ok()?;
            self.job(&desired, &spec, None, &status.common.job_status)
        })))
    }

    fn session_job(&self, namespace: &str, name: &str) -> serde_json::Result<Seen<Job>> {
        let job = session_job::load(&self.caches, namespace, name)?;
        let job = match job {
            Seen::Present(job) => job,
            Seen::Absent => return Ok(Seen::Absent),
            Seen::Unknown(why) => return Ok(Seen::Unknown(why)),
        };
        let spec = job.spec.as_ref().ok();
        let Some(of) = spec.and_then(|spec| spec.deployment_name.clone()) else {
            return Ok(Seen::Absent);
        };
        let deployment = self.caches.deployment(namespace, &of)?;
        Ok(flatten(deployment.map(|desired| {
            let cluster = running(&desired)?;
            let status = job.status.as_ref().ok()?;
            self.job(&desired, &cluster, spec, &status.common.job_status)
        })))
    }

    fn job(
        &self,
        desired: &Desired,
        spec: &FlinkDeploymentSpec,
        session_job: Option<&FlinkSessionJobSpec>,
        status: &longshore_flink_core::status::JobStatus,
    ) -> Option<Job> {
        let (namespace, id) = (&desired.target.namespace, &desired.target.name);
        let defaults = self.operator.defaults(namespace, spec.flink_version);
        let name = ClusterName { namespace, id };
        let effective = effective::deployment(defaults, name, spec, &LogFiles::default()).ok()?;
        let mut config = effective.config;
        if let Some(configuration) = session_job.and_then(|it| it.flink_configuration.as_ref()) {
            config.merge(&configuration.flat().into_iter().collect());
        }
        let read = || -> Result<Job, InvalidOption> {
            let port = config.get(&options::REST_PORT)?;
            Ok(Job {
                address: format!("{id}-rest.{namespace}:{port}"),
                id: status.job_id.clone(),
                state: status.state,
                version: spec.flink_version,
                savepoint_directory: config.find(&options::SAVEPOINT_DIR)?,
                savepoint_format: config.get(&operator::SAVEPOINT_FORMAT)?,
                checkpoint_type: config.get(&operator::CHECKPOINT_TYPE)?,
            })
        };
        read().ok()
    }
}

/// What runs of a FlinkDeployment, or is to.
fn running(desired: &Desired) -> Option<FlinkDeploymentSpec> {
    let status = desired.status.as_ref().ok();
    let deployed = status.and_then(|it| it.common.deployed::<FlinkDeploymentSpec>().ok().flatten());
    let deployed = deployed.map(|it| it.spec);
    deployed.or_else(|| desired.spec.clone().ok())
}

fn flatten<T>(seen: Seen<Option<T>>) -> Seen<T> {
    match seen {
        Seen::Present(Some(value)) => Seen::Present(value),
        Seen::Present(None) | Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    }
}
