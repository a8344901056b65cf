//! What the API server does not do for an action, in words, and when that is worth an Event.

use std::time::Duration;

use jiff::Timestamp;
use longshore_api::flyte::{CONDITION_FAILED, CONDITION_SUCCEEDED, Condition};
use longshore_kit::{Change, Verb};

use crate::model::Action;

/// An action is held for so long before it says so, at least.
pub(super) const SAID_AFTER: Duration = Duration::from_secs(5);
/// Of many actions that one foreign system holds at the same time, one after the other says so, within so many milliseconds.
/// The last one has said so within 10 s.
const SPREAD: u64 = 4000;

/// A foreign system holds an action for so long before it says so. Its uid says by how much later than others.
pub(super) fn said_after(action: &Action) -> Duration {
    let uid = action.target.uid.as_deref().unwrap_or_default();
    // FNV-1a: the same in each process.
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    SAID_AFTER + Duration::from_millis(hash % SPREAD)
}

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn many_actions_say_what_holds_them_one_after_the_other() {
        let mut n_said = [0_u32; 8];
        for n in 0..4000 {
            let uid = format!("0b9f8a54-2a6e-4f0c-9d3c-{n:012x}");
            let action = Action::of(json!({"metadata": {"uid": uid}})).unwrap();
            let after = said_after(&action);
            assert_eq!(after, said_after(&action));
            let half_seconds = (after - SAID_AFTER).as_millis() / 500;
            n_said[usize::try_from(half_seconds).unwrap()] += 1;
        }
        for (half_second, n) in n_said.into_iter().enumerate() {
            assert!((250..=750).contains(&n), "{half_second}: {n_said:?}");
        }
    }
}
