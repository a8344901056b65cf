//! Reads what a decision about a FlinkSessionJob depends on.

use std::sync::Arc;

use jiff::Timestamp;
use longshore_api::flink::KIND_SESSION_JOB;
use longshore_core::{Incarnation, Seen};
use longshore_kit::Answers;

use super::model::Observed;
use crate::{
    controller::Reads,
    kinds::FlinkKey,
    resource,
    rest::{Heard, RestQuestion},
};

/// Which incarnation of a FlinkSessionJob there is: another session cluster knows nothing of what was asked.
pub(super) fn incarnation(observed: &Observed) -> Seen<Incarnation> {
    resource::incarnation(&observed.desired, &observed.cluster, |it| {
        it.target.uid.clone()
    })
}

pub(super) fn observe(
    Reads { caches, operator }: &Reads,
    key: &FlinkKey,
    now: Timestamp,
    answers: &Answers<RestQuestion>,
) -> serde_json::Result<Observed> {
    let desired = caches.session_job(&key.namespace, &key.name)?;
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
    observed.heard = Heard::of(answers, &incarnation(&observed));
    Ok(observed)
}
