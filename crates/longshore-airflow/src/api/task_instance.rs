//! Bodies about task instances.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::{
    asset::AssetProfile,
    dag_run::DagRun,
    store::{Connection, Variable},
    time::{IsoDuration, UtcDateTime},
    words::{IntermediateTiState, TaskInstanceState, TerminalStateNonSuccess},
};

/// The longest reason of a retry that is kept, in characters. The server cuts a longer one.
pub const MAX_RETRY_REASON: usize = 500;

/// A worker begins to run a task instance: body of `/run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnterRunning {
    /// Always `running`.
    pub state: RunningState,
    /// The worker's host.
    pub hostname: String,
    /// The user whose process it is.
    pub unixname: String,
    /// The process on that host.
    pub pid: i64,
    /// When it began.
    pub start_date: UtcDateTime,
}

/// The one state in which a worker can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunningState {
    /// The task runs.
    Running,
}

impl EnterRunning {
    /// Whether a repeated request comes from the process that is known to run the task instance. The server answers it
    /// as the first one, because the worker may have lost that answer.
    #[must_use]
    pub fn is_repeated_by(&self, hostname: &str, unixname: &str, pid: i64) -> bool {
        (self.hostname.as_str(), self.unixname.as_str(), self.pid) == (hostname, unixname, pid)
    }
}

/// A worker is alive: body of `/heartbeat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatInfo {
    /// The worker's host.
    pub hostname: String,
    /// The process on that host.
    pub pid: i64,
}

/// What became of a task instance: body of `/state`.
#[derive(Clone, Debug, PartialEq)]
pub enum StateUpdate {
    /// It ended without success.
    Terminal(TerminalUpdate),
    /// It succeeded.
    Success(SuccessUpdate),
    /// It waits for a trigger.
    Deferred(DeferredUpdate),
    /// It looks again later.
    Reschedule(RescheduleUpdate),
    /// It waits for a human.
    AwaitingInput(AwaitingInputUpdate),
    /// It failed, and asks for another try.
    Retry(RetryUpdate),
    /// Any other state. No worker sends one; upstream fails the task instance.
    Target(TargetUpdate),
}

impl StateUpdate {
    /// The state that the task instance is to have. A repeated request that asks for the present state is answered 200.
    #[must_use]
    pub fn state(&self) -> TaskInstanceState {
        match self {
            Self::Terminal(update) => update.state.into(),
            Self::Success(_) => TaskInstanceState::Success,
            Self::Deferred(_) => TaskInstanceState::Deferred,
            Self::Reschedule(_) => TaskInstanceState::UpForReschedule,
            Self::AwaitingInput(_) => TaskInstanceState::AwaitingInput,
            Self::Retry(_) => TaskInstanceState::UpForRetry,
            Self::Target(update) => update.state.into(),
        }
    }
}

impl Serialize for StateUpdate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Alternatives with one state only do not hold it.
        #[derive(Serialize)]
        struct Tagged<'a, T> {
            state: TaskInstanceState,
            #[serde(flatten)]
            update: &'a T,
        }
        let state = self.state();
        match self {
            Self::Terminal(update) => update.serialize(serializer),
            Self::Success(update) => Tagged { state, update }.serialize(serializer),
            Self::Deferred(update) => Tagged { state, update }.serialize(serializer),
            Self::Reschedule(update) => Tagged { state, update }.serialize(serializer),
            Self::AwaitingInput(update) => Tagged { state, update }.serialize(serializer),
            Self::Retry(update) => Tagged { state, update }.serialize(serializer),
            Self::Target(update) => update.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StateUpdate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use TaskInstanceState as State;
        let body = Map::deserialize(deserializer)?;
        let state = body.get("state").unwrap_or(&Value::Null);
        let state = State::deserialize(state).map_err(de::Error::custom)?;
        let mut rest = body.clone();
        rest.remove("state");
        let (body, rest) = (Value::Object(body), Value::Object(rest));
        let update = match state {
            State::Failed | State::Skipped | State::Removed | State::UpstreamFailed => {
                serde_json::from_value(body).map(Self::Terminal)
            }
            State::Success => serde_json::from_value(rest).map(Self::Success),
            State::Deferred => serde_json::from_value(rest).map(Self::Deferred),
            State::UpForReschedule => serde_json::from_value(rest).map(Self::Reschedule),
            State::AwaitingInput => serde_json::from_value(rest).map(Self::AwaitingInput),
            State::UpForRetry => serde_json::from_value(rest).map(Self::Retry),
            State::Scheduled | State::Queued | State::Running | State::Restarting => {
                serde_json::from_value(body).map(Self::Target)
            }
        };
        update.map_err(de::Error::custom)
    }
}

impl From<TerminalStateNonSuccess> for TaskInstanceState {
    fn from(state: TerminalStateNonSuccess) -> Self {
        match state {
            TerminalStateNonSuccess::Failed => Self::Failed,
            TerminalStateNonSuccess::Skipped => Self::Skipped,
            TerminalStateNonSuccess::Removed => Self::Removed,
            TerminalStateNonSuccess::UpstreamFailed => Self::UpstreamFailed,
        }
    }
}

impl From<IntermediateTiState> for TaskInstanceState {
    fn from(state: IntermediateTiState) -> Self {
        match state {
            IntermediateTiState::Scheduled => Self::Scheduled,
            IntermediateTiState::Queued => Self::Queued,
            IntermediateTiState::Restarting => Self::Restarting,
            IntermediateTiState::UpForRetry => Self::UpForRetry,
            IntermediateTiState::UpForReschedule => Self::UpForReschedule,
            IntermediateTiState::Deferred => Self::Deferred,
            IntermediateTiState::AwaitingInput => Self::AwaitingInput,
        }
    }
}

/// The task ended without success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalUpdate {
    /// How it ended.
    pub state: TerminalStateNonSuccess,
    /// When.
    pub end_date: UtcDateTime,
    /// The name of a mapped task instance for people.
    #[serde(default)]
    pub rendered_map_index: Option<String>,
}

/// The task succeeded. The body's `state` is `success`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuccessUpdate {
    /// When.
    pub end_date: UtcDateTime,
    /// The task's outlets.
    #[serde(default)]
    pub task_outlets: Vec<AssetProfile>,
    /// What the task says about its outlets: `dest_asset_key`, `extra`, `source_alias_name`, `partition_key`, ….
    #[serde(default)]
    pub outlet_events: Vec<Map<String, Value>>,
    /// The name of a mapped task instance for people.
    #[serde(default)]
    pub rendered_map_index: Option<String>,
}

/// The task waits for a trigger. The body's `state` is `deferred`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeferredUpdate {
    /// The trigger's class.
    pub classpath: String,
    /// The trigger's arguments. The server stores them as they are.
    #[serde(default)]
    pub trigger_kwargs: Kwargs,
    /// How long to wait for the trigger, from the request on.
    #[serde(default)]
    pub trigger_timeout: Option<IsoDuration>,
    /// The queue of the trigger.
    #[serde(default)]
    pub queue: Option<String>,
    /// The operator's method that goes on.
    pub next_method: String,
    /// Its arguments. The server stores them as they are.
    #[serde(default)]
    pub next_kwargs: Map<String, Value>,
    /// The name of a mapped task instance for people.
    #[serde(default)]
    pub rendered_map_index: Option<String>,
}

/// Arguments of a Python call: an object of values in the form of serde, or a text that the client encrypted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Kwargs {
    /// By name.
    Plain(Map<String, Value>),
    /// Encrypted.
    Encrypted(String),
}

impl Default for Kwargs {
    fn default() -> Self {
        Self::Plain(Map::new())
    }
}

/// A sensor looks again later. The body's `state` is `up_for_reschedule`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RescheduleUpdate {
    /// When it looks again.
    pub reschedule_date: UtcDateTime,
    /// When this look ended.
    pub end_date: UtcDateTime,
}

/// The task waits for a human. The body's `state` is `awaiting_input`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitingInputUpdate {
    /// How long to wait, from the request on.
    #[serde(default)]
    pub timeout: Option<IsoDuration>,
    /// The operator's method that goes on.
    pub next_method: String,
    /// Its arguments.
    #[serde(default)]
    pub next_kwargs: Map<String, Value>,
    /// The name of a mapped task instance for people.
    #[serde(default)]
    pub rendered_map_index: Option<String>,
}

/// The task failed, and asks for another try. The body's `state` is `up_for_retry`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryUpdate {
    /// When it failed.
    pub end_date: UtcDateTime,
    /// The name of a mapped task instance for people.
    #[serde(default)]
    pub rendered_map_index: Option<String>,
    /// The delay of a retry policy, in seconds, instead of the task's.
    #[serde(default)]
    pub retry_delay_seconds: Option<f64>,
    /// The reason of a retry policy; see [`MAX_RETRY_REASON`].
    #[serde(default)]
    pub retry_reason: Option<String>,
}

/// Any other state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetUpdate {
    /// The state.
    pub state: IntermediateTiState,
}

/// A branch was taken: body of `/skip-downstream`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkipDownstream {
    /// The task instances that are skipped unless they run or have ended.
    pub tasks: Vec<SkippedTask>,
}

/// A task, or one instance of a mapped one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SkippedTask {
    /// The unmapped instance of a task.
    Task(String),
    /// The instance with this map index, -1 for the unmapped one.
    Instance(String, i32),
}

impl SkippedTask {
    /// The task and the map index.
    #[must_use]
    pub fn address(&self) -> (&str, i32) {
        match self {
            Self::Task(task_id) => (task_id, -1),
            Self::Instance(task_id, map_index) => (task_id, *map_index),
        }
    }
}

/// What a task needs to run: answer of `/run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunContext {
    /// The run.
    pub dag_run: DagRun,
    /// How often the sensor was rescheduled.
    #[serde(default)]
    pub task_reschedule_count: u32,
    /// The last try that a failure may use up.
    pub max_tries: u32,
    /// Always empty: workers ask for each.
    #[serde(default)]
    pub variables: Vec<Variable>,
    /// Always empty: workers ask for each.
    #[serde(default)]
    pub connections: Vec<Connection>,
    /// The keys of XComs of an earlier try, which the worker deletes. Empty when the task goes on after a deferral.
    #[serde(default)]
    pub xcom_keys_to_clear: Vec<String>,
    /// Whether a failure asks for another try: see [`should_retry`].
    #[serde(default)]
    pub should_retry: bool,
    /// The operator's method that goes on after a deferral. Left out otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_method: Option<String>,
    /// Its arguments. Left out where there is no method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_kwargs: Option<Kwargs>,
    /// When the task began before its deferral. Left out where there is no method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_date: Option<UtcDateTime>,
}

/// Whether a failure of this try asks for another one (spec 4).
#[must_use]
pub fn should_retry(previous: Option<TaskInstanceState>, try_number: u32, max_tries: u32) -> bool {
    previous == Some(TaskInstanceState::Restarting) || (max_tries != 0 && try_number <= max_tries)
}

/// The last successful run before that of a task instance. All are null where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PreviousSuccessfulRun {
    /// Begin of its data interval.
    pub data_interval_start: Option<UtcDateTime>,
    /// End of its data interval.
    pub data_interval_end: Option<UtcDateTime>,
    /// When it started.
    pub start_date: Option<UtcDateTime>,
    /// When it ended.
    pub end_date: Option<UtcDateTime>,
}

/// The instance of a task in an earlier run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreviousTaskInstance {
    /// The task.
    pub task_id: String,
    /// The DAG.
    pub dag_id: String,
    /// The run.
    pub run_id: String,
    /// The run's logical date.
    #[serde(default)]
    pub logical_date: Option<UtcDateTime>,
    /// When it began.
    #[serde(default)]
    pub start_date: Option<UtcDateTime>,
    /// When it ended.
    #[serde(default)]
    pub end_date: Option<UtcDateTime>,
    /// Its state, if it has one.
    #[serde(default)]
    pub state: Option<TaskInstanceState>,
    /// Its try.
    pub try_number: u32,
    /// Its map index, -1 where the task is not mapped.
    #[serde(default)]
    pub map_index: Option<i32>,
    /// How long it ran, in seconds.
    #[serde(default)]
    pub duration: Option<f64>,
}

/// States by run, and in each run by task: `task_id`, or `task_id_<map index>` of a mapped one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskStates {
    /// By run, then by task.
    pub task_states: Map<String, Value>,
}

impl TaskStates {
    /// Adds a task instance. `map_index` is -1 where the task is not mapped.
    pub fn add(
        &mut self,
        run_id: &str,
        task_id: &str,
        map_index: i32,
        state: Option<TaskInstanceState>,
    ) {
        let key = if map_index < 0 {
            task_id.to_owned()
        } else {
            format!("{task_id}_{map_index}")
        };
        let state = state.map_or(Value::Null, |it| it.as_str().into());
        let of_run = self.task_states.entry(run_id.to_owned());
        let of_run = of_run.or_insert_with(|| Value::Object(Map::new()));
        if let Some(of_run) = of_run.as_object_mut() {
            of_run.insert(key, state);
        }
    }
}

/// The ended task instances of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breadcrumbs {
    /// Each with `task_id`, `map_index`, `state`, `operator` and `duration`.
    pub breadcrumbs: Vec<Map<String, Value>>,
}

/// An answer that only says that it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// For people.
    pub message: String,
}

impl Message {
    /// Answer of `/rtif`.
    #[must_use]
    pub fn rendered_fields_set() -> Self {
        Self::of("Rendered task instance fields successfully set")
    }

    /// Answer of `POST /xcoms/…`.
    #[must_use]
    pub fn xcom_set() -> Self {
        Self::of("XCom successfully set")
    }

    /// Answer of `DELETE /xcoms/…`.
    #[must_use]
    pub fn xcom_deleted(key: &str) -> Self {
        Self::of(format!("XCom with key: {key} successfully deleted."))
    }

    /// Answer of `PUT /variables/…`.
    #[must_use]
    pub fn variable_set() -> Self {
        Self::of("Variable successfully set")
    }

    fn of(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_is_retried_while_tries_are_left_or_after_a_clear() {
        let queued = Some(TaskInstanceState::Queued);
        let restarting = Some(TaskInstanceState::Restarting);
        for (previous, try_number, max_tries, expected) in [
            (queued, 1, 0, false),
            (queued, 1, 1, true),
            (queued, 2, 1, false),
            (queued, 2, 2, true),
            (None, 1, 0, false),
            (restarting, 9, 0, true),
        ] {
            let found = should_retry(previous, try_number, max_tries);
            assert_eq!(found, expected, "try {try_number} of {max_tries}");
        }
    }

    #[test]
    fn a_start_is_repeated_by_the_same_process_only() {
        let start = EnterRunning {
            state: RunningState::Running,
            hostname: "h".to_owned(),
            unixname: "u".to_owned(),
            pid: 7,
            start_date: UtcDateTime::parse("2026-01-01T00:00:00Z").unwrap(),
        };
        for (hostname, unixname, pid, expected) in [
            ("h", "u", 7, true),
            ("g", "u", 7, false),
            ("h", "v", 7, false),
            ("h", "u", 8, false),
        ] {
            assert_eq!(start.is_repeated_by(hostname, unixname, pid), expected);
        }
    }

    #[test]
    fn an_update_asks_for_its_state() {
        let at = "2026-01-01T00:00:00Z";
        for (body, expected) in [
            (
                json!({"state": "success", "end_date": at}),
                TaskInstanceState::Success,
            ),
            (
                json!({"state": "skipped", "end_date": at}),
                TaskInstanceState::Skipped,
            ),
            (
                json!({"state": "up_for_retry", "end_date": at}),
                TaskInstanceState::UpForRetry,
            ),
            (
                json!({"state": "up_for_reschedule", "end_date": at, "reschedule_date": at}),
                TaskInstanceState::UpForReschedule,
            ),
            (
                json!({"state": "deferred", "classpath": "c", "next_method": "m"}),
                TaskInstanceState::Deferred,
            ),
            (
                json!({"state": "awaiting_input", "next_method": "m"}),
                TaskInstanceState::AwaitingInput,
            ),
            (
                json!({"state": "restarting"}),
                TaskInstanceState::Restarting,
            ),
        ] {
            let update: StateUpdate = serde_json::from_value(body.clone()).unwrap();
            assert_eq!(update.state(), expected);
            // No alternative takes the members of another one.
            let mut more = body;
            more["pid"] = json!(1);
            assert!(serde_json::from_value::<StateUpdate>(more).is_err());
        }
    }

    #[test]
    fn a_skipped_task_is_the_unmapped_one_unless_it_says_otherwise() {
        let body = json!({"tasks": ["a", ["b", 3], ["c", -1]]});
        let skip: SkipDownstream = serde_json::from_value(body).unwrap();
        let tasks: Vec<(&str, i32)> = skip.tasks.iter().map(SkippedTask::address).collect();
        assert_eq!(tasks, [("a", -1), ("b", 3), ("c", -1)]);
    }

    #[test]
    fn states_are_by_run_and_by_task() {
        let mut states = TaskStates::default();
        states.add("r1", "a", -1, Some(TaskInstanceState::Success));
        states.add("r1", "m", 0, None);
        states.add("r2", "m", 12, Some(TaskInstanceState::UpForRetry));
        let expected = json!({"task_states": {
            "r1": {"a": "success", "m_0": null},
            "r2": {"m_12": "up_for_retry"},
        }});
        assert_eq!(serde_json::to_value(states).unwrap(), expected);
    }
}
