//! `matchConditions` (CEL): which writes the webhooks would leave alone, so that API servers need not ask. Pure.
//!
//! Each expression repeats what [`admit`](crate::admit) decides from the object alone, and no more: an API server that
//! does not take it asks about more, and gets the same answers.

use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, CONDITION_SERVICE_READY, CONTROLLED, LABEL_CONTROL,
};

/// Whether there is a label about an operation: all keys of these, and no others, have a dot there.
const HAS_OPERATIONS: &str =
    "object.metadata.labels.exists(key, key.contains('.podopslifecycle.kusionstack.io'))";

/// Writes of pods that the state machine may change: creates, and updates of a pod that has operations, or that takes
/// part no more.
pub(super) fn advanced() -> String {
    format!(
        "request.operation != 'UPDATE' || !has(object.metadata.labels) || \
         !('{LABEL_CONTROL}' in object.metadata.labels) || \
         object.metadata.labels['{LABEL_CONTROL}'] != '{CONTROLLED}' || \
         {HAS_OPERATIONS}"
    )
}

/// Writes of pods that the mutating webhook may change or refuse: those that [`advanced`] selects, and updates of a pod
/// with expected finalizers, whose annotation may be malformed.
pub(super) fn written() -> String {
    let advanced = advanced();
    format!(
        "{advanced} || (has(object.metadata.annotations) && \
         '{ANNOTATION_AVAILABLE_CONDITIONS}' in object.metadata.annotations)"
    )
}

/// Creates of pods, and deletes of a pod that is protected still.
pub(super) fn protected() -> String {
    format!(
        "request.operation != 'DELETE' || \
         (!has(oldObject.metadata.deletionTimestamp) && \
         !(has(oldObject.status) && has(oldObject.status.phase) && \
         oldObject.status.phase in ['Succeeded', 'Failed']) && \
         has(oldObject.spec.readinessGates) && \
         oldObject.spec.readinessGates.exists(gate, gate.conditionType == '{CONDITION_SERVICE_READY}'))"
    )
}

/// Writes of a PodTransitionRule that change what it says. The removal of a finalizer is none of them.
pub(super) fn rule_is_written() -> String {
    "request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || \
     object.spec != oldObject.spec"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use longshore_api::podops::{
        ANNOTATION_EVICTION, CONDITION_SERVICE_READY, CONTROLLED, EVICTION_ALLOWED,
        EVICTION_POLICY, LABEL_COMPLETING, LABEL_CONTROL, LABEL_CREATING,
        LABEL_PREPARING_TO_DELETE, LABEL_SERVICE_AVAILABLE, LABEL_STAY_OFFLINE, LABEL_TO_DELETE,
        OperationLabel, operation_permission,
    };

    /// What the API server does by itself is about the same annotation, condition and label as what we do.
    #[test]
    fn the_policy_about_evictions_has_the_words_of_the_code() {
        let policy = include_str!("../../../../deploy/podops-evictions.yaml");
        let controlled = format!("{LABEL_CONTROL}: \"{CONTROLLED}\"");
        let mark = format!("['{ANNOTATION_EVICTION}'] == '{EVICTION_ALLOWED}'");
        let name = format!("name: {EVICTION_POLICY}");
        let gate = format!("'{CONDITION_SERVICE_READY}'");
        for words in [controlled, mark, name, gate] {
            assert!(policy.contains(&words), "{words}");
        }
    }

    #[test]
    fn labels_about_operations_are_told_from_others_by_a_dot() {
        let is_of_operation = |key: &str| key.contains(".podopslifecycle.kusionstack.io");
        for label in OperationLabel::ALL {
            assert!(is_of_operation(&label.of("a")), "{label:?}");
        }
        assert!(is_of_operation(&operation_permission("update")));
        for label in [
            LABEL_SERVICE_AVAILABLE,
            LABEL_STAY_OFFLINE,
            LABEL_PREPARING_TO_DELETE,
            LABEL_CREATING,
            LABEL_COMPLETING,
            LABEL_TO_DELETE,
        ] {
            assert!(!is_of_operation(label), "{label}");
        }
    }
}
