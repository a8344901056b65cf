//! Parameters of queries. A schema here is the whole query of an endpoint; parameters that it does not name are ignored.

use super::*;
use crate::api::words::{DagRunState, TaskInstanceState};

/// No parameters.
pub const NO_QUERY: Schema = lenient("", &[]);

/// `GET /assets/by-name`.
pub const BY_NAME: Schema = lenient("by-name", &[required("name", ValueKind::Text)]);

/// `GET /assets/by-uri`.
pub const BY_URI: Schema = lenient("by-uri", &[required("uri", ValueKind::Text)]);

/// `GET /assets/by-alias`.
pub const BY_ALIAS: Schema = lenient("by-alias", &[required("alias_name", ValueKind::Text)]);

/// `/store/asset/by-name/value`.
pub const STORE_BY_NAME: Schema = lenient(
    "store by-name",
    &[
        required("name", ValueKind::Text),
        required("key", ValueKind::Text),
    ],
);

/// `/store/asset/by-uri/value`.
pub const STORE_BY_URI: Schema = lenient(
    "store by-uri",
    &[
        required("uri", ValueKind::Text),
        required("key", ValueKind::Text),
    ],
);

/// `GET /asset-events/by-asset`.
pub const EVENTS_BY_ASSET: Schema = lenient(
    "events by-asset",
    &[
        required("name", TEXT_OR_NULL),
        required("uri", TEXT_OR_NULL),
        optional("after", INSTANT_OR_NULL),
        optional("before", INSTANT_OR_NULL),
        optional("ascending", ValueKind::Boolean),
        optional("limit", INTEGER_OR_NULL),
    ],
);

/// `GET /asset-events/by-asset-alias`.
pub const EVENTS_BY_ALIAS: Schema = lenient(
    "events by-asset-alias",
    &[
        required("name", ValueKind::Text),
        optional("after", INSTANT_OR_NULL),
        optional("before", INSTANT_OR_NULL),
        optional("ascending", ValueKind::Boolean),
        optional("limit", INTEGER_OR_NULL),
    ],
);

/// `GET /dag-runs/count`.
pub const COUNT_RUNS: Schema = lenient(
    "dag-runs count",
    &[
        required("dag_id", ValueKind::Text),
        optional("logical_dates", INSTANTS_OR_NULL),
        optional("run_ids", TEXTS_OR_NULL),
        optional("states", TEXTS_OR_NULL),
    ],
);

/// `GET /dag-runs/previous`.
pub const PREVIOUS_RUN: Schema = lenient(
    "dag-runs previous",
    &[
        required("dag_id", ValueKind::Text),
        required("logical_date", ValueKind::Instant),
        optional(
            "state",
            ValueKind::Nullable(&ValueKind::Words(DagRunState::WORDS)),
        ),
    ],
);

/// `GET /dag-runs/{dag_id}/previous`.
pub const PREVIOUS_RUN_OF_DAG: Schema = lenient(
    "dag-runs previous of a DAG",
    &[
        required("logical_date", ValueKind::Instant),
        optional(
            "state",
            ValueKind::Nullable(&ValueKind::Words(DagRunState::WORDS)),
        ),
    ],
);

/// `GET /task-instances/count`.
pub const COUNT_TASK_INSTANCES: Schema = lenient(
    "task-instances count",
    &[
        required("dag_id", ValueKind::Text),
        optional("map_index", INTEGER_OR_NULL),
        optional("task_ids", TEXTS_OR_NULL),
        optional("task_group_id", TEXT_OR_NULL),
        optional("logical_dates", INSTANTS_OR_NULL),
        optional("run_ids", TEXTS_OR_NULL),
        optional("states", TEXTS_OR_NULL),
    ],
);

/// `GET /task-instances/states`.
pub const TASK_STATES: Schema = lenient(
    "task-instances states",
    &[
        required("dag_id", ValueKind::Text),
        optional("map_index", INTEGER_OR_NULL),
        optional("task_ids", TEXTS_OR_NULL),
        optional("task_group_id", TEXT_OR_NULL),
        optional("logical_dates", INSTANTS_OR_NULL),
        optional("run_ids", TEXTS_OR_NULL),
    ],
);

/// `GET /task-instances/previous/…`.
pub const PREVIOUS_TASK_INSTANCE: Schema = lenient(
    "task-instances previous",
    &[
        optional("logical_date", INSTANT_OR_NULL),
        optional("map_index", ValueKind::Integer),
        optional(
            "state",
            ValueKind::Nullable(&ValueKind::Words(TaskInstanceState::WORDS)),
        ),
    ],
);

/// `GET /task-instances/breadcrumbs`.
pub const BREADCRUMBS_OF_RUN: Schema = lenient(
    "breadcrumbs",
    &[
        required("dag_id", ValueKind::Text),
        required("run_id", ValueKind::Text),
    ],
);

/// `GET /variables/keys`.
pub const LIST_VARIABLES: Schema = lenient(
    "variables keys",
    &[
        optional("prefix", TEXT_OR_NULL),
        optional("limit", ValueKind::Between(1, 10_000)),
        optional("offset", ValueKind::Between(0, i64::MAX)),
    ],
);

/// `GET /xcoms/…`.
pub const GET_XCOM: Schema = lenient(
    "get xcom",
    &[
        optional("map_index", ValueKind::Integer),
        optional("include_prior_dates", ValueKind::Boolean),
        optional("offset", INTEGER_OR_NULL),
    ],
);

/// `HEAD /xcoms/…`.
pub const HEAD_XCOM: Schema = lenient("head xcom", &[optional("map_index", INTEGER_OR_NULL)]);

/// `POST /xcoms/…`.
pub const SET_XCOM: Schema = lenient(
    "set xcom",
    &[
        optional("map_index", ValueKind::Integer),
        optional("dag_result", ValueKind::Boolean),
        optional("mapped_length", INTEGER_OR_NULL),
    ],
);

/// `DELETE /xcoms/…`.
pub const DELETE_XCOM: Schema =
    lenient("delete xcom", &[optional("map_index", ValueKind::Integer)]);

/// `GET /xcoms/…/slice`.
pub const SLICE_XCOM: Schema = lenient(
    "slice xcom",
    &[
        optional("start", INTEGER_OR_NULL),
        optional("stop", INTEGER_OR_NULL),
        optional("step", INTEGER_OR_NULL),
        optional("include_prior_dates", ValueKind::Boolean),
    ],
);

const INSTANTS_OR_NULL: ValueKind = ValueKind::Nullable(&ValueKind::List(&ValueKind::Instant));
