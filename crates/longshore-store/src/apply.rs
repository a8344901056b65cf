//! One set of changes, applied inside a transaction that somebody else began.

use std::collections::BTreeMap;

use crate::catalog::ParsedDag;
use crate::changes::{Changes, DagAdvance};
use crate::engine::{Cell, Connection, EngineError, Fault};
use crate::model::{Pool, Run};
use crate::rows::document::Document;
use crate::rows::task_instance::{self, Kind};
use crate::rows::{Table, dag, instant, run};

/// Rows in one statement: enough to make its overhead small, few enough for any engine's limit on parameters.
const MAX_ROWS: usize = 100;

/// Why a set of changes was not applied.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Some row is not as the caller saw it. [`crate::conflict::find`] tells which, after the rollback.
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
    for advance in &changes.dag_advances {
        advance_dag(c, advance).await?;
    }
    Ok(())
}

async fn apply_runs(c: &mut Connection, runs: &[Run]) -> Result<(), Refusal> {
    let (new, known): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.version == 0);
    let known = known.iter().map(|run| run::cells(run, run.version, None));
    // Updates before inserts, so that a row given twice, as a new and as a known one, is a conflict.
    update(c, &run::TABLE, known).await?;
    let mut documents = BTreeMap::new();
    let mut rows = Vec::with_capacity(new.len());
    for run in new {
        let Document { hash, body } = Document::of(&run.dag);
        rows.push(run::cells(run, 1, Some(hash.clone())));
        documents.insert(hash, body);
    }
    for (hash, body) in documents {
        insert_document(c, Document { hash, body }).await?;
    }
    insert(c, &run::TABLE, rows.into_iter()).await
}

async fn insert_document(c: &mut Connection, document: Document) -> Result<(), Refusal> {
    let Document { hash, body } = document;
    // The same hash is the same document.
    let sql = "INSERT INTO document (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING";
    c.execute(sql, [hash.into(), body.into()]).await?;
    Ok(())
}

async fn advance_dag(c: &mut Connection, advance: &DagAdvance) -> Result<(), Refusal> {
    let DagAdvance { dag_id, from, to } = advance;
    let sql = "UPDATE dag SET next_run_after = ?, next_logical_date = ?, \
               next_interval_start = ?, next_interval_end = ? \
               WHERE dag_id = ? AND next_run_after IS NOT DISTINCT FROM ? \
               AND next_logical_date IS NOT DISTINCT FROM ? \
               AND next_interval_start IS NOT DISTINCT FROM ? \
               AND next_interval_end IS NOT DISTINCT FROM ?";
    let cells = dag::next_run_cells(*to)
        .into_iter()
        .chain([dag_id.as_str().into()])
        .chain(dag::next_run_cells(*from));
    must_change_one(c.execute(sql, cells).await?)
}

/// Creates a DAG, or changes what its file says.
pub(crate) async fn apply_dag(c: &mut Connection, dag: &ParsedDag) -> Result<(), Refusal> {
    let document = dag.document.as_ref().map(Document::of);
    let hash = document.as_ref().map(|document| document.hash.clone());
    if let Some(document) = document {
        insert_document(c, document).await?;
    }
    let sql = "INSERT INTO dag (dag_id, file, is_paused, parsed_at, error, document_hash) \
               VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (dag_id) DO UPDATE SET \
               file = excluded.file, parsed_at = excluded.parsed_at, error = excluded.error, \
               document_hash = COALESCE(excluded.document_hash, dag.document_hash)";
    let cells = [
        dag.dag_id.as_str().into(),
        dag.file.clone().into(),
        i64::from(dag.is_paused_upon_creation).into(),
        instant(Some(dag.parsed_at)),
        dag.error.clone().into(),
        hash.into(),
    ];
    c.execute(sql, cells).await?;
    Ok(())
}

/// Pauses a DAG or lets it go on.
pub(crate) async fn apply_pause(
    c: &mut Connection,
    dag_id: &str,
    is_paused: bool,
) -> Result<(), Refusal> {
    let sql = "UPDATE dag SET is_paused = ? WHERE dag_id = ?";
    let cells = [i64::from(is_paused).into(), dag_id.into()];
    must_change_one(c.execute(sql, cells).await?)
}

fn must_change_one(n_changed: u64) -> Result<(), Refusal> {
    if n_changed == 1 {
        Ok(())
    } else {
        Err(Refusal::Conflict)
    }
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
