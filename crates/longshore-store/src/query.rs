//! What can be read.

use uuid::Uuid;

use crate::changes::{RunFilter, Snapshot, StoreError};
use crate::model::{ArchivedTry, Pool, Run, RunKey, TaskInstance};
use crate::rows::{run, task_instance};
use crate::sqlite::{Cell, Connection, Row};

/// Runs queries in one transaction, so that all see the same state.
pub(crate) async fn in_transaction<T>(
    c: &mut Connection,
    work: impl AsyncFnOnce(&mut Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    c.begin_read()
        .await
        .map_err(|e| e.into_store_error("read"))?;
    let result = work(c).await;
    // Also after an error: the next reader must find no transaction.
    c.execute("ROLLBACK", [])
        .await
        .map_err(|e| e.into_store_error("read"))?;
    result
}

/// All that is not finished.
pub(crate) async fn load(c: &mut Connection) -> Result<Snapshot, StoreError> {
    let runs = "SELECT * FROM run WHERE state IN ('queued', 'running') \
                ORDER BY queued_at, dag_id, run_id";
    // CROSS JOIN means the same, but tells SQLite to start from the few unfinished runs, not from all task instances.
    let task_instances = "SELECT task_instance.* FROM run CROSS JOIN task_instance \
                          WHERE run.state IN ('queued', 'running') \
                          AND task_instance.dag_id = run.dag_id \
                          AND task_instance.run_id = run.run_id \
                          AND task_instance.is_archived = 0 \
                          ORDER BY run.queued_at, run.dag_id, run.run_id, task_id, map_index";
    let pools = fetch(c, "SELECT name, slots FROM pool ORDER BY name", []).await?;
    let scheduler = fetch(c, "SELECT watch_position FROM scheduler", []).await?;
    let position = |row: &Row| row.opt_text("watch_position");
    let position = scheduler.first().map(position).transpose();
    Ok(Snapshot {
        runs: read_all(fetch(c, runs, []).await?, run::read)?,
        task_instances: read_all(fetch(c, task_instances, []).await?, task_instance::read)?,
        pools: read_all(pools, read_pool)?,
        watch_position: position
            .map_err(|why| corrupt("the watch position", why))?
            .flatten(),
    })
}

/// One run with its task instances.
pub(crate) async fn run(
    c: &mut Connection,
    key: &RunKey,
) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
    let sql = "SELECT * FROM run WHERE dag_id = ? AND run_id = ?";
    let rows = fetch(c, sql, run::key_cells(key)).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let run = run::read(row)?;
    let sql = "SELECT * FROM task_instance \
               WHERE dag_id = ? AND run_id = ? AND is_archived = 0 ORDER BY task_id, map_index";
    let rows = fetch(c, sql, run::key_cells(key)).await?;
    Ok(Some((run, read_all(rows, task_instance::read)?)))
}

/// Runs, newest first.
pub(crate) async fn runs(c: &mut Connection, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
    let RunFilter { dag_id, limit } = filter;
    let mut sql = "SELECT * FROM run".to_owned();
    let mut cells = Vec::new();
    if let Some(dag_id) = dag_id {
        sql += " WHERE dag_id = ?";
        cells.push(dag_id.as_str().into());
    }
    sql += " ORDER BY queued_at DESC, dag_id DESC, run_id DESC";
    if let Some(limit) = limit {
        sql += " LIMIT ?";
        cells.push(i64::from(*limit).into());
    }
    read_all(fetch(c, sql, cells).await?, run::read)
}

/// The current or archived try with this id.
pub(crate) async fn try_by_id(
    c: &mut Connection,
    id: Uuid,
) -> Result<Option<TaskInstance>, StoreError> {
    let sql = "SELECT * FROM task_instance WHERE id = ?";
    let rows = fetch(c, sql, [id.to_string().into()]).await?;
    rows.first().map(task_instance::read).transpose()
}

/// The archived tries of a run, oldest first.
pub(crate) async fn history(
    c: &mut Connection,
    key: &RunKey,
) -> Result<Vec<ArchivedTry>, StoreError> {
    // A try that never ran has no end; the last instant that it does have stands in.
    let sql = "SELECT * FROM task_instance WHERE dag_id = ? AND run_id = ? AND is_archived = 1 \
               ORDER BY COALESCE(end_date, start_date, queued_at, scheduled_at, ''), \
               try_number, task_id, map_index, id";
    let rows = fetch(c, sql, run::key_cells(key)).await?;
    let archived = |row: &Row| {
        Ok(ArchivedTry {
            task_instance: task_instance::read(row)?,
        })
    };
    read_all(rows, archived)
}

fn read_pool(row: &Row) -> Result<Pool, StoreError> {
    let read = || {
        Ok(Pool {
            name: row.text("name")?,
            slots: row.int("slots")?,
        })
    };
    read().map_err(|why| corrupt("a pool", why))
}

async fn fetch(
    c: &mut Connection,
    sql: impl Into<std::borrow::Cow<'static, str>>,
    cells: impl IntoIterator<Item = Cell>,
) -> Result<Vec<Row>, StoreError> {
    c.fetch(sql, cells)
        .await
        .map_err(|e| e.into_store_error("read"))
}

fn read_all<T>(
    rows: Vec<Row>,
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    rows.iter().map(read).collect()
}

fn corrupt(what: &str, why: String) -> StoreError {
    StoreError::Corrupt {
        what: what.to_owned(),
        why: why.into(),
    }
}
