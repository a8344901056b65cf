//! The schemas of all bodies and queries, by upstream's names.

use super::schema::{Life, Member, Others, Schema, ValueKind};

mod asset;
mod dag_run;
mod query;
mod store;
mod task_instance;

pub use asset::{
    ASSET, ASSET_EVENT, ASSET_PROFILE, ASSETS_EVENTS, DAG_RUN_OF_EVENT, INACTIVE_ASSETS,
};
pub use dag_run::{
    ASSET_ALIAS_REFERENCE, ASSET_EVENT_REFERENCE, ASSET_REFERENCE, DAG, DAG_RUN, DAG_RUN_STATE,
    TRIGGER,
};
pub use query::*;
pub use store::{
    ASSET_STORE_PUT, ASSET_STORE_VALUE, CONNECTION, CONNECTION_TEST, CONNECTION_TEST_RESULT,
    HITL_REQUEST, HITL_RESPONSE, HITL_UPDATE, HITL_USER, TASK_STORE_PUT, TASK_STORE_VALUE,
    VARIABLE, VARIABLE_KEYS, VARIABLE_PUT, XCOM,
};
pub use task_instance::{
    AWAITING_INPUT, BREADCRUMBS, DEFERRED, ENTER_RUNNING, HEARTBEAT, PREVIOUS_SUCCESSFUL,
    PREVIOUS_TI, RESCHEDULE, RETRY, RUN_CONTEXT, SKIP_DOWNSTREAM, STATE_UPDATE, STATES, SUCCESS,
    TARGET, TERMINAL,
};

const fn required(name: &'static str, kind: ValueKind) -> Member {
    Member::required(name, kind)
}

const fn optional(name: &'static str, kind: ValueKind) -> Member {
    Member::optional(name, kind)
}

/// An object that forbids other members.
const fn strict(name: &'static str, members: &'static [Member]) -> Schema {
    Schema {
        name,
        others: Others::Forbidden,
        members,
    }
}

/// An object that ignores other members.
const fn lenient(name: &'static str, members: &'static [Member]) -> Schema {
    Schema {
        name,
        others: Others::Ignored,
        members,
    }
}

const TEXT_OR_NULL: ValueKind = ValueKind::Nullable(&ValueKind::Text);
const INTEGER_OR_NULL: ValueKind = ValueKind::Nullable(&ValueKind::Integer);
const INSTANT_OR_NULL: ValueKind = ValueKind::Nullable(&ValueKind::Instant);
const MAP_OR_NULL: ValueKind = ValueKind::Nullable(&ValueKind::Map);
const TEXTS: ValueKind = ValueKind::List(&ValueKind::Text);
const TEXTS_OR_NULL: ValueKind = ValueKind::Nullable(&TEXTS);

/// Every schema that upstream's OpenAPI documents name.
pub const ALL: &[&Schema] = &[
    &ASSET,
    &ASSETS_EVENTS,
    &ASSET_EVENT,
    &ASSET_PROFILE,
    &DAG_RUN_OF_EVENT,
    &INACTIVE_ASSETS,
    &ASSET_ALIAS_REFERENCE,
    &ASSET_EVENT_REFERENCE,
    &ASSET_REFERENCE,
    &DAG,
    &DAG_RUN,
    &DAG_RUN_STATE,
    &TRIGGER,
    &ASSET_STORE_PUT,
    &ASSET_STORE_VALUE,
    &CONNECTION,
    &CONNECTION_TEST,
    &CONNECTION_TEST_RESULT,
    &HITL_REQUEST,
    &HITL_RESPONSE,
    &HITL_UPDATE,
    &HITL_USER,
    &TASK_STORE_PUT,
    &TASK_STORE_VALUE,
    &VARIABLE,
    &VARIABLE_KEYS,
    &VARIABLE_PUT,
    &XCOM,
    &AWAITING_INPUT,
    &BREADCRUMBS,
    &DEFERRED,
    &ENTER_RUNNING,
    &HEARTBEAT,
    &PREVIOUS_SUCCESSFUL,
    &PREVIOUS_TI,
    &RESCHEDULE,
    &RETRY,
    &RUN_CONTEXT,
    &SKIP_DOWNSTREAM,
    &STATES,
    &SUCCESS,
    &TARGET,
    &TERMINAL,
];
