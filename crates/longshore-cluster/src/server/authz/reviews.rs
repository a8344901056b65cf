//! Questions about permissions: `kubectl auth can-i`.

use serde_json::{Value, json};

use super::{
    Attributes, Authorizer, ResourceTarget,
    attributes::Target,
    policy::aggregate,
    rules::{Rule, texts},
};
use crate::server::{
    auth::UserInfo,
    error::{ApiError, Cause, Result},
    meta,
};

const GROUP: &str = "authorization.k8s.io";

/// A kind of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessReview {
    /// Whether some user may do something.
    Any,
    /// The same, in one namespace.
    Local,
    /// Whether the one who asks may do something.
    Own,
    /// What the one who asks may do in a namespace.
    OwnRules,
}

/// Answers a question: checks it, and sets its status. `namespace` is that of the URL.
pub(crate) fn answer(
    authorizer: &Authorizer,
    review: AccessReview,
    user: &UserInfo,
    namespace: Option<&str>,
    asked: &mut Value,
) -> Result<()> {
    let metadata = meta::metadata(asked);
    if let Some(namespace) = namespace {
        let found = metadata
            .entry("namespace")
            .or_insert_with(|| namespace.into());
        if *found != *namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(message));
        }
    }
    if review == AccessReview::OwnRules {
        let namespace = meta::text(asked, "/spec/namespace").to_owned();
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        asked["spec"] = json!({});
        asked["status"] = rules(authorizer, user, &namespace);
        return Ok(());
    }
    let causes = violations(review, asked);
    if !causes.is_empty() {
        // Upstream has forgotten the kind when it says this.
        return Err(ApiError::invalid(GROUP, "", "", causes));
    }
    let spec = &asked["spec"];
    let named;
    let subject = match review {
        AccessReview::Own | AccessReview::OwnRules => user,
        AccessReview::Any | AccessReview::Local => {
            named = subject(spec);
            &named
        }
    };
    let verdict = authorizer.decide(subject, &attributes(spec));
    let mut status = json!({"allowed": verdict.is_allowed});
    if !verdict.reason.is_empty() {
        status["reason"] = verdict.reason.into();
    }
    asked["status"] = status;
    Ok(())
}

/// The user that a question names.
fn subject(spec: &Value) -> UserInfo {
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        username: meta::text(spec, "/user").to_owned(),
        uid: meta::text(spec, "/uid").to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(values)))
            .collect(),
    }
}

fn attributes(spec: &Value) -> Attributes {
    let text = |pointer: &str| meta::text(spec, pointer).to_owned();
    if is_there(&spec["nonResourceAttributes"]) {
        return Attributes {
            verb: text("/nonResourceAttributes/verb"),
            target: Target::Path(text("/nonResourceAttributes/path")),
        };
    }
    let target = ResourceTarget {
        group: text("/resourceAttributes/group"),
        resource: text("/resourceAttributes/resource"),
        subresource: text("/resourceAttributes/subresource"),
        namespace: text("/resourceAttributes/namespace"),
        name: text("/resourceAttributes/name"),
    };
    Attributes::about(&text("/resourceAttributes/verb"), target)
}

fn is_there(part: &Value) -> bool {
    !part.is_null()
}

/// What is wrong with a question.
fn violations(review: AccessReview, asked: &Value) -> Vec<Cause> {
    let spec = &asked["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    // Upstream's internal type, which has no names for JSON.
    let shown = json!({"Path": meta::text(path, "/path"), "Verb": meta::text(path, "/verb")});
    let mut causes = Vec::new();
    if is_there(resource) && is_there(path) {
        let why = "cannot be specified in combination with resourceAttributes";
        causes.push(Cause::invalid("spec.nonResourceAttributes", &shown, why));
    }
    if !is_there(resource) && !is_there(path) {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(Cause::invalid("spec.resourceAttributes", &Value::Null, why));
    }
    let names_subject = !meta::text(spec, "/user").is_empty() || !texts(&spec["groups"]).is_empty();
    if review != AccessReview::Own && !names_subject {
        let why = "at least one of user or group must be specified";
        causes.push(Cause::invalid("spec.user", &"".into(), why));
    }
    let is_local = review == AccessReview::Local;
    let metadata = asked["metadata"].as_object().into_iter().flatten();
    let mut others = metadata.filter(|(key, value)| {
        !value.is_null() && *key != "managedFields" && !(is_local && *key == "namespace")
    });
    if others.next().is_some() {
        let why = match is_local {
            true => "must be empty except for namespace",
            false => "must be empty",
        };
        causes.push(Cause::invalid("metadata", &asked["metadata"], why));
    }
    if is_local {
        let namespace = meta::text(resource, "/namespace");
        if is_there(resource) && namespace != meta::text(asked, "/metadata/namespace") {
            let field = "spec.resourceAttributes.namespace";
            let why = "must match metadata.namespace";
            causes.push(Cause::invalid(field, &namespace.into(), why));
        }
        if is_there(path) {
            let why = "disallowed on this kind of request";
            causes.push(Cause::invalid("spec.nonResourceAttributes", &shown, why));
        }
    }
    causes
}

/// The status of a question about all rules.
fn rules(authorizer: &Authorizer, user: &UserInfo, namespace: &str) -> Value {
    let (held, missing) = if authorizer.is_enforced() {
        let held = authorizer.rules_of(user, namespace);
        (held.rules, held.missing)
    } else {
        (Rule::full_authority(), Vec::new())
    };
    // A rule is about resources or about paths, as validation demands.
    let is_of_paths = |rule: &&Rule| !rule.non_resource_urls.is_empty();
    let listed = |rules: Vec<&Rule>| rules.into_iter().map(Rule::to_json).collect::<Value>();
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) = held.iter().partition(is_of_paths);
    let mut status = json!({
        "incomplete": false, "resourceRules": listed(resources), "nonResourceRules": listed(paths),
    });
    if !missing.is_empty() {
        status["evaluationError"] = aggregate(&missing).into();
    }
    status
}
