//! What API servers ask about pods and PodTransitionRules before they write them, at upstream's paths and under
//! upstream's names.
//!
//! [`admit`](crate::admit) decides. Here its verdicts meet AdmissionReviews: pods to be evicted are looked up, and what
//! begins an operation is written before the answer.

mod conditions;
mod hold;
mod registration;
mod rules;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::{Api, api::ListParams};
use longshore_api::podops::{ANNOTATION_EVICTION, EVICTION_ALLOWED};
use longshore_core::{ObjectRef, Patch, Resource, error::chain};
use longshore_k8s::metadata;
use longshore_kit::{Answer, Clock, RawObject, Requests, api_resource};
use longshore_outbound::Boundaries;
use longshore_webhook::{Admission, Denial, Response, Review, TIME_LIMIT, Verdict};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    admit::{self, Operation, Request},
    config::AdmitConfig,
    eviction::{BUDGET, Budget},
    measures::PodMeasures,
    rule::RULE,
};

use hold::{Holds, Slot, Turn};

pub use registration::{Reach, registrations};

/// Where API servers ask what becomes of a pod.
pub const MUTATING_PATH: &str = "/mutating-generic";
/// Where API servers ask whether something may be done.
pub const VALIDATING_PATH: &str = "/validating-generic";
/// The MutatingWebhookConfiguration: upstream's, so that an operator that takes over replaces it.
pub const MUTATING: &str = "kusionstack-controller-manager-mutating";
/// The ValidatingWebhookConfiguration: upstream's, so that an operator that takes over replaces it.
pub const VALIDATING: &str = "kusionstack-controller-manager-validating";
/// The Secret of the certificates.
pub const SECRET: &str = "longshore-podops-certs";

/// How long the pod to be evicted may take to be read. API servers wait 7 s for the verdict: when this replica has none,
/// they have the time to ask once more, and may get to another replica.
const READ_LIMIT: Duration = Duration::from_secs(3);
/// The same, for its budgets, which only make the message better.
const BUDGETS_LIMIT: Duration = Duration::from_secs(1);
/// How long reads and writes may take together: the verdict then has its reason within [`TIME_LIMIT`].
const WRITTEN_WITHIN: Duration = Duration::from_millis(4_500);

/// Why an operation cannot begin: the review was about another pod.
const REPLACED: &str = "expected the pod of this request, found that it was replaced, changed at the same time, or does not take part any more; try again";

/// Takes the labels of pods through the state machine, within the request that writes them.
#[derive(Debug)]
pub struct Mutating {
    clock: Arc<dyn Clock>,
}

/// Refuses labels that do not fit together, and turns deletes and evictions into operations.
#[derive(Debug)]
pub struct Validating {
    config: AdmitConfig,
    requests: Requests,
    clock: Arc<dyn Clock>,
    boundaries: Arc<Boundaries>,
    /// `None` where every delete is answered at once.
    holds: Option<Holds>,
}

/// Both webhooks by their paths. Their own writes go through `requests`; whether the webhooks of rules are reached is
/// looked within `boundaries`. After `stopping` no delete is held.
pub fn webhooks(
    config: AdmitConfig,
    requests: Requests,
    clock: Arc<dyn Clock>,
    boundaries: Arc<Boundaries>,
    stopping: CancellationToken,
    measures: &PodMeasures,
) -> [(&'static str, Arc<dyn Admission>); 2] {
    let mutating = Mutating {
        clock: Arc::clone(&clock),
    };
    let time = config.hold_deletes.filter(|_| config.grace_delete);
    let holds = time.map(|time| Holds::new(requests.clone(), time, stopping, measures.clone()));
    let validating = Validating {
        holds,
        config,
        requests,
        clock,
        boundaries,
    };
    [
        (MUTATING_PATH, Arc::new(mutating)),
        (VALIDATING_PATH, Arc::new(validating)),
    ]
}

#[async_trait]
impl Admission for Mutating {
    async fn admit(&self, review: &Review) -> Response {
        if review.resource == RULE.plural && review.subresource.is_empty() {
            return rules::mutate(review);
        }
        if review.resource != Resource::POD.plural {
            return Verdict::Allowed.into();
        }
        match admit::write(&request(review), self.clock.now()) {
            Ok(None) => Verdict::Allowed.into(),
            Ok(Some(pod)) => Verdict::Changed(pod).into(),
            Err(denial) => to_response(denial),
        }
    }
}

#[async_trait]
impl Admission for Validating {
    async fn admit(&self, review: &Review) -> Response {
        if review.resource == RULE.plural && review.subresource.is_empty() {
            return rules::validate(review, &self.boundaries).await;
        }
        if review.resource != Resource::POD.plural {
            return Verdict::Allowed.into();
        }
        let request = request(review);
        let deadline = Instant::now() + WRITTEN_WITHIN;
        let slot = match self.turn(review) {
            Turn::Held(slot) => Some(slot),
            Turn::AtOnce => None,
            Turn::OtherPod => return other_pod(review),
        };
        let config = AdmitConfig {
            hold_deletes: self.config.hold_deletes.filter(|_| slot.is_some()),
            ..self.config.clone()
        };
        let verdict = match review.subresource.as_str() {
            "eviction" => match self.validate_eviction(review, &request).await {
                Ok(verdict) => verdict,
                Err(why) => return Verdict::Unknown(why).into(),
            },
            _ => admit::validate(&config, &request, self.clock.now()),
        };
        let Some(denial) = verdict.denial else {
            return match review.subresource.as_str() {
                "eviction" => Verdict::Changed(allowed(&review.object)).into(),
                _ => Verdict::Allowed.into(),
            };
        };
        let begun = match &verdict.begin {
            Some(begin) => self.begin(begin, deadline).await,
            None => Ok(None),
        };
        let denial = match begun {
            Ok(version) => {
                if let Some(slot) = slot
                    && self.is_granted(review, slot, version).await
                {
                    return Verdict::Allowed.into();
                }
                denial
            }
            Err(why) => denial.instead(&why),
        };
        to_response(denial)
    }

    fn time_limit(&self, review: &Review) -> Duration {
        let holds = self.holds.as_ref().filter(|_| is_delete(review));
        TIME_LIMIT + holds.map(Holds::time).unwrap_or_default()
    }
}

/// Whether a review is about the delete of a pod.
fn is_delete(review: &Review) -> bool {
    review.operation == "DELETE" && review.subresource.is_empty()
}

/// A delete that was held for a pod which is gone meanwhile, and that would now meet the next one of that name.
fn other_pod(review: &Review) -> Response {
    let Review {
        namespace, name, ..
    } = review;
    let message = format!(
        "the pod {namespace}/{name} is gone, and another one has its name: delete that one with another request"
    );
    Denial::because(409, message).into()
}

impl Validating {
    /// The review has an Eviction, which says nothing of its pod.
    ///
    /// # Errors
    /// Why the pod cannot be read. Then there is no verdict: most pods do not take part, and their evictions must not
    /// depend on this replica. The failure policy lets them pass; the policy of `deploy/podops-evictions.yaml`, where it
    /// is applied, refuses those of protected pods.
    async fn validate_eviction(
        &self,
        review: &Review,
        request: &Request,
    ) -> Result<admit::Verdict, String> {
        let name = review.object["metadata"]["name"].as_str();
        let target = ObjectRef {
            resource: Resource::POD,
            namespace: review.namespace.clone(),
            name: name.unwrap_or(&review.name).to_owned(),
            uid: None,
        };
        let unknown = |why: String| {
            format!(
                "whether the pod {}/{} takes part in PodOpsLifecycle is not known here: {why}; try again",
                target.namespace, target.name
            )
        };
        let pod = match timeout(READ_LIMIT, self.requests.get(&target)).await {
            Ok(Ok(pod)) => pod,
            Ok(Err(error)) => return Err(unknown(chain(&error))),
            Err(_elapsed) => return Err(unknown(no_answer(READ_LIMIT))),
        };
        let now = self.clock.now();
        let is_held = pod
            .as_ref()
            .is_some_and(|pod| admit::is_held(&self.config, pod, now));
        let budgets = if is_held {
            let budgets = timeout(BUDGETS_LIMIT, self.budgets(&review.namespace));
            budgets.await.unwrap_or_default()
        } else {
            Vec::new()
        };
        let verdict = admit::validate_eviction(&self.config, request, pod.as_ref(), &budgets, now);
        Ok(verdict)
    }

    /// The disruption budgets of a namespace; none where they cannot be read. They are for the message only: the
    /// controller decides.
    async fn budgets(&self, namespace: &str) -> Vec<Budget> {
        let client = self.requests.client().clone();
        let api: Api<RawObject> = Api::namespaced_with(client, namespace, &api_resource(BUDGET));
        match api.list(&ListParams::default()).await {
            Ok(list) => {
                let budgets = list.items.iter();
                budgets.filter_map(|it| it.read().ok()).collect()
            }
            Err(error) => {
                tracing::debug!(namespace, %error, "budgets not read");
                Vec::new()
            }
        }
    }

    /// Whether a delete may be held.
    fn turn(&self, review: &Review) -> Turn {
        match &self.holds {
            Some(holds) if is_delete(review) => holds.turn(review),
            Some(_) | None => Turn::AtOnce,
        }
    }

    /// Waits for the operation of a delete that is held; whether it may touch the pod. `version` is the one that began
    /// it, where this request began it.
    async fn is_granted(&self, review: &Review, slot: Slot, version: Option<u64>) -> bool {
        let since = version.or_else(|| metadata::version(&review.old_object));
        match (&self.holds, since) {
            (Some(holds), Some(since)) => holds.wait(slot, since).await,
            (Some(_) | None, _) => false,
        }
    }

    /// Writes what begins the operation, until `deadline`; the version that came of it.
    ///
    /// # Errors
    /// Why it cannot be written, which is then why the request is refused.
    async fn begin(&self, begin: &Patch, deadline: Instant) -> Result<Option<u64>, String> {
        let body = begin.patch.clone();
        let written = self
            .requests
            .patch(&begin.target, begin.subresource, begin.kind, body);
        let written = match timeout_at(deadline, written).await {
            Ok(written) => written,
            Err(_elapsed) => return Err(not_begun(&no_answer(WRITTEN_WITHIN))),
        };
        let version = |answer: Answer| {
            let object = answer.object_of(&begin.target).ok()?;
            metadata::version(&object)
        };
        written.map(version).map_err(|error| {
            if error.code() == Some(422) {
                // One of the tests of the patch.
                return REPLACED.to_owned();
            }
            error
                .message()
                .map_or_else(|| not_begun(&chain(&error)), str::to_owned)
        })
    }
}

/// A request that may still take effect.
fn no_answer(limit: Duration) -> String {
    format!("this replica had no answer of the API server within {limit:?}")
}

/// The API server did not say whether it wrote what begins an operation. To write it twice changes nothing.
fn not_begun(why: &str) -> String {
    format!("whether the operation on the pod has begun is not known: {why}; try again")
}

/// An Eviction with the mark that the policy of `deploy/podops-evictions.yaml` asks for.
fn allowed(eviction: &Value) -> Value {
    let mut eviction = eviction.clone();
    let annotations = &mut eviction["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[ANNOTATION_EVICTION] = EVICTION_ALLOWED.into();
    eviction
}

fn request(review: &Review) -> Request {
    Request {
        operation: match review.operation.as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            _ => Operation::Other,
        },
        sub_resource: review.subresource.clone(),
        is_dry_run: review.is_dry_run,
        object: review.object.clone(),
        old_object: review.old_object.clone(),
        options: review.options.clone(),
    }
}

fn to_response(denial: admit::Denial) -> Response {
    let denial = Denial {
        code: denial.code,
        reason: denial.reason,
        message: denial.message,
        retry_after_seconds: denial.retry_after_seconds,
    };
    denial.into()
}

#[cfg(test)]
mod tests;
