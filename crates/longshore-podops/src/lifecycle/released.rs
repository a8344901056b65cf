//! A pod that takes part no more: its gate is opened, because no other controller would.
//!
//! The label can be removed in the middle of an operation, when the gate is closed. The webhook sees that request, takes
//! back everything of ours that is in the metadata of the pod, and leaves [`LABEL_RELEASED`] where the gate is not open: it
//! cannot write the status in the same request. The mark is the record of what is left to do. It is in the object, so that
//! a controller that was down at the time finds the pod by it, without a list of all pods.

use jiff::Timestamp;
use longshore_api::podops::LABEL_RELEASED;
use longshore_core::{Never, Plan, Seen};

use super::decide::{look_again, relabel, set_gate, stays_offline};
use crate::model::{ConditionStatus, Pod};

/// What is seen of a pod that has the mark.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observed {
    /// The current instant.
    pub(crate) now: Timestamp,
    /// The pod.
    pub(crate) pod: Seen<Pod>,
}

/// Opens the gate, and then removes the mark.
///
/// A person may still keep the pod out of service: the mark stays until they let go.
pub(crate) fn decide<E>(observed: &Observed) -> Plan<Never, E> {
    let pod = match &observed.pod {
        Seen::Present(pod) if pod.is_released() && !pod.is_deleting => pod,
        Seen::Present(_) | Seen::Absent => return Plan::await_change(),
        Seen::Unknown(_) => return look_again(),
    };
    // A pod that takes part again is decided upon elsewhere.
    if !pod.is_controlled() && needs_gate(pod) {
        return if stays_offline(pod) {
            Plan::await_change()
        } else {
            set_gate(pod, ConditionStatus::True, observed.now)
        };
    }
    let mut labels = pod.labels.clone();
    labels.remove(LABEL_RELEASED);
    relabel(pod, &labels)
}

/// Whether the pod waits for us to say that it may serve.
pub(crate) fn needs_gate(pod: &Pod) -> bool {
    pod.has_gate && pod.service_ready != Some(ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use longshore_api::podops::{CONDITION_SERVICE_READY, LABEL_CONTROL, LABEL_STAY_OFFLINE};
    use longshore_core::Action;
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

    /// What is written about a pod with the mark.
    fn written(change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = json!({
            "metadata": {
                "name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "7",
                "labels": {LABEL_RELEASED: "1"},
            },
            "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
            "status": {"conditions": [{"type": CONDITION_SERVICE_READY, "status": "False"}]},
        });
        change(&mut pod);
        let pod = Seen::Present(Pod::of(&pod).unwrap());
        let plan = decide::<Never>(&Observed { now: NOW, pod });
        match plan.actions.first() {
            Some(Action::Patch(patch)) => {
                assert_eq!(patch.patch["metadata"]["resourceVersion"], "7");
                let gate = &patch.patch["status"]["conditions"][0]["status"];
                if gate.is_null() {
                    patch.patch["metadata"]["labels"].clone()
                } else {
                    gate.clone()
                }
            }
            other => json!(format!("{other:?}")),
        }
    }

    #[test]
    fn the_gate_is_opened_before_the_mark_goes_unless_a_person_keeps_the_pod_offline() {
        let unmarked = json!({LABEL_RELEASED: null});
        assert_eq!(written(|_| {}), "True");
        let unsaid = |pod: &mut Value| pod["status"] = json!({});
        assert_eq!(written(unsaid), "True");
        let open = |pod: &mut Value| pod["status"]["conditions"][0]["status"] = json!("True");
        assert_eq!(written(open), unmarked);
        assert_eq!(written(|pod| pod["spec"] = json!({})), unmarked);
        let offline = |pod: &mut Value| pod["metadata"]["labels"][LABEL_STAY_OFFLINE] = json!("");
        assert_eq!(written(offline), "None");
        let again = |pod: &mut Value| pod["metadata"]["labels"][LABEL_CONTROL] = json!("true");
        assert_eq!(written(again), unmarked);
        let goes = |pod: &mut Value| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        };
        assert_eq!(written(goes), "None");
        assert_eq!(written(|pod| pod["metadata"]["labels"] = json!({})), "None");
    }
}
