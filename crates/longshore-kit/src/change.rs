//! The changes of Kubernetes objects that plans make, and why one was not made.

use longshore_core::{Action, Class, Classify, ObjectRef, error, text::shorten};

use crate::{apply::ApplyError, requests::ApiError};

/// A change of an object that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What is done.
    pub verb: Verb,
    /// With which object.
    pub target: ObjectRef,
}

/// What is done with an object that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// It is patched.
    Patch,
    /// It is deleted.
    Delete,
    /// A finalizer of ours is added.
    EnsureFinalizer,
    /// A finalizer of ours is removed.
    RemoveFinalizer,
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDone {
    /// In the API server's own words where it has answered, [shortened](longshore_core::text::shorten).
    pub why: String,
    /// Whether the same request gets the same answer.
    pub is_final: bool,
}

impl Change {
    /// The change that an action makes; `None` for an action that makes none, and for a create.
    pub fn of<S, E, Q>(action: &Action<S, E, Q>) -> Option<Self> {
        let (verb, target) = match action {
            Action::Patch(patch) => (Verb::Patch, &patch.target),
            Action::Delete(delete) => (Verb::Delete, &delete.target),
            Action::EnsureFinalizer { target, .. } => (Verb::EnsureFinalizer, target),
            Action::RemoveFinalizer { target, .. } => (Verb::RemoveFinalizer, target),
            Action::Persist(_)
            | Action::Create(_)
            | Action::Call(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::Announce(_) => return None,
        };
        let target = target.clone();
        Some(Self { verb, target })
    }
}

impl NotDone {
    /// What a request says that failed; `None` where this process may send none.
    pub(crate) fn of(error: &ApiError) -> Option<Self> {
        if error.is_not_leader() {
            return None;
        }
        let words = error.message().map(str::to_owned);
        Some(Self {
            why: shorten(words.unwrap_or_else(|| error::chain(error))),
            is_final: is_final(error.class()),
        })
    }
}

impl ApplyError {
    /// Why the request was not done; `None` where this process may send none.
    pub fn not_done(&self) -> Option<NotDone> {
        match self {
            Self::Api(error) => NotDone::of(error),
            Self::Paused { .. }
            | Self::StillDeleting(_)
            | Self::Foreign { .. }
            | Self::Changed(_)
            | Self::NoUid(_)
            | Self::NoIdentity { .. } => Some(NotDone {
                why: self.to_string(),
                is_final: is_final(self.class()),
            }),
        }
    }
}

fn is_final(class: Class) -> bool {
    match class {
        Class::Invalid | Class::Bug => true,
        Class::Retry | Class::Conflict => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::Status;
    use longshore_core::{Never, Resource};

    use super::*;
    use crate::{lease::NotLeader, requests::Cause};

    fn pod() -> ObjectRef {
        ObjectRef {
            resource: Resource::POD,
            namespace: "default".to_owned(),
            name: "p".to_owned(),
            uid: Some("u".to_owned()),
        }
    }

    #[test]
    fn a_change_is_known_by_what_is_done_with_which_object() {
        let finalizer = "f";
        for (action, expected) in [
            (
                Action::EnsureFinalizer {
                    target: pod(),
                    finalizer,
                },
                Some(Verb::EnsureFinalizer),
            ),
            (
                Action::RemoveFinalizer {
                    target: pod(),
                    finalizer,
                },
                Some(Verb::RemoveFinalizer),
            ),
            (Action::Persist(()), None),
        ] {
            let action: Action<(), Never, Never> = action;
            let target = pod();
            let expected = expected.map(|verb| Change { verb, target });
            assert_eq!(Change::of(&action), expected);
        }
    }

    #[test]
    fn whoever_refuses_is_quoted_and_a_lost_lease_is_nobody() {
        let refused = |code: u16| {
            let status = Status {
                message: "no".to_owned(),
                code,
                ..Status::default()
            };
            Cause::Answer(Box::new(status))
        };
        let said = |cause| ApplyError::Api(ApiError::new("delete", &pod(), cause)).not_done();
        let done = |why: &str, is_final| {
            Some(NotDone {
                why: why.to_owned(),
                is_final,
            })
        };
        assert_eq!(said(refused(403)), done("no", true));
        assert_eq!(said(refused(500)), done("no", false));
        let silent = Cause::Timeout(Duration::from_secs(30));
        let expected = "delete of Pod default/p failed: no answer within 30 s";
        assert_eq!(said(silent), done(expected, false));
        assert_eq!(said(Cause::NotLeader(NotLeader)), None);
        let changed = ApplyError::Changed("Pod default/p".to_owned());
        let expected = "Pod default/p changed since it was decided upon";
        assert_eq!(changed.not_done(), done(expected, false));
    }
}
