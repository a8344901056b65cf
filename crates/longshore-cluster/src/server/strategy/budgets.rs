//! PodDisruptionBudgets: how much of an application may be missing, as a number or a percentage.

use longshore_k8s::int_or_percent::{IntOrPercent, is_percentage};
use serde_json::{Value, json};

use crate::server::{admission::selector_violations, error::Cause, meta};

const POLICIES: &[&str] = &["AlwaysAllow", "IfHealthyBudget"];

/// A new budget allows nothing until its controller has counted.
pub(super) fn first_status() -> Value {
    json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
}

/// What is wrong with a budget.
pub(super) fn violations(budget: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &budget["spec"];
    if let (Some(least), Some(most)) = (spec.get("minAvailable"), spec.get("maxUnavailable")) {
        let shown = format!(
            "{{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["selector"], spec["unhealthyPodEvictionPolicy"]
        );
        let message =
            format!("Invalid value: {shown}: minAvailable and maxUnavailable cannot be both set");
        causes.push(Cause::new("FieldValueInvalid", "spec", message));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if let Some(amount) = spec.get(key) {
            causes.extend(amount_violation(&format!("spec.{key}"), amount));
        }
    }
    causes.extend(selector_violations("spec.selector", &spec["selector"]));
    let policy = meta::text(spec, "/unhealthyPodEvictionPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        let field = "spec.unhealthyPodEvictionPolicy";
        causes.push(Cause::unsupported(field, policy, POLICIES));
    }
    causes
}

fn amount_violation(field: &str, amount: &Value) -> Option<Cause> {
    let refuse = |why: &str| Some(Cause::invalid(field, amount, why));
    let Some(text) = amount.as_str() else {
        return match amount.as_i64() {
            Some(number) if number < 0 => refuse("must be greater than or equal to 0"),
            Some(_) | None => None,
        };
    };
    if !is_percentage(text) {
        return refuse(
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
             used for validation is '[0-9]+%')",
        );
    }
    match IntOrPercent::percentage(text) {
        Some(IntOrPercent::Percent(..=100)) => None,
        Some(_) | None => refuse("must not be greater than 100%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_numbers_or_percentages_of_one_kind() {
        for (spec, complaints) in [
            (json!({"minAvailable": 1}), 0),
            (json!({"maxUnavailable": "100%"}), 0),
            (json!({"minAvailable": 1, "maxUnavailable": 1}), 1),
            (json!({"minAvailable": -1}), 1),
            (json!({"minAvailable": "101%"}), 1),
            (json!({"minAvailable": "some"}), 1),
            (json!({"unhealthyPodEvictionPolicy": "Sometimes"}), 1),
            (json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"}), 0),
            (
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
                1,
            ),
        ] {
            let found = violations(&json!({"spec": spec}));
            assert_eq!(found.len(), complaints, "{spec}: {found:?}");
        }
    }
}
