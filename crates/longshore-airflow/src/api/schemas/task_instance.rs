//! Bodies about task instances.

use super::*;
use crate::api::{
    schema::Alternative,
    version::ApiVersion,
    words::{IntermediateTiState, TerminalStateNonSuccess},
};

/// `/run`.
pub const ENTER_RUNNING: Schema = strict(
    "TIEnterRunningPayload",
    &[
        required("state", ValueKind::Words(&["running"])),
        required("hostname", ValueKind::Text),
        required("unixname", ValueKind::Text),
        required("pid", ValueKind::Integer),
        required("start_date", ValueKind::Instant),
    ],
);

/// `/heartbeat`.
pub const HEARTBEAT: Schema = strict(
    "TIHeartbeatInfo",
    &[
        required("hostname", ValueKind::Text),
        required("pid", ValueKind::Integer),
    ],
);

/// `/state`: ended without success.
pub const TERMINAL: Schema = strict(
    "TITerminalStatePayload",
    &[
        required("state", ValueKind::Words(TerminalStateNonSuccess::WORDS)),
        required("end_date", ValueKind::Instant),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: succeeded.
pub const SUCCESS: Schema = strict(
    "TISuccessStatePayload",
    &[
        required("state", ValueKind::Words(&["success"])),
        required("end_date", ValueKind::Instant),
        optional(
            "task_outlets",
            ValueKind::List(&ValueKind::Object(&ASSET_PROFILE)),
        ),
        optional("outlet_events", ValueKind::List(&ValueKind::Map)),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: any other state.
pub const TARGET: Schema = strict(
    "TITargetStatePayload",
    &[required(
        "state",
        ValueKind::Words(IntermediateTiState::WORDS),
    )],
);

/// `/state`: deferred.
pub const DEFERRED: Schema = strict(
    "TIDeferredStatePayload",
    &[
        required("state", ValueKind::Words(&["deferred"])),
        required("classpath", ValueKind::Text),
        optional(
            "trigger_kwargs",
            ValueKind::Either(&ValueKind::Map, &ValueKind::Text),
        ),
        optional("trigger_timeout", ValueKind::Nullable(&ValueKind::Duration)),
        optional("queue", TEXT_OR_NULL),
        required("next_method", ValueKind::Text),
        optional("next_kwargs", ValueKind::Map),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: looks again later.
pub const RESCHEDULE: Schema = strict(
    "TIRescheduleStatePayload",
    &[
        required("state", ValueKind::Words(&["up_for_reschedule"])),
        required("reschedule_date", ValueKind::Instant),
        required("end_date", ValueKind::Instant),
    ],
);

/// `/state`: waits for a human.
pub const AWAITING_INPUT: Schema = strict(
    "TIAwaitingInputStatePayload",
    &[
        required("state", ValueKind::Words(&["awaiting_input"])),
        optional("timeout", ValueKind::Nullable(&ValueKind::Duration)),
        required("next_method", ValueKind::Text),
        optional("next_kwargs", ValueKind::Map),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: failed, and asks for another try.
pub const RETRY: Schema = strict(
    "TIRetryStatePayload",
    &[
        required("state", ValueKind::Words(&["up_for_retry"])),
        required("end_date", ValueKind::Instant),
        optional("rendered_map_index", TEXT_OR_NULL),
        optional(
            "retry_delay_seconds",
            ValueKind::Nullable(&ValueKind::Number),
        ),
        optional("retry_reason", TEXT_OR_NULL),
    ],
);

/// `/state`.
pub const STATE_UPDATE: ValueKind = ValueKind::ByState(&[
    Alternative {
        tag: "_terminal_",
        states: TerminalStateNonSuccess::WORDS,
        schema: &TERMINAL,
    },
    Alternative {
        tag: "success",
        states: &["success"],
        schema: &SUCCESS,
    },
    Alternative {
        tag: "deferred",
        states: &["deferred"],
        schema: &DEFERRED,
    },
    Alternative {
        tag: "up_for_reschedule",
        states: &["up_for_reschedule"],
        schema: &RESCHEDULE,
    },
    Alternative {
        tag: "awaiting_input",
        states: &["awaiting_input"],
        schema: &AWAITING_INPUT,
    },
    Alternative {
        tag: "up_for_retry",
        states: &["up_for_retry"],
        schema: &RETRY,
    },
    Alternative {
        tag: "_other_",
        states: &[],
        schema: &TARGET,
    },
]);

/// `/skip-downstream`.
pub const SKIP_DOWNSTREAM: Schema = strict(
    "TISkippedDownstreamTasksStatePayload",
    &[required(
        "tasks",
        ValueKind::List(&ValueKind::Either(
            &ValueKind::Text,
            &ValueKind::Pair(&ValueKind::Text, &ValueKind::Integer),
        )),
    )],
);

/// Answer of `/run`.
pub const RUN_CONTEXT: Schema = lenient(
    "TIRunContext",
    &[
        required("dag_run", ValueKind::Object(&DAG_RUN)),
        optional("task_reschedule_count", ValueKind::Integer),
        required("max_tries", ValueKind::Integer),
        optional("variables", ValueKind::List(&ValueKind::Object(&VARIABLE))),
        optional(
            "connections",
            ValueKind::List(&ValueKind::Object(&CONNECTION)),
        ),
        optional("next_method", TEXT_OR_NULL),
        optional(
            "next_kwargs",
            ValueKind::Nullable(&ValueKind::Either(&ValueKind::Map, &ValueKind::Text)),
        ),
        optional("xcom_keys_to_clear", TEXTS),
        optional("should_retry", ValueKind::Boolean),
        optional("start_date", INSTANT_OR_NULL).with(Life::Since(ApiVersion::V2026_04_06)),
        required("upstream_map_indexes", MAP_OR_NULL).with(Life::Before(ApiVersion::V2026_04_06)),
    ],
);

/// Answer of `/previous-successful-dagrun`.
pub const PREVIOUS_SUCCESSFUL: Schema = lenient(
    "PrevSuccessfulDagRunResponse",
    &[
        optional("data_interval_start", INSTANT_OR_NULL),
        optional("data_interval_end", INSTANT_OR_NULL),
        optional("start_date", INSTANT_OR_NULL),
        optional("end_date", INSTANT_OR_NULL),
    ],
);

/// Answer of `/task-instances/previous`, which may be null.
pub const PREVIOUS_TI: Schema = lenient(
    "PreviousTIResponse",
    &[
        required("task_id", ValueKind::Text),
        required("dag_id", ValueKind::Text),
        required("run_id", ValueKind::Text),
        optional("logical_date", INSTANT_OR_NULL),
        optional("start_date", INSTANT_OR_NULL),
        optional("end_date", INSTANT_OR_NULL),
        optional("state", TEXT_OR_NULL),
        required("try_number", ValueKind::Integer),
        optional("map_index", INTEGER_OR_NULL),
        optional("duration", ValueKind::Nullable(&ValueKind::Number)),
    ],
);

/// Answer of `/task-instances/states`.
pub const STATES: Schema = lenient(
    "TaskStatesResponse",
    &[required("task_states", ValueKind::Map)],
);

/// Answer of `/task-instances/breadcrumbs`.
pub const BREADCRUMBS: Schema = lenient(
    "TaskBreadcrumbsResponse",
    &[required("breadcrumbs", ValueKind::List(&ValueKind::Map))],
);
