//! Objects of a cluster, as JSON: those that are not there, or of a kind that is not served, are no error.

use kube::{Api, api::ListParams, core::DynamicObject};
use longshore_core::{ObjectRef, Patch, Resource, Scope};
use longshore_kit::{Requests, api_resource};
use serde_json::Value;

use crate::error::UninstallError;

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// Reads and removes objects.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    requests: Requests,
}

impl Objects {
    pub(super) fn new(requests: Requests) -> Self {
        Self { requests }
    }

    /// The targets that exist.
    pub(super) async fn existing(
        &self,
        targets: &[ObjectRef],
    ) -> Result<Vec<ObjectRef>, UninstallError> {
        let mut existing = Vec::new();
        for target in targets {
            if self.get(target).await?.is_some() {
                existing.push(target.clone());
            }
        }
        Ok(existing)
    }

    pub(super) async fn get(&self, target: &ObjectRef) -> Result<Option<Value>, UninstallError> {
        Ok(self.requests.get(target).await?)
    }

    /// Deletes those that exist, in order; their names.
    pub(super) async fn delete_all(
        &self,
        targets: &[ObjectRef],
    ) -> Result<Vec<String>, UninstallError> {
        let mut deleted = Vec::new();
        for target in targets {
            match self.requests.delete(target, None).await {
                Ok(_) => deleted.push(name(target)),
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(deleted)
    }

    /// All objects of a resource, in a namespace or everywhere.
    pub(super) async fn list(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, UninstallError> {
        let params = ListParams {
            label_selector: labels.map(str::to_owned),
            ..ListParams::default()
        };
        self.pages(resource, namespace, params).await
    }

    /// The objects of this name in all namespaces. They are a help for the user: without the right to list them, none
    /// are known.
    pub(super) async fn everywhere(
        &self,
        resource: Resource,
        name: &str,
    ) -> Result<Vec<Value>, UninstallError> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        match self.pages(resource, None, params).await {
            Ok(mut found) => {
                found.retain(|object| object["metadata"]["name"] == name);
                Ok(found)
            }
            Err(UninstallError::List { source, .. }) if is_forbidden(&source) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn pages(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        params: ListParams,
    ) -> Result<Vec<Value>, UninstallError> {
        let client = self.requests.client().clone();
        let kind = api_resource(resource);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &kind),
            None => Api::all_with(client, &kind),
        };
        let mut params = params.limit(PAGE);
        let mut objects = Vec::new();
        loop {
            let page = match api.list(&params).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(objects),
                // The page is too old: from the start.
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    params.continue_token = None;
                    objects.clear();
                    continue;
                }
                Err(source) => {
                    let what = format!("list {}", resource.plural);
                    return Err(UninstallError::List {
                        what,
                        source: Box::new(source),
                    });
                }
            };
            for object in page.items {
                objects.extend(serde_json::to_value(object));
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(objects);
            }
        }
    }

    /// Writes one patch. Returns the object after it; `None` where the object changed meanwhile or
    /// is gone, so that the caller reads it again.
    pub(super) async fn patch(&self, patch: &Patch) -> Result<Option<Value>, UninstallError> {
        let body = patch.patch.clone();
        let answer = self
            .requests
            .patch(&patch.target, patch.subresource, patch.kind, body);
        match answer.await {
            Ok(answer) => Ok(Some(answer.object_of(&patch.target)?)),
            Err(error) if error.is_precondition_failure() || error.is_absent() => Ok(None),
            // An API server still calls a webhook that was removed.
            Err(error) if error.code().is_some_and(|code| code >= 500) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// `secret shop/name`.
pub(super) fn name(target: &ObjectRef) -> String {
    let kind = target.resource.kind.to_lowercase();
    match target.resource.scope {
        Scope::Namespaced => format!("{kind} {}/{}", target.namespace, target.name),
        Scope::Cluster => format!("{kind} {}", target.name),
    }
}

/// `namespace/name` of an object.
pub(super) fn name_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}
