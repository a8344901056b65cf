//! Runs, DAGs, and other task instances.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use longshore_airflow::{
    api::{
        ApiError, DagRunState, RunAddress, UtcDateTime,
        dag_run::{DagAnswer, DagRun, TriggerDagRun},
        query::{PreviousRunQuery, PreviousTaskInstanceQuery, RunFilter, TaskInstanceFilter},
        task_instance::{Breadcrumbs, PreviousTaskInstance, TaskStates},
    },
    serialized::{Child, Document, TaskGroup},
};
use longshore_airflow_api::{StateError, StateResult};
use longshore_store::{
    DagVersion, FileKey, InstancesWanted, PreviousInstance, Run, RunDetails, RunKey, RunState,
    RunType, RunsWanted, TaskFilter, TaskInstance, TaskState,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Execution, unavailable};
use crate::{
    ClearError, KnownDag, RequestError,
    scheduler::{NewRun, Selection},
    workers,
};

impl Execution {
    pub(super) async fn n_instances(&self, filter: TaskInstanceFilter) -> StateResult<u64> {
        let wanted = self.instances(filter, Grouped::Both).await?;
        let n = self.store.asked.count_wanted_instances(&wanted).await;
        n.map_err(unavailable)
    }

    pub(super) async fn states(&self, filter: TaskInstanceFilter) -> StateResult<TaskStates> {
        let wanted = self.instances(filter, Grouped::Either).await?;
        let found = self.store.asked.instance_states(&wanted).await;
        let mut states = TaskStates::default();
        for found in found.map_err(unavailable)? {
            let (key, state) = (&found.key, found.state.map(workers::task_state));
            states.add(&key.run.run_id, &key.task_id, key.map_index, state);
        }
        Ok(states)
    }

    /// The filter, with the tasks of its group.
    async fn instances(
        &self,
        filter: TaskInstanceFilter,
        grouped: Grouped,
    ) -> StateResult<InstancesWanted> {
        let mut task_ids = filter.task_ids.unwrap_or_default();
        if let Some(group_id) = &filter.task_group_id {
            let of_group = self.tasks_of_group(&filter.dag_id, group_id).await?;
            if task_ids.is_empty() {
                task_ids = of_group.into_iter().collect();
            } else if grouped == Grouped::Either {
                task_ids.extend(of_group);
            } else {
                task_ids.retain(|id| of_group.contains(id));
                if task_ids.is_empty() {
                    // No task has the id of a group: nothing is found.
                    task_ids.push(group_id.clone());
                }
            }
        }
        Ok(InstancesWanted {
            dag_id: filter.dag_id,
            map_index: filter.map_index,
            task_ids,
            logical_dates: instants(filter.logical_dates),
            run_ids: filter.run_ids.unwrap_or_default(),
            states: filter.states.unwrap_or_default(),
        })
    }

    /// The tasks of a group of the latest version of a DAG, those of the groups in it included.
    async fn tasks_of_group(&self, dag_id: &str, group_id: &str) -> StateResult<BTreeSet<String>> {
        let version = self.store.asked.latest_version(dag_id).await;
        let version = version.map_err(unavailable)?;
        let version = version.ok_or_else(|| ApiError::no_dag(dag_id))?;
        let document = self.document(&version).await?;
        let root = document.dag.task_group.as_ref();
        let group = root.and_then(|root| group(root, group_id));
        let group = group.ok_or_else(|| ApiError::no_task_group(group_id))?;
        let mut tasks = BTreeSet::new();
        collect(group, &mut tasks);
        if tasks.is_empty() {
            tasks.insert(group_id.to_owned());
        }
        Ok(tasks)
    }

    async fn document(&self, version: &DagVersion) -> StateResult<Document> {
        let stored = self.store.catalog.text(&version.document).await;
        let stored = stored.map_err(unavailable)?;
        let value = serde_json::from_str(stored.body()).map_err(StateError::unavailable)?;
        Document::read(value).map_err(StateError::unavailable)
    }

    /// The operators are those of the run's version.
    pub(super) async fn ended_tasks(&self, run: RunAddress) -> StateResult<Breadcrumbs> {
        let filter = TaskFilter {
            dag_id: Some(run.dag_id),
            run_id: Some(run.run_id),
            states: ENDED.map(Some).to_vec(),
            ..TaskFilter::default()
        };
        let rows = self.store.catalog.task_instances(&filter).await;
        let rows = rows.map_err(unavailable)?;
        let mut operators: BTreeMap<Uuid, BTreeMap<String, String>> = BTreeMap::new();
        let mut breadcrumbs = Vec::new();
        for row in &rows {
            let version = row.airflow.as_ref().map(|task| task.dag_version);
            if let Some(id) = version.filter(|id| !operators.contains_key(id)) {
                operators.insert(id, self.operators(id).await?);
            }
            let of_version = version.and_then(|id| operators.get(&id));
            let operator = of_version.and_then(|it| it.get(&row.key.task_id));
            breadcrumbs.push(breadcrumb(row, operator.map(String::as_str)));
        }
        Ok(Breadcrumbs { breadcrumbs })
    }

    /// The operator of each task of a version.
    async fn operators(&self, id: Uuid) -> StateResult<BTreeMap<String, String>> {
        let version = self
            .store
            .asked
            .version_row(id)
            .await
            .map_err(unavailable)?;
        let Some(version) = version else {
            return Ok(BTreeMap::new());
        };
        let document = self.document(&version).await?;
        let tasks = document.dag.tasks.iter();
        Ok(tasks
            .map(|task| {
                let shown = task.operator_name.as_ref();
                let operator = shown.unwrap_or(&task.task_type).clone();
                (task.task_id.clone(), operator)
            })
            .collect())
    }

    pub(super) async fn previous_of_task(
        &self,
        dag_id: String,
        task_id: String,
        query: PreviousTaskInstanceQuery,
    ) -> StateResult<Option<PreviousTaskInstance>> {
        let wanted = PreviousInstance {
            dag_id,
            task_id,
            map_index: query.map_index,
            before: query.logical_date.map(|at| at.0),
            state: query.state.map(|state| state.as_str().to_owned()),
        };
        let found = self.store.asked.previous_instance(&wanted).await;
        let found = found.map_err(unavailable)?;
        Ok(found.map(|(row, date)| PreviousTaskInstance {
            state: row.state.map(workers::task_state),
            logical_date: date.map(UtcDateTime),
            start_date: row.start_date.map(UtcDateTime),
            end_date: row.end_date.map(UtcDateTime),
            try_number: row.try_number,
            map_index: Some(row.key.map_index),
            duration: duration(&row),
            task_id: row.key.task_id,
            dag_id: row.key.run.dag_id,
            run_id: row.key.run.run_id,
        }))
    }

    pub(super) async fn find_dag(&self, dag_id: &str) -> StateResult<Option<DagAnswer>> {
        let Some(known) = self.dags.dag(dag_id) else {
            return Ok(None);
        };
        let version = self.store.asked.latest_version(dag_id).await;
        let version = version.map_err(unavailable)?;
        let bundle = version.as_ref().and_then(|it| it.bundle.clone());
        let next = known.next_run.as_ref();
        Ok(Some(DagAnswer {
            dag_id: dag_id.to_owned(),
            is_paused: known.is_paused,
            bundle_name: bundle.as_ref().map(|it| it.name.clone()),
            bundle_version: bundle.and_then(|it| it.version),
            relative_fileloc: version.map(|it| it.file).or(known.file),
            owners: None,
            tags: known.dag.map(|dag| dag.tags.clone()).unwrap_or_default(),
            next_dagrun: next.map(|run| UtcDateTime(run.logical_date)),
        }))
    }

    async fn row_of(&self, run: &RunAddress) -> StateResult<Option<Run>> {
        let row = self.store.asked.run_row(&run_key(run)).await;
        row.map_err(unavailable)
    }

    pub(super) async fn find_run(&self, run: &RunAddress) -> StateResult<Option<DagRun>> {
        Ok(self.row_of(run).await?.as_ref().map(workers::dag_run))
    }

    pub(super) async fn state_of_run(&self, run: &RunAddress) -> StateResult<Option<DagRunState>> {
        Ok(self.find_run(run).await?.map(|run| run.state))
    }

    pub(super) async fn n_runs(&self, filter: RunFilter) -> StateResult<u64> {
        let wanted = RunsWanted {
            dag_id: filter.dag_id,
            logical_dates: instants(filter.logical_dates),
            run_ids: filter.run_ids.unwrap_or_default(),
            states: filter.states.unwrap_or_default(),
        };
        let n = self.store.asked.count_wanted_runs(&wanted).await;
        n.map_err(unavailable)
    }

    pub(super) async fn previous(&self, query: PreviousRunQuery) -> StateResult<Option<DagRun>> {
        let state = query.state.map(|state| match state {
            DagRunState::Queued => RunState::Queued,
            DagRunState::Running => RunState::Running,
            DagRunState::Success => RunState::Success,
            DagRunState::Failed => RunState::Failed,
        });
        let before = query.logical_date.0;
        let found = self.store.asked.previous_run(&query.dag_id, before, state);
        Ok(found
            .await
            .map_err(unavailable)?
            .as_ref()
            .map(workers::dag_run))
    }

    /// The DAG of this name, of which a run may be made.
    async fn runnable(&self, dag_id: &str) -> StateResult<(KnownDag, Option<DagVersion>)> {
        let known = self.dags.dag(dag_id);
        let known = known.ok_or_else(|| ApiError::no_dag(dag_id))?;
        let version = self.store.asked.latest_version(dag_id).await;
        let version = version.map_err(unavailable)?;
        let mut is_broken = known.error.is_some() || known.dag.is_none();
        if let Some(version) = &version {
            let file = FileKey {
                bundle: version
                    .bundle
                    .as_ref()
                    .map(|it| it.name.clone())
                    .unwrap_or_default(),
                file: version.file.clone(),
            };
            let error = self.store.asked.has_import_error(&file).await;
            is_broken |= error.map_err(unavailable)?;
        }
        if is_broken {
            return Err(ApiError::import_errors(dag_id).into());
        }
        Ok((known, version))
    }

    /// A run that exists is refused, also where the worker asks for it to be cleared: the SDK does that by a request of
    /// its own.
    pub(super) async fn trigger(
        &self,
        caller: Uuid,
        run: RunAddress,
        trigger: TriggerDagRun,
    ) -> StateResult<()> {
        self.present(caller).await?;
        let (known, version) = self.runnable(&run.dag_id).await?;
        let (Some(dag), Some(dag_hash)) = (known.dag, known.dag_hash) else {
            return Err(ApiError::import_errors(&run.dag_id).into());
        };
        let is_its = |version: &DagVersion| version.document == dag_hash;
        let version = version.filter(is_its);
        let logical_date = trigger.logical_date.map(|at| at.0);
        let interval = logical_date.map(|at| dag.timetable.manual_interval(at));
        let bundle = version.as_ref().and_then(|it| it.bundle.clone());
        let details = RunDetails {
            run_after: trigger.run_after.map(|at| at.0).or(Some(self.now())),
            data_interval: interval.map(|it| (it.start, it.end)),
            dag_version: version.map(|it| it.id),
            bundle_version: bundle.and_then(|it| it.version),
            note: trigger.note,
            ..RunDetails::default()
        };
        let new = NewRun {
            dag,
            dag_hash,
            document: None,
            run_id: run.run_id.clone(),
            run_type: RunType::OperatorTriggered,
            logical_date,
            conf: Value::Object(trigger.conf),
            details,
        };
        match self.dags.request_run(new).await {
            Ok(_) => Ok(()),
            Err(RequestError::Exists(_)) => {
                Err(ApiError::run_exists(&run.dag_id, &run.run_id).into())
            }
            Err(RequestError::Store(error)) => Err(unavailable(error)),
        }
    }

    pub(super) async fn clear(&self, caller: Uuid, run: RunAddress) -> StateResult<()> {
        self.present(caller).await?;
        self.runnable(&run.dag_id).await?;
        match self.dags.clear(&run_key(&run), &Selection::default()).await {
            Ok(_) => Ok(()),
            Err(ClearError::UnknownRun(_)) => {
                Err(ApiError::no_dag_run(&run.dag_id, &run.run_id).into())
            }
            Err(error) => Err(StateError::unavailable(error)),
        }
    }
}

/// How a list of tasks and a group go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grouped {
    /// A task is in both.
    Both,
    /// A task is in one of them.
    Either,
}

/// The states of a task instance that has ended.
const ENDED: [TaskState; 5] = [
    TaskState::Success,
    TaskState::Failed,
    TaskState::Skipped,
    TaskState::UpstreamFailed,
    TaskState::Removed,
];

fn run_key(run: &RunAddress) -> RunKey {
    RunKey {
        dag_id: run.dag_id.clone(),
        run_id: run.run_id.clone(),
    }
}

fn instants(dates: Option<Vec<UtcDateTime>>) -> Vec<Timestamp> {
    dates.into_iter().flatten().map(|at| at.0).collect()
}

fn duration(row: &TaskInstance) -> Option<f64> {
    let time = row.end_date?.duration_since(row.start_date?);
    Some(time.as_secs_f64())
}

fn breadcrumb(row: &TaskInstance, operator: Option<&str>) -> Map<String, Value> {
    Map::from_iter([
        ("task_id".to_owned(), json!(row.key.task_id)),
        ("map_index".to_owned(), json!(row.key.map_index)),
        (
            "state".to_owned(),
            json!(row.state.map(workers::task_state)),
        ),
        ("operator".to_owned(), json!(operator)),
        ("duration".to_owned(), json!(duration(row))),
    ])
}

/// The group of this id in a group.
fn group<'a>(root: &'a TaskGroup, group_id: &str) -> Option<&'a TaskGroup> {
    root.children.iter().find_map(|(id, child)| match child {
        Child::Group(child) if id == group_id => Some(&**child),
        Child::Group(child) => group(child, group_id),
        Child::Task(_) => None,
    })
}

fn collect(group: &TaskGroup, tasks: &mut BTreeSet<String>) {
    for child in group.children.values() {
        match child {
            Child::Task(id) => {
                tasks.insert(id.clone());
            }
            Child::Group(child) => collect(child, tasks),
        }
    }
}
