//! What the API server does not do for an action, in words, and when that is worth an Event.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_FAILED, CONDITION_SUCCEEDED, Condition};
use longshore_kit::{Change, Verb};

use crate::model::Action;

/// An action is held for so long before it says so.
pub(super) const SAID_AFTER: Duration = Duration::from_secs(5);

/// A change that is not made.
pub(crate) fn of_change(change: &Change, why: &str) -> String {
    let target = &change.target;
    match change.verb {
        Verb::EnsureFinalizer => format!("the finalizer of {target} is not added: {why}"),
        Verb::RemoveFinalizer => format!("the finalizer of {target} is not removed: {why}"),
        Verb::Delete => format!("{target} is not deleted: {why}"),
        Verb::Patch => format!("the labels of {target} are not written: {why}"),
    }
}

/// A status that is not written.
pub(crate) fn of_status(why: &str) -> String {
    format!("its status is not written: {why}")
}

/// What was written, and cannot be read back.
pub(crate) fn of_read_back(why: &str) -> String {
    format!("what was written about it cannot be read back: {why}")
}

/// Whether the trouble has lasted so long that it is said.
pub(crate) fn is_long(since: Timestamp, now: Timestamp) -> bool {
    let lasts = Duration::try_from(now.duration_since(since));
    lasts.is_ok_and(|lasts| lasts >= SAID_AFTER)
}

/// Whether what follows the end of an action, or its deletion, should have been done by now.
pub(crate) fn is_late(action: &Action, now: Timestamp) -> bool {
    let is_end = |it: &&Condition| {
        let is_terminal = [CONDITION_SUCCEEDED, CONDITION_FAILED].contains(&it.kind.as_str());
        is_terminal && it.is_true()
    };
    let conditions = action.status.conditions.iter();
    let ended = conditions.filter(is_end).map(|it| it.last_transition_time);
    let since = action.deleted_at().or(ended.max());
    since.is_some_and(|since| is_long(since, now))
}
