//! Bodies about what tasks keep and read: variables, connections, XComs, stores, and questions to humans.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{time::UtcDateTime, words::ConnectionTestState};

/// The longest value of the store of a task or an asset, in bytes of its JSON.
pub const MAX_STORE_VALUE: usize = 65_535;

/// A variable. Its value may be a secret, so `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its key.
    pub key: String,
    /// Its value, a text.
    pub value: Option<String>,
}

impl fmt::Debug for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Variable");
        shown.field("key", &self.key).finish_non_exhaustive()
    }
}

/// Writes a variable. `Debug` does not show the value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariablePut {
    /// The value, a text.
    pub val: Option<String>,
    /// For people.
    #[serde(default)]
    pub description: Option<String>,
}

impl fmt::Debug for VariablePut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("VariablePut");
        shown
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

/// Keys of variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariableKeys {
    /// The keys of this page.
    pub keys: Vec<String>,
    /// How many there are on all pages.
    pub total_entries: u64,
}

/// A connection, with its secrets. `Debug` shows neither password nor extra.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Its id.
    pub conn_id: String,
    /// Its type: `postgres`, `http`, ….
    pub conn_type: String,
    /// The host.
    pub host: Option<String>,
    /// The schema, or whatever the type makes of it.
    pub schema: Option<String>,
    /// The user.
    pub login: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The port.
    pub port: Option<i64>,
    /// More, as a text that is mostly JSON.
    pub extra: Option<String>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Connection");
        shown.field("conn_id", &self.conn_id);
        shown.field("conn_type", &self.conn_type);
        shown.field("host", &self.host).finish_non_exhaustive()
    }
}

/// The result of the test of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionTestResult {
    /// How it went.
    pub state: ConnectionTestState,
    /// For people.
    #[serde(default)]
    pub result_message: Option<String>,
}

/// An XCom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XCom {
    /// Its key.
    pub key: String,
    /// Its value, as the task wrote it.
    pub value: Value,
}

/// A value of the store of a task instance or of an asset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreValue {
    /// The value.
    pub value: Value,
}

/// Writes a value of the store of a task instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskStorePut {
    /// The value.
    pub value: Value,
    /// When it is forgotten.
    #[serde(default)]
    pub expires_at: Option<UtcDateTime>,
}

/// Somebody who may answer a task's question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitlUser {
    /// The id.
    pub id: String,
    /// The name.
    pub name: String,
}

/// A task's question to a human.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HitlRequest {
    /// The task instance.
    pub ti_id: Uuid,
    /// The answers to choose from.
    pub options: Vec<String>,
    /// The question.
    pub subject: String,
    /// More about it.
    #[serde(default)]
    pub body: Option<String>,
    /// The answers that hold if nobody answers in time.
    #[serde(default)]
    pub defaults: Option<Vec<String>>,
    /// Whether several answers may be chosen.
    #[serde(default)]
    pub multiple: bool,
    /// A form.
    #[serde(default)]
    pub params: Map<String, Value>,
    /// Who may answer; empty: everybody who may see it.
    #[serde(default)]
    pub assigned_users: Vec<HitlUser>,
}

/// The answer that a task writes when nobody answered in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HitlUpdate {
    /// The task instance.
    pub ti_id: Uuid,
    /// The chosen answers, at least one.
    pub chosen_options: Vec<String>,
    /// What was written into the form.
    #[serde(default)]
    pub params_input: Map<String, Value>,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HitlResponse {
    /// Whether there is an answer.
    pub response_received: bool,
    /// Who answered; null after a timeout.
    pub responded_by_user: Option<HitlUser>,
    /// When.
    pub responded_at: Option<UtcDateTime>,
    /// The chosen answers.
    pub chosen_options: Option<Vec<String>>,
    /// What was written into the form.
    #[serde(default)]
    pub params_input: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let connection = json!({
            "conn_id": "c", "conn_type": "t", "host": "h", "schema": null, "login": "u",
            "password": "hunter2", "port": 1, "extra": "hunter2",
        });
        let connection: Connection = serde_json::from_value(connection).unwrap();
        let variable = Variable {
            key: "k".to_owned(),
            value: Some("hunter2".to_owned()),
        };
        let put = VariablePut {
            val: Some("hunter2".to_owned()),
            description: Some("d".to_owned()),
        };
        let shown = format!("{connection:?} {variable:?} {put:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(
            shown.contains("\"c\"") && shown.contains("\"k\""),
            "{shown}"
        );
    }
}
