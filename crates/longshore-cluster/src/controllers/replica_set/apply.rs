//! The requests of one round of a ReplicaSet or a ReplicationController.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Error;
use serde_json::json;

use super::{decide::Plan, model::Desired};
use crate::controllers::workloads::{
    hands::{Hands, Note, Request, Speaker, Target},
    pods,
};

/// Deletions at the same time: a webhook that answers late, or refuses, delays only its own pod.
const PARALLEL_DELETIONS: usize = 16;
/// Names of pods end in five random characters; what comes before them is cut to this.
const LONGEST_BASE: usize = 57;

/// A round that did not get through, and what the status shall say about that.
#[derive(Debug)]
pub(super) struct Failure {
    /// `FailedCreate` or `FailedDelete`; none for claims.
    pub(super) reason: Option<&'static str>,
    pub(super) error: Error,
}

/// Claims, then creates or deletes.
pub(super) async fn apply(
    hands: &Hands,
    about: &ObjectReference,
    desired: &Desired,
    plan: &Plan,
) -> Result<(), Failure> {
    let speaker = desired.keeper.speaker();
    let claimed = hands.send_all(speaker, about, &plan.claims).await;
    claimed.map_err(|error| Failure {
        reason: None,
        error,
    })?;
    create(hands, about, desired, plan.n_create).await?;
    delete(hands, speaker, about, &plan.delete).await
}

/// Creates one pod after the other and stops at the first refusal: the others would not fare better.
async fn create(
    hands: &Hands,
    about: &ObjectReference,
    desired: &Desired,
    n_pods: usize,
) -> Result<(), Failure> {
    let speaker = desired.keeper.speaker();
    let mut pod = pods::from_template(desired.template(), desired.reference());
    let set = desired.set.name();
    let base = &set[..set.floor_char_boundary(LONGEST_BASE)];
    pod["metadata"]["generateName"] = json!(format!("{base}-"));
    let namespace = about.namespace.as_deref().unwrap_or_default();
    for _ in 0..n_pods {
        match hands.create(namespace, Target::Pod, &pod).await {
            Ok(name) => {
                let note = Note::normal("SuccessfulCreate", format!("Created pod: {name}"));
                hands.announce(speaker, about, &note).await;
            }
            Err(error) => {
                let note = Note::warning("FailedCreate", format!("Error creating: {error}"));
                hands.announce(speaker, about, &note).await;
                let reason = Some("FailedCreate");
                return Err(Failure { reason, error });
            }
        }
    }
    Ok(())
}

/// Deletes all of the pods, also after a refusal. Returns the first refusal.
async fn delete(
    hands: &Hands,
    speaker: Speaker,
    about: &ObjectReference,
    pods: &[(String, String)],
) -> Result<(), Failure> {
    // Owned, because a stream of borrowed ones cannot be sent between threads.
    let deletions = pods.iter().cloned().map(|(name, uid)| async move {
        let request = Request::Delete {
            target: Target::Pod,
            name: name.clone(),
            uid,
        };
        let outcome = hands.send(speaker, about, &request).await;
        let note = match &outcome {
            Ok(()) => Note::normal("SuccessfulDelete", format!("Deleted pod: {name}")),
            Err(error) => Note::warning("FailedDelete", format!("Error deleting: {error}")),
        };
        hands.announce(speaker, about, &note).await;
        outcome
    });
    let outcomes: Vec<Result<(), Error>> = futures::stream::iter(deletions)
        .buffered(PARALLEL_DELETIONS)
        .collect()
        .await;
    let refusal = outcomes.into_iter().find_map(Result::err);
    refusal.map_or(Ok(()), |error| {
        let reason = Some("FailedDelete");
        Err(Failure { reason, error })
    })
}
