//! A pod without an operation: it shall serve.

use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, LABEL_COMPLETING, LABEL_CREATING, LABEL_SERVICE_AVAILABLE,
};
use longshore_core::{Action, Plan, Seen};
use serde_json::{Value, json};

use super::decide::{Observed, PodPlan, complain, look_again, relabel, rest, set_gate, upon};
use crate::model::{ConditionStatus, Labels, Pod, stamp};

/// Brings a pod into service, as far as its node and the controllers that route traffic to it are.
pub(super) fn decide(pod: &Pod, observed: &Observed) -> PodPlan {
    if !pod.is_available() {
        match pod.has_expected_finalizers() {
            Err(error) => return complain(pod, error.to_string()),
            Ok(true) if pod.is_ready => return relabel(pod, &serving(pod, observed)),
            Ok(true) => {}
            Ok(false) => match forget_dirty(pod, observed) {
                Seen::Present(plan) => return plan,
                Seen::Unknown(_) => return look_again(),
                Seen::Absent => {}
            },
        }
    }
    if pod.has_gate && pod.service_ready != Some(ConditionStatus::True) {
        return set_gate(pod, ConditionStatus::True, observed.now);
    }
    rest(pod, observed.now)
}

fn serving(pod: &Pod, observed: &Observed) -> Labels {
    let mut labels = pod.labels.clone();
    labels.insert(LABEL_SERVICE_AVAILABLE.to_owned(), stamp(observed.now));
    labels.remove(LABEL_CREATING);
    labels.remove(LABEL_COMPLETING);
    labels
}

/// Stops waiting for Services that are gone, or that select the pod no more. `Absent` where there are none.
fn forget_dirty(pod: &Pod, observed: &Observed) -> Seen<PodPlan> {
    let mut is_dirty = Vec::new();
    for (holder, selector) in &observed.services {
        match selector {
            Seen::Unknown(why) => return Seen::Unknown(why.clone()),
            Seen::Absent => is_dirty.push(holder),
            Seen::Present(selector) => {
                let selects = selector
                    .iter()
                    .all(|(key, value)| pod.labels.get(key) == Some(value));
                if !selects {
                    is_dirty.push(holder);
                }
            }
        }
    }
    let annotation = pod.annotations.get(ANNOTATION_AVAILABLE_CONDITIONS);
    let conditions = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let (Some(mut conditions), false) = (conditions, is_dirty.is_empty()) else {
        return Seen::Absent;
    };
    if let Value::Object(expected) = &mut conditions["expectedFinalizers"] {
        expected.retain(|holder, _| !is_dirty.contains(&holder));
    }
    let annotations = json!({ANNOTATION_AVAILABLE_CONDITIONS: conditions.to_string()});
    let patch = upon(pod, json!({"metadata": {"annotations": annotations}}));
    Seen::Present(Plan::of(vec![Action::Patch(patch)]))
}
