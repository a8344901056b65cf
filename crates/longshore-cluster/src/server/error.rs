//! Failures as clients see them: a `Status` object with its HTTP code.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::registry::Resource;

/// Outcome of a request.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// One complaint about one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    /// A complaint in words of its own.
    pub(crate) fn new(reason: &'static str, field: &str, message: String) -> Cause {
        Cause {
            reason,
            field: field.to_owned(),
            message,
        }
    }

    /// A value that the rules do not allow.
    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Cause {
        Cause::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    /// A value that is missing.
    pub(crate) fn required(field: &str, why: &str) -> Cause {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Cause::new("FieldValueRequired", field, message)
    }

    /// A value that may not be set, or not be changed.
    pub(crate) fn forbidden(field: &str, why: &str) -> Cause {
        Cause::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// A word that is not one of the known ones.
    pub(crate) fn unsupported(field: &str, value: &str, known: &[&str]) -> Cause {
        let known: Vec<String> = known.iter().map(|word| format!("{word:?}")).collect();
        let message = format!(
            "Unsupported value: {value:?}: supported values: {}",
            known.join(", ")
        );
        Cause::new("FieldValueNotSupported", field, message)
    }

    /// A value that an item before has.
    pub(crate) fn duplicate(field: &str, value: &str) -> Cause {
        let message = format!("Duplicate value: {value:?}");
        Cause::new("FieldValueDuplicate", field, message)
    }

    /// The name of something that is not there.
    pub(crate) fn not_found(field: &str, name: &str) -> Cause {
        Cause::new("FieldValueNotFound", field, format!("Not found: {name:?}"))
    }

    /// A value longer than its limit.
    pub(crate) fn too_long(field: &str, limit: usize) -> Cause {
        let message = format!("Too long: may not be more than {limit} bytes");
        Cause::new("FieldValueTooLong", field, message)
    }
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) details: Option<Box<Map<String, Value>>>,
}

impl ApiError {
    fn new(
        code: u16,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> ApiError {
        ApiError {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
        }
    }

    fn with_details(mut self, details: Value) -> ApiError {
        if let Value::Object(details) = details {
            self.details = Some(Box::new(details));
        }
        self
    }

    fn about(self, resource: &Resource, name: &str) -> ApiError {
        let details = named(&resource.group, &resource.plural, name);
        self.with_details(details)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// A body that could not be read.
    pub(crate) fn bad_request_from(error: impl std::fmt::Display) -> ApiError {
        ApiError::bad_request(format!("error decoding the request body: {error}"))
    }

    /// No token, or a wrong one.
    pub(crate) fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// A request that names a host which this server is not.
    pub(crate) fn foreign_host(host: &str) -> ApiError {
        let message = format!(
            "expected a request for this server, found one for host {host:?}: use the address in the kubeconfig"
        );
        ApiError::new(403, "Forbidden", message)
    }

    /// A request in the name of another user.
    pub(crate) fn no_impersonation() -> ApiError {
        let message = "this server allows every user everything, so it cannot act with the rights of another user: \
                       leave out --as, --as-group and --as-uid, or start it with --authorization rbac";
        ApiError::new(403, "Forbidden", message)
    }

    /// More requests at once than are answered.
    pub(crate) fn too_many_requests() -> ApiError {
        let message = "too many requests, please try again later";
        ApiError::new(429, "TooManyRequests", message).with_details(json!({"retryAfterSeconds": 1}))
    }

    /// A request on a connection that has no place among those of its user.
    pub(crate) fn too_many_connections() -> ApiError {
        let message = "this user has as many connections open as one user may have: close some, or send more requests \
                       over each";
        ApiError::new(429, "TooManyRequests", message).with_details(json!({"retryAfterSeconds": 1}))
    }

    /// More streams into one pod than are served.
    pub(crate) fn too_many_streams(pod: &str, limit: usize) -> ApiError {
        let message = format!(
            "pod {pod:?} has {limit} open streams (exec, attach, port-forward, proxy), which is the most that it may have: \
             close some, or try again later"
        );
        ApiError::new(429, "TooManyRequests", message).with_details(json!({"retryAfterSeconds": 1}))
    }

    /// A request that took longer than requests may.
    pub(crate) fn timed_out() -> ApiError {
        let message = "request did not complete within the allotted timeout";
        ApiError::new(504, "Timeout", message)
    }

    /// A body that is sent with fewer bytes a second than this.
    pub(crate) fn body_too_slow(rate: usize) -> ApiError {
        let message = format!(
            "expected at least {rate} bytes of the body a second, found fewer: send the request again, all of it at once"
        );
        ApiError::new(408, "Timeout", message)
    }

    /// A body whose fields do not fit its type.
    pub(crate) fn undecodable(kind: &str, version: &str, why: &str) -> ApiError {
        ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
        ))
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} {name:?} not found", resource.qualified());
        ApiError::new(404, "NotFound", message).about(resource, name)
    }

    /// Something that belongs to an object and is not there.
    pub(crate) fn missing(message: impl Into<String>) -> ApiError {
        ApiError::new(404, "NotFound", message)
    }

    /// A path below an existing group that names no resource.
    pub(crate) fn no_such_resource() -> ApiError {
        ApiError::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(json!({}))
    }

    /// Something that Kubernetes has and this server does not.
    pub(crate) fn not_implemented(what: &str) -> ApiError {
        let message = format!(
            "this cluster does not implement {what}: leave out what needs it, or use a cluster with kube-apiserver"
        );
        ApiError::new(501, "NotImplemented", message).with_details(json!({}))
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> ApiError {
        let message = format!("{} {name:?} is forbidden: {why}", resource.qualified());
        ApiError::new(403, "Forbidden", message).about(resource, name)
    }

    /// A request that its user may not send. Without a resource it is about a path.
    pub(crate) fn access_denied(group: &str, resource: &str, name: &str, why: &str) -> ApiError {
        let qualified = match group {
            "" => resource.to_owned(),
            group => format!("{resource}.{group}"),
        };
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{qualified} is forbidden: {why}"),
            (_, name) => format!("{qualified} {name:?} is forbidden: {why}"),
        };
        ApiError::new(403, "Forbidden", message).with_details(named(group, resource, name))
    }

    /// A disruption budget whose state allows no count.
    pub(crate) fn forbidden_budget(name: &str, why: &str) -> ApiError {
        let message = format!("poddisruptionbudget.policy {name:?} is forbidden: {why}");
        let details = named("policy", "poddisruptionbudget", name);
        ApiError::new(403, "Forbidden", message).with_details(details)
    }

    pub(crate) fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        ApiError::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// A definition is being deleted, and so are its objects.
    pub(crate) fn terminating_definition() -> ApiError {
        let message = "create not allowed while custom resource definition is terminating";
        ApiError::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    pub(crate) fn not_acceptable() -> ApiError {
        let message = "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf";
        ApiError::new(406, "NotAcceptable", message)
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} {name:?} already exists", resource.qualified());
        ApiError::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// The name is taken by an object that waits to go.
    pub(crate) fn being_deleted(resource: &Resource, name: &str) -> ApiError {
        let mut error = ApiError::already_exists(resource, name);
        error.message.insert_str(0, "object is being deleted: ");
        error
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> ApiError {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.qualified()
        );
        ApiError::new(409, "Conflict", message).about(resource, name)
    }

    /// A conflict that upstream words with the kind where others have the resource.
    pub(crate) fn conflict_of_kind(resource: &Resource, name: &str, why: &str) -> ApiError {
        let (group, kind) = (&resource.group, &resource.kind);
        let qualified = if group.is_empty() {
            kind.clone()
        } else {
            format!("{kind}.{group}")
        };
        let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
        ApiError::new(409, "Conflict", message).with_details(named(group, kind, name))
    }

    /// A token was to depend on an object of another uid.
    pub(crate) fn other_bound_object(kind: &str, name: &str, uid: &str) -> ApiError {
        let message = format!(
            "Operation cannot be fulfilled on {kind} {name:?}: the UID in the bound object reference ({uid}) does not \
             match the UID in record. The object might have been deleted and then recreated"
        );
        ApiError::new(409, "Conflict", message).with_details(named("", kind, name))
    }

    /// The write was based on an older version of the object.
    pub(crate) fn modified(resource: &Resource, name: &str) -> ApiError {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(resource, name, why)
    }

    pub(crate) fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    /// A chunked list whose first state is gone.
    pub(crate) fn expired_continuation() -> ApiError {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of \
             the results. Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may show up in the \
             list.",
        )
    }

    pub(crate) fn too_large(limit: usize) -> ApiError {
        let message = format!("Request entity too large: limit is {limit}");
        ApiError::new(413, "RequestEntityTooLarge", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> ApiError {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// Fields that the rules refuse; `kind` may carry its group, `Deployment.apps`.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> ApiError {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let mut texts: Vec<String> = Vec::new();
        for cause in &causes {
            let text = format!("{}: {}", cause.field, cause.message);
            // The message says each thing once, however many causes there are.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match texts.as_slice() {
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let mut details = named(group, kind, name);
        details["causes"] = causes
            .into_iter()
            .map(|cause| {
                json!({"reason": cause.reason, "message": cause.message, "field": cause.field})
            })
            .collect();
        ApiError::new(
            422,
            "Invalid",
            format!("{qualified} {name:?} is invalid: {text}"),
        )
        .with_details(details)
    }

    /// An object of a resource that its validation refuses.
    pub(crate) fn invalid_object(resource: &Resource, name: &str, causes: Vec<Cause>) -> ApiError {
        ApiError::invalid(&resource.group, &resource.kind, name, causes)
    }

    /// A patch that decodes but cannot be applied to this object.
    pub(crate) fn patch_does_not_apply(why: &str) -> ApiError {
        let message = "the server rejected our request due to an error in our request";
        let cause = json!({"reason": "UnexpectedServerResponse", "message": why});
        ApiError::new(422, "Invalid", message).with_details(json!({"causes": [cause]}))
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> ApiError {
        let text = format!("Internal error occurred: {message}");
        let cause = json!({"message": message.to_string()});
        ApiError::new(500, "InternalError", text).with_details(json!({"causes": [cause]}))
    }

    /// A failure that upstream reports without a reason, with its bare text.
    pub(crate) fn unexplained(message: &str) -> ApiError {
        ApiError::new(500, "", message)
    }

    /// The request names a revision that does not exist yet.
    pub(crate) fn too_new(asked: u64, current: u64) -> ApiError {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        ApiError::new(504, "Timeout", message)
            .with_details(json!({"causes": [cause], "retryAfterSeconds": 1}))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(503, "ServiceUnavailable", message)
    }

    /// What a webhook has decided, in its own words.
    pub(crate) fn denied(
        code: u16,
        reason: String,
        message: String,
        details: Option<Map<String, Value>>,
    ) -> ApiError {
        let mut error = ApiError::new(code, reason, message);
        error.details = details.map(Box::new);
        error
    }

    /// An eviction that a disruption budget does not allow now.
    pub(crate) fn disruption_refused(why: &str, retry_after_seconds: Option<u64>) -> ApiError {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
        if let Some(seconds) = retry_after_seconds {
            details["retryAfterSeconds"] = seconds.into();
        }
        ApiError::new(429, "TooManyRequests", message).with_details(details)
    }

    /// Adds a cause without a field.
    pub(crate) fn because(mut self, reason: &str, message: &str) -> ApiError {
        let details = self.details.get_or_insert_default();
        details.insert(
            "causes".into(),
            json!([{"reason": reason, "message": message}]),
        );
        self
    }

    /// The `Status` object.
    pub(crate) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = (*self.reason).into();
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object((**details).clone());
        }
        status
    }
}

/// `details` of a status: empty parts are left out.
fn named(group: &str, kind: &str, name: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.to_owned(), value.into());
        }
    }
    Value::Object(details)
}
