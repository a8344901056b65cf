//! Sends questions, and takes the answers in.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_core::{AskError, Incarnation, NoAnswer, Question, QuestionId, Seen};
use tokio::{
    sync::Notify,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, timeout},
};
use tracing::Instrument;

use super::{
    AskLimits,
    answers::Answers,
    fair::Share,
    table::{Due, Now, Table, ToSend},
};
use crate::{
    clock::Clock,
    controller::{Controller, Key},
    lease::Gate,
    metrics::ControllerMetrics,
};

/// While the lease is not held nothing is sent; this is how often it is looked again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The questions of a controller, as its rounds see them. Clones share them.
#[derive(Debug)]
pub(crate) struct Questions<K, Q: Question> {
    shared: Arc<Shared<K, Q>>,
}

#[derive(Debug)]
struct Shared<K, Q: Question> {
    table: Mutex<Table<K, Q>>,
    asked: Notify,
    clock: Arc<dyn Clock>,
}

impl<K, Q: Question> Clone for Questions<K, Q> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Key, Q: Question> Questions<K, Q> {
    pub(crate) fn new(limits: AskLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            shared: Arc::new(Shared {
                table: Mutex::new(Table::new(limits)),
                asked: Notify::new(),
                clock,
            }),
        }
    }

    /// What a round of `key` observes.
    pub(crate) fn answers(&self, key: &K) -> Answers<Q> {
        self.table().answers(key, Instant::now())
    }

    /// A round has seen which incarnation of `key` there is.
    pub(crate) fn keep(&self, key: &K, seen: &Seen<Incarnation>) {
        self.table().keep(key, seen);
    }

    /// A plan that asks this is about to be applied.
    pub(crate) fn plan(&self, key: &K, incarnation: &Incarnation, id: &QuestionId) {
        self.table().plan(key, incarnation, id);
    }

    /// The plan of a round was applied, or has failed.
    pub(crate) fn applied(&self, key: &K) {
        self.table().applied(key);
    }

    /// Asks, in a plan that was decided upon these answers.
    pub(crate) fn ask(
        &self,
        key: &K,
        incarnation: &Incarnation,
        question: &Q,
        observed: &Answers<Q>,
    ) {
        let now = self.now();
        let question = question.clone();
        self.table().ask(key, incarnation, question, observed, now);
        self.shared.asked.notify_one();
    }

    /// The answer is used up, or not wanted any more.
    pub(crate) fn used(&self, key: &K, incarnation: &Incarnation, id: &QuestionId) {
        self.table().used(key, incarnation, id);
    }

    fn now(&self) -> Now {
        Now {
            instant: Instant::now(),
            at: self.shared.clock.now(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table<K, Q>> {
        let table = self.shared.table.lock();
        table.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the questions of a controller. Dropping it aborts those in flight.
pub(crate) struct Asks<C: Controller> {
    controller: Arc<C>,
    questions: Questions<C::Key, C::Question>,
    limits: AskLimits,
    gate: Gate,
    metrics: ControllerMetrics,
    tasks: JoinSet<Result<Answer<C>, AskError>>,
    in_flight: HashMap<Id, InFlight<C::Key>>,
    /// The keys whose turn has come and which have not heard of it.
    turns: VecDeque<C::Key>,
    is_stopping: bool,
}

/// Why a key needs a round.
#[derive(Debug)]
pub(crate) enum News<K> {
    /// A question of this key has an answer, or will have none.
    Answer(K),
    /// It is the turn of a question of this key, which a plan has to record before it is sent.
    Turn(K),
}

type Answer<C> = <<C as Controller>::Question as Question>::Answer;

struct InFlight<K> {
    key: K,
    id: QuestionId,
    share: Share,
    ticket: u64,
    sent: Instant,
    /// Whether it is [recorded first](Question::is_recorded_first).
    is_recorded: bool,
    abort: AbortHandle,
}

impl<C: Controller> Asks<C> {
    pub(crate) fn new(
        controller: Arc<C>,
        questions: Questions<C::Key, C::Question>,
        limits: AskLimits,
        gate: Gate,
        metrics: ControllerMetrics,
    ) -> Self {
        Self {
            controller,
            questions,
            limits,
            gate,
            metrics,
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            turns: VecDeque::new(),
            is_stopping: false,
        }
    }

    /// From now on no question is sent but those that are on record already, and those in flight that are not recorded
    /// first are aborted. Returns the keys with answers of which there may be no record yet.
    pub(crate) fn stop(&mut self) -> Vec<C::Key> {
        self.is_stopping = true;
        self.turns.clear();
        self.in_flight.retain(|_, it| {
            if !it.is_recorded {
                it.abort.abort();
            }
            it.is_recorded
        });
        self.questions.table().unrecorded()
    }

    /// Whether there are questions on record that have no answer yet. For after [`stop`](Self::stop).
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.in_flight.is_empty() || self.questions.table().has_ready()
    }

    /// Sends questions until an answer is news, or it is the turn of a question that is recorded first.
    ///
    /// *Cancellation*: loses nothing; what is in flight goes on.
    pub(crate) async fn next(&mut self) -> News<C::Key> {
        loop {
            let look_again = self.send();
            if let Some(key) = self.turns.pop_front() {
                return News::Turn(key);
            }
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    if let Some(key) = self.ended(ended) {
                        return News::Answer(key);
                    }
                }
                () = self.questions.shared.asked.notified() => {}
                () = sleep_until(look_again), if look_again.is_some() => {}
            }
        }
    }

    /// Sends what may be sent. Returns when to look again, if nothing happens before.
    fn send(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut table = self.questions.table();
        let look_again = loop {
            // Asked each time: between two questions the process may have been paused.
            if !self.gate.is_open() {
                break Some(now + LOOK_AGAIN);
            }
            let due = if self.is_stopping {
                table.next_ready().map(Due::Send)
            } else {
                table.next(now)
            };
            let next = match due {
                Some(Due::Send(next)) => next,
                Some(Due::Turn(key)) => {
                    self.turns.push_back(key);
                    continue;
                }
                None => break table.next_due().filter(|_| !self.is_stopping),
            };
            let (key, id, ticket) = (next.key.clone(), next.id.clone(), next.ticket);
            let limits = self.limits.of(next.share.kind);
            let asking = asking(
                Arc::clone(&self.controller),
                self.gate.clone(),
                &next,
                limits,
            );
            let span = tracing::debug_span!("ask", kind = next.share.kind, key = %next.key);
            let is_recorded = next.question.is_recorded_first();
            let task = self.tasks.spawn(asking.instrument(span));
            let in_flight = InFlight {
                key: next.key,
                id: next.id,
                share: next.share,
                ticket,
                sent: now,
                is_recorded,
                abort: task.clone(),
            };
            self.in_flight.insert(task.id(), in_flight);
            table.sent(&key, &id, ticket, task);
        };
        for (kind, n_waiting, n_in_flight) in table.counts() {
            self.metrics.questions(kind, n_waiting, n_in_flight);
        }
        look_again
    }

    /// A task has ended. Returns the key that needs a round.
    fn ended(
        &mut self,
        ended: Result<(Id, Result<Answer<C>, AskError>), JoinError>,
    ) -> Option<C::Key> {
        let (task, result) = match ended {
            Ok((task, result)) => (task, Some(result)),
            Err(error) if error.is_cancelled() => (error.id(), None),
            Err(error) => (error.id(), Some(Err(panicked(&error)))),
        };
        let InFlight {
            key,
            id,
            share,
            ticket,
            sent,
            ..
        } = self.in_flight.remove(&task)?;
        let outcome = match &result {
            None => "cancelled",
            Some(Ok(_)) => "answered",
            Some(Err(error)) => error.why.as_str(),
        };
        self.metrics.question(share.kind, outcome, sent.elapsed());
        let now = self.questions.now();
        let mut table = self.questions.table();
        table.ended(&share);
        let result = result?;
        if let Err(error) = &result {
            let controller = self.controller.name();
            tracing::debug!(controller, %key, kind = share.kind, %error, "a question has no answer");
        }
        // An answer that comes after the lease was lost counts for nothing; whether the question had its effect is for
        // the next leader to find out.
        let result = match self.gate.check() {
            Ok(()) => result,
            Err(_) => Err(lease_lost()),
        };
        table
            .answered(&key, &id, ticket, result, now)
            .then_some(key)
    }
}

/// Asks one question, within its time, for as long as the lease is held.
fn asking<C: Controller>(
    controller: Arc<C>,
    gate: Gate,
    next: &ToSend<C::Key, C::Question>,
    limits: super::KindLimits,
) -> impl Future<Output = Result<Answer<C>, AskError>> + Send + use<C> {
    let (key, question) = (next.key.clone(), Arc::clone(&next.question));
    async move {
        let asked = controller.ask(&key, &question, limits.answer_bytes);
        let asked = timeout(limits.timeout, asked);
        match gate.while_open(asked).await {
            Ok(Ok(result)) => result,
            Ok(Err(_elapsed)) => Err(AskError::new(
                NoAnswer::TimedOut,
                format!(
                    "{} did not answer within {} s",
                    question.host(),
                    limits.timeout.as_secs_f64()
                ),
            )),
            Err(_not_leader) => Err(lease_lost()),
        }
    }
}

fn lease_lost() -> AskError {
    AskError::new(
        NoAnswer::TimedOut,
        "this process lost its lease while the question was under way",
    )
}

fn panicked(error: &JoinError) -> AskError {
    tracing::error!(%error, "asking a foreign system panicked");
    AskError::new(
        NoAnswer::NotUnderstood,
        "the question failed: this is a bug",
    )
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
