//! The admission webhooks, as pure functions from a request to a verdict.
//!
//! [`write`] takes the labels of a pod through the state machine of [`advance`] within the very request that writes
//! it. [`validate`] refuses labels that do not fit together, and turns deletes and evictions into operations
//! ([`grace`]). The caller ([`crate::webhooks`]) hands over what the AdmissionReview says, writes what
//! [`Verdict::begin`] asks for, and then sends the verdict back.

pub mod advance;
pub mod grace;
mod release;
#[cfg(test)]
mod tests;
mod validate;

use jiff::Timestamp;
use longshore_api::podops::{CONDITION_SERVICE_READY, LABEL_RELEASED};
use longshore_core::Patch;
use serde_json::{Value, json};

use crate::{
    config::AdmitConfig,
    eviction::Budget,
    model::{Labels, Pod, Undecodable},
};

pub use validate::Inconsistent;

/// What upstream calls its check of labels, in messages.
const LIFECYCLE: &str = "PodOpsLifecycleWebhook";
/// What upstream calls its check of deletes, in messages.
const GRACE_DELETE: &str = "GraceDeleteWebhook";

/// What an AdmissionReview asks about.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is to be done.
    pub operation: Operation,
    /// To which part: empty, `status`, `eviction`.
    pub sub_resource: String,
    /// Whether nothing is to change.
    pub is_dry_run: bool,
    /// The object as it shall be; null on a delete.
    pub object: Value,
    /// The object as it is; null on a create.
    pub old_object: Value,
    /// `DeleteOptions` and the like; null where there are none.
    pub options: Value,
}

/// What is to be done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Create the object.
    Create,
    /// Change the object.
    Update,
    /// Delete the object.
    Delete,
    /// Something else, as `CONNECT`.
    Other,
}

/// What becomes of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Why it is refused; `None` where it is allowed.
    pub denial: Option<Denial>,
    /// What has to be written before the answer. Where that fails, the error is why the request is refused.
    pub begin: Option<Patch>,
}

/// Why a request is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// `status.code`.
    pub code: u16,
    /// `status.reason`: where upstream has its text when it refuses on purpose.
    pub reason: String,
    /// `status.message`: where it has it when something is wrong.
    pub message: String,
    /// `status.details.retryAfterSeconds`, of an eviction that may succeed later and that no budget holds.
    pub retry_after_seconds: Option<u32>,
}

impl Request {
    /// Whether nothing is to change, wherever that is said: the dry run of an eviction is in its `deleteOptions`, which
    /// API servers follow and do not tell of, and that of a delete in its options.
    pub fn is_dry(&self) -> bool {
        let asks = |options: &Value| {
            let values = options["dryRun"].as_array();
            values.is_some_and(|values| !values.is_empty())
        };
        self.is_dry_run || asks(&self.options) || asks(&self.object["deleteOptions"])
    }
}

impl Verdict {
    fn denied(denial: Denial) -> Self {
        Self {
            denial: Some(denial),
            begin: None,
        }
    }
}

impl Denial {
    /// On purpose: `check` says `why`.
    fn by(check: &str, why: impl std::fmt::Display) -> Self {
        Self {
            code: 403,
            reason: format!("failed to validate {check}, {why}"),
            ..Self::default()
        }
    }

    /// For another reason: the operation could not begin.
    pub(crate) fn instead(self, why: &str) -> Self {
        let is_of_eviction = self.code == 429;
        if !is_of_eviction {
            return Self::by(GRACE_DELETE, why);
        }
        Self {
            message: format!("failed to validate {GRACE_DELETE}, {why}"),
            ..self
        }
    }

    fn undecodable(error: &Undecodable) -> Self {
        let source = std::error::Error::source(error).map(ToString::to_string);
        Self {
            code: 400,
            message: format!("{error}: {}", source.unwrap_or_default()),
            ..Self::default()
        }
    }

    /// The webhook could not decide.
    fn internal(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            message: message.into(),
            ..Self::default()
        }
    }
}

/// The mutating webhook on pods and pods/status: the object that [`mutate`] returns. This webhook also checks the labels of
/// an updated pod, so that API servers send each update to one webhook.
///
/// # Errors
/// The request has to be refused.
pub fn write(request: &Request, now: Timestamp) -> Result<Option<Value>, Denial> {
    let changed = mutate(request, now)?;
    if request.operation == Operation::Update && request.sub_resource.is_empty() {
        check_labels(changed.as_ref().unwrap_or(&request.object))?;
    }
    Ok(changed)
}

/// What the object becomes; `None` where nothing changes.
///
/// A dry run becomes what the real one would: nothing but the object is written here.
///
/// # Errors
/// The request has to be refused.
pub fn mutate(request: &Request, now: Timestamp) -> Result<Option<Value>, Denial> {
    let is_write = matches!(request.operation, Operation::Create | Operation::Update);
    if !is_write {
        return Ok(None);
    }
    let pod = Pod::of(&request.object).map_err(|error| Denial::undecodable(&error))?;
    let old = Some(&request.old_object).filter(|old| !old.is_null());
    let old = old.map(Pod::of).transpose();
    let old = old.map_err(|error| Denial::undecodable(&error))?;
    if !pod.is_controlled() {
        let took_part = old.is_some_and(|old| old.is_controlled());
        return Ok(release::released(&pod, took_part, &request.object, now));
    }
    let old = old.map_or_else(Labels::new, |old| old.labels);
    let labels = advance::advance(&pod, &old, now);
    let mut labels = labels.map_err(|error| Denial::internal(error.to_string()))?;
    // The pod takes part again.
    labels.remove(LABEL_RELEASED);
    let mut object = request.object.clone();
    object["metadata"]["labels"] = json!(labels);
    if request.operation == Operation::Create && !pod.has_gate {
        add_gate(&mut object);
    }
    Ok(Some(object).filter(|object| *object != request.object))
}

/// Its readiness waits for us. Gates of a pod cannot be changed later.
fn add_gate(object: &mut Value) {
    let gate = json!({"conditionType": CONDITION_SERVICE_READY});
    let gates = &mut object["spec"]["readinessGates"];
    match gates.as_array_mut() {
        Some(gates) => gates.push(gate),
        None => *gates = json!([gate]),
    }
}

/// The validating webhook on pods.
pub fn validate(config: &AdmitConfig, request: &Request, now: Timestamp) -> Verdict {
    if !request.sub_resource.is_empty() {
        return Verdict::default();
    }
    match request.operation {
        Operation::Create | Operation::Update => {
            check_labels(&request.object).map_or_else(Verdict::denied, |()| Verdict::default())
        }
        Operation::Delete => match Pod::of(&request.old_object) {
            Err(error) => Verdict::denied(Denial::undecodable(&error)),
            Ok(pod) => grace::delete(config, &pod, request, now),
        },
        Operation::Other => Verdict::default(),
    }
}

/// Refuses a pod that takes part and whose labels do not fit together.
fn check_labels(object: &Value) -> Result<(), Denial> {
    let pod = Pod::of(object).map_err(|error| Denial::undecodable(&error))?;
    if !pod.is_controlled() {
        return Ok(());
    }
    validate::validate(&pod).map_err(|why| Denial::by(LIFECYCLE, why))
}

/// Whether the eviction of a pod waits for its disruption budgets: then [`validate_eviction`] names them in its
/// message.
pub fn is_held(config: &AdmitConfig, pod: &Value, now: Timestamp) -> bool {
    Pod::of(pod).is_ok_and(|pod| grace::is_held(config, &pod, now))
}

/// The validating webhook on pods/eviction: the request holds an Eviction, so the pod has to be looked up; `None` where it
/// does not exist. `budgets` are those of its namespace, where it [is held](is_held).
pub fn validate_eviction(
    config: &AdmitConfig,
    request: &Request,
    pod: Option<&Value>,
    budgets: &[Budget],
    now: Timestamp,
) -> Verdict {
    match pod.map(Pod::of) {
        // The API server says so better than we can.
        None => Verdict::default(),
        Some(Err(error)) => Verdict::denied(Denial::undecodable(&error)),
        Some(Ok(pod)) => grace::evict(config, &pod, budgets, request, now),
    }
}
