//! Stores, catalogs and run services that take a question in and never answer, or refuse: they delay the actions that wait
//! for them, and no other action.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use longshore_core::NoAnswer;
use longshore_object_store::DataError;
use longshore_plugins::CacheKey;
use longshore_proto::flyteidl2::core::LiteralMap;
use longshore_tasks::{
    Tasks,
    catalog::{CachedOutput, Caching, Catalog, CatalogError, Put, Replace, Reservation},
    data::{Outcome, Owed, TaskData},
    events::{ActionEvent, ActionEvents, NotPublished},
};
use longshore_test::{
    Faults,
    faults::{Process, Rule},
    foreign::{ForeignClient, ForeignSystem, Reply},
};
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    operators,
    stories::Story,
    world::{World, action, ending},
};

/// More than there are rounds at the same time.
const N_SILENT: usize = 100;
/// As many questions as the kit has in flight to one host.
const N_IN_FLIGHT: usize = 32;
/// By the clock of the test: whatever takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(120);
/// A process that is asked to end has this long.
const SHUTDOWN: Duration = Duration::from_secs(3);

/// Actions that wait for the store of their outputs.
const ENDED: &str = "ended";
/// Actions whose outputs are cached, which wait for the catalog.
const CACHED: &str = "cached";

/// Actions whose events the run service never acknowledges.
const REPORTED: &str = "silent";

/// A foreign system that answers nothing about what has `silent` in its name, and everything else at once.
fn system() -> ForeignSystem {
    ForeignSystem::new(|question, _| {
        if question.contains("silent") {
            Reply::Hangs
        } else {
            Reply::Answers(String::new())
        }
    })
}

#[derive(Debug)]
struct Store(ForeignClient);

impl Store {
    async fn ask(&self, kind: &'static str, url: &str) -> Result<(), DataError> {
        let answered = self.0.ask(kind, url).await;
        answered.map(drop).map_err(|error| DataError::Impossible {
            url: url.to_owned(),
            why: error.message,
        })
    }
}

#[async_trait]
impl TaskData for Store {
    async fn outcome(&self, prefix: &str, _: Owed) -> Result<Outcome, DataError> {
        self.ask("store_outcome", prefix).await?;
        Ok(Outcome::Complete)
    }

    async fn inputs(&self, url: &str) -> Result<Result<Option<LiteralMap>, String>, DataError> {
        self.ask("store_inputs", url).await?;
        Ok(Ok(Some(operators::inputs())))
    }

    async fn write_outputs(&self, prefix: &str, _: Bytes) -> Result<(), DataError> {
        self.ask("store_outputs", prefix).await
    }
}

/// A run service that never acknowledges what is about `silent` actions.
#[derive(Debug)]
struct Events(ForeignClient);

#[async_trait]
impl ActionEvents for Events {
    async fn publish(&self, event: &ActionEvent) -> Result<(), NotPublished> {
        let told = self.0.ask("report", &event.action).await;
        told.map(drop).map_err(|error| NotPublished(error.message))
    }
}

/// A catalog that answers nobody.
#[derive(Debug)]
struct SilentCatalog(ForeignClient);

impl SilentCatalog {
    async fn ask<T>(&self, kind: &'static str) -> Result<T, CatalogError> {
        let error = match self.0.ask(kind, "silent").await {
            Ok(answer) => answer,
            Err(error) => error.message,
        };
        Err(CatalogError::NotRead(error))
    }
}

#[async_trait]
impl Catalog for SilentCatalog {
    async fn get(&self, _: &CacheKey) -> Result<Option<CachedOutput>, CatalogError> {
        self.ask("catalog_get").await
    }

    async fn put(&self, _: &CacheKey, _: CachedOutput, _: Replace) -> Result<Put, CatalogError> {
        self.ask("catalog_put").await
    }

    async fn get_or_extend_reservation(
        &self,
        _: &CacheKey,
        _: &str,
        _: Duration,
    ) -> Result<Reservation, CatalogError> {
        self.ask("catalog_reserve").await
    }

    async fn release_reservation(&self, _: &CacheKey, _: &str) -> Result<(), CatalogError> {
        self.ask("catalog_release").await
    }
}

/// The executor of this world, which asks this system, until it is told to end.
fn start(
    world: &World,
    system: &ForeignSystem,
    process: &Process,
) -> (JoinHandle<()>, CancellationToken) {
    let catalog = Arc::new(SilentCatalog(system.through(process)));
    let (storage, clock) = (Arc::clone(&world.cache.storage), world.clock.clone());
    let caching = Caching::new(catalog, storage, clock, Duration::ZERO);
    let client = process.client(world.admission.service(&world.api));
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(
        world.config.clone(),
        world.plugins.clone(),
        world.clock.clone(),
    );
    let tasks = tasks
        .with_data(Arc::new(Store(system.through(process))))
        .with_events(Arc::new(Events(system.through(process))))
        .with_caching(caching)
        .run(client, shutdown.clone());
    (tokio::spawn(tasks), shutdown)
}

/// An action that waits for a silent system.
fn waiting(kind: &str, n: usize) -> Value {
    let mut silent = action(&format!("{kind}-{n}"), 0, "exit 0");
    if kind == ENDED {
        silent["spec"]["runOutputBase"] = format!("s3://silent/out/{n}").into();
    }
    silent
}

/// How long an action takes that asks no silent system, while `n_silent` others wait for one. Their names begin with
/// `kind`.
async fn time_of_one_among(n_silent: usize, kind: &str) -> Duration {
    let world = Story::of("silent", &[]).world().await;
    let system = system();
    let process = Faults::none().start();
    let (tasks, shutdown) = start(&world, &system, &process);
    for n in 0..n_silent {
        world.apply(waiting(kind, n)).await;
    }
    is_asked(&system, n_silent.min(N_IN_FLIGHT)).await;
    let begun = Instant::now();
    world.apply(action("good", 0, "run 3s exit 0")).await;
    let ended = timeout(PATIENCE, end_of(&world, "good")).await;
    let took = begun.elapsed();
    assert!(ended.is_ok(), "it waits for those that wait");
    shutdown.cancel();
    let stopped = timeout(SHUTDOWN, tasks).await;
    assert!(stopped.is_ok(), "it waits for answers that nobody uses");
    took
}

/// Waits until the system has taken in so many questions that it never answers.
async fn is_asked(system: &ForeignSystem, n: usize) {
    let looking = async {
        let is_silent = |question: &String| question.contains("silent");
        let n_asked = || system.taken_in().into_iter().filter(is_silent).count();
        while n_asked() < n {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let asked = timeout(PATIENCE, looking).await;
    asked.unwrap();
}

async fn end_of(world: &World, name: &str) {
    loop {
        let actions = world.actions().await;
        let mut of_name = actions.iter().filter(|it| it["metadata"]["name"] == name);
        if of_name.next().and_then(ending).is_some() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// What the condition Waiting of an action says, once it says something.
async fn said(world: &World, name: &str) -> String {
    loop {
        let actions = world.actions().await;
        let of_name = actions.iter().filter(|it| it["metadata"]["name"] == name);
        let conditions = of_name.filter_map(|it| it["status"]["conditions"].as_array());
        let mut waiting = conditions.flatten().filter(|it| it["type"] == "Waiting");
        if let Some(waiting) = waiting.next() {
            assert_eq!(waiting["status"], "True");
            return waiting["message"].as_str().unwrap().to_owned();
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// What the action `name` says of who holds it, within ten seconds; the same is in an Event.
pub(crate) async fn said_in_time(world: &World, name: &str) -> String {
    let said = timeout(Duration::from_secs(10), said(world, name));
    let said = said.await.unwrap();
    let told = timeout(Duration::from_secs(1), is_told(world, &said));
    assert!(told.await.is_ok(), "no Event says so");
    said
}

/// Waits for an Event that says this.
pub(crate) async fn is_told(world: &World, words: &str) {
    let events: Api<Event> = Api::namespaced(world.place.client(), world.place.namespace());
    loop {
        let list = events.list(&ListParams::default()).await.unwrap();
        let mut notes = list.items.iter().map(|event| event.note.as_deref());
        if notes.any(|note| note == Some(words)) {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_system_that_never_answers_is_named_in_condition_and_event() {
    for (kind, expected) in [
        (ENDED, "no answer from the store of s3://silent/"),
        (CACHED, "no answer from the cache service since "),
        (REPORTED, "no answer from the events service since "),
    ] {
        let world = Story::of("silent", &[]).world().await;
        let (system, process) = (system(), Faults::none().start());
        let (tasks, shutdown) = start(&world, &system, &process);
        world.apply(waiting(kind, 0)).await;
        is_asked(&system, 1).await;
        let said = said_in_time(&world, &format!("{kind}-0")).await;
        assert!(said.starts_with(expected), "{said}");
        assert!(said.contains(" since 2026-01-01T00:"), "{said}");
        shutdown.cancel();
        tasks.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_to_say_what_an_attempt_left_behind_is_quoted() {
    let world = Story::of("silent", &[]).world().await;
    // As with the number of a request, its words are others each time.
    let refusing = ForeignSystem::new(|question, n| {
        if question.contains("silent") {
            Reply::Fails(NoAnswer::Refused, format!("403 AccessDenied, request {n}"))
        } else {
            Reply::Answers(String::new())
        }
    });
    let process = Faults::none().start();
    let (tasks, shutdown) = start(&world, &refusing, &process);
    world.apply(waiting(ENDED, 0)).await;
    is_asked(&refusing, 1).await;
    let said = said_in_time(&world, &format!("{ENDED}-0")).await;
    assert!(said.contains("403 AccessDenied, request "), "{said}");
    shutdown.cancel();
    tasks.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_makes_no_pod_for_now_is_quoted_in_condition_and_event() {
    let busy = Rule::BusyAtFirst {
        n_creates: u32::MAX,
        retry_after_seconds: 0,
    };
    let world = World::new(&[busy]).await;
    let (system, process) = (system(), Faults::none().start());
    let (tasks, shutdown) = start(&world, &system, &process);
    world.apply(action("good", 0, "exit 0")).await;
    let said = said_in_time(&world, "good").await;
    let expected = "its resource is not created: too many requests, please try again later";
    assert_eq!(said, expected);
    shutdown.cancel();
    tasks.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_delays_no_other_action() {
    let alone = time_of_one_among(0, ENDED).await;
    let among = time_of_one_among(N_SILENT, ENDED).await;
    assert!(among <= 2 * alone, "{among:?}, and {alone:?} alone");
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_never_answers_delays_no_action_without_a_cache() {
    let alone = time_of_one_among(0, CACHED).await;
    let among = time_of_one_among(N_SILENT, CACHED).await;
    assert!(among <= 2 * alone, "{among:?}, and {alone:?} alone");
}

#[tokio::test(start_paused = true)]
async fn a_run_service_that_never_acknowledges_delays_no_action_that_it_knows_of() {
    let alone = time_of_one_among(0, REPORTED).await;
    let among = time_of_one_among(N_SILENT, REPORTED).await;
    assert!(among <= 2 * alone, "{among:?}, and {alone:?} alone");
}
