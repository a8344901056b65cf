//! What only DAGs from Python have: Airflow's parser made them of a DAG file.

use std::fmt;

use longshore_airflow::worker::ExecutorConfig;

/// What a DAG from Python has beside the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PythonDag {
    /// Whether its runs take the newest files of their bundle, and not those of the version that they are pinned to.
    pub is_unpinned: bool,
    /// What Airflow does for it and this version does not, each once.
    pub unsupported: Vec<Unsupported>,
}

/// What a task from Python has beside the rest. Its worker reads everything else from the DAG file.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonTask {
    /// The class of its operator.
    pub operator: String,
    /// The queue of the executor.
    pub queue: String,
    /// Whether it does nothing, so that it succeeds without a worker.
    pub is_empty: bool,
    /// What its pod has of its own; or why that cannot be used, and then the task fails.
    pub executor_config: Result<ExecutorConfig, String>,
}

/// A part of a DAG that Airflow follows, and this version does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unsupported {
    /// It has a timetable that is Python code, or lists events.
    Timetable {
        /// The whole name of the class.
        class: String,
    },
    /// Assets start it.
    AssetSchedule,
    /// Callbacks follow the end of a run.
    RunCallbacks,
    /// It has deadlines.
    Deadline,
    /// The first failed task ends the run.
    FailFast,
    /// It is paused after failed runs.
    PauseAfterFailures,
    /// Something about some of its tasks.
    Tasks(TaskPart, Vec<String>),
}

/// Something about a task that this version does not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskPart {
    /// It is mapped, or in a mapped group.
    Mapped,
    /// It depends on the run before.
    Past,
    /// It may skip tasks after it.
    Skips,
    /// It has a limit of instances in one run.
    LimitPerRun,
    /// Its weight is computed by Python code.
    Weight,
    /// It waits for a trigger before it has a worker.
    StartTrigger,
    /// It is a teardown whose failure fails the run.
    FailingTeardown,
    /// It names another executor.
    Executor,
}

impl TaskPart {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Mapped,
        Self::Past,
        Self::Skips,
        Self::LimitPerRun,
        Self::Weight,
        Self::StartTrigger,
        Self::FailingTeardown,
        Self::Executor,
    ];

    /// What happens instead.
    fn instead(self) -> &'static str {
        match self {
            Self::Mapped => "mapped tasks have one instance each, which fails",
            Self::Past => "`depends_on_past` and `wait_for_downstream` are not looked at",
            Self::Skips => "the tasks that a branch does not follow are not skipped",
            Self::LimitPerRun => "`max_active_tis_per_dagrun` does not hold",
            Self::Weight => "a `weight_rule` of one's own counts as `downstream`",
            Self::StartTrigger => "`start_from_trigger` has no effect: a worker begins",
            Self::FailingTeardown => "`on_failure_fail_dagrun` has no effect",
            Self::Executor => "`executor` has no effect: each task has a pod",
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timetable { class } => {
                write!(f, "timetable `{class}` is not known: no time starts a run")
            }
            Self::AssetSchedule => f.write_str("a schedule of assets starts no run"),
            Self::RunCallbacks => f.write_str("callbacks about runs are not called"),
            Self::Deadline => f.write_str("`deadline` has no effect"),
            Self::FailFast => f.write_str("`fail_fast` has no effect"),
            Self::PauseAfterFailures => {
                f.write_str("`max_consecutive_failed_dag_runs` does not pause it")
            }
            Self::Tasks(part, tasks) => {
                write!(f, "{} ({})", part.instead(), tasks.join(", "))
            }
        }
    }
}
