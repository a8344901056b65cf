//! Foreign systems whose texts are as long as an object may be, and an API server that takes no large status: they hold no
//! action for longer than they themselves need, and keep no action from being deleted.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use longshore_object_store::DataError;
use longshore_plugins::{Answer, CacheKey, Call, Request, Teller};
use longshore_proto::flyteidl2::{
    connector::{CreateTaskResponse, GetTaskResponse, Resource},
    core::{LiteralMap, task_execution},
};
use longshore_tasks::{
    Tasks,
    catalog::{CachedOutput, Caching, Catalog, CatalogError, Put, Replace, Reservation},
    data::{Outcome, Owed, TaskData},
    remote::{AskConnectors, ConnectorError},
};
use longshore_test::{Faults, faults::Rule};
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    operators,
    stories::Story,
    world::{World, action, delete_action, ending},
};

/// By the clock of the test: whatever takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// A text of a foreign system.
fn long() -> String {
    "no ".repeat((1 << 20) / 3)
}

/// What a foreign system does.
#[derive(Clone, Debug, Default)]
struct Script {
    /// The store refuses so many reads of what attempts left behind.
    n_refusals: Arc<Mutex<u32>>,
    /// Of the jobs of the connector.
    resource_meta: Vec<u8>,
    /// The jobs that it was asked to delete.
    deleted: Arc<Mutex<Vec<Vec<u8>>>>,
}

#[derive(Debug)]
struct Store(Script);

#[async_trait]
impl TaskData for Store {
    async fn outcome(&self, prefix: &str, _: Owed) -> Result<Outcome, DataError> {
        let mut left = self.0.n_refusals.lock().unwrap();
        if *left == 0 {
            return Ok(Outcome::Complete);
        }
        *left -= 1;
        Err(DataError::Impossible {
            url: prefix.to_owned(),
            why: long(),
        })
    }

    async fn inputs(&self, _: &str) -> Result<Result<Option<LiteralMap>, String>, DataError> {
        Ok(Ok(Some(operators::inputs())))
    }

    async fn write_outputs(&self, _: &str, _: Bytes) -> Result<(), DataError> {
        Ok(())
    }
}

#[derive(Debug)]
struct LoudCatalog;

fn refused<T>() -> Result<T, CatalogError> {
    Err(CatalogError::NotRead(long()))
}

#[async_trait]
impl Catalog for LoudCatalog {
    async fn get(&self, _: &CacheKey) -> Result<Option<CachedOutput>, CatalogError> {
        refused()
    }

    async fn put(&self, _: &CacheKey, _: CachedOutput, _: Replace) -> Result<Put, CatalogError> {
        refused()
    }

    async fn get_or_extend_reservation(
        &self,
        _: &CacheKey,
        _: &str,
        _: Duration,
    ) -> Result<Reservation, CatalogError> {
        refused()
    }

    async fn release_reservation(&self, _: &CacheKey, _: &str) -> Result<(), CatalogError> {
        refused()
    }
}

/// A connector whose jobs fail.
#[derive(Debug)]
struct LoudConnector(Script);

#[async_trait]
impl AskConnectors for LoudConnector {
    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        let resource = Resource {
            phase: task_execution::Phase::Failed.into(),
            message: long(),
            ..Resource::default()
        };
        Ok(match &call.request {
            Request::Create(_) => Some(Answer::Created {
                response: CreateTaskResponse {
                    resource_meta: self.0.resource_meta.clone(),
                },
                by: Teller::default(),
            }),
            Request::Get(_) => Some(Answer::Told {
                response: Box::new(GetTaskResponse {
                    resource: Some(resource),
                }),
                is_cut: false,
                by: Teller::default(),
            }),
            Request::Delete(request) => {
                let mut deleted = self.0.deleted.lock().unwrap();
                deleted.push(request.resource_meta.clone());
                None
            }
        })
    }
}

/// The executor of this world, with such foreign systems.
fn start(world: &World, script: &Script) -> (JoinHandle<()>, CancellationToken) {
    let process = Faults::none().start();
    let (storage, clock) = (Arc::clone(&world.cache.storage), world.clock.clone());
    let caching = Caching::new(Arc::new(LoudCatalog), storage, clock, Duration::ZERO);
    let client = process.client(world.admission.service(&world.api));
    let shutdown = CancellationToken::new();
    let (config, plugins) = (world.config.clone(), world.plugins.clone());
    let tasks = Tasks::new(config, plugins, world.clock.clone())
        .with_data(Arc::new(Store(script.clone())))
        .with_connectors(Arc::new(LoudConnector(script.clone())))
        .with_caching(caching)
        .run(client, shutdown.clone());
    (tokio::spawn(tasks), shutdown)
}

/// The only action, once it is so.
async fn until(world: &World, is_so: impl Fn(&Value) -> bool) -> Value {
    let is_so = async {
        loop {
            let mut actions = world.actions().await.into_iter();
            if let Some(action) = actions.find(&is_so) {
                return action;
            }
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, is_so).await.unwrap()
}

/// Deletes the only action, and waits until it is gone.
async fn delete(world: &World, name: &str) {
    delete_action(&world.place, name).await;
    let is_gone = async {
        while !world.actions().await.is_empty() {
            sleep(LOOK).await;
        }
    };
    let gone = timeout(PATIENCE, is_gone).await;
    assert!(gone.is_ok(), "it stays: {:?}", world.actions().await);
}

/// The notes of the Events about statuses that are too large, once there are some.
async fn notes(world: &World) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(world.place.client(), world.place.namespace());
    let are_there = async {
        loop {
            let list = events.list(&ListParams::default()).await.unwrap().items;
            let notes = list.into_iter();
            let notes = notes.filter(|it| it.reason.as_deref() == Some("StatusTooLarge"));
            let notes: Vec<_> = notes.filter_map(|event| event.note).collect();
            if !notes.is_empty() {
                return notes;
            }
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, are_there).await.unwrap()
}

/// The messages of the conditions of an action.
fn messages(action: &Value) -> Vec<&str> {
    let conditions = action["status"]["conditions"].as_array();
    let conditions = conditions.into_iter().flatten();
    conditions
        .filter_map(|condition| condition["message"].as_str())
        .collect()
}

fn is_shortened(action: &Value) -> bool {
    let mut messages = messages(action).into_iter();
    messages.any(|message| message.ends_with(" bytes, shortened)"))
}

fn has_ended(action: &Value) -> bool {
    ending(action).is_some()
}

/// An action whose job the connector runs.
async fn job() -> Arc<World> {
    Story::of("large", &[("job", 0, "")])
        .with_operators()
        .world()
        .await
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_refuses_with_a_mebibyte_is_quoted_in_short() {
    let world = Story::of("large", &[("serial-a", 0, "exit 0")])
        .world()
        .await;
    let (tasks, shutdown) = start(&world, &Script::default());
    let waiting = until(&world, is_shortened).await;
    for message in messages(&waiting) {
        assert!(message.len() <= 16 << 10, "{} bytes", message.len());
    }
    delete(&world, "serial-a").await;
    shutdown.cancel();
    tasks.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_with_a_mebibyte_ends_its_action() {
    let world = job().await;
    let (tasks, shutdown) = start(&world, &Script::default());
    let failed = until(&world, has_ended).await;
    let end = ending(&failed).unwrap();
    assert!(
        end.starts_with("PermanentFailure: the job failed: no no "),
        "{end}"
    );
    let length = long().len();
    assert!(
        end.ends_with(&format!("… ({length} bytes, shortened)")),
        "{end}"
    );
    delete(&world, "job").await;
    shutdown.cancel();
    tasks.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_no_status_can_hold_is_deleted_and_fails_its_action() {
    let world = job().await;
    let script = Script {
        resource_meta: vec![7; 3 << 20],
        ..Script::default()
    };
    let (tasks, shutdown) = start(&world, &script);
    let failed = until(&world, has_ended).await;
    assert_eq!(
        ending(&failed).unwrap(),
        "PermanentFailure: the connector identifies the job by a resource_meta of 3145728 bytes, and a TaskAction \
         stores at most 262144: the connector is asked to delete the job"
    );
    assert_eq!(
        failed["status"]["errorState"]["code"],
        "ResourceMetaTooLarge"
    );
    let deleted = script.deleted.lock().unwrap().clone();
    assert!(deleted == [script.resource_meta], "{} jobs", deleted.len());
    delete(&world, "job").await;
    shutdown.cancel();
    tasks.await.unwrap();
}

/// An action of this world whose attempt ends at once.
async fn limited(max_bytes: usize) -> Arc<World> {
    let rule = Rule::AtMost {
        resource: "taskactions/status",
        max_bytes,
    };
    let world = World::new(&[rule]).await;
    world.apply(action("good", 0, "exit 0")).await;
    Arc::new(world)
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_api_server_refuses_as_too_large_is_written_in_short() {
    let world = limited(8 << 10).await;
    let script = Script {
        n_refusals: Arc::new(Mutex::new(3)),
        ..Script::default()
    };
    let (tasks, shutdown) = start(&world, &script);
    let waiting = until(&world, is_shortened).await;
    for message in messages(&waiting) {
        assert!(message.len() <= 512, "{} bytes", message.len());
    }
    let notes = notes(&world).await;
    let [note] = notes.as_slice() else {
        panic!("expected one Event, found {notes:?}");
    };
    assert!(
        note.ends_with("is written with short texts and a short history"),
        "{note}"
    );
    let ended = until(&world, has_ended).await;
    assert_eq!(
        ending(&ended).unwrap(),
        "Completed: TaskAction completed successfully"
    );
    delete(&world, "good").await;
    shutdown.cancel();
    tasks.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_action_of_which_no_status_can_be_written_says_so_and_can_be_deleted() {
    let world = limited(0).await;
    let (tasks, shutdown) = start(&world, &Script::default());
    let notes = notes(&world).await;
    assert!(
        notes[0].contains("nothing of its progress is recorded"),
        "{notes:?}"
    );
    let action = until(&world, |action| !action["metadata"]["finalizers"].is_null()).await;
    assert!(action["status"].is_null(), "{action}");
    assert_eq!(world.pods().await.len(), 1);
    delete(&world, "good").await;
    shutdown.cancel();
    tasks.await.unwrap();
}
