//! A connector that has not listed its task types yet: nothing fails for that, jobs are asked about where they were begun,
//! and what waits for the list begins when it comes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use longshore_plugins::{Addressee, Answer, Call, Category, Listed, Request, Teller};
use longshore_tasks::remote::{AskConnectors, ConnectorError};
use longshore_test::Faults;
use serde_json::Value;
use tokio::{sync::watch, task::AbortHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    operators::{self, Connector},
    stories::Story,
    world::{World, action, ending},
};

const WORDS: &str = "connector c may take it, and has not listed its task types yet: starting";

/// A connector that takes `task_type_3`, and its list. It lives through the crashes of the executor.
#[derive(Clone, Debug)]
struct Starting {
    jobs: Connector,
    has_listed: Arc<watch::Sender<bool>>,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

#[async_trait]
impl AskConnectors for Starting {
    fn awaits(&self, to: &Addressee) -> Option<String> {
        let is_known = *self.has_listed.borrow() || to.connector.is_some();
        (!is_known).then(|| WORDS.to_owned())
    }

    fn lists(&self, category: &Category) -> Listed {
        if !*self.has_listed.borrow() {
            Listed::Unknown(WORDS.to_owned())
        } else if category.task_type == "task_type_3" {
            Listed::Yes
        } else {
            Listed::No
        }
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let changes = stream::unfold(self.has_listed.subscribe(), |mut changes| async move {
            changes.changed().await.ok()?;
            Some(((), changes))
        });
        changes.boxed()
    }

    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        self.asked.lock().unwrap().push(match &call.request {
            Request::Create(_) => "create",
            Request::Get(_) => "get",
            Request::Delete(_) => "delete",
        });
        let by = Teller {
            name: "c".to_owned(),
            ..Teller::default()
        };
        Ok(match self.jobs.answer(call) {
            Some(Answer::Created { response, .. }) => Some(Answer::Created { response, by }),
            answer => answer,
        })
    }
}

impl Starting {
    fn new(has_listed: bool) -> Self {
        Self {
            jobs: Connector::default(),
            has_listed: Arc::new(watch::Sender::new(has_listed)),
            asked: Arc::default(),
        }
    }

    /// Starts the executor, which ends when it is aborted, as in a crash.
    fn start(&self, world: &World) -> AbortHandle {
        let process = Faults::none().start();
        let executor = world
            .executor(&process)
            .with_connectors(Arc::new(self.clone()));
        let run = executor.run(world.client(&process), CancellationToken::new());
        tokio::spawn(run).abort_handle()
    }

    fn n_asked(&self, operation: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|it| **it == operation).count()
    }
}

async fn world() -> Arc<World> {
    let nobody = Story::of("listed", &[]).with_operators();
    nobody.world().await
}

/// A task for the connector; of this type, where that is said.
async fn begin(world: &World, name: &str, task_type: Option<&str>) {
    let mut typed = operators::typed(action(name, 0, ""), 3);
    if let Some(task_type) = task_type {
        typed["spec"]["taskType"] = task_type.into();
    }
    world.apply(typed).await;
}

/// What the status of an action says of its attempts and its end, and of what holds it.
async fn status(world: &World, name: &str) -> (u64, Option<String>, Option<String>) {
    let actions = world.actions().await;
    let mut of_name = actions.iter().filter(|it| it["metadata"]["name"] == name);
    let action = of_name.next().unwrap();
    let conditions = action["status"]["conditions"].as_array();
    let mut waiting = conditions
        .into_iter()
        .flatten()
        .filter(|it| it["type"] == "Waiting");
    let waiting = waiting.next().and_then(|it| it["message"].as_str());
    (
        action["status"]["attempts"].as_u64().unwrap_or_default(),
        ending(action),
        waiting.map(str::to_owned),
    )
}

#[tokio::test(start_paused = true)]
async fn jobs_that_run_outlive_a_restart_beside_a_connector_that_does_not_list() {
    let world = world().await;
    let connector = Starting::new(true);
    let first = connector.start(&world);
    begin(&world, "job-long", None).await;
    sleep(Duration::from_secs(40)).await;
    let before = connector.n_asked("get");
    assert!(before > 0, "the job runs");
    first.abort();
    connector.has_listed.send_replace(false);
    let second = connector.start(&world);
    begin(&world, "job-long-new", None).await;
    // More polls than a job survives without an answer.
    sleep(Duration::from_secs(300)).await;
    assert!(
        connector.n_asked("get") > before + 6,
        "the job is on record"
    );
    assert_eq!(status(&world, "job-long").await, (1, None, None));
    let held = (0, None, Some(WORDS.to_owned()));
    assert_eq!(status(&world, "job-long-new").await, held);
    assert_eq!(
        (connector.n_asked("create"), connector.n_asked("delete")),
        (1, 0)
    );
    connector.has_listed.send_replace(true);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(connector.n_asked("create"), 2);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(status(&world, "job-long-new").await, (1, None, None));
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_connector_runs_what_it_lists_and_a_pod_what_none_lists() {
    let world = world().await;
    let connector = Starting::new(false);
    let executor = connector.start(&world);
    begin(&world, "job-theirs", Some("theirs")).await;
    let mut of_nobody: Value = operators::typed(action("pod-1", 0, "exit 0"), 0);
    of_nobody["spec"]["taskType"] = "of-nobody".into();
    world.apply(of_nobody).await;
    sleep(Duration::from_secs(60)).await;
    for name in ["job-theirs", "pod-1"] {
        let held = (0, None, Some(WORDS.to_owned()));
        assert_eq!(status(&world, name).await, held, "{name}");
    }
    assert_eq!(world.pods().await.len(), 0, "it may be no pod");
    connector.has_listed.send_replace(true);
    sleep(Duration::from_secs(300)).await;
    for name in ["job-theirs", "pod-1"] {
        let (attempts, ending, held) = status(&world, name).await;
        assert_eq!((attempts, held), (1, None), "{name}");
        let ending = ending.unwrap();
        assert!(ending.starts_with("Completed"), "{name}: {ending}");
    }
    assert_eq!(connector.n_asked("create"), 1);
    executor.abort();
}
