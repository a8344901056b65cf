//! DELETE of an object: at once, or in steps when finalizers or a pod's grace stand in the way.

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Call, rewrite::is_deletion_complete};
use crate::server::{
    admission::{Operation, Question},
    crd,
    error::{ApiError, Result},
    http::{
        body::{self, ApiBody},
        query::{Query, is_dry_run},
    },
    hub::{Change, CommitError, Expected},
    meta,
    registry::{DeletionAnswer, Resource, Strategy},
};

const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
const FINALIZER_ORPHAN: &str = "orphan";

/// Namespaces that every cluster needs.
const IMMORTAL: &[&str] = &["default", "kube-public", "kube-system"];

/// What a client should know that deletes a Job and does not say what becomes of its pods.
const PODS_STAY: &str = "child pods are preserved by default when jobs are deleted; set \
     propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// Attempts of one request against concurrent writers.
const ATTEMPTS: usize = 64;

/// Seconds that a pod has to end when neither the request nor the pod says.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// What happens to the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What has to hold for the deletion to happen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
}

/// Options of a deletion, from the body or the query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    propagation_policy: Option<Propagation>,
    orphan_dependents: Option<bool>,
    preconditions: Option<Preconditions>,
    dry_run: Option<Vec<String>>,
}

impl DeleteOptions {
    /// Reads the options of a request; it may have no body.
    pub(crate) fn read(body: Option<Value>, query: &Query) -> Result<DeleteOptions> {
        let mut options = match body {
            Some(body) => serde_json::from_value(body).map_err(ApiError::bad_request_from)?,
            None => DeleteOptions::default(),
        };
        if let Some(seconds) = query.number("gracePeriodSeconds")? {
            options.grace_period_seconds = Some(seconds);
        }
        if let Some(orphan) = query.flag("orphanDependents")? {
            options.orphan_dependents = Some(orphan);
        }
        let policy = query.text("propagationPolicy");
        if !policy.is_empty() {
            let policy =
                serde_json::from_value(policy.into()).map_err(ApiError::bad_request_from)?;
            options.propagation_policy = Some(policy);
        }
        if query.is_dry_run()? {
            options.dry_run = Some(vec!["All".to_owned()]);
        }
        Ok(options)
    }

    pub(crate) fn is_dry_run(&self) -> Result<bool> {
        is_dry_run(self.dry_run.iter().flatten().map(String::as_str))
    }

    /// Whether the deletion is bound to a revision.
    pub(crate) fn requires_version(&self) -> bool {
        let preconditions = self.preconditions.as_ref();
        preconditions.is_some_and(|it| {
            it.resource_version
                .as_ref()
                .is_some_and(|it| !it.is_empty())
        })
    }

    /// These options, with the precondition that the object has this version.
    pub(crate) fn at_version(&self, version: &str) -> DeleteOptions {
        let mut options = self.clone();
        let preconditions = options.preconditions.get_or_insert_default();
        preconditions.resource_version = Some(version.to_owned());
        options
    }

    fn propagation(&self) -> Option<Propagation> {
        self.propagation_policy.or(match self.orphan_dependents {
            Some(true) => Some(Propagation::Orphan),
            Some(false) => Some(Propagation::Background),
            None => None,
        })
    }

    /// Refuses an object that does not meet the preconditions.
    pub(crate) fn check(&self, resource: &Resource, object: &Value) -> Result<()> {
        let Some(preconditions) = &self.preconditions else {
            return Ok(());
        };
        let conditions = [
            (
                "UID",
                "/metadata/uid",
                &preconditions.uid,
                "deleted and then recreated",
            ),
            (
                "ResourceVersion",
                "/metadata/resourceVersion",
                &preconditions.resource_version,
                "modified",
            ),
        ];
        for (what, pointer, expected, event) in conditions {
            let found = meta::text(object, pointer);
            if let Some(expected) = expected
                && expected != found
            {
                let why = format!(
                    "the {what} in the precondition ({expected}) does not match the {what} in record ({found}). \
                     The object might have been {event}"
                );
                return Err(ApiError::conflict_of_kind(
                    resource,
                    meta::name(object),
                    &why,
                ));
            }
        }
        Ok(())
    }
}

/// The outcome of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Value),
    /// The object is marked and waits.
    Pending(Value),
}

/// Deletes the object on the URL.
pub(crate) async fn delete(call: &Call, options: DeleteOptions) -> Result<Response<ApiBody>> {
    let orphan_dependents = options.orphan_dependents;
    match delete_object(call, options).await? {
        Deleted::Gone(object) => Ok(match call.resource().deletion_answer {
            DeletionAnswer::Object => call.respond_unstored(StatusCode::OK, object),
            DeletionAnswer::Status => {
                body::json(StatusCode::OK, &success(call.resource(), &object))
            }
        }),
        Deleted::Pending(object) => {
            // Only clients with the old option `orphanDependents: false` get a status code that
            // says that the deletion is not finished.
            let code = if orphan_dependents == Some(false) {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            Ok(call.respond_unstored(code, object))
        }
    }
}

fn success(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({
        "name": meta::name(object), "kind": resource.plural, "uid": meta::text(object, "/metadata/uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes the object of a call, and tries again if another client has written it meanwhile.
/// Webhooks are called at each attempt.
pub(crate) async fn delete_object(call: &Call, options: DeleteOptions) -> Result<Deleted> {
    if options.propagation().is_none() && leaves_pods(call.resource()) {
        call.warnings.add([PODS_STAY.to_owned()]);
    }
    let is_dry_run = options.is_dry_run()?;
    let question = Question::new(call, Operation::Delete, is_dry_run).with_options(options.clone());
    delete_with(call, options, Some(&question)).await
}

/// Deletes without calling webhooks: they were called for the request that this deletion is a part
/// of.
pub(crate) async fn delete_unasked(call: &Call, options: DeleteOptions) -> Result<Deleted> {
    delete_with(call, options, None).await
}

async fn delete_with(
    call: &Call,
    mut options: DeleteOptions,
    question: Option<&Question<'_>>,
) -> Result<Deleted> {
    let is_dry_run = options.is_dry_run()?;
    let resource = call.resource();
    if resource.strategy == Strategy::Namespace && IMMORTAL.contains(&call.name.as_str()) {
        return Err(ApiError::forbidden(
            resource,
            &call.name,
            "this namespace may not be deleted",
        ));
    }
    if let Some(seconds) = options.grace_period_seconds
        && seconds < 0
    {
        options.grace_period_seconds = Some(1);
    }
    let mut marked_by_us: Option<Value> = None;
    for _ in 0..ATTEMPTS {
        let found = call.stored().map(|stored| (stored.value(), stored));
        let checked = found.and_then(|(object, stored)| {
            options.check(resource, &object)?;
            Ok((object, stored))
        });
        let (object, stored) = match checked {
            Ok(found) => found,
            // The node of the pod removed it before us, after we had marked it: the deletion has
            // succeeded.
            Err(error) => return marked_by_us.map(Deleted::Gone).ok_or(error),
        };
        let plan = plan(resource, &object, &options, call.server.now());
        // A pod that is going already is none of their business.
        let is_asked = plan != Plan::Keep || resource.strategy != Strategy::Pod;
        if let Some(question) = question.filter(|_| is_asked) {
            question.mutate(Value::Null, Some(&object)).await?;
            question.validate(None, Some(&object)).await?;
        }
        let (change, outcome) = match plan {
            Plan::Remove => (Change::Delete, Deleted::Gone(object)),
            Plan::Keep => return Ok(Deleted::Pending(object)),
            Plan::Mark(marked) => (Change::Put(call.draft(&marked)?), Deleted::Pending(marked)),
        };
        if is_dry_run {
            return Ok(outcome);
        }
        let expected = Expected::At(stored.revision);
        match call
            .server
            .hub
            .commit(&call.collection, call.key(), expected, change)
            .await
        {
            Ok(written) => match outcome {
                Deleted::Gone(object) => {
                    call.server.after_removal(&call.collection).await;
                    return Ok(Deleted::Gone(object));
                }
                // A pod without grace left is marked first and removed by the next step.
                Deleted::Pending(marked) if is_deletion_complete(resource, &marked) => {
                    options.preconditions = Some(Preconditions {
                        uid: Some(meta::text(&marked, "/metadata/uid").to_owned()),
                        resource_version: None,
                    });
                    marked_by_us = Some(written.value());
                }
                Deleted::Pending(_) => {
                    call.server.after_removal(&call.collection).await;
                    return Ok(Deleted::Pending(written.value()));
                }
            },
            Err(CommitError::Raced | CommitError::Claimed) => {}
            Err(error @ CommitError::Store(_)) => return Err(ApiError::internal(error)),
        }
    }
    Err(ApiError::modified(resource, &call.name))
}

/// The next step of a deletion.
#[derive(Debug, Clone, PartialEq)]
enum Plan {
    Remove,
    /// Write this marked state.
    Mark(Value),
    /// The object is marked already, and this request changes nothing about that.
    Keep,
}

fn plan(resource: &Resource, object: &Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let mut marked = object.clone();
    let unsaid = || default_propagation(resource, object);
    set_propagation(&mut marked, options.propagation().or_else(unsaid));
    if resource.strategy == Strategy::Definition && !meta::is_deleting(object) {
        crd::mark_deleted(&mut marked, now);
    }
    let is_held = !meta::finalizers(&marked).is_empty()
        || (resource.strategy == Strategy::Namespace && holds_content(&marked));
    if resource.strategy == Strategy::Pod {
        mark_pod(&mut marked, options, now);
    } else if is_held {
        mark(&mut marked, 0, now);
        if resource.strategy == Strategy::Namespace {
            // Namespaces know no grace.
            meta::metadata(&mut marked).remove("deletionGracePeriodSeconds");
            meta::member(&mut marked, "status").insert("phase".into(), "Terminating".into());
        }
    } else {
        return Plan::Remove;
    }
    if marked != *object {
        Plan::Mark(marked)
    } else if is_deletion_complete(resource, &marked) {
        Plan::Remove
    } else {
        Plan::Keep
    }
}

/// Jobs are older than the garbage collection: who deletes one without a word gets what he got then.
fn leaves_pods(resource: &Resource) -> bool {
    resource.group == "batch" && resource.plural == "jobs"
}

/// What becomes of the objects that the deleted one owns, when the request does not say.
fn default_propagation(resource: &Resource, object: &Value) -> Option<Propagation> {
    let is_said = meta::finalizers(object)
        .iter()
        .any(|it| [FINALIZER_FOREGROUND, FINALIZER_ORPHAN].contains(it));
    (leaves_pods(resource) && !is_said).then_some(Propagation::Orphan)
}

fn holds_content(namespace: &Value) -> bool {
    let finalizers = namespace
        .pointer("/spec/finalizers")
        .and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let (added, removed): (Option<&str>, &[&str]) = match propagation {
        None => return,
        Some(Propagation::Foreground) => (Some(FINALIZER_FOREGROUND), &[FINALIZER_ORPHAN]),
        Some(Propagation::Orphan) => (Some(FINALIZER_ORPHAN), &[FINALIZER_FOREGROUND]),
        Some(Propagation::Background) => (None, &[FINALIZER_FOREGROUND, FINALIZER_ORPHAN]),
    };
    let mut finalizers: Vec<String> = meta::finalizers(object)
        .into_iter()
        .filter(|finalizer| !removed.contains(finalizer))
        .map(str::to_owned)
        .collect();
    if let Some(added) = added
        && !finalizers.iter().any(|finalizer| finalizer == added)
    {
        finalizers.push(added.to_owned());
    }
    let metadata = meta::metadata(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// Sets the moment of deletion, if it is not set.
pub(crate) fn mark(object: &mut Value, grace_seconds: i64, now: Timestamp) {
    if meta::is_deleting(object) {
        return;
    }
    let at = now
        .saturating_add(SignedDuration::from_secs(grace_seconds))
        .unwrap_or(now);
    let metadata = meta::metadata(object);
    metadata.insert("deletionTimestamp".into(), meta::seconds(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace_seconds.into());
    meta::count_generation(object);
}

/// Pods get time to end; a later request may only shorten it.
fn mark_pod(pod: &mut Value, options: &DeleteOptions, now: Timestamp) {
    if !meta::is_deleting(pod) {
        return mark(pod, pod_grace(pod, options), now);
    }
    let present = pod
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    let (Some(present), Some(asked)) = (present, options.grace_period_seconds) else {
        return;
    };
    if asked >= present {
        return;
    }
    let Ok(at) = meta::text(pod, "/metadata/deletionTimestamp").parse::<Timestamp>() else {
        return;
    };
    let earlier = at
        .saturating_sub(SignedDuration::from_secs(present - asked))
        .unwrap_or(now);
    let metadata = meta::metadata(pod);
    metadata.insert("deletionTimestamp".into(), meta::seconds(earlier).into());
    metadata.insert("deletionGracePeriodSeconds".into(), asked.into());
}

fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let is_unbound = meta::text(pod, "/spec/nodeName").is_empty();
    let is_over = matches!(meta::text(pod, "/status/phase"), "Succeeded" | "Failed");
    if is_unbound || is_over {
        return 0;
    }
    let own = pod
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    match options
        .grace_period_seconds
        .or(own)
        .unwrap_or(DEFAULT_GRACE_SECONDS)
    {
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}
