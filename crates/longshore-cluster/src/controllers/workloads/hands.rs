//! The requests that the controllers of workloads make.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{
        Endpoints, ObjectReference, PersistentVolumeClaim, Pod, ReplicationController, Service,
    },
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    discovery::ApiResource,
    runtime::events::{Event, EventType, Reporter},
};
use longshore_k8s::Selector;
use serde_json::{Value, json};

use super::body::Body;
use crate::controllers::{patience::patiently, recorder::Recorder};

/// The kinds that are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Pod,
    Claim,
    Service,
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    Revision,
    Slice,
    Endpoints,
    Job,
}

impl Target {
    fn resource(self) -> ApiResource {
        match self {
            Target::Pod => ApiResource::erase::<Pod>(&()),
            Target::Claim => ApiResource::erase::<PersistentVolumeClaim>(&()),
            Target::Service => ApiResource::erase::<Service>(&()),
            Target::Deployment => ApiResource::erase::<Deployment>(&()),
            Target::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
            Target::ReplicationController => ApiResource::erase::<ReplicationController>(&()),
            Target::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            Target::Revision => ApiResource::erase::<ControllerRevision>(&()),
            Target::Slice => ApiResource::erase::<EndpointSlice>(&()),
            Target::Endpoints => ApiResource::erase::<Endpoints>(&()),
            Target::Job => ApiResource::erase::<Job>(&()),
        }
    }
}

/// One write. Each names the uid of what it was decided on, so that it cannot hit another object of
/// that name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    Create {
        target: Target,
        object: Value,
    },
    /// A merge patch; what it must not hit is in its `metadata`.
    Patch {
        target: Target,
        name: String,
        patch: Value,
    },
    /// A merge patch of the status.
    PatchStatus {
        target: Target,
        name: String,
        patch: Value,
    },
    Delete {
        target: Target,
        name: String,
        uid: String,
    },
    /// An Event about the object; a failure to write it does not fail the round.
    Announce(Note),
}

/// An Event about the object of the round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Note {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, text: String) -> Note {
        Note {
            is_warning: false,
            reason,
            text,
        }
    }

    pub(crate) fn warning(reason: &'static str, text: String) -> Note {
        Note {
            is_warning: true,
            reason,
            text,
        }
    }
}

/// The reporting controller of an Event, by upstream's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Speaker {
    Deployments,
    ReplicaSets,
    ReplicationControllers,
    StatefulSets,
    EndpointSlices,
    Endpoints,
    Jobs,
}

impl Speaker {
    fn reporter(self) -> Reporter {
        let controller = match self {
            Speaker::Deployments => "deployment-controller",
            Speaker::ReplicaSets => "replicaset-controller",
            Speaker::ReplicationControllers => "replication-controller",
            Speaker::StatefulSets => "statefulset-controller",
            Speaker::EndpointSlices => "endpoint-slice-controller",
            Speaker::Endpoints => "endpoint-controller",
            Speaker::Jobs => "job-controller",
        };
        Reporter {
            controller: controller.into(),
            instance: None,
        }
    }
}

/// Reads and writes objects.
pub(crate) struct Hands {
    client: Client,
    /// Each counts the Events that say the same.
    recorders: BTreeMap<Speaker, Recorder>,
}

impl Hands {
    pub(crate) fn new(client: Client) -> Hands {
        let speakers = [
            Speaker::Deployments,
            Speaker::ReplicaSets,
            Speaker::ReplicationControllers,
            Speaker::StatefulSets,
            Speaker::EndpointSlices,
            Speaker::Endpoints,
            Speaker::Jobs,
        ];
        let recorder = |it: Speaker| (it, Recorder::new(client.clone(), it.reporter()));
        Hands {
            recorders: speakers.into_iter().map(recorder).collect(),
            client,
        }
    }

    fn api(&self, target: Target, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &target.resource())
    }

    /// Pods, typed.
    pub(crate) async fn pods(
        &self,
        namespace: &str,
        selector: &Selector,
        strays: &[String],
    ) -> Result<Vec<Pod>, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().labels(&selector.to_string());
        let mut pods = patiently(|| api.list(&params)).await?.items;
        pods.extend(self.pods_named(namespace, strays).await?);
        Ok(pods)
    }

    /// The pods of these names that there are.
    pub(crate) async fn pods_named(
        &self,
        namespace: &str,
        names: &[String],
    ) -> Result<Vec<Pod>, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut pods = Vec::new();
        for name in names {
            pods.extend(patiently(|| api.get_opt(name)).await?);
        }
        Ok(pods)
    }

    /// The object as it is now.
    pub(crate) async fn read(
        &self,
        target: Target,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Body>, Error> {
        let api = self.api(target, namespace);
        let found = patiently(|| api.get_opt(name)).await?;
        Ok(found.map(Body::from))
    }

    /// All objects with these labels; an empty text stands for all.
    pub(crate) async fn list(
        &self,
        target: Target,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Body>, Error> {
        let api = self.api(target, namespace);
        let mut params = ListParams::default();
        if !labels.is_empty() {
            params = params.labels(labels);
        }
        let found = patiently(|| api.list(&params)).await?;
        Ok(found.items.into_iter().map(Body::from).collect())
    }

    /// Creates an object. Returns the name that it got.
    pub(crate) async fn create(
        &self,
        namespace: &str,
        target: Target,
        object: &Value,
    ) -> Result<String, Error> {
        let resource = target.resource();
        let mut object = object.clone();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        let object: DynamicObject = serde_json::from_value(object).map_err(Error::SerdeError)?;
        let api = self.api(target, namespace);
        let made = api.create(&PostParams::default(), &object).await?;
        Ok(made.metadata.name.unwrap_or_default())
    }

    /// Makes one request. Returns success for a pod that no longer exists, and for one that was
    /// replaced by an object with another uid: neither is changed or deleted.
    pub(crate) async fn send(
        &self,
        speaker: Speaker,
        about: &ObjectReference,
        request: &Request,
    ) -> Result<(), Error> {
        let namespace = about.namespace.as_deref().unwrap_or_default();
        match request {
            Request::Create { target, object } => {
                self.create(namespace, *target, object).await.map(|_| ())
            }
            Request::Patch {
                target,
                name,
                patch,
            } => {
                let (api, params) = (self.api(*target, namespace), PatchParams::default());
                tolerate_absence(api.patch(name, &params, &Patch::Merge(patch)).await)
            }
            Request::PatchStatus {
                target,
                name,
                patch,
            } => {
                let (api, params) = (self.api(*target, namespace), PatchParams::default());
                tolerate_absence(api.patch_status(name, &params, &Patch::Merge(patch)).await)
            }
            Request::Delete { target, name, uid } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid.clone()),
                        resource_version: None,
                    }),
                    ..DeleteParams::background()
                };
                tolerate_absence(self.api(*target, namespace).delete(name, &params).await)
            }
            Request::Announce(note) => {
                self.announce(speaker, about, note).await;
                Ok(())
            }
        }
    }

    /// Deletes an object, which stays until everything that it owns is gone.
    pub(crate) async fn delete_in_foreground(
        &self,
        target: Target,
        object: &Body,
    ) -> Result<(), Error> {
        let namespace = object.meta.namespace.as_deref().unwrap_or_default();
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: object.meta.uid.clone(),
                resource_version: object.meta.resource_version.clone(),
            }),
            ..DeleteParams::foreground()
        };
        let api = self.api(target, namespace);
        tolerate_absence(api.delete(object.name(), &params).await)
    }

    /// Makes the requests in their order and stops at the first failure.
    pub(crate) async fn send_all(
        &self,
        speaker: Speaker,
        about: &ObjectReference,
        requests: &[Request],
    ) -> Result<(), Error> {
        for request in requests {
            self.send(speaker, about, request).await?;
        }
        Ok(())
    }

    /// Publishes an Event: best effort.
    pub(crate) async fn announce(&self, speaker: Speaker, about: &ObjectReference, note: &Note) {
        let event = Event {
            type_: if note.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: note.reason.into(),
            note: Some(note.text.clone()),
            action: note.reason.into(),
            secondary: None,
        };
        let Some(recorder) = self.recorders.get(&speaker) else {
            return;
        };
        if let Err(error) = recorder.publish(&event, about).await {
            tracing::debug!(%error, reason = note.reason, "event not written");
        }
    }
}

/// What names an object in its Events.
pub(crate) fn reference(target: Target, object: &Body) -> ObjectReference {
    let resource = target.resource();
    ObjectReference {
        api_version: Some(resource.api_version),
        kind: Some(resource.kind),
        namespace: object.meta.namespace.clone(),
        name: object.meta.name.clone(),
        uid: object.meta.uid.clone(),
        ..ObjectReference::default()
    }
}

fn tolerate_absence<T>(result: Result<T, Error>) -> Result<(), Error> {
    match result {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
