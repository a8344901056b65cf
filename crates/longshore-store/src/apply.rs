//! One set of changes, applied inside a transaction that the caller began.

use crate::{
    changes::Changes,
    engine::{Cell, Connection, EngineError, Fault},
    model::{Dag, Pool, Run, StoredDocument},
    rows::{
        Table, dag, run,
        task_instance::{self, Kind},
    },
};

/// Rows in one statement: enough to make its overhead small, few enough for any engine's limit on parameters.
const MAX_ROWS: usize = 100;

/// Why a set of changes was not applied.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Some row is not as the caller saw it. [`crate::conflict::find`] finds the row, after the rollback.
    Conflict,
    /// The engine failed.
    Engine(EngineError),
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        match error.fault {
            Fault::Constraint => Self::Conflict,
            Fault::Collision
            | Fault::Full
            | Fault::Damaged
            | Fault::Io
            | Fault::Lost
            | Fault::Denied
            | Fault::Other => Self::Engine(error),
        }
    }
}

/// Applies all of the changes. After a refusal the transaction holds some of them: roll back.
pub(crate) async fn apply(c: &mut Connection, changes: &Changes) -> Result<(), Refusal> {
    for document in &changes.documents {
        insert_document(c, document).await?;
    }
    apply_runs(c, &changes.runs).await?;

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
    apply_dags(c, &changes.dags).await
}

/// The same hash is the same document: one that is there stays as it is.
async fn insert_document(c: &mut Connection, document: &StoredDocument) -> Result<(), Refusal> {
    let sql = "INSERT INTO document (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING";
    let cells = [document.hash().as_str().into(), document.body().into()];
    c.execute(sql, cells).await?;
    Ok(())
}

async fn apply_runs(c: &mut Connection, runs: &[Run]) -> Result<(), Refusal> {
    let (new, known): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.version == 0);
    let known = known.iter().map(|run| run::cells(run, run.version));
    // Updates before inserts, so that a row given twice, as a new and as a known one, is a conflict.
    update(c, &run::TABLE, known).await?;
    insert(c, &run::TABLE, new.iter().map(|run| run::cells(run, 1))).await
}

async fn apply_dags(c: &mut Connection, dags: &[Dag]) -> Result<(), Refusal> {
    let (new, known): (Vec<_>, Vec<_>) = dags.iter().partition(|dag| dag.version == 0);
    let known = known.iter().map(|dag| dag::cells(dag, dag.version));
    update(c, &dag::TABLE, known).await?;
    insert(c, &dag::TABLE, new.iter().map(|dag| dag::cells(dag, 1))).await
}

/// Creates or changes a pool.
pub(crate) async fn apply_pool(c: &mut Connection, pool: &Pool) -> Result<(), Refusal> {
    let file = pool.file.as_ref();
    c.execute(
        "INSERT INTO pool (name, slots, file, slots_before) VALUES (?, ?, ?, ?) \
         ON CONFLICT (name) DO UPDATE SET slots = excluded.slots, file = excluded.file, \
         slots_before = excluded.slots_before",
        [
            pool.name.as_str().into(),
            pool.slots.into(),
            file.map(|file| file.name.clone()).into(),
            Cell::Int(file.and_then(|file| file.slots_before)),
        ],
    )
    .await?;
    Ok(())
}

/// Deletes a pool.
pub(crate) async fn delete_pool(c: &mut Connection, name: &str) -> Result<(), Refusal> {
    c.execute("DELETE FROM pool WHERE name = ?", [name.into()])
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
