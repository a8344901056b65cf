//! Finds the row that caused a conflict, for the message.

use std::{borrow::Cow, collections::BTreeSet};

use uuid::Uuid;

use crate::{
    changes::Changes,
    engine::{Cell, Connection, EngineError, Row},
    model::{DocumentHash, Reschedule, RunKey, TaskInstance, TaskKey},
    rows::{airflow, run, task_instance},
};

/// Which row refused these changes; the transaction is as it was before them.
pub(crate) async fn find(c: &mut Connection, changes: &Changes) -> Result<String, EngineError> {
    let mut runs = BTreeSet::new();
    for run in &changes.runs {
        let stored = run_version(c, &run.key).await?;
        if stored.unwrap_or(0) != run.version || !runs.insert(&run.key) {
            return Ok(format!("run {}", run.key));
        }
    }
    if let Some(what) = dag_files(c, changes).await? {
        return Ok(what);
    }
    // After the rollback a row that these changes expand is where it was.
    let mut tasks = BTreeSet::new();
    let mut expanded = BTreeSet::new();
    for expansion in &changes.expansions {
        let key = expansion.key();
        let stored = task_version(c, &key).await?;
        let first = TaskKey {
            map_index: 0,
            ..key.clone()
        };
        let is_taken = task_version(c, &first).await?.is_some();
        if stored != Some(expansion.version) || is_taken || !expanded.insert(first) {
            return Ok(format!("task instance {key}"));
        }
    }
    for task in &changes.task_instances {
        let stored = task_version(c, &before(&task.key, &expanded)).await?;
        if stored.unwrap_or(0) != task.version || !tasks.insert(&task.key) {
            return Ok(format!("task instance {}", task.key));
        }
    }
    let archived = changes
        .archived
        .iter()
        .map(|archived| &archived.task_instance);
    for task in changes.task_instances.iter().chain(archived) {
        if !runs.contains(&task.key.run) && run_version(c, &task.key.run).await?.is_none() {
            return Ok(format!("run {}", task.key.run));
        }
    }
    if let Some(task) = taken_id(c, changes, &tasks, &expanded).await? {
        return Ok(format!("try {} of task instance {}", task.id, task.key));
    }
    let mut dags = BTreeSet::new();
    for dag in &changes.dags {
        let stored = dag_version(c, &dag.dag_id).await?;
        if stored.unwrap_or(0) != dag.version || !dags.insert(&dag.dag_id) {
            return Ok(format!("DAG {}", dag.dag_id));
        }
    }
    if let Some(what) = references(c, changes).await? {
        return Ok(what);
    }
    // No known conflict gets here; the rollback was right all the same.
    Ok("a row of the changes".to_owned())
}

/// The first bundle, DAG version or import error that is not as these changes saw it.
async fn dag_files(c: &mut Connection, changes: &Changes) -> Result<Option<String>, EngineError> {
    let mut names = BTreeSet::new();
    for bundle in &changes.bundles {
        let sql = "SELECT version FROM bundle WHERE name = ?";
        let stored = version(c, sql, [bundle.name.as_str().into()]).await?;
        if stored.unwrap_or(0) != bundle.version || !names.insert(&bundle.name) {
            return Ok(Some(format!("bundle {}", bundle.name)));
        }
    }
    let (mut ids, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for it in &changes.dag_versions {
        let sql = "SELECT version FROM dag_version WHERE id = ?";
        let stored = version(c, sql, [it.id.to_string().into()]).await?;
        let sql = "SELECT version FROM dag_version WHERE dag_id = ? AND number = ?";
        let number = [it.dag_id.as_str().into(), i64::from(it.number).into()];
        let is_taken = it.version == 0 && version(c, sql, number).await?.is_some();
        let is_first = ids.insert(it.id) && numbers.insert((&it.dag_id, it.number));
        if stored.unwrap_or(0) != it.version || is_taken || !is_first {
            return Ok(Some(format!("version {it}")));
        }
    }
    let mut files = BTreeSet::new();
    for it in &changes.import_errors {
        let sql = "SELECT version FROM import_error WHERE bundle_name = ? AND file = ?";
        let stored = version(c, sql, airflow::file_cells(&it.key)).await?;
        let is_mended = changes.mended.contains(&it.key);
        let stored = stored.filter(|_| !is_mended).unwrap_or(0);
        if stored != it.version || !files.insert(&it.key) {
            return Ok(Some(format!("import error of {}", it.key)));
        }
    }
    Ok(None)
}

/// The first row that refers to one that is not there, or that is there already and never changes.
async fn references(c: &mut Connection, changes: &Changes) -> Result<Option<String>, EngineError> {
    let of_runs = changes.runs.iter().map(|run| &run.dag_hash);
    let of_dags = changes.dags.iter().map(|dag| &dag.document_hash);
    let of_versions = changes.dag_versions.iter();
    let of_versions = of_versions.flat_map(|it| [&it.document].into_iter().chain(&it.source));
    for hash in of_runs.chain(of_dags).chain(of_versions) {
        let is_given = changes.documents.iter().any(|given| given.hash() == hash);
        if !is_given && !is_stored(c, hash).await? {
            return Ok(Some(format!("DAG document {hash}")));
        }
    }
    let of_runs = changes
        .runs
        .iter()
        .filter_map(|run| run.details.dag_version);
    let archived = changes.archived.iter().map(|it| &it.task_instance);
    let of_tasks = changes.task_instances.iter().chain(archived);
    let of_tasks = of_tasks.filter_map(|it| it.airflow.as_ref().map(|task| task.dag_version));
    for id in of_runs.chain(of_tasks) {
        let is_given = changes.dag_versions.iter().any(|given| given.id == id);
        let sql = "SELECT version FROM dag_version WHERE id = ?";
        if !is_given && version(c, sql, [id.to_string().into()]).await?.is_none() {
            return Ok(Some(format!("DAG version {id}")));
        }
    }
    for it in &changes.reschedules {
        let sql =
            "SELECT number AS version FROM reschedule WHERE task_instance_id = ? AND number = ?";
        let id = it.task_instance_id;
        let cells = [id.to_string().into(), i64::from(it.number).into()];
        let same = |other: &&Reschedule| (other.task_instance_id, other.number) == (id, it.number);
        let n_given = changes.reschedules.iter().filter(same).count();
        if n_given > 1 || version(c, sql, cells).await?.is_some() {
            return Ok(Some(format!("reschedule {} of try {id}", it.number)));
        }
    }
    Ok(None)
}

/// The first task instance or archived try whose id belongs to another row.
async fn taken_id<'a>(
    c: &mut Connection,
    changes: &'a Changes,
    tasks: &BTreeSet<&TaskKey>,
    expanded: &BTreeSet<TaskKey>,
) -> Result<Option<&'a TaskInstance>, EngineError> {
    let mut ids = BTreeSet::new();
    for task in &changes.task_instances {
        let key = before(&task.key, expanded);
        let is_own = |holder: &Holder| !holder.is_archived && holder.key == *key;
        let is_free = holder_of(c, task.id)
            .await?
            .is_none_or(|holder| is_own(&holder));
        if !is_free || !ids.insert(task.id) {
            return Ok(Some(task));
        }
    }
    for archived in &changes.archived {
        let task = &archived.task_instance;
        let is_left = |holder: &Holder| !holder.is_archived && tasks.contains(&holder.key);
        let is_free = holder_of(c, task.id)
            .await?
            .is_none_or(|holder| is_left(&holder));
        if !is_free || !ids.insert(task.id) {
            return Ok(Some(task));
        }
    }
    Ok(None)
}

/// Where a task instance was before these changes expanded its task.
fn before<'a>(key: &'a TaskKey, expanded: &BTreeSet<TaskKey>) -> Cow<'a, TaskKey> {
    if expanded.contains(key) {
        Cow::Owned(key.run.task(&key.task_id))
    } else {
        Cow::Borrowed(key)
    }
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
    rows.first()
        .map(read)
        .transpose()
        .map_err(EngineError::unreadable)
}

async fn is_stored(c: &mut Connection, hash: &DocumentHash) -> Result<bool, EngineError> {
    let sql = "SELECT 1 AS found FROM document WHERE hash = ?";
    Ok(!c.fetch(sql, [hash.as_str().into()]).await?.is_empty())
}

async fn run_version(c: &mut Connection, key: &RunKey) -> Result<Option<i64>, EngineError> {
    let sql = "SELECT version FROM run WHERE dag_id = ? AND run_id = ?";
    version(c, sql, run::key_cells(key)).await
}

async fn task_version(c: &mut Connection, key: &TaskKey) -> Result<Option<i64>, EngineError> {
    let sql = "SELECT version FROM task_instance \
               WHERE dag_id = ? AND run_id = ? AND task_id = ? AND map_index = ? \
               AND is_archived = 0";
    version(c, sql, task_instance::key_cells(key)).await
}

async fn dag_version(c: &mut Connection, dag_id: &str) -> Result<Option<i64>, EngineError> {
    let sql = "SELECT version FROM dag WHERE dag_id = ?";
    version(c, sql, [dag_id.into()]).await
}

/// The number in column `version` of the row that this query finds.
async fn version(
    c: &mut Connection,
    sql: &'static str,
    cells: impl IntoIterator<Item = Cell>,
) -> Result<Option<i64>, EngineError> {
    let rows = c.fetch(sql, cells).await?;
    let number = rows.first().map(|row| row.int("version"));
    number.transpose().map_err(EngineError::unreadable)
}
