//! One line per state change, for logs and pipes.

use std::fmt::Write;

use longshore_store::{Failure, RunState, TaskState};

use longshore_dags::{Change, StateChange};

use crate::printable::one_line;

/// `2026-11-21T10:00:00Z run/abc task/extract queued -> running (pod etl-extract-x1)`
pub(crate) fn line(change: &StateChange) -> String {
    let mut line = format!("{:.0} run/{}", change.at, change.run.run_id);
    let details = match &change.change {
        Change::Run { from, to, reason } => {
            let from = from.map_or("new", run_word);
            let _ = write!(line, " {from} -> {}", run_word(*to));
            reason.clone()
        }
        Change::Task {
            task_id,
            map_index,
            try_number,
            from,
            to,
            pod,
            failure,
        } => {
            let _ = write!(
                line,
                " task/{} {} -> {}",
                task_name(task_id, *map_index),
                task_word(*from),
                task_word(*to)
            );
            details(*try_number, pod.as_deref(), failure.as_ref())
        }
        Change::Pending {
            task_id,
            map_index,
            message,
        } => {
            let _ = write!(line, " task/{} waits", task_name(task_id, *map_index));
            message.clone()
        }
    };
    if let Some(details) = details {
        let _ = write!(line, " ({details})");
    }
    // What a task says of its end has any characters.
    one_line(&line)
}

/// `pod etl-extract-x1, try 2: the container ended with exit code 1`
fn details(try_number: u32, pod: Option<&str>, failure: Option<&Failure>) -> Option<String> {
    let pod = pod.map(|pod| format!("pod {pod}"));
    let nth_try = (try_number > 1).then(|| format!("try {try_number}"));
    let place: Vec<String> = pod.into_iter().chain(nth_try).collect();
    match (place.is_empty(), failure) {
        (true, None) => None,
        (true, Some(failure)) => Some(failure.message.clone()),
        (false, None) => Some(place.join(", ")),
        (false, Some(failure)) => Some(format!("{}: {}", place.join(", "), failure.message)),
    }
}

/// The task, with its index where it is mapped.
pub(crate) fn task_name(task_id: &str, map_index: i32) -> String {
    if map_index < 0 {
        task_id.to_owned()
    } else {
        format!("{task_id}[{map_index}]")
    }
}

/// Airflow's word for a state of a run.
pub(crate) fn run_word(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Running => "running",
        RunState::Success => "success",
        RunState::Failed => "failed",
    }
}

/// Airflow's word for a state of a task instance; it has none for "its dependencies do not hold yet".
pub(crate) fn task_word(state: Option<TaskState>) -> &'static str {
    match state {
        None => "waiting",
        Some(TaskState::Scheduled) => "scheduled",
        Some(TaskState::Queued) => "queued",
        Some(TaskState::Running) => "running",
        Some(TaskState::Restarting) => "restarting",
        Some(TaskState::Success) => "success",
        Some(TaskState::Failed) => "failed",
        Some(TaskState::UpForRetry) => "up_for_retry",
        Some(TaskState::UpForReschedule) => "up_for_reschedule",
        Some(TaskState::Deferred) => "deferred",
        Some(TaskState::AwaitingInput) => "awaiting_input",
        Some(TaskState::UpstreamFailed) => "upstream_failed",
        Some(TaskState::Skipped) => "skipped",
        Some(TaskState::Removed) => "removed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::{Adjectives, run_change, task_change};

    #[test]
    fn a_line_says_when_what_changed_and_where() {
        use TaskState::{Failed, Queued, Running, Scheduled, UpForRetry};

        let mut mapped = task_change(0, "load", Some(Scheduled), Some(Queued));
        if let Change::Task { map_index, .. } = &mut mapped.change {
            *map_index = 3;
        }
        let lines: Vec<String> = [
            run_change(0, None, RunState::Queued, None),
            run_change(0, Some(RunState::Queued), RunState::Running, None),
            task_change(1, "extract", None, Some(Scheduled)),
            task_change(2_000, "extract", Some(Queued), Some(Running)).with_pod("etl-extract-x1"),
            mapped,
            task_change(3_000, "extract", Some(Running), Some(UpForRetry)).because_it_failed(),
            task_change(9_999, "extract", Some(Running), Some(Failed))
                .in_try(2)
                .with_pod("etl-extract-x2")
                .because_it_failed(),
            run_change(
                10_000,
                Some(RunState::Running),
                RunState::Failed,
                Some("timed_out"),
            ),
        ]
        .iter()
        .map(line)
        .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn what_a_task_says_of_its_end_stays_in_its_line_and_has_no_commands_to_a_terminal() {
        use TaskState::{Failed, Running};

        let said = "a\u{1b}[31mb\u{1b}]52;c;aGk=\u{7}c\r\nnext\u{202e}";
        let failed = task_change(0, "extract", Some(Running), Some(Failed)).because(said);
        let ended = run_change(0, Some(RunState::Running), RunState::Failed, Some(said));
        for change in [failed, ended] {
            let line = line(&change);
            assert!(line.ends_with("(abc next)"), "{line:?}");
        }
    }
}
