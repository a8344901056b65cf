//! JSON requests to the API server, and the one place that says what an answer means.

use std::{fmt, time::Duration};

use kube::{
    Client,
    api::{
        DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy, Request,
    },
    core::Status,
};
use longshore_core::{
    Class, Classify, Delete, ObjectRef, PatchKind, Resource, Scope, Unknown, UnknownCause, error,
    text::shorten,
};
use longshore_k8s::metadata::parse_version;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::lease::NotLeader;

/// A request that is not answered within this time counts as lost: a hung connection must not hold a key for ever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads and writes objects as JSON, so that fields that our types do not know survive.
#[derive(Clone)]
pub struct Requests {
    client: Client,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    /// Requests through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client, for the watches and typed reads of `observe`.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The object as it is now; `None` where it does not exist.
    pub async fn get(&self, target: &ObjectRef) -> Result<Option<Value>, ApiError> {
        let path = path(&target.resource, &target.namespace);
        let request = Request::new(path).get(&target.name, &Default::default());
        match self.send("get", target, request).await {
            Ok(answer) => answer.object_of(target).map(Some),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates `object`, which carries the name and the namespace of `target`.
    pub async fn create(&self, target: &ObjectRef, object: &Value) -> Result<Answer, ApiError> {
        let path = path(&target.resource, &target.namespace);
        let body = object.to_string().into_bytes();
        let request = Request::new(path).create(&PostParams::default(), body);
        self.send("create", target, request).await
    }

    /// Patches the object, or one of its subresources, with a body that carries its own preconditions.
    pub async fn patch(
        &self,
        target: &ObjectRef,
        subresource: Option<&str>,
        kind: PatchKind,
        body: Value,
    ) -> Result<Answer, ApiError> {
        let patch = match kind {
            PatchKind::Merge => Patch::Merge(body),
            PatchKind::Strategic => Patch::Strategic(body),
            PatchKind::Json => Patch::Json(
                serde_json::from_value(body)
                    .map_err(|source| ApiError::new("patch", target, Cause::NotAPatch(source)))?,
            ),
        };
        let path = Request::new(path(&target.resource, &target.namespace));
        let params = PatchParams::default();
        let request = match subresource {
            None => path.patch(&target.name, &params, &patch),
            Some(name) => path.patch_subresource(name, &target.name, &params, &patch),
        };
        self.send("patch", target, request).await
    }

    /// Deletes the incarnation of the object that `target` names; the answer is the object or a `Status`.
    pub async fn delete(
        &self,
        target: &ObjectRef,
        grace_period_seconds: Option<u32>,
    ) -> Result<Answer, ApiError> {
        let delete = Delete {
            target: target.clone(),
            grace_period_seconds,
            resource_version: None,
            waits_for_dependents: false,
        };
        self.delete_as(&delete).await
    }

    /// The same, as a plan has it.
    pub async fn delete_as(&self, delete: &Delete) -> Result<Answer, ApiError> {
        let target = &delete.target;
        let params = DeleteParams {
            grace_period_seconds: delete.grace_period_seconds,
            propagation_policy: delete
                .waits_for_dependents
                .then_some(PropagationPolicy::Foreground),
            preconditions: target.uid.clone().map(|uid| Preconditions {
                uid: Some(uid),
                resource_version: delete.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        let path = path(&target.resource, &target.namespace);
        let request = Request::new(path).delete(&target.name, &params);
        self.send("delete", target, request).await
    }

    /// Evicts the incarnation of the pod that `target` names: a delete that its disruption budget may refuse.
    pub async fn evict(&self, target: &ObjectRef) -> Result<Answer, ApiError> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "deleteOptions": {"preconditions": {"uid": target.uid}},
        });
        let path = Request::new(path(&target.resource, &target.namespace));
        let (params, body) = (PostParams::default(), eviction.to_string().into_bytes());
        let request = path.create_subresource("eviction", &target.name, &params, body);
        self.send("evict", target, request).await
    }

    async fn send(
        &self,
        verb: &'static str,
        target: &ObjectRef,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Answer, ApiError> {
        let fail = |cause| ApiError::new(verb, target, cause);
        let request = request.map_err(|source| fail(Cause::NotARequest(source)))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(Answer(text)),
            Ok(Err(error)) => Err(fail(Cause::from(error))),
            Err(_elapsed) => Err(fail(Cause::Timeout(REQUEST_TIMEOUT))),
        }
    }
}

/// An object or a `Status`, as the text that the API server sent: most answers only go into a cache, which holds what
/// it needs of them.
#[derive(Clone, Debug)]
pub struct Answer(String);

impl Answer {
    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// All of it, as the object that was asked about.
    ///
    /// # Errors
    /// The answer is not JSON.
    pub fn object_of(&self, target: &ObjectRef) -> Result<Value, ApiError> {
        serde_json::from_str(&self.0).map_err(|source| ApiError::unreadable(target, source))
    }

    /// The `resourceVersion` of the object; `None` where it says none.
    pub(crate) fn version(&self) -> Option<u64> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            resource_version: String,
        }

        let object: Object = serde_json::from_str(&self.0).ok()?;
        parse_version(&object.metadata.resource_version)
    }
}

/// From a live read, where that shows what a write would have been answered with.
impl From<Value> for Answer {
    fn from(object: Value) -> Self {
        Self(object.to_string())
    }
}

/// The path of a collection: `/api/v1/namespaces/default/pods`.
fn path(resource: &Resource, namespace: &str) -> String {
    let root = if resource.group.is_empty() {
        "/api"
    } else {
        "/apis"
    };
    let api_version = resource.api_version();
    let plural = resource.plural;
    match resource.scope {
        Scope::Namespaced => format!("{root}/{api_version}/namespaces/{namespace}/{plural}"),
        Scope::Cluster => format!("{root}/{api_version}/{plural}"),
    }
}

/// A request that failed, with what was asked of which object.
#[derive(Debug, thiserror::Error)]
#[error("{verb} of {target} failed")]
pub struct ApiError {
    verb: &'static str,
    target: String,
    #[source]
    cause: Cause,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The API server refused.
    #[error("the API server answered {} {}: {}", .0.code, .0.reason, .0.message)]
    Answer(Box<Status>),
    /// No answer in time: whether the request took effect is unknown.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// Another process acts.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The connection failed: whether the request took effect is unknown.
    #[error("no answer")]
    NoAnswer(#[source] Box<kube::Error>),
    /// An answer that is not JSON.
    #[error("the answer is not readable")]
    Unreadable(#[source] serde_json::Error),
    /// The request could not be built.
    #[error("the request cannot be built")]
    NotARequest(#[source] kube::core::request::Error),
    /// A JSON patch that is none.
    #[error("expected a JSON patch (RFC 6902)")]
    NotAPatch(#[source] serde_json::Error),
}

impl From<kube::Error> for Cause {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "kube's own errors: whatever is neither an answer nor a parse failure is a failed connection"
    )]
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Answer(status),
            kube::Error::SerdeError(source) => Self::Unreadable(source),
            kube::Error::BuildRequest(source) => Self::NotARequest(source),
            kube::Error::Service(error) if error.is::<NotLeader>() => Self::NotLeader(NotLeader),
            other => Self::NoAnswer(Box::new(other)),
        }
    }
}

impl ApiError {
    pub(crate) fn new(verb: &'static str, target: &ObjectRef, cause: Cause) -> Self {
        Self {
            verb,
            target: target.to_string(),
            cause,
        }
    }

    /// An answer that does not have the shape of its kind.
    pub fn unreadable(target: &ObjectRef, source: serde_json::Error) -> Self {
        Self::new("get", target, Cause::Unreadable(source))
    }

    /// A request that was not answered within `limit`.
    pub(crate) fn timeout(verb: &'static str, target: &ObjectRef, limit: Duration) -> Self {
        Self::new(verb, target, Cause::Timeout(limit))
    }

    /// Whether it was not sent, because we do not hold the lease.
    pub fn is_not_leader(&self) -> bool {
        matches!(self.cause, Cause::NotLeader(_))
    }

    /// The HTTP status of the answer, where there was one.
    pub fn code(&self) -> Option<u16> {
        self.answer().map(|status| status.code)
    }

    /// Whether there is no such object: also where the API server does not serve its kind (404), or says that it does not
    /// implement it (501, the embedded one).
    pub fn is_absent(&self) -> bool {
        matches!(self.code(), Some(404 | 501))
    }

    /// The API server's own words, where there was an answer.
    pub fn message(&self) -> Option<&str> {
        self.answer().map(|status| status.message.as_str())
    }

    /// Whether a create met an object of the same name.
    pub fn is_already_exists(&self) -> bool {
        self.answer().is_some_and(Status::is_already_exists)
    }

    /// Whether a precondition (uid or version) did not hold. API servers answer 409, or 422 naming the field where a
    /// patch carried another uid.
    pub fn is_precondition_failure(&self) -> bool {
        self.answer().is_some_and(|status| match status.code {
            409 => !status.is_already_exists(),
            422 => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                causes
                    .into_iter()
                    .any(|cause| cause.field == "metadata.uid")
            }
            _ => false,
        })
    }

    /// Whether the namespace takes no new objects, because it is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.answer().is_some_and(|status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            causes
                .into_iter()
                .any(|cause| cause.reason == "NamespaceTerminating")
        })
    }

    /// Whether a quota is used up.
    pub fn is_over_quota(&self) -> bool {
        self.answer()
            .is_some_and(|status| status.code == 403 && is_about_quota(&status.message))
    }

    /// Whether the object, or the request for it, is larger than the API server or its store takes.
    pub fn is_too_large(&self) -> bool {
        self.answer()
            .is_some_and(|status| is_about_size(status.code, &status.message))
    }

    /// How long the API server asked us to stay away.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.answer()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// What a read that failed so leaves unknown.
    pub fn to_unknown(&self) -> Unknown {
        let cause = match &self.cause {
            Cause::Answer(status) => match status.code {
                401 | 403 => UnknownCause::Forbidden,
                410 => UnknownCause::Expired,
                _ => UnknownCause::Unreachable,
            },
            Cause::Timeout(_) | Cause::NotLeader(_) | Cause::NoAnswer(_) => {
                UnknownCause::Unreachable
            }
            Cause::Unreadable(_) | Cause::NotARequest(_) | Cause::NotAPatch(_) => {
                UnknownCause::NotUnderstood
            }
        };
        Unknown::new(cause, shorten(error::chain(self)))
    }

    fn answer(&self) -> Option<&Status> {
        match &self.cause {
            Cause::Answer(status) => Some(status),
            Cause::Timeout(_)
            | Cause::NotLeader(_)
            | Cause::NoAnswer(_)
            | Cause::Unreadable(_)
            | Cause::NotARequest(_)
            | Cause::NotAPatch(_) => None,
        }
    }
}

impl Classify for ApiError {
    fn class(&self) -> Class {
        match &self.cause {
            Cause::Answer(status) => class_of(status.code, &status.message),
            Cause::NotLeader(not_leader) => not_leader.class(),
            Cause::Timeout(_) | Cause::NoAnswer(_) | Cause::Unreadable(_) => Class::Retry,
            Cause::NotARequest(_) | Cause::NotAPatch(_) => Class::Bug,
        }
    }
}

/// What an HTTP status of the API server means. 401 is for expired tokens, which the client renews; 410 for a version
/// that is no longer kept. A quota that is used up is no mistake of the request: it passes when something else ends. An
/// object that is too large stays so, whatever the status.
fn class_of(code: u16, message: &str) -> Class {
    match code {
        403 if is_about_quota(message) => Class::Retry,
        _ if is_about_size(code, message) => Class::Invalid,
        401 | 408 | 410 | 429 | 500..=599 => Class::Retry,
        409 => Class::Conflict,
        400 | 403 | 404 | 405 | 413 | 422 => Class::Invalid,
        _ => Class::Bug,
    }
}

fn is_about_quota(message: &str) -> bool {
    message.contains("exceeded quota")
}

/// An API server refuses a body above 3 MiB with 413. It passes on what its etcd says of an object above 1.5 MiB, and what
/// its own client says of one above 2 MiB, with 500.
fn is_about_size(code: u16, message: &str) -> bool {
    const OF_ETCD: [&str; 3] = [
        "etcdserver: request is too large",
        "trying to send message larger than max",
        "received message larger than max",
    ];
    code == 413 || code >= 500 && OF_ETCD.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_class() {
        let table = [
            (400, Class::Invalid),
            (401, Class::Retry),
            (403, Class::Invalid),
            (404, Class::Invalid),
            (409, Class::Conflict),
            (410, Class::Retry),
            (413, Class::Invalid),
            (418, Class::Bug),
            (422, Class::Invalid),
            (429, Class::Retry),
            (500, Class::Retry),
            (504, Class::Retry),
        ];
        for (code, class) in table {
            assert_eq!(class_of(code, "no"), class, "{code}");
        }
    }

    #[test]
    fn a_quota_that_is_used_up_may_pass() {
        let message = "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        assert_eq!(class_of(403, message), Class::Retry);
        assert_eq!(class_of(422, message), Class::Invalid);
    }

    #[test]
    fn an_object_that_is_too_large_is_so_whatever_the_status() {
        let of_client = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2 vs. 1)";
        for (code, message, expected) in [
            (413, "Request entity too large: limit is 3145728", true),
            (500, "etcdserver: request is too large", true),
            (500, of_client, true),
            (
                503,
                "grpc: received message larger than max (2 vs. 1)",
                true,
            ),
            (500, "etcdserver: leader changed", false),
            // A user's own words, in a refusal for another reason.
            (409, "etcdserver: request is too large", false),
        ] {
            assert_eq!(is_about_size(code, message), expected, "{code} {message}");
            let is_invalid = class_of(code, message) == Class::Invalid;
            assert_eq!(is_invalid, expected, "{code} {message}");
        }
    }

    #[test]
    fn paths_follow_group_and_scope() {
        assert_eq!(
            path(&Resource::POD, "default"),
            "/api/v1/namespaces/default/pods"
        );
        let crd = Resource {
            group: "apiextensions.k8s.io",
            version: "v1",
            kind: "CustomResourceDefinition",
            plural: "customresourcedefinitions",
            scope: Scope::Cluster,
        };
        assert_eq!(
            path(&crd, ""),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        );
    }
}
