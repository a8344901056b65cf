//! What holds an action, and what its status says of that.

use jiff::Timestamp;
use longshore_api::flyte::Condition;
use longshore_kit::{Change, NotDone, WaitsFor};

/// A question about an action that has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The kind of the question.
    pub kind: &'static str,
    /// The foreign system, in words.
    pub whom: String,
    /// When a plan asked first after the last answer.
    pub since: Timestamp,
    /// Why there is no answer, in the words of the foreign system, where it was asked and refused.
    pub failure: Option<String>,
    /// What it waits for now.
    pub waits_for: WaitsFor,
}

/// What the status of an action says of what holds it. No other part of a decision sees this condition, so that each
/// other write of the status removes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// The condition on record.
    pub condition: Option<Condition>,
    /// When this process wrote the condition; `None` where it did not.
    pub at: Option<Timestamp>,
    /// Whether so many actions have just said what holds them that another one has to wait.
    pub is_crowded: bool,
}

/// What the API server does not do for an action, as far as this process knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Why the API server takes no status of the action.
    pub status: Option<Refused>,
    /// The change that the API server does not make, and why.
    pub change: Option<(Change, Refused)>,
    /// Since when the resource of the action cannot be read.
    pub unread_since: Option<Timestamp>,
    /// When an Event has said what holds the action, where no status can.
    pub told_at: Option<Timestamp>,
}

/// A request that the API server does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Since when it has failed each time.
    pub since: Timestamp,
    /// Why it failed last.
    pub why: NotDone,
}

impl Undone {
    /// A status was written, or was not.
    pub(crate) fn note_status(&mut self, not_done: Option<NotDone>, now: Timestamp) {
        let since = self.status.as_ref().map_or(now, |before| before.since);
        self.status = not_done.map(|why| Refused { since, why });
        if self.status.is_none() {
            self.told_at = None;
        }
    }

    /// A change was made, or was not. Plans stop at what fails, so that one of them fails at a time.
    pub(crate) fn note_change(
        &mut self,
        change: &Change,
        not_done: Option<NotDone>,
        now: Timestamp,
    ) {
        let before = self.change.take();
        let is_same = before.as_ref().is_some_and(|(of, _)| of == change);
        let Some(why) = not_done else {
            self.change = before.filter(|_| !is_same);
            return;
        };
        let since = before.filter(|_| is_same).map_or(now, |(_, it)| it.since);
        self.change = Some((change.clone(), Refused { since, why }));
    }
}

/// Why a launch did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// When it failed so first.
    pub since: Timestamp,
    /// The failure.
    pub kind: CreateFailure,
}

/// Why a resource is not created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateFailure {
    /// The API server refused it for good.
    Refused {
        /// HTTP status.
        code: u16,
        /// In its own words.
        message: String,
    },
    /// A quota is used up; in the API server's own words.
    OverQuota(String),
    /// An object of that name has yet to go.
    NameTaken,
    /// The request failed, and is sent again: why, in the API server's own words.
    Failed(String),
    /// The API server does not know the kind: this definition is missing.
    NotServed(String),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longshore_core::{ObjectRef, Resource};
    use longshore_kit::Verb;
    use longshore_test::EPOCH;

    use super::*;

    fn no() -> Option<NotDone> {
        Some(NotDone {
            why: "no".to_owned(),
            is_final: false,
        })
    }

    fn of(verb: Verb) -> Change {
        Change {
            verb,
            target: ObjectRef {
                resource: Resource::POD,
                namespace: "flyte".to_owned(),
                name: "r-a-0".to_owned(),
                uid: None,
            },
        }
    }

    #[test]
    fn what_fails_again_and_again_has_failed_since_the_first_time() {
        let at = |seconds| EPOCH + Duration::from_secs(seconds);
        let mut undone = Undone::default();
        let (delete, patch) = (of(Verb::Delete), of(Verb::Patch));
        let table = [
            (&delete, no(), Some((Verb::Delete, 1))),
            (&delete, no(), Some((Verb::Delete, 1))),
            // Whatever else was made.
            (&patch, None, Some((Verb::Delete, 1))),
            (&delete, None, None),
            (&delete, no(), Some((Verb::Delete, 5))),
            (&patch, no(), Some((Verb::Patch, 6))),
        ];
        for ((change, not_done, expected), now) in table.into_iter().zip(1..) {
            undone.note_change(change, not_done, at(now));
            let found = undone.change.as_ref();
            let found = found.map(|(change, it)| (change.verb, it.since));
            let expected = expected.map(|(verb, since)| (verb, at(since)));
            assert_eq!(found, expected, "{now}");
        }
        undone.told_at = Some(at(1));
        undone.note_status(no(), at(2));
        undone.note_status(no(), at(3));
        assert_eq!(undone.status.as_ref().map(|it| it.since), Some(at(2)));
        assert_eq!(undone.told_at, Some(at(1)));
        undone.note_status(None, at(4));
        assert_eq!((undone.status, undone.told_at), (None, None));
    }
}
