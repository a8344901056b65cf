//! The questions of all keys of a controller: what is asked, what is sent next, what came of it. Pure: instants are
//! passed in.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::{AskError, Incarnation, Question, QuestionId, Seen};
use tokio::{task::AbortHandle, time::Instant};

use super::{
    AskLimits,
    answers::{Answers, Failures, OfKey, Said, Slot, Stage, Step, UnderWay},
    fair::{FairQueue, Share},
};
use crate::controller::Key;

/// All questions of a controller.
///
/// A question is in one place only: it waits for its turn in `queue`, for its time in `later`, or is in flight. What is
/// dropped leaves nothing behind but, where it was in flight, its share of the limits until its task has ended.
#[derive(Debug)]
pub(super) struct Table<K, Q: Question> {
    keys: BTreeMap<K, OfKey<Q>>,
    queue: FairQueue<K>,
    waiting: BTreeMap<u64, (K, QuestionId)>,
    later: BTreeMap<(Instant, u64), (K, QuestionId)>,
    n_tickets: u64,
}

/// A question to be sent now.
#[derive(Debug)]
pub(super) struct ToSend<K, Q> {
    pub(super) key: K,
    pub(super) id: QuestionId,
    pub(super) question: Arc<Q>,
    pub(super) share: Share,
    pub(super) ticket: u64,
}

/// What time it is, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) at: Timestamp,
}

impl<K: Key, Q: Question> Table<K, Q> {
    pub(super) fn new(limits: AskLimits) -> Self {
        Self {
            keys: BTreeMap::new(),
            queue: FairQueue::new(limits),
            waiting: BTreeMap::new(),
            later: BTreeMap::new(),
            n_tickets: 0,
        }
    }

    /// What a round of `key` observes.
    pub(super) fn answers(&self, key: &K, now: Instant) -> Answers<Q> {
        let of = self.keys.get(key).cloned();
        let slots = of.iter().flat_map(|of| of.slots.iter());
        let rates = slots.filter_map(|(id, slot)| {
            let share = slot.waiting_share()?;
            Some((id.clone(), self.queue.holding_rate(share, now)?))
        });
        let rates = rates.collect();
        Answers::of(of, rates)
    }

    /// A round has seen which incarnation of `key` there is: what was asked about another one is dropped and, where it
    /// is under way, cancelled.
    pub(super) fn keep(&mut self, key: &K, seen: &Seen<Incarnation>) {
        let is_over = match (self.keys.get(key), seen) {
            (None, _) | (Some(_), Seen::Unknown(_)) => false,
            (Some(of), Seen::Present(incarnation)) => of.incarnation != *incarnation,
            (Some(_), Seen::Absent) => true,
        };
        if !is_over {
            return;
        }
        if let Some(of) = self.keys.remove(key) {
            for slot in of.slots.values() {
                self.cancel(key, &slot.stage);
            }
        }
    }

    /// A plan that asks this is about to be applied: from now on its record is known to be ours.
    pub(super) fn plan(&mut self, key: &K, incarnation: &Incarnation, id: &QuestionId) {
        self.slots(key, incarnation).entry(id.clone()).or_default();
    }

    /// Asks, unless the same question is under way or has an answer that `observed` does not have: that one came while
    /// the plan was made, and leads to a round of its own.
    pub(super) fn ask(
        &mut self,
        key: &K,
        incarnation: &Incarnation,
        question: Q,
        observed: &Answers<Q>,
        now: Now,
    ) {
        let id = question.id();
        let backoff = self.queue.limits().of(id.kind).backoff;
        let observed = observed.ticket(incarnation, &id);
        let slots = self.slots(key, incarnation);
        let slot = slots.entry(id.clone()).or_default();
        let before = match &slot.stage {
            Stage::UnderWay(_) => return,
            Stage::Over(said) if observed != Some(said.ticket) => return,
            Stage::Over(said) => Some(said.clone()),
            Stage::Idle => None,
        };
        let share = Share {
            kind: question.kind(),
            host: question.host().to_owned(),
        };
        let due = before
            .as_ref()
            .map(|said| due(&question, said, backoff.wait(slot.n_failures)));
        self.n_tickets += 1;
        let ticket = self.n_tickets;
        let mut under_way = UnderWay {
            question: Arc::new(question),
            share,
            since: now.at,
            ticket,
            step: Step::Waiting,
        };
        if let Some(due) = due.filter(|due| *due > now.instant) {
            under_way.step = Step::Later(due);
            self.later.insert((due, ticket), (key.clone(), id.clone()));
        } else {
            self.queue.push(&under_way.share, key, ticket);
            self.waiting.insert(ticket, (key.clone(), id.clone()));
        }
        let slot = self.slots(key, incarnation).entry(id).or_default();
        let is_repeated = before.as_ref().is_some_and(|said| said.result.is_err());
        if !is_repeated {
            slot.unanswered_since = now.at;
        }
        slot.question = Some(Arc::clone(&under_way.question));
        slot.before = before;
        slot.stage = Stage::UnderWay(under_way);
    }

    /// The answer is used up, or no plan wants one any more.
    pub(super) fn used(&mut self, key: &K, incarnation: &Incarnation, id: &QuestionId) {
        let Some(of) = self.keys.get_mut(key) else {
            return;
        };
        if of.incarnation != *incarnation {
            return;
        }
        let slots = Arc::make_mut(&mut of.slots);
        let slot = slots.remove(id);
        if slots.is_empty() {
            self.keys.remove(key);
        }
        if let Some(slot) = slot {
            self.cancel(key, &slot.stage);
        }
    }

    /// When the next question is due that is sent later, or waits for its rate.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|((due, _), _)| *due);
        later.into_iter().chain(self.queue.next_due()).min()
    }

    /// The next question that may be sent. [`sent`](Self::sent) has to follow.
    pub(super) fn next(&mut self, now: Instant) -> Option<ToSend<K, Q>> {
        self.queue_due(now);
        loop {
            let (share, key, ticket) = self.queue.pop(now)?;
            let found = self.waiting.remove(&ticket);
            let question = found.and_then(|(_, id)| {
                let under_way = under_way(&mut self.keys, &key, &id, ticket)?;
                Some((Arc::clone(&under_way.question), id))
            });
            match question {
                Some((question, id)) => {
                    return Some(ToSend {
                        key,
                        id,
                        question,
                        share,
                        ticket,
                    });
                }
                // Whatever is dropped leaves the queue, too.
                None => self.queue.ended(&share),
            }
        }
    }

    /// A question that was taken is in flight.
    pub(super) fn sent(&mut self, key: &K, id: &QuestionId, ticket: u64, abort: AbortHandle) {
        if let Some(under_way) = under_way(&mut self.keys, key, id, ticket) {
            under_way.step = Step::InFlight(abort);
        }
    }

    /// A task that was asking has ended, however it ended.
    pub(super) fn ended(&mut self, share: &Share) {
        self.queue.ended(share);
    }

    /// A question was answered, or will not be. Returns whether this is news, which leads to a round: it is none where
    /// no plan waits for it any more, and where the kit repeats the question and the answer is the one before.
    pub(super) fn answered(
        &mut self,
        key: &K,
        id: &QuestionId,
        ticket: u64,
        result: Result<Q::Answer, AskError>,
        now: Now,
    ) -> bool {
        let Some(slot) = slot(&mut self.keys, key, id) else {
            return false;
        };
        let Stage::UnderWay(under_way) = &mut slot.stage else {
            return false;
        };
        if under_way.ticket != ticket {
            return false;
        }
        slot.n_failures = match &result {
            Ok(_) => 0,
            Err(_) => slot.n_failures.saturating_add(1),
        };
        let first_at = slot.failures.map_or(now.at, |before| before.first_at);
        slot.failures = result.is_err().then_some(Failures {
            first_at,
            last_at: now.at,
        });
        let is_same = |before: &Said<Q::Answer>| before.result == result;
        let is_news = under_way.question.repeats_after().is_none()
            || !slot.before.as_ref().is_some_and(is_same);
        let said = Said {
            at: now.at,
            instant: now.instant,
            ticket,
            result,
        };
        if is_news {
            slot.before = None;
            slot.stage = Stage::Over(said);
            return true;
        }
        let backoff = self.queue.limits().of(under_way.share.kind).backoff;
        let due = due(&*under_way.question, &said, backoff.wait(slot.n_failures));
        under_way.step = Step::Later(due);
        slot.before = Some(said);
        self.later.insert((due, ticket), (key.clone(), id.clone()));
        false
    }

    /// By kind: how many wait for their turn, and how many are in flight.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, usize, usize)> {
        self.queue.counts()
    }

    /// How many questions there are: under way, or with answers that wait to be used up.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let n_slots: usize = self.keys.values().map(|of| of.slots.len()).sum();
        n_slots + self.later.len() + self.waiting.len()
    }

    fn queue_due(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((_, ticket), (key, id)) = entry.remove_entry();
            if let Some(under_way) = under_way(&mut self.keys, &key, &id, ticket) {
                under_way.step = Step::Waiting;
                self.queue.push(&under_way.share, &key, ticket);
                self.waiting.insert(ticket, (key, id));
            }
        }
    }

    fn cancel(&mut self, key: &K, stage: &Stage<Q>) {
        let Stage::UnderWay(under_way) = stage else {
            return;
        };
        match &under_way.step {
            Step::Later(due) => {
                self.later.remove(&(*due, under_way.ticket));
            }
            Step::Waiting => {
                self.queue.remove(&under_way.share, key, under_way.ticket);
                self.waiting.remove(&under_way.ticket);
            }
            Step::InFlight(abort) => abort.abort(),
        }
    }

    /// The questions of a key. Those of another incarnation are dropped.
    fn slots(&mut self, key: &K, incarnation: &Incarnation) -> &mut BTreeMap<QuestionId, Slot<Q>> {
        self.keep(key, &Seen::Present(incarnation.clone()));
        let of = self.keys.entry(key.clone()).or_insert_with(|| OfKey {
            incarnation: incarnation.clone(),
            slots: Arc::default(),
        });
        Arc::make_mut(&mut of.slots)
    }
}

/// When a question is sent again: not before its own time or, where it has none, after failures, before a back-off.
fn due<Q: Question>(question: &Q, said: &Said<Q::Answer>, backoff: Duration) -> Instant {
    said.instant + question.repeats_after().unwrap_or(backoff)
}

fn slot<'t, K: Key, Q: Question>(
    keys: &'t mut BTreeMap<K, OfKey<Q>>,
    key: &K,
    id: &QuestionId,
) -> Option<&'t mut Slot<Q>> {
    let of = keys.get_mut(key)?;
    if !of.slots.contains_key(id) {
        return None;
    }
    Arc::make_mut(&mut of.slots).get_mut(id)
}

fn under_way<'t, K: Key, Q: Question>(
    keys: &'t mut BTreeMap<K, OfKey<Q>>,
    key: &K,
    id: &QuestionId,
    ticket: u64,
) -> Option<&'t mut UnderWay<Q>> {
    match &mut slot(keys, key, id)?.stage {
        Stage::UnderWay(under_way) if under_way.ticket == ticket => Some(under_way),
        Stage::UnderWay(_) | Stage::Idle | Stage::Over(_) => None,
    }
}
