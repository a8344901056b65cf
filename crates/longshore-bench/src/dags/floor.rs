//! A bare client that makes the scheduler's commits, and creates and deletes its pods, in the same order, and reads
//! nothing.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures::{TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use longshore_kit::{Clock, SystemClock};
use longshore_store::{
    Changes, Run, RunDetails, RunKey, RunState, RunStore, RunType, Store, StoredDocument,
    TaskInstance, TaskState,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{FLOOR_CHAIN, FLOOR_MANY, board::Board, task};

/// Requests at the same time, as many as the scheduler's pods controller has rounds.
const CONCURRENCY: usize = 64;

/// See the page.
pub(super) struct Floor {
    pods: Api<Pod>,
    board: Board,
    /// The pod that the scheduler created.
    pod: Value,
    commits: Commits,
}

impl Floor {
    pub(super) async fn new(
        pods: Api<Pod>,
        board: Board,
        pod: Value,
        database: &Path,
    ) -> Result<Self> {
        Ok(Self {
            pods,
            board,
            pod,
            commits: Commits::to(Arc::new(Store::open(database).await?)),
        })
    }

    /// Each task begins when the one before has ended.
    pub(super) async fn one_by_one(&self, n: usize) -> Result<()> {
        for row in self.begin(FLOOR_CHAIN, n).await? {
            self.run(row).await?;
        }
        self.board.until_gone(FLOOR_CHAIN, n).await?;
        Ok(())
    }

    /// Runs `n` tasks at once. Returns the time from the first pod to the end of the last.
    pub(super) async fn all_at_once(&self, n: usize) -> Result<Duration> {
        let rows = self.begin(FLOOR_MANY, n).await?;
        stream::iter(rows.into_iter().map(Ok))
            .try_for_each_concurrent(CONCURRENCY.max(n), |row| self.run(row))
            .await?;
        self.board.until_gone(FLOOR_MANY, n).await
    }

    /// The run and its rows.
    async fn begin(&self, dag_id: &str, n: usize) -> Result<Vec<TaskInstance>> {
        let run = run(dag_id);
        let rows: Vec<TaskInstance> = (0..n).map(|i| row(&run.key, i)).collect();
        let changes = Changes {
            documents: vec![document(dag_id)],
            runs: vec![run],
            task_instances: rows.clone(),
            ..Changes::default()
        };
        self.commits.store.commit(&changes).await?;
        let committed = |row: TaskInstance| TaskInstance { version: 1, ..row };
        Ok(rows.into_iter().map(committed).collect())
    }

    /// One task: it is queued, its pod is created, it runs, it ends, its pod is deleted. A commit goes before each.
    async fn run(&self, mut row: TaskInstance) -> Result<()> {
        let (dag, task) = (row.key.run.dag_id.clone(), row.key.task_id.clone());
        let name = format!("{dag}-{task}");
        row.launch = 1;
        row.pod_name = Some(name.clone());
        self.commits.commit(&mut row, TaskState::Queued).await?;
        let mut pod = self.pod.clone();
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["annotations"]["dag_id"] = json!(dag);
        pod["metadata"]["annotations"]["task_id"] = json!(task);
        let pod: Pod = serde_json::from_value(pod)?;
        self.pods.create(&PostParams::default(), &pod).await?;
        let running = self.commits.commit(&mut row, TaskState::Running);
        let (running, ended) = tokio::join!(running, self.board.until_ended(&dag, &task));
        running.and(ended)?;
        self.commits.commit(&mut row, TaskState::Success).await?;
        self.pods.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

fn document(dag_id: &str) -> StoredDocument {
    StoredDocument::of(&json!({"dag_id": dag_id}))
}

fn run(dag_id: &str) -> Run {
    Run {
        key: RunKey {
            dag_id: dag_id.to_owned(),
            run_id: "floor".to_owned(),
        },
        run_type: RunType::Manual,
        state: RunState::Running,
        logical_date: None,
        queued_at: now(),
        start_date: Some(now()),
        end_date: None,
        conf: json!({}),
        dag_hash: document(dag_id).hash().clone(),
        is_prepared: true,
        reason: None,
        details: RunDetails::default(),
        version: 0,
    }
}

fn row(run: &RunKey, i: usize) -> TaskInstance {
    TaskInstance {
        state: Some(TaskState::Scheduled),
        try_number: 1,
        scheduled_at: Some(now()),
        ..TaskInstance::new(Uuid::new_v4(), run.task(task(i)))
    }
}

/// Commits the rows that have changed meanwhile together, as the scheduler's rounds do.
struct Commits {
    store: Arc<Store>,
    rows: mpsc::UnboundedSender<(TaskInstance, oneshot::Sender<()>)>,
}

impl Commits {
    fn to(store: Arc<Store>) -> Self {
        let (rows, mut asked) = mpsc::unbounded_channel::<(TaskInstance, oneshot::Sender<()>)>();
        let committing = Arc::clone(&store);
        tokio::spawn(async move {
            while let Some(first) = asked.recv().await {
                let mut all = vec![first];
                while let Ok(next) = asked.try_recv() {
                    all.push(next);
                }
                let (task_instances, waiting): (Vec<_>, Vec<_>) = all.into_iter().unzip();
                let changes = Changes {
                    task_instances,
                    ..Changes::default()
                };
                if committing.commit(&changes).await.is_err() {
                    return; // Callers that wait get the end of the channel.
                }
                for done in waiting {
                    let _ = done.send(());
                }
            }
        });
        Self { store, rows }
    }

    async fn commit(&self, row: &mut TaskInstance, state: TaskState) -> Result<()> {
        row.state = Some(state);
        let (done, committed) = oneshot::channel();
        self.rows
            .send((row.clone(), done))
            .ok()
            .context("the database is gone")?;
        committed.await.context("a commit failed")?;
        row.version += 1;
        Ok(())
    }
}
