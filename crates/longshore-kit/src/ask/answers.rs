//! What is known of the questions of one key.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use longshore_core::{AskError, Asked, Incarnation, Question, QuestionId};
use tokio::{task::AbortHandle, time::Instant};

use super::{fair::Share, room::Held};

/// How long a turn is kept for a plan that records and asks.
const TURN: Duration = Duration::from_secs(10);
/// How much longer while such a plan is carried out: longer than the write of a record may take.
const CARRIED_OUT: Duration = Duration::from_mins(1);

/// The questions of one key as they were when its round began: what `observe` reads. It cannot change anything.
#[derive(Debug)]
pub struct Answers<Q: Question> {
    of: Option<OfKey<Q>>,
    /// The rates that waiting questions wait for.
    rates: BTreeMap<QuestionId, &'static str>,
}

/// The questions of one key.
#[derive(Debug)]
pub(super) struct OfKey<Q: Question> {
    pub(super) incarnation: Incarnation,
    /// Shared with the rounds that observe them.
    pub(super) slots: Arc<BTreeMap<QuestionId, Slot<Q>>>,
}

/// One question of one key.
#[derive(Clone, Debug)]
pub(super) struct Slot<Q: Question> {
    /// What was asked last; `None` where nothing was.
    pub(super) question: Option<Arc<Q>>,
    pub(super) stage: Stage<Q>,
    /// What it was answered before, where a plan has asked again.
    pub(super) before: Option<Said<Q::Answer>>,
    /// How often in a row there was no answer.
    pub(super) n_failures: u32,
    /// When that began, and when it was so last; `None` where the last answer was one.
    pub(super) failures: Option<Failures>,
    /// When a plan asked first after the last answer.
    pub(super) unanswered_since: Timestamp,
}

/// A question that has no answer.
#[derive(Debug)]
pub struct Unanswered<'a, Q> {
    /// The question.
    pub question: &'a Q,
    /// When a plan asked first after the last answer.
    pub since: Timestamp,
    /// Why it has none, in words, where it was sent and failed.
    pub failure: Option<&'a str>,
    /// What it waits for now.
    pub waits_for: WaitsFor,
}

/// What a question that has no answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// It is in flight: the foreign system has to answer.
    Answer,
    /// Too many questions are in flight; or its turn has come, and it is about to be recorded and sent.
    Turn,
    /// The limit of this rate, one of [`AskLimits::rates`](super::AskLimits::rates), is used up.
    Rate(&'static str),
    /// It was answered or failed before: its time comes, or a plan asks again.
    Repeat,
}

/// The turn of a question that is [recorded first](Question::is_recorded_first) and was not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Its turn has not come. Nothing has to be on record meanwhile.
    ToCome,
    /// It is its turn: a plan that records it and asks again has it sent. Where no plan does so for 10 s, the turn is
    /// another question's, and this one waits for its next turn.
    Now,
}

/// The failures of a question in a row: none of them before the last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// When the first one was known.
    pub first_at: Timestamp,
    /// When the last one was known.
    pub last_at: Timestamp,
}

impl Failures {
    /// The time from the first failure to the last one. One failure alone says nothing about the time before it.
    pub fn lasted(&self) -> SignedDuration {
        self.last_at.duration_since(self.first_at)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Stage<Q: Question> {
    /// A plan of this process is about to ask, or has used the answer up.
    Idle,
    UnderWay(UnderWay<Q>),
    Over(Said<Q::Answer>),
}

#[derive(Clone, Debug)]
pub(super) struct UnderWay<Q> {
    pub(super) question: Arc<Q>,
    pub(super) share: Share,
    pub(super) since: Timestamp,
    /// Its own among all questions of the controller.
    pub(super) ticket: u64,
    pub(super) step: Step,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The question is sent again at this time.
    Later(Instant),
    /// For its turn.
    Waiting,
    /// It is its turn, and a plan has to record it and to ask again.
    Turn(Lapse),
    /// A plan has done so: it is sent next.
    Ready,
    InFlight(AbortHandle),
}

/// When a turn lapses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lapse {
    at: Instant,
    /// Whether a plan that uses the turn is being carried out.
    is_planned: bool,
}

/// A turn lapses at another time than before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) ticket: u64,
    pub(super) from: Instant,
    pub(super) to: Instant,
}

impl Lapse {
    /// Of a turn that comes now.
    pub(super) fn of(now: Instant) -> Self {
        Self {
            at: now + TURN,
            is_planned: false,
        }
    }

    pub(super) fn due(self) -> Instant {
        if self.is_planned {
            self.at + CARRIED_OUT
        } else {
            self.at
        }
    }
}

/// An answer, or why there is none.
#[derive(Clone, Debug)]
pub(super) struct Said<A> {
    pub(super) at: Timestamp,
    pub(super) instant: Instant,
    pub(super) ticket: u64,
    pub(super) result: Result<A, AskError>,
    /// What a large answer takes of the room for answers, until the answer is dropped.
    pub(super) _room: Option<Held>,
}

impl<A: Clone> Said<A> {
    fn to_asked(&self) -> Asked<A> {
        let at = self.at;
        match &self.result {
            Ok(answer) => Asked::Answered {
                at,
                answer: answer.clone(),
            },
            Err(AskError { why, message }) => Asked::Failed {
                at,
                why: *why,
                message: message.clone(),
            },
        }
    }
}

impl<Q: Question> Slot<Q> {
    fn to_asked(&self) -> Asked<Q::Answer> {
        match &self.stage {
            Stage::Idle => Asked::NotAsked,
            Stage::UnderWay(UnderWay { since, .. }) => Asked::UnderWay { since: *since },
            Stage::Over(said) => said.to_asked(),
        }
    }

    fn unanswered(&self, rate: Option<&'static str>) -> Option<Unanswered<'_, Q>> {
        let (said, waits_for) = match &self.stage {
            Stage::Idle => return None,
            Stage::UnderWay(it) => {
                let waits_for = match it.step {
                    Step::InFlight(_) => WaitsFor::Answer,
                    Step::Waiting => rate.map_or(WaitsFor::Turn, WaitsFor::Rate),
                    Step::Turn(_) | Step::Ready => WaitsFor::Turn,
                    Step::Later(_) => WaitsFor::Repeat,
                };
                (self.before.as_ref(), waits_for)
            }
            Stage::Over(said) => (Some(said), WaitsFor::Repeat),
        };
        let failure = said.and_then(|said| said.result.as_ref().err());
        if failure.is_none() && matches!(self.stage, Stage::Over(_)) {
            return None;
        }
        Some(Unanswered {
            question: self.question.as_deref()?,
            since: self.unanswered_since,
            failure: failure.map(|error| error.message.as_str()),
            waits_for,
        })
    }

    /// A plan that uses its turn is being carried out from now on, or is no more. Returns when the turn lapses, where
    /// that changes.
    pub(super) fn plan_turn(&mut self, is_planned: bool) -> Option<Moved> {
        let Stage::UnderWay(it) = &mut self.stage else {
            return None;
        };
        let Step::Turn(lapse) = &mut it.step else {
            return None;
        };
        if lapse.is_planned == is_planned {
            return None;
        }
        let from = lapse.due();
        lapse.is_planned = is_planned;
        Some(Moved {
            ticket: it.ticket,
            from,
            to: lapse.due(),
        })
    }

    pub(super) fn has_planned_turn(&self) -> bool {
        match &self.stage {
            Stage::UnderWay(UnderWay {
                step: Step::Turn(lapse),
                ..
            }) => lapse.is_planned,
            Stage::UnderWay(_) | Stage::Idle | Stage::Over(_) => false,
        }
    }

    /// Its ticket, where it is its turn.
    fn turn(&self) -> Option<u64> {
        match &self.stage {
            Stage::UnderWay(it) => matches!(it.step, Step::Turn(_)).then_some(it.ticket),
            Stage::Idle | Stage::Over(_) => None,
        }
    }

    /// Whether it has an answer, or failed, and its record says no more than that it was asked.
    pub(super) fn waits_for_record(&self) -> bool {
        let is_recorded_first = |question: &Arc<Q>| question.is_recorded_first();
        matches!(self.stage, Stage::Over(_))
            && self.question.as_ref().is_some_and(is_recorded_first)
    }

    /// What the question counts against, where it waits to be sent.
    pub(super) fn waiting_share(&self) -> Option<&Share> {
        match &self.stage {
            Stage::UnderWay(it) => matches!(it.step, Step::Waiting).then_some(&it.share),
            Stage::Idle | Stage::Over(_) => None,
        }
    }
}

impl<Q: Question> Clone for OfKey<Q> {
    fn clone(&self) -> Self {
        Self {
            incarnation: self.incarnation.clone(),
            slots: Arc::clone(&self.slots),
        }
    }
}

impl<Q: Question> Default for Answers<Q> {
    fn default() -> Self {
        Self {
            of: None,
            rates: BTreeMap::new(),
        }
    }
}

impl<Q: Question> Answers<Q> {
    /// Nothing was asked.
    pub fn none() -> Self {
        Self::default()
    }

    pub(super) fn of(of: Option<OfKey<Q>>, rates: BTreeMap<QuestionId, &'static str>) -> Self {
        Self { of, rates }
    }

    /// How far a question about this incarnation is. What was asked about another one counts for nothing.
    pub fn get(&self, incarnation: &Incarnation, id: &QuestionId) -> Asked<Q::Answer> {
        let slot = self.slot(incarnation, id);
        slot.map_or(Asked::NotAsked, Slot::to_asked)
    }

    /// The same where the subsystem's record says whether the question was asked. This process knows each question that
    /// its own plans were about to ask; any other one of the record is another process's.
    pub fn recorded(
        &self,
        incarnation: &Incarnation,
        id: &QuestionId,
        is_recorded: bool,
    ) -> Asked<Q::Answer> {
        match self.slot(incarnation, id) {
            None if is_recorded => Asked::AskedByAnother,
            None | Some(_) => self.get(incarnation, id),
        }
    }

    /// The answer or the failure before the question that is under way: one that a plan asked again.
    pub fn before(&self, incarnation: &Incarnation, id: &QuestionId) -> Asked<Q::Answer> {
        let before = self.slot(incarnation, id);
        let before = before.and_then(|slot| slot.before.as_ref());
        before.map_or(Asked::NotAsked, Said::to_asked)
    }

    /// The failures of a question about this incarnation since its last answer; `None` where there are none. They stay
    /// while the question is asked again.
    pub fn failures(&self, incarnation: &Incarnation, id: &QuestionId) -> Option<Failures> {
        self.slot(incarnation, id)?.failures
    }

    /// The turn of a question about this incarnation that is [recorded first](Question::is_recorded_first); `None` where
    /// it is not asked, or may have been sent.
    pub fn turn(&self, incarnation: &Incarnation, id: &QuestionId) -> Option<Turn> {
        let Stage::UnderWay(it) = &self.slot(incarnation, id)?.stage else {
            return None;
        };
        if !it.question.is_recorded_first() {
            return None;
        }
        match it.step {
            Step::Later(_) | Step::Waiting => Some(Turn::ToCome),
            Step::Turn(_) => Some(Turn::Now),
            Step::Ready | Step::InFlight(_) => None,
        }
    }

    /// The questions about this incarnation that are under way, or whose answers wait to be used up, in the order of
    /// their ids: for callers that cannot know beforehand which ones there are.
    pub fn all(&self, incarnation: &Incarnation) -> impl Iterator<Item = (&Q, Asked<Q::Answer>)> {
        let of = self.of.as_ref().filter(|of| of.incarnation == *incarnation);
        let slots = of.into_iter().flat_map(|of| of.slots.values());
        slots.filter_map(|slot| {
            let question = slot.question.as_deref()?;
            Some((question, slot.to_asked()))
        })
    }

    /// The questions about this incarnation that have no answer, in the order of their ids.
    pub fn unanswered(&self, incarnation: &Incarnation) -> impl Iterator<Item = Unanswered<'_, Q>> {
        let of = self.of.as_ref().filter(|of| of.incarnation == *incarnation);
        let slots = of.into_iter().flat_map(|of| of.slots.iter());
        slots.filter_map(|(id, slot)| slot.unanswered(self.rates.get(id).copied()))
    }

    /// The ticket of an answer that these answers have.
    pub(super) fn ticket(&self, incarnation: &Incarnation, id: &QuestionId) -> Option<u64> {
        match &self.slot(incarnation, id)?.stage {
            Stage::Over(said) => Some(said.ticket),
            Stage::Idle | Stage::UnderWay(_) => None,
        }
    }

    /// The ticket of a question whose turn these answers have.
    pub(super) fn turn_ticket(&self, incarnation: &Incarnation, id: &QuestionId) -> Option<u64> {
        self.slot(incarnation, id)?.turn()
    }

    fn slot(&self, incarnation: &Incarnation, id: &QuestionId) -> Option<&Slot<Q>> {
        let of = self.of.as_ref().filter(|of| of.incarnation == *incarnation);
        of?.slots.get(id)
    }
}

impl<Q: Question> Default for Slot<Q> {
    fn default() -> Self {
        Self {
            question: None,
            stage: Stage::Idle,
            before: None,
            n_failures: 0,
            failures: None,
            unanswered_since: Timestamp::UNIX_EPOCH,
        }
    }
}
