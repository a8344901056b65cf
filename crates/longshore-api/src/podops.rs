//! KusionStack's PodOpsLifecycle: labels, annotations and finalizers on pods, word for word.
//!
//! All state of an operation is in labels of its pod, so that operation and cooperation controllers of others, which
//! know nothing but these keys, go on unchanged. Timestamps are decimal Unix nanoseconds.

mod ask;
mod consist;
mod rule;

pub use ask::*;
pub use consist::*;
pub use rule::*;

/// Label: [`CONTROLLED`] on a pod that takes part; no other value does.
pub const LABEL_CONTROL: &str = "kusionstack.io/control";
/// The value of [`LABEL_CONTROL`].
pub const CONTROLLED: &str = "true";
/// Label: the pod serves, since when. Added by the controller, removed by the webhook when traffic is to be drained.
pub const LABEL_SERVICE_AVAILABLE: &str = "podopslifecycle.kusionstack.io/service-available";
/// Label, by users: presence alone keeps an idle pod out of service.
pub const LABEL_STAY_OFFLINE: &str = "podopslifecycle.kusionstack.io/stay-offline";
/// Label of a pod, ours: it took part until its label [`LABEL_CONTROL`] was removed, and its gate is not open yet. Set by
/// the webhook in that request, removed by the controller once the gate is open. Value: since when.
pub const LABEL_RELEASED: &str = "longshore.dev/released";
/// Label, by users: a hint that the operation ends with the removal of the pod.
pub const LABEL_PREPARING_TO_DELETE: &str = "podopslifecycle.kusionstack.io/preparing-to-delete";
/// Label, by CollaSet: the pod was just created. Removed when it serves.
pub const LABEL_CREATING: &str = "podopslifecycle.kusionstack.io/creating";
/// Label, by CollaSet: the pod was created again. Removed when it serves.
pub const LABEL_COMPLETING: &str = "podopslifecycle.kusionstack.io/completing";
/// Label, by the GraceDelete webhook, CollaSet or users: delete this pod by an operation.
pub const LABEL_TO_DELETE: &str = "collaset.kusionstack.io/to-delete";

/// Readiness gate and condition type: `True` while the pod may serve.
pub const CONDITION_SERVICE_READY: &str = "pod.kusionstack.io/service-ready";
/// The message of [`CONDITION_SERVICE_READY`].
pub const SERVICE_READY_MESSAGE: &str = "updated by PodOpsLifecycle";
/// Finalizer, by the controllers that protect traffic: the pod stays until its operation has
/// drained the traffic; its name follows the prefix.
pub const PROTECTION_FINALIZER_PREFIX: &str = "prot.podopslifecycle.kusionstack.io";

/// Annotation: JSON `{"expectedFinalizers": {"<Kind>/<ns>/<name>": "<finalizer>"}}`: which ones the pod must carry before
/// it serves.
pub const ANNOTATION_AVAILABLE_CONDITIONS: &str = "pod.kusionstack.io/available-conditions";
/// Annotation: when a client last requested the pod's deletion.
pub const ANNOTATION_DELETE_TIMESTAMP: &str = "gracedelete.kusionstack.io/delete-timestamp";

/// Annotation of a pod, ours, by users: how long its operations wait for the controllers that
/// protect its traffic, as `10m`. Then the controller removes their finalizers. Wins over
/// `--protection-deadline`; without either, operations wait for ever, as upstream.
pub const ANNOTATION_PROTECTION_DEADLINE: &str = "longshore.dev/protection-deadline";

/// Finalizer, ours: a Service may still route traffic to the pod. Begins with [`PROTECTION_FINALIZER_PREFIX`].
pub const FINALIZER_SERVICES: &str = "prot.podopslifecycle.kusionstack.io/longshore-services";
/// Annotation of a Service, ours, by users: how long a pod is still held by [`FINALIZER_SERVICES`] after it has left the
/// EndpointSlices of the Service, as `10s`. Wins over `--drain-delay`.
pub const ANNOTATION_DRAIN_DELAY: &str = "longshore.dev/drain-delay";

/// Annotation of a pod, ours: when a client last requested its eviction, if no client has requested its deletion since.
pub const ANNOTATION_EVICTED_AT: &str = "longshore.dev/evicted-at";

/// Annotation of an Eviction, ours: [`EVICTION_ALLOWED`] where the webhook allows it. The policy in
/// `deploy/podops-evictions.yaml` refuses the eviction of a protected pod without it, also while no replica answers.
pub const ANNOTATION_EVICTION: &str = "longshore.dev/eviction";
/// The value of [`ANNOTATION_EVICTION`].
pub const EVICTION_ALLOWED: &str = "allowed";
/// The ValidatingAdmissionPolicy of `deploy/podops-evictions.yaml`, and its binding.
pub const EVICTION_POLICY: &str = "longshore-podops-evictions";

/// Annotation of a pod, ours: until when the webhook holds a delete of it, whose client deletes it as soon as it may go.
pub const ANNOTATION_HELD_UNTIL: &str = "longshore.dev/delete-held-until";

/// The operation that deletes a pod.
pub const ID_POD_DELETE: &str = "pod-delete";
/// The type of [`ID_POD_DELETE`].
pub const TYPE_DELETE: &str = "delete";

/// An entry in the `disruptedPods` of a PodDisruptionBudget that can be no pod's: the disruption controller drops it, and
/// counts the pods again.
pub const ENTRY_COUNT_AGAIN: &str = "longshore.dev/count-again";

/// Reason of an Event about a pod: its condition [`CONDITION_SERVICE_READY`] was changed.
pub const REASON_SERVICE_READY: &str = "ServiceReady";
/// Reason of an Event about a pod: it was deleted, by its operation.
pub const REASON_POD_DELETION: &str = "PodDeletion";

/// Reason of an Event about a pod: its labels or annotations are not valid. The controller waits until they change.
pub const REASON_INVALID_LIFECYCLE: &str = "InvalidLifecycle";
/// Reason of an Event about a pod: an operation waits longer than usual for the controllers that protect its traffic.
pub const REASON_WAITS_FOR_PROTECTION: &str = "WaitsForProtection";
/// Reason of an Event about a pod: its eviction waits, because a disruption could not be reserved or the pod could not be
/// written, in the words of the API server.
pub const REASON_EVICTION_REFUSED: &str = "EvictionRefused";
/// Reason of an Event about a pod: its traffic was protected for longer than its deadline. The finalizers were removed.
pub const REASON_PROTECTION_EXPIRED: &str = "ProtectionExpired";
/// Reason of an Event about a pod: [`ANNOTATION_DRAIN_DELAY`] of a Service in front of it is not valid.
pub const REASON_INVALID_DRAIN_DELAY: &str = "InvalidDrainDelay";
/// Reason of an Event about a PodTransitionRule: its spec is not valid. The note of the Event says why.
pub const REASON_INVALID_RULE: &str = "InvalidRule";
/// Reason of an Event about a PodTransitionRule: its status is at the limit of size of an object. Messages in it are
/// shortened; where that is not enough, pods are left out of it, and those that pass go on in turns. The note of the
/// Event says which.
pub const REASON_STATUS_TOO_LARGE: &str = "StatusTooLarge";

// Not one of [`OperationLabel`], because it is about a type and not about an operation.
/// Label: permits all operations of one type, since when; `/` and the type follow the prefix.
pub const OPERATION_PERMISSION_PREFIX: &str = "operation-permission.podopslifecycle.kusionstack.io";

/// Whether a key is [`OPERATION_PERMISSION_PREFIX`], alone or with a type behind it. A key whose
/// prefix only begins like it, as `<this>.example.org/a`, belongs to another owner.
pub fn is_operation_permission(key: &str) -> bool {
    is_of_prefix(key, OPERATION_PERMISSION_PREFIX)
}

fn is_of_prefix(key: &str, prefix: &str) -> bool {
    let rest = key.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The label that permits operations of this type. Value: since when.
pub fn operation_permission(operation_type: &str) -> String {
    format!("{OPERATION_PERMISSION_PREFIX}/{operation_type}")
}

/// A label about one operation: `<prefix>/<id>`. In the order in which upstream lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationLabel {
    /// Wanted or in progress, since when: added and removed by the controller that operates.
    Operating,
    /// What kind of operation it is: added by the controller that operates.
    OperationType,
    /// Waits for rules, since when.
    PreCheck,
    /// The rules have passed, since when.
    PreChecked,
    /// Traffic is being drained, since when.
    Preparing,
    /// The type of an operation whose work is done.
    DoneOperationType,
    /// The type of an operation that is taken back: added by the controller that operates.
    UndoOperationType,
    /// The operation may touch the pod, since when.
    Operate,
    /// The work is done, since when.
    Operated,
    /// Waits for rules about what was done, since when.
    PostCheck,
    /// The rules about what was done have passed, since when.
    PostChecked,
    /// Traffic is being restored, since when.
    Completing,
}

impl OperationLabel {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Operating,
        Self::OperationType,
        Self::PreCheck,
        Self::PreChecked,
        Self::Preparing,
        Self::DoneOperationType,
        Self::UndoOperationType,
        Self::Operate,
        Self::Operated,
        Self::PostCheck,
        Self::PostChecked,
        Self::Completing,
    ];

    /// The prefix of the label's keys.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Operating => "operating.podopslifecycle.kusionstack.io",
            Self::OperationType => "operation-type.podopslifecycle.kusionstack.io",
            Self::PreCheck => "pre-check.podopslifecycle.kusionstack.io",
            Self::PreChecked => "pre-checked.podopslifecycle.kusionstack.io",
            Self::Preparing => "preparing.podopslifecycle.kusionstack.io",
            Self::DoneOperationType => "done-operation-type.podopslifecycle.kusionstack.io",
            Self::UndoOperationType => "undo-operation-type.podopslifecycle.kusionstack.io",
            Self::Operate => "operate.podopslifecycle.kusionstack.io",
            Self::Operated => "operated.podopslifecycle.kusionstack.io",
            Self::PostCheck => "post-check.podopslifecycle.kusionstack.io",
            Self::PostChecked => "post-checked.podopslifecycle.kusionstack.io",
            Self::Completing => "completing.podopslifecycle.kusionstack.io",
        }
    }

    /// Whether a key is this label of some operation, or lacks the id of one. A key whose prefix
    /// only begins like this one, as `<prefix>.example.org/a`, belongs to another owner.
    pub fn is_in(self, key: &str) -> bool {
        is_of_prefix(key, self.prefix())
    }

    /// The key of this label of an operation.
    pub fn of(self, id: &str) -> String {
        format!("{}/{id}", self.prefix())
    }
}
