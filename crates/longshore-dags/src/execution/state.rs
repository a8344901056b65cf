//! The questions of workers, one by one.

use async_trait::async_trait;
use futures::stream::BoxStream;
use longshore_airflow::api::{
    DagRunState, RunAddress, UtcDateTime, XComAddress,
    dag_run::{DagAnswer, DagRun, TriggerDagRun},
    query::{
        PreviousRunQuery, PreviousTaskInstanceQuery, RunFilter, SetXComQuery, SliceQuery,
        TaskInstanceFilter, VariableKeysQuery, XComQuery,
    },
    store::{Connection, TaskStorePut, Variable, VariableKeys, VariablePut},
    task_instance::{
        Breadcrumbs, EnterRunning, HeartbeatInfo, PreviousSuccessfulRun, PreviousTaskInstance,
        RunContext, SkipDownstream, StateUpdate, TaskStates,
    },
};
use longshore_airflow_api::{Change, ExecutionState, JsonText, Standing, StateResult};
use longshore_store::FromTry;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Execution;

#[async_trait]
impl ExecutionState for Execution {
    async fn standing(&self, id: Uuid) -> StateResult<Standing> {
        self.standing_of(id).await
    }

    async fn run(&self, id: Uuid, start: EnterRunning) -> StateResult<RunContext> {
        self.begin(id, start).await
    }

    async fn change_state(&self, id: Uuid, update: StateUpdate) -> StateResult<Change> {
        self.end(id, update).await
    }

    async fn skip_downstream(&self, id: Uuid, skip: SkipDownstream) -> StateResult<()> {
        self.skip(id, &skip).await
    }

    async fn heartbeat(&self, id: Uuid, worker: HeartbeatInfo) -> StateResult<()> {
        self.beat(id, worker).await
    }

    async fn set_rendered_fields(&self, id: Uuid, fields: Map<String, Value>) -> StateResult<()> {
        self.keep_rendered(id, fields).await
    }

    async fn set_rendered_map_index(&self, id: Uuid, name: String) -> StateResult<()> {
        self.tell(id, FromTry::MapIndexLabel(name)).await
    }

    async fn previous_successful_run(&self, id: Uuid) -> StateResult<PreviousSuccessfulRun> {
        self.last_success(id).await
    }

    async fn first_reschedule(&self, id: Uuid) -> StateResult<Option<UtcDateTime>> {
        self.first_look(id).await
    }

    async fn count_task_instances(&self, filter: TaskInstanceFilter) -> StateResult<u64> {
        self.n_instances(filter).await
    }

    async fn task_states(&self, filter: TaskInstanceFilter) -> StateResult<TaskStates> {
        self.states(filter).await
    }

    async fn breadcrumbs(&self, run: RunAddress) -> StateResult<Breadcrumbs> {
        self.ended_tasks(run).await
    }

    async fn previous_task_instance(
        &self,
        dag_id: String,
        task_id: String,
        query: PreviousTaskInstanceQuery,
    ) -> StateResult<Option<PreviousTaskInstance>> {
        self.previous_of_task(dag_id, task_id, query).await
    }

    async fn dag(&self, dag_id: &str) -> StateResult<Option<DagAnswer>> {
        self.find_dag(dag_id).await
    }

    async fn dag_run(&self, run: &RunAddress) -> StateResult<Option<DagRun>> {
        self.find_run(run).await
    }

    async fn dag_run_state(&self, run: &RunAddress) -> StateResult<Option<DagRunState>> {
        self.state_of_run(run).await
    }

    async fn count_dag_runs(&self, filter: RunFilter) -> StateResult<u64> {
        self.n_runs(filter).await
    }

    async fn previous_dag_run(&self, query: PreviousRunQuery) -> StateResult<Option<DagRun>> {
        self.previous(query).await
    }

    async fn trigger_dag_run(
        &self,
        caller: Uuid,
        run: RunAddress,
        trigger: TriggerDagRun,
    ) -> StateResult<()> {
        self.trigger(caller, run, trigger).await
    }

    async fn clear_dag_run(&self, caller: Uuid, run: RunAddress) -> StateResult<()> {
        self.clear(caller, run).await
    }

    async fn variable(&self, _caller: Uuid, key: &str) -> StateResult<Option<Variable>> {
        self.find_variable(key).await
    }

    async fn variable_keys(
        &self,
        _caller: Uuid,
        query: VariableKeysQuery,
    ) -> StateResult<VariableKeys> {
        self.keys_of_variables(query).await
    }

    async fn set_variable(&self, caller: Uuid, key: String, put: VariablePut) -> StateResult<()> {
        self.write_variable(caller, key, put).await
    }

    async fn delete_variable(&self, caller: Uuid, key: &str) -> StateResult<()> {
        self.remove_variable(caller, key).await
    }

    async fn connection(&self, _caller: Uuid, id: &str) -> StateResult<Option<Connection>> {
        self.find_connection(id).await
    }

    async fn xcom(&self, xcom: &XComAddress, query: XComQuery) -> StateResult<Option<JsonText>> {
        self.find_xcom(xcom, query).await
    }

    async fn count_xcoms(&self, xcom: &XComAddress) -> StateResult<u64> {
        self.n_xcoms(xcom).await
    }

    async fn xcom_item(&self, xcom: &XComAddress, place: i64) -> StateResult<Option<JsonText>> {
        self.at_place(xcom, place).await
    }

    async fn xcom_slice(
        &self,
        xcom: XComAddress,
        slice: SliceQuery,
    ) -> StateResult<BoxStream<'static, StateResult<JsonText>>> {
        self.slice(xcom, slice).await
    }

    async fn set_xcom(
        &self,
        caller: Uuid,
        xcom: XComAddress,
        query: SetXComQuery,
        value: JsonText,
    ) -> StateResult<()> {
        self.write_xcom(caller, xcom, query, &value).await
    }

    async fn delete_xcom(
        &self,
        caller: Uuid,
        xcom: &XComAddress,
        map_index: i32,
    ) -> StateResult<()> {
        self.remove_xcom(caller, xcom, map_index).await
    }

    async fn task_store_value(&self, id: Uuid, key: &str) -> StateResult<Option<Value>> {
        self.kept_value(id, key).await
    }

    async fn put_task_store_value(
        &self,
        id: Uuid,
        key: String,
        put: TaskStorePut,
    ) -> StateResult<()> {
        self.keep_value(id, key, put).await
    }

    async fn delete_task_store_value(&self, id: Uuid, key: &str) -> StateResult<()> {
        self.forget_values(id, Some(key)).await
    }

    async fn clear_task_store(&self, id: Uuid) -> StateResult<()> {
        self.forget_values(id, None).await
    }
}
