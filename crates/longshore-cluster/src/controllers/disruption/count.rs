//! What the status of a disruption budget says about its pods. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
};
use longshore_k8s::{IntOrPercent, InvalidIntOrPercent, Rounding};
use serde_json::json;

use crate::controllers::workloads::pods::is_ready;

/// How long a pod with an allowed eviction counts as gone, if it is not deleted.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

const CONDITION_ALLOWED: &str = "DisruptionAllowed";

/// Whether the number of pods that there should be is needed: budgets of a plain number of
/// available pods count those that there are.
pub(super) fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let spec = budget.spec.as_ref();
    let least = spec.and_then(|spec| spec.min_available.as_ref());
    let most = spec.and_then(|spec| spec.max_unavailable.as_ref());
    most.is_some() || matches!(least, Some(IntOrString::String(_)))
}

/// The status of a budget over its pods, of which there should be `n_expected`.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    pods: &[Pod],
    n_expected: i32,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let present = budget.status.clone().unwrap_or_default();
    let disrupted = still_disrupted(&present, pods, now);
    let is_healthy = |pod: &&Pod| {
        let name = pod.metadata.name.as_deref().unwrap_or("");
        pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(name) && is_ready(pod)
    };
    let n_healthy = count(pods.iter().filter(is_healthy).count());
    let (n_expected, n_desired) = match amounts(budget, count(pods.len()), n_expected) {
        Ok(amounts) => amounts,
        Err(why) => return failed(budget, &why.to_string(), now),
    };
    // A budget without pods must not allow the first of them to go unseen.
    let n_allowed = match n_expected {
        0 => 0,
        _ => (n_healthy - n_desired).max(0),
    };
    let generation = budget.metadata.generation;
    PodDisruptionBudgetStatus {
        conditions: Some(with_allowed(&present, n_allowed, generation, now)),
        current_healthy: n_healthy,
        desired_healthy: n_desired,
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: n_allowed,
        expected_pods: n_expected,
        observed_generation: generation,
    }
}

/// The status of a budget whose pods could not be counted: nothing may go.
pub(super) fn failed(
    budget: &PodDisruptionBudget,
    why: &str,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = 0;
    let generation = budget.metadata.generation;
    let condition = condition("False", "SyncFailed", why, generation, now);
    status.conditions = Some(with_condition(&status, condition));
    status
}

/// When a disruption that is counted now must be looked at again.
pub(super) fn next_look(status: &PodDisruptionBudgetStatus, now: Timestamp) -> Option<Timestamp> {
    let since = status.disrupted_pods.iter().flatten();
    let ends = since.filter_map(|(_, at)| at.0.checked_add(DELETION_TIMEOUT).ok());
    ends.min().map(|end| end.max(now))
}

/// Expected and desired number of pods.
fn amounts(
    budget: &PodDisruptionBudget,
    n_pods: i32,
    n_expected: i32,
) -> Result<(i32, i32), InvalidIntOrPercent> {
    let spec = budget.spec.as_ref();
    let most = spec.and_then(|spec| spec.max_unavailable.as_ref());
    let least = spec.and_then(|spec| spec.min_available.as_ref());
    Ok(match (most, least) {
        (Some(most), _) => (n_expected, (n_expected - share(most, n_expected)?).max(0)),
        (None, Some(IntOrString::Int(least))) => (n_pods, *least),
        (None, Some(least)) => (n_expected, share(least, n_expected)?),
        (None, None) => (0, 0),
    })
}

/// A number, or a percentage of another one, rounded up.
fn share(amount: &IntOrString, of: i32) -> Result<i32, InvalidIntOrPercent> {
    let amount = IntOrPercent::read(&json!(amount))?;
    let share = amount.scaled(i64::from(of), Rounding::Up);
    Ok(i32::try_from(share).unwrap_or(i32::MAX))
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// Evicted pods that are still there and expected to go.
///
/// A pod that was made after the eviction is the next one of that name. Upstream counts it as disrupted for two minutes
/// where its controller has not seen the pod before it go.
fn still_disrupted(
    present: &PodDisruptionBudgetStatus,
    pods: &[Pod],
    now: Timestamp,
) -> BTreeMap<String, Time> {
    let is_expected = |(name, at): &(&String, &Time)| {
        let waits = |pod: &Pod| {
            let metadata = &pod.metadata;
            let created_at = metadata.creation_timestamp.as_ref();
            metadata.deletion_timestamp.is_none()
                && metadata.name.as_ref() == Some(*name)
                && created_at.is_none_or(|created_at| created_at.0 <= at.0)
        };
        let end = at.0.checked_add(DELETION_TIMEOUT);
        end.is_ok_and(|end| end > now) && pods.iter().any(waits)
    };
    let disrupted = present.disrupted_pods.iter().flatten();
    let expected = disrupted.filter(is_expected);
    expected
        .map(|(name, at)| (name.clone(), at.clone()))
        .collect()
}

fn with_allowed(
    present: &PodDisruptionBudgetStatus,
    n_allowed: i32,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let (status, reason) = match n_allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    with_condition(present, condition(status, reason, "", generation, now))
}

fn condition(
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: CONDITION_ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    }
}

/// The conditions with this one, which keeps its time while it says the same.
fn with_condition(present: &PodDisruptionBudgetStatus, mut condition: Condition) -> Vec<Condition> {
    let mut conditions = present.conditions.clone().unwrap_or_default();
    let found = conditions.iter().position(|it| it.type_ == condition.type_);
    match found {
        Some(at) => {
            if conditions[at].status == condition.status {
                condition.last_transition_time = conditions[at].last_transition_time.clone();
            }
            conditions[at] = condition;
        }
        None => conditions.push(condition),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pod(name: &str, is_ready: bool) -> Pod {
        let status = if is_ready { "True" } else { "False" };
        let conditions = json!([{"type": "Ready", "status": status}]);
        serde_json::from_value(
            json!({"metadata": {"name": name}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn counted(spec: Value, present: Value, n_expected: i32) -> PodDisruptionBudgetStatus {
        let budget = json!({"metadata": {"generation": 3}, "spec": spec, "status": present});
        let budget = serde_json::from_value(budget).unwrap();
        let pods = [pod("a", true), pod("b", true), pod("c", false)];
        status(&budget, &pods, n_expected, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn budgets_allow_what_is_left_over() {
        for (spec, n_expected, numbers) in [
            (json!({"minAvailable": 1}), 9, (3, 1, 1)),
            (json!({"minAvailable": 2}), 9, (3, 2, 0)),
            (json!({"minAvailable": "50%"}), 3, (3, 2, 0)),
            (json!({"maxUnavailable": 2}), 3, (3, 1, 1)),
            (json!({"maxUnavailable": "34%"}), 3, (3, 1, 1)),
            (json!({"maxUnavailable": 5}), 3, (3, 0, 2)),
            (json!({"maxUnavailable": 5}), 0, (0, 0, 0)),
            (json!({}), 3, (0, 0, 0)),
        ] {
            let status = counted(spec.clone(), json!({}), n_expected);
            let found = (
                status.expected_pods,
                status.desired_healthy,
                status.disruptions_allowed,
            );
            assert_eq!(found, numbers, "{spec}");
            assert_eq!(
                (status.current_healthy, status.observed_generation),
                (2, Some(3))
            );
        }
    }

    #[test]
    fn a_budget_of_what_is_no_percentage_allows_nothing() {
        for spec in [
            json!({"maxUnavailable": "50"}),
            json!({"minAvailable": "some"}),
        ] {
            let status = counted(spec.clone(), json!({}), 3);
            let conditions = status.conditions.unwrap();
            let reason = conditions[0].reason.as_str();
            assert_eq!(
                (status.disruptions_allowed, reason),
                (0, "SyncFailed"),
                "{spec}"
            );
        }
    }

    #[test]
    fn evicted_pods_do_not_count_for_two_minutes() {
        let now = Timestamp::UNIX_EPOCH;
        let at = |seconds: i64| (now + SignedDuration::from_secs(seconds)).to_string();
        let base = |zeros: Value| {
            let mut present = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
            present["disruptedPods"] = zeros;
            present
        };
        let status = counted(json!({"minAvailable": 1}), base(json!({"a": at(-10)})), 0);
        assert_eq!((status.current_healthy, status.disruptions_allowed), (1, 0));
        let end = now + SignedDuration::from_secs(110);
        assert_eq!(next_look(&status, now), Some(end));
        let status = counted(
            json!({"minAvailable": 1}),
            base(json!({"a": at(-121), "x": at(0)})),
            0,
        );
        assert_eq!((status.current_healthy, status.disruptions_allowed), (2, 1));
        assert_eq!(
            (
                status.disrupted_pods,
                next_look(&counted(json!({}), json!(null), 0), now)
            ),
            (None, None)
        );
    }

    #[test]
    fn the_next_pod_of_the_name_of_an_evicted_one_counts() {
        let evicted_at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(10);
        let budget = json!({
            "metadata": {}, "spec": {"minAvailable": 0},
            "status": {
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
                "disruptedPods": {"set-0": evicted_at.to_string()},
            },
        });
        let budget = serde_json::from_value(budget).unwrap();
        for (created_after, n_healthy) in [(-5, 0), (0, 0), (1, 1)] {
            let mut pod = pod("set-0", true);
            let created_at = evicted_at + SignedDuration::from_secs(created_after);
            pod.metadata.creation_timestamp = Some(Time(created_at));
            let status = status(&budget, &[pod], 0, evicted_at);
            assert_eq!(status.current_healthy, n_healthy, "{created_after}");
        }
    }
}
