//! An operation without a type.
//!
//! A client that operates writes `operating/<id>` and `operation-type/<id>` in one request. The labels may come one
//! after the other, as people write them, so that the webhook does not refuse the first one; but without a type there
//! is nothing that could be permitted, and the operation waits before its rules. Upstream waits for ever, without a
//! word.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::podops::{OperationLabel, REASON_INVALID_LIFECYCLE};
use longshore_core::{Next, Plan};

use super::decide::{PodPlan, warn};
use crate::model::{Operation, Operations, Pod, parse_stamp};

/// A person that writes one label after the other is done by then.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether an operation waits for its type.
pub(crate) fn waits_for_type(operation: &Operation) -> bool {
    operation.has(OperationLabel::Operating) && operation.wanted_type().is_none()
}

/// What the operation's owner has to do.
pub(crate) fn what_to_do(id: &str) -> String {
    format!(
        "it has no type: the client that began it has to add the label {} with its type, or to remove {}",
        OperationLabel::OperationType.of(id),
        OperationLabel::Operating.of(id),
    )
}

/// Warns about operations that have waited for their type for a while.
pub(super) fn decide(pod: &Pod, operations: &Operations, now: Timestamp) -> PodPlan {
    let mut plan = Plan::await_change();
    let mut overdue = Vec::new();
    for (id, operation) in operations.iter().filter(|(_, it)| waits_for_type(it)) {
        let since = operation.get(OperationLabel::PreCheck);
        let since = since.and_then(parse_stamp).unwrap_or(Timestamp::UNIX_EPOCH);
        let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        match PATIENCE.checked_sub(waited) {
            Some(left) if !left.is_zero() => plan.next = plan.next.min(Next::After(left)),
            Some(_) | None => overdue.push(format!("operation {id} waits: {}", what_to_do(id))),
        }
    }
    if !overdue.is_empty() {
        let note = overdue.join("; ");
        plan.actions.push(warn(pod, REASON_INVALID_LIFECYCLE, note));
    }
    plan
}
