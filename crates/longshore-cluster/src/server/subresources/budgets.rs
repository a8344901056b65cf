//! Decides by disruption budgets whether an eviction is allowed. Pure.

use jiff::Timestamp;
use longshore_k8s::{Selector, metadata};
use serde_json::{Value, json};

use crate::server::{error::ApiError, meta};

/// Evicted pods that a budget remembers until they are gone.
const MOST_DISRUPTED: usize = 2000;

/// Whether a budget is about pods of these labels. None and a broken selector select nothing, the
/// empty one everything.
pub(super) fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").filter(|it| !it.is_null());
    let selector = selector.and_then(|it| Selector::read(it).ok());
    selector.is_some_and(|selector| selector.matches_object(pod))
}

/// Whether the pod does no work yet.
pub(super) fn is_pending(pod: &Value) -> bool {
    meta::text(pod, "/status/phase") == "Pending"
}

/// Whether the pod has ended, or is about to.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(meta::text(pod, "/status/phase"), "Succeeded" | "Failed") || meta::is_deleting(pod)
}

/// Whether a pod that is not ready may go although the budget is spent: it is not what the budget
/// counts on.
pub(super) fn gives_up(budget: &Value, pod: &Value) -> bool {
    if metadata::is_true(pod, "Ready") {
        return false;
    }
    let number = |key: &str| number(budget, key);
    meta::text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || (number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy"))
}

fn number(budget: &Value, key: &str) -> i64 {
    let number = budget.pointer(&format!("/status/{key}"));
    number.and_then(Value::as_i64).unwrap_or(0)
}

/// The budget with one disruption less, which this pod takes.
pub(super) fn spend(budget: &Value, pod: &str, now: Timestamp) -> Result<Value, ApiError> {
    let name = meta::name(budget);
    let generation = budget
        .pointer("/metadata/generation")
        .and_then(Value::as_i64);
    if number(budget, "observedGeneration") < generation.unwrap_or(0) {
        return Err(still_processed(name));
    }
    let forbidden = |why: &str| Err(ApiError::forbidden_budget(name, why));
    let n_allowed = number(budget, "disruptionsAllowed");
    let disrupted = budget
        .pointer("/status/disruptedPods")
        .and_then(Value::as_object);
    if n_allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if disrupted.is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if n_allowed == 0 {
        return Err(ApiError::disruption_refused(&refusal(budget), None));
    }
    let mut spent = budget.clone();
    let status = meta::member(&mut spent, "status");
    status.insert("disruptionsAllowed".into(), (n_allowed - 1).into());
    if n_allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": number(budget, "observedGeneration"), "lastTransitionTime": meta::seconds(now),
        });
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.retain(|it| it["type"] != condition["type"]);
            conditions.push(condition);
        }
    }
    let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
    meta::members(disrupted).insert(pod.to_owned(), meta::seconds(now).into());
    Ok(spent)
}

/// Why a spent budget allows nothing.
fn refusal(budget: &Value) -> String {
    format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        meta::name(budget),
        number(budget, "desiredHealthy"),
        number(budget, "currentHealthy")
    )
}

/// The refusal while a budget is not counted, or was counted wrong.
pub(super) fn still_processed(name: &str) -> ApiError {
    let why = format!("The disruption budget {name} is still being processed by the server.");
    ApiError::disruption_refused(&why, Some(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 2}, "spec": {"selector": {}}, "status": status})
    }

    #[test]
    fn a_disruption_is_spent_once_it_is_counted() {
        let now = Timestamp::UNIX_EPOCH;
        let code = |status: Value| match spend(&budget(status), "p", now) {
            Ok(_) => (200, String::new()),
            Err(error) => {
                let details = error.details.unwrap();
                let cause = details["causes"][0]["message"].as_str().unwrap_or("");
                (error.code, cause.to_owned())
            }
        };
        let processed = "The disruption budget b is still being processed by the server.";
        let needs = "The disruption budget b needs 3 healthy pods and has 2 currently";
        for (status, expected) in [
            (
                json!({"observedGeneration": 1, "disruptionsAllowed": 1}),
                (429, processed),
            ),
            (
                json!({"observedGeneration": 2, "desiredHealthy": 3, "currentHealthy": 2}),
                (429, needs),
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": 1}),
                (200, ""),
            ),
        ] {
            let (expected_code, cause) = expected;
            assert_eq!(code(status), (expected_code, cause.to_owned()));
        }
        let counted = json!({"observedGeneration": 2, "disruptionsAllowed": 1});
        let spent = spend(&budget(counted), "p", now).unwrap();
        assert_eq!(spent["status"]["disruptionsAllowed"], 0);
        assert_eq!(
            spent["status"]["disruptedPods"]["p"],
            "1970-01-01T00:00:00Z"
        );
        assert_eq!(
            spent["status"]["conditions"][0]["reason"],
            "InsufficientPods"
        );
    }

    #[test]
    fn pods_that_are_not_ready_go_when_the_others_suffice() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let (enough, few) = (
            json!({"desiredHealthy": 1, "currentHealthy": 1}),
            json!({"desiredHealthy": 1}),
        );
        assert!(gives_up(&budget(enough.clone()), &json!({})));
        assert!(!gives_up(&budget(few.clone()), &json!({})));
        assert!(!gives_up(&budget(enough), &ready));
        let mut generous = budget(few);
        generous["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
        assert!(gives_up(&generous, &json!({})));
    }
}
