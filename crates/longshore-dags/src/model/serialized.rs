//! A DAG as Airflow's parser wrote it, read into what the scheduler needs of it. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::SignedDuration;
use longshore_airflow::{
    serialized::{Document, Operator, Seconds, Settings, Timetable as Written, Var, WeightRule},
    worker::ExecutorConfig,
};
use serde_json::Value;

use super::{
    CanonicalError, DEFAULT_RETRY_DELAY, Dag, PythonDag, PythonTask, Task, TaskPart, Unsupported,
    WeightRule as Rule,
};
use crate::timetable::{Timetable, TimetableError};

/// Why a DAG that the parser wrote cannot be scheduled.
#[derive(Debug, thiserror::Error)]
pub enum NotSchedulable {
    /// Its timetable cannot be read.
    #[error("DAG `{dag_id}` has a timetable that cannot be followed")]
    Timetable {
        /// The DAG.
        dag_id: String,
        /// Why.
        source: TimetableError,
    },
    /// Its tasks are no graph.
    #[error("DAG `{dag_id}` has tasks that cannot be ordered")]
    Graph {
        /// The DAG.
        dag_id: String,
        /// Why.
        source: Box<CanonicalError>,
    },
}

impl Dag {
    /// What the scheduler needs of a DAG from Python.
    ///
    /// # Errors
    /// Its timetable or the order of its tasks cannot be followed.
    pub fn of_document(document: &Document) -> Result<Self, NotSchedulable> {
        let said = &document.dag;
        let settings = &said.settings;
        let dag_id = &said.dag_id;
        let written = settings.timetable.as_ref();
        let timetable = written.map_or(Ok(Timetable::Null), read_timetable);
        let timetable = timetable.map_err(|source| NotSchedulable::Timetable {
            dag_id: dag_id.clone(),
            source,
        })?;
        let bounds = said.bounds();
        let at_most = timetable.max_active_runs().unwrap_or(u32::MAX);
        let mut dag = Self {
            dag_id: dag_id.clone(),
            description: settings.description.clone(),
            schedule: written.and_then(schedule_text),
            start_date: bounds.earliest,
            end_date: bounds.latest,
            catchup: settings.catchup(),
            is_paused_upon_creation: settings.is_paused_upon_creation.unwrap_or(true),
            params: params(document),
            max_active_runs: count(settings.max_active_runs()).min(at_most),
            max_active_tasks: count(settings.max_active_tasks()),
            dagrun_timeout: settings.dagrun_timeout.as_ref().map(length),
            tags: settings.tags(),
            files: BTreeMap::new(),
            workspace: None,
            tasks: tasks(document),
            python: Some(PythonDag {
                is_unpinned: settings.disable_bundle_versioning(),
                unsupported: unsupported(document, &timetable),
            }),
            timetable,
        };
        dag.check_stored().map_err(|source| NotSchedulable::Graph {
            dag_id: dag_id.clone(),
            source: Box::new(source),
        })?;
        dag.link();
        Ok(dag)
    }
}

fn read_timetable(written: &Written) -> Result<Timetable, TimetableError> {
    Timetable::from_encoded(&written.of_time().to_json())
}

/// The schedule as its author would write it, for people.
fn schedule_text(written: &Written) -> Option<String> {
    let steps = |encoded: &Value| match encoded.as_f64() {
        Some(seconds) => format!("every {seconds} s"),
        None => format!("every {encoded}"),
    };
    let delta = || steps(&written.to_json()["__var"]["delta"]);
    Some(match written {
        Written::Null(_) => return None,
        Written::Once(_) => "@once".to_owned(),
        Written::Continuous(_) => "@continuous".to_owned(),
        Written::CronTrigger(fields) => fields.expression.clone(),
        Written::CronDataInterval(fields) => fields.expression.clone(),
        Written::MultipleCronTrigger(fields) => fields.expressions.join(", "),
        Written::DeltaTrigger(_) | Written::DeltaDataInterval(_) => delta(),
        Written::AssetTriggered(_) => "assets".to_owned(),
        Written::AssetOrTime(fields) => match schedule_text(&fields.timetable) {
            Some(time) => format!("assets or {time}"),
            None => "assets".to_owned(),
        },
        Written::Events(fields) => format!("{} events", fields.event_dates.len()),
        Written::Other { class, .. } => class.clone(),
    })
}

/// The defaults of a run's parameters. Values that JSON does not have stay as Airflow encodes them.
fn params(document: &Document) -> BTreeMap<String, Value> {
    let params = document.dag.settings.params();
    let params = params.0.into_iter();
    let default = |default: Option<Var>| default.map_or(Value::Null, |it| it.to_plain());
    params
        .map(|(name, param)| (name, default(param.default)))
        .collect()
}

fn tasks(document: &Document) -> BTreeMap<String, Task> {
    let upstream = document.dag.upstream();
    let tasks = document.dag.tasks.iter().map(|operator| {
        let mut task = task(document, operator);
        let before = upstream
            .get(operator.task_id.as_str())
            .into_iter()
            .flatten();
        task.upstream = before.map(|id| (*id).to_owned()).collect();
        (task.task_id.clone(), task)
    });
    tasks.collect()
}

fn task(document: &Document, operator: &Operator) -> Task {
    let said = document.settings(operator);
    let delay = said.retry_delay.as_ref();
    Task {
        task_id: operator.task_id.clone(),
        image: None,
        command: Vec::new(),
        args: Vec::new(),
        env: Vec::new(),
        upstream: BTreeSet::new(),
        downstream: BTreeSet::new(),
        retries: count(said.retries()),
        retry_delay: delay.map_or(DEFAULT_RETRY_DELAY, length),
        retry_exponential_backoff: said.retry_exponential_backoff().factor(),
        max_retry_delay: said.max_retry_delay.as_ref().map(length),
        // The worker ends it.
        execution_timeout: None,
        trigger_rule: said.trigger_rule(),
        pool: said.pool(),
        pool_slots: count(said.pool_slots()),
        priority_weight: said.priority_weight(),
        weight_rule: match said.weight_rule() {
            WeightRule::Absolute => Rule::Absolute,
            WeightRule::Upstream => Rule::Upstream,
            WeightRule::Downstream | WeightRule::Custom(_) => Rule::Downstream,
        },
        max_active_tis_per_dag: said.max_active_tis_per_dag.map(count),
        plugin: None,
        is_setup: said.is_setup(),
        is_teardown: said.is_teardown(),
        pod_override: None,
        python: Some(Box::new(PythonTask {
            operator: operator.task_type.clone(),
            queue: said.queue(),
            is_empty: needs_no_worker(operator, &said),
            executor_config: executor_config(&said),
        })),
    }
}

/// Upstream's rule (`DagRun.schedule_tis`): an EmptyOperator with nothing that a worker would have to do.
fn needs_no_worker(operator: &Operator, said: &Settings) -> bool {
    operator.is_empty == Some(true)
        && operator.start_from_trigger != Some(true)
        && !said.has_on_execute_callback()
        && !said.has_on_success_callback()
        && said.inlets().is_empty()
        && said.outlets().is_empty()
}

fn executor_config(said: &Settings) -> Result<ExecutorConfig, String> {
    let config = said.executor_config.as_ref();
    let config = config.map_or(Value::Null, Var::to_json);
    ExecutorConfig::read(&config).map_err(|why| why.to_string())
}

/// What Airflow does for this DAG and this version does not.
fn unsupported(document: &Document, timetable: &Timetable) -> Vec<Unsupported> {
    let settings = &document.dag.settings;
    let has_assets = matches!(
        settings.timetable,
        Some(Written::AssetTriggered(_) | Written::AssetOrTime(_))
    );
    let is_by_assets = matches!(settings.timetable, Some(Written::AssetTriggered(_)));
    let class = match timetable {
        Timetable::Unsupported { class } => Some(class.clone()).filter(|_| !is_by_assets),
        Timetable::Null
        | Timetable::Once
        | Timetable::Continuous
        | Timetable::CronTrigger(_)
        | Timetable::DeltaTrigger { .. }
        | Timetable::MultipleCronTrigger(_)
        | Timetable::CronDataInterval(_)
        | Timetable::DeltaDataInterval(_) => None,
    };
    let has_callbacks = settings.has_on_success_callback() || settings.has_on_failure_callback();
    let mut found = Vec::new();
    found.extend(class.map(|class| Unsupported::Timetable { class }));
    for (is_there, part) in [
        (has_assets, Unsupported::AssetSchedule),
        (has_callbacks, Unsupported::RunCallbacks),
        (settings.deadline.is_some(), Unsupported::Deadline),
        (settings.fail_fast(), Unsupported::FailFast),
        (
            settings.max_consecutive_failed_dag_runs() > 0,
            Unsupported::PauseAfterFailures,
        ),
    ] {
        found.extend(is_there.then_some(part));
    }
    for part in TaskPart::ALL {
        let tasks = document.dag.tasks.iter();
        let tasks = tasks.filter(|task| has_part(document, task, part));
        let tasks: Vec<String> = tasks.map(|task| task.task_id.clone()).collect();
        if !tasks.is_empty() {
            found.push(Unsupported::Tasks(part, tasks));
        }
    }
    found
}

fn has_part(document: &Document, task: &Operator, part: TaskPart) -> bool {
    let said = || document.settings(task);
    match part {
        TaskPart::Mapped => !document.dag.expansions(task).is_empty(),
        TaskPart::Past => said().depends_on_past() || said().wait_for_downstream(),
        TaskPart::Skips => task.can_skip_downstream == Some(true),
        TaskPart::LimitPerRun => said().max_active_tis_per_dagrun.is_some(),
        TaskPart::Weight => matches!(said().weight_rule(), WeightRule::Custom(_)),
        TaskPart::StartTrigger => task.start_from_trigger == Some(true),
        TaskPart::FailingTeardown => said().on_failure_fail_dagrun(),
        TaskPart::Executor => said().executor.is_some(),
    }
}

/// Airflow takes any integer; fewer than none is none.
fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// A length of time that goes back is none.
fn length(seconds: &Seconds) -> Duration {
    let length: SignedDuration = seconds.duration();
    Duration::try_from(length).unwrap_or_default()
}
