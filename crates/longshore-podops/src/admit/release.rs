//! A pod that takes part no more.
//!
//! Our controllers follow pods by the label, and lose sight of this one with the request that removes it. So that very
//! request takes back what is ours: our finalizer, the labels of operations, what rules have said. Upstream leaves all
//! of it, and a gate that no controller opens. The gate is in the status, which cannot be written here: where the gate
//! is not open, the webhook leaves a mark by which the controller finds the pod ([`crate::lifecycle`]).

use jiff::Timestamp;
use longshore_api::podops::{
    FINALIZER_SERVICES, ID_POD_DELETE, LABEL_RELEASED, LABEL_TO_DELETE, OperationLabel,
};
use serde_json::{Value, json};

use crate::{
    leave::{is_our_annotation, is_our_label},
    lifecycle::released::needs_gate,
    model::{Labels, Pod, stamp},
};

/// The pod without what is ours; `None` where that is nothing. `took_part`: it did before this request.
pub(super) fn released(
    pod: &Pod,
    took_part: bool,
    object: &Value,
    now: Timestamp,
) -> Option<Value> {
    let mut released = object.clone();
    let metadata = &mut released["metadata"];
    let mut finalizers = pod.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != FINALIZER_SERVICES);
    if finalizers != pod.finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    if took_part {
        let mut labels = without_operations(&pod.labels);
        if needs_gate(pod) && !pod.is_deleting {
            labels.insert(LABEL_RELEASED.to_owned(), stamp(now));
        }
        if labels != pod.labels {
            metadata["labels"] = json!(labels);
        }
        let mut annotations = pod.annotations.clone();
        annotations.retain(|key, _| !is_our_annotation(key));
        if annotations != pod.annotations {
            metadata["annotations"] = json!(annotations);
        }
    }
    Some(released).filter(|released| released != object)
}

/// A client that wanted the pod deleted has to ask again: it may have removed the label because it no longer wants
/// that.
fn without_operations(labels: &Labels) -> Labels {
    let is_to_go = labels.contains_key(&OperationLabel::Operating.of(ID_POD_DELETE));
    let mut kept = labels.clone();
    kept.retain(|key, _| !is_our_label(key) || (key == LABEL_TO_DELETE && !is_to_go));
    kept
}
