//! Large outputs that connectors return: they are not held while a store is silent, and a silent store leaves room for
//! those of others.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use longshore_object_store::DataError;
use longshore_plugins::{Answer, Call};
use longshore_proto::{
    flyteidl2::{
        core::{LiteralMap, task_execution},
        task::Outputs,
    },
    from_json,
};
use longshore_tasks::{
    data::{Outcome, Owed, TaskData},
    remote::{AskConnectors, ConnectorError},
};
use longshore_test::Faults;
use prost::Message;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    operators::{self, Connector},
    stories::Story,
    world::{World, action, ending, set_template, template},
};

/// By the clock of the test: whatever takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Of each job.
const SIZE: usize = 1 << 20;
const N_SILENT: usize = 12;
/// As many of them as are sent to one store at a time.
const N_IN_FLIGHT: usize = 2;

/// A connector whose jobs return large outputs, and stores, one of which never answers.
#[derive(Clone, Debug, Default)]
struct Systems {
    jobs: Connector,
    /// The prefixes of outputs that a store has taken.
    written: Arc<Mutex<Vec<String>>>,
    /// How many bytes the silent store is being sent, and the most so far.
    sent: Arc<Mutex<(usize, usize)>>,
}

/// Bytes that the silent store is being sent until this is dropped.
struct Sending<'s>(&'s Systems, usize);

impl<'s> Sending<'s> {
    fn new(systems: &'s Systems, n_bytes: usize) -> Self {
        let mut sent = systems.sent.lock().unwrap();
        sent.0 += n_bytes;
        sent.1 = sent.1.max(sent.0);
        Self(systems, n_bytes)
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.sent.lock().unwrap().0 -= self.1;
    }
}

fn outputs() -> Outputs {
    let primitive = json!({"stringValue": "o".repeat(SIZE)});
    let value = json!({"scalar": {"primitive": primitive}});
    from_json(&json!({"literals": [{"name": "o0", "value": value}]})).unwrap()
}

#[async_trait]
impl AskConnectors for Systems {
    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        let mut answer = self.jobs.answer(call);
        if let Some(Answer::Told { response, .. }) = &mut answer
            && let Some(resource) = &mut response.resource
            && resource.phase() == task_execution::Phase::Succeeded
        {
            resource.outputs = Some(outputs());
        }
        Ok(answer)
    }
}

#[async_trait]
impl TaskData for Systems {
    async fn outcome(&self, _: &str, _: Owed) -> Result<Outcome, DataError> {
        Ok(Outcome::Complete)
    }

    async fn inputs(&self, _: &str) -> Result<Result<Option<LiteralMap>, String>, DataError> {
        Ok(Ok(Some(operators::inputs())))
    }

    async fn write_outputs(&self, prefix: &str, outputs: Bytes) -> Result<(), DataError> {
        assert!(outputs.len() > SIZE, "{} bytes", outputs.len());
        let outputs = LiteralMap::decode(outputs).unwrap();
        assert!(outputs.literals.contains_key("o0"));
        if prefix.starts_with("s3://silent/") {
            let _sending = Sending::new(self, SIZE);
            pending::<()>().await;
        }
        self.written.lock().unwrap().push(prefix.to_owned());
        Ok(())
    }
}

/// An action whose job returns outputs, which belong below this URL.
async fn begin(world: &World, name: &str, base: &str) {
    let mut template = template(name, 0, Owed::Outputs);
    template.r#type = "task_type_3".to_owned();
    let mut action = action(name, 0, "");
    action["spec"]["taskType"] = "task_type_3".into();
    action["spec"]["runOutputBase"] = format!("{base}/{name}").into();
    set_template(&mut action, &template);
    world.apply(action).await;
}

async fn until(is_so: impl AsyncFn() -> bool) {
    let looking = async {
        while !is_so().await {
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_outputs_that_wait_for_a_silent_store_are_not_held_and_hold_up_no_others() {
    let world = Story::of("outputs", &[]).with_operators().world().await;
    let systems = Systems::default();
    let process = Faults::none().start();
    let executor = world.executor(&process);
    let executor = executor
        .with_data(Arc::new(systems.clone()))
        .with_connectors(Arc::new(systems.clone()));
    let shutdown = CancellationToken::new();
    let tasks = tokio::spawn(executor.run(world.client(&process), shutdown.clone()));
    for n in 0..N_SILENT {
        begin(&world, &format!("job-{n}"), "s3://silent/out").await;
    }
    let sent = || systems.sent.lock().unwrap().0;
    until(async || sent() == N_IN_FLIGHT * SIZE).await;
    begin(&world, "job-good", "file:///out").await;
    until(async || {
        let actions = world.actions().await;
        let mut ends = actions.iter().filter_map(ending);
        ends.any(|end| end == "Completed: TaskAction completed successfully")
    })
    .await;
    let written = systems.written.lock().unwrap().clone();
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].contains("job-good"), "{written:?}");
    assert_eq!(systems.sent.lock().unwrap().1, N_IN_FLIGHT * SIZE);
    shutdown.cancel();
    tasks.await.unwrap();
}
