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
        required("state", Kind::Words(&["running"])),
        required("hostname", Kind::Text),
        required("unixname", Kind::Text),
        required("pid", Kind::Integer),
        required("start_date", Kind::Instant),
    ],
);

/// `/heartbeat`.
pub const HEARTBEAT: Schema = strict(
    "TIHeartbeatInfo",
    &[
        required("hostname", Kind::Text),
        required("pid", Kind::Integer),
    ],
);

/// `/state`: ended without success.
pub const TERMINAL: Schema = strict(
    "TITerminalStatePayload",
    &[
        required("state", Kind::Words(TerminalStateNonSuccess::WORDS)),
        required("end_date", Kind::Instant),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: succeeded.
pub const SUCCESS: Schema = strict(
    "TISuccessStatePayload",
    &[
        required("state", Kind::Words(&["success"])),
        required("end_date", Kind::Instant),
        optional("task_outlets", Kind::List(&Kind::Object(&ASSET_PROFILE))),
        optional("outlet_events", Kind::List(&Kind::Map)),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: any other state.
pub const TARGET: Schema = strict(
    "TITargetStatePayload",
    &[required("state", Kind::Words(IntermediateTiState::WORDS))],
);

/// `/state`: deferred.
pub const DEFERRED: Schema = strict(
    "TIDeferredStatePayload",
    &[
        required("state", Kind::Words(&["deferred"])),
        required("classpath", Kind::Text),
        optional("trigger_kwargs", Kind::Either(&Kind::Map, &Kind::Text)),
        optional("trigger_timeout", Kind::Nullable(&Kind::Duration)),
        optional("queue", TEXT_OR_NULL),
        required("next_method", Kind::Text),
        optional("next_kwargs", Kind::Map),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: looks again later.
pub const RESCHEDULE: Schema = strict(
    "TIRescheduleStatePayload",
    &[
        required("state", Kind::Words(&["up_for_reschedule"])),
        required("reschedule_date", Kind::Instant),
        required("end_date", Kind::Instant),
    ],
);

/// `/state`: waits for a human.
pub const AWAITING_INPUT: Schema = strict(
    "TIAwaitingInputStatePayload",
    &[
        required("state", Kind::Words(&["awaiting_input"])),
        optional("timeout", Kind::Nullable(&Kind::Duration)),
        required("next_method", Kind::Text),
        optional("next_kwargs", Kind::Map),
        optional("rendered_map_index", TEXT_OR_NULL),
    ],
);

/// `/state`: failed, and asks for another try.
pub const RETRY: Schema = strict(
    "TIRetryStatePayload",
    &[
        required("state", Kind::Words(&["up_for_retry"])),
        required("end_date", Kind::Instant),
        optional("rendered_map_index", TEXT_OR_NULL),
        optional("retry_delay_seconds", Kind::Nullable(&Kind::Number)),
        optional("retry_reason", TEXT_OR_NULL),
    ],
);

/// `/state`.
pub const STATE_UPDATE: Kind = Kind::ByState(&[
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
        Kind::List(&Kind::Either(
            &Kind::Text,
            &Kind::Pair(&Kind::Text, &Kind::Integer),
        )),
    )],
);

/// Answer of `/run`.
pub const RUN_CONTEXT: Schema = lenient(
    "TIRunContext",
    &[
        required("dag_run", Kind::Object(&DAG_RUN)),
        optional("task_reschedule_count", Kind::Integer),
        required("max_tries", Kind::Integer),
        optional("variables", Kind::List(&Kind::Object(&VARIABLE))),
        optional("connections", Kind::List(&Kind::Object(&CONNECTION))),
        optional("next_method", TEXT_OR_NULL),
        optional(
            "next_kwargs",
            Kind::Nullable(&Kind::Either(&Kind::Map, &Kind::Text)),
        ),
        optional("xcom_keys_to_clear", TEXTS),
        optional("should_retry", Kind::Boolean),
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
        required("task_id", Kind::Text),
        required("dag_id", Kind::Text),
        required("run_id", Kind::Text),
        optional("logical_date", INSTANT_OR_NULL),
        optional("start_date", INSTANT_OR_NULL),
        optional("end_date", INSTANT_OR_NULL),
        optional("state", TEXT_OR_NULL),
        required("try_number", Kind::Integer),
        optional("map_index", INTEGER_OR_NULL),
        optional("duration", Kind::Nullable(&Kind::Number)),
    ],
);

/// Answer of `/task-instances/states`.
pub const STATES: Schema = lenient("TaskStatesResponse", &[required("task_states", Kind::Map)]);

/// Answer of `/task-instances/breadcrumbs`.
pub const BREADCRUMBS: Schema = lenient(
    "TaskBreadcrumbsResponse",
    &[required("breadcrumbs", Kind::List(&Kind::Map))],
);
