//! The requests that garbage collection makes about one object.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
    core::PartialObjectMeta,
    runtime::events::{Event, EventType, Reporter},
};
use serde_json::json;

use super::graph::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN, Graph, Node, Uid};
use crate::controllers::{recorder::Recorder, resources::Listed};

/// Why an object could not be judged or treated now.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    /// A request failed.
    #[error("the API refused a request of the garbage collector")]
    Api(#[from] Error),
    /// The owner's kind is not (yet) served.
    #[error(
        "owner {kind} of {api_version} is of no known resource; expected a kind that the API serves"
    )]
    UnknownOwner {
        /// `apiVersion` of the reference.
        api_version: String,
        /// `kind` of the reference.
        kind: String,
    },
}

/// The owner behind a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    /// The owner exists and stays.
    Solid,
    /// The owner does not exist.
    Dangling,
    /// The owner is deleted in the foreground, and waits for this dependent.
    Waiting,
}

/// Treats one object after the other.
pub(super) struct Collector {
    client: Client,
    resources: Arc<[Listed]>,
    recorder: Recorder,
}

impl Collector {
    pub(super) fn new(client: Client, resources: Arc<[Listed]>) -> Collector {
        let reporter = Reporter {
            controller: "garbage-collector-controller".into(),
            instance: None,
        };
        let recorder = Recorder::new(client.clone(), reporter);
        Collector {
            client,
            resources,
            recorder,
        }
    }

    /// Does what is due about one object. Returns the uids of the objects to examine next.
    pub(super) async fn examine(&self, graph: &Graph, uid: &str) -> Result<Vec<Uid>, CollectError> {
        let Some(node) = graph.get(uid) else {
            return Ok(Vec::new());
        };
        if node.orphans_dependents() {
            self.orphan_dependents(graph, uid, node).await?;
        } else if node.waits_for_dependents() {
            let blocking = graph.blocking_dependents(uid);
            if !blocking.is_empty() {
                let is_left = |it: &Uid| graph.get(it).is_some_and(|node| !node.is_deleting);
                return Ok(blocking.into_iter().filter(is_left).collect());
            }
            self.remove_finalizer(uid, node, FINALIZER_FOREGROUND)
                .await?;
        } else if !node.is_deleting && !node.owners.is_empty() {
            self.delete_if_unowned(graph, uid, node).await?;
        }
        Ok(Vec::new())
    }

    fn api(&self, resource: &Listed, namespace: Option<&str>) -> Api<PartialObjectMeta> {
        match namespace {
            Some(namespace) if resource.is_namespaced => {
                Api::namespaced_with(self.client.clone(), namespace, &resource.api)
            }
            _ => Api::all_with(self.client.clone(), &resource.api),
        }
    }

    fn api_of(&self, node: &Node) -> Api<PartialObjectMeta> {
        self.api(&self.resources[node.resource], node.namespace.as_deref())
    }

    /// The object's metadata as the API has it now, if it is still the same object.
    async fn live(&self, uid: &str, node: &Node) -> Result<Option<ObjectMeta>, CollectError> {
        let found = self.api_of(node).get_opt(&node.name).await?;
        Ok(found
            .map(|object| object.metadata)
            .filter(|it| it.uid.as_deref() == Some(uid)))
    }

    async fn delete_if_unowned(
        &self,
        graph: &Graph,
        uid: &str,
        node: &Node,
    ) -> Result<(), CollectError> {
        let Some(live) = self.live(uid, node).await? else {
            return Ok(());
        };
        let owners = live.owner_references.clone().unwrap_or_default();
        if live.deletion_timestamp.is_some() || owners.is_empty() {
            return Ok(());
        }
        let mut states = Vec::with_capacity(owners.len());
        for owner in &owners {
            states.push(self.owner_state(graph, uid, node, owner).await?);
        }
        let is_waited_for = states.contains(&OwnerState::Waiting);
        if states.contains(&OwnerState::Solid) {
            let kept: Vec<&OwnerReference> = owners
                .iter()
                .zip(&states)
                .filter(|(_, state)| **state == OwnerState::Solid)
                .map(|(owner, _)| owner)
                .collect();
            if kept.len() < owners.len() {
                self.patch(node, &live, json!({"ownerReferences": kept}))
                    .await?;
            }
            return Ok(());
        }
        let dependents = graph.dependents(uid);
        if is_waited_for && self.is_in_cycle(graph, &dependents) {
            let unblocked: Vec<OwnerReference> = owners
                .iter()
                .map(|it| OwnerReference {
                    block_owner_deletion: Some(false),
                    ..it.clone()
                })
                .collect();
            self.patch(node, &live, json!({"ownerReferences": unblocked}))
                .await?;
            return self.delete(uid, node, PropagationPolicy::Foreground).await;
        }
        let policy = policy(&live, is_waited_for && !dependents.is_empty());
        self.delete(uid, node, policy).await
    }

    /// Whether something that this object owns waits as well: then both would wait for each other.
    fn is_in_cycle(&self, graph: &Graph, dependents: &[Uid]) -> bool {
        dependents
            .iter()
            .any(|it| graph.get(it).is_some_and(Node::waits_for_dependents))
    }

    async fn owner_state(
        &self,
        graph: &Graph,
        uid: &str,
        node: &Node,
        owner: &OwnerReference,
    ) -> Result<OwnerState, CollectError> {
        let known = graph.get(&owner.uid);
        if let Some(known) = known {
            if known.namespace.is_some() && known.namespace != node.namespace {
                self.report_foreign_owner(uid, node, owner).await;
                return Ok(OwnerState::Dangling);
            }
            return Ok(state_of(owner, known.waits_for_dependents()));
        }
        // Not seen by any watch: ask, it may be younger than the watches are quick.
        let Some(resource) = self.resources.iter().find(|resource| {
            // Any version will do: all of them serve the same objects.
            resource.api.kind == owner.kind && resource.api.group == group_of(&owner.api_version)
        }) else {
            return Err(CollectError::UnknownOwner {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
            });
        };
        if resource.is_namespaced && node.namespace.is_none() {
            return Ok(OwnerState::Dangling);
        }
        let api = self.api(resource, node.namespace.as_deref());
        let found = api.get_opt(&owner.name).await?;
        let same = found.filter(|it| it.metadata.uid.as_deref() == Some(&owner.uid));
        Ok(same.map_or(OwnerState::Dangling, |it| {
            state_of(owner, Node::of(0, &it.metadata).waits_for_dependents())
        }))
    }

    async fn report_foreign_owner(&self, uid: &str, node: &Node, owner: &OwnerReference) {
        let resource = &self.resources[node.resource].api;
        let about = ObjectReference {
            api_version: Some(resource.api_version.clone()),
            kind: Some(resource.kind.clone()),
            namespace: node.namespace.clone(),
            name: Some(node.name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let note = format!(
            "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
            owner.api_version,
            owner.kind,
            node.namespace.as_deref().unwrap_or(""),
            owner.name,
            owner.uid,
            node.namespace.as_deref().unwrap_or("")
        );
        let event = Event {
            type_: EventType::Warning,
            reason: "OwnerRefInvalidNamespace".into(),
            note: Some(note),
            action: "Collecting".into(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(%error, "event not written");
        }
    }

    async fn orphan_dependents(
        &self,
        graph: &Graph,
        uid: &str,
        owner: &Node,
    ) -> Result<(), CollectError> {
        for dependent in graph.dependents(uid) {
            let Some(node) = graph.get(&dependent) else {
                continue;
            };
            let Some(live) = self.live(&dependent, node).await? else {
                continue;
            };
            let mut kept = live.owner_references.clone().unwrap_or_default();
            kept.retain(|reference| reference.uid != uid);
            self.patch(node, &live, json!({"ownerReferences": kept}))
                .await?;
        }
        self.remove_finalizer(uid, owner, FINALIZER_ORPHAN).await
    }

    async fn remove_finalizer(
        &self,
        uid: &str,
        node: &Node,
        finalizer: &str,
    ) -> Result<(), CollectError> {
        let Some(live) = self.live(uid, node).await? else {
            return Ok(());
        };
        let mut finalizers = live.finalizers.clone().unwrap_or_default();
        let n_before = finalizers.len();
        finalizers.retain(|it| it != finalizer);
        if finalizers.len() == n_before {
            return Ok(());
        }
        self.patch(node, &live, json!({"finalizers": finalizers}))
            .await
    }

    /// Changes metadata of exactly the version that was read.
    async fn patch(
        &self,
        node: &Node,
        live: &ObjectMeta,
        mut metadata: serde_json::Value,
    ) -> Result<(), CollectError> {
        metadata["uid"] = json!(live.uid);
        metadata["resourceVersion"] = json!(live.resource_version);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let params = PatchParams::default();
        tolerate_absence(self.api_of(node).patch(&node.name, &params, &patch).await)
    }

    async fn delete(
        &self,
        uid: &str,
        node: &Node,
        policy: PropagationPolicy,
    ) -> Result<(), CollectError> {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        tolerate_absence(self.api_of(node).delete(&node.name, &params).await)
    }
}

/// The group of an `apiVersion`; the core group has no name.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn state_of(owner: &OwnerReference, is_waiting: bool) -> OwnerState {
    if is_waiting && owner.block_owner_deletion.unwrap_or(false) {
        OwnerState::Waiting
    } else {
        OwnerState::Solid
    }
}

/// How to delete a dependent: as its own finalizers say, else in the foreground when its owner
/// waits for its dependents too.
fn policy(live: &ObjectMeta, is_foreground: bool) -> PropagationPolicy {
    let has = |finalizer: &str| live.finalizers.iter().flatten().any(|it| it == finalizer);
    if has(FINALIZER_ORPHAN) {
        PropagationPolicy::Orphan
    } else if is_foreground || has(FINALIZER_FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}

/// Treats "not found" as success: an object that no longer exists needs neither change nor
/// deletion.
fn tolerate_absence<T>(result: Result<T, Error>) -> Result<(), CollectError> {
    match result {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
