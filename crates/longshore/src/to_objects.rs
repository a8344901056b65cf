//! Rows and changes as the JSON objects of the API, which are those of `-o json` too. Pure.

use longshore_console::objects::{self, DagTask};
use longshore_dags::{Change, KnownDag, StateChange, model};
use longshore_store::{Failure, ListedRun, Pool, RunType, TaskInstance, TaskState};
use serde_json::Value;

use crate::{
    graph,
    progress::lines::{run_word, task_word},
};

/// A DAG with its tasks.
pub(crate) fn dag(known: &KnownDag, last_run: Option<&ListedRun>) -> objects::Dag {
    let tasks = known.dag.as_deref().map(|dag| {
        let tasks = graph::in_order(dag).into_iter();
        let tasks = tasks.filter_map(|id| dag.tasks.get(id));
        tasks.map(dag_task).collect()
    });
    objects::Dag {
        tasks: Some(tasks.unwrap_or_default()),
        ..listed_dag(known, last_run)
    }
}

/// A DAG as lists show it.
pub(crate) fn listed_dag(known: &KnownDag, last_run: Option<&ListedRun>) -> objects::Dag {
    let said = known.dag.as_deref();
    let of_file = said.map(|dag| objects::Dag {
        description: dag.description.clone(),
        schedule: dag.schedule.clone(),
        tags: dag.tags.clone(),
        max_active_runs: dag.max_active_runs,
        params: dag.params.clone(),
        task_count: dag.tasks.len(),
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

pub(crate) fn run(run: &ListedRun) -> objects::Run {
    objects::Run {
        dag_id: run.key.dag_id.clone(),
        run_id: run.key.run_id.clone(),
        run_type: match run.run_type {
            RunType::Scheduled => "scheduled",
            RunType::Manual => "manual",
            RunType::Backfill => "backfill",
            RunType::OperatorTriggered => "operator_triggered",
            RunType::AssetTriggered => "asset_triggered",
            RunType::AssetMaterialization => "asset_materialization",
        }
        .to_owned(),
        state: run_word(run.state).to_owned(),
        reason: run.reason.clone(),
        blocked: None,
        not_before: None,
        logical_date: run.logical_date,
        queued_at: Some(run.queued_at),
        started_at: run.start_date,
        ended_at: run.end_date,
        params: run.conf.clone(),
    }
}

pub(crate) fn task(row: &TaskInstance) -> objects::Task {
    objects::Task {
        dag_id: row.key.run.dag_id.clone(),
        run_id: row.key.run.run_id.clone(),
        task_id: row.key.task_id.clone(),
        map_index: row.key.map_index,
        state: state(row),
        try_number: row.try_number,
        max_tries: row.max_tries.saturating_add(1),
        pool: row.pool.clone(),
        blocked: None,
        queued_at: row.queued_at,
        started_at: row.start_date,
        ended_at: row.end_date,
        pod: row.pod_name.clone(),
        failure: row.failure.as_ref().map(failure),
        next_try_at: None,
        result: row.result.clone(),
        result_note: row.result_note.clone(),
        earlier_tries: Vec::new(),
    }
}

pub(crate) fn pool(pool: &Pool) -> objects::Pool {
    objects::Pool {
        name: pool.name.clone(),
        slots: pool.slots,
        file: pool.file.as_ref().map(|file| file.name.clone()),
    }
}

pub(crate) fn earlier_try(row: &TaskInstance) -> objects::Try {
    objects::Try {
        try_number: row.try_number,
        state: state(row),
        started_at: row.start_date,
        ended_at: row.end_date,
        pod: row.pod_name.clone(),
        failure: row.failure.as_ref().map(failure),
    }
}

/// States are Airflow's words, absent where Airflow has none.
pub(crate) fn change(change: &StateChange) -> objects::Change {
    let at = change.at;
    let (dag_id, run_id) = (change.run.dag_id.clone(), change.run.run_id.clone());
    match &change.change {
        Change::Run { from, to, reason } => objects::Change::RunChange {
            at,
            dag_id,
            run_id,
            from: from.map(|from| run_word(from).to_owned()),
            to: run_word(*to).to_owned(),
            reason: reason.clone(),
        },
        Change::Task {
            task_id,
            map_index,
            try_number,
            from,
            to,
            pod,
            failure: why,
        } => objects::Change::TaskChange {
            at,
            dag_id,
            run_id,
            task_id: task_id.clone(),
            map_index: *map_index,
            try_number: *try_number,
            from: word(*from),
            to: word(*to),
            pod: pod.clone(),
            failure: why.as_ref().map(failure),
        },
        Change::Pending {
            task_id,
            map_index,
            message,
        } => objects::Change::TaskPending {
            at,
            dag_id,
            run_id,
            task_id: task_id.clone(),
            map_index: *map_index,
            message: message.clone(),
        },
    }
}

/// A file that is no DAG; `None` for a DAG, and for one whose file is gone.
pub(crate) fn import_error(known: &KnownDag) -> Option<objects::ImportError> {
    Some(objects::ImportError {
        file: known.file.clone()?,
        dag_id: known.dag_id.clone(),
        message: known.error.clone()?,
        parsed_at: known.parsed_at,
    })
}

fn state(row: &TaskInstance) -> Option<String> {
    word(row.state)
}

fn word(state: Option<TaskState>) -> Option<String> {
    state.map(|state| task_word(Some(state)).to_owned())
}

fn failure(failure: &Failure) -> objects::Failure {
    objects::Failure {
        message: failure.message.clone(),
        reason: failure.reason.clone(),
        exit_code: failure.exit_code,
        container: failure.container.clone(),
    }
}

#[cfg(test)]
mod tests {
    use longshore_store::{RunState, TaskState};

    use super::*;
    use crate::progress::fixtures::{Adjectives, run_change, task_change};

    #[test]
    fn field_names_are_an_interface() {
        let objects = [
            change(&run_change(0, None, RunState::Queued, None)),
            change(
                &task_change(
                    5,
                    "extract",
                    Some(TaskState::Running),
                    Some(TaskState::Failed),
                )
                .with_pod("etl-extract-x1")
                .because_it_failed(),
            ),
        ];
        insta::assert_json_snapshot!(objects);
    }
}
