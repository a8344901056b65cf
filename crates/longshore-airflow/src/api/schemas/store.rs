//! Bodies about what tasks keep and read: variables, connections, XComs, stores, and questions to humans.

use super::*;
use crate::api::words::ConnectionTestState;

/// A variable.
pub const VARIABLE: Schema = strict(
    "VariableResponse",
    &[
        required("key", ValueKind::Text),
        required("value", TEXT_OR_NULL),
    ],
);

/// Writes a variable.
pub const VARIABLE_PUT: Schema = strict(
    "VariablePostBody",
    &[
        required("val", TEXT_OR_NULL),
        optional("description", TEXT_OR_NULL),
    ],
);

/// Answer of `/variables/keys`.
pub const VARIABLE_KEYS: Schema = strict(
    "VariableKeysResponse",
    &[
        required("keys", TEXTS),
        required("total_entries", ValueKind::Integer),
    ],
);

/// A connection.
pub const CONNECTION: Schema = lenient(
    "ConnectionResponse",
    &[
        required("conn_id", ValueKind::Text),
        required("conn_type", ValueKind::Text),
        required("host", TEXT_OR_NULL),
        required("schema", TEXT_OR_NULL),
        required("login", TEXT_OR_NULL),
        required("password", TEXT_OR_NULL),
        required("port", INTEGER_OR_NULL),
        required("extra", TEXT_OR_NULL),
    ],
);

/// A connection that is to be tested.
pub const CONNECTION_TEST: Schema = lenient(
    "ConnectionTestConnectionResponse",
    &[
        required("conn_id", ValueKind::Text),
        required("conn_type", ValueKind::Text),
        optional("host", TEXT_OR_NULL),
        optional("login", TEXT_OR_NULL),
        optional("password", TEXT_OR_NULL),
        optional("schema", TEXT_OR_NULL),
        optional("port", INTEGER_OR_NULL),
        optional("extra", TEXT_OR_NULL),
    ],
);

/// The result of such a test.
pub const CONNECTION_TEST_RESULT: Schema = strict(
    "ConnectionTestResultBody",
    &[
        required("state", ValueKind::Words(ConnectionTestState::WORDS)),
        optional(
            "result_message",
            ValueKind::Nullable(&ValueKind::TextUpTo(2_000)),
        ),
    ],
);

/// An XCom.
pub const XCOM: Schema = lenient(
    "XComResponse",
    &[
        required("key", ValueKind::Text),
        required("value", ValueKind::Json),
    ],
);

/// A value of the store of a task instance.
pub const TASK_STORE_VALUE: Schema = strict(
    "TaskStateStoreResponse",
    &[required("value", ValueKind::Json)],
);

/// Writes such a value.
pub const TASK_STORE_PUT: Schema = strict(
    "TaskStateStorePutBody",
    &[
        required("value", ValueKind::Json),
        optional("expires_at", INSTANT_OR_NULL),
    ],
);

/// A value of the store of an asset.
pub const ASSET_STORE_VALUE: Schema = strict(
    "AssetStateStoreResponse",
    &[required("value", ValueKind::Json)],
);

/// Writes such a value.
pub const ASSET_STORE_PUT: Schema = strict(
    "AssetStateStorePutBody",
    &[required("value", ValueKind::Json)],
);

/// Somebody who may answer a task's question.
pub const HITL_USER: Schema = lenient(
    "HITLUser",
    &[
        required("id", ValueKind::Text),
        required("name", ValueKind::Text),
    ],
);

/// A task's question to a human.
pub const HITL_REQUEST: Schema = lenient(
    "HITLDetailRequest",
    &[
        required("ti_id", ValueKind::Uuid),
        required("options", ValueKind::SomeOf(&ValueKind::Text)),
        required("subject", ValueKind::Text),
        optional("body", TEXT_OR_NULL),
        optional("defaults", TEXTS_OR_NULL),
        optional("multiple", ValueKind::Boolean),
        optional("params", ValueKind::Map),
        optional(
            "assigned_users",
            ValueKind::List(&ValueKind::Object(&HITL_USER)),
        ),
    ],
);

/// The human's answer, as the task writes it after a timeout.
pub const HITL_UPDATE: Schema = lenient(
    "UpdateHITLDetailPayload",
    &[
        required("ti_id", ValueKind::Uuid),
        required("chosen_options", ValueKind::SomeOf(&ValueKind::Text)),
        optional("params_input", ValueKind::Map),
    ],
);

/// The human's answer.
pub const HITL_RESPONSE: Schema = lenient(
    "HITLDetailResponse",
    &[
        required("response_received", ValueKind::Boolean),
        optional(
            "responded_by_user",
            ValueKind::Nullable(&ValueKind::Object(&HITL_USER)),
        ),
        required("responded_at", INSTANT_OR_NULL),
        required("chosen_options", TEXTS_OR_NULL),
        optional("params_input", ValueKind::Map),
    ],
);
