//! An operation controller: restarts pods, each when everything around it has let go.
//!
//! ```text
//! kubectl annotate pod web-0 example.dev/restart=please
//! ```
//!
//! Kubernetes restarts no containers on demand, so a restart is the deletion of the pod: its workload makes another
//! one. Of several pods of one rule (PodTransitionRule) as many restart at a time as the rule lets pass.
//! `allow_multi_type` returns `false`, so a pod that another controller restarts is not restarted twice.
//!
//! All state is on the pods. Killed at any point and started again, this goes on where it was:
//!
//! | the pod | is |
//! |---|---|
//! | annotated, not under operation | begun |
//! | annotated, under operation, not yet allowed | left alone: the change that allows it wakes us |
//! | annotated, allowed | deleted |
//! | not annotated any more, not yet allowed | taken back |
//! | not annotated any more, allowed | finished: it serves again |
//!
//! It needs `get`, `list`, `watch`, `patch` and `delete` of pods.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::{Controller, controller::Action, watcher},
};
use longshore_kit::{Clock, SystemClock};
use longshore_podops_client::{
    Allowed, OperationAdapter, allow_ops, begin, changes_of, finish, is_during_ops, undo,
};

/// The annotation by which a user requests the restart of a pod.
const RESTART: &str = "example.dev/restart";
/// Only pods of this label take part in operations.
const CONTROLLED: &str = "kusionstack.io/control=true";
/// After a refusal, as of a write upon an old version.
const AGAIN: Duration = Duration::from_millis(500);

/// The operation, as its labels name it.
struct Restart;

impl OperationAdapter for Restart {
    fn id(&self) -> &str {
        "restart-pods"
    }

    fn operation_type(&self) -> &str {
        "restart"
    }
}

/// What is done about a pod.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nothing, until it changes.
    Wait,
    /// Its labels are written.
    Write,
    /// It goes.
    Delete,
}

/// Decides, and changes the pod in memory.
fn decide(pod: &mut Pod, now: Timestamp) -> Result<Step> {
    let is_wanted = pod.annotations().contains_key(RESTART);
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Step::Wait);
    }
    let allowed = allow_ops(&Restart, pod, Duration::ZERO, now);
    let _ = match (is_wanted, is_during_ops(&Restart, pod), allowed) {
        (true, false, _) => begin(&Restart, pod, now)?,
        (true, true, Allowed::Now) => return Ok(Step::Delete),
        (false, true, Allowed::Now) => finish(&Restart, pod)?,
        (false, true, _) => undo(&Restart, pod),
        (true, true, _) | (false, false, _) => return Ok(Step::Wait),
    };
    Ok(Step::Write)
}

#[expect(clippy::print_stderr, reason = "it says what it leaves to others")]
async fn reconcile(seen: Arc<Pod>, client: Arc<Client>) -> Result<Action, Error> {
    let pods: Api<Pod> = Api::namespaced(
        Client::clone(&client),
        &seen.namespace().unwrap_or_default(),
    );
    let mut pod = Pod::clone(&seen);
    match decide(&mut pod, SystemClock.now()) {
        Ok(Step::Wait) => {}
        Ok(Step::Write) => {
            // Both labels in one request, and only upon the version that was seen.
            if let Some(changes) = changes_of(&seen.metadata, &pod.metadata) {
                let (params, patch) = (PatchParams::default(), Patch::Merge(changes));
                pods.patch(&seen.name_any(), &params, &patch).await?;
            }
        }
        Ok(Step::Delete) => delete(&pods, &seen).await?,
        // Another controller restarts it: the end of that operation wakes us.
        Err(error) => eprintln!("{}: {error:#}", seen.name_any()),
    }
    Ok(Action::await_change())
}

/// Deletes this very pod. Where deletes are operations as well, it is refused: then one has begun, which is allowed at once,
/// because the pod has no traffic any more.
async fn delete(pods: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match pods.delete(&pod.name_any(), &params).await {
        Err(Error::Api(status)) if matches!(status.code, 403 | 404 | 409) => Ok(()),
        deleted => deleted.map(drop),
    }
}

fn on_error(_: Arc<Pod>, _: &Error, _: Arc<Client>) -> Action {
    Action::requeue(AGAIN)
}

/// Restarts pods of all namespaces, for ever.
pub(crate) async fn run(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    Controller::new(pods, watcher::Config::default().labels(CONTROLLED))
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

#[tokio::main]
async fn main() -> Result<()> {
    run(Client::try_default().await?).await;
    Ok(())
}
