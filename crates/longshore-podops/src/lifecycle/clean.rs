//! Labels of operations that are no more.
//!
//! A client that removes `operating` before `operate` was granted gives the operation up without an undo: upstream leaves
//! the other labels of the operation for ever. The same labels stay where a client begins an operation again while the
//! operation completes, and gives the second attempt up. A permission stays behind as well where an operation gets another
//! type.

use std::collections::BTreeSet;

use longshore_api::podops::{OperationLabel, is_operation_permission};

use crate::model::{Labels, Operation, Operations, has_prefix};

/// Labels of the second attempt of an operation, which was begun again while it completed.
const BEGUN_AGAIN: [OperationLabel; 3] = [
    OperationLabel::PreCheck,
    OperationLabel::PreChecked,
    OperationLabel::Preparing,
];

/// The labels without what operations have left behind; `None` where nothing is.
pub(super) fn without_left_overs(labels: &Labels, operations: &Operations) -> Option<Labels> {
    let id_of = |key: &str| key.split('/').nth(1).map(str::to_owned);
    let exists = |key: &str| id_of(key).is_some_and(|id| operations.get(&id).is_some());
    let mut kept = labels.clone();
    kept.retain(|key, _| !has_prefix(key, &OperationLabel::ALL) || exists(key));
    let given_up = operations
        .iter()
        .filter(|(_, operation)| is_given_up(operation));
    for (id, operation) in given_up {
        for label in BEGUN_AGAIN {
            kept.remove(&label.of(id));
        }
        // Without `done-operation-type`, the label names the type of the work that is done.
        if operation.has(OperationLabel::DoneOperationType) {
            kept.remove(&OperationLabel::OperationType.of(id));
        }
    }

    let checked: Vec<&Operation> = operations
        .iter()
        .map(|(_, operation)| operation)
        .filter(|it| it.has(OperationLabel::PreChecked) && !is_given_up(it))
        .collect();
    let needed: BTreeSet<&str> = checked
        .iter()
        .filter_map(|it| it.operation_type())
        .collect();
    let is_needed = |key: &str| id_of(key).is_some_and(|of| needed.contains(of.as_str()));
    let has_needed = kept
        .keys()
        .any(|key| is_operation_permission(key) && is_needed(key));
    // What has passed its rules has some permission: the webhook refuses a pod without any.
    if has_needed || checked.is_empty() {
        kept.retain(|key, _| !is_operation_permission(key) || is_needed(key));
    }
    (kept != *labels).then_some(kept)
}

/// Whether an operation has done its work and no client works on the pod for it: what a second attempt has left is of no
/// use.
fn is_given_up(operation: &Operation) -> bool {
    let goes_on = [OperationLabel::Operating, OperationLabel::Operate];
    operation.has(OperationLabel::Operated) && !goes_on.iter().any(|it| operation.has(*it))
}
