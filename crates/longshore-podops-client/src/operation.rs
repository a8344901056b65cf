//! The operation side: begin, wait, work, finish.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_api::podops::{LABEL_SERVICE_AVAILABLE, OperationLabel};

/// An operation, as its controller describes it.
pub trait OperationAdapter {
    /// The id of the operation: a label name of at most 63 characters, the same for the same
    /// operation after every restart.
    fn id(&self) -> &str;

    /// The type of the operation, as `update` or `scale-in`.
    fn operation_type(&self) -> &str;

    /// Whether others of the same type may be on the pod at the same time.
    fn allow_multi_type(&self) -> bool {
        false
    }

    /// Changes the pod in the same write with which the operation begins; returns whether it did.
    fn when_begin(&self, pod: &mut Pod) -> Written {
        let _ = pod;
        Written::Unchanged
    }

    /// Changes the pod in the same write with which the operation ends; returns whether it did.
    fn when_finish(&self, pod: &mut Pod) -> Written {
        let _ = pod;
        Written::Unchanged
    }
}

/// Whether a pod has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a pod that was changed has to be written"]
pub enum Written {
    /// The pod was changed in memory.
    Changed,
    /// The pod is as it was.
    Unchanged,
}

impl Written {
    fn or(self, other: Self) -> Self {
        if self == Self::Changed { self } else { other }
    }
}

/// Whether an operation may touch its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Not yet: the controller sees the permission as a change of the pod.
    NotYet,
    /// The operation may touch the pod after this time.
    After(Duration),
    /// The operation may touch the pod.
    Now,
}

/// Why an operation cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The pod has an operation of this type. Upstream's words.
    #[error("operationType {operation_type} exists: map[{}]", as_map(.labels))]
    TypeExists {
        /// The type of both operations.
        operation_type: String,
        /// The labels of the others.
        labels: Vec<String>,
    },
    /// The pod has other operations, and this one is to be alone.
    #[error("the pod has operations already, expected none: {}", .ids.join(", "))]
    NotAlone {
        /// Their ids.
        ids: Vec<String>,
    },
}

/// The labels as Go prints a set.
fn as_map(labels: &[String]) -> String {
    let members: Vec<String> = labels.iter().map(|label| format!("{label}:{{}}")).collect();
    members.join(" ")
}

/// Why an operation cannot end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {id} of the pod has the type {found}, expected {expected}")]
pub struct FinishError {
    id: String,
    found: String,
    expected: String,
}

/// Whether this operation is on the pod: wanted, or at work.
pub fn is_during_ops(adapter: &impl OperationAdapter, pod: &Pod) -> bool {
    let operating = label(pod, OperationLabel::Operating, adapter.id());
    let of = label(pod, OperationLabel::OperationType, adapter.id());
    operating.is_some() && of == Some(adapter.operation_type())
}

/// Begins an operation. If it has begun already, only [`OperationAdapter::when_begin`] is called again.
///
/// # Errors
/// Another one of its type is on the pod, and it does not allow that.
pub fn begin(
    adapter: &impl OperationAdapter,
    pod: &mut Pod,
    now: Timestamp,
) -> Result<Written, BeginError> {
    if is_during_ops(adapter, pod) {
        return Ok(adapter.when_begin(pod));
    }
    let labels = same_type(adapter, pod);
    if !labels.is_empty() && !adapter.allow_multi_type() {
        return Err(BeginError::TypeExists {
            operation_type: adapter.operation_type().to_owned(),
            labels,
        });
    }
    let operation_type = OperationLabel::OperationType.of(adapter.id());
    let labels = labels_mut(pod);
    let operating = labels.entry(OperationLabel::Operating.of(adapter.id()));
    operating.or_insert_with(|| now.as_nanosecond().to_string());
    labels.insert(operation_type, adapter.operation_type().to_owned());
    Ok(adapter.when_begin(pod).or(Written::Changed))
}

/// Begins an operation on a pod that has no other one, as upstream's OperationJob does.
///
/// # Errors
/// Those of [`begin`], and where the pod has other operations.
pub fn begin_alone(
    adapter: &impl OperationAdapter,
    pod: &mut Pod,
    now: Timestamp,
) -> Result<Written, BeginError> {
    if !is_during_ops(adapter, pod) && has_operations(pod) {
        let ids = ids(pod).into_iter().collect();
        return Err(BeginError::NotAlone { ids });
    }
    begin(adapter, pod, now)
}

/// Takes back what is on the pod under this id, of whichever type, or begins where nothing is: two writes in two
/// rounds. Upstream replaces an update by a scale-in this way.
///
/// # Errors
/// Those of [`begin`].
pub fn begin_with_cleaning_old(
    adapter: &impl OperationAdapter,
    pod: &mut Pod,
    now: Timestamp,
) -> Result<Written, BeginError> {
    let of = label(pod, OperationLabel::OperationType, adapter.id());
    match of.filter(|of| *of != adapter.operation_type()) {
        Some(other) => {
            let other = other.to_owned();
            Ok(set_undo(adapter.id(), other, pod))
        }
        None => begin(adapter, pod, now),
    }
}

/// Whether the operation may touch the pod. `delay` is how long to wait after it was granted.
pub fn allow_ops(
    adapter: &impl OperationAdapter,
    pod: &Pod,
    delay: Duration,
    now: Timestamp,
) -> Allowed {
    let granted = label(pod, OperationLabel::Operate, adapter.id());
    let Some(granted) = granted.filter(|_| is_during_ops(adapter, pod)) else {
        return Allowed::NotYet;
    };
    // A text that is no instant was not written by the webhook: nothing to wait for.
    let since = granted
        .parse()
        .ok()
        .and_then(|nanoseconds| Timestamp::from_nanosecond(nanoseconds).ok())
        .map(|at| Duration::try_from(now.duration_since(at)).unwrap_or_default());
    match since.map(|since| delay.saturating_sub(since)) {
        Some(left) if left > Duration::ZERO => Allowed::After(left),
        Some(_) | None => Allowed::Now,
    }
}

/// The work is done. To give up before it was granted, [`undo`].
///
/// # Errors
/// The pod has an operation of another type under this id.
pub fn finish(adapter: &impl OperationAdapter, pod: &mut Pod) -> Result<Written, FinishError> {
    let of = label(pod, OperationLabel::OperationType, adapter.id());
    if let Some(found) = of.filter(|of| *of != adapter.operation_type()) {
        return Err(FinishError {
            id: adapter.id().to_owned(),
            found: found.to_owned(),
            expected: adapter.operation_type().to_owned(),
        });
    }
    let operating = OperationLabel::Operating.of(adapter.id());
    let removed = match labels_mut(pod).remove(&operating) {
        Some(_) => Written::Changed,
        None => Written::Unchanged,
    };
    Ok(adapter.when_finish(pod).or(removed))
}

/// Takes the operation back.
pub fn undo(adapter: &impl OperationAdapter, pod: &mut Pod) -> Written {
    set_undo(adapter.id(), adapter.operation_type().to_owned(), pod)
}

/// Takes the operation back, where it is on the pod.
pub fn cancel(adapter: &impl OperationAdapter, pod: &mut Pod) -> Written {
    match label(pod, OperationLabel::Operating, adapter.id()) {
        Some(_) => undo(adapter, pod),
        None => Written::Unchanged,
    }
}

/// Whether any operation is on the pod: wanted, at work, or done and not yet over.
pub fn has_operations(pod: &Pod) -> bool {
    !ids(pod).is_empty()
}

/// Whether the pod serves: after an operation, its end.
pub fn is_service_available(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(LABEL_SERVICE_AVAILABLE))
}

fn set_undo(id: &str, operation_type: String, pod: &mut Pod) -> Written {
    labels_mut(pod).insert(OperationLabel::UndoOperationType.of(id), operation_type);
    Written::Changed
}

/// The labels of other operations of the same type.
fn same_type(adapter: &impl OperationAdapter, pod: &Pod) -> Vec<String> {
    let own = OperationLabel::OperationType.of(adapter.id());
    let labels = pod.metadata.labels.iter().flatten();
    labels
        .filter(|(key, of)| {
            OperationLabel::OperationType.is_in(key) && *of == adapter.operation_type()
        })
        .map(|(key, _)| key.clone())
        .filter(|key| *key != own)
        .collect()
}

/// The ids of the operations on a pod: wanted, at work, or done and not yet over.
fn ids(pod: &Pod) -> BTreeSet<String> {
    use OperationLabel::{Operate, Operated, Operating};
    let labels = pod.metadata.labels.iter().flatten();
    let ids = labels.filter_map(|(key, _)| {
        let (prefix, id) = key.split_once('/')?;
        let says_so = [Operating, Operate, Operated].map(OperationLabel::prefix);
        says_so.contains(&prefix).then(|| id.to_owned())
    });
    ids.collect()
}

fn label<'a>(pod: &'a Pod, label: OperationLabel, id: &str) -> Option<&'a str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(&label.of(id)).map(String::as_str)
}

fn labels_mut(pod: &mut Pod) -> &mut BTreeMap<String, String> {
    pod.metadata.labels.get_or_insert_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

    struct Of(&'static str, &'static str);

    impl OperationAdapter for Of {
        fn id(&self) -> &str {
            self.0
        }

        fn operation_type(&self) -> &str {
            self.1
        }

        fn when_begin(&self, pod: &mut Pod) -> Written {
            match labels_mut(pod).insert("hint".to_owned(), String::new()) {
                Some(_) => Written::Unchanged,
                None => Written::Changed,
            }
        }
    }

    fn keys(pod: &Pod) -> Vec<String> {
        let labels = pod.metadata.labels.iter().flatten();
        let short = |key: &str| key.replace(".podopslifecycle.kusionstack.io", "");
        labels
            .map(|(key, value)| format!("{}={value}", short(key)))
            .collect()
    }

    #[test]
    fn an_operation_begins_and_ends_with_one_write_each() {
        let (update, mut pod) = (Of("a", "update"), Pod::default());
        assert_eq!(begin(&update, &mut pod, NOW), Ok(Written::Changed));
        assert_eq!(
            keys(&pod),
            [
                "hint=",
                "operating/a=1767225600000000000",
                "operation-type/a=update"
            ]
        );
        assert!(is_during_ops(&update, &pod));
        assert_eq!(begin(&update, &mut pod, NOW), Ok(Written::Unchanged));
        assert_eq!(finish(&update, &mut pod), Ok(Written::Changed));
        assert_eq!(keys(&pod), ["hint=", "operation-type/a=update"]);
        assert_eq!(finish(&update, &mut pod), Ok(Written::Unchanged));
        assert_eq!(cancel(&update, &mut pod), Written::Unchanged);
    }

    #[test]
    fn a_second_one_of_the_same_type_is_refused() {
        let mut pod = Pod::default();
        let _ = begin(&Of("a", "update"), &mut pod, NOW);
        let refused = begin(&Of("b", "update"), &mut pod, NOW).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "operationType update exists: map[operation-type.podopslifecycle.kusionstack.io/a:{}]"
        );
        assert_eq!(
            begin(&Of("b", "restart"), &mut pod, NOW),
            Ok(Written::Changed)
        );
    }

    #[test]
    fn an_old_one_under_the_same_id_is_taken_back_first() {
        let mut pod = Pod::default();
        let _ = begin(&Of("collaset", "update"), &mut pod, NOW);
        let scale_in = Of("collaset", "scale-in");
        assert!(finish(&scale_in, &mut pod).is_err());
        assert_eq!(
            begin_with_cleaning_old(&scale_in, &mut pod, NOW),
            Ok(Written::Changed)
        );
        assert!(keys(&pod).contains(&"undo-operation-type/collaset=update".to_owned()));
    }

    #[test]
    fn a_grant_is_waited_for_and_then_the_delay() {
        let (update, mut pod) = (Of("a", "update"), Pod::default());
        let allowed = |pod: &Pod| allow_ops(&update, pod, Duration::from_secs(10), NOW);
        let _ = begin(&update, &mut pod, NOW);
        assert_eq!(allowed(&pod), Allowed::NotYet);
        let mut granted = |seconds: i64| {
            let at = Timestamp::constant(1_767_225_600 - seconds, 0);
            let at = at.as_nanosecond().to_string();
            labels_mut(&mut pod).insert(OperationLabel::Operate.of("a"), at);
            allowed(&pod)
        };
        assert_eq!(granted(4), Allowed::After(Duration::from_secs(6)));
        assert_eq!(granted(10), Allowed::Now);
    }

    #[test]
    fn all_others_of_the_type_are_named_as_upstream_names_them() {
        let mut pod = Pod::default();
        for id in ["a", "b"] {
            labels_mut(&mut pod).insert(OperationLabel::OperationType.of(id), "update".to_owned());
        }
        let refused = begin(&Of("c", "update"), &mut pod, NOW).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "operationType update exists: map[operation-type.podopslifecycle.kusionstack.io/a:{} \
             operation-type.podopslifecycle.kusionstack.io/b:{}]"
        );
    }

    #[test]
    fn one_that_is_to_be_alone_begins_on_a_pod_without_any_other() {
        let (update, mut pod) = (Of("a", "update"), Pod::default());
        assert!(!has_operations(&pod));
        assert_eq!(begin_alone(&update, &mut pod, NOW), Ok(Written::Changed));
        assert_eq!(begin_alone(&update, &mut pod, NOW), Ok(Written::Unchanged));
        let refused = begin_alone(&Of("b", "restart"), &mut pod, NOW).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the pod has operations already, expected none: a"
        );
        // Its own end is one as well.
        labels_mut(&mut pod).insert(OperationLabel::Operated.of("a"), "1".to_owned());
        let _ = finish(&update, &mut pod);
        assert!(has_operations(&pod) && !is_service_available(&pod));
        assert!(begin_alone(&update, &mut pod, NOW).is_err());
    }
}
