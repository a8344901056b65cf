//! Deployments: replaces the pods of one template by those of the next, through ReplicaSets.
//!
//! Reads the deployment and the ReplicaSets of its namespace, decides on one step ([`decide`]), takes
//! it and writes the status; what the step brings about is the next round's event.

mod conditions;
mod decide;
mod history;
mod model;
mod progress;
mod recreate;
mod rolling;
mod scaling;
mod status;
mod template;
#[cfg(test)]
mod tests;

use decide::decide;
use jiff::Timestamp;
use model::{Desired, Observed, Strategy};

use super::workloads::{
    Again, Key, RoundError,
    hands::{Hands, Request, Speaker, Target, reference},
};

/// Runs one round for a Deployment: reads, decides, and sends the requests.
pub(super) async fn round(hands: &Hands, key: &Key, now: Timestamp) -> Result<Again, RoundError> {
    let namespace = key.namespace.as_str();
    let Some(deployment) = hands.read(Target::Deployment, namespace, &key.name).await? else {
        return Ok(None);
    };
    let desired = Desired::of(deployment)?;
    let observed = Observed {
        sets: hands.list(Target::ReplicaSet, namespace, "").await?,
        // Only the strategy `Recreate`, whose old and new pods must not run together, needs the pods.
        pods: match desired.strategy {
            Strategy::Recreate => hands.pods(namespace, &desired.selector, &[]).await?,
            Strategy::Rolling { .. } => Vec::new(),
        },
    };
    let plan = decide(&desired, &observed);
    let about = reference(Target::Deployment, &desired.deployment);
    let outcome = hands
        .send_all(Speaker::Deployments, &about, &plan.requests)
        .await;
    let failure = outcome.as_ref().err().map(ToString::to_string);
    let (status, again) = status::write(&desired, &plan, failure.as_deref(), now);
    if let Some(patch) = status {
        let write = Request::PatchStatus {
            target: Target::Deployment,
            name: key.name.clone(),
            patch,
        };
        hands.send(Speaker::Deployments, &about, &write).await?;
    }
    outcome?;
    Ok(again)
}
