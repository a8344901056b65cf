//! Bodies about what tasks keep and read: variables, connections, XComs, stores, and questions to humans.

use super::*;
use crate::api::words::ConnectionTestState;

/// A variable.
pub const VARIABLE: Schema = strict(
    "VariableResponse",
    &[required("key", Kind::Text), required("value", TEXT_OR_NULL)],
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
        required("total_entries", Kind::Integer),
    ],
);

/// A connection.
pub const CONNECTION: Schema = lenient(
    "ConnectionResponse",
    &[
        required("conn_id", Kind::Text),
        required("conn_type", Kind::Text),
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
        required("conn_id", Kind::Text),
        required("conn_type", Kind::Text),
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
        required("state", Kind::Words(ConnectionTestState::WORDS)),
        optional("result_message", Kind::Nullable(&Kind::TextUpTo(2_000))),
    ],
);

/// An XCom.
pub const XCOM: Schema = lenient(
    "XComResponse",
    &[required("key", Kind::Text), required("value", Kind::Json)],
);

/// A value of the store of a task instance.
pub const TASK_STORE_VALUE: Schema =
    strict("TaskStateStoreResponse", &[required("value", Kind::Json)]);

/// Writes such a value.
pub const TASK_STORE_PUT: Schema = strict(
    "TaskStateStorePutBody",
    &[
        required("value", Kind::Json),
        optional("expires_at", INSTANT_OR_NULL),
    ],
);

/// A value of the store of an asset.
pub const ASSET_STORE_VALUE: Schema =
    strict("AssetStateStoreResponse", &[required("value", Kind::Json)]);

/// Writes such a value.
pub const ASSET_STORE_PUT: Schema =
    strict("AssetStateStorePutBody", &[required("value", Kind::Json)]);

/// Somebody who may answer a task's question.
pub const HITL_USER: Schema = lenient(
    "HITLUser",
    &[required("id", Kind::Text), required("name", Kind::Text)],
);

/// A task's question to a human.
pub const HITL_REQUEST: Schema = lenient(
    "HITLDetailRequest",
    &[
        required("ti_id", Kind::Uuid),
        required("options", Kind::SomeOf(&Kind::Text)),
        required("subject", Kind::Text),
        optional("body", TEXT_OR_NULL),
        optional("defaults", TEXTS_OR_NULL),
        optional("multiple", Kind::Boolean),
        optional("params", Kind::Map),
        optional("assigned_users", Kind::List(&Kind::Object(&HITL_USER))),
    ],
);

/// The human's answer, as the task writes it after a timeout.
pub const HITL_UPDATE: Schema = lenient(
    "UpdateHITLDetailPayload",
    &[
        required("ti_id", Kind::Uuid),
        required("chosen_options", Kind::SomeOf(&Kind::Text)),
        optional("params_input", Kind::Map),
    ],
);

/// The human's answer.
pub const HITL_RESPONSE: Schema = lenient(
    "HITLDetailResponse",
    &[
        required("response_received", Kind::Boolean),
        optional(
            "responded_by_user",
            Kind::Nullable(&Kind::Object(&HITL_USER)),
        ),
        required("responded_at", INSTANT_OR_NULL),
        required("chosen_options", TEXTS_OR_NULL),
        optional("params_input", Kind::Map),
    ],
);
