use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::stream;
use jiff::Timestamp;
use kube::{Client, client::Body};
use longshore_core::{
    Action, ChildIdentity, Class, Classify, Create, Delete, Incarnation, Next, ObjectRef, Plan,
    Resource, Seen,
};
use longshore_kit::{
    Answers, Applier, Change, Clock, Controller, NotDone, Outcome, Refusal, Runner, Verb,
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
struct EpochClock;

impl Clock for EpochClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

#[derive(Debug, thiserror::Error)]
#[error("told to fail")]
struct Told(Class);

impl Classify for Told {
    fn class(&self) -> Class {
        self.0
    }
}

type Behaviour = Box<dyn Fn(u32) -> Result<Plan<&'static str, Infallible>, Told> + Send + Sync>;

/// Does what it is told in its n-th round of a key, and notes when.
struct Toy {
    behaviour: Behaviour,
    started: Instant,
    rounds: Mutex<BTreeMap<&'static str, Vec<u64>>>,
    running: AtomicU32,
    most_running: AtomicU32,
    /// The names of objects that could not be created; nothing for another action.
    refused: Mutex<Vec<String>>,
    /// The changes that were made or not.
    changed: Mutex<Vec<(Verb, Option<NotDone>)>>,
}

impl Toy {
    fn new(
        behaviour: impl Fn(u32) -> Result<Plan<&'static str, Infallible>, Told> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            behaviour: Box::new(behaviour),
            started: Instant::now(),
            rounds: Mutex::default(),
            running: AtomicU32::new(0),
            most_running: AtomicU32::new(0),
            refused: Mutex::default(),
            changed: Mutex::default(),
        })
    }

    /// When the rounds of the key began, in milliseconds.
    fn rounds(&self, key: &str) -> Vec<u64> {
        self.rounds
            .lock()
            .unwrap()
            .get(key)
            .cloned()
            .unwrap_or_default()
    }
}

impl Controller for Toy {
    type Key = &'static str;
    type Observed = Plan<&'static str, Infallible>;
    type Status = &'static str;
    type Effect = Infallible;
    type Question = Infallible;
    type Error = Told;

    fn name(&self) -> &'static str {
        "toy"
    }

    fn priority_boost(&self, key: &Self::Key) -> Duration {
        let is_boosted = *key == "boosted";
        Duration::from_secs(if is_boosted { 5 } else { 0 })
    }

    async fn observe(
        &self,
        key: &Self::Key,
        _: Timestamp,
        _: &Answers<Infallible>,
    ) -> Result<Self::Observed, Told> {
        let n = {
            let mut rounds = self.rounds.lock().unwrap();
            let at = rounds.entry(key).or_default();
            at.push(u64::try_from(self.started.elapsed().as_millis()).unwrap());
            u32::try_from(at.len()).unwrap()
        };
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        (self.behaviour)(n)
    }

    fn decide(&self, observed: &Self::Observed) -> Self::Observed {
        observed.clone()
    }

    async fn persist(&self, _: &Self::Key, status: &&'static str) -> Result<(), Told> {
        match *status {
            "fails" => Err(Told(Class::Retry)),
            _ => Ok(()),
        }
    }

    async fn call(&self, _: &Self::Key, effect: &Infallible) -> Result<(), Told> {
        match *effect {}
    }

    fn refused(&self, _: &Self::Key, _: &Seen<Incarnation>, refusal: &Refusal) {
        let create = refusal.create.as_ref();
        let name = create.map_or("", |create| {
            create.object["metadata"]["name"].as_str().unwrap()
        });
        self.refused.lock().unwrap().push(name.to_owned());
    }

    fn changed(
        &self,
        _: &Self::Key,
        _: &Seen<Incarnation>,
        change: &Change,
        not_done: Option<&NotDone>,
    ) {
        let mut changed = self.changed.lock().unwrap();
        changed.push((change.verb, not_done.cloned()));
    }
}

/// A runner whose controller sends no request.
fn runner(toy: &Arc<Toy>) -> Runner<Toy> {
    let nobody = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let applier = Applier::new(Client::new(nobody, "default"), "toy", []);
    Runner::new(Arc::clone(toy), applier, Arc::new(EpochClock))
}

async fn run_for(runner: Runner<Toy>, keys: Vec<&'static str>, time: Duration) {
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let run = runner.run(stream::iter(keys), shutdown);
    let stopper = async {
        tokio::time::sleep(time).await;
        stop.cancel();
    };
    tokio::join!(run, stopper);
}

#[tokio::test(start_paused = true)]
async fn keys_run_at_once_and_each_key_once() {
    let toy = Toy::new(|_| Ok(Plan::await_change()));
    let runner = runner(&toy).concurrency(2);
    let counters = runner.counters();
    run_for(runner, vec!["a", "b", "c", "a"], Duration::from_secs(1)).await;
    assert_eq!(toy.most_running.load(Ordering::SeqCst), 2);
    assert_eq!(toy.rounds("c"), [10]);
    assert_eq!(counters.of(Outcome::Skipped), counters.total());
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_back_when_it_asked_to() {
    let toy = Toy::new(|_| Ok(Plan::after(Duration::from_millis(990))));
    let runner = runner(&toy);
    let counters = runner.counters();
    run_for(runner, vec!["a"], Duration::from_millis(2500)).await;
    assert_eq!(toy.rounds("a"), [0, 1000, 2000]);
    assert_eq!(counters.of(Outcome::Waiting), 3);
}

#[tokio::test(start_paused = true)]
async fn a_boosted_key_that_goes_on_at_once_goes_before_those_that_wait() {
    let toy = Toy::new(|n| {
        Ok(if n == 1 {
            Plan::after(Duration::ZERO)
        } else {
            Plan::await_change()
        })
    });
    let keys = vec!["a", "b", "c", "boosted"];
    run_for(runner(&toy).concurrency(1), keys, Duration::from_secs(1)).await;
    let (of_boosted, of_others) = (toy.rounds("boosted"), toy.rounds("c"));
    assert_eq!((of_boosted.len(), of_others.len()), (2, 2));
    assert!(of_boosted[1] < of_others[0], "{of_boosted:?} {of_others:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_come_back_by_their_class() {
    let table = [
        (Class::Conflict, vec![0, 10, 70, 180, 390, 800]),
        (Class::Retry, vec![0, 110, 320, 730]),
        (Class::Invalid, vec![0, 110]),
        (Class::Bug, vec![0]),
    ];
    for (class, expected) in table {
        let toy = Toy::new(move |_| Err(Told(class)));
        run_for(runner(&toy), vec!["a"], Duration::from_millis(1000)).await;
        assert_eq!(toy.rounds("a"), expected, "{class:?}");
    }
}

/// The lines of this thread's log at INFO and above, as level and `error`.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<(tracing::Level, String)>>>);

/// The field `error` of a line.
#[derive(Debug, Default)]
struct ErrorOf(String);

impl tracing::field::Visit for ErrorOf {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "error" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut error = ErrorOf::default();
        event.record(&mut error);
        let line = (*event.metadata().level(), error.0);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn the_log_has_one_line_of_retries_that_end_with_the_same_message() {
    for (class, level) in [
        (Class::Invalid, tracing::Level::INFO),
        (Class::Retry, tracing::Level::WARN),
    ] {
        let lines = Lines::default();
        let log = tracing::subscriber::set_default(lines.clone());
        // Refused twenty times, well, and refused again.
        let toy = Toy::new(move |n| match (n != 21).then_some(class) {
            None => Ok(Plan::after(Duration::from_secs(1))),
            Some(class) => Err(Told(class)),
        });
        run_for(runner(&toy), vec!["a"], Duration::from_hours(4)).await;
        drop(log);
        let n = toy.rounds("a").len();
        assert!(n > 30, "{n}");
        let lines = lines.0.lock().unwrap();
        let expected = (level, "\"told to fail\"".to_owned());
        assert_eq!(*lines, [expected.clone(), expected], "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_stops_at_its_first_failure_and_starts_anew() {
    let toy = Toy::new(|n| {
        let first = if n == 1 { "fails" } else { "works" };
        Ok(Plan::of(vec![
            Action::Persist(first),
            Action::Persist("second"),
        ]))
    });
    let runner = runner(&toy);
    let counters = runner.counters();
    run_for(runner, vec!["a"], Duration::from_secs(1)).await;
    assert_eq!(counters.of(Outcome::Failed), 1);
    assert_eq!(counters.of(Outcome::Applied), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_own_round_only() {
    let toy = Toy::new(|n| {
        assert!(n > 1, "planted");
        Ok(Plan {
            actions: Vec::new(),
            next: Next::AwaitChange,
        })
    });
    let runner = runner(&toy);
    let counters = runner.counters();
    run_for(runner, vec!["a", "b"], Duration::from_secs(20)).await;
    assert_eq!(counters.of(Outcome::Failed), 2);
    assert_eq!(toy.rounds("a"), [0, 10_010]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_running_rounds_finish_and_starts_none() {
    let toy = Toy::new(|_| Ok(Plan::await_change()));
    let runner = runner(&toy).concurrency(1);
    let counters = runner.counters();
    run_for(runner, vec!["a", "b"], Duration::from_millis(5)).await;
    assert_eq!(counters.of(Outcome::Skipped), 1);
    assert!(toy.rounds("b").is_empty());
}

/// A deletion that is refused says nothing about what was to be created.
#[tokio::test(start_paused = true)]
async fn a_refusal_says_what_could_not_be_created() {
    let create = Action::Create(Create {
        resource: Resource::POD,
        object: json!({"metadata": {"name": "new", "namespace": "default", "annotations": {"id": "1"}}}),
        identity: ChildIdentity::annotation("id", "1"),
    });
    let delete = Action::Delete(old());
    let toy = Toy::new(move |n| Ok(Plan::of(vec![[&create, &delete][n as usize - 1].clone()])));
    let forbids = tower::service_fn(|_: http::Request<Body>| async {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": 403,
        });
        let body = Body::from(status.to_string().into_bytes());
        Ok::<_, Infallible>(http::Response::builder().status(403).body(body).unwrap())
    });
    let applier = Applier::new(Client::new(forbids, "default"), "toy", []);
    let runner = Runner::new(Arc::clone(&toy), applier, Arc::new(EpochClock));
    run_for(runner, vec!["a"], Duration::from_millis(300)).await;
    assert_eq!(*toy.refused.lock().unwrap(), ["new", ""]);
}

fn old() -> Delete {
    Delete {
        target: ObjectRef {
            resource: Resource::POD,
            namespace: "default".to_owned(),
            name: "old".to_owned(),
            uid: Some("u".to_owned()),
        },
        grace_period_seconds: None,
        resource_version: None,
        waits_for_dependents: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_hears_of_each_change_whether_it_was_made_or_why_not() {
    let toy = Toy::new(|n| match n {
        1..=3 => Ok(Plan {
            actions: vec![Action::Delete(old())],
            ..Plan::after(Duration::ZERO)
        }),
        _ => Ok(Plan::await_change()),
    });
    let asked = AtomicU32::new(0);
    let answers = tower::service_fn(move |_: http::Request<Body>| {
        let n = asked.fetch_add(1, Ordering::SeqCst);
        let code = [500_u16, 403, 200][n as usize];
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code,
        });
        let body = Body::from(status.to_string().into_bytes());
        let answer = http::Response::builder().status(code).body(body).unwrap();
        async { Ok::<_, Infallible>(answer) }
    });
    let applier = Applier::new(Client::new(answers, "default"), "toy", []);
    let runner = Runner::new(Arc::clone(&toy), applier, Arc::new(EpochClock));
    run_for(runner, vec!["a"], Duration::from_secs(20)).await;
    let no = |is_final| {
        let why = "no".to_owned();
        Some(NotDone { why, is_final })
    };
    let expected = [no(false), no(true), None].map(|not_done| (Verb::Delete, not_done));
    assert_eq!(*toy.changed.lock().unwrap(), expected);
}
