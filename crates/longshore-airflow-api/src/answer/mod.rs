//! Which question a request is, and what its answer looks like.

mod assets;
mod rows;
mod task_instances;
mod xcoms;

use bytes::Bytes;
use longshore_airflow::api::{
    ApiError, ApiVersion, Request, Route, RunAddress, task_instance::Message,
};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::{
    reply::Reply,
    state::{ExecutionState, StateResult},
};

/// A request that is permitted.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) state: &'a dyn ExecutionState,
    pub(crate) max_map_length: u64,
    pub(crate) route: &'static Route,
    pub(crate) version: ApiVersion,
    /// The task instance of the token.
    pub(crate) caller: Uuid,
}

impl Question<'_> {
    /// Asks, and writes down the answer. `body` is that of the request.
    pub(crate) async fn answer(&self, request: Request, body: Bytes) -> StateResult<Reply> {
        use Request as R;
        let (state, caller) = (self.state, self.caller);
        match request {
            R::Health => self.health(),
            R::TaskInstance(id, request) => self.of_task_instance(id, request).await,
            R::CountTaskInstances(filter) => self.json(&state.count_task_instances(filter).await?),
            R::TaskStates(filter) => self.json(&state.task_states(filter).await?),
            R::Breadcrumbs { dag_id, run_id } => {
                let run = RunAddress { dag_id, run_id };
                self.json(&state.breadcrumbs(run).await?)
            }
            R::PreviousTaskInstance {
                dag_id,
                task_id,
                query,
            } => {
                let previous = state.previous_task_instance(dag_id, task_id, query).await?;
                self.json(&previous)
            }
            R::FirstReschedule(id) => self.json(&state.first_reschedule(id).await?),
            R::TaskStore(id, request) => self.of_task_store(id, request).await,
            R::XCom(xcom, request) => self.of_xcom(xcom, request, body).await,
            R::Dag(dag_id) => self.dag(&dag_id).await,
            R::DagRun(run) => self.dag_run(&run).await,
            R::DagRunState(run) => self.dag_run_state(&run).await,
            R::TriggerDagRun(run, trigger) => {
                self.done(state.trigger_dag_run(caller, run, trigger).await)
            }
            R::ClearDagRun(run) => self.done(state.clear_dag_run(caller, run).await),
            R::CountDagRuns(filter) => self.json(&state.count_dag_runs(filter).await?),
            R::PreviousDagRun(query) => self.json(&state.previous_dag_run(query).await?),
            R::VariableKeys(query) => self.json(&state.variable_keys(caller, query).await?),
            R::Variable(key) => self.variable(&key).await,
            R::PutVariable(key, put) => {
                state.set_variable(caller, key, put).await?;
                self.json(&Message::variable_set())
            }
            R::DeleteVariable(key) => self.done(state.delete_variable(caller, &key).await),
            R::Connection(id) => self.connection(&id).await,
            R::TestedConnection(test) => self.json(&state.tested_connection(test).await?),
            R::ConnectionTested(test, result) => {
                self.done(state.connection_tested(test, result).await)
            }
            R::Asset(asset) => self.asset(&asset).await,
            R::AssetsOfAlias(alias) => self.json(&state.assets_of_alias(&alias).await?),
            R::AssetEvents(filter) => self.json(&state.asset_events(filter).await?),
            R::AliasEvents(filter) => self.json(&state.alias_events(filter).await?),
            R::AssetStore(asset, request) => self.of_asset_store(asset, request).await,
        }
    }

    fn health(&self) -> StateResult<Reply> {
        let is_ping = self.route.path.ends_with("/ping");
        // Upstream: the services behind it that answer. Ours has none that it could do without.
        let answer = if is_ping {
            json!({"ok": [], "failing": {}})
        } else {
            json!({"status": "healthy"})
        };
        self.json(&answer)
    }

    fn json(&self, answer: &impl Serialize) -> StateResult<Reply> {
        Reply::of(self.route, answer, self.version)
    }

    fn done(&self, done: StateResult<()>) -> StateResult<Reply> {
        done.map(|()| Reply::Empty)
    }

    /// The answer, or 404.
    fn found(
        &self,
        answer: Option<impl Serialize>,
        missing: impl FnOnce() -> ApiError,
    ) -> StateResult<Reply> {
        match answer {
            Some(answer) => self.json(&answer),
            None => Err(missing().into()),
        }
    }
}
