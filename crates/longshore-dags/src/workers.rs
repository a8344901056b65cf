//! Between the words of the Task Execution API and the rows: what a worker's `/run` and `/state` say, and what `/run` is
//! answered. Pure; [`Dags::report`](crate::Dags::report) has the facts decided.

use jiff::{SignedDuration, Timestamp};
use longshore_airflow::api::{
    DagRunState, DagRunType, TaskInstanceState, TerminalStateNonSuccess, UtcDateTime,
    dag_run::DagRun,
    task_instance::{EnterRunning, Kwargs, RunContext, SkipDownstream, StateUpdate, should_retry},
};
use longshore_store::{Run, RunState, RunType, TaskState, Trigger, WorkerProcess};
use serde_json::{Map, Value};

use crate::scheduler::{Started, TryEnd, WorkerReport};

/// What the body of `/run` says.
pub fn started(start: EnterRunning) -> WorkerReport {
    WorkerReport::Started {
        process: WorkerProcess {
            hostname: start.hostname,
            unixname: start.unixname,
            pid: start.pid,
        },
        started_at: start.start_date.0,
    }
}

/// What the body of `/state` says at `now`. The name of a mapped task instance is not part of it: the caller writes it
/// before, as the worker's `/rendered-map-index` would.
pub fn report(update: StateUpdate, now: Timestamp) -> WorkerReport {
    match update {
        StateUpdate::Terminal(update) => WorkerReport::Ended {
            end: end(update.state),
            ended_at: update.end_date.0,
        },
        StateUpdate::Success(update) => WorkerReport::Ended {
            end: TryEnd::Success,
            ended_at: update.end_date.0,
        },
        StateUpdate::Deferred(update) => WorkerReport::Suspended {
            trigger: Some(Trigger {
                classpath: update.classpath,
                kwargs: value(update.trigger_kwargs),
                queue: update.queue,
            }),
            timeout: update.trigger_timeout.map(|timeout| timeout.0),
            next_method: update.next_method,
            next_kwargs: Value::Object(update.next_kwargs),
        },
        StateUpdate::Reschedule(update) => WorkerReport::Reschedule {
            ended_at: update.end_date.0,
            next_at: update.reschedule_date.0,
        },
        StateUpdate::AwaitingInput(update) => WorkerReport::Suspended {
            trigger: None,
            timeout: update.timeout.map(|timeout| timeout.0),
            next_method: update.next_method,
            next_kwargs: Value::Object(update.next_kwargs),
        },
        StateUpdate::Retry(update) => {
            let delay = update.retry_delay_seconds;
            let delay = delay.and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
            WorkerReport::Retry {
                ended_at: update.end_date.0,
                delay,
                reason: update.retry_reason,
            }
        }
        // No worker says that its try is in such a state; upstream fails it.
        StateUpdate::Target(_) => WorkerReport::Ended {
            end: TryEnd::Failed,
            ended_at: now,
        },
    }
}

/// What the body of `/skip-downstream` says.
pub fn skips(skip: &SkipDownstream) -> WorkerReport {
    let instances = skip.tasks.iter().map(|task| {
        let (task_id, map_index) = task.address();
        (task_id.to_owned(), map_index)
    });
    WorkerReport::Skips {
        instances: instances.collect(),
    }
}

fn end(state: TerminalStateNonSuccess) -> TryEnd {
    match state {
        TerminalStateNonSuccess::Failed => TryEnd::Failed,
        TerminalStateNonSuccess::Skipped => TryEnd::Skipped,
        TerminalStateNonSuccess::Removed => TryEnd::Removed,
        TerminalStateNonSuccess::UpstreamFailed => TryEnd::UpstreamFailed,
    }
}

fn value(kwargs: Kwargs) -> Value {
    match kwargs {
        Kwargs::Plain(kwargs) => Value::Object(kwargs),
        Kwargs::Encrypted(text) => Value::String(text),
    }
}

fn kwargs(value: Value) -> Kwargs {
    match value {
        Value::Object(kwargs) => Kwargs::Plain(kwargs),
        Value::String(text) => Kwargs::Encrypted(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Kwargs::default(),
    }
}

/// The answer to `/run`. `next_kwargs` are those of the stored deferral, where the try goes on; `xcom_keys` those of the
/// values that its task instance has, which the worker of a try that begins deletes.
pub fn run_context(
    started: &Started,
    next_kwargs: Option<Value>,
    xcom_keys: Vec<String>,
) -> RunContext {
    let row = &started.task_instance;
    let task = row.airflow.as_deref();
    let next_method = task.and_then(|task| task.next_method.clone());
    let goes_on = next_method.is_some();
    let start_date = row.start_date.map(UtcDateTime);
    let queued = Some(TaskInstanceState::Queued);
    RunContext {
        dag_run: dag_run(&started.run),
        task_reschedule_count: task.and_then(|task| task.looks).map_or(0, |looks| looks.n),
        max_tries: row.max_tries,
        variables: Vec::new(),
        connections: Vec::new(),
        xcom_keys_to_clear: if goes_on { Vec::new() } else { xcom_keys },
        should_retry: should_retry(queued, row.try_number, row.max_tries),
        next_method,
        next_kwargs: goes_on.then(|| kwargs(next_kwargs.unwrap_or_default())),
        start_date: start_date.filter(|_| goes_on),
    }
}

/// A run as tasks see it.
pub fn dag_run(run: &Run) -> DagRun {
    let details = &run.details;
    let interval = details.data_interval;
    let run_after = details.run_after.or(run.logical_date);
    let conf: Option<&Map<String, Value>> = run.conf.as_object();
    DagRun {
        dag_id: run.key.dag_id.clone(),
        run_id: run.key.run_id.clone(),
        logical_date: run.logical_date.map(UtcDateTime),
        data_interval_start: interval.map(|(start, _)| UtcDateTime(start)),
        data_interval_end: interval.map(|(_, end)| UtcDateTime(end)),
        run_after: UtcDateTime(run_after.unwrap_or(run.queued_at)),
        start_date: run.start_date.map(UtcDateTime),
        end_date: run.end_date.map(UtcDateTime),
        clear_number: details.clear_number,
        run_type: run_type(run.run_type),
        state: run_state(run.state),
        conf: conf.cloned(),
        triggering_user_name: details.triggered_by.clone(),
        consumed_asset_events: Vec::new(),
        partition_key: None,
        partition_date: None,
        note: details.note.clone(),
        team_name: None,
    }
}

fn run_type(run_type: RunType) -> DagRunType {
    match run_type {
        RunType::Scheduled => DagRunType::Scheduled,
        RunType::Manual => DagRunType::Manual,
        RunType::Backfill => DagRunType::Backfill,
        RunType::OperatorTriggered => DagRunType::OperatorTriggered,
        RunType::AssetTriggered => DagRunType::AssetTriggered,
        RunType::AssetMaterialization => DagRunType::AssetMaterialization,
    }
}

fn run_state(state: RunState) -> DagRunState {
    match state {
        RunState::Queued => DagRunState::Queued,
        RunState::Running => DagRunState::Running,
        RunState::Success => DagRunState::Success,
        RunState::Failed => DagRunState::Failed,
    }
}

/// The word of a state of a task instance.
pub fn task_state(state: TaskState) -> TaskInstanceState {
    match state {
        TaskState::Scheduled => TaskInstanceState::Scheduled,
        TaskState::Queued => TaskInstanceState::Queued,
        TaskState::Running => TaskInstanceState::Running,
        TaskState::Restarting => TaskInstanceState::Restarting,
        TaskState::Success => TaskInstanceState::Success,
        TaskState::Failed => TaskInstanceState::Failed,
        TaskState::UpForRetry => TaskInstanceState::UpForRetry,
        TaskState::UpForReschedule => TaskInstanceState::UpForReschedule,
        TaskState::Deferred => TaskInstanceState::Deferred,
        TaskState::AwaitingInput => TaskInstanceState::AwaitingInput,
        TaskState::UpstreamFailed => TaskInstanceState::UpstreamFailed,
        TaskState::Skipped => TaskInstanceState::Skipped,
        TaskState::Removed => TaskInstanceState::Removed,
    }
}

#[cfg(test)]
mod tests {
    use longshore_store::{AirflowTask, Looks, RunDetails, RunKey, StoredDocument, TaskInstance};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    /// What the task SDK sent and got, by the end of the path.
    fn exchange(recorded: &str, path: &str) -> (Value, Value) {
        let recorded: Value = serde_json::from_str(recorded).unwrap();
        let exchanges = recorded["exchanges"].as_array().unwrap();
        let is_it = |it: &&Value| {
            let of_it = it["request"]["path"].as_str().unwrap();
            of_it.ends_with(path)
        };
        let found = exchanges.iter().find(is_it).unwrap();
        let body = |part: &str| found[part]["body"].clone();
        (body("request"), body("response"))
    }

    macro_rules! recorded {
        ($case:literal) => {
            include_str!(concat!(
                "../../longshore-airflow/testdata/execution-api/recorded/",
                $case,
                ".json"
            ))
        };
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The task instance of the recordings, which runs.
    fn running(change: impl FnOnce(&mut TaskInstance)) -> Started {
        let date = at("2026-11-21T00:30:00Z");
        let key = RunKey {
            dag_id: "vec".to_owned(),
            run_id: "manual__2026-11-21T00:30:00+00:00".to_owned(),
        };
        let mut task_instance = TaskInstance {
            state: Some(TaskState::Running),
            try_number: 1,
            max_tries: 1,
            start_date: Some(at("2026-11-21T00:30:05Z")),
            airflow: Some(Box::new(AirflowTask::new(Uuid::nil()))),
            ..TaskInstance::new(Uuid::nil(), key.task("a"))
        };
        change(&mut task_instance);
        let run = Run {
            key,
            run_type: RunType::Manual,
            state: RunState::Running,
            logical_date: Some(date),
            queued_at: date,
            start_date: Some(at("2026-11-21T00:30:01Z")),
            end_date: None,
            conf: json!({}),
            dag_hash: StoredDocument::of(&json!({})).hash().clone(),
            is_prepared: true,
            reason: None,
            details: RunDetails {
                data_interval: Some((date, date)),
                triggered_by: Some("admin".to_owned()),
                ..RunDetails::default()
            },
            version: 1,
        };
        Started { run, task_instance }
    }

    #[test]
    fn a_worker_that_begins_is_answered_as_recorded() {
        let (body, answer) = exchange(recorded!("success_push"), "/run");
        let start: EnterRunning = serde_json::from_value(body).unwrap();
        let expected = WorkerReport::Started {
            process: WorkerProcess {
                hostname: "vm".to_owned(),
                unixname: "root".to_owned(),
                pid: 24_800,
            },
            started_at: at("2026-11-21T00:29:58.313612Z"),
        };
        assert_eq!(started(start), expected);
        let context = run_context(&running(|_| {}), None, Vec::new());
        assert_eq!(serde_json::to_value(context).unwrap(), answer);

        let (_, answer) = exchange(recorded!("deferrable_resume"), "/run");
        let goes_on = running(|row| {
            let task = row.airflow.as_deref_mut().unwrap();
            task.next_method = Some("execute_complete".to_owned());
        });
        // It goes on: what it left before stays.
        let keys = vec!["return_value".to_owned()];
        let context = run_context(&goes_on, Some(json!({"event": "success"})), keys);
        assert_eq!(serde_json::to_value(context).unwrap(), answer);
    }

    #[test]
    fn a_worker_that_begins_again_is_told_what_came_before() {
        let again = running(|row| {
            row.try_number = 2;
            let task = row.airflow.as_deref_mut().unwrap();
            task.looks = Some(Looks {
                n: 3,
                first_at: Timestamp::UNIX_EPOCH,
                next_at: Timestamp::UNIX_EPOCH,
            });
        });
        let keys = vec!["return_value".to_owned()];
        let context = run_context(&again, None, keys.clone());
        assert_eq!(context.task_reschedule_count, 3);
        assert_eq!(
            (context.xcom_keys_to_clear, context.should_retry),
            (keys, false)
        );
        assert_eq!((context.next_method, context.start_date), (None, None));
    }

    #[test]
    fn what_workers_were_recorded_to_say_is_understood() {
        let ended = |end, ended_at: &str| WorkerReport::Ended {
            end,
            ended_at: at(ended_at),
        };
        for (recorded, expected) in [
            (
                recorded!("success_push"),
                ended(TryEnd::Success, "2026-11-21T00:29:58.550746Z"),
            ),
            (
                recorded!("fail_retry"),
                WorkerReport::Retry {
                    ended_at: at("2026-11-21T00:30:37.024858Z"),
                    delay: None,
                    reason: None,
                },
            ),
            (
                recorded!("sensor_reschedule"),
                WorkerReport::Reschedule {
                    ended_at: at("2026-11-21T00:31:35.742346Z"),
                    next_at: at("2026-11-21T00:32:05.742251Z"),
                },
            ),
        ] {
            let (body, _) = exchange(recorded, "/state");
            let update: StateUpdate = serde_json::from_value(body.clone()).unwrap();
            assert_eq!(report(update, Timestamp::UNIX_EPOCH), expected, "{body}");
        }
        let (body, _) = exchange(recorded!("deferrable_defer"), "/state");
        let update: StateUpdate = serde_json::from_value(body.clone()).unwrap();
        let expected = WorkerReport::Suspended {
            trigger: Some(Trigger {
                classpath: body["classpath"].as_str().unwrap().to_owned(),
                kwargs: body["trigger_kwargs"].clone(),
                queue: None,
            }),
            timeout: Some(SignedDuration::from_hours(7 * 24)),
            next_method: "execute_complete".to_owned(),
            next_kwargs: json!({}),
        };
        assert_eq!(report(update, Timestamp::UNIX_EPOCH), expected);
    }

    #[test]
    fn the_other_reports_are_understood() {
        let now = at("2026-11-21T00:00:09Z");
        let ended_at = at("2026-11-21T00:00:01Z");
        let ended = |end, ended_at| WorkerReport::Ended { end, ended_at };
        let over = |state: &str| json!({"state": state, "end_date": ended_at.to_string()});
        let mut retry = over("up_for_retry");
        retry["retry_delay_seconds"] = json!(1.5);
        retry["retry_reason"] = json!("rate limit");
        for (body, expected) in [
            (over("failed"), ended(TryEnd::Failed, ended_at)),
            (over("skipped"), ended(TryEnd::Skipped, ended_at)),
            (over("removed"), ended(TryEnd::Removed, ended_at)),
            (
                over("upstream_failed"),
                ended(TryEnd::UpstreamFailed, ended_at),
            ),
            (
                retry,
                WorkerReport::Retry {
                    ended_at,
                    delay: Some(SignedDuration::from_millis(1_500)),
                    reason: Some("rate limit".to_owned()),
                },
            ),
            (
                json!({"state": "awaiting_input", "timeout": "PT5S", "next_method": "m", "next_kwargs": {"n": 1}}),
                WorkerReport::Suspended {
                    trigger: None,
                    timeout: Some(SignedDuration::from_secs(5)),
                    next_method: "m".to_owned(),
                    next_kwargs: json!({"n": 1}),
                },
            ),
            (json!({"state": "scheduled"}), ended(TryEnd::Failed, now)),
        ] {
            let update: StateUpdate = serde_json::from_value(body.clone()).unwrap();
            let state = update.state();
            let report = report(update, now);
            assert_eq!(report, expected, "{body}");
            let is_understood = body["state"] != "scheduled";
            assert_eq!(
                report.state().map(task_state) == Some(state),
                is_understood,
                "{body}"
            );
        }
    }
}
