//! The questions of all keys of a controller: what is asked, what is sent next, what came of it. Pure: instants are
//! passed in.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use longshore_core::{AskError, Incarnation, Question, QuestionId, Seen};
use tokio::{task::AbortHandle, time::Instant};

use super::{
    AskLimits,
    answers::{Answers, Failures, Lapse, Moved, OfKey, Said, Slot, Stage, Step, UnderWay},
    fair::{FairQueue, Share},
    room::{Entry, Room},
};
use crate::controller::Key;

mod give_way;

/// All questions of a controller.
///
/// A question is in one place only: it waits for its turn in `queue`, for its time in `later`, for its record in `turns`,
/// to be sent at once in `ready`, or is in flight. What is dropped leaves nothing behind but, where it was in flight, its
/// share of the limits until its task has ended.
#[derive(Debug)]
pub(super) struct Table<K, Q: Question> {
    keys: BTreeMap<K, OfKey<Q>>,
    queue: FairQueue<K>,
    waiting: BTreeMap<u64, (K, QuestionId)>,
    later: BTreeMap<(Instant, u64), (K, QuestionId)>,
    /// Those whose turn it is, by when their turns lapse: each counts as one in flight.
    turns: BTreeMap<(Instant, u64), (K, QuestionId)>,
    /// Those that are on record, and counted: the next ones to be sent.
    ready: VecDeque<(K, QuestionId, u64)>,
    room: Room<K>,
    n_tickets: u64,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Due<K, Q> {
    /// This question is to be sent now. [`sent`](Table::sent) has to follow.
    Send(ToSend<K, Q>),
    /// It is the turn of a question of this key, which needs a round.
    Turn(K),
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
            room: Room::new(limits.answer_bytes),
            queue: FairQueue::new(limits),
            waiting: BTreeMap::new(),
            later: BTreeMap::new(),
            turns: BTreeMap::new(),
            ready: VecDeque::new(),
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

    /// A plan that asks this is about to be applied: from now on its record is known to be ours, and its turn does not
    /// lapse before [`applied`](Self::applied).
    pub(super) fn plan(&mut self, key: &K, incarnation: &Incarnation, id: &QuestionId) {
        let slot = self.slots(key, incarnation).entry(id.clone()).or_default();
        if let Some(moved) = slot.plan_turn(true) {
            self.move_turn(moved);
        }
    }

    /// The plan of a round was applied, or has failed: turns that it has not used lapse in their time.
    pub(super) fn applied(&mut self, key: &K) {
        let Some(of) = self.keys.get_mut(key) else {
            return;
        };
        if !of.slots.values().any(Slot::has_planned_turn) {
            return;
        }
        let slots = Arc::make_mut(&mut of.slots).values_mut();
        let moved: Vec<_> = slots.filter_map(|slot| slot.plan_turn(false)).collect();
        for moved in moved {
            self.move_turn(moved);
        }
    }

    /// Asks, unless the same question is under way or has an answer that `observed` does not have: that one came while
    /// the plan was made, and leads to a round of its own. A question whose turn `observed` has is sent.
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
        let turn = observed.turn_ticket(incarnation, &id);
        let observed = observed.ticket(incarnation, &id);
        let slots = self.slots(key, incarnation);
        let slot = slots.entry(id.clone()).or_default();
        let before = match &slot.stage {
            Stage::UnderWay(_) => {
                self.use_turn(key, &id, question, turn);
                return;
            }
            Stage::Over(said) if observed != Some(said.ticket) => return,
            Stage::Over(said) => Some(said.clone()),
            Stage::Idle => None,
        };
        let share = share_of(&question);
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

    /// When the next question is due that is sent later, or waits for its rate, or the next turn lapses.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let first = |by_time: &BTreeMap<(Instant, u64), (K, QuestionId)>| {
            by_time.first_key_value().map(|((due, _), _)| *due)
        };
        let timed = first(&self.later).into_iter().chain(first(&self.turns));
        timed.chain(self.queue.next_due()).min()
    }

    /// The next question that may be sent, or whose turn it is.
    pub(super) fn next(&mut self, now: Instant) -> Option<Due<K, Q>> {
        self.queue_due(now);
        self.let_turns_lapse(now);
        if let Some(ready) = self.next_ready() {
            return Some(Due::Send(ready));
        }
        loop {
            let (share, key, ticket) = self.queue.pop(now)?;
            if let Some((_, id)) = self.waiting.remove(&ticket)
                && let Some(under_way) = under_way(&mut self.keys, &key, &id, ticket)
            {
                if under_way.question.is_recorded_first() {
                    let lapse = Lapse::of(now);
                    under_way.step = Step::Turn(lapse);
                    self.turns.insert((lapse.due(), ticket), (key.clone(), id));
                    return Some(Due::Turn(key));
                }
                let question = Arc::clone(&under_way.question);
                return Some(Due::Send(ToSend {
                    key,
                    id,
                    question,
                    share,
                    ticket,
                }));
            }
            // Whatever is dropped leaves the queue, too.
            self.queue.ended(&share);
        }
    }

    /// The next question that is on record and waits for nothing.
    pub(super) fn next_ready(&mut self) -> Option<ToSend<K, Q>> {
        while let Some((key, id, ticket)) = self.ready.pop_front() {
            if let Some(under_way) = under_way(&mut self.keys, &key, &id, ticket) {
                return Some(ToSend {
                    question: Arc::clone(&under_way.question),
                    share: under_way.share.clone(),
                    key,
                    id,
                    ticket,
                });
            }
        }
        None
    }

    /// Whether questions are on record and not sent yet.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The keys with answers to questions that are recorded first: no record may say yet what they mean.
    pub(super) fn unrecorded(&self) -> Vec<K> {
        let keys = self.keys.iter();
        let unrecorded = keys.filter(|(_, of)| of.slots.values().any(Slot::waits_for_record));
        unrecorded.map(|(key, _)| key.clone()).collect()
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
        let entry = Entry {
            key: key.clone(),
            id: id.clone(),
            ticket,
        };
        let n_bytes = result.as_ref().map_or(0, Q::answer_bytes);
        let Ok(room) = self.room_for(entry, n_bytes, now) else {
            return false;
        };
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
            _room: room,
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
        n_slots + self.later.len() + self.waiting.len() + self.turns.len() + self.ready.len()
    }

    /// How many bytes of large answers are held.
    #[cfg(test)]
    pub(super) fn n_held(&self) -> usize {
        self.room.n_held()
    }

    /// A plan has recorded a question whose turn it saw. Where the turn is over, the question waits for another one.
    fn use_turn(&mut self, key: &K, id: &QuestionId, question: Q, turn: Option<u64>) {
        let Some(slot) = slot(&mut self.keys, key, id) else {
            return;
        };
        let Stage::UnderWay(under_way) = &mut slot.stage else {
            return;
        };
        let (Step::Turn(lapse), ticket) = (&under_way.step, under_way.ticket) else {
            return;
        };
        if turn != Some(ticket) {
            return;
        }
        self.turns.remove(&(lapse.due(), ticket));
        let share = share_of(&question);
        under_way.question = Arc::new(question);
        slot.question = Some(Arc::clone(&under_way.question));
        if share == under_way.share {
            under_way.step = Step::Ready;
            self.ready.push_back((key.clone(), id.clone(), ticket));
            return;
        }
        // Another foreign system has turns of its own.
        self.queue.give_back(&under_way.share);
        under_way.step = Step::Waiting;
        self.queue.push(&share, key, ticket);
        under_way.share = share;
        self.waiting.insert(ticket, (key.clone(), id.clone()));
    }

    /// A turn lapses at another time than before.
    fn move_turn(&mut self, Moved { ticket, from, to }: Moved) {
        if let Some(of) = self.turns.remove(&(from, ticket)) {
            self.turns.insert((to, ticket), of);
        }
    }

    /// Questions whose turns no plan has used wait again, behind the others.
    fn let_turns_lapse(&mut self, now: Instant) {
        while let Some(entry) = self.turns.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((_, ticket), (key, id)) = entry.remove_entry();
            if let Some(under_way) = under_way(&mut self.keys, &key, &id, ticket) {
                under_way.step = Step::Waiting;
                self.queue.give_back(&under_way.share);
                self.queue.push(&under_way.share, &key, ticket);
                self.waiting.insert(ticket, (key, id));
            }
        }
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
            Step::Turn(lapse) => {
                self.turns.remove(&(lapse.due(), under_way.ticket));
                self.queue.give_back(&under_way.share);
            }
            // What is dropped is passed over in `ready`.
            Step::Ready => self.queue.give_back(&under_way.share),
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

fn share_of<Q: Question>(question: &Q) -> Share {
    Share {
        kind: question.kind(),
        host: question.host().to_owned(),
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
