//! Reads what a decision about a FlinkStateSnapshot depends on.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_core::{Incarnation, Seen};
use longshore_flink_core::{
    conf::{
        InvalidOption,
        effective::{self, ClusterName},
        operator, options,
    },
    resources::LogFiles,
    spec::{FlinkDeploymentSpec, FlinkSessionJobSpec, JobKind},
    status::JobStatus,
};
use longshore_kit::Answers;

use super::model::{Job, Observed};
use crate::{
    controller::Reads,
    deployment::Desired,
    kinds::FlinkKey,
    resource,
    rest::{self, Heard, RestQuestion},
};

/// What was asked about one job says nothing about another one.
pub(super) fn incarnation(observed: &Observed) -> Seen<Incarnation> {
    resource::incarnation(&observed.wanted, &observed.job, |job| job.id.clone())
}

pub(super) fn observe(
    reads: &Reads,
    key: &FlinkKey,
    now: Timestamp,
    answers: &Answers<RestQuestion>,
) -> serde_json::Result<Observed> {
    let wanted = reads.caches.snapshot(&key.namespace, &key.name)?;
    let mut job = Seen::Absent;
    if let Seen::Present(wanted) = &wanted
        && let Ok(spec) = &wanted.spec
        && let Some(reference) = &spec.job_reference
        && let Some(name) = &reference.name
    {
        job = match reference.kind {
            Some(JobKind::FlinkDeployment) => application(reads, &key.namespace, name)?,
            Some(JobKind::FlinkSessionJob) => session_job(reads, &key.namespace, name)?,
            None => Seen::Absent,
        };
    }
    let mut observed = Observed {
        now,
        wanted,
        job,
        heard: Heard::default(),
        operator: Arc::clone(&reads.operator),
    };
    observed.heard = Heard::of(answers, &incarnation(&observed));
    Ok(observed)
}

fn application(reads: &Reads, namespace: &str, name: &str) -> serde_json::Result<Seen<Job>> {
    let deployment = reads.caches.deployment(namespace, name)?;
    Ok(flatten(deployment.map(|desired| {
        let spec = desired.running()?;
        let status = desired.status.as_ref().ok()?;
        job_of(reads, &desired, &spec, None, &status.common.job_status)
    })))
}

fn session_job(reads: &Reads, namespace: &str, name: &str) -> serde_json::Result<Seen<Job>> {
    let job = match reads.caches.session_job(namespace, name)? {
        Seen::Present(job) => job,
        Seen::Absent => return Ok(Seen::Absent),
        Seen::Unknown(why) => return Ok(Seen::Unknown(why)),
    };
    let spec = job.spec.as_ref().ok();
    let Some(of) = spec.and_then(|spec| spec.deployment_name.clone()) else {
        return Ok(Seen::Absent);
    };
    let deployment = reads.caches.deployment(namespace, &of)?;
    Ok(flatten(deployment.map(|desired| {
        let cluster = desired.running()?;
        let status = job.status.as_ref().ok()?;
        job_of(reads, &desired, &cluster, spec, &status.common.job_status)
    })))
}

fn job_of(
    reads: &Reads,
    desired: &Desired,
    spec: &FlinkDeploymentSpec,
    session_job: Option<&FlinkSessionJobSpec>,
    status: &JobStatus,
) -> Option<Job> {
    let (namespace, id) = (&desired.target.namespace, &desired.target.name);
    let defaults = reads.operator.defaults(namespace, spec.flink_version);
    let name = ClusterName { namespace, id };
    let effective = effective::deployment(defaults, name, spec, &LogFiles::default()).ok()?;
    let mut config = effective.config;
    if let Some(configuration) = session_job.and_then(|it| it.flink_configuration.as_ref()) {
        config.merge(&configuration.flat().into_iter().collect());
    }
    let read = || -> Result<Job, InvalidOption> {
        let port = config.get(&options::REST_PORT)?;
        Ok(Job {
            address: rest::address(&desired.target, port),
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

fn flatten<T>(seen: Seen<Option<T>>) -> Seen<T> {
    match seen {
        Seen::Present(Some(value)) => Seen::Present(value),
        Seen::Present(None) | Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    }
}
