//! Table `task_instance`.

use super::{
    Table, Unreadable, airflow, instant, json, parse_json, parse_word, read_int, read_opt_instant,
    read_uuid, word,
};
use crate::{
    changes::StoreError,
    engine::{Cell, Row},
    model::{Failure, TaskInstance, TaskKey},
    rows::run,
};

/// Table `task_instance`.
pub(crate) const TABLE: Table = Table {
    name: "task_instance",
    columns: &[
        "id",
        "dag_id",
        "run_id",
        "task_id",
        "map_index",
        "is_archived",
        "state",
        "try_number",
        "max_tries",
        "launch",
        "launch_failures",
        "pool",
        "pool_slots",
        "priority_weight",
        "scheduled_at",
        "queued_at",
        "start_date",
        "end_date",
        "pod_name",
        "pod_uid",
        "failure",
        "result",
        "result_note",
        "dag_version_id",
        "hostname",
        "unixname",
        "pid",
        "next_method",
        "timeout_at",
        "n_reschedules",
        "first_look_at",
        "reschedule_at",
        "retry_delay",
        "retry_reason",
        "version",
    ],
    key: &["dag_id", "run_id", "task_id", "map_index"],
    fixed: &["is_archived"],
    addressable: "task_instance.is_archived = 0",
};

/// Which of the two kinds of rows in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The task instance as it is.
    Current = 0,
    /// A try that another one followed.
    Archived = 1,
}

/// The cells of a row, in the order of the table's columns, with this version.
pub(crate) fn cells(task: &TaskInstance, kind: Kind, version: i64) -> [Cell; 35] {
    let [
        dag_version,
        hostname,
        unixname,
        pid,
        next_method,
        timeout_at,
        n_reschedules,
        first_look_at,
        reschedule_at,
        retry_delay,
        retry_reason,
    ] = airflow::task_cells(task.airflow.as_deref());
    [
        task.id.to_string().into(),
        task.key.run.dag_id.as_str().into(),
        task.key.run.run_id.as_str().into(),
        task.key.task_id.as_str().into(),
        i64::from(task.key.map_index).into(),
        (kind as i64).into(),
        task.state.as_ref().map_or(Cell::Text(None), word),
        i64::from(task.try_number).into(),
        i64::from(task.max_tries).into(),
        i64::from(task.launch).into(),
        i64::from(task.launch_failures).into(),
        task.pool.as_str().into(),
        i64::from(task.pool_slots).into(),
        task.priority_weight.into(),
        instant(task.scheduled_at),
        instant(task.queued_at),
        instant(task.start_date),
        instant(task.end_date),
        task.pod_name.clone().into(),
        task.pod_uid.clone().into(),
        task.failure.as_ref().map_or(Cell::Text(None), failure),
        task.result.as_ref().map_or(Cell::Text(None), json),
        task.result_note.clone().into(),
        dag_version,
        hostname,
        unixname,
        pid,
        next_method,
        timeout_at,
        n_reschedules,
        first_look_at,
        reschedule_at,
        retry_delay,
        retry_reason,
        version.into(),
    ]
}

fn failure(failure: &Failure) -> Cell {
    Cell::Text(serde_json::to_string(failure).ok())
}

/// The cells of its address.
pub(crate) fn key_cells(key: &TaskKey) -> [Cell; 4] {
    [
        key.run.dag_id.as_str().into(),
        key.run.run_id.as_str().into(),
        key.task_id.as_str().into(),
        i64::from(key.map_index).into(),
    ]
}

/// A task instance, current or archived, from its row.
pub(crate) fn read(row: &Row) -> Result<TaskInstance, StoreError> {
    let corrupt = |what: String| {
        move |why: Unreadable| StoreError::Corrupt {
            what,
            why: why.into(),
        }
    };
    let key = read_key(row).map_err(corrupt("a task instance".to_owned()))?;
    let what = format!("task instance {key}");
    read_rest(row, key).map_err(corrupt(what))
}

/// A task instance's address from its columns.
pub(crate) fn read_key(row: &Row) -> Result<TaskKey, Unreadable> {
    Ok(TaskKey {
        run: run::read_key(row)?,
        task_id: row.text("task_id")?,
        map_index: read_int(row, "map_index")?,
    })
}

fn read_rest(row: &Row, key: TaskKey) -> Result<TaskInstance, Unreadable> {
    let id = row.text("id")?;
    let state = row.opt_text("state")?;
    let failure = row.opt_text("failure")?;
    let result = row.opt_text("result")?;
    Ok(TaskInstance {
        id: read_uuid(&id, "id")?,
        key,
        state: state.map(|word| parse_word(word, "state")).transpose()?,
        try_number: read_int(row, "try_number")?,
        max_tries: read_int(row, "max_tries")?,
        launch: read_int(row, "launch")?,
        launch_failures: read_int(row, "launch_failures")?,
        pool: row.text("pool")?,
        pool_slots: read_int(row, "pool_slots")?,
        priority_weight: row.int("priority_weight")?,
        scheduled_at: read_opt_instant(row, "scheduled_at")?,
        queued_at: read_opt_instant(row, "queued_at")?,
        start_date: read_opt_instant(row, "start_date")?,
        end_date: read_opt_instant(row, "end_date")?,
        pod_name: row.opt_text("pod_name")?,
        pod_uid: row.opt_text("pod_uid")?,
        failure: failure
            .map(|text| parse_json(&text, "failure"))
            .transpose()?,
        result: result.map(|text| parse_json(&text, "result")).transpose()?,
        result_note: row.opt_text("result_note")?,
        airflow: airflow::read_task(row)?,
        version: row.int("version")?,
    })
}
