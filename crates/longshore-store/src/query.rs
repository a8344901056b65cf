//! The queries.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    changes::{Snapshot, StoreError},
    engine::{Cell, Connection, Row},
    model::{
        ArchivedTry, DagVersion, Deferral, DocumentHash, Pool, PoolFile, Reschedule, Run, RunKey,
        StoredDocument, TaskInstance,
    },
    rows::{airflow, dag, document, instant, run, task_instance},
};

/// Documents in one query; each can be large.
const MAX_DOCUMENTS: usize = 50;
/// Task instances of a run in one query: as the database returns them, they take several times the memory of what they are
/// read into.
const MAX_TASK_INSTANCES: usize = 500;

/// Runs queries in one transaction, so that all see the same state.
pub(crate) async fn in_transaction<T>(
    c: &mut Connection,
    work: impl AsyncFnOnce(&mut Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    c.begin_read()
        .await
        .map_err(|e| e.into_store_error("read"))?;
    let result = work(c).await;
    if c.is_lost() {
        return result;
    }
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
    // CROSS JOIN means the same, but makes SQLite start from the few unfinished runs, not from all task instances.
    let task_instances = "SELECT task_instance.* FROM run CROSS JOIN task_instance \
                          WHERE run.state IN ('queued', 'running') \
                          AND task_instance.dag_id = run.dag_id \
                          AND task_instance.run_id = run.run_id \
                          AND task_instance.is_archived = 0 \
                          ORDER BY run.queued_at, run.dag_id, run.run_id, task_id, map_index";
    let pools = fetch(
        c,
        "SELECT name, slots, include_deferred, file, slots_before FROM pool ORDER BY name",
        [],
    )
    .await?;
    let scheduler = fetch(c, "SELECT watch_position FROM scheduler", []).await?;
    let position = |row: &Row| row.opt_text("watch_position");
    let position = scheduler.first().map(position).transpose();
    let runs = read_all(fetch(c, runs, []).await?, run::read)?;
    let dags = fetch(c, "SELECT * FROM dag ORDER BY dag_id", []).await?;
    let dags = read_all(dags, dag::read)?;
    let of_runs = runs.iter().map(|run| &run.dag_hash);
    let hashes = of_runs.chain(dags.iter().map(|dag| &dag.document_hash));
    Ok(Snapshot {
        documents: documents(c, hashes).await?,
        dag_versions: dag_versions(c).await?,
        bundles: read_all(
            fetch(c, "SELECT * FROM bundle ORDER BY name", []).await?,
            airflow::read_bundle,
        )?,
        import_errors: read_all(
            fetch(
                c,
                "SELECT * FROM import_error ORDER BY bundle_name, file",
                [],
            )
            .await?,
            airflow::read_import_error,
        )?,
        runs,
        dags,
        task_instances: read_all(fetch(c, task_instances, []).await?, task_instance::read)?,
        pools: read_all(pools, read_pool)?,
        watch_position: position
            .map_err(|why| corrupt("the watch position", why))?
            .flatten(),
    })
}

/// The latest version of each DAG, and the versions of runs that are not finished.
async fn dag_versions(c: &mut Connection) -> Result<Vec<DagVersion>, StoreError> {
    let sql = "SELECT * FROM dag_version WHERE number = (SELECT MAX(latest.number) \
               FROM dag_version AS latest WHERE latest.dag_id = dag_version.dag_id) \
               OR id IN (SELECT dag_version_id FROM run WHERE state IN ('queued', 'running')) \
               ORDER BY dag_id, number";
    read_all(fetch(c, sql, []).await?, airflow::read_dag_version)
}

/// One run with its task instances.
pub(crate) async fn run(
    c: &mut Connection,
    key: &RunKey,
) -> Result<Option<(Run, Vec<TaskInstance>)>, StoreError> {
    let sql = "SELECT * FROM run WHERE dag_id = ? AND run_id = ?";
    let rows = fetch(c, sql, run::key_cells(key)).await?;
    let Some(run) = rows.first().map(run::read).transpose()? else {
        return Ok(None);
    };
    Ok(Some((run, task_instances(c, key).await?)))
}

/// The current task instances of a run.
async fn task_instances(c: &mut Connection, key: &RunKey) -> Result<Vec<TaskInstance>, StoreError> {
    let of_run = "SELECT * FROM task_instance WHERE dag_id = ? AND run_id = ? AND is_archived = 0";
    let in_order = format!("ORDER BY task_id, map_index LIMIT {MAX_TASK_INSTANCES}");
    let first = format!("{of_run} {in_order}");
    let next = format!("{of_run} AND (task_id, map_index) > (?, ?) {in_order}");
    let rows = fetch(c, first, run::key_cells(key)).await?;
    let mut found = read_all(rows, task_instance::read)?;
    let mut n_read = found.len();
    while let Some(last) = found.last().filter(|_| n_read == MAX_TASK_INSTANCES) {
        let after: [Cell; 2] = [
            last.key.task_id.as_str().into(),
            i64::from(last.key.map_index).into(),
        ];
        let cells = run::key_cells(key).into_iter().chain(after);
        let page = read_all(fetch(c, next.clone(), cells).await?, task_instance::read)?;
        n_read = page.len();
        found.extend(page);
    }
    Ok(found)
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
    // A try that never ran has no end; the last instant of its row stands in.
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

/// The looks of a sensor in one try, in their order.
pub(crate) async fn reschedules(
    c: &mut Connection,
    id: Uuid,
) -> Result<Vec<Reschedule>, StoreError> {
    let sql = "SELECT * FROM reschedule WHERE task_instance_id = ? ORDER BY number";
    let rows = fetch(c, sql, [id.to_string().into()]).await?;
    read_all(rows, airflow::read_reschedule)
}

/// How a deferred try goes on.
pub(crate) async fn deferral(c: &mut Connection, id: Uuid) -> Result<Option<Deferral>, StoreError> {
    let sql = "SELECT * FROM deferral WHERE task_instance_id = ?";
    let rows = fetch(c, sql, [id.to_string().into()]).await?;
    rows.first().map(airflow::read_deferral).transpose()
}

/// The versions of a DAG, latest first.
pub(crate) async fn dag_versions_of(
    c: &mut Connection,
    dag_id: &str,
) -> Result<Vec<DagVersion>, StoreError> {
    let sql = "SELECT * FROM dag_version WHERE dag_id = ? ORDER BY number DESC";
    let rows = fetch(c, sql, [dag_id.into()]).await?;
    read_all(rows, airflow::read_dag_version)
}

/// The secret that signs the tokens of workers.
pub(crate) async fn token_secret(c: &mut Connection) -> Result<String, StoreError> {
    let rows = fetch(c, "SELECT token_secret FROM scheduler", []).await?;
    let secret = rows.first().map(|row| row.text("token_secret"));
    let missing = || Err("there is none".to_owned());
    secret
        .unwrap_or_else(missing)
        .map_err(|why| corrupt("the secret of tokens", why))
}

/// A version of a DAG.
pub(crate) async fn dag_version(
    c: &mut Connection,
    id: Uuid,
) -> Result<Option<DagVersion>, StoreError> {
    let sql = "SELECT * FROM dag_version WHERE id = ?";
    let rows = fetch(c, sql, [id.to_string().into()]).await?;
    rows.first().map(airflow::read_dag_version).transpose()
}

/// Whether a DAG has a run of this name, or one that is about this instant.
pub(crate) async fn has_run(
    c: &mut Connection,
    key: &RunKey,
    logical_date: Option<Timestamp>,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 AS found FROM run WHERE dag_id = ? AND run_id = ? \
               UNION ALL SELECT 1 AS found FROM run WHERE dag_id = ? AND logical_date = ?";
    let of_date = [key.dag_id.as_str().into(), instant(logical_date)];
    let cells = run::key_cells(key).into_iter().chain(of_date);
    Ok(!fetch(c, sql, cells).await?.is_empty())
}

/// The document of this hash.
pub(crate) async fn document(
    c: &mut Connection,
    hash: &DocumentHash,
) -> Result<StoredDocument, StoreError> {
    let mut found = documents(c, [hash]).await?;
    found.remove(hash).ok_or_else(|| no_document(hash))
}

/// The documents of these hashes, each once.
async fn documents(
    c: &mut Connection,
    hashes: impl IntoIterator<Item = &DocumentHash>,
) -> Result<BTreeMap<DocumentHash, StoredDocument>, StoreError> {
    let mut documents = BTreeMap::new();
    let hashes = Vec::from_iter(BTreeSet::from_iter(hashes));
    for hashes in hashes.chunks(MAX_DOCUMENTS) {
        let marks = vec!["?"; hashes.len()].join(", ");
        let sql = format!("SELECT hash, body FROM document WHERE hash IN ({marks})");
        let cells: Vec<Cell> = hashes.iter().map(|hash| hash.as_str().into()).collect();
        let found = read_all(fetch(c, sql, cells).await?, document::read)?;
        documents.extend(found.into_iter().map(|it| (it.hash().clone(), it)));
    }
    match hashes.iter().find(|hash| !documents.contains_key(**hash)) {
        Some(hash) => Err(no_document(hash)),
        None => Ok(documents),
    }
}

fn no_document(hash: &DocumentHash) -> StoreError {
    let why = "a row refers to it, and it is not there";
    corrupt(&format!("the DAG document {hash}"), why.to_owned())
}

fn read_pool(row: &Row) -> Result<Pool, StoreError> {
    let read = || {
        let slots_before = row.opt_int("slots_before")?;
        let file = row.opt_text("file")?;
        Ok(Pool {
            name: row.text("name")?,
            slots: row.int("slots")?,
            include_deferred: row.int("include_deferred")? != 0,
            file: file.map(|name| PoolFile { name, slots_before }),
        })
    };
    read().map_err(|why| corrupt("a pool", why))
}

pub(crate) async fn fetch(
    c: &mut Connection,
    sql: impl Into<std::borrow::Cow<'static, str>>,
    cells: impl IntoIterator<Item = Cell>,
) -> Result<Vec<Row>, StoreError> {
    c.fetch(sql, cells)
        .await
        .map_err(|e| e.into_store_error("read"))
}

pub(crate) fn read_all<T>(
    rows: Vec<Row>,
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    rows.into_iter().map(|row| read(&row)).collect()
}

pub(crate) fn corrupt(what: &str, why: String) -> StoreError {
    StoreError::Corrupt {
        what: what.to_owned(),
        why: why.into(),
    }
}
