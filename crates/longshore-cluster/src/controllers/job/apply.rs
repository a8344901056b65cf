//! The requests of one round of a Job.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Error;

use super::{SPEAKER, decide::Plan, model::Desired};
use crate::controllers::workloads::hands::{Hands, Note, Request, Target};

/// Requests about pods at the same time: a webhook that answers late, or refuses, delays only its own pod.
const PARALLEL: usize = 16;

/// Does what the plan says. The status comes before everything that it counts.
pub(super) async fn apply(
    hands: &Hands,
    about: &ObjectReference,
    desired: &Desired,
    plan: &Plan,
) -> Result<(), Error> {
    hands.send_all(SPEAKER, about, &plan.claims).await?;
    if let Some(status) = &plan.status {
        hands.send(SPEAKER, about, status).await?;
    }
    for note in &plan.notes {
        hands.announce(SPEAKER, about, note).await;
    }
    let alone = plan.let_go.iter().map(|it| vec![it.clone()]).collect();
    each(hands, about, alone).await?;
    let both = plan
        .retire
        .iter()
        .map(|(free, delete)| vec![free.clone(), delete.clone()]);
    each(hands, about, both.collect()).await?;
    let alone = plan.delete.iter().map(|it| vec![it.clone()]).collect();
    each(hands, about, alone).await?;
    create(hands, about, plan).await?;
    if plan.is_over {
        hands
            .delete_in_foreground(Target::Job, &desired.job)
            .await?;
    }
    Ok(())
}

/// Makes the requests of each pod in their order, also after a refusal of another one. Returns the first refusal.
async fn each(
    hands: &Hands,
    about: &ObjectReference,
    pods: Vec<Vec<Request>>,
) -> Result<(), Error> {
    // Owned, because a stream of borrowed ones cannot be sent between threads.
    let all = pods.into_iter().map(|requests| async move {
        for request in &requests {
            let outcome = hands.send(SPEAKER, about, request).await;
            if let Some(note) = said(request, &outcome) {
                hands.announce(SPEAKER, about, &note).await;
            }
            outcome?;
        }
        Ok(())
    });
    let outcomes: Vec<Result<(), Error>> = futures::stream::iter(all)
        .buffered(PARALLEL)
        .collect()
        .await;
    outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

/// The Event of a deletion.
fn said(request: &Request, outcome: &Result<(), Error>) -> Option<Note> {
    let Request::Delete { name, .. } = request else {
        return None;
    };
    Some(match outcome {
        Ok(()) => Note::normal("SuccessfulDelete", format!("Deleted pod: {name}")),
        Err(error) => Note::warning("FailedDelete", format!("Error deleting: {error}")),
    })
}

/// Creates one pod after the other and stops at the first refusal: the others would not fare better.
async fn create(hands: &Hands, about: &ObjectReference, plan: &Plan) -> Result<(), Error> {
    let namespace = about.namespace.as_deref().unwrap_or_default();
    for pod in &plan.create {
        match hands.create(namespace, Target::Pod, pod).await {
            Ok(name) => {
                let note = Note::normal("SuccessfulCreate", format!("Created pod: {name}"));
                hands.announce(SPEAKER, about, &note).await;
            }
            Err(error) => {
                let note = Note::warning("FailedCreate", format!("Error creating: {error}"));
                hands.announce(SPEAKER, about, &note).await;
                return Err(error);
            }
        }
    }
    Ok(())
}
