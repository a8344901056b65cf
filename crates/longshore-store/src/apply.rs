//! One set of changes, applied inside a transaction that the caller began.

use crate::{
    changes::Changes,
    engine::{Cell, Connection, EngineError, Fault},
    model::{Deferral, Expansion, FileKey, Pool, StoredDocument, TaskInstance},
    rows::{
        Table, airflow, dag, run,
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
    apply_dag_files(c, changes).await?;
    put(c, &run::TABLE, &changes.runs, |run| run.version, run::cells).await?;

    for expansion in &changes.expansions {
        expand(c, expansion).await?;
    }
    let tasks = &changes.task_instances;
    let cells: fn(&TaskInstance, i64) -> _ =
        |task, version| task_instance::cells(task, Kind::Current, version);
    put(c, &task_instance::TABLE, tasks, |task| task.version, cells).await?;

    let archived = changes
        .archived
        .iter()
        .map(|archived| &archived.task_instance);
    let archived = archived.map(|task| task_instance::cells(task, Kind::Archived, task.version));
    insert(c, &task_instance::TABLE, archived).await?;

    let reschedules = changes.reschedules.iter().map(airflow::reschedule_cells);
    insert(c, &airflow::RESCHEDULE, reschedules).await?;
    for deferral in &changes.deferrals {
        put_deferral(c, deferral).await?;
    }

    if let Some(position) = &changes.watch_position {
        c.execute(
            "UPDATE scheduler SET watch_position = ?",
            [position.as_str().into()],
        )
        .await?;
    }
    put(c, &dag::TABLE, &changes.dags, |dag| dag.version, dag::cells).await
}

/// The first secret stays.
pub(crate) async fn offer_token_secret(c: &mut Connection, secret: &str) -> Result<(), Refusal> {
    let sql = "UPDATE scheduler SET token_secret = ? WHERE token_secret IS NULL";
    c.execute(sql, [secret.into()]).await?;
    Ok(())
}

/// The same hash is the same document: one that is there stays as it is.
async fn insert_document(c: &mut Connection, document: &StoredDocument) -> Result<(), Refusal> {
    let sql = "INSERT INTO document (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING";
    let cells = [document.hash().as_str().into(), document.body().into()];
    c.execute(sql, cells).await?;
    Ok(())
}

/// Bundles, versions of DAGs, and files without a DAG.
async fn apply_dag_files(c: &mut Connection, changes: &Changes) -> Result<(), Refusal> {
    let bundles = &changes.bundles;
    put(
        c,
        &airflow::BUNDLE,
        bundles,
        |it| it.version,
        airflow::bundle_cells,
    )
    .await?;
    let versions = &changes.dag_versions;
    put(
        c,
        &airflow::DAG_VERSION,
        versions,
        |it| it.version,
        airflow::dag_version_cells,
    )
    .await?;
    for file in &changes.mended {
        mend(c, file).await?;
    }
    let errors = &changes.import_errors;
    put(
        c,
        &airflow::IMPORT_ERROR,
        errors,
        |it| it.version,
        airflow::import_error_cells,
    )
    .await
}

async fn mend(c: &mut Connection, file: &FileKey) -> Result<(), Refusal> {
    let sql = "DELETE FROM import_error WHERE bundle_name = ? AND file = ?";
    c.execute(sql, airflow::file_cells(file)).await?;
    Ok(())
}

/// Gives the task instance of a mapped task the first map index.
async fn expand(c: &mut Connection, expansion: &Expansion) -> Result<(), Refusal> {
    let sql = "UPDATE task_instance SET map_index = 0 WHERE dag_id = ? AND run_id = ? AND task_id = ? \
               AND map_index = ? AND is_archived = 0 AND version = ?";
    let version = [expansion.version.into()];
    let cells = task_instance::key_cells(&expansion.key()).into_iter();
    match c.execute(sql, cells.chain(version)).await? {
        1 => Ok(()),
        _ => Err(Refusal::Conflict),
    }
}

async fn put_deferral(c: &mut Connection, deferral: &Deferral) -> Result<(), Refusal> {
    let sql = "INSERT INTO deferral (task_instance_id, classpath, trigger_kwargs, queue, next_kwargs) \
               VALUES (?, ?, ?, ?, ?) ON CONFLICT (task_instance_id) DO UPDATE SET \
               classpath = excluded.classpath, trigger_kwargs = excluded.trigger_kwargs, \
               queue = excluded.queue, next_kwargs = excluded.next_kwargs";
    c.execute(sql, airflow::deferral_cells(deferral)).await?;
    Ok(())
}

/// Creates or changes a pool.
pub(crate) async fn apply_pool(c: &mut Connection, pool: &Pool) -> Result<(), Refusal> {
    let file = pool.file.as_ref();
    c.execute(
        "INSERT INTO pool (name, slots, include_deferred, file, slots_before) VALUES (?, ?, ?, ?, ?) \
         ON CONFLICT (name) DO UPDATE SET slots = excluded.slots, \
         include_deferred = excluded.include_deferred, file = excluded.file, \
         slots_before = excluded.slots_before",
        [
            pool.name.as_str().into(),
            pool.slots.into(),
            i64::from(pool.include_deferred).into(),
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

/// Changes the rows that are there, and inserts those whose row version is 0.
async fn put<T: Sync, const N: usize>(
    c: &mut Connection,
    table: &Table,
    rows: &[T],
    version: fn(&T) -> i64,
    cells: fn(&T, i64) -> [Cell; N],
) -> Result<(), Refusal> {
    let (new, known): (Vec<_>, Vec<_>) = rows.iter().partition(|row| version(row) == 0);
    let known = known.into_iter().map(|row| cells(row, version(row)));
    // Updates before inserts, so that a row given twice, as a new and as a known one, is a conflict.
    update(c, table, known).await?;
    insert(c, table, new.into_iter().map(|row| cells(row, 1))).await
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
