//! One set of changes, applied inside a transaction that somebody else began.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::changes::Changes;
use crate::model::{Pool, RunKey, TaskInstance, TaskKey};
use crate::rows::task_instance::{self, Kind};
use crate::rows::{Table, run};
use crate::sqlite::{Cell, Connection, EngineError, Fault, Row};

/// Rows in one statement: enough to make its overhead small, few enough for any engine's limit on parameters.
const MAX_ROWS: usize = 100;

/// Why a set of changes was not applied.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Some row is not as the caller saw it. [`find_conflict`] tells which, after the rollback.
    Conflict,
    /// The engine failed.
    Engine(EngineError),
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        match error.fault {
            Fault::Constraint => Self::Conflict,
            Fault::Full | Fault::Damaged | Fault::Io | Fault::Denied | Fault::Other => {
                Self::Engine(error)
            }
        }
    }
}

/// Applies all of the changes. After a refusal the transaction holds some of them: roll back.
pub(crate) async fn apply(c: &mut Connection, changes: &Changes) -> Result<(), Refusal> {
    let (new, known): (Vec<_>, Vec<_>) = changes.runs.iter().partition(|run| run.version == 0);
    let new = new.iter().map(|run| run::cells(run, 1));
    let known = known.iter().map(|run| run::cells(run, run.version));
    // Updates before inserts, so that a row given twice, as a new and as a known one, is a conflict.
    update(c, &run::TABLE, known).await?;
    insert(c, &run::TABLE, new).await?;

    let tasks = &changes.task_instances;
    let (new, known): (Vec<_>, Vec<_>) = tasks.iter().partition(|task| task.version == 0);
    let new = new
        .iter()
        .map(|task| task_instance::cells(task, Kind::Current, 1));
    let known = known
        .iter()
        .map(|task| task_instance::cells(task, Kind::Current, task.version));
    update(c, &task_instance::TABLE, known).await?;
    insert(c, &task_instance::TABLE, new).await?;

    let archived = changes
        .archived
        .iter()
        .map(|archived| &archived.task_instance);
    let archived = archived.map(|task| task_instance::cells(task, Kind::Archived, task.version));
    insert(c, &task_instance::TABLE, archived).await?;

    if let Some(position) = &changes.watch_position {
        c.execute(
            "UPDATE scheduler SET watch_position = ?",
            [position.as_str().into()],
        )
        .await?;
    }
    Ok(())
}

/// Creates or changes a pool.
pub(crate) async fn apply_pool(c: &mut Connection, pool: &Pool) -> Result<(), Refusal> {
    c.execute(
        "INSERT INTO pool (name, slots) VALUES (?, ?) \
         ON CONFLICT (name) DO UPDATE SET slots = excluded.slots",
        [pool.name.as_str().into(), pool.slots.into()],
    )
    .await?;
    Ok(())
}

async fn insert<const N: usize>(
    c: &mut Connection,
    table: &Table,
    rows: impl Iterator<Item = [Cell; N]>,
) -> Result<(), Refusal> {
    write_in_chunks(c, rows, |n_rows| {
        let Table { name, columns, .. } = table;
        let columns = columns.join(", ");
        let tuples = tuples(n_rows, N);
        format!("INSERT INTO {name} ({columns}) VALUES {tuples} ON CONFLICT DO NOTHING")
    })
    .await
}

async fn update<const N: usize>(
    c: &mut Connection,
    table: &Table,
    rows: impl Iterator<Item = [Cell; N]>,
) -> Result<(), Refusal> {
    write_in_chunks(c, rows, |n_rows| update_sql(table, &tuples(n_rows, N))).await
}

fn update_sql(table: &Table, tuples: &str) -> String {
    let Table {
        name,
        columns,
        key,
        fixed,
        addressable,
    } = table;
    let given = columns.join(", ");
    let is_set =
        |column: &&&str| !key.contains(column) && !fixed.contains(column) && **column != "version";
    let set = columns
        .iter()
        .filter(is_set)
        .map(|column| format!("{column} = given.{column}, "));
    let set: String = set.collect();
    let same = key
        .iter()
        .map(|column| format!("{name}.{column} = given.{column} AND "));
    let same: String = same.collect();
    let only = if addressable.is_empty() {
        String::new()
    } else {
        format!(" AND {addressable}")
    };
    format!(
        "WITH given ({given}) AS (VALUES {tuples}) \
         UPDATE {name} SET {set}version = given.version + 1 FROM given \
         WHERE {same}{name}.version = given.version{only}"
    )
}

/// `(?, ?), (?, ?)`: as many tuples as rows.
fn tuples(n_rows: usize, n_columns: usize) -> String {
    let tuple = format!("({})", vec!["?"; n_columns].join(", "));
    vec![tuple; n_rows].join(", ")
}

/// Writes all rows, some in each statement; each must change exactly one row.
async fn write_in_chunks<const N: usize>(
    c: &mut Connection,
    rows: impl Iterator<Item = [Cell; N]>,
    sql: impl Fn(usize) -> String,
) -> Result<(), Refusal> {
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let chunk: Vec<[Cell; N]> = rows.by_ref().take(MAX_ROWS).collect();
        let n_rows = chunk.len();
        let n_changed = c.execute(sql(n_rows), chunk.into_iter().flatten()).await?;
        if usize::try_from(n_changed) != Ok(n_rows) {
            return Err(Refusal::Conflict);
        }
    }
    Ok(())
}

/// Which row refused these changes; the transaction is as it was before them.
pub(crate) async fn find_conflict(
    c: &mut Connection,
    changes: &Changes,
) -> Result<String, EngineError> {
    let mut runs = BTreeSet::new();
    for run in &changes.runs {
        let stored = run_version(c, &run.key).await?;
        if stored.unwrap_or(0) != run.version || !runs.insert(&run.key) {
            return Ok(format!("run {}", run.key));
        }
    }
    let mut tasks = BTreeSet::new();
    for task in &changes.task_instances {
        let stored = task_version(c, &task.key).await?;
        if stored.unwrap_or(0) != task.version || !tasks.insert(&task.key) {
            return Ok(format!("task instance {}", task.key));
        }
    }
    let archived = changes
        .archived
        .iter()
        .map(|archived| &archived.task_instance);
    for task in changes.task_instances.iter().chain(archived.clone()) {
        if !runs.contains(&task.key.run) && run_version(c, &task.key.run).await?.is_none() {
            return Ok(format!("run {}", task.key.run));
        }
    }
    let mut ids = BTreeSet::new();
    for task in &changes.task_instances {
        let is_own = |holder: &Holder| !holder.is_archived && holder.key == task.key;
        let is_free = holder_of(c, task.id)
            .await?
            .is_none_or(|holder| is_own(&holder));
        if !is_free || !ids.insert(task.id) {
            return Ok(try_name(task));
        }
    }
    for task in archived {
        let is_left = |holder: &Holder| !holder.is_archived && tasks.contains(&holder.key);
        let is_free = holder_of(c, task.id)
            .await?
            .is_none_or(|holder| is_left(&holder));
        if !is_free || !ids.insert(task.id) {
            return Ok(try_name(task));
        }
    }
    // Not reached by anything known; the rollback was right all the same.
    Ok("a row of the changes".to_owned())
}

fn try_name(task: &TaskInstance) -> String {
    format!("try {} of task instance {}", task.id, task.key)
}

/// The row that holds an id.
struct Holder {
    key: TaskKey,
    is_archived: bool,
}

async fn holder_of(c: &mut Connection, id: Uuid) -> Result<Option<Holder>, EngineError> {
    let sql = "SELECT dag_id, run_id, task_id, map_index, is_archived \
               FROM task_instance WHERE id = ?";
    let rows = c.fetch(sql, [id.to_string().into()]).await?;
    let read = |row: &Row| {
        Ok(Holder {
            key: task_instance::read_key(row)?,
            is_archived: row.int("is_archived")? != 0,
        })
    };
    rows.first().map(read).transpose().map_err(unreadable)
}

async fn run_version(c: &mut Connection, key: &RunKey) -> Result<Option<i64>, EngineError> {
    let sql = "SELECT version FROM run WHERE dag_id = ? AND run_id = ?";
    let rows = c.fetch(sql, run::key_cells(key)).await?;
    rows.first()
        .map(|row| row.int("version"))
        .transpose()
        .map_err(unreadable)
}

async fn task_version(c: &mut Connection, key: &TaskKey) -> Result<Option<i64>, EngineError> {
    let sql = "SELECT version FROM task_instance \
               WHERE dag_id = ? AND run_id = ? AND task_id = ? AND map_index = ? \
               AND is_archived = 0";
    let rows = c.fetch(sql, task_instance::key_cells(key)).await?;
    rows.first()
        .map(|row| row.int("version"))
        .transpose()
        .map_err(unreadable)
}

fn unreadable(why: String) -> EngineError {
    EngineError {
        fault: Fault::Damaged,
        why: why.into(),
    }
}
