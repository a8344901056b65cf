//! One JSON object per state change, for programs. Field names are an interface.

use serde_json::{Value, json};

use longshore_dags::{Change, StateChange};

/// The change as an object; states are Airflow's words, `null` where there is none.
pub(crate) fn change(change: &StateChange) -> Value {
    let at = change.at.to_string();
    let (dag_id, run_id) = (&change.run.dag_id, &change.run.run_id);
    match &change.change {
        Change::Run { from, to, reason } => json!({
            "kind": "RunChange",
            "at": at,
            "dagId": dag_id,
            "runId": run_id,
            "from": from,
            "to": to,
            "reason": reason,
        }),
        Change::Task {
            task_id,
            map_index,
            try_number,
            from,
            to,
            pod,
            failure,
        } => json!({
            "kind": "TaskChange",
            "at": at,
            "dagId": dag_id,
            "runId": run_id,
            "taskId": task_id,
            "mapIndex": map_index,
            "tryNumber": try_number,
            "from": from,
            "to": to,
            "pod": pod,
            "failure": failure.as_ref().map(|failure| json!({
                "message": failure.message,
                "reason": failure.reason,
                "exitCode": failure.exit_code,
                "container": failure.container,
            })),
        }),
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
