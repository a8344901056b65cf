//! Runs a controller: takes due keys, runs their rounds, decides when a key comes back, and asks what their plans ask.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    fmt,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt};
use longshore_core::{Class, Next};
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    apply::Applier,
    ask::{AskLimits, Asks, News, Questions},
    clock::Clock,
    controller::{Controller, Key},
    lease::Gate,
    memory::Memory,
    outcome::Counters,
    queue::{Finished, Queue},
    repeated::Repeated,
    round::{Done, Failure, Round},
};

/// Rounds in flight at once, by default.
const CONCURRENCY: usize = 64;
/// How long running rounds may go on after shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long after shutdown began the answers to questions that are on record may come.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// By how much a key that has a turn goes before those that wait for their rounds: the turn lapses.
const TURN_HEAD_START: Duration = Duration::from_secs(30);
/// The loop turns at least this often, to show that it does.
const BEAT: Duration = Duration::from_secs(10);
/// From this many failures in a row on, a key that fails for passing reasons is worth a warning.
const WARN_AFTER: u32 = 5;

/// Runs one controller.
#[derive(Debug)]
pub struct Runner<C: Controller> {
    round: Round<C>,
    concurrency: usize,
    limits: AskLimits,
}

impl<C: Controller> Runner<C> {
    /// A runner of `controller`, whose Kubernetes actions go through `applier`. Without a [gate](Self::gated_by) it
    /// acts always.
    pub fn new(controller: Arc<C>, applier: Applier, clock: Arc<dyn Clock>) -> Self {
        let metrics = applier.metrics().controller(controller.name());
        let limits = AskLimits::default();
        Self {
            round: Round {
                controller,
                questions: Questions::new(limits.clone(), Arc::clone(&clock)),
                memories: Vec::new(),
                gate: Gate::always_open(),
                applier,
                clock,
                counters: Arc::default(),
                metrics,
            },
            concurrency: CONCURRENCY,
            limits,
        }
    }

    /// Applies actions and sends questions only while this gate is open.
    #[must_use]
    pub fn gated_by(mut self, gate: Gate) -> Self {
        self.round.gate = gate;
        self
    }

    /// Limits the questions to foreign systems so.
    #[must_use]
    pub fn asking(mut self, limits: AskLimits) -> Self {
        let clock = Arc::clone(&self.round.clock);
        self.round.questions = Questions::new(limits.clone(), clock);
        self.limits = limits;
        self
    }

    /// Drops what this memory has of keys that are gone, and of other incarnations.
    #[must_use]
    pub fn remembering<T>(mut self, memory: &Memory<C::Key, T>) -> Self
    where
        T: Clone + Default + fmt::Debug + Send + Sync + 'static,
    {
        self.round.memories.push(memory.remembers());
        self
    }

    /// At most this many rounds at once; at least one.
    #[must_use]
    pub fn concurrency(mut self, rounds: usize) -> Self {
        self.concurrency = rounds.max(1);
        self
    }

    /// The name of its controller.
    pub fn name(&self) -> &'static str {
        self.round.controller.name()
    }

    /// What came of the rounds so far.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.round.counters)
    }

    /// Runs rounds until `shutdown`.
    ///
    /// *Flow*: each item of `triggers` says that something about a key changed, and leads to a round. The end of
    /// `triggers` ends nothing: keys still come back by `Next::After` and after failures.
    ///
    /// *Guarantees*: one round per key at a time; a key that is triggered while it runs comes again; a panic fails its
    /// own round only; due keys of different [groups](Controller::group) take turns. An answer of a foreign
    /// system that is news leads to a round of its key.
    ///
    /// *Log*: a key that is refused, or that keeps failing, has one line for each message in a row, and the retries that
    /// end with the same message are logged at DEBUG.
    ///
    /// *Cancellation*: after `shutdown` running rounds have 30 s to finish, and no question is sent that is not on record.
    /// Questions in flight are aborted at once, but for those that are
    /// [recorded first](longshore_core::Question::is_recorded_first): their answers may come for 2 s, and are all that
    /// rounds still start for. Dropping the future drops every round at its next await, as a crash would.
    pub async fn run(
        self,
        triggers: impl Stream<Item = C::Key> + Send,
        shutdown: CancellationToken,
    ) {
        let mut triggers = pin!(triggers.fuse());
        let mut queue = Queue::new();
        let mut rounds = Rounds::default();
        let mut said = Repeated::default();
        let mut asks = Asks::new(
            Arc::clone(&self.round.controller),
            self.round.questions.clone(),
            self.limits.clone(),
            self.round.gate.clone(),
            self.round.metrics.clone(),
        );
        let turning = self.round.metrics.begin();
        loop {
            let due = self.start_due(&mut queue, &mut rounds);
            let metrics = &self.round.metrics;
            metrics.load(queue.n_waiting(), rounds.tasks.len());
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some((key, result)) = rounds.next() => {
                    let now = Instant::now();
                    self.finish(&mut queue, &mut said, key, result, now);
                }
                news = asks.next() => self.hear(&mut queue, news),
                Some(key) = triggers.next() => self.trigger(&mut queue, key),
                () = sleep_until(due), if due.is_some() => {}
                () = tokio::time::sleep(BEAT) => {}
            }
        }
        drop(turning);
        let answers = self.record_answers(&mut queue, &mut asks, &mut rounds, &mut triggers);
        let _ = tokio::time::timeout(ANSWER_TIMEOUT, answers).await;
        drop(asks);
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, async {
            while rounds.next().await.is_some() {}
        })
        .await;
    }

    /// Starts the rounds of due keys. Returns when the next key is due that there is room for.
    fn start_due(&self, queue: &mut Queue<C::Key>, rounds: &mut Rounds<C::Key>) -> Option<Instant> {
        while rounds.tasks.len() < self.concurrency
            && let Some(key) = queue.pop(Instant::now())
        {
            rounds.start(self.round.clone(), key);
        }
        let is_full = rounds.tasks.len() >= self.concurrency;
        queue.next_due().filter(|_| !is_full)
    }

    /// Ends the work: rounds record the answers to what is on record, and what is in flight is waited for.
    ///
    /// What running rounds have just recorded is sent: a record of a question that was not sent would say to the next
    /// process that it may have had its effect. `triggers` are polled because the caches hang on them.
    async fn record_answers(
        &self,
        queue: &mut Queue<C::Key>,
        asks: &mut Asks<C>,
        rounds: &mut Rounds<C::Key>,
        triggers: &mut (impl Stream<Item = C::Key> + Send + Unpin),
    ) {
        queue.clear();
        let mut answered = BTreeSet::new();
        for key in asks.stop() {
            answered.insert(key.clone());
            self.trigger(queue, key);
        }
        loop {
            let due = self.start_due(queue, rounds);
            let is_idle = queue.n_waiting() == 0 && rounds.tasks.is_empty();
            if is_idle && !asks.is_waited_for() {
                return;
            }
            tokio::select! {
                biased;
                Some((key, result)) = rounds.next() => {
                    let failure = result.err().filter(|_| answered.contains(&key));
                    let finished = match failure {
                        Some(failure) => Finished::Badly(failure.class, failure.retry_after),
                        None => Finished::Well(Next::AwaitChange),
                    };
                    queue.finish(key, finished, Instant::now());
                }
                news = asks.next() => {
                    let (News::Answer(key) | News::Turn(key)) = news;
                    answered.insert(key.clone());
                    self.trigger(queue, key);
                }
                Some(_) = triggers.next() => {}
                () = sleep_until(due), if due.is_some() => {}
            }
        }
    }

    fn hear(&self, queue: &mut Queue<C::Key>, news: News<C::Key>) {
        match news {
            News::Answer(key) => self.trigger(queue, key),
            News::Turn(key) => {
                let now = Instant::now();
                let due = now.checked_sub(TURN_HEAD_START).unwrap_or(now);
                queue.trigger(key, |key| self.round.controller.group(key), due);
            }
        }
    }

    fn trigger(&self, queue: &mut Queue<C::Key>, key: C::Key) {
        let due = self.boosted(&key, Instant::now());
        queue.trigger(key, |key| self.round.controller.group(key), due);
    }

    /// When a key counts as due that is to have its round at once.
    fn boosted(&self, key: &C::Key, now: Instant) -> Instant {
        let boost = self.round.controller.priority_boost(key);
        now.checked_sub(boost).unwrap_or(now)
    }

    fn finish(
        &self,
        queue: &mut Queue<C::Key>,
        said: &mut Repeated<C::Key>,
        key: C::Key,
        result: Result<Done, Failure>,
        now: Instant,
    ) {
        let failure = match result {
            Ok(done) => {
                said.forget(&key);
                let now = if done.next == Next::After(Duration::ZERO) {
                    self.boosted(&key, now)
                } else {
                    now
                };
                queue.finish(key, Finished::Well(done.next), now);
                return;
            }
            Err(failure) => failure,
        };
        let finished = Finished::Badly(failure.class, failure.retry_after);
        let n_failures = queue.finish(key.clone(), finished, now);
        let controller = self.round.controller.name();
        let error = failure.report;
        match failure.class {
            Class::Bug => tracing::error!(controller, %key, n_failures, error, "round failed"),
            Class::Invalid if said.is_new(key.clone(), &error) => {
                tracing::info!(controller, %key, n_failures, error, "round refused");
            }
            Class::Retry | Class::Conflict
                if n_failures >= WARN_AFTER && said.is_new(key.clone(), &error) =>
            {
                tracing::warn!(controller, %key, n_failures, error, "round keeps failing");
            }
            Class::Invalid | Class::Retry | Class::Conflict => {
                tracing::debug!(controller, %key, n_failures, error, "round failed");
            }
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The rounds in flight. Dropping them drops each at its next await.
struct Rounds<K> {
    tasks: JoinSet<Result<Done, Failure>>,
    keys: HashMap<Id, K>,
}

impl<K> Default for Rounds<K> {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            keys: HashMap::new(),
        }
    }
}

impl<K: Key> Rounds<K> {
    fn start<C: Controller<Key = K>>(&mut self, round: Round<C>, key: K) {
        let controller = round.controller.name();
        let span = tracing::debug_span!("reconcile", controller, %key);
        let task = self.tasks.spawn(round.run(key.clone()).instrument(span));
        self.keys.insert(task.id(), key);
    }

    /// The next round that ends; `None` while none runs.
    async fn next(&mut self) -> Option<(K, Result<Done, Failure>)> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => (error.id(), Err(Failure::of_bug(panicked(error)))),
        };
        self.keys.remove(&id).map(|key| (key, result))
    }
}

fn panicked(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => format!("the round panicked: {}", words(payload.as_ref())),
        Err(error) => error.to_string(),
    }
}

fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}
