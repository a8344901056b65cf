//! PUT of an object.

use http::{Response, StatusCode};
use serde_json::Value;

use super::{
    Call,
    create::{Created, create_object},
    rewrite::{Part, rewrite},
};
use crate::server::{
    authz::{Attributes, ResourceTarget},
    error::{ApiError, Cause, Result},
    http::body::ApiBody,
    meta,
};

/// Replaces the object, or creates it where the resource allows that.
pub(crate) async fn update(call: &Call, part: Part, object: Value) -> Result<Response<ApiBody>> {
    let is_missing = call.collection.get(&call.key()).is_none();
    if is_missing && part == Part::Main && call.resource().creates_on_update {
        return create_missing(call, object).await;
    }
    if !is_missing && call.served.custom.is_some() {
        require_version(call, &object)?;
    }
    Ok(rewrite(call, part, |_| Ok(object.clone()))
        .await?
        .respond(call))
}

/// Custom resources are never replaced unseen.
fn require_version(call: &Call, object: &Value) -> Result<()> {
    if !meta::text(object, "/metadata/resourceVersion").is_empty() {
        return Ok(());
    }
    let why = "must be specified for an update";
    let cause = Cause::invalid("metadata.resourceVersion", &0.into(), why);
    let resource = call.resource();
    // The resource stands where other complaints have the kind, as upstream.
    let (group, plural) = (&resource.group, &resource.plural);
    Err(ApiError::invalid(group, plural, &call.name, vec![cause]))
}

/// A user who may update objects may not therefore create them.
fn require_create(call: &Call) -> Result<()> {
    let target = ResourceTarget {
        group: call.served.group.clone(),
        resource: call.served.plural.clone(),
        namespace: call.namespace.clone().unwrap_or_default(),
        name: call.name.clone(),
        ..ResourceTarget::default()
    };
    let create = Attributes::about("create", target);
    call.server.authorizer.require(&call.user, &create)
}

async fn create_missing(call: &Call, object: Value) -> Result<Response<ApiBody>> {
    if meta::name(&object) != call.name {
        let message = format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::name(&object),
            call.name
        );
        return Err(ApiError::bad_request(message));
    }
    if !meta::text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(ApiError::modified(call.resource(), &call.name));
    }
    require_create(call)?;
    match create_object(call, object, call.query.is_dry_run()?).await? {
        Created::Stored(object) => Ok(call.respond(StatusCode::CREATED, &object)),
        Created::Imagined(object) => Ok(call.respond_unstored(StatusCode::CREATED, object)),
    }
}
