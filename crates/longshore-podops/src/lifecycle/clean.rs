//! Labels of operations that are no more.
//!
//! Who takes `operating` away before `operate` was granted ends the operation without an undo: upstream leaves its other
//! labels for ever. A permission stays behind as well where an operation gets another type.

use std::collections::BTreeSet;

use longshore_api::podops::{OperationLabel, is_operation_permission};

use crate::model::{Labels, Operations, has_prefix};

/// The labels without what operations have left behind; `None` where nothing is.
pub(super) fn without_left_overs(labels: &Labels, operations: &Operations) -> Option<Labels> {
    let id_of = |key: &str| key.split('/').nth(1).map(str::to_owned);
    let exists = |key: &str| id_of(key).is_some_and(|id| operations.get(&id).is_some());
    let mut kept = labels.clone();
    kept.retain(|key, _| !has_prefix(key, &OperationLabel::ALL) || exists(key));

    let needed: BTreeSet<&str> = operations
        .iter()
        .filter(|(_, operation)| operation.has(OperationLabel::PreChecked))
        .filter_map(|(_, operation)| operation.operation_type())
        .collect();
    let is_needed = |key: &str| id_of(key).is_some_and(|of| needed.contains(of.as_str()));
    let is_checked = operations.any(OperationLabel::PreChecked);
    let has_needed = kept
        .keys()
        .any(|key| is_operation_permission(key) && is_needed(key));
    // What has passed its rules has some permission: the webhook refuses a pod without any.
    if has_needed || !is_checked {
        kept.retain(|key, _| !is_operation_permission(key) || is_needed(key));
    }
    (kept != *labels).then_some(kept)
}
