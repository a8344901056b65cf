//! Jobs: runs pods until enough of them have succeeded, or too many have failed.
//!
//! Each pod is counted once, also when the controller dies between any two requests. A finalizer holds a pod until its
//! end is written down: first the status names the pods whose end is not counted yet (`uncountedTerminatedPods`), then
//! they lose the finalizer, and the next status moves them from there into the counts. Indexes are written at once: an
//! index that is in the status is in it once. Every status is written over the version that was decided on.
//!
//! A Job that is gone cannot let go of its pods: a round for it takes the finalizer off them.

mod apply;
mod backoff;
mod build;
mod claims;
mod decide;
mod indexes;
mod manage;
mod model;
mod pod;
mod policy;
mod status;
mod tally;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use decide::decide;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use model::{Desired, Observed};

use super::workloads::{
    Again, Key, RoundError,
    hands::{Hands, Speaker, Target, reference},
    pods,
};

const SPEAKER: Speaker = Speaker::Jobs;

/// Runs one round for a Job. `strays` are pods that the Job controls, or held, without selecting them.
pub(super) async fn round(
    hands: &Hands,
    key: &Key,
    strays: Vec<String>,
    now: Timestamp,
) -> Result<Again, RoundError> {
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    // Pods that do not say whose they were have a Job without a name.
    let job = match name {
        "" => None,
        name => hands.read(Target::Job, namespace, name).await?,
    };
    let Some(job) = job else {
        let pods = hands.pods_named(namespace, &strays).await?;
        return let_go(hands, namespace, &pods).await;
    };
    let desired = Desired::of(job)?;
    let mut pods = hands.pods(namespace, &desired.selector, &strays).await?;
    let mut seen = BTreeSet::new();
    pods.retain(|pod| seen.insert(pods::uid(pod).to_owned()));
    // The pods fit the counts only if no status was written meanwhile, as by a late request of an earlier process.
    let unchanged = hands.read(Target::Job, namespace, name).await?;
    let version = desired.job.meta.resource_version.as_ref();
    if unchanged.is_none_or(|it| it.meta.resource_version.as_ref() != version) {
        return Ok(Some(Duration::ZERO));
    }
    let plan = decide(&desired, &Observed { pods, now });
    let about = reference(Target::Job, &desired.job);
    apply::apply(hands, &about, &desired, &plan).await?;
    Ok(plan.again)
}

/// Lets go of the pods of a Job that is gone.
async fn let_go(hands: &Hands, namespace: &str, pods: &[Pod]) -> Result<Again, RoundError> {
    let about = ObjectReference {
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    };
    let requests = claims::of_nobody(pods);
    hands.send_all(SPEAKER, &about, &requests).await?;
    Ok(None)
}
