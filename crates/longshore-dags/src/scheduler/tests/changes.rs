//! What becomes of pods.

use longshore_store::Failure;

use crate::scheduler::LaunchChange;

pub(super) fn failure(reason: &str) -> Failure {
    Failure {
        message: "it failed".to_owned(),
        reason: Some(reason.to_owned()),
        exit_code: Some(1),
        container: Some("base".to_owned()),
    }
}

pub(super) fn running() -> LaunchChange {
    LaunchChange::Running { started_at: None }
}

pub(super) fn succeeded() -> LaunchChange {
    LaunchChange::Succeeded {
        started_at: None,
        ended_at: None,
        was_stopped: false,
        result: None,
        note: None,
    }
}

/// A success of a pod that was asked to end.
pub(super) fn stopped() -> LaunchChange {
    let LaunchChange::Succeeded {
        started_at,
        ended_at,
        result,
        note,
        ..
    } = succeeded()
    else {
        unreachable!()
    };
    LaunchChange::Succeeded {
        started_at,
        ended_at,
        was_stopped: true,
        result,
        note,
    }
}

pub(super) fn failed() -> LaunchChange {
    LaunchChange::Failed {
        started_at: None,
        ended_at: None,
        failure: failure("Error"),
        before_start: false,
    }
}

pub(super) fn never_started(reason: &str) -> LaunchChange {
    LaunchChange::Failed {
        started_at: None,
        ended_at: None,
        failure: failure(reason),
        before_start: true,
    }
}
