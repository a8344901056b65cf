//! `pods/eviction`: deletes a pod on behalf of a drain, as far as its disruption budget allows.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::budgets;
use crate::server::{
    admission::{Operation, Question},
    error::{ApiError, Result},
    http::body::{self, ApiBody},
    meta,
    registry::Served,
    verbs::{
        Call,
        delete::{DeleteOptions, delete_unasked},
        rewrite::{Part, rewrite_unasked},
    },
};

/// Attempts of one eviction against concurrent writers of the pod.
const ATTEMPTS: usize = 20;

/// Evicts the pod on the URL. Webhooks receive the eviction, not the deletion.
pub(crate) async fn evict(call: &Call, eviction: Value) -> Result<Response<ApiBody>> {
    check_kind(&eviction)?;
    DeleteOptions::read(given_options(&eviction), &call.query)?.is_dry_run()?;
    // As upstream: a dry run in the Eviction's own options is honoured, and webhooks see it only there.
    let is_dry = call.query.is_dry_run()?;
    let question = Question::new(call, Operation::Create, is_dry);
    let question = question.of_kind("policy", "v1", "Eviction");
    let eviction = question.mutate(eviction, None).await?;
    if meta::name(&eviction) != call.name && !meta::name(&eviction).is_empty() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    question.validate(Some(&eviction), None).await?;
    let options = DeleteOptions::read(given_options(&eviction), &call.query)?;
    let mut n_left = ATTEMPTS;
    loop {
        n_left -= 1;
        match evict_once(call, &options).await? {
            Evicted::Done => return Ok(body::done()),
            Evicted::Changed if n_left > 0 => {}
            Evicted::Changed => return Err(ApiError::modified(call.resource(), &call.name)),
        }
    }
}

fn check_kind(eviction: &Value) -> Result<()> {
    let kind = meta::text(eviction, "/kind");
    if matches!(kind, "" | "Eviction") {
        return Ok(());
    }
    let version = meta::text(eviction, "/apiVersion");
    let short = version.rsplit('/').next().unwrap_or(version);
    Err(ApiError::bad_request(format!(
        "{kind} in version {short:?} cannot be handled as a Eviction: converting ({short}.{kind}) to (policy.Eviction): \
         unknown conversion"
    )))
}

/// The outcome of an attempt to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    Done,
    /// The pod is not as it was when it was judged.
    Changed,
}

fn given_options(eviction: &Value) -> Option<Value> {
    let options = eviction.get("deleteOptions").filter(|it| !it.is_null());
    options.cloned()
}

async fn evict_once(call: &Call, options: &DeleteOptions) -> Result<Evicted> {
    let pod = call.stored()?.value();
    options.check(call.resource(), &pod)?;
    let is_bound = options.requires_version();
    let as_judged = || options.at_version(meta::text(&pod, "/metadata/resourceVersion"));
    if budgets::is_over(&pod) {
        return remove(call, options).await;
    }
    if budgets::is_pending(&pod) {
        return match remove(call, &as_judged()).await {
            // A conflict: the pod may run by now, and then it counts.
            Err(error) if error.code == 409 && !is_bound => Ok(Evicted::Changed),
            outcome => outcome,
        };
    }
    let budgets = call
        .server
        .registry
        .find("policy", "v1", "poddisruptionbudgets");
    let Some(served) = budgets else {
        return remove(call, options).await;
    };
    let covering = covering(call, &served, &pod);
    let budget = match covering.as_slice() {
        [] => return remove(call, options).await,
        [budget] => budget,
        _ => {
            return Err(ApiError::unexplained(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if budgets::gives_up(budget, &pod) {
        return match remove(call, &as_judged()).await {
            // A conflict: the pod may be ready by now, and then it counts.
            Err(error) if error.code == 409 && !is_bound => {
                Err(budgets::still_processed(meta::name(budget)))
            }
            outcome => outcome,
        };
    }
    spend(call, &served, meta::name(budget), options).await?;
    remove(call, options).await
}

/// The budgets that a pod is under.
fn covering(call: &Call, served: &Served, pod: &Value) -> Vec<Value> {
    let prefix = format!("{}/", call.namespace.as_deref().unwrap_or(""));
    let (objects, _) = served.collection.snapshot(0);
    let budgets = objects.values();
    budgets
        .filter(|object| object.key.as_str().starts_with(&prefix))
        .map(|object| object.value())
        .filter(|budget| budgets::covers(budget, pod))
        .collect()
}

/// Takes one disruption out of a budget, or says why there is none.
async fn spend(call: &Call, served: &Served, budget: &str, options: &DeleteOptions) -> Result<()> {
    let call_for_budget = Call {
        served: Arc::clone(&served.resource),
        collection: Arc::clone(&served.collection),
        name: budget.to_owned(),
        ..call.clone()
    };
    let now = call.server.now();
    if options.is_dry_run()? {
        let stored = call_for_budget.stored()?.value();
        return budgets::spend(&stored, &call.name, now).map(|_| ());
    }
    let change = |budget: &Value| budgets::spend(budget, &call.name, now);
    rewrite_unasked(&call_for_budget, Part::Status, change).await?;
    Ok(())
}

/// Sets the condition that names the eviction in the pod, and deletes the pod.
async fn remove(call: &Call, options: &DeleteOptions) -> Result<Evicted> {
    if options.is_dry_run()? {
        delete_unasked(call, options.clone()).await?;
        return Ok(Evicted::Done);
    }
    let now = meta::seconds(call.server.now());
    let marked = rewrite_unasked(call, Part::Private, |pod| {
        options.check(call.resource(), pod)?;
        Ok(with_disruption_target(pod, &now))
    })
    .await?;
    let marked = marked.value();
    let options = match options.requires_version() {
        true => options.at_version(meta::text(&marked, "/metadata/resourceVersion")),
        false => options.clone(),
    };
    delete_unasked(call, options).await?;
    Ok(Evicted::Done)
}

fn with_disruption_target(pod: &Value, now: &str) -> Value {
    const TYPE: &str = "DisruptionTarget";
    let mut marked = pod.clone();
    let conditions = meta::member(&mut marked, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return marked;
    };
    let found = conditions
        .iter()
        .position(|it| meta::text(it, "/type") == TYPE);
    let since = found
        .filter(|at| meta::text(&conditions[*at], "/status") == "True")
        .map(|at| conditions[at]["lastTransitionTime"].clone());
    let condition = json!({
        "type": TYPE, "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| now.into()),
    });
    match found {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    marked
}
