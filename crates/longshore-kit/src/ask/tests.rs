//! Controllers that ask foreign systems of every bad habit.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::stream;
use jiff::Timestamp;
use kube::{Client, client::Body};
use longshore_core::{
    Action, AskError, Asked, Class, Classify, Incarnation, Next, NoAnswer, Plan, Question,
    QuestionId, Seen,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Answers, AskLimits, KindLimits, RateLimit, Turn, WaitsFor};
use crate::{Applier, Clock, Controller, Gate, Runner};

mod fairness;
mod habits;
mod leases;
mod lives;
mod rates;
mod room;
mod turns;

/// A clock that goes with the paused time of the test.
#[derive(Debug)]
struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.0.elapsed()
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(TestClock(Instant::now()))
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A question to a toy.
#[derive(Clone, Debug, PartialEq)]
struct Get {
    kind: &'static str,
    host: String,
    about: &'static str,
    every: Option<Duration>,
    /// Bytes of the answer to another question.
    holds: usize,
}

impl Get {
    fn new(host: &str) -> Self {
        Self {
            kind: "get",
            host: host.to_owned(),
            about: "",
            every: None,
            holds: 0,
        }
    }
}

impl Question for Get {
    type Answer = String;

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn about(&self) -> String {
        self.about.to_owned()
    }

    fn repeats_after(&self) -> Option<Duration> {
        self.every
    }

    fn is_recorded_first(&self) -> bool {
        self.kind == CREATE
    }

    fn may_drop_answer(&self) -> bool {
        self.kind == "get"
    }

    fn held_bytes(&self) -> usize {
        self.holds
    }

    fn answer_bytes(answer: &String) -> usize {
        answer.len()
    }
}

/// The kind of questions that are recorded first.
const CREATE: &str = "create";

fn get() -> QuestionId {
    QuestionId::new("get", "")
}

fn create() -> QuestionId {
    QuestionId::new(CREATE, "")
}

#[derive(Debug, thiserror::Error)]
#[error("another client wrote first")]
struct Conflict;

impl Classify for Conflict {
    fn class(&self) -> Class {
        Class::Conflict
    }
}

type ToyPlan = Plan<&'static str, &'static str, Get>;

/// What a round of the toy is decided upon.
#[derive(Debug)]
struct View {
    key: u32,
    /// Counted from 1, of this key.
    round: usize,
    incarnation: Seen<Incarnation>,
    asked: Asked<String>,
    before: Asked<String>,
    /// Of the questions without an answer: since which second, why, and what it waits for.
    unanswered: Vec<(i64, Option<String>, WaitsFor)>,
    /// The seconds of the first failure in a row, and of the last one.
    failures: Option<(i64, i64)>,
    recorded: Asked<String>,
    /// How far the question is that is recorded first, and its turn.
    created: Asked<String>,
    turn: Option<Turn>,
}

/// What a foreign system does with the n-th question that it gets, counted from 1.
enum Habit {
    Answers(Duration, &'static str),
    Hangs,
    /// One byte a second.
    Drips,
    /// More than the kit reads.
    AnswersTooMuch,
    AnswersAnotherQuestion,
    Resets,
    SaysNo,
    Panics,
}

type Decide = Box<dyn Fn(&View) -> ToyPlan + Send + Sync>;
type Habits = Box<dyn Fn(&Get, usize) -> Habit + Send + Sync>;

struct Toy {
    decide: Decide,
    habits: Habits,
    started: Instant,
    /// Of each key, as the rounds see it.
    lives: Mutex<BTreeMap<u32, Seen<Incarnation>>>,
    /// What the next records come to.
    conflicts: AtomicUsize,
    /// Records and effects.
    persisted: Mutex<Vec<(u32, &'static str)>>,
    /// When each round of each key began, in milliseconds, and what it found.
    rounds: Mutex<BTreeMap<u32, Vec<(u128, String)>>>,
    /// All questions of the key of the last round, and how far they were.
    listed: Mutex<Vec<String>>,
    sent: AtomicUsize,
    in_flight: Mutex<BTreeMap<String, usize>>,
    most_in_flight: Mutex<(usize, BTreeMap<String, usize>)>,
}

/// A question that reaches a foreign system; dropped where it is given up.
struct InFlight<'t>(&'t Toy, String);

impl<'t> InFlight<'t> {
    fn new(toy: &'t Toy, host: &str) -> Self {
        let mut in_flight = toy.in_flight.lock().unwrap();
        *in_flight.entry(host.to_owned()).or_default() += 1;
        let mut most = toy.most_in_flight.lock().unwrap();
        most.0 = most.0.max(in_flight.values().sum());
        let of_host = most.1.entry(host.to_owned()).or_default();
        *of_host = in_flight[host].max(*of_host);
        Self(toy, host.to_owned())
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.0.in_flight.lock().unwrap();
        *in_flight.get_mut(&self.1).unwrap() -= 1;
    }
}

impl Toy {
    fn new(
        habits: impl Fn(&Get, usize) -> Habit + Send + Sync + 'static,
        decide: impl Fn(&View) -> ToyPlan + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            decide: Box::new(decide),
            habits: Box::new(habits),
            started: Instant::now(),
            lives: Mutex::default(),
            conflicts: AtomicUsize::new(0),
            persisted: Mutex::default(),
            rounds: Mutex::default(),
            listed: Mutex::default(),
            sent: AtomicUsize::new(0),
            in_flight: Mutex::default(),
            most_in_flight: Mutex::default(),
        })
    }

    /// What the rounds of a key found, and when in milliseconds.
    fn rounds(&self, key: u32) -> Vec<(u128, String)> {
        let rounds = self.rounds.lock().unwrap();
        rounds.get(&key).cloned().unwrap_or_default()
    }

    /// What the rounds of a key found.
    fn found(&self, key: u32) -> Vec<String> {
        self.rounds(key)
            .into_iter()
            .map(|(_, found)| found)
            .collect()
    }

    fn n_sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    fn n_in_flight(&self) -> usize {
        self.in_flight.lock().unwrap().values().sum()
    }

    fn is_now(&self, key: u32, life: Seen<Incarnation>) {
        self.lives.lock().unwrap().insert(key, life);
    }
}

fn words(asked: &Asked<String>) -> String {
    match asked {
        Asked::NotAsked => "not asked".to_owned(),
        Asked::UnderWay { .. } => "under way".to_owned(),
        Asked::Answered { answer, .. } => answer.clone(),
        Asked::Failed { why, .. } => why.as_str().to_owned(),
        Asked::AskedByAnother => "asked by another".to_owned(),
    }
}

impl Controller for Toy {
    type Key = u32;
    type Observed = View;
    type Status = &'static str;
    type Effect = &'static str;
    type Question = Get;
    type Error = Conflict;

    fn name(&self) -> &'static str {
        "toy"
    }

    async fn observe(
        &self,
        key: &u32,
        _: Timestamp,
        answers: &Answers<Get>,
    ) -> Result<View, Conflict> {
        let lives = self.lives.lock().unwrap();
        let life = lives.get(key).cloned();
        let life = life.unwrap_or_else(|| Seen::Present(Incarnation::of("u")));
        let of = life.present().cloned().unwrap_or_default();
        let asked = answers.get(&of, &get());
        let all = answers.all(&of);
        *self.listed.lock().unwrap() = all
            .map(|(question, asked)| format!("{}: {}", question.about, words(&asked)))
            .collect();
        let mut rounds = self.rounds.lock().unwrap();
        let rounds = rounds.entry(*key).or_default();
        rounds.push((self.started.elapsed().as_millis(), words(&asked)));
        Ok(View {
            key: *key,
            round: rounds.len(),
            incarnation: life,
            asked,
            before: answers.before(&of, &get()),
            unanswered: answers
                .unanswered(&of)
                .map(|it| {
                    (
                        it.since.as_second(),
                        it.failure.map(str::to_owned),
                        it.waits_for,
                    )
                })
                .collect(),
            failures: answers
                .failures(&of, &get())
                .map(|it| (it.first_at.as_second(), it.last_at.as_second())),
            recorded: answers.recorded(&of, &get(), true),
            created: answers.get(&of, &create()),
            turn: answers.turn(&of, &create()),
        })
    }

    fn incarnation(&self, observed: &View) -> Seen<Incarnation> {
        observed.incarnation.clone()
    }

    fn decide(&self, observed: &View) -> ToyPlan {
        (self.decide)(observed)
    }

    async fn persist(&self, key: &u32, status: &&'static str) -> Result<(), Conflict> {
        let left = self.conflicts.load(Ordering::SeqCst);
        if left > 0 {
            self.conflicts.store(left - 1, Ordering::SeqCst);
            return Err(Conflict);
        }
        self.persisted.lock().unwrap().push((*key, *status));
        Ok(())
    }

    async fn call(&self, key: &u32, effect: &&'static str) -> Result<(), Conflict> {
        self.persisted.lock().unwrap().push((*key, *effect));
        Ok(())
    }

    async fn ask(&self, _: &u32, question: &Get, answer_bytes: usize) -> Result<String, AskError> {
        let n = self.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let _in_flight = InFlight::new(self, &question.host);
        let fail = |why, text: &str| Err(AskError::new(why, text));
        match (self.habits)(question, n) {
            Habit::Answers(after, answer) => {
                sleep(after).await;
                Ok(answer.to_owned())
            }
            Habit::Hangs => pending().await,
            Habit::Drips => loop {
                sleep(secs(1)).await;
            },
            Habit::AnswersTooMuch => {
                for n_read in (0..).step_by(64 << 10) {
                    if n_read > answer_bytes {
                        return fail(NoAnswer::NotUnderstood, "its answer is too large");
                    }
                    sleep(Duration::from_millis(1)).await;
                }
                pending().await
            }
            Habit::AnswersAnotherQuestion => {
                fail(NoAnswer::NotUnderstood, "it answered another question")
            }
            Habit::Resets => fail(NoAnswer::Unreachable, "the connection broke"),
            Habit::SaysNo => fail(NoAnswer::Refused, "403"),
            Habit::Panics => panic!("planted"),
        }
    }
}

/// Asks once, and is content with whatever comes of it.
fn once(view: &View) -> ToyPlan {
    match view.asked {
        Asked::NotAsked => Plan::of(vec![Action::Ask(Get::new("a"))]),
        Asked::UnderWay { .. }
        | Asked::Answered { .. }
        | Asked::Failed { .. }
        | Asked::AskedByAnother => Plan::await_change(),
    }
}

fn runner(toy: &Arc<Toy>) -> Runner<Toy> {
    runner_that_counts(toy, Arc::default())
}

/// A runner whose requests to an API server are counted, and come to nothing.
fn runner_that_counts(toy: &Arc<Toy>, n_requests: Arc<AtomicUsize>) -> Runner<Toy> {
    let nobody = tower::service_fn(move |_: http::Request<Body>| {
        n_requests.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(http::Response::new(Body::empty())) }
    });
    let applier = Applier::new(Client::new(nobody, "default"), "toy", []);
    Runner::new(Arc::clone(toy), applier, clock())
}

/// Runs rounds of these keys for this time.
async fn run(runner: Runner<Toy>, keys: impl IntoIterator<Item = u32>, time: Duration) {
    let keys: Vec<u32> = keys.into_iter().collect();
    let keys = keys.into_iter().map(|key| (Duration::ZERO, key));
    run_at(runner, keys.collect(), time).await;
}

/// The same, where each key is triggered this much after the one before.
async fn run_at(runner: Runner<Toy>, keys: Vec<(Duration, u32)>, time: Duration) {
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let triggers = stream::unfold(keys.into_iter(), |mut keys| async move {
        let (after, key) = keys.next()?;
        if !after.is_zero() {
            sleep(after).await;
        }
        Some((key, keys))
    });
    let run = runner.run(triggers, shutdown);
    let stopper = async {
        sleep(time).await;
        stop.cancel();
    };
    tokio::join!(run, stopper);
}
