//! A pod that waits for the finalizers that protect its traffic: an Event names them, and where a deadline is set, they
//! hold the pod no longer than that.
//!
//! Upstream waits for ever: a cooperation controller that died blocks every deletion. Without a deadline that is so
//! here as well, but the Event says what blocks it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{
    ANNOTATION_PROTECTION_DEADLINE, OperationLabel, PROTECTION_FINALIZER_PREFIX,
    REASON_PROTECTION_EXPIRED, REASON_WAITS_FOR_PROTECTION,
};
use longshore_core::{Action, Plan};
use serde_json::json;

use super::decide::{Observed, PodPlan, complain, upon, warn};
use crate::model::{ConditionStatus, Operations, Pod, parse_stamp};

/// A pod waits this long before an Event names its finalizers: a shorter wait is ordinary.
const PATIENCE: Duration = Duration::from_secs(60);

/// Since when the operation prepares that has waited longest; `None` where none does.
pub(super) fn prepares_since(operations: &Operations) -> Option<Timestamp> {
    let labels = operations.iter().filter_map(|(_, operation)| {
        let preparing = operation.get(OperationLabel::Preparing)?;
        // A label that is no instant is as old as can be.
        Some(parse_stamp(preparing).unwrap_or(Timestamp::UNIX_EPOCH))
    });
    labels.min()
}

/// What is done about a pod that finalizers may hold, and that should have been let go since `since`.
pub(super) fn decide(pod: &Pod, since: Option<Timestamp>, observed: &Observed) -> PodPlan {
    let holders: Vec<&str> = pod.protections().collect();
    // While the pod may serve, no controller is asked to remove its finalizer.
    let is_asked = pod.is_deleting || pod.service_ready == Some(ConditionStatus::False);
    let (Some(since), true, false) = (since, is_asked, holders.is_empty()) else {
        return Plan::await_change();
    };
    let deadline = match protection_deadline(pod) {
        Ok(of_pod) => of_pod.or(observed.deadline),
        Err(why) => return complain(pod, why),
    };
    let waited = Duration::try_from(observed.now.duration_since(since)).unwrap_or_default();
    let holders = holders.join(", ");
    if let Some(deadline) = deadline.filter(|deadline| *deadline <= waited) {
        return let_go(pod, &holders, deadline);
    }
    let left = deadline.map(|deadline| deadline - waited);
    if waited < PATIENCE {
        let until_told = PATIENCE - waited;
        return Plan::after(left.map_or(until_told, |left| left.min(until_told)));
    }
    let note = format!("waits for the controllers that protect its traffic to remove {holders}");
    Plan {
        actions: vec![warn(pod, REASON_WAITS_FOR_PROTECTION, note)],
        ..left.map_or(Plan::await_change(), Plan::after)
    }
}

/// Removes what they hold it with. The state machine goes on with that very write.
fn let_go(pod: &Pod, holders: &str, deadline: Duration) -> PodPlan {
    let mut kept = pod.finalizers.clone();
    kept.retain(|finalizer| !finalizer.starts_with(PROTECTION_FINALIZER_PREFIX));
    let patch = upon(pod, json!({"metadata": {"finalizers": kept}}));
    let note = format!(
        "removed {holders}: the controllers that protect its traffic have not let go within {} s",
        deadline.as_secs()
    );
    Plan::of(vec![
        Action::Patch(patch),
        warn(pod, REASON_PROTECTION_EXPIRED, note),
    ])
}

/// The pod's own deadline, where it has one.
///
/// # Errors
/// What was expected of the annotation, and what it says.
pub(crate) fn protection_deadline(pod: &Pod) -> Result<Option<Duration>, String> {
    let Some(text) = pod.annotations.get(ANNOTATION_PROTECTION_DEADLINE) else {
        return Ok(None);
    };
    let time = text.parse::<SignedDuration>().ok();
    let time = time.and_then(|time| Duration::try_from(time).ok());
    time.map(Some).ok_or_else(|| {
        format!(
            "expected a time as 10m in the annotation {ANNOTATION_PROTECTION_DEADLINE}, found {text:?}"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longshore_api::podops::{CONDITION_SERVICE_READY, LABEL_CONTROL};
    use longshore_core::{Next, Seen};
    use serde_json::Value;

    use super::*;
    use crate::{
        lifecycle,
        model::{Namespace, stamp},
    };

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);
    const HOLDER: &str = "prot.podopslifecycle.kusionstack.io/a";

    /// A pod that prepares since so many seconds, and is held.
    fn held(seconds: i64, change: impl FnOnce(&mut Value)) -> Observed {
        let at = NOW - SignedDuration::from_secs(seconds);
        let mut labels = json!({LABEL_CONTROL: "true"});
        for label in [
            OperationLabel::Operating,
            OperationLabel::PreChecked,
            OperationLabel::Preparing,
        ] {
            labels[label.of("x")] = json!(stamp(at));
        }
        labels[OperationLabel::OperationType.of("x")] = json!("update");
        labels[longshore_api::podops::operation_permission("update")] = json!("1");
        let mut pod = json!({
            "metadata": {
                "name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "7",
                "labels": labels, "annotations": {}, "finalizers": ["other", HOLDER],
            },
            "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
            "status": {"conditions": [{"type": CONDITION_SERVICE_READY, "status": "False"}]},
        });
        change(&mut pod);
        Observed {
            now: NOW,
            pod: Seen::Present(Pod::of(&pod).unwrap()),
            rules: Seen::Absent,
            services: BTreeMap::new(),
            budgets: Seen::Absent,
            namespace: Namespace::Stays,
            traffic: Seen::Absent,
            deadline: None,
        }
    }

    fn within(seconds: &str) -> impl FnOnce(&mut Value) {
        let text = seconds.to_owned();
        move |pod| pod["metadata"]["annotations"][ANNOTATION_PROTECTION_DEADLINE] = json!(text)
    }

    /// What is done, in words, and when it is looked again.
    fn done(observed: &Observed) -> (Vec<String>, Option<u64>) {
        let plan = lifecycle::decide(observed);
        let words = plan.actions.iter().map(|action| match action {
            Action::Patch(patch) => patch.patch["metadata"]["finalizers"].to_string(),
            Action::Announce(announcement) => announcement.reason.to_owned(),
            Action::Persist(_)
            | Action::EnsureFinalizer { .. }
            | Action::Create(_)
            | Action::Delete(_)
            | Action::Call(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::RemoveFinalizer { .. } => format!("{action:?}"),
        });
        let next = match plan.next {
            Next::AwaitChange => None,
            Next::After(time) => Some(time.as_secs()),
        };
        (words.collect(), next)
    }

    #[test]
    fn whoever_holds_a_pod_is_named_after_a_while_and_holds_it_as_long_as_they_may() {
        let told = || vec![REASON_WAITS_FOR_PROTECTION.to_owned()];
        let removed = || {
            vec![
                r#"["other"]"#.to_owned(),
                REASON_PROTECTION_EXPIRED.to_owned(),
            ]
        };
        let nothing = |_: &mut Value| {};
        let of_all = |seconds| Observed {
            deadline: Some(Duration::from_secs(seconds)),
            ..held(61, nothing)
        };
        let deleted = |pod: &mut Value| {
            pod["metadata"]["deletionTimestamp"] =
                json!((NOW - SignedDuration::from_secs(61)).to_string());
            within("1m")(pod);
        };
        for (observed, actions, next) in [
            (held(1, nothing), vec![], Some(59)),
            (held(61, nothing), told(), None),
            (held(1, within("30s")), vec![], Some(29)),
            (held(61, within("90s")), told(), Some(29)),
            (held(61, within("1m")), removed(), None),
            (of_all(60), removed(), None),
            (of_all(600), told(), Some(539)),
            (held(1, deleted), removed(), None),
            (
                held(1, within("soon")),
                vec!["InvalidLifecycle".to_owned()],
                None,
            ),
            (
                held(61, |pod| pod["metadata"]["finalizers"] = json!(["other"])),
                vec!["null".to_owned()],
                None,
            ),
        ] {
            assert_eq!(done(&observed), (actions, next), "{observed:?}");
        }
    }
}
