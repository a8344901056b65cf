//! StatefulSets: pods with names that stay, made and replaced in their order.
//!
//! Templates are kept as ControllerRevisions ([`revisions`]), so that a pod below the partition can be
//! made again as it was. A pod that is on its way out keeps its name until it is gone: nothing takes
//! its place before, however long a finalizer or a webhook keeps it.

mod build;
mod decide;
mod model;
mod revisions;
mod status;
#[cfg(test)]
mod tests;

use decide::decide;
use jiff::Timestamp;
use model::{Desired, Observed};

use super::workloads::{
    Again, Key, RoundError,
    hands::{Hands, Speaker, Target, reference},
};

/// Runs one round for a StatefulSet. `strays` are pods that the set controls without selecting them.
pub(super) async fn round(
    hands: &Hands,
    key: &Key,
    strays: Vec<String>,
    now: Timestamp,
) -> Result<Again, RoundError> {
    let namespace = key.namespace.as_str();
    let Some(set) = hands
        .read(Target::StatefulSet, namespace, &key.name)
        .await?
    else {
        return Ok(None);
    };
    let desired = Desired::of(set)?;
    let observed = Observed {
        pods: hands.pods(namespace, &desired.selector, &strays).await?,
        revisions: hands.list(Target::Revision, namespace, "").await?,
        claims: match desired.claim_templates() {
            [] => Vec::new(),
            [..] => hands.list(Target::Claim, namespace, "").await?,
        },
        now,
    };
    let plan = decide(&desired, &observed);
    let about = reference(Target::StatefulSet, &desired.set);
    let outcome = hands
        .send_all(Speaker::StatefulSets, &about, &plan.requests)
        .await;
    if let Some(write) = status::write(&desired, &plan, now) {
        hands.send(Speaker::StatefulSets, &about, &write).await?;
    }
    outcome?;
    Ok(plan.again)
}
