//! Rows and changes as the JSON objects of the API. Pure.

use longshore_console::objects::{self, DagTask};
use longshore_dags::{KnownDag, StateChange, model};
use longshore_store::{Failure, Run, RunType, TaskInstance};
use serde_json::Value;

use crate::progress::{
    self,
    lines::{run_word, task_word},
};

pub(super) fn dag(known: &KnownDag, last_run: Option<&Run>) -> objects::Dag {
    let said = known.dag.as_deref();
    let of_file = said.map(|dag| objects::Dag {
        description: dag.description.clone(),
        schedule: dag.schedule.clone(),
        tags: dag.tags.clone(),
        max_active_runs: dag.max_active_runs,
        params: dag.params.clone(),
        tasks: dag.tasks.values().map(dag_task).collect(),
        ..objects::Dag::default()
    });
    objects::Dag {
        dag_id: known.dag_id.clone().unwrap_or_default(),
        is_paused: known.is_paused,
        file: known.file.clone(),
        error: known.error.clone(),
        next_run_at: known.next_run.as_ref().map(|next| next.run_after),
        last_run: last_run.map(run),
        ..of_file.unwrap_or_default()
    }
}

fn dag_task(task: &model::Task) -> DagTask {
    let rule = serde_json::to_value(task.trigger_rule);
    DagTask {
        task_id: task.task_id.clone(),
        upstream: task.upstream.iter().cloned().collect(),
        retries: task.retries,
        trigger_rule: rule
            .ok()
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
    }
}

pub(super) fn run(run: &Run) -> objects::Run {
    objects::Run {
        dag_id: run.key.dag_id.clone(),
        run_id: run.key.run_id.clone(),
        run_type: match run.run_type {
            RunType::Scheduled => "scheduled",
            RunType::Manual => "manual",
            RunType::Backfill => "backfill",
        }
        .to_owned(),
        state: run_word(run.state).to_owned(),
        reason: run.reason.clone(),
        logical_date: run.logical_date,
        queued_at: Some(run.queued_at),
        started_at: run.start_date,
        ended_at: run.end_date,
        params: run.conf.clone(),
    }
}

pub(super) fn task(row: &TaskInstance) -> objects::Task {
    objects::Task {
        dag_id: row.key.run.dag_id.clone(),
        run_id: row.key.run.run_id.clone(),
        task_id: row.key.task_id.clone(),
        map_index: row.key.map_index,
        state: state(row),
        try_number: row.try_number,
        max_tries: row.max_tries.saturating_add(1),
        pool: row.pool.clone(),
        queued_at: row.queued_at,
        started_at: row.start_date,
        ended_at: row.end_date,
        pod: row.pod_name.clone(),
        failure: row.failure.as_ref().map(failure),
        result: row.result.clone(),
        earlier_tries: Vec::new(),
    }
}

pub(super) fn earlier_try(row: &TaskInstance) -> objects::Try {
    objects::Try {
        try_number: row.try_number,
        state: state(row),
        started_at: row.start_date,
        ended_at: row.end_date,
        pod: row.pod_name.clone(),
        failure: row.failure.as_ref().map(failure),
    }
}

/// The change with the field names that `longshore run -o json` has.
pub(super) fn change(change: &StateChange) -> Option<objects::Change> {
    let object = progress::objects::change(change);
    serde_json::from_value(object)
        .inspect_err(|error| tracing::error!(%error, code = "LS1901", "a change cannot be told"))
        .ok()
}

fn state(row: &TaskInstance) -> Option<String> {
    row.state.map(|state| task_word(Some(state)).to_owned())
}

fn failure(failure: &Failure) -> objects::Failure {
    objects::Failure {
        message: failure.message.clone(),
        reason: failure.reason.clone(),
        exit_code: failure.exit_code,
        container: failure.container.clone(),
    }
}
