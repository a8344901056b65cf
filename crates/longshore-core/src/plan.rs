//! The decision as a value: what to do, in which order, and when to look again.

use std::{convert::Infallible, time::Duration};

use serde::Serialize;
use serde_json::Value;

use crate::object::{ObjectRef, Resource};

/// The effect type of a controller that has none of its own.
pub type Never = Infallible;

/// What `decide` answers. `S` is what [`Action::Persist`] records, `E` the subsystem's own effects.
///
/// The kit applies the actions in order, stops at the first failure and never skips one; the next round decides anew
/// from what is then seen. An empty plan writes nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan<S, E = Never> {
    /// The effects, in the order in which they are applied.
    pub actions: Vec<Action<S, E>>,
    /// When to look again if nothing changes before.
    pub next: Next,
}

/// When a controller looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Next {
    /// Only when something that it watches changes.
    AwaitChange,
    /// After this time at the latest.
    After(Duration),
}

impl Next {
    /// The earlier of two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::AwaitChange, next) | (next, Self::AwaitChange) => next,
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
        }
    }
}

/// One idempotent effect, as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Action<S, E = Never> {
    /// Record what we are about to do, or what came of it, where this subsystem keeps its state: the write-ahead log.
    Persist(S),
    /// Add a finalizer of ours to an object.
    EnsureFinalizer {
        /// The object.
        target: ObjectRef,
        /// The finalizer.
        finalizer: &'static str,
    },
    /// Create an object with a deterministic name.
    Create(Create),
    /// Change an object.
    Patch(Patch),
    /// Delete an object.
    Delete(Delete),
    /// An effect on something else than the Kubernetes API, done by the subsystem's `apply.rs`.
    Call(E),
    /// Publish a Kubernetes Event. Best effort: it never fails a plan.
    Announce(Announcement),
    /// Remove a finalizer of ours from an object.
    RemoveFinalizer {
        /// The object.
        target: ObjectRef,
        /// The finalizer.
        finalizer: &'static str,
    },
}

/// The creation of an object. A repeat meets its own object: `AlreadyExists` is success if the existing object carries
/// the identity and is not being deleted (rule R2 of the reliability spec).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Create {
    /// What kind it is.
    pub resource: Resource,
    /// The whole object, with `metadata.name` and, for namespaced kinds, `metadata.namespace`.
    pub object: Value,
    /// An annotation that only this object carries, already present in `object`: key and value.
    pub identity: (&'static str, String),
}

/// How a patch is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PatchKind {
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' strategic merge patch, for built-in kinds.
    Strategic,
}

/// A change of an object. The kit adds the uid of the target as a precondition where the patch kind can carry one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Patch {
    /// The object.
    pub target: ObjectRef,
    /// `Some("status")` for a subresource.
    pub subresource: Option<&'static str>,
    /// How `patch` is to be read.
    pub kind: PatchKind,
    /// The patch.
    pub patch: Value,
}

/// A deletion, always of the incarnation decided upon. An object that is gone already, or is another one by now, is
/// success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delete {
    /// The object, with its uid.
    pub target: ObjectRef,
    /// `gracePeriodSeconds`; `None` leaves the object's own.
    pub grace_period_seconds: Option<u32>,
    /// Whether the object stays until what was made for it is gone (foreground deletion): then its absence says that
    /// nothing of it runs.
    pub waits_for_dependents: bool,
}

/// The type of a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// Things go their way.
    Normal,
    /// Somebody may want to look.
    Warning,
}

/// A Kubernetes Event to publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Announcement {
    /// The object that it is about.
    pub regarding: ObjectRef,
    /// Normal or Warning.
    pub event_type: EventType,
    /// CamelCase reason, from a closed set.
    pub reason: &'static str,
    /// A sentence for a human; at most 1,024 bytes are published.
    pub note: String,
}

impl<S, E> Plan<S, E> {
    /// Nothing to do until something changes.
    pub fn await_change() -> Self {
        Self {
            actions: Vec::new(),
            next: Next::AwaitChange,
        }
    }

    /// Nothing to do now; look again after `wait` at the latest.
    pub fn after(wait: Duration) -> Self {
        Self {
            actions: Vec::new(),
            next: Next::After(wait),
        }
    }

    /// These actions, and then whatever changes.
    pub fn of(actions: Vec<Action<S, E>>) -> Self {
        Self {
            actions,
            next: Next::AwaitChange,
        }
    }
}
