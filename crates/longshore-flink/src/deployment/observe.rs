//! Reads what a decision about a FlinkDeployment depends on.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::KIND_DEPLOYMENT;
use longshore_core::{Incarnation, Seen};
use longshore_kit::{Answers, Parsed};
use serde::de::DeserializeOwned;

use super::model::Observed;
use crate::{
    controller::Reads,
    kinds::FlinkKey,
    resource,
    rest::{Heard, RestQuestion},
};

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
    resource::incarnation(&observed.desired, &observed.job_manager, |it| {
        it.target.uid.clone()
    })
}

pub(super) fn observe(
    Reads { caches, operator }: &Reads,
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
    observed.heard = Heard::of(answers, &incarnation(&observed));
    Ok(observed)
}
