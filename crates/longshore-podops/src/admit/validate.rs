//! Which labels a pod may have.

use longshore_api::podops::{OPERATION_PERMISSION_PREFIX, OperationLabel, is_operation_permission};

use crate::model::{InvalidLabel, Labels, MalformedConditions, Pod, has_prefix};

/// Labels that do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum Inconsistent {
    /// The annotation of conditions cannot be read: when the pod may serve is unknown.
    #[error(transparent)]
    Conditions(#[from] MalformedConditions),
    /// A label names no operation.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// Of two labels that go together, this one is missing. Upstream's words.
    #[error("not found label {0}")]
    Unpaired(String),
    /// Of two kinds of labels that go together, this one is missing. Upstream's words.
    #[error("not found the expected label prefixes: map[{0}:{{}}]")]
    NoneOfKind(&'static str),
}

/// Checks the labels of a pod as they are after the state machine.
pub(super) fn validate(pod: &Pod) -> Result<(), Inconsistent> {
    pod.expected_finalizers()?;
    for key in pod.labels.keys() {
        if has_prefix(key, &OperationLabel::ALL) {
            check_pair(key, &pod.labels)?;
        }
    }
    let checked = OperationLabel::PreChecked.prefix();
    let mut keys = pod.labels.keys();
    let is_checked = keys.any(|key| OperationLabel::PreChecked.is_in(key));
    let mut keys = pod.labels.keys();
    let is_permitted = keys.any(|key| is_operation_permission(key));
    match (is_checked, is_permitted) {
        (true, false) => Err(Inconsistent::NoneOfKind(OPERATION_PERMISSION_PREFIX)),
        (false, true) => Err(Inconsistent::NoneOfKind(checked)),
        (true, true) | (false, false) => Ok(()),
    }
}

/// What is done has a type that is done, and the other way round.
fn check_pair(key: &str, labels: &Labels) -> Result<(), Inconsistent> {
    let mut parts = key.split('/');
    let (Some(prefix), Some(id), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(InvalidLabel(key.to_owned()).into());
    };
    let other = if prefix == OperationLabel::Operated.prefix() {
        OperationLabel::DoneOperationType.of(id)
    } else if prefix == OperationLabel::DoneOperationType.prefix() {
        OperationLabel::Operated.of(id)
    } else {
        return Ok(());
    };
    if labels.contains_key(&other) {
        Ok(())
    } else {
        Err(Inconsistent::Unpaired(other))
    }
}
