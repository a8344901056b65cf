//! The queries.

use jiff::Timestamp;
use uuid::Uuid;

use super::{InstanceState, InstancesWanted, KnownTry, PreviousInstance, RunsWanted};
use crate::{
    changes::StoreError,
    engine::{Cell, Connection, Row},
    listing::Conditions,
    model::{DagVersion, FileKey, Run, RunKey, RunState, TaskInstance},
    query::{fetch, read_all},
    rows::{
        airflow, free_text, instant, parse_word, read_opt_instant, read_row, run, task_instance,
        word,
    },
    told::{XComKey, write::xcom_cells},
};

/// What is known of an id.
pub(super) async fn known_try(
    c: &mut Connection,
    id: Uuid,
) -> Result<Option<KnownTry>, StoreError> {
    let sql = "SELECT * FROM task_instance WHERE id = ?";
    let id: Cell = id.to_string().into();
    let rows = fetch(c, sql, [id]).await?;
    let read = |row: &Row| {
        let known = task_instance::read(row)?;
        let is_archived = read_row("a task instance", || row.int("is_archived"))?;
        Ok(KnownTry {
            key: known.key,
            state: known.state,
            process: known.airflow.and_then(|task| task.process),
            is_archived: is_archived != 0,
        })
    };
    rows.first().map(read).transpose()
}

/// A run, without its task instances.
pub(super) async fn run_row(c: &mut Connection, key: &RunKey) -> Result<Option<Run>, StoreError> {
    let sql = "SELECT * FROM run WHERE dag_id = ? AND run_id = ?";
    let rows = fetch(c, sql, run::key_cells(key)).await?;
    rows.first().map(run::read).transpose()
}

/// The last run of a DAG that is about an instant before this one.
pub(super) async fn previous_run(
    c: &mut Connection,
    dag_id: &str,
    before: Timestamp,
    state: Option<RunState>,
) -> Result<Option<Run>, StoreError> {
    let mut conditions = Conditions::default();
    conditions.add("dag_id = ?", [free_text(dag_id)]);
    conditions.add("logical_date < ?", [instant(Some(before))]);
    if let Some(state) = &state {
        conditions.add("state = ?", [word(state)]);
    }
    let Conditions { sql, cells } = conditions.page(" ORDER BY logical_date DESC", Some(1));
    let rows = fetch(c, format!("SELECT * FROM run{sql}"), cells).await?;
    rows.first().map(run::read).transpose()
}

/// How many runs there are.
pub(super) async fn count_runs(c: &mut Connection, wanted: &RunsWanted) -> Result<u64, StoreError> {
    let mut conditions = Conditions::default();
    conditions.add("dag_id = ?", [free_text(&wanted.dag_id)]);
    conditions.add_any_of("logical_date", instants(&wanted.logical_dates));
    conditions.add_any_of("run_id", texts(&wanted.run_ids));
    conditions.add_any_of("state", texts(&wanted.states));
    count(c, "run", conditions).await
}

/// How many task instances there are.
pub(super) async fn count_instances(
    c: &mut Connection,
    wanted: &InstancesWanted,
) -> Result<u64, StoreError> {
    count(c, WITH_RUN, of_instances(wanted)).await
}

/// The states of task instances.
pub(super) async fn instance_states(
    c: &mut Connection,
    wanted: &InstancesWanted,
) -> Result<Vec<InstanceState>, StoreError> {
    let order = " ORDER BY ti.dag_id, ti.run_id, ti.task_id, ti.map_index";
    let Conditions { sql, cells } = of_instances(wanted).page(order, None);
    let columns = "ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.state";
    let rows = fetch(c, format!("SELECT {columns} FROM {WITH_RUN}{sql}"), cells).await?;
    let read = |row: &Row| {
        read_row("a task instance", || {
            let state = row.opt_text("state")?;
            Ok(InstanceState {
                key: task_instance::read_key(row)?,
                state: state.map(|word| parse_word(word, "state")).transpose()?,
            })
        })
    };
    read_all(rows, read)
}

/// Task instances with the runs that they belong to.
const WITH_RUN: &str =
    "task_instance AS ti JOIN run ON run.dag_id = ti.dag_id AND run.run_id = ti.run_id";

fn of_instances(wanted: &InstancesWanted) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.add("ti.is_archived = 0", []);
    conditions.add("ti.dag_id = ?", [free_text(&wanted.dag_id)]);
    if let Some(map_index) = wanted.map_index {
        conditions.add("ti.map_index = ?", [i64::from(map_index).into()]);
    }
    conditions.add_any_of("ti.task_id", texts(&wanted.task_ids));
    conditions.add_any_of("run.logical_date", instants(&wanted.logical_dates));
    conditions.add_any_of("ti.run_id", texts(&wanted.run_ids));
    conditions.add_any_of("COALESCE(ti.state, 'null')", texts(&wanted.states));
    conditions
}

/// The last one by the instant of its run, with that instant.
pub(super) async fn previous_instance(
    c: &mut Connection,
    wanted: &PreviousInstance,
) -> Result<Option<(TaskInstance, Option<Timestamp>)>, StoreError> {
    let mut conditions = Conditions::default();
    conditions.add("ti.is_archived = 0", []);
    conditions.add("ti.dag_id = ?", [free_text(&wanted.dag_id)]);
    conditions.add("ti.task_id = ?", [free_text(&wanted.task_id)]);
    conditions.add("ti.map_index = ?", [i64::from(wanted.map_index).into()]);
    if wanted.before.is_some() {
        conditions.add("run.logical_date < ?", [instant(wanted.before)]);
    }
    if let Some(state) = &wanted.state {
        conditions.add("ti.state = ?", [free_text(state)]);
    }
    // Runs without an instant are the last, on both engines.
    let order = " ORDER BY COALESCE(run.logical_date, '') DESC, ti.run_id DESC";
    let Conditions { sql, cells } = conditions.page(order, Some(1));
    let sql = format!("SELECT ti.*, run.logical_date AS logical_date FROM {WITH_RUN}{sql}");
    let rows = fetch(c, sql, cells).await?;
    let read = |row: &Row| {
        let date = read_row("a run", || read_opt_instant(row, "logical_date"))?;
        Ok((task_instance::read(row)?, date))
    };
    rows.first().map(read).transpose()
}

/// This run, or else the latest earlier one by logical date, that has such values.
pub(super) async fn latest_run_with_xcom(
    c: &mut Connection,
    key: &XComKey,
) -> Result<Option<RunKey>, StoreError> {
    let sql = "SELECT run.dag_id AS dag_id, run.run_id AS run_id FROM run WHERE run.dag_id = ? \
               AND (run.run_id = ? OR run.logical_date < (SELECT own.logical_date FROM run AS own \
               WHERE own.dag_id = ? AND own.run_id = ?)) \
               AND EXISTS (SELECT 1 FROM xcom WHERE xcom.dag_id = run.dag_id \
               AND xcom.run_id = run.run_id AND xcom.task_id = ? AND xcom.key = ?) \
               ORDER BY CASE WHEN run.run_id = ? THEN 0 ELSE 1 END, run.logical_date DESC LIMIT 1";
    let [dag_id, run_id, task_id, name] = xcom_cells(key);
    let cells = [
        dag_id.clone(),
        run_id.clone(),
        dag_id,
        run_id.clone(),
        task_id,
        name,
        run_id,
    ];
    let rows = fetch(c, sql, cells).await?;
    let read = |row: &Row| read_row("a run", || run::read_key(row));
    rows.first().map(read).transpose()
}

/// The latest version of a DAG.
pub(super) async fn latest_version(
    c: &mut Connection,
    dag_id: &str,
) -> Result<Option<DagVersion>, StoreError> {
    let sql = "SELECT * FROM dag_version WHERE dag_id = ? ORDER BY number DESC LIMIT 1";
    let rows = fetch(c, sql, [free_text(dag_id)]).await?;
    rows.first().map(airflow::read_dag_version).transpose()
}

/// Whether no DAG can be read from a file at present.
pub(super) async fn has_import_error(
    c: &mut Connection,
    file: &FileKey,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 AS found FROM import_error WHERE bundle_name = ? AND file = ?";
    Ok(!fetch(c, sql, airflow::file_cells(file)).await?.is_empty())
}

async fn count(c: &mut Connection, from: &str, conditions: Conditions) -> Result<u64, StoreError> {
    let Conditions { sql, cells } = conditions;
    let rows = fetch(c, format!("SELECT COUNT(*) AS n FROM {from}{sql}"), cells).await?;
    let n_rows = rows.first().map_or(Ok(0), |row| row.int("n"));
    read_row("a count", || n_rows).map(i64::unsigned_abs)
}

fn texts(texts: &[String]) -> Vec<Cell> {
    texts.iter().map(|text| free_text(text)).collect()
}

fn instants(instants: &[Timestamp]) -> Vec<Cell> {
    instants.iter().map(|at| instant(Some(*at))).collect()
}
