//! What the service asks the rest of Longshore: one trait.

use std::{error::Error, fmt};

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use longshore_airflow::api::{
    ApiError, DagRunState, RunAddress, UtcDateTime, XComAddress,
    asset::{Asset, AssetEvents, InactiveAssets},
    dag_run::{DagAnswer, DagRun, TriggerDagRun},
    query::{
        AssetSelector, EventFilter, PreviousRunQuery, PreviousTaskInstanceQuery, RunFilter,
        SetXComQuery, SliceQuery, TaskInstanceFilter, VariableKeysQuery, XComQuery,
    },
    store::{
        Connection, ConnectionTestResult, HitlRequest, HitlResponse, HitlUpdate, TaskStorePut,
        Variable, VariableKeys, VariablePut,
    },
    task_instance::{
        Breadcrumbs, EnterRunning, HeartbeatInfo, PreviousSuccessfulRun, PreviousTaskInstance,
        RunContext, SkipDownstream, StateUpdate, TaskStates,
    },
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::json_text::JsonText;

/// What a question comes to.
pub type StateResult<T> = Result<T, StateError>;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The request is refused: the client gets this error, and does not ask again.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// Nobody can answer now: the database is gone, or another process holds the lease. The client gets 500, and asks
    /// again, five times within some minutes.
    #[error("a question of a worker cannot be answered now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl StateError {
    /// Nobody can answer now, for this reason.
    pub fn unavailable(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(why.into())
    }
}

/// What is known of the id of a task instance. Each try has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is that of the present try, whatever its state.
    Present,
    /// It is that of an earlier try.
    Archived,
    /// No task instance has, or had, this id.
    Unknown,
}

/// What became of a change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The task instance has the new state.
    Done,
    /// It had it: the worker has lost the first answer.
    Already,
}

/// Answers the questions of workers. Several are asked at the same time.
///
/// A `task_instance` is the id in the token of the request; for the questions about one task instance it is also that of
/// the path. A `caller` is the same of a request about something else. Ids fence: a method that writes refuses one of an
/// earlier try ([`ApiError::archived_task_instance`]) or of nobody ([`ApiError::no_task_instance`]) **in the statement
/// that writes**. The service has asked [`Self::standing`] before, but the try may have ended meanwhile.
///
/// **When a method may return:**
/// | Method | After |
/// |---|---|
/// | [`Self::run`], [`Self::change_state`] | the commit of the scheduler's round that has decided it |
/// | [`Self::heartbeat`] | nothing: it is told, and may be lost by a crash |
/// | every other one that writes | its own commit, which waits for no round |
///
/// `None` is answered with 404 in the shape of what was asked. The methods with a body of their own answer for what
/// Longshore does not have yet.
///
/// *Cancellation*: the future is dropped when the client goes away, or after [`crate::ApiConfig::answer_timeout`]; what
/// is done stays done, because the client asks again.
#[async_trait]
pub trait ExecutionState: fmt::Debug + Send + Sync + 'static {
    /// What is known of an id.
    async fn standing(&self, task_instance: Uuid) -> StateResult<Standing>;

    // The task instance of the token.

    /// A worker begins. From queued and restarting; from running only for the same process
    /// ([`EnterRunning::is_repeated_by`]), else [`ApiError::cannot_start`].
    async fn run(&self, task_instance: Uuid, start: EnterRunning) -> StateResult<RunContext>;

    /// The worker says what became of the try. From running only, else [`ApiError::cannot_change`]; the present state
    /// again is [`Change::Already`]. A repeated `up_for_retry` meets an id that is archived by now.
    async fn change_state(&self, task_instance: Uuid, update: StateUpdate) -> StateResult<Change>;

    /// Task instances of the same run are skipped, unless they run or have ended by success or failure.
    async fn skip_downstream(&self, task_instance: Uuid, skip: SkipDownstream) -> StateResult<()>;

    /// The worker lives. Else [`ApiError::running_elsewhere`] or [`ApiError::not_running`], after which the worker kills
    /// the task.
    async fn heartbeat(&self, task_instance: Uuid, worker: HeartbeatInfo) -> StateResult<()>;

    /// The rendered template fields of the try, by name.
    async fn set_rendered_fields(
        &self,
        task_instance: Uuid,
        fields: Map<String, Value>,
    ) -> StateResult<()>;

    /// The name of a mapped task instance for people; never empty.
    async fn set_rendered_map_index(&self, task_instance: Uuid, name: String) -> StateResult<()>;

    /// The last successful run before that of the task instance; all null where there is none, or no logical date.
    async fn previous_successful_run(
        &self,
        task_instance: Uuid,
    ) -> StateResult<PreviousSuccessfulRun>;

    /// The inlets and outlets of the task that are not active.
    async fn inactive_assets(&self, _task_instance: Uuid) -> StateResult<InactiveAssets> {
        Ok(InactiveAssets::default())
    }

    /// When the first look of a sensor began that has been rescheduled.
    async fn first_reschedule(&self, task_instance: Uuid) -> StateResult<Option<UtcDateTime>>;

    // Other task instances.

    /// How many there are.
    async fn count_task_instances(&self, filter: TaskInstanceFilter) -> StateResult<u64>;

    /// Their states.
    async fn task_states(&self, filter: TaskInstanceFilter) -> StateResult<TaskStates>;

    /// The ended ones of a run.
    async fn breadcrumbs(&self, run: RunAddress) -> StateResult<Breadcrumbs>;

    /// The last one of a task before a logical date. `None` is the answer null, no error.
    async fn previous_task_instance(
        &self,
        dag_id: String,
        task_id: String,
        query: PreviousTaskInstanceQuery,
    ) -> StateResult<Option<PreviousTaskInstance>>;

    // DAGs and runs.

    /// A DAG.
    async fn dag(&self, dag_id: &str) -> StateResult<Option<DagAnswer>>;

    /// A run.
    async fn dag_run(&self, run: &RunAddress) -> StateResult<Option<DagRun>>;

    /// The state of a run.
    async fn dag_run_state(&self, run: &RunAddress) -> StateResult<Option<DagRunState>>;

    /// How many runs there are.
    async fn count_dag_runs(&self, filter: RunFilter) -> StateResult<u64>;

    /// The last run before a logical date. `None` is the answer null, no error.
    async fn previous_dag_run(&self, query: PreviousRunQuery) -> StateResult<Option<DagRun>>;

    /// A task makes a run. Else [`ApiError::no_dag`], [`ApiError::import_errors`], [`ApiError::denied_run_type`] or
    /// [`ApiError::run_exists`].
    async fn trigger_dag_run(
        &self,
        caller: Uuid,
        run: RunAddress,
        trigger: TriggerDagRun,
    ) -> StateResult<()>;

    /// A task clears a run. Else [`ApiError::no_dag_run`] or [`ApiError::import_errors`].
    async fn clear_dag_run(&self, caller: Uuid, run: RunAddress) -> StateResult<()>;

    // Variables and connections, which are secrets. Those of an earlier try may be read while its token holds: a worker
    // uploads its log after it has told the state, and asks for the connection then.

    /// A variable. Where the task may not see it: [`ApiError::no_access`].
    async fn variable(&self, caller: Uuid, key: &str) -> StateResult<Option<Variable>>;

    /// The keys of variables, sorted.
    async fn variable_keys(
        &self,
        caller: Uuid,
        query: VariableKeysQuery,
    ) -> StateResult<VariableKeys>;

    /// Writes a variable.
    async fn set_variable(&self, caller: Uuid, key: String, put: VariablePut) -> StateResult<()>;

    /// Deletes a variable, where there is one.
    async fn delete_variable(&self, caller: Uuid, key: &str) -> StateResult<()>;

    /// A connection. Where the task may not see it: [`ApiError::no_access`].
    async fn connection(&self, caller: Uuid, id: &str) -> StateResult<Option<Connection>>;

    // XComs. Those of one address are ordered by map index.

    /// A value, by its map index or by its place.
    async fn xcom(&self, xcom: &XComAddress, query: XComQuery) -> StateResult<Option<JsonText>>;

    /// How many values the address has.
    async fn count_xcoms(&self, xcom: &XComAddress) -> StateResult<u64>;

    /// The value at a place; a negative one counts from the end.
    async fn xcom_item(&self, xcom: &XComAddress, place: i64) -> StateResult<Option<JsonText>>;

    /// The values at the places of [`SliceQuery::places`], in that order. They are read while they are sent: together
    /// they may be larger than the memory.
    async fn xcom_slice(
        &self,
        xcom: XComAddress,
        slice: SliceQuery,
    ) -> StateResult<BoxStream<'static, StateResult<JsonText>>>;

    /// Writes a value over the one of its map index, with its `mapped_length`, which is not longer than
    /// [`crate::ApiConfig::max_map_length`].
    async fn set_xcom(
        &self,
        caller: Uuid,
        xcom: XComAddress,
        query: SetXComQuery,
        value: JsonText,
    ) -> StateResult<()>;

    /// Deletes the value of a map index, where there is one.
    async fn delete_xcom(
        &self,
        caller: Uuid,
        xcom: &XComAddress,
        map_index: i32,
    ) -> StateResult<()>;

    // The store of a task instance, which all its tries share.

    /// A value.
    async fn task_store_value(&self, task_instance: Uuid, key: &str) -> StateResult<Option<Value>>;

    /// Writes a value.
    async fn put_task_store_value(
        &self,
        task_instance: Uuid,
        key: String,
        put: TaskStorePut,
    ) -> StateResult<()>;

    /// Deletes a value, where there is one.
    async fn delete_task_store_value(&self, task_instance: Uuid, key: &str) -> StateResult<()>;

    /// Deletes all values.
    async fn clear_task_store(&self, task_instance: Uuid) -> StateResult<()>;

    // Assets: none are known, and nothing has happened to them.

    /// An active asset.
    async fn asset(&self, _asset: &AssetSelector) -> StateResult<Option<Asset>> {
        Ok(None)
    }

    /// The active assets that an alias stands for.
    async fn assets_of_alias(&self, _alias: &str) -> StateResult<Vec<Asset>> {
        Ok(Vec::new())
    }

    /// The events of an asset.
    async fn asset_events(&self, _filter: EventFilter) -> StateResult<AssetEvents> {
        Ok(AssetEvents::default())
    }

    /// The events of an alias.
    async fn alias_events(&self, _filter: EventFilter) -> StateResult<AssetEvents> {
        Ok(AssetEvents::default())
    }

    /// A value of the store of an asset.
    async fn asset_store_value(
        &self,
        _asset: &AssetSelector,
        _key: &str,
    ) -> StateResult<Option<Value>> {
        Ok(None)
    }

    /// Writes a value into the store of an asset.
    async fn put_asset_store_value(
        &self,
        _caller: Uuid,
        _asset: AssetSelector,
        _key: String,
        _value: Value,
    ) -> StateResult<()> {
        Err(ApiError::not_supported("stores of assets").into())
    }

    /// Deletes a value of the store of an asset, or all of them without a key.
    async fn delete_asset_store_values(
        &self,
        _caller: Uuid,
        _asset: &AssetSelector,
        _key: Option<&str>,
    ) -> StateResult<()> {
        Err(ApiError::not_supported("stores of assets").into())
    }

    // Questions to humans.

    /// A task asks a human.
    async fn ask_human(
        &self,
        _task_instance: Uuid,
        _question: HitlRequest,
    ) -> StateResult<HitlRequest> {
        Err(ApiError::not_supported("questions to humans").into())
    }

    /// Nobody has answered in time: the task answers itself.
    async fn answer_for_human(
        &self,
        _task_instance: Uuid,
        _answer: HitlUpdate,
    ) -> StateResult<HitlResponse> {
        Err(ApiError::not_supported("questions to humans").into())
    }

    /// What became of the question.
    async fn human_answer(&self, _task_instance: Uuid) -> StateResult<HitlResponse> {
        Err(ApiError::no_hitl_detail().into())
    }

    // Tests of connections.

    /// The connection that a worker is to test.
    async fn tested_connection(&self, _test: Uuid) -> StateResult<Connection> {
        Err(ApiError::not_supported("tests of connections").into())
    }

    /// How the test went.
    async fn connection_tested(
        &self,
        _test: Uuid,
        _result: ConnectionTestResult,
    ) -> StateResult<()> {
        Err(ApiError::not_supported("tests of connections").into())
    }
}

/// Values that are there already, as [`ExecutionState::xcom_slice`] returns them.
impl JsonText {
    /// A stream of these.
    #[must_use]
    pub fn stream(values: Vec<Self>) -> BoxStream<'static, StateResult<Self>> {
        stream::iter(values.into_iter().map(Ok)).boxed()
    }
}
