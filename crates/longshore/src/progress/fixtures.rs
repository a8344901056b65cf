//! State changes for the tests of everything that shows them.

use jiff::{SignedDuration, Timestamp};
use longshore_store::{Failure, RunKey, RunState, TaskState};

use longshore_dags::{Change, StateChange};

/// The run of all fixtures.
pub(crate) fn run_key() -> RunKey {
    RunKey {
        dag_id: "etl".to_owned(),
        run_id: "abc".to_owned(),
    }
}

/// The time this many milliseconds after ten o'clock.
pub(crate) fn at(milliseconds: i64) -> Timestamp {
    let start: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    start + SignedDuration::from_millis(milliseconds)
}

/// A transition of the run.
pub(crate) fn run_change(
    milliseconds: i64,
    from: Option<RunState>,
    to: RunState,
    reason: Option<&str>,
) -> StateChange {
    let change = Change::Run {
        from,
        to,
        reason: reason.map(str::to_owned),
    };
    StateChange {
        at: at(milliseconds),
        run: run_key(),
        change,
    }
}

/// A transition of a task in its first try; the adjectives below change it.
pub(crate) fn task_change(
    milliseconds: i64,
    task_id: &str,
    from: Option<TaskState>,
    to: Option<TaskState>,
) -> StateChange {
    let change = Change::Task {
        task_id: task_id.to_owned(),
        map_index: -1,
        try_number: 1,
        from,
        to,
        pod: None,
        failure: None,
    };
    StateChange {
        at: at(milliseconds),
        run: run_key(),
        change,
    }
}

/// What is particular about a state change of a task.
pub(crate) trait Adjectives {
    /// In a later try.
    fn in_try(self, n: u32) -> Self;
    /// With a pod.
    fn with_pod(self, name: &str) -> Self;
    /// Because the container ended with exit code 1.
    fn because_it_failed(self) -> Self;
    /// Because of a failure in these words.
    fn because(self, message: &str) -> Self;
}

impl Adjectives for StateChange {
    fn in_try(mut self, n: u32) -> Self {
        if let Change::Task { try_number, .. } = &mut self.change {
            *try_number = n;
        }
        self
    }

    fn with_pod(mut self, name: &str) -> Self {
        if let Change::Task { pod, .. } = &mut self.change {
            *pod = Some(name.to_owned());
        }
        self
    }

    fn because_it_failed(mut self) -> Self {
        if let Change::Task { failure, .. } = &mut self.change {
            *failure = Some(exit_code_1());
        }
        self
    }

    fn because(mut self, message: &str) -> Self {
        if let Change::Task { failure, .. } = &mut self.change {
            *failure = Some(Failure {
                message: message.to_owned(),
                ..exit_code_1()
            });
        }
        self
    }
}

/// A container that ended with exit code 1.
pub(crate) fn exit_code_1() -> Failure {
    Failure {
        message: "container base ended with exit code 1".to_owned(),
        reason: Some("Error".to_owned()),
        exit_code: Some(1),
        container: Some("base".to_owned()),
    }
}
