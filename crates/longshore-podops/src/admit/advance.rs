//! The state machine of operations: what the labels of a pod become within the request that writes it.
//!
//! Everything that follows from the pod alone happens here; what needs a look at anything else (rules, conditions) is
//! the controller's. An operation goes through *PreCheck* (until the rules pass), *Preparing* (until traffic has let
//! go), *Operating* (until the operation's client is done), *PostCheck* and *Completing*; the last three begin and end
//! for all operations of a pod together. The numbers are those of upstream's recorded behaviour; every step but the
//! undo looks at the labels as they came with the request, so that some transitions need the next write to go on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use longshore_api::podops::{
    LABEL_SERVICE_AVAILABLE, OperationLabel, is_operation_permission, operation_permission,
};

use crate::model::{InvalidLabel, Labels, MalformedConditions, Operation, Operations, Pod, stamp};

/// Labels that an operation loses at its end, or when it prepares for the second time because a client began it again
/// while it completes. With these labels the operation would neither work nor complete, and its pod would stay out of
/// service. Upstream keeps them.
const LOST_AT_THE_END: [OperationLabel; 6] = [
    OperationLabel::Operate,
    OperationLabel::Operated,
    OperationLabel::DoneOperationType,
    OperationLabel::PostCheck,
    OperationLabel::PostChecked,
    OperationLabel::Completing,
];

/// Labels that an operation loses when a client begins it after it was given up: they say that the rules let the first
/// attempt pass.
const LOST_WHEN_BEGUN_ANEW: [OperationLabel; 2] =
    [OperationLabel::PreChecked, OperationLabel::Preparing];

/// Why the labels of a pod cannot be taken further.
#[derive(Debug, thiserror::Error)]
pub enum NotAdvanced {
    /// A label names no operation.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// The annotation of conditions cannot be read: when the pod may serve again is unknown.
    #[error(transparent)]
    Conditions(#[from] MalformedConditions),
}

/// How far the operations of a pod are.
#[derive(Debug, Default)]
struct Counts<'a> {
    operating: usize,
    operated: usize,
    completing: usize,
    undone: BTreeMap<&'a str, usize>,
}

/// What the labels of a pod become when it is written; `old` are those that it had before, none when it is created.
///
/// # Errors
/// An invalid label, or a malformed annotation when it is needed: then the pod must not be written.
pub fn advance(pod: &Pod, old: &Labels, now: Timestamp) -> Result<Labels, NotAdvanced> {
    let operations = Operations::of(&pod.labels)?;
    let now = stamp(now);
    let mut labels = pod.labels.clone();
    let mut counts = count_and_begin(pod, &operations, old, &mut labels, &now);
    for (undone, n) in &counts.undone {
        if *n == operations.count(undone) {
            labels.remove(&operation_permission(undone));
        }
    }
    if counts.operating > 0 {
        return Ok(labels); // Nothing completes while anything is operated on.
    }
    if counts.completing == operations.len() {
        if pod.has_expected_finalizers()? {
            for (id, _) in operations.iter() {
                remove_all(&mut labels, id, &LOST_AT_THE_END);
            }
        }
        return Ok(labels);
    }
    // Upstream waits for all to be here at once, and waits for ever where one was done before another one began.
    let is_done = |operation: &Operation| {
        operation.has(OperationLabel::Operate) || operation.has(OperationLabel::Operated)
    };
    let are_done = operations.iter().all(|(_, operation)| is_done(operation));
    if are_done && counts.undone.is_empty() {
        for (id, operation) in operations.iter() {
            if operation.has(OperationLabel::Operate) {
                finish(id, operation, old, &mut labels, &mut counts, &now);
            }
        }
    }
    if counts.operated == operations.len() {
        for (id, operation) in operations.iter() {
            let is_checked = operation.has(OperationLabel::PostChecked);
            if !is_checked && !operation.has(OperationLabel::PostCheck) {
                labels.insert(OperationLabel::PostCheck.of(id), now.clone());
            }
        }
    }
    Ok(labels)
}

/// Takes back what is undone and takes each other operation as far as it goes by itself.
fn count_and_begin<'a>(
    pod: &Pod,
    operations: &'a Operations,
    old: &Labels,
    labels: &mut Labels,
    now: &str,
) -> Counts<'a> {
    let mut counts = Counts::default();
    for (id, operation) in operations.iter() {
        if let Some(undone) = operation.get(OperationLabel::UndoOperationType) {
            *counts.undone.entry(undone).or_default() += 1;
            remove_all(labels, id, &OperationLabel::ALL);
            continue;
        }
        if operation.has(OperationLabel::Operating) {
            counts.operating += 1;
            if is_begun_anew(id, operation, old) {
                begin_anew(id, labels, now);
            } else {
                begin(pod, id, operation, labels, now);
            }
        }
        if labels.contains_key(&OperationLabel::PostChecked.of(id)) {
            labels.remove(&OperationLabel::PostCheck.of(id));
            if !operation.has(OperationLabel::Completing) {
                labels.insert(OperationLabel::Completing.of(id), now.to_owned());
            }
        }
        let one_if = |label| usize::from(operation.has(label));
        counts.operated += one_if(OperationLabel::Operated);
        counts.completing += one_if(OperationLabel::Completing);
    }
    counts
}

/// Whether this write begins an operation that was given up before: the rules have yet to look at the pod. Upstream
/// continues where the first attempt was given up, with a permission that may be gone.
fn is_begun_anew(id: &str, operation: &Operation, old: &Labels) -> bool {
    let had = |label: OperationLabel| old.contains_key(&label.of(id));
    had(OperationLabel::PreChecked)
        && !had(OperationLabel::Operating)
        && !operation.has(OperationLabel::Operate)
}

/// Takes an operation back to PreCheck. Permissions go with the last operation that has passed its rules: the webhook
/// refuses a pod that has permissions and no such operation.
fn begin_anew(id: &str, labels: &mut Labels, now: &str) {
    remove_all(labels, id, &LOST_WHEN_BEGUN_ANEW);
    labels.insert(OperationLabel::PreCheck.of(id), now.to_owned());
    if !labels
        .keys()
        .any(|key| OperationLabel::PreChecked.is_in(key))
    {
        labels.retain(|key, _| !is_operation_permission(key));
    }
}

/// From the first wish to the permission to touch the pod.
fn begin(pod: &Pod, id: &str, operation: &Operation, labels: &mut Labels, now: &str) {
    if !operation.has(OperationLabel::PreChecked) {
        if !operation.has(OperationLabel::PreCheck) {
            labels.insert(OperationLabel::PreCheck.of(id), now.to_owned());
        }
        return;
    }
    labels.remove(&OperationLabel::PreCheck.of(id));
    if operation.has(OperationLabel::Operate) {
        return;
    }
    if !operation.has(OperationLabel::Preparing) {
        labels.remove(LABEL_SERVICE_AVAILABLE);
        remove_all(labels, id, &LOST_AT_THE_END);
        labels.insert(OperationLabel::Preparing.of(id), now.to_owned());
    }
    if pod.is_ready_to_operate() {
        labels.remove(&OperationLabel::Preparing.of(id));
        labels.insert(OperationLabel::Operate.of(id), now.to_owned());
    }
}

/// The work of all operations is done: this one's permission goes, and its type is remembered.
fn finish(
    id: &str,
    operation: &Operation,
    old: &Labels,
    labels: &mut Labels,
    counts: &mut Counts<'_>,
    now: &str,
) {
    labels.remove(&OperationLabel::PreChecked.of(id));
    if !operation.has(OperationLabel::Operated) {
        labels.remove(&OperationLabel::Operate.of(id));
        labels.insert(OperationLabel::Operated.of(id), now.to_owned());
        counts.operated += 1;
    }
    if let Some(operation_type) = old.get(&OperationLabel::OperationType.of(id)) {
        labels.remove(&operation_permission(operation_type));
        labels.remove(&OperationLabel::OperationType.of(id));
        let done = OperationLabel::DoneOperationType.of(id);
        labels.insert(done, operation_type.clone());
    }
}

fn remove_all(labels: &mut Labels, id: &str, which: &[OperationLabel]) {
    for label in which {
        labels.remove(&label.of(id));
    }
}
