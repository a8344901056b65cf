//! A DAG and its document.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    check,
    error::{Problem, Unreadable},
    group::TaskGroup,
    operator::{Operator, Task},
    params::Params,
    record::{Json, Members, members, record},
    settings::{ClientDefaults, Settings},
    time::{Moment, Seconds, Zone},
    timetable::Timetable,
    value::Var,
    xcom::ExpandInput,
};
use crate::pointer::Place;

/// The version of the format that is read: that of Airflow 3.1 and newer.
const VERSION: i64 = 3;

members! {
    /// Members of a DAG that it may leave out (spec section 5.2).
    pub struct DagSettings {
        /// What the page shows for the id.
        "dag_display_name" display_name: String,
        /// For people.
        "description" description: String,
        /// Documentation, as Markdown.
        "doc_md" doc_md: String,
        /// Path of the file, beneath the folder of its bundle.
        "relative_fileloc" relative_fileloc: String,
        /// The folder where Airflow looked for DAGs.
        "_processor_dags_folder" processor_dags_folder: String,
        /// The zone of its times.
        "timezone" timezone: Zone,
        /// When it runs.
        "timetable" timetable: Timetable,
        /// No run before it.
        "start_date" start_date: Moment,
        /// No run after it.
        "end_date" end_date: Moment,
        /// Whether runs that were missed are made up for.
        "catchup" catchup: bool = false,
        /// Types of runs that it may have; all where it does not say.
        "allowed_run_types" allowed_run_types: Vec<String>,
        /// Task instances at the same time, in one run.
        "max_active_tasks" max_active_tasks: i64 = 16,
        /// Runs at the same time.
        "max_active_runs" max_active_runs: i64 = 16,
        /// It is paused after so many failed runs in a row; 0 is never.
        "max_consecutive_failed_dag_runs" max_consecutive_failed_dag_runs: i64 = 0,
        /// A run fails after this time.
        "dagrun_timeout" dagrun_timeout: Seconds,
        /// What is due by when, as Airflow writes it.
        "deadline" deadline: Value,
        /// Whether the first failed task ends the run.
        "fail_fast" fail_fast: bool = false,
        /// Whether it is paused when it is first seen; that of the configuration where it does not say.
        "is_paused_upon_creation" is_paused_upon_creation: bool,
        /// Words to find it by.
        "tags" tags: Vec<String> = Vec::new(),
        /// Links of its owners.
        "owner_links" owner_links: BTreeMap<String, Value>,
        /// Arguments that its tasks had in common: a `dict`. They are in the tasks already.
        "default_args" default_args: Var,
        /// Parameters of a run.
        "params" params: Params = Params::default(),
        /// Who may do what with it: a `dict`.
        "access_control" access_control: Var,
        /// Whether there is a callback for the success of a run.
        "has_on_success_callback" has_on_success_callback: bool = false,
        /// Whether there is a callback for the failure of a run.
        "has_on_failure_callback" has_on_failure_callback: bool = false,
        /// Whether templates give Python objects.
        "render_template_as_native_obj" render_template_as_native_obj: bool = false,
        /// Texts on edges: by task, and the task after it.
        "edge_info" edge_info: BTreeMap<String, BTreeMap<String, EdgeInfo>>,
        /// What it has to do with other DAGs and with assets.
        "dag_dependencies" dag_dependencies: Vec<DagDependency>,
        /// Whether its runs take the newest files of their bundle, and not those of the run's version.
        "disable_bundle_versioning" disable_bundle_versioning: bool = false,
        /// Whether a run that is cleared takes the newest version.
        "rerun_with_latest_version" rerun_with_latest_version: bool,
        /// An old name of `max_active_tasks`.
        "_concurrency" concurrency: i64,
    }
}

record! {
    /// A DAG.
    pub struct Dag {
        /// Its id.
        "dag_id" needs dag_id: String,
        /// Path of its file.
        "fileloc" needs fileloc: String,
        /// Its tasks, in the order of the file.
        "tasks" needs tasks: Tasks,
        /// How they are nested. A document without has them all in one group.
        "task_group" may task_group: TaskGroup,
        flat {
            /// The rest of what it says.
            settings: DagSettings,
        }
    }
}

record! {
    /// What an edge says.
    pub struct EdgeInfo {
        /// Text of the page.
        "label" may label: String,
    }
}

record! {
    /// One DAG or asset starts another, or waits for it.
    pub struct DagDependency {
        /// Id of a DAG, or `asset` and the like.
        "source" may source: String,
        /// Id of a DAG, or `asset` and the like.
        "target" may target: String,
        /// What the page shows.
        "label" may label: String,
        /// `trigger`, `sensor`, `asset` …
        "dependency_type" may dependency_type: String,
        /// Id of the task or of the asset.
        "dependency_id" may dependency_id: String,
    }
}

/// Tasks, in the order of the DAG file. Each id is there once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tasks {
    list: Vec<Task>,
    /// Where in the list each one is.
    places: BTreeMap<String, usize>,
}

impl Tasks {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Operator> {
        self.list.iter().map(|Task(operator)| operator)
    }

    /// The one with that id.
    #[must_use]
    pub fn get(&self, task_id: &str) -> Option<&Operator> {
        let Task(operator) = self.list.get(*self.places.get(task_id)?)?;
        Some(operator)
    }
}

impl Json for Tasks {
    fn read(value: Value, at: &Place<'_>) -> Result<Self, Unreadable> {
        let list = Vec::<Task>::read(value, at)?;
        let mut places = BTreeMap::new();
        for (index, Task(operator)) in list.iter().enumerate() {
            if places.insert(operator.task_id.clone(), index).is_some() {
                let (item, found) = (at.item(index), operator.task_id.clone());
                let at = item.member("__var");
                return Err(Unreadable::new(
                    &at.member("task_id"),
                    Problem::Twice { found },
                ));
            }
        }
        Ok(Self { list, places })
    }

    fn write(&self) -> Value {
        self.list.write()
    }
}

/// The document of a DAG: what Airflow's parser makes of a DAG file, for each DAG in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The DAG.
    pub dag: Dag,
    /// What its tasks have in common.
    pub client_defaults: Option<ClientDefaults>,
    rest: serde_json::Map<String, Value>,
}

/// The times between which a DAG runs (upstream: `_time_restriction`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The earliest start of the DAG and of its tasks.
    pub earliest: Option<Timestamp>,
    /// The latest end of the DAG and of its tasks; none where a task has no end.
    pub latest: Option<Timestamp>,
}

impl Document {
    /// The names of the members that are read.
    pub const MEMBERS: &'static [&'static str] = &["__version", "dag", "client_defaults"];

    /// Reads a document, and sees that what it refers to is there.
    ///
    /// # Errors
    /// It has another version or another form, or names a task or group that it does not have. The error says where.
    pub fn read(document: Value) -> Result<Self, Unreadable> {
        let at = Place::ROOT;
        let mut members = Members::of(document, &at)?;
        let version: Value = members.needs("__version")?;
        if version != VERSION {
            let found = version.to_string();
            return Err(Unreadable::new(
                &at.member("__version"),
                Problem::Version { found },
            ));
        }
        let dag = members.needs("dag")?;
        check::references(&dag, &at.member("dag"))?;
        Ok(Self {
            dag,
            client_defaults: members.may("client_defaults")?,
            rest: members.rest(),
        })
    }

    /// The document, as it was read.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut map = self.rest.clone();
        map.insert("__version".to_owned(), VERSION.into());
        map.insert("dag".to_owned(), self.dag.write());
        if let Some(defaults) = &self.client_defaults {
            map.insert("client_defaults".to_owned(), defaults.write());
        }
        map.into()
    }

    /// What holds for a task: what it says itself (a mapped one: its `partial_kwargs` first), else what all tasks of the
    /// document have in common, else Airflow's defaults. Dates and templates are the DAG's where the task says nothing.
    #[must_use]
    pub fn settings(&self, task: &Operator) -> Settings {
        let mut settings = task.settings.clone();
        if let Some(partial) = task.partial_kwargs.as_ref() {
            settings = partial.settings.or(&settings);
        }
        let common = self.client_defaults.as_ref();
        if let Some(tasks) = common.and_then(|defaults| defaults.tasks.as_ref()) {
            settings = settings.or(&tasks.settings);
        }
        let dag = &self.dag.settings;
        let of_dag = Settings {
            start_date: dag.start_date.clone(),
            end_date: dag.end_date.clone(),
            render_template_as_native_obj: Some(dag.render_template_as_native_obj()),
            ..Settings::defaults()
        };
        settings.or(&of_dag)
    }
}

impl Dag {
    /// For each task, the tasks directly before it.
    #[must_use]
    pub fn upstream(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut upstream: BTreeMap<&str, BTreeSet<&str>> = self
            .tasks
            .iter()
            .map(|task| (task.task_id.as_str(), BTreeSet::new()))
            .collect();
        for task in self.tasks.iter() {
            for after in task.downstream() {
                upstream.entry(after).or_default().insert(&task.task_id);
            }
        }
        upstream
    }

    /// The groups that a task is in, from the root down.
    #[must_use]
    pub fn groups_of(&self, task_id: &str) -> Vec<&TaskGroup> {
        let root = self.task_group.as_ref();
        root.and_then(|root| root.path(task_id)).unwrap_or_default()
    }

    /// All that a task is mapped over: that of its mapped groups from the outermost, and then its own. Empty where it
    /// has one instance.
    #[must_use]
    pub fn expansions<'a>(&'a self, task: &'a Operator) -> Vec<&'a ExpandInput> {
        let groups = self.groups_of(&task.task_id).into_iter();
        groups
            .filter_map(TaskGroup::expansion)
            .chain(task.expansion())
            .collect()
    }

    /// How many instances a task has in a run (spec section 8), `of_task` as for [`XcomRef::length`]; `None` until all
    /// lengths are known. A task that is not mapped has one.
    ///
    /// [`XcomRef::length`]: super::XcomRef::length
    pub fn n_instances(
        &self,
        task: &Operator,
        of_task: &dyn Fn(&str) -> Option<u64>,
    ) -> Option<u64> {
        let mut expansions = self.expansions(task).into_iter();
        expansions.try_fold(1_u64, |product, expansion| {
            Some(product.saturating_mul(expansion.length(of_task)?))
        })
    }

    /// The times between which it runs.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let moment = |moment: &Option<Moment>| moment.as_ref().map(Moment::timestamp);
        let dates = |task: &Operator| {
            let partial = task.partial_kwargs.as_ref();
            let settings = partial.map_or(task.settings.clone(), |partial| {
                partial.settings.or(&task.settings)
            });
            (moment(&settings.start_date), moment(&settings.end_date))
        };
        let dates: Vec<_> = self.tasks.iter().map(dates).collect();
        let starts = dates.iter().filter_map(|(start, _)| *start);
        let ends = dates.iter().filter_map(|(_, end)| *end);
        let end = moment(&self.settings.end_date);
        // A task without an end of its own has the DAG's.
        let all_end = end.is_some() || dates.iter().all(|(_, end)| end.is_some());
        Bounds {
            earliest: starts.chain(moment(&self.settings.start_date)).min(),
            latest: ends.chain(end).max().filter(|_| all_end),
        }
    }
}
