//! Finds the row that caused a conflict, for the message.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::{
    changes::Changes,
    engine::{Connection, EngineError, Fault, Row},
    model::{DocumentHash, RunKey, TaskInstance, TaskKey},
    rows::{run, task_instance},
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
    for task in changes.task_instances.iter().chain(archived) {
        if !runs.contains(&task.key.run) && run_version(c, &task.key.run).await?.is_none() {
            return Ok(format!("run {}", task.key.run));
        }
    }
    if let Some(task) = taken_id(c, changes, &tasks).await? {
        return Ok(format!("try {} of task instance {}", task.id, task.key));
    }
    let mut dags = BTreeSet::new();
    for dag in &changes.dags {
        let stored = dag_version(c, &dag.dag_id).await?;
        if stored.unwrap_or(0) != dag.version || !dags.insert(&dag.dag_id) {
            return Ok(format!("DAG {}", dag.dag_id));
        }
    }
    let of_runs = changes.runs.iter().map(|run| &run.dag_hash);
    let of_dags = changes.dags.iter().map(|dag| &dag.document_hash);
    for hash in of_runs.chain(of_dags) {
        let is_given = changes.documents.iter().any(|given| given.hash() == hash);
        if !is_given && !is_stored(c, hash).await? {
            return Ok(format!("DAG document {hash}"));
        }
    }
    // No known conflict gets here; the rollback was right all the same.
    Ok("a row of the changes".to_owned())
}

/// The first task instance or archived try whose id belongs to another row.
async fn taken_id<'a>(
    c: &mut Connection,
    changes: &'a Changes,
    tasks: &BTreeSet<&TaskKey>,
) -> Result<Option<&'a TaskInstance>, EngineError> {
    let mut ids = BTreeSet::new();
    for task in &changes.task_instances {
        let is_own = |holder: &Holder| !holder.is_archived && holder.key == task.key;
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

async fn is_stored(c: &mut Connection, hash: &DocumentHash) -> Result<bool, EngineError> {
    let sql = "SELECT 1 AS found FROM document WHERE hash = ?";
    Ok(!c.fetch(sql, [hash.as_str().into()]).await?.is_empty())
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

async fn dag_version(c: &mut Connection, dag_id: &str) -> Result<Option<i64>, EngineError> {
    let sql = "SELECT version FROM dag WHERE dag_id = ?";
    let rows = c.fetch(sql, [dag_id.into()]).await?;
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
