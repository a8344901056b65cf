//! Reads what a decision about a FlinkSessionJob depends on.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::KIND_SESSION_JOB;
use longshore_core::{Incarnation, Seen};
use longshore_flink_core::conf::layers::OperatorConfig;
use longshore_kit::Answers;

use super::model::{Desired, Observed};
use crate::{
    deployment::observe::Caches,
    kinds::FlinkKey,
    rest::{Heard, RestQuestion},
};

/// A FlinkSessionJob.
pub(crate) fn load(
    caches: &Caches,
    namespace: &str,
    name: &str,
) -> serde_json::Result<Seen<Arc<Desired>>> {
    Ok(match caches.session_jobs.get(namespace, name) {
        Seen::Present(object) => {
            let object = object.raw().to_value()?;
            Seen::Present(Arc::new(Desired::of(object)))
        }
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    })
}

/// Which incarnation of a FlinkSessionJob there is: another session cluster knows nothing of what was asked.
pub(super) fn incarnation(observed: &Observed) -> Seen<Incarnation> {
    match (&observed.desired, &observed.cluster) {
        (Seen::Absent, _) => Seen::Absent,
        (Seen::Unknown(why), _) | (_, Seen::Unknown(why)) => Seen::Unknown(why.clone()),
        (Seen::Present(desired), cluster) => {
            let uid = desired.target.uid.clone().unwrap_or_default();
            let cluster = cluster.present();
            let epoch = cluster.and_then(|it| it.target.uid.clone());
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
    let desired = load(caches, &key.namespace, &key.name)?;
    let spec = desired.present().and_then(|it| it.spec.as_ref().ok());
    let of = spec.and_then(|spec| spec.deployment_name.clone());
    let cluster = match of {
        Some(of) => caches.deployment(&key.namespace, &of)?,
        None => Seen::Absent,
    };
    let mut observed = Observed {
        now,
        desired,
        cluster,
        snapshots: caches.snapshots_of(KIND_SESSION_JOB, key),
        heard: Heard::default(),
        operator: Arc::clone(operator),
    };
    if let Seen::Present(incarnation) = incarnation(&observed) {
        observed.heard = Heard::of(answers, &incarnation);
    }
    Ok(observed)
}
