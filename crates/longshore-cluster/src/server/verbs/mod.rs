//! The verbs of a resource: one file each.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod delete_collection;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod rewrite;
pub(crate) mod update;
pub(crate) mod watch;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::http::{HeaderValue, Response, StatusCode, header::WARNING};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Server,
    auth::UserInfo,
    error::{ApiError, Result},
    http::{
        body::{self, ApiBody},
        query::Query,
        render::Rendering,
    },
    hub::{Collection, Draft, Key, Object},
    meta,
    registry::{Resource, Strategy},
};

/// How long a read waits for a revision that does not exist yet.
const FUTURE_REVISION_TIMEOUT: Duration = Duration::from_secs(3);

/// A request about the objects of one resource.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    /// Who sent the request.
    pub(crate) user: Arc<UserInfo>,
    /// The resource as the client has addressed it.
    pub(crate) served: Arc<Resource>,
    pub(crate) collection: Arc<Collection>,
    pub(crate) namespace: Option<String>,
    /// Name on the URL; empty for requests about the collection.
    pub(crate) name: String,
    /// The part of the object that the request is about; none for all of it.
    pub(crate) subresource: Option<String>,
    /// The request is about a collection, and this call about one object of it.
    pub(crate) is_of_collection: bool,
    pub(crate) query: Query,
    pub(crate) rendering: Rendering,
    pub(crate) warnings: Warnings,
    /// Cancelled when the client of a write has disconnected.
    pub(crate) client_gone: CancellationToken,
}

/// What the client should know about a request that is answered all the same. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds warnings, each only once: a write may be tried several times.
    pub(crate) fn add(&self, warnings: impl IntoIterator<Item = String>) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            if !said.contains(&warning) {
                said.push(warning);
            }
        }
    }

    fn get(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Call {
    pub(crate) fn resource(&self) -> &Resource {
        &self.collection.resource
    }

    /// The key of the object on the URL.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.as_deref(), &self.name)
    }

    /// The object on the URL.
    pub(crate) fn stored(&self) -> Result<Arc<Object>> {
        self.collection
            .get(&self.key())
            .ok_or_else(|| ApiError::not_found(self.resource(), &self.name))
    }

    /// Waits a little for a revision that clients may know from elsewhere.
    pub(crate) async fn wait_for(&self, revision: u64) -> Result<()> {
        let hub = &self.server.hub;
        if revision <= hub.revision() {
            return Ok(());
        }
        tokio::time::timeout(FUTURE_REVISION_TIMEOUT, hub.reached(revision))
            .await
            .map_err(|_| ApiError::too_new(revision, hub.revision()))
    }

    /// Checks that a body is an object of this resource, completes its type and converts it to the
    /// stored form.
    pub(crate) fn to_stored(&self, object: Value) -> Result<Value> {
        self.to_stored_from(&self.served, object)
    }

    /// Checks and converts as [`to_stored`](Self::to_stored) does, for an object of another form of
    /// this resource.
    pub(crate) fn to_stored_from(&self, served: &Resource, mut object: Value) -> Result<Value> {
        if !object.is_object() {
            let message = "the object provided is unrecognized: expected a JSON object";
            return Err(ApiError::bad_request(message));
        }
        check_type(served, &mut object)?;
        // These objects contain JSON of other schemas, in which null has a meaning.
        let has_free_form_nulls = served.kind == "ControllerRevision"
            || matches!(served.strategy, Strategy::Custom | Strategy::Definition);
        meta::normalise(&mut object, has_free_form_nulls);
        Ok(served.to_stored(object))
    }

    /// A response with a stored object.
    pub(crate) fn respond(&self, code: StatusCode, object: &Object) -> Response<ApiBody> {
        body::json_bytes(code, self.rendering.json(object))
    }

    /// A response with an object that is not stored (any more).
    pub(crate) fn respond_unstored(&self, code: StatusCode, object: Value) -> Response<ApiBody> {
        body::json(code, &self.rendering.value(object))
    }

    /// Adds the warnings to a response.
    pub(crate) fn with_warnings(&self, mut response: Response<ApiBody>) -> Response<ApiBody> {
        for warning in self.warnings.get() {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            // What a header cannot say goes unsaid.
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                response.headers_mut().append(WARNING, value);
            }
        }
        response
    }

    /// Encodes an object for the store.
    pub(crate) fn draft(&self, object: &Value) -> Result<Draft> {
        /// Largest stored object, as etcd's default.
        const OBJECT_LIMIT: usize = 1_572_864;
        let draft = Draft::new(self.resource(), object);
        if draft.size() > OBJECT_LIMIT {
            Err(ApiError::too_large(OBJECT_LIMIT))
        } else {
            Ok(draft)
        }
    }
}

/// Refuses objects of another type; one without type gets that of the resource.
fn check_type(served: &Resource, object: &mut Value) -> Result<()> {
    let (version, kind) = (served.api_version(), &served.kind);
    let found_version = meta::text(object, "/apiVersion");
    if !found_version.is_empty() && found_version != version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API version ({version})"
        )));
    }
    let found_kind = meta::text(object, "/kind");
    if !found_kind.is_empty() && found_kind != kind {
        let message = format!("{found_kind} in version {version:?} cannot be handled as a {kind}");
        return Err(ApiError::bad_request(message));
    }
    object["apiVersion"] = version.into();
    object["kind"] = kind.as_str().into();
    Ok(())
}
