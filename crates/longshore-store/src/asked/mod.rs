//! What workers ask about tries, runs and DAGs, beside the scheduler.

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    changes::StoreError,
    engine::Connection,
    model::{
        DagVersion, FileKey, Run, RunKey, RunState, TaskInstance, TaskKey, TaskState, WorkerProcess,
    },
    query,
    store::Store,
    told::XComKey,
};

mod read;

/// What is known of the id of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTry {
    /// Its task instance.
    pub key: TaskKey,
    /// Its state; an archived one has that of its end.
    pub state: Option<TaskState>,
    /// The process that runs it, as it said itself.
    pub process: Option<WorkerProcess>,
    /// Whether another try followed.
    pub is_archived: bool,
}

/// Which runs are counted. An empty list is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsWanted {
    /// Of this DAG.
    pub dag_id: String,
    /// About one of these instants.
    pub logical_dates: Vec<Timestamp>,
    /// With one of these ids.
    pub run_ids: Vec<String>,
    /// In one of these states. A word that is no state is that of no run.
    pub states: Vec<String>,
}

/// Which task instances are counted, or whose states are read. An empty list is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstancesWanted {
    /// Of this DAG.
    pub dag_id: String,
    /// With this map index.
    pub map_index: Option<i32>,
    /// Of one of these tasks.
    pub task_ids: Vec<String>,
    /// Of runs about one of these instants.
    pub logical_dates: Vec<Timestamp>,
    /// Of one of these runs.
    pub run_ids: Vec<String>,
    /// In one of these states; `null` is the one before `scheduled`.
    pub states: Vec<String>,
}

/// A task instance and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceState {
    /// The task instance.
    pub key: TaskKey,
    /// Its state.
    pub state: Option<TaskState>,
}

/// Which earlier instance of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousInstance {
    /// Its DAG.
    pub dag_id: String,
    /// The task.
    pub task_id: String,
    /// The map index.
    pub map_index: i32,
    /// Of a run about an instant before this one; `None` for any run.
    pub before: Option<Timestamp>,
    /// In this state; a word that is no state is that of no task instance.
    pub state: Option<String>,
}

/// The store as workers ask it. The reads have the connections of the service.
#[async_trait]
pub trait AskedStore: Send + Sync + 'static {
    /// What is known of an id.
    async fn known_try(&self, id: Uuid) -> Result<Option<KnownTry>, StoreError>;

    /// A run, without its task instances.
    async fn run_row(&self, key: &RunKey) -> Result<Option<Run>, StoreError>;

    /// The last run of a DAG that is about an instant before this one.
    async fn previous_run(
        &self,
        dag_id: &str,
        before: Timestamp,
        state: Option<RunState>,
    ) -> Result<Option<Run>, StoreError>;

    /// How many runs there are.
    async fn count_wanted_runs(&self, wanted: &RunsWanted) -> Result<u64, StoreError>;

    /// How many task instances there are.
    async fn count_wanted_instances(&self, wanted: &InstancesWanted) -> Result<u64, StoreError>;

    /// The states of task instances, in the order of their keys.
    async fn instance_states(
        &self,
        wanted: &InstancesWanted,
    ) -> Result<Vec<InstanceState>, StoreError>;

    /// The last one by the instant of its run, with that instant.
    async fn previous_instance(
        &self,
        wanted: &PreviousInstance,
    ) -> Result<Option<(TaskInstance, Option<Timestamp>)>, StoreError>;

    /// This run, or else the latest earlier one by logical date, that has such values.
    async fn latest_run_with_xcom(&self, key: &XComKey) -> Result<Option<RunKey>, StoreError>;

    /// A version of a DAG.
    async fn version_row(&self, id: Uuid) -> Result<Option<DagVersion>, StoreError>;

    /// The latest version of a DAG.
    async fn latest_version(&self, dag_id: &str) -> Result<Option<DagVersion>, StoreError>;

    /// Whether no DAG can be read from a file at present.
    async fn has_import_error(&self, file: &FileKey) -> Result<bool, StoreError>;
}

#[async_trait]
impl AskedStore for Store {
    async fn known_try(&self, id: Uuid) -> Result<Option<KnownTry>, StoreError> {
        self.show(async move |c: &mut Connection| read::known_try(c, id).await)
            .await
    }

    async fn run_row(&self, key: &RunKey) -> Result<Option<Run>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| read::run_row(c, &key).await)
            .await
    }

    async fn previous_run(
        &self,
        dag_id: &str,
        before: Timestamp,
        state: Option<RunState>,
    ) -> Result<Option<Run>, StoreError> {
        let dag_id = dag_id.to_owned();
        let work =
            async move |c: &mut Connection| read::previous_run(c, &dag_id, before, state).await;
        self.show(work).await
    }

    async fn count_wanted_runs(&self, wanted: &RunsWanted) -> Result<u64, StoreError> {
        let wanted = wanted.clone();
        self.show(async move |c: &mut Connection| read::count_runs(c, &wanted).await)
            .await
    }

    async fn count_wanted_instances(&self, wanted: &InstancesWanted) -> Result<u64, StoreError> {
        let wanted = wanted.clone();
        self.show(async move |c: &mut Connection| read::count_instances(c, &wanted).await)
            .await
    }

    async fn instance_states(
        &self,
        wanted: &InstancesWanted,
    ) -> Result<Vec<InstanceState>, StoreError> {
        let wanted = wanted.clone();
        self.show(async move |c: &mut Connection| read::instance_states(c, &wanted).await)
            .await
    }

    async fn previous_instance(
        &self,
        wanted: &PreviousInstance,
    ) -> Result<Option<(TaskInstance, Option<Timestamp>)>, StoreError> {
        let wanted = wanted.clone();
        self.show(async move |c: &mut Connection| read::previous_instance(c, &wanted).await)
            .await
    }

    async fn latest_run_with_xcom(&self, key: &XComKey) -> Result<Option<RunKey>, StoreError> {
        let key = key.clone();
        self.show(async move |c: &mut Connection| read::latest_run_with_xcom(c, &key).await)
            .await
    }

    async fn version_row(&self, id: Uuid) -> Result<Option<DagVersion>, StoreError> {
        self.show(async move |c: &mut Connection| query::dag_version(c, id).await)
            .await
    }

    async fn latest_version(&self, dag_id: &str) -> Result<Option<DagVersion>, StoreError> {
        let dag_id = dag_id.to_owned();
        self.show(async move |c: &mut Connection| read::latest_version(c, &dag_id).await)
            .await
    }

    async fn has_import_error(&self, file: &FileKey) -> Result<bool, StoreError> {
        let file = file.clone();
        self.show(async move |c: &mut Connection| read::has_import_error(c, &file).await)
            .await
    }
}
