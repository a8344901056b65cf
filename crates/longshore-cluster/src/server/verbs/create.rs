//! POST of a new object.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;

use super::Call;
use crate::server::{
    admission::{
        Operation, Question, admit_runtime_class, admit_service_account, check_runtime_class,
    },
    authz::check_escalation,
    error::{ApiError, Cause, Result},
    http::body::ApiBody,
    hub::{Change, CommitError, Expected, Key, Object},
    meta, names,
    registry::Strategy,
    strategy, unserved,
};

/// Attempts at finding a free generated name.
const NAME_ATTEMPTS: usize = 8;
/// Attempts at taking what only one object may have, against concurrent writers.
const CLAIM_ATTEMPTS: usize = 64;

/// Creates the object in the body.
pub(crate) async fn create(call: &Call, object: Value) -> Result<Response<ApiBody>> {
    let is_dry_run = call.query.is_dry_run()?;
    match create_object(call, object, is_dry_run).await? {
        Created::Stored(object) => Ok(call.respond(StatusCode::CREATED, &object)),
        Created::Imagined(object) => Ok(call.respond_unstored(StatusCode::CREATED, object)),
    }
}

/// A created object.
#[derive(Debug)]
pub(crate) enum Created {
    Stored(Arc<Object>),
    /// What a dry run would have stored.
    Imagined(Value),
}

/// Creates an object whose type has not been checked yet.
pub(crate) async fn create_object(call: &Call, object: Value, is_dry_run: bool) -> Result<Created> {
    if call
        .served
        .custom
        .as_ref()
        .is_some_and(|custom| custom.is_terminating)
    {
        return Err(ApiError::terminating_definition());
    }
    let resource = call.resource();
    let question = Question::new(call, Operation::Create, is_dry_run);
    let mut object = admit(call, &question, object).await?;
    let is_generated = meta::name(&object).is_empty();
    let base = meta::text(&object, "/metadata/generateName").to_owned();
    // A later attempt begins with what the client has sent: this one completes it.
    let is_retried = is_generated || resource.strategy == Strategy::Service;
    let fresh = is_retried.then(|| object.clone());
    let (mut n_names, mut n_claims) = (0, 0);
    while n_names < NAME_ATTEMPTS && n_claims < CLAIM_ATTEMPTS {
        if let Some(fresh) = fresh.as_ref().filter(|_| n_names + n_claims > 0) {
            object = fresh.clone();
        }
        if is_generated && !base.is_empty() {
            let name = names::generate(&base, call.server.random.next());
            meta::metadata(&mut object).insert("name".into(), name.into());
        }
        strategy::finish_create(resource, &mut object);
        call.server.allocate(&call.collection, &mut object, None)?;
        validate(call, &object)?;
        check_runtime_class(call, &object)?;
        call.warnings.add(unserved::warnings(&call.served, &object));
        question.validate(Some(&object), None).await?;
        let name = meta::name(&object);
        let key = Key::new(call.namespace.as_deref(), name);
        if is_dry_run {
            return match call.collection.get(&key) {
                Some(_) => Err(taken(call, &key, name)),
                None => Ok(Created::Imagined(object)),
            };
        }
        let change = Change::Put(call.draft(&object)?);
        match call
            .server
            .hub
            .commit(&call.collection, key, Expected::Absent, change)
            .await
        {
            Ok(stored) => {
                call.server.after_write(&call.collection, &stored).await;
                return Ok(Created::Stored(stored));
            }
            Err(CommitError::Claimed) => n_claims += 1,
            Err(CommitError::Raced) if is_generated => n_names += 1,
            Err(CommitError::Raced) => {
                let key = Key::new(call.namespace.as_deref(), name);
                return Err(taken(call, &key, name));
            }
            Err(error @ CommitError::Store(_)) => return Err(ApiError::internal(error)),
        }
    }
    Err(ApiError::already_exists(resource, meta::name(&object)))
}

/// The object as clients and webhooks want it, complete but for its name and what it is given.
async fn admit(call: &Call, question: &Question<'_>, object: Value) -> Result<Value> {
    let mut object = call.to_stored(object)?;
    place(call, &mut object)?;
    let resource = call.resource();
    if !meta::text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(ApiError::unexplained(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    wipe(&mut object);
    require_live_namespace(call, &object)?;
    let object = admit_service_account(call, object).await?;
    let object = admit_runtime_class(call, object)?;
    let mut object = question.mutate(object, None).await?;
    place(call, &mut object)?;
    check_escalation(call, &object, None)?;
    wipe(&mut object);
    if resource.strategy == Strategy::SigningRequest {
        strategy::signing_requests::name_requester(&mut object, &call.user);
    }
    if resource.has_generation {
        meta::metadata(&mut object).insert("generation".into(), 1.into());
    }
    strategy::prepare_create(resource, &mut object);
    call.server.stamp(&mut object);
    Ok(object)
}

/// Takes away what only the server sets.
fn wipe(object: &mut Value) {
    let metadata = meta::metadata(object);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        metadata.remove(key);
    }
}

/// The refusal of a name that another object has.
fn taken(call: &Call, key: &Key, name: &str) -> ApiError {
    let other = call.collection.get(key);
    if other.is_some_and(|other| meta::is_deleting(&other.value())) {
        ApiError::being_deleted(call.resource(), name)
    } else {
        ApiError::already_exists(call.resource(), name)
    }
}

/// Puts the object into the namespace of the URL.
pub(crate) fn place(call: &Call, object: &mut Value) -> Result<()> {
    let found = meta::text(object, "/metadata/namespace").to_owned();
    match &call.namespace {
        Some(namespace) if found.is_empty() || found == *namespace => {
            meta::metadata(object).insert("namespace".into(), namespace.as_str().into());
            Ok(())
        }
        Some(_) => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        None => {
            meta::metadata(object).remove("namespace");
            Ok(())
        }
    }
}

/// Refuses new objects in namespaces that are missing or going.
fn require_live_namespace(call: &Call, object: &Value) -> Result<()> {
    let Some(name) = &call.namespace else {
        return Ok(());
    };
    let Some(namespaces) = call.server.registry.find("", "v1", "namespaces") else {
        return Ok(());
    };
    let Some(namespace) = namespaces.collection.get(&Key::new(None, name)) else {
        return Err(ApiError::not_found(&namespaces.resource, name));
    };
    // The only selectable field of namespaces is their phase.
    if namespace
        .facets
        .fields
        .first()
        .is_none_or(|phase| phase != "Terminating")
    {
        return Ok(());
    }
    let why =
        format!("unable to create new content in namespace {name} because it is being terminated");
    let cause = format!("namespace {name} is being terminated");
    Err(
        ApiError::forbidden(call.resource(), meta::name(object), &why)
            .because("NamespaceTerminating", &cause),
    )
}

fn validate(call: &Call, object: &Value) -> Result<()> {
    let resource = call.resource();
    let name = meta::name(object);
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        let violations = resource.names.violations(name);
        causes.extend(
            violations
                .iter()
                .map(|why| Cause::invalid("metadata.name", &name.into(), why)),
        );
    }
    causes.extend(meta::violations(object));
    causes.extend(strategy::violations(&call.served, object, None));
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid_object(resource, name, causes))
    }
}
