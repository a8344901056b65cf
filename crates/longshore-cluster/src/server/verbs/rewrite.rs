//! Read, change, write again: what every write to an existing object goes through.

use std::sync::Arc;

use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use super::Call;
use crate::server::{
    admission::{Operation, Question},
    authz::{check_escalation, check_signer},
    error::{ApiError, Cause, Result},
    http::body::ApiBody,
    hub::{Change, CommitError, Expected, Object},
    meta,
    registry::{Resource, StatusWrites, Strategy},
    strategy, unserved,
};

/// Attempts of one request against concurrent writers.
const ATTEMPTS: usize = 64;

/// Which part of an object a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status.
    Main,
    /// The status, and what the resource lets through with it.
    Status,
    /// The decision about a request for a certificate: the conditions of its status.
    Approval,
    /// A subresource that has computed the whole object itself.
    Private,
    /// The same, for a pod that gets ephemeral containers.
    Ephemeral,
    /// The same, for a pod that gets its node: that is no change of what its author wants, so its generation stays.
    Binding,
}

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Rewritten {
    /// Stored; also when there was nothing to change.
    Stored(Arc<Object>),
    /// The write was the last that deletion had waited for: the object is gone. Or nothing was
    /// stored (dry run).
    Unstored(Value),
}

impl Rewritten {
    /// The answer to the client.
    pub(crate) fn respond(&self, call: &Call) -> Response<ApiBody> {
        match self {
            Rewritten::Stored(object) => call.respond(StatusCode::OK, object),
            Rewritten::Unstored(object) => call.respond_unstored(StatusCode::OK, object.clone()),
        }
    }

    /// The object as it is now.
    pub(crate) fn value(&self) -> Value {
        match self {
            Rewritten::Stored(object) => object.value(),
            Rewritten::Unstored(object) => object.clone(),
        }
    }
}

/// Rewrites the object on the URL with `change`, and tries again if another client has written it
/// meanwhile. Webhooks are called at each attempt.
pub(crate) async fn rewrite(
    call: &Call,
    part: Part,
    change: impl Fn(&Value) -> Result<Value>,
) -> Result<Rewritten> {
    let is_dry_run = call.query.is_dry_run()?;
    let question = Question::new(call, Operation::Update, is_dry_run);
    rewrite_with(call, part, change, Some(&question)).await
}

/// Rewrites without calling webhooks: they were called for the request that this write is a part
/// of.
pub(crate) async fn rewrite_unasked(
    call: &Call,
    part: Part,
    change: impl Fn(&Value) -> Result<Value>,
) -> Result<Rewritten> {
    rewrite_with(call, part, change, None).await
}

async fn rewrite_with(
    call: &Call,
    part: Part,
    change: impl Fn(&Value) -> Result<Value>,
    question: Option<&Question<'_>>,
) -> Result<Rewritten> {
    let is_dry_run = call.query.is_dry_run()?;
    for _ in 0..ATTEMPTS {
        let stored = call.stored()?;
        let old = match &call.resource().custom {
            // What the definition says now holds for what was stored before.
            Some(_) => call.resource().to_served(stored.value()),
            None => stored.value(),
        };
        let mut new = call.to_stored(change(&call.served.to_served(old.clone()))?)?;
        check_identity(call, &new, &old)?;
        if let Some(question) = question {
            new = question.mutate(new, Some(&old)).await?;
            check_identity(call, &new, &old)?;
        }
        check_escalation(call, &new, Some(&old))?;
        check_signer(call, &new, &old)?;
        check_version(call, &new, &old)?;
        if part == Part::Main {
            call.server
                .allocate(&call.collection, &mut new, Some(&old))?;
        }
        prepare(call.resource(), part, &mut new, &old, call.server.now());
        let is_same = new == old;
        if !is_same {
            validate(&call.served, part, &new, &old)?;
            if part == Part::Main {
                call.warnings.add(unserved::warnings(&call.served, &new));
            }
        }
        if let Some(question) = question {
            question.validate(Some(&new), Some(&old)).await?;
        }
        if is_same {
            return Ok(Rewritten::Stored(stored));
        }
        if is_dry_run {
            return Ok(Rewritten::Unstored(new));
        }
        let expected = Expected::At(stored.revision);
        let is_last = is_deletion_complete(call.resource(), &new);
        let change = if is_last {
            Change::Delete
        } else {
            Change::Put(call.draft(&new)?)
        };
        match call
            .server
            .hub
            .commit(&call.collection, call.key(), expected, change)
            .await
        {
            Ok(_) if is_last => {
                call.server.after_removal(&call.collection).await;
                return Ok(Rewritten::Unstored(new));
            }
            Ok(object) => {
                call.server.after_write(&call.collection, &object).await;
                return Ok(Rewritten::Stored(object));
            }
            Err(CommitError::Raced | CommitError::Claimed) => {}
            Err(error @ CommitError::Store(_)) => return Err(ApiError::internal(error)),
        }
    }
    Err(ApiError::modified(call.resource(), &call.name))
}

/// Whether a deleted object has nothing left to wait for.
pub(crate) fn is_deletion_complete(resource: &Resource, object: &Value) -> bool {
    let grace = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    let has_content = resource.strategy == Strategy::Namespace
        && object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty());
    meta::is_deleting(object)
        && grace.unwrap_or(0) == 0
        && meta::finalizers(object).is_empty()
        && !has_content
}

/// Refuses to turn an object into another one.
fn check_identity(call: &Call, new: &Value, old: &Value) -> Result<()> {
    let resource = call.resource();
    let name = meta::name(new);
    if name != call.name {
        let message = if name.is_empty() {
            "the name of the object must be specified".to_owned()
        } else {
            format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.name
            )
        };
        return Err(ApiError::bad_request(message));
    }
    let namespace = meta::text(new, "/metadata/namespace");
    if !namespace.is_empty() && call.namespace.as_deref() != Some(namespace) {
        let expected = call.namespace.as_deref().unwrap_or("");
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the URL ({expected})"
        )));
    }
    if differs(new, old, "/metadata/uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            meta::text(new, "/metadata/uid"),
            meta::text(old, "/metadata/uid")
        );
        return Err(ApiError::conflict(resource, name, &why));
    }
    Ok(())
}

/// Refuses to write over a version that the client has not seen.
fn check_version(call: &Call, new: &Value, old: &Value) -> Result<()> {
    if differs(new, old, "/metadata/resourceVersion") {
        return Err(ApiError::modified(call.resource(), meta::name(new)));
    }
    Ok(())
}

/// Whether a text is given, and another one than before.
fn differs(new: &Value, old: &Value, pointer: &str) -> bool {
    let asked = meta::text(new, pointer);
    !asked.is_empty() && asked != meta::text(old, pointer)
}

/// Takes back what this write may not change.
fn prepare(resource: &Resource, part: Part, new: &mut Value, old: &Value, now: Timestamp) {
    match part {
        Part::Main => {
            if resource.has_status() {
                meta::keep(meta::members(new), old, "status");
            }
            strategy::prepare_update(resource, new, old);
        }
        Part::Status => {
            keep_all_but_status(resource, new, old);
            strategy::prepare_status(resource, new, old, now);
        }
        Part::Approval => {
            keep_all_but_status(resource, new, old);
            strategy::prepare_approval(new, old, now);
        }
        Part::Private | Part::Ephemeral | Part::Binding => {}
    }
    let metadata = meta::metadata(new);
    for key in [
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        meta::keep(metadata, &old["metadata"], key);
    }
    let is_counted = meta::spec_differs(new, old)
        || (resource.counts_status() && new["status"] != old["status"]);
    if resource.has_generation && is_counted && part != Part::Binding {
        meta::count_generation(new);
    }
}

fn keep_all_but_status(resource: &Resource, new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let metadata = new.get("metadata").cloned();
    *new = old.clone();
    match status {
        Some(status) => new["status"] = status,
        None => {
            meta::members(new).remove("status");
        }
    }
    let persisted: &[&str] = match resource.status {
        StatusWrites::Nothing | StatusWrites::StatusOnly => &[],
        StatusWrites::Metadata => &["labels", "annotations", "finalizers"],
        StatusWrites::MetadataWithoutLabels => &["annotations", "finalizers"],
    };
    let metadata = metadata.unwrap_or_default();
    for key in persisted {
        meta::keep(meta::metadata(new), &metadata, key);
    }
}

fn validate(resource: &Resource, part: Part, new: &Value, old: &Value) -> Result<()> {
    let mut causes = meta::violations(new);
    let before = meta::finalizers(old);
    let added: Vec<&str> = meta::finalizers(new)
        .into_iter()
        .filter(|finalizer| !before.contains(finalizer))
        .collect();
    if meta::is_deleting(old) && !added.is_empty() {
        let list: Vec<String> = added
            .iter()
            .map(|finalizer| format!("{finalizer:?}"))
            .collect();
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            list.join(", ")
        );
        causes.push(Cause::forbidden("metadata.finalizers", &why));
    }
    // A schema describes the status too.
    if part == Part::Main || (part == Part::Status && resource.strategy == Strategy::Custom) {
        causes.extend(strategy::violations(resource, new, Some(old)));
    }
    if part == Part::Ephemeral {
        causes.extend(strategy::ephemeral_violations(new, old));
    }
    if part == Part::Status {
        causes.extend(strategy::status_violations(resource, new, old));
    }
    if part == Part::Approval {
        causes.extend(strategy::approval_violations(new, old));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid_object(resource, meta::name(new), causes))
    }
}
