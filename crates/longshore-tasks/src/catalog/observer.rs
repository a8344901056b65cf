//! What is known of the caches of attempts: read from the answers of the catalog and of stores.

use bytes::Bytes;
use jiff::SignedDuration;
use longshore_core::Asked;
use longshore_kit::Failures;
use longshore_plugins::CacheKey;

use super::{Caching, CatalogCacheStatus, Entry};
use crate::{
    model::{Action, ActionKey, Work},
    questions::{ActionAnswers, Holder, without_answer},
};

/// So long a reservation holds without its owner: the catalog's heartbeats, three times.
const RESERVATION: SignedDuration = SignedDuration::from_secs(30);

/// Whether a question has failed for as long as a reservation holds, from its first failure to its last one. What was
/// asked before the first failure counts for nothing: an answer may take long, or the process may have been stopped.
fn is_given_up(failures: Option<Failures>) -> bool {
    failures.is_some_and(|failures| failures.lasted() >= RESERVATION)
}

/// What is known of the cache of an attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cache {
    /// Its outputs are not cached.
    #[default]
    None,
    /// What its outputs are cached under is not known yet.
    Unkeyed(Unkeyed),
    /// They are cached.
    Keyed(Box<Cached>),
}

/// A task whose outputs are cached, under a key that is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unkeyed {
    /// Where the inputs are; empty for a task without inputs.
    pub url: String,
    /// `metadata.cache_serializable` of its template.
    pub is_serializable: bool,
    /// How far the question for the key is.
    pub key: Asked<()>,
}

/// What is known of a task whose outputs are cached, and of its current attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Cached {
    /// What its outputs are cached under.
    pub entry: Entry,
    /// The uid of the action.
    pub uid: String,
    /// What is cached.
    pub found: Asked<Option<Hit>>,
    /// What is in the file that is cached, or why that cannot be used; only known where `found` is a file.
    pub read: Asked<Result<Bytes, String>>,
    /// Whether the look-up, or the read of the file that it has found, has failed for as long as a reservation holds.
    pub is_look_up_given_up: bool,
    /// Whether cached outputs are copied to where those of the attempt belong.
    pub copied: Asked<()>,
    /// The owner of the reservation.
    pub reserved: Asked<Holder>,
    /// Its owner before, while it is asked for again.
    pub reserved_before: Asked<Holder>,
    /// Whether all requests for it have failed for as long as it holds.
    pub is_reservation_given_up: bool,
    /// Whether another action of this process has given the reservation up since it was asked for.
    pub is_freed: bool,
    /// Whether the attempt has left outputs.
    pub exists: Asked<bool>,
    /// What became of the outputs of the attempt.
    pub put: Asked<CatalogCacheStatus>,
    /// Whether the reservation is given up.
    pub released: Asked<()>,
}

/// Outputs that are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The outputs, as they are in a file.
    Literals(Bytes),
    /// They are in a file at this URL.
    File(String),
}

/// Adds to an action what is known of its cache, where outputs are cached at all.
///
/// Nothing is asked before the finalizer is there: only what has one gives its reservation up when it is deleted.
pub(crate) fn assemble(key: &ActionKey, action: &mut Action, answers: ActionAnswers<'_>) {
    if !action.has_finalizer || action.status.is_terminal() {
        return;
    }
    let (context, cache) = match &mut action.work {
        Work::Task(task) => (&task.context, &mut task.cache),
        Work::Remote(task) => (&task.context, &mut task.cache),
        Work::Condition | Work::Invalid(_) | Work::Nothing => return,
    };
    if !CacheKey::is_wanted(&context.template) {
        return;
    }
    *cache = match answers.key() {
        Asked::Answered { answer: None, .. } => Cache::None,
        Asked::Answered {
            answer: Some(cache_key),
            ..
        } => {
            let entry = Entry::of(key, context, cache_key);
            Cache::Keyed(Box::new(cached(entry, answers)))
        }
        key @ (Asked::NotAsked
        | Asked::AskedByAnother
        | Asked::UnderWay { .. }
        | Asked::Failed { .. }) => {
            let metadata = context.template.metadata.as_ref();
            Cache::Unkeyed(Unkeyed {
                url: Caching::inputs_of(context).unwrap_or_default().to_owned(),
                is_serializable: metadata.is_some_and(|metadata| metadata.cache_serializable),
                key: without_answer(key),
            })
        }
    };
}

fn cached(entry: Entry, answers: ActionAnswers<'_>) -> Cached {
    let found = answers.found();
    let (read, failures) = match &found {
        Asked::Answered {
            answer: Some(Hit::File(url)),
            ..
        } => (answers.cached(url), answers.cached_failures(url)),
        Asked::Answered { .. }
        | Asked::NotAsked
        | Asked::UnderWay { .. }
        | Asked::Failed { .. }
        | Asked::AskedByAnother => (Asked::NotAsked, answers.found_failures()),
    };
    let prefix = &entry.output_prefix;
    Cached {
        uid: answers.incarnation.uid.clone(),
        found,
        read,
        is_look_up_given_up: is_given_up(failures),
        copied: answers.copied(prefix),
        reserved: answers.reserved(),
        reserved_before: answers.reserved_before(),
        is_reservation_given_up: is_given_up(answers.reserved_failures()),
        is_freed: answers.facts.waiting.is_freed,
        exists: answers.exists(prefix),
        put: answers.put(prefix),
        released: answers.released(),
        entry,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn what_fails_is_given_up_after_two_failures_and_as_long_as_a_reservation_holds() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (failures, expected) in [
            (None, false),
            (Some((0, 0)), false),
            // One that comes long after it was asked, as after a pause of the process.
            (Some((3600, 3600)), false),
            (Some((0, 29)), false),
            (Some((0, 30)), true),
            // A clock that was set back.
            (Some((30, 0)), false),
        ] {
            let failures = failures.map(|(first, last)| Failures {
                first_at: at(first),
                last_at: at(last),
            });
            assert_eq!(is_given_up(failures), expected, "{failures:?}");
        }
    }
}
