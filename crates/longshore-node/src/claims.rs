//! PersistentVolumeClaims: each that pods of this node use is a directory, which goes with its object.
//!
//! A finalizer keeps the object of such a claim until no pod of this node uses it and the directory is removed, so that no
//! crash leaves a directory for the next claim of that name. Which pods use claims is in their directories: a pod says so
//! before it looks at the claim, and a claim that goes is looked at before its pods are. One of both sees the other.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use longshore_api::node::FINALIZER_CLAIM_DIRECTORY;
use longshore_k8s::names::is_subdomain;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{config::MissingClaims, earlier_layout, node::Shared, refusal::Refusal};

/// A claim that goes is looked at again after this time at the latest. The end of a pod is noticed at once.
const AGAIN: Duration = Duration::from_secs(10);
/// How often a claim that others change may change before a pod waits.
const ATTEMPTS: usize = 5;
/// In the directory of a pod that uses claims: whether it may.
const USES_CLAIMS: &str = "uses-claims";
/// The pod was let to use its claims; it is not asked again.
const LET: &str = "let";

/// Namespace and name of a claim.
type Key = (String, String);

/// The directory of a claim.
pub(crate) fn directory(volumes: &Path, namespace: &str, name: &str) -> PathBuf {
    volumes.join(namespace).join(name)
}

/// The claims that the volumes of a pod name.
fn names(pod: &Pod) -> BTreeSet<&str> {
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.as_str()).collect()
}

/// Lets a pod use its claims, once each of them exists. `dir` is the pod's.
///
/// A pod that was let before is let again: it has the directories, whatever becomes of the objects meanwhile.
pub(crate) async fn hold(shared: &Shared, pod: &Pod, dir: &Path) -> Result<(), Refusal> {
    let names = names(pod);
    let mark = dir.join(USES_CLAIMS);
    let is_let = || fs::read(&mark).is_ok_and(|it| it == LET.as_bytes());
    if names.is_empty() || is_let() || earlier_layout::has_attempts(dir) {
        return Ok(());
    }
    let written = |e: io::Error| Refusal::io("note that the pod uses claims", &e);
    fs::write(&mark, "").map_err(written)?;
    let namespace = pod.namespace().unwrap_or_default();
    let api = Api::<PersistentVolumeClaim>::namespaced(shared.client.clone(), &namespace);
    for name in names {
        if let Err(refusal) = hold_one(&api, name, shared.config.missing_claims).await {
            drop(fs::remove_file(&mark));
            // A claim that goes may have waited for this pod.
            shared.claims_are_left.notify_one();
            return Err(refusal);
        }
    }
    fs::write(&mark, LET).map_err(written)
}

/// Whether a pod uses its claims, or is about to.
fn uses_claims(pod_dir: &Path) -> bool {
    pod_dir.join(USES_CLAIMS).exists() || earlier_layout::has_attempts(pod_dir)
}

/// What a pod has to do with a claim before it may use it.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Use,
    /// Set these finalizers, and look again where the claim has changed.
    SetFinalizers(Vec<String>),
    Wait(String),
}

fn next_step(name: &str, claim: Option<&ObjectMeta>, missing: MissingClaims) -> Step {
    match claim {
        None => match missing {
            MissingClaims::Make => Step::Use,
            MissingClaims::Wait => Step::Wait(format!("persistentvolumeclaim {name:?} not found")),
        },
        Some(claim) if claim.deletion_timestamp.is_some() => {
            Step::Wait(format!("persistentvolumeclaim {name:?} is being deleted"))
        }
        Some(claim) if is_held(claim) => Step::Use,
        Some(claim) => {
            let mut finalizers = claim.finalizers.clone().unwrap_or_default();
            finalizers.push(FINALIZER_CLAIM_DIRECTORY.to_owned());
            Step::SetFinalizers(finalizers)
        }
    }
}

fn is_held(claim: &ObjectMeta) -> bool {
    let mut finalizers = claim.finalizers.iter().flatten();
    finalizers.any(|it| it == FINALIZER_CLAIM_DIRECTORY)
}

async fn hold_one(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
    missing: MissingClaims,
) -> Result<(), Refusal> {
    let unread = |why: &dyn std::fmt::Display| {
        Refusal::machine(format!(
            "cannot use the persistentvolumeclaim {name:?}: {why}"
        ))
    };
    // Making the volumes refuses it with a sentence.
    if !is_subdomain(name) {
        return Ok(());
    }
    for _ in 0..ATTEMPTS {
        let claim = api.get_opt(name).await.map_err(|e| unread(&e))?;
        let claim = claim.map(|claim| claim.metadata);
        let finalizers = match next_step(name, claim.as_ref(), missing) {
            Step::Use => return Ok(()),
            Step::Wait(why) => return Err(Refusal::volume(why)),
            Step::SetFinalizers(finalizers) => finalizers,
        };
        let set = set_finalizers(api, name, claim.as_ref(), &finalizers).await;
        if set.map_err(|e| unread(&e))? {
            return Ok(());
        }
    }
    Err(unread(&"it changes all the time"))
}

/// Returns `false` where the claim is another one by now, or gone.
async fn set_finalizers(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
    claim: Option<&ObjectMeta>,
    finalizers: &[String],
) -> Result<bool, kube::Error> {
    let version = claim.and_then(|claim| claim.resource_version.as_deref());
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    let params = PatchParams::default();
    match api.patch(name, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// A claim that goes, or its directory, could not be looked at.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("the API server refused a request")]
    Api(#[from] kube::Error),
    #[error("its directory was not removed")]
    Directory(#[from] io::Error),
}

/// Removes the directories of claims that go, once no pod of this node uses them, until `shutdown`.
pub(crate) async fn collect(shared: Arc<Shared>, shutdown: CancellationToken) {
    let _ = shutdown.run_until_cancelled(collect_always(&shared)).await;
}

async fn collect_always(shared: &Shared) {
    let api = Api::<PersistentVolumeClaim>::all(shared.client.clone());
    let events = watcher(api, Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut going = BTreeSet::new();
    loop {
        tokio::select! {
            Some(event) = events.next() => match event {
                Ok(event) => note(event, &mut going),
                Err(error) => {
                    tracing::debug!(%error, "the watch of claims broke, connecting again");
                    continue;
                }
            },
            () = shared.claims_are_left.notified() => {}
            () = tokio::time::sleep(AGAIN), if !going.is_empty() => {}
        }
        for key in going.clone() {
            match collect_one(shared, &key).await {
                Ok(Outcome::Done) => {
                    going.remove(&key);
                }
                Ok(Outcome::Later) => {}
                Err(error) => {
                    let (error, claim) = (longshore_core::error::chain(&error), &key.1);
                    tracing::warn!(
                        error,
                        claim,
                        namespace = key.0,
                        "the directory of a claim stays for now"
                    );
                }
            }
        }
    }
}

/// Keeps the claims that go. One that is gone had no finalizer, or a user has removed it.
fn note(event: Event<PersistentVolumeClaim>, going: &mut BTreeSet<Key>) {
    match event {
        Event::Init | Event::InitDone => {}
        Event::InitApply(claim) | Event::Apply(claim) => {
            if claim.metadata.deletion_timestamp.is_some() {
                going.insert(key_of(&claim));
            }
        }
        Event::Delete(claim) => {
            going.insert(key_of(&claim));
        }
    }
}

fn key_of(claim: &PersistentVolumeClaim) -> Key {
    (claim.namespace().unwrap_or_default(), claim.name_any())
}

/// What became of a claim that goes.
enum Outcome {
    /// Nothing of it is left, or it is not this node's.
    Done,
    /// Pods use it, or it has just changed.
    Later,
}

async fn collect_one(shared: &Shared, (namespace, name): &Key) -> Result<Outcome, CollectError> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(shared.client.clone(), namespace);
    let claim = claims.get_opt(name).await?.map(|it| it.metadata);
    let is_another = |claim: &ObjectMeta| claim.deletion_timestamp.is_none() || !is_held(claim);
    let directory = directory(&shared.volumes_dir(), namespace, name);
    let has_nothing_to_do = match &claim {
        Some(claim) => is_another(claim),
        None => !directory.exists(),
    };
    if has_nothing_to_do || !is_subdomain(name) {
        return Ok(Outcome::Done);
    }
    if is_used(shared, namespace, name).await? {
        return Ok(Outcome::Later);
    }
    let removed = tokio::task::spawn_blocking(move || longshore_files::remove_tree(&directory));
    removed.await.map_err(io::Error::other)??;
    let Some(claim) = claim else {
        return Ok(Outcome::Done);
    };
    let others = claim.finalizers.iter().flatten();
    let others: Vec<String> = others
        .filter(|it| *it != FINALIZER_CLAIM_DIRECTORY)
        .cloned()
        .collect();
    Ok(
        match set_finalizers(&claims, name, Some(&claim), &others).await? {
            true => Outcome::Done,
            false => Outcome::Later,
        },
    )
}

/// Whether a pod of this node was let to use a claim and still exists, also one that has ended: as on Kubernetes.
async fn is_used(shared: &Shared, namespace: &str, name: &str) -> Result<bool, kube::Error> {
    let pods = Api::<Pod>::namespaced(shared.client.clone(), namespace);
    let here = format!("spec.nodeName={}", shared.config.name);
    let pods = pods.list(&ListParams::default().fields(&here)).await?;
    let mut users = pods.items.iter().filter(|pod| names(pod).contains(name));
    Ok(users.any(|pod| uses_claims(&shared.pods_dir().join(pod.uid().unwrap_or_default()))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value};

    use super::*;

    #[test]
    fn a_pod_uses_its_claims_by_its_mark_or_by_attempts_from_before_there_were_marks() {
        for (made, uses) in [
            (None, false),
            (Some("main.0"), false),
            (Some("containers/main"), false),
            (Some("containers/main/0"), true),
            (Some(USES_CLAIMS), true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            if let Some(made) = made {
                fs::create_dir_all(dir.path().join(made)).unwrap();
            }
            assert_eq!(uses_claims(dir.path()), uses, "{made:?}");
        }
    }

    #[test]
    fn a_pod_uses_a_claim_that_exists_and_stays() {
        let ours = FINALIZER_CLAIM_DIRECTORY;
        let gone_at = "2026-01-01T00:00:00Z";
        let wait = |why: &str| Step::Wait(format!("persistentvolumeclaim \"data\" {why}"));
        let set = |all: &[&str]| Step::SetFinalizers(all.iter().map(|it| (*it).into()).collect());
        for (claim, expected) in [
            (Value::Null, wait("not found")),
            (json!({}), set(&[ours])),
            (json!({"finalizers": ["x/y"]}), set(&["x/y", ours])),
            (json!({"finalizers": ["x/y", ours]}), Step::Use),
            (
                json!({"finalizers": [ours], "deletionTimestamp": gone_at}),
                wait("is being deleted"),
            ),
        ] {
            let metadata: Option<ObjectMeta> = from_value(claim.clone()).unwrap();
            let step = next_step("data", metadata.as_ref(), MissingClaims::Wait);
            assert_eq!(step, expected, "{claim}");
        }
        let step = next_step("data", None, MissingClaims::Make);
        assert_eq!(step, Step::Use);
    }
}
