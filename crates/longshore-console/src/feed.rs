//! State changes for any number of readers, each at its own pace.
//!
//! The feed keeps the last changes once, with a number each. A reader holds nothing but the number that it has reached,
//! so a slow one costs no memory: when it has fallen behind the kept changes, it gets [`Next::Reset`] and reads the
//! state anew. The numbers begin again with every process, hence the epoch in each id.

use std::{
    collections::VecDeque,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use uuid::Uuid;

use crate::objects::Change;

/// Changes that are kept. A run of a thousand tasks makes some 5,000 of them.
const KEPT: usize = 16_384;

/// Where a reader is: the last change that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    epoch: u32,
    number: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.epoch, self.number)
    }
}

/// A text is no event id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an event id of this service, as 0a1b2c3d-42")]
pub struct EventIdError;

impl FromStr for EventId {
    type Err = EventIdError;

    fn from_str(text: &str) -> Result<Self, EventIdError> {
        let (epoch, number) = text.split_once('-').ok_or(EventIdError)?;
        Ok(Self {
            epoch: u32::from_str_radix(epoch, 16).map_err(|_| EventIdError)?,
            number: number.parse().map_err(|_| EventIdError)?,
        })
    }
}

/// The changes.
#[derive(Clone, Debug)]
pub struct Feed {
    epoch: u32,
    kept: Arc<Mutex<VecDeque<Arc<Change>>>>,
    /// The number of the last change, 0 before the first.
    last: Arc<watch::Sender<u64>>,
    capacity: usize,
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// A change, with the id to resume after it.
    Change(EventId, Arc<Change>),
    /// Changes were missed: read the state anew. What follows begins after this id.
    Reset(EventId),
}

/// One reader.
#[derive(Debug)]
pub struct Reader {
    feed: Feed,
    reached: u64,
    has_missed: bool,
    told: watch::Receiver<u64>,
}

impl Default for Feed {
    fn default() -> Self {
        Self::with_capacity(KEPT)
    }
}

impl Feed {
    /// A feed that keeps so many changes.
    pub fn with_capacity(capacity: usize) -> Self {
        let (epoch, ..) = Uuid::new_v4().as_fields();
        Self {
            epoch,
            kept: Arc::default(),
            last: Arc::new(watch::Sender::new(0)),
            capacity,
        }
    }

    /// Adds a change. Never waits for readers.
    pub fn publish(&self, change: Change) {
        let mut kept = self.kept();
        if kept.len() == self.capacity {
            kept.pop_front();
        }
        kept.push_back(Arc::new(change));
        self.last.send_modify(|last| *last += 1);
    }

    /// Makes all readers read the state anew, because changes were lost before they reached the feed.
    pub fn skip(&self) {
        let mut kept = self.kept();
        kept.clear();
        self.last.send_modify(|last| *last += 1);
    }

    /// Reads from now on, or from after a change that was seen.
    pub fn reader(&self, after: Option<EventId>) -> Reader {
        let told = self.last.subscribe();
        let last = *told.borrow();
        let (reached, has_missed) = match after {
            None => (last, false),
            Some(id) if id.epoch == self.epoch && id.number <= last => (id.number, false),
            Some(_) => (last, true),
        };
        Reader {
            feed: self.clone(),
            reached,
            has_missed,
            told,
        }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<Change>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes after a number, if anything does.
    fn after(&self, reached: u64) -> Option<Next> {
        let kept = self.kept();
        let last = *self.last.borrow();
        if reached >= last {
            return None;
        }
        let first = last + 1 - kept.len() as u64;
        let change = (reached + 1)
            .checked_sub(first)
            .and_then(|at| kept.get(usize::try_from(at).ok()?));
        Some(match change {
            Some(change) => Next::Change(self.id(reached + 1), change.clone()),
            None => Next::Reset(self.id(last)),
        })
    }

    fn id(&self, number: u64) -> EventId {
        EventId {
            epoch: self.epoch,
            number,
        }
    }
}

impl Reader {
    /// The id of the last event that the reader has got.
    pub fn reached(&self) -> EventId {
        self.feed.id(self.reached)
    }

    /// The next change. `None`: there will be no more. Cancel-safe.
    pub async fn next(&mut self) -> Option<Next> {
        loop {
            if std::mem::take(&mut self.has_missed) {
                return Some(Next::Reset(self.reached()));
            }
            self.told.mark_unchanged();
            if let Some(next) = self.feed.after(self.reached) {
                let (Next::Change(id, _) | Next::Reset(id)) = &next;
                self.reached = id.number;
                return Some(next);
            }
            self.told.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn change(n: usize) -> Change {
        Change::RunChange {
            at: "2026-11-21T10:00:00Z".parse().unwrap(),
            dag_id: "etl".to_owned(),
            run_id: n.to_string(),
            from: None,
            to: "queued".to_owned(),
            reason: None,
        }
    }

    /// What a reader gets without waiting: run ids, or `reset`.
    fn drain(reader: &mut Reader) -> Vec<String> {
        std::iter::from_fn(|| reader.next().now_or_never().flatten())
            .map(|next| match next {
                Next::Change(_, change) => change.run().1.to_owned(),
                Next::Reset(_) => "reset".to_owned(),
            })
            .collect()
    }

    #[test]
    fn every_reader_gets_every_change_after_its_beginning() {
        let feed = Feed::with_capacity(4);
        feed.publish(change(1));
        let mut early = feed.reader(None);
        feed.publish(change(2));
        let mut late = feed.reader(None);
        feed.publish(change(3));
        assert_eq!(drain(&mut early), ["2", "3"]);
        assert_eq!(drain(&mut late), ["3"]);
        assert_eq!(drain(&mut late), [""; 0]);
    }

    #[test]
    fn a_reader_resumes_after_what_it_has_seen() {
        let feed = Feed::with_capacity(4);
        let mut reader = feed.reader(None);
        feed.publish(change(1));
        drain(&mut reader);
        let id: EventId = reader.reached().to_string().parse().unwrap();
        drop(reader);
        feed.publish(change(2));
        assert_eq!(drain(&mut feed.reader(Some(id))), ["2"]);
    }

    #[test]
    fn who_falls_behind_is_told_once_and_goes_on() {
        let feed = Feed::with_capacity(2);
        let mut reader = feed.reader(None);
        for n in 1..=3 {
            feed.publish(change(n));
        }
        assert_eq!(drain(&mut reader), ["reset"]);
        feed.publish(change(4));
        assert_eq!(drain(&mut reader), ["4"]);
        feed.skip();
        feed.publish(change(5));
        assert_eq!(drain(&mut reader), ["reset"]);
    }

    #[test]
    fn an_id_of_another_process_or_of_the_future_is_a_reset() {
        let feed = Feed::with_capacity(2);
        feed.publish(change(1));
        let other = Feed::with_capacity(2).reader(None).reached();
        let future = EventId {
            epoch: feed.epoch,
            number: 99,
        };
        for id in [other, future] {
            let mut reader = feed.reader(Some(id));
            assert_eq!(drain(&mut reader), ["reset"]);
            feed.publish(change(2));
            assert_eq!(drain(&mut reader), ["2"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_reader_wakes_up() {
        let feed = Feed::with_capacity(2);
        let mut reader = feed.reader(None);
        let publisher = feed.clone();
        let (next, ()) = tokio::join!(reader.next(), async move { publisher.publish(change(7)) });
        assert!(matches!(next, Some(Next::Change(..))));
    }
}
