//! Task instances, runs and their values in memory, under the rules that [`ExecutionState`] states.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use longshore_airflow::api::{
    ApiError, DagRunState, RunAddress, TaskInstanceState as State, UtcDateTime, XComAddress,
    dag_run::{DagAnswer, DagRun, TriggerDagRun},
    query::{
        PreviousRunQuery, PreviousTaskInstanceQuery, RunFilter, SetXComQuery, SliceQuery,
        TaskInstanceFilter, VariableKeysQuery, XComQuery,
    },
    store::{Connection, TaskStorePut, Variable, VariableKeys, VariablePut},
    task_instance::{
        Breadcrumbs, EnterRunning, HeartbeatInfo, Kwargs, PreviousSuccessfulRun,
        PreviousTaskInstance, RunContext, SkipDownstream, StateUpdate, TaskStates, should_retry,
    },
};
use longshore_airflow_api::{Change, ExecutionState, JsonText, Standing, StateError, StateResult};
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub(crate) const DAG: &str = "vec";
pub(crate) const RUN: &str = "manual__2026-11-21T00:30:00+00:00";

/// A task instance.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) task_id: String,
    pub(crate) map_index: i32,
    pub(crate) max_tries: u32,
    pub(crate) state: Option<State>,
    /// Host, user and process that run it.
    pub(crate) worker: Option<(String, String, i64)>,
    /// Where it goes on after a deferral, and when it began.
    pub(crate) next: Option<(String, Kwargs, UtcDateTime)>,
    pub(crate) n_heartbeats: u32,
}

impl Row {
    pub(crate) fn queued(task_id: &str) -> Self {
        Self {
            task_id: task_id.to_owned(),
            map_index: -1,
            max_tries: 1,
            state: Some(State::Queued),
            worker: None,
            next: None,
            n_heartbeats: 0,
        }
    }

    pub(crate) fn running(task_id: &str) -> Self {
        Self {
            state: Some(State::Running),
            worker: Some(("vm".to_owned(), "root".to_owned(), 7)),
            ..Self::queued(task_id)
        }
    }
}

/// An XCom's value, and its length for those that map over it.
pub(crate) type Stored = (JsonText, Option<i64>);
pub(crate) type XComKey = (String, String, String, String);

#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) instances: BTreeMap<Uuid, Row>,
    pub(crate) archived: BTreeSet<Uuid>,
    pub(crate) updates: Vec<(Uuid, StateUpdate)>,
    pub(crate) rendered: BTreeMap<Uuid, Map<String, Value>>,
    pub(crate) names: BTreeMap<Uuid, String>,
    pub(crate) variables: BTreeMap<String, Option<String>>,
    pub(crate) connections: BTreeMap<String, Connection>,
    pub(crate) xcoms: BTreeMap<XComKey, BTreeMap<i32, Stored>>,
    pub(crate) store: BTreeMap<(Uuid, String), Value>,
    pub(crate) triggered: Vec<RunAddress>,
    /// Nothing can be answered.
    pub(crate) is_gone: bool,
    /// Nothing is answered at all.
    pub(crate) is_silent: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Rows>);

impl Memory {
    pub(crate) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap()
    }

    pub(crate) fn add(&self, row: Row) -> Uuid {
        let mut rows = self.rows();
        let n = rows.instances.len() + rows.archived.len();
        let id = Uuid::from_u128(0x019a_a3f0_0000_7000_8000_0000_0000_0000 + n as u128);
        rows.instances.insert(id, row);
        id
    }

    /// The next try of a task instance, and its new id.
    pub(crate) fn archive(&self, id: Uuid) -> Uuid {
        let mut rows = self.rows();
        let row = rows.instances.remove(&id).unwrap();
        rows.archived.insert(id);
        drop(rows);
        self.add(Row::queued(&row.task_id))
    }

    async fn open(&self) -> StateResult<MutexGuard<'_, Rows>> {
        let (is_gone, is_silent) = {
            let rows = self.rows();
            (rows.is_gone, rows.is_silent)
        };
        if is_silent {
            std::future::pending::<()>().await;
        }
        if is_gone {
            return Err(StateError::unavailable("the database hunter2 is gone"));
        }
        Ok(self.rows())
    }
}

impl Rows {
    /// The row of a present try: the fence of everything that writes.
    fn present(&mut self, id: Uuid) -> Result<&mut Row, ApiError> {
        if self.archived.contains(&id) {
            return Err(ApiError::archived_task_instance());
        }
        self.instances
            .get_mut(&id)
            .ok_or_else(ApiError::no_task_instance)
    }

    fn values(&self, at: &XComAddress) -> Vec<(i32, JsonText)> {
        let found = self.xcoms.get(&key(at)).into_iter().flatten();
        found
            .map(|(index, (value, _))| (*index, value.clone()))
            .collect()
    }
}

fn key(at: &XComAddress) -> XComKey {
    let XComAddress {
        dag_id,
        run_id,
        task_id,
        key,
    } = at.clone();
    (dag_id, run_id, task_id, key)
}

fn at_place(values: &[(i32, JsonText)], place: i64) -> Option<JsonText> {
    let n = i64::try_from(values.len()).unwrap();
    let place = if place < 0 { place + n } else { place };
    let place = usize::try_from(place).ok()?;
    values.get(place).map(|(_, value)| value.clone())
}

fn the_run() -> DagRun {
    let run = json!({
        "dag_id": DAG, "run_id": RUN, "logical_date": "2026-11-21T00:30:00Z",
        "data_interval_start": "2026-11-21T00:30:00Z", "data_interval_end": "2026-11-21T00:30:00Z",
        "run_after": "2026-11-21T00:30:00Z", "start_date": "2026-11-21T00:30:01Z", "end_date": null,
        "run_type": "manual", "state": "running", "conf": {}, "triggering_user_name": "admin",
        "consumed_asset_events": [], "partition_key": null,
    });
    serde_json::from_value(run).unwrap()
}

#[async_trait]
impl ExecutionState for Memory {
    async fn standing(&self, id: Uuid) -> StateResult<Standing> {
        let rows = self.open().await?;
        Ok(if rows.archived.contains(&id) {
            Standing::Archived
        } else if rows.instances.contains_key(&id) {
            Standing::Present
        } else {
            Standing::Unknown
        })
    }

    async fn run(&self, id: Uuid, start: EnterRunning) -> StateResult<RunContext> {
        let mut rows = self.open().await?;
        let row = rows.present(id)?;
        let (hostname, unixname, pid) = (start.hostname, start.unixname, start.pid);
        let worker = Some((hostname, unixname, pid));
        let is_new = matches!(row.state, Some(State::Queued | State::Restarting));
        let is_repeated = row.state == Some(State::Running) && row.worker == worker;
        if !is_new && !is_repeated {
            return Err(ApiError::cannot_start(row.state).into());
        }
        let previous = row.state.replace(State::Running);
        row.worker = worker;
        let next = row.next.clone();
        Ok(RunContext {
            dag_run: the_run(),
            task_reschedule_count: 0,
            max_tries: row.max_tries,
            variables: Vec::new(),
            connections: Vec::new(),
            xcom_keys_to_clear: Vec::new(),
            should_retry: should_retry(previous, 1, row.max_tries),
            next_method: next.as_ref().map(|(method, ..)| method.clone()),
            next_kwargs: next.as_ref().map(|(_, kwargs, _)| kwargs.clone()),
            start_date: next.map(|(.., start)| start),
        })
    }

    async fn change_state(&self, id: Uuid, update: StateUpdate) -> StateResult<Change> {
        let mut rows = self.open().await?;
        let row = rows.present(id)?;
        let state = update.state();
        if row.state == Some(state) {
            return Ok(Change::Already);
        }
        if row.state != Some(State::Running) {
            return Err(ApiError::cannot_change(row.state).into());
        }
        row.state = Some(state);
        rows.updates.push((id, update));
        if state == State::UpForRetry {
            drop(rows);
            let next = self.archive(id);
            self.rows().present(next)?.state = Some(State::UpForRetry);
        }
        Ok(Change::Done)
    }

    async fn skip_downstream(&self, id: Uuid, skip: SkipDownstream) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(id)?;
        for row in rows.instances.values_mut() {
            let is_skipped = skip
                .tasks
                .iter()
                .any(|it| it.address() == (row.task_id.as_str(), row.map_index));
            let may = !matches!(
                row.state,
                Some(State::Running | State::Success | State::Failed)
            );
            if is_skipped && may {
                row.state = Some(State::Skipped);
            }
        }
        Ok(())
    }

    async fn heartbeat(&self, id: Uuid, worker: HeartbeatInfo) -> StateResult<()> {
        let mut rows = self.open().await?;
        let row = rows.present(id)?;
        let of_row = row.worker.clone().map(|(host, _, pid)| (host, pid));
        if of_row != Some((worker.hostname, worker.pid)) {
            let (host, pid) = of_row.unzip();
            return Err(ApiError::running_elsewhere(host.as_deref(), pid).into());
        }
        if row.state != Some(State::Running) {
            return Err(ApiError::not_running(row.state).into());
        }
        row.n_heartbeats += 1;
        Ok(())
    }

    async fn set_rendered_fields(&self, id: Uuid, fields: Map<String, Value>) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(id)?;
        rows.rendered.insert(id, fields);
        Ok(())
    }

    async fn set_rendered_map_index(&self, id: Uuid, name: String) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(id)?;
        rows.names.insert(id, name);
        Ok(())
    }

    async fn previous_successful_run(&self, id: Uuid) -> StateResult<PreviousSuccessfulRun> {
        self.open().await?.present(id)?;
        Ok(PreviousSuccessfulRun::default())
    }

    async fn first_reschedule(&self, _id: Uuid) -> StateResult<Option<UtcDateTime>> {
        drop(self.open().await?);
        Ok(None)
    }

    async fn count_task_instances(&self, filter: TaskInstanceFilter) -> StateResult<u64> {
        let rows = self.open().await?;
        let is_wanted = |row: &&Row| {
            let state = row.state.map_or("null", State::as_str);
            filter.dag_id == DAG
                && filter
                    .states
                    .as_ref()
                    .is_none_or(|states| states.iter().any(|it| it == state))
        };
        Ok(rows.instances.values().filter(is_wanted).count() as u64)
    }

    async fn task_states(&self, filter: TaskInstanceFilter) -> StateResult<TaskStates> {
        let rows = self.open().await?;
        let mut states = TaskStates::default();
        for row in rows.instances.values().filter(|_| filter.dag_id == DAG) {
            states.add(RUN, &row.task_id, row.map_index, row.state);
        }
        Ok(states)
    }

    async fn breadcrumbs(&self, _run: RunAddress) -> StateResult<Breadcrumbs> {
        let breadcrumbs = Vec::new();
        Ok(Breadcrumbs { breadcrumbs })
    }

    async fn previous_task_instance(
        &self,
        _dag_id: String,
        _task_id: String,
        _query: PreviousTaskInstanceQuery,
    ) -> StateResult<Option<PreviousTaskInstance>> {
        Ok(None)
    }

    async fn dag(&self, dag_id: &str) -> StateResult<Option<DagAnswer>> {
        let dag = json!({
            "dag_id": DAG, "is_paused": false, "bundle_name": "dags-folder", "bundle_version": null,
            "relative_fileloc": "vec.py", "owners": "airflow", "tags": [], "next_dagrun": null,
        });
        Ok((dag_id == DAG).then(|| serde_json::from_value(dag).unwrap()))
    }

    async fn dag_run(&self, run: &RunAddress) -> StateResult<Option<DagRun>> {
        Ok((run.run_id == RUN).then(the_run))
    }

    async fn dag_run_state(&self, run: &RunAddress) -> StateResult<Option<DagRunState>> {
        Ok((run.run_id == RUN).then_some(DagRunState::Running))
    }

    async fn count_dag_runs(&self, filter: RunFilter) -> StateResult<u64> {
        Ok(u64::from(filter.dag_id == DAG))
    }

    async fn previous_dag_run(&self, _query: PreviousRunQuery) -> StateResult<Option<DagRun>> {
        Ok(None)
    }

    async fn trigger_dag_run(
        &self,
        caller: Uuid,
        run: RunAddress,
        _trigger: TriggerDagRun,
    ) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(caller)?;
        if rows.triggered.contains(&run) {
            return Err(ApiError::run_exists(&run.dag_id, &run.run_id).into());
        }
        rows.triggered.push(run);
        Ok(())
    }

    async fn clear_dag_run(&self, caller: Uuid, run: RunAddress) -> StateResult<()> {
        self.open().await?.present(caller)?;
        Err(ApiError::no_dag_run(&run.dag_id, &run.run_id).into())
    }

    async fn variable(&self, _caller: Uuid, key: &str) -> StateResult<Option<Variable>> {
        let rows = self.open().await?;
        let value = rows.variables.get(key).cloned();
        let key = key.to_owned();
        Ok(value.map(|value| Variable { key, value }))
    }

    async fn variable_keys(&self, _: Uuid, query: VariableKeysQuery) -> StateResult<VariableKeys> {
        let rows = self.open().await?;
        let prefix = query.prefix.unwrap_or_default();
        let keys = rows.variables.keys().filter(|it| it.starts_with(&prefix));
        let keys: Vec<String> = keys.cloned().collect();
        Ok(VariableKeys {
            total_entries: keys.len() as u64,
            keys,
        })
    }

    async fn set_variable(&self, caller: Uuid, key: String, put: VariablePut) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(caller)?;
        rows.variables.insert(key, put.val);
        Ok(())
    }

    async fn delete_variable(&self, caller: Uuid, key: &str) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(caller)?;
        rows.variables.remove(key);
        Ok(())
    }

    async fn connection(&self, _caller: Uuid, id: &str) -> StateResult<Option<Connection>> {
        Ok(self.open().await?.connections.get(id).cloned())
    }

    async fn xcom(&self, at: &XComAddress, query: XComQuery) -> StateResult<Option<JsonText>> {
        let values = self.open().await?.values(at);
        Ok(match query.offset {
            Some(place) => at_place(&values, place),
            None => values
                .into_iter()
                .find(|(index, _)| *index == query.map_index)
                .map(|(_, value)| value),
        })
    }

    async fn count_xcoms(&self, at: &XComAddress) -> StateResult<u64> {
        Ok(self.open().await?.values(at).len() as u64)
    }

    async fn xcom_item(&self, at: &XComAddress, place: i64) -> StateResult<Option<JsonText>> {
        Ok(at_place(&self.open().await?.values(at), place))
    }

    async fn xcom_slice(
        &self,
        at: XComAddress,
        slice: SliceQuery,
    ) -> StateResult<BoxStream<'static, StateResult<JsonText>>> {
        let values = self.open().await?.values(&at);
        let places = slice.places(values.len());
        let taken = places.map(|place| values[place].1.clone()).collect();
        Ok(JsonText::stream(taken))
    }

    async fn set_xcom(
        &self,
        caller: Uuid,
        at: XComAddress,
        query: SetXComQuery,
        value: JsonText,
    ) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(caller)?;
        let values = rows.xcoms.entry(key(&at)).or_default();
        values.insert(query.map_index, (value, query.mapped_length));
        Ok(())
    }

    async fn delete_xcom(&self, caller: Uuid, at: &XComAddress, index: i32) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(caller)?;
        if let Some(values) = rows.xcoms.get_mut(&key(at)) {
            values.remove(&index);
        }
        Ok(())
    }

    async fn task_store_value(&self, id: Uuid, key: &str) -> StateResult<Option<Value>> {
        let mut rows = self.open().await?;
        rows.present(id)?;
        Ok(rows.store.get(&(id, key.to_owned())).cloned())
    }

    async fn put_task_store_value(
        &self,
        id: Uuid,
        key: String,
        put: TaskStorePut,
    ) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(id)?;
        rows.store.insert((id, key), put.value);
        Ok(())
    }

    async fn delete_task_store_value(&self, id: Uuid, key: &str) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(id)?;
        rows.store.remove(&(id, key.to_owned()));
        Ok(())
    }

    async fn clear_task_store(&self, id: Uuid) -> StateResult<()> {
        let mut rows = self.open().await?;
        rows.present(id)?;
        rows.store.retain(|(of, _), _| *of != id);
        Ok(())
    }
}
