//! An event as it is on the wire.

use jiff::Timestamp;
use longshore_api::flyte::{FILE_OUTPUTS, FILE_REPORT};
use longshore_plugins::{ErrorKind, ReasonInfo, TaskError};
use longshore_proto::flyteidl2::{
    common::{ActionIdentifier, RunIdentifier},
    task::OutputReferences,
    workflow::{self, ClusterEvent, ErrorInfo, error_info::Kind},
};

use super::ActionEvent;

/// Why a receiver would refuse an event; `None` where it would not.
pub(super) fn flaw(event: &ActionEvent) -> Option<&'static str> {
    let names = [&event.project, &event.domain, &event.run, &event.action];
    if names.into_iter().any(String::is_empty) {
        Some("it does not say whose it is")
    } else if event.attempt == 0 {
        Some("its attempt is 0, and the first one is 1")
    } else {
        None
    }
}

/// The message of an event.
pub(super) fn to_proto(event: &ActionEvent) -> workflow::ActionEvent {
    let prefix = &event.output_prefix;
    workflow::ActionEvent {
        id: Some(ActionIdentifier {
            run: Some(RunIdentifier {
                org: String::new(),
                project: event.project.clone(),
                domain: event.domain.clone(),
                name: event.run.clone(),
            }),
            name: event.action.clone(),
        }),
        attempt: event.attempt,
        phase: event.phase.into(),
        version: event.version,
        updated_time: Some(instant(event.updated_at)),
        reported_time: Some(instant(event.reported_at)),
        error_info: event.error.as_ref().map(error_info),
        cluster: event.cluster.clone(),
        outputs: Some(OutputReferences {
            output_uri: format!("{prefix}/{FILE_OUTPUTS}"),
            report_uri: format!("{prefix}/{FILE_REPORT}"),
        }),
        cache_status: event.cache_status,
        cluster_events: event.reasons.iter().map(cluster_event).collect(),
        log_info: event.logs.clone(),
        log_context: event.log_context.clone(),
        ..workflow::ActionEvent::default()
    }
}

/// The code is not told: it is in the status.
fn error_info(error: &TaskError) -> ErrorInfo {
    let kind = match error.kind {
        ErrorKind::Unknown => Kind::Unspecified,
        ErrorKind::User => Kind::User,
        ErrorKind::System => Kind::System,
    };
    ErrorInfo {
        message: error.message.clone(),
        kind: kind.into(),
        ..ErrorInfo::default()
    }
}

fn cluster_event(reason: &ReasonInfo) -> ClusterEvent {
    ClusterEvent {
        message: reason.reason.clone(),
        occurred_at: Some(instant(reason.occurred_at)),
        ..ClusterEvent::default()
    }
}

fn instant(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}
