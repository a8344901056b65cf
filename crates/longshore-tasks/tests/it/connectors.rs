//! Connectors and an events service that hang or refuse: each job is begun once, and ended with its action; the jobs of
//! other connectors wait for none of that.

use std::{
    fmt,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use longshore_api::flyte::CONDITION_WAITING;
use longshore_plugins::{Answer, Call, Limit, Request};
use longshore_tasks::{
    events::{ActionEvent, ActionEvents, ActionPhase, NotPublished},
    remote::{AskConnectors, ConnectorError},
};
use longshore_test::Faults;
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    operators::{self, Begun, Connector},
    stories::Story,
    world::{World, action, delete_action},
};

/// By the clock of the test: whatever takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(600);
const CREATE: &str = "CreateTask";
const GET: &str = "GetTask";
const DELETE: &str = "DeleteTask";

/// What a connector does with a request.
enum Habit {
    Answers,
    AnswersAfter(Duration),
    Hangs,
    Refuses,
}

type Habits = dyn Fn(&str, &Call) -> Habit + Send + Sync;

/// The connectors of all task types, and the events service. They live through the crashes of the executor.
#[derive(Clone)]
struct Systems {
    jobs: Connector,
    habits: Arc<Habits>,
    /// Whether the events service does not acknowledge that a job was launched.
    is_silent: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<&'static str>>>,
    /// What was asked and is neither answered nor given up.
    hanging: Arc<Mutex<Vec<&'static str>>>,
}

impl fmt::Debug for Systems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Systems").field(&self.jobs).finish()
    }
}

/// A request that is under way until this is dropped.
struct UnderWay<'s>(&'s Systems, &'static str);

impl<'s> UnderWay<'s> {
    fn new(systems: &'s Systems, operation: &'static str) -> Self {
        systems.hanging.lock().unwrap().push(operation);
        Self(systems, operation)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut hanging = self.0.hanging.lock().unwrap();
        let at = hanging.iter().position(|it| *it == self.1).unwrap();
        hanging.remove(at);
    }
}

#[async_trait]
impl AskConnectors for Systems {
    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        let operation = match &call.request {
            Request::Create(_) => CREATE,
            Request::Get(_) => GET,
            Request::Delete(_) => DELETE,
        };
        self.asked.lock().unwrap().push(operation);
        let _under_way = UnderWay::new(self, operation);
        match (self.habits)(operation, call) {
            Habit::Answers => {}
            Habit::AnswersAfter(time) => sleep(time).await,
            Habit::Hangs => pending().await,
            Habit::Refuses => {
                return Err(ConnectorError::NoAnswer {
                    connector: call.category.task_type.clone(),
                    operation,
                    why: "it is broken".to_owned(),
                });
            }
        }
        Ok(self.jobs.answer(call))
    }
}

#[async_trait]
impl ActionEvents for Systems {
    async fn publish(&self, event: &ActionEvent) -> Result<(), NotPublished> {
        let is_launch = event.phase == ActionPhase::Queued && event.version == 2;
        if is_launch && self.is_silent.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        Ok(())
    }
}

impl Systems {
    fn new(habits: impl Fn(&str, &Call) -> Habit + Send + Sync + 'static) -> Self {
        Self {
            jobs: Connector::default(),
            habits: Arc::new(habits),
            is_silent: Arc::default(),
            asked: Arc::default(),
            hanging: Arc::default(),
        }
    }

    /// Starts the executor, which ends when it is aborted, as in a crash.
    fn start(&self, world: &World) -> AbortHandle {
        self.start_until(world, CancellationToken::new())
            .abort_handle()
    }

    /// Starts the executor, which ends in order when `stop` is cancelled.
    fn start_until(&self, world: &World, stop: CancellationToken) -> JoinHandle<()> {
        let process = Faults::none().start();
        let executor = world.executor(&process);
        let executor = executor
            .with_events(Arc::new(self.clone()))
            .with_connectors(Arc::new(self.clone()));
        let run = executor.run(world.client(&process), stop);
        tokio::spawn(run)
    }

    fn n_asked(&self, operation: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|it| **it == operation).count()
    }

    fn is_hanging(&self, operation: &str) -> bool {
        self.hanging.lock().unwrap().contains(&operation)
    }

    fn jobs(&self) -> Vec<Begun> {
        self.jobs.jobs().into_values().collect()
    }

    /// How often the one job was begun, and whether it is ended.
    fn job(&self) -> (u32, bool) {
        let jobs = self.jobs();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        (jobs[0].times, jobs[0].is_ended)
    }
}

async fn world() -> Arc<World> {
    let nobody = Story::of("connectors", &[]).with_operators();
    nobody.world().await
}

async fn begin(world: &World, name: &str) {
    let typed = operators::typed(action(name, 0, ""), 3);
    world.apply(typed).await;
}

/// How long it takes until this is so.
async fn until(is_so: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    let looking = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap();
    begun.elapsed()
}

async fn is_gone(world: &World) {
    let gone = async {
        while !world.actions().await.is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), gone).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_report_hangs_is_begun_once_and_ended_with_its_action() {
    let world = world().await;
    let systems = Systems::new(|_, _| Habit::Answers);
    systems.is_silent.store(true, Ordering::Relaxed);
    let first = systems.start(&world);
    begin(&world, "job-long").await;
    until(|| systems.n_asked(CREATE) == 1).await;
    sleep(Duration::from_secs(30)).await;
    first.abort();
    let second = systems.start(&world);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(systems.job(), (1, false));
    delete_action(&world.place, "job-long").await;
    until(|| systems.job() == (1, true)).await;
    systems.is_silent.store(false, Ordering::Relaxed);
    second.abort();
    // A report that hung is sent again by the next process.
    let third = systems.start(&world);
    is_gone(&world).await;
    third.abort();
    assert_eq!(systems.n_asked(CREATE), 1);
}

/// The answer of the connector comes to an action that is being deleted, and the executor ends before the job does.
#[tokio::test(start_paused = true)]
async fn a_job_that_was_begun_for_a_deleted_action_is_ended_by_the_next_process() {
    let world = world().await;
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let systems = Systems::new(move |operation, _| match operation {
        CREATE => Habit::AnswersAfter(Duration::from_secs(5)),
        DELETE if broken.load(Ordering::Relaxed) => Habit::Hangs,
        _ => Habit::Answers,
    });
    let first = systems.start(&world);
    begin(&world, "job-long").await;
    until(|| systems.is_hanging(CREATE)).await;
    delete_action(&world.place, "job-long").await;
    until(|| systems.is_hanging(DELETE)).await;
    assert_eq!(systems.n_asked(CREATE), 1, "it is waited for");
    first.abort();
    is_broken.store(false, Ordering::Relaxed);
    let second = systems.start(&world);
    is_gone(&world).await;
    assert_eq!(systems.job(), (1, true));
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn an_abort_does_not_wait_for_a_connector_that_does_not_tell_of_the_job() {
    let world = world().await;
    let systems = Systems::new(|operation, _| match operation {
        GET => Habit::Hangs,
        _ => Habit::Answers,
    });
    let executor = systems.start(&world);
    begin(&world, "job-long").await;
    until(|| systems.is_hanging(GET)).await;
    sleep(Duration::from_secs(20)).await;
    delete_action(&world.place, "job-long").await;
    let took = until(|| systems.job() == (1, true)).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
    is_gone(&world).await;
    assert!(!systems.is_hanging(GET), "its question is cancelled");
    executor.abort();
}

/// What the conditions Waiting say.
async fn said(world: &World) -> Vec<String> {
    let actions = world.actions().await;
    let conditions = actions.iter().flat_map(|action| {
        let conditions = action["status"]["conditions"].as_array();
        conditions.into_iter().flatten()
    });
    let waiting = conditions.filter(|it| it["type"] == CONDITION_WAITING);
    let words = waiting.filter_map(|it| it["message"].as_str());
    words.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn aborts_on_a_broken_connector_keep_no_job_of_another_one_waiting() {
    let n_broken = 200;
    let world = world().await;
    let systems = Systems::new(|operation, call| {
        if operation == DELETE && call.category.task_type == "task_type_3" {
            Habit::Refuses
        } else {
            Habit::Answers
        }
    });
    let started = Instant::now();
    let executor = systems.start(&world);
    for n in 0..n_broken {
        begin(&world, &format!("job-long-{n}")).await;
    }
    // A hundred at once, and ten a second.
    sleep(Duration::from_secs(8)).await;
    let said = said(&world).await;
    let of_rate = |rate: &str| {
        let begins = format!(
            "its request to the connector of task_type_3 waits for plugins.connector-service.webApi.{rate} since "
        );
        said.iter().filter(|it| it.starts_with(&begins)).count()
    };
    let n_writing = of_rate("writeRateLimiter");
    assert!(n_writing > 0, "{said:?}");
    let n_reading = of_rate("readRateLimiter");
    assert_eq!(n_writing + n_reading, said.len(), "{said:?}");
    until(|| systems.n_asked(CREATE) == n_broken).await;
    for n in 0..n_broken {
        delete_action(&world.place, &format!("job-long-{n}")).await;
    }
    sleep(Duration::from_secs(30)).await;
    let before = systems.n_asked(CREATE);
    for n in 0..3 {
        begin(&world, &format!("work-{n}")).await;
        let took = until(|| systems.n_asked(CREATE) == before + n + 1).await;
        assert!(took <= Duration::from_secs(1), "{took:?}");
        sleep(Duration::from_secs(10)).await;
    }
    let n_writes = systems.n_asked(CREATE) + systems.n_asked(DELETE);
    let most = 100.0 + 10.0 * started.elapsed().as_secs_f64();
    assert!(
        n_writes as f64 <= most,
        "{n_writes} in {:?}",
        started.elapsed()
    );
    executor.abort();
}

/// A world in which two writes go to connectors at once, and one a second.
async fn slow_world() -> Arc<World> {
    let story = Story::of("slow connectors", &[]).with_operators();
    let story = story.configured(|config| {
        config.plugins.connector.web_api.writes = Limit {
            per_second: 1,
            burst: 2,
        };
    });
    story.world().await
}

/// Each of five jobs is begun once, in the first attempt of its action.
async fn five_are_begun_once(world: &World, systems: &Systems) {
    until(|| systems.n_asked(CREATE) == 5).await;
    sleep(Duration::from_secs(10)).await;
    let times: Vec<_> = systems.jobs().iter().map(|job| job.times).collect();
    assert_eq!(times, [1; 5]);
    let actions = world.actions().await;
    let attempts: Vec<_> = actions
        .iter()
        .map(|action| action["status"]["attempts"].as_u64())
        .collect();
    assert_eq!(attempts, [Some(1); 5], "{actions:?}");
    assert_eq!(systems.n_asked(CREATE), 5);
}

#[tokio::test(start_paused = true)]
async fn a_crash_costs_no_attempt_of_a_job_whose_turn_had_not_come() {
    let world = slow_world().await;
    let systems = Systems::new(|_, _| Habit::Answers);
    let first = systems.start(&world);
    for n in 0..5 {
        begin(&world, &format!("job-long-{n}")).await;
    }
    until(|| systems.n_asked(CREATE) == 2).await;
    // The answers are recorded, and the others wait.
    sleep(Duration::from_millis(500)).await;
    assert_eq!(systems.n_asked(CREATE), 2);
    first.abort();
    let second = systems.start(&world);
    five_are_begun_once(&world, &systems).await;
    second.abort();
}

/// The answers come within the time that the executor has for its end.
#[tokio::test(start_paused = true)]
async fn a_stop_sends_no_further_request_and_records_the_jobs_that_were_begun() {
    let world = slow_world().await;
    let systems = Systems::new(|operation, _| match operation {
        CREATE => Habit::AnswersAfter(Duration::from_millis(1500)),
        _ => Habit::Answers,
    });
    let stop = CancellationToken::new();
    let first = systems.start_until(&world, stop.clone());
    for n in 0..5 {
        begin(&world, &format!("job-long-{n}")).await;
    }
    until(|| systems.n_asked(CREATE) == 2).await;
    let stopped = Instant::now();
    stop.cancel();
    first.await.unwrap();
    let took = stopped.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(systems.n_asked(CREATE), 2);
    let second = systems.start(&world);
    five_are_begun_once(&world, &systems).await;
    second.abort();
}

/// A job that waits for its turn holds nobody who deletes its action, and is not begun any more.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_before_its_turn_is_not_begun() {
    let world = slow_world().await;
    let systems = Systems::new(|_, _| Habit::Answers);
    let executor = systems.start(&world);
    for n in 0..9 {
        begin(&world, &format!("job-long-{n}")).await;
    }
    until(|| systems.n_asked(CREATE) == 2).await;
    sleep(Duration::from_millis(500)).await;
    for n in 2..9 {
        delete_action(&world.place, &format!("job-long-{n}")).await;
    }
    let gone = async {
        while world.actions().await.len() > 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(2), gone).await.unwrap();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(systems.n_asked(CREATE), 2);
    executor.abort();
}
