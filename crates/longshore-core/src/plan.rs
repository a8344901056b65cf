//! The decision as a value: what to do, in which order, and when to look again.

use std::{convert::Infallible, fmt, time::Duration};

use serde::Serialize;
use serde_json::Value;

use crate::{
    ask::QuestionId,
    object::{ObjectRef, Resource},
};

/// The effect type of a controller that has no effects of its own, and the question type of one that asks no foreign
/// system.
pub type Never = Infallible;

/// What `decide` returns. `S` is what [`Action::Persist`] records, `E` are the subsystem's own effects, and `Q` are its
/// [questions](crate::ask::Question) to foreign systems.
///
/// The kit applies the actions in order, stops at the first failure and never skips one; the next round decides anew
/// from what it then observes. An empty plan writes nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan<S, E = Never, Q = Never> {
    /// The effects, in the order in which they are applied.
    pub actions: Vec<Action<S, E, Q>>,
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
pub enum Action<S, E = Never, Q = Never> {
    /// Record what the controller is about to do, or what came of that, where the subsystem keeps its state: the
    /// write-ahead log. A plan may hold several; each is written upon the one before it.
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
    /// Ask a foreign system. The plan goes on at once; the kit sends the question beside the rounds, and the answer
    /// leads to another round. Nothing happens while the same question is under way. Where the plan was decided upon an
    /// answer to the same question, that answer is used up.
    Ask(Q),
    /// The answer to this question is used up, or not needed any more; a question under way is cancelled. Stands after
    /// the [`Persist`](Self::Persist) of what the answer means, so that the answer outlives a write that fails.
    Used(QuestionId),
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

/// The creation of an object. A repeat meets its own object: `AlreadyExists` is success if the existing object has the
/// identity and is not being deleted (rule R2 of the reliability spec).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Create {
    /// What kind it is.
    pub resource: Resource,
    /// The whole object, with `metadata.name` and, for namespaced kinds, `metadata.namespace`.
    pub object: Value,
    /// What identifies this object among others of its name. `object` has it already.
    pub identity: ChildIdentity,
}

/// What distinguishes an object that a controller created, or may take over, from another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ChildIdentity {
    /// An annotation that only this object carries.
    Annotation {
        /// Its key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// An owner reference to the object of this uid. An object that another operator created for that owner has it,
    /// too, and is taken over.
    Owner {
        /// The uid of the owner.
        uid: String,
    },
}

impl ChildIdentity {
    /// An annotation that only this object carries.
    pub fn annotation(key: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        Self::Annotation { key, value }
    }

    /// An owner reference to the object of this uid.
    pub fn owner(uid: impl Into<String>) -> Self {
        Self::Owner { uid: uid.into() }
    }

    /// The value of the annotation, or the uid of the owner.
    pub fn value(&self) -> &str {
        match self {
            Self::Annotation { value, .. } => value,
            Self::Owner { uid } => uid,
        }
    }

    /// Whether this object has the identity.
    pub fn is_of(&self, object: &Value) -> bool {
        match self {
            Self::Annotation { key, value } => annotation(object, key) == Some(value),
            Self::Owner { uid } => owners(object).any(|owner| owner == uid),
        }
    }

    /// What this object has in place of the identity, for people.
    pub fn found_in(&self, object: &Value) -> String {
        match self {
            Self::Annotation { key, .. } => annotation(object, key).unwrap_or("none").to_owned(),
            Self::Owner { .. } => {
                let owners: Vec<&str> = owners(object).collect();
                if owners.is_empty() {
                    "none".to_owned()
                } else {
                    owners.join(", ")
                }
            }
        }
    }
}

impl fmt::Display for ChildIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation { key, value } => write!(f, "the annotation {key}={value}"),
            Self::Owner { uid } => write!(f, "an owner reference to the uid {uid}"),
        }
    }
}

fn annotation<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(key)?.as_str()
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object.pointer("/metadata/ownerReferences");
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    owners.filter_map(|owner| owner.get("uid")?.as_str())
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

/// A deletion, always of the incarnation decided upon. If the object no longer exists, or has another uid, the
/// deletion succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delete {
    /// The object, with its uid.
    pub target: ObjectRef,
    /// The version decided upon, where the object must stay if it has changed since; `None` deletes any version.
    pub resource_version: Option<String>,
    /// `gracePeriodSeconds`; `None` leaves the object's own.
    pub grace_period_seconds: Option<u32>,
    /// Whether the object stays until what was made for it is gone (foreground deletion): then its absence says that
    /// nothing of it runs.
    pub waits_for_dependents: bool,
}

/// The type of a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// The object goes its expected way.
    Normal,
    /// A problem that a user or an administrator may have to solve.
    Warning,
}

/// A Kubernetes Event to publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Announcement {
    /// The object that the Event is about.
    pub regarding: ObjectRef,
    /// Normal or Warning.
    pub event_type: EventType,
    /// CamelCase reason, from a closed set.
    pub reason: &'static str,
    /// A sentence for a human; at most 1,024 bytes are published.
    pub note: String,
}

impl<S, E, Q> Plan<S, E, Q> {
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
    pub fn of(actions: Vec<Action<S, E, Q>>) -> Self {
        Self {
            actions,
            next: Next::AwaitChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_child_is_known_by_its_annotation_or_its_owner() {
        let ours = json!({"metadata": {
            "annotations": {"a": "1"},
            "ownerReferences": [{"uid": "u"}, {"uid": "v"}],
        }});
        let nobodys = json!({"metadata": {}});
        for (identity, is_of, found) in [
            (ChildIdentity::annotation("a", "1"), true, "1"),
            (ChildIdentity::annotation("a", "2"), false, "1"),
            (ChildIdentity::annotation("b", "1"), false, "none"),
            (ChildIdentity::owner("v"), true, "u, v"),
            (ChildIdentity::owner("w"), false, "u, v"),
        ] {
            assert_eq!(identity.is_of(&ours), is_of, "{identity}");
            assert_eq!(identity.found_in(&ours), found, "{identity}");
            assert!(!identity.is_of(&nobodys), "{identity}");
            assert_eq!(identity.found_in(&nobodys), "none", "{identity}");
        }
    }
}
