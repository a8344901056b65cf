//! Values that the scheduler does not decide upon: never loaded at start, and written apart from its rounds.
//!
//! A worker writes by the id of its try. The statement itself checks that the try is the current one, so that what a worker
//! of an earlier try sends, however late, changes nothing.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use longshore_core::{Class, Classify};
use uuid::Uuid;

use crate::{
    changes::StoreError,
    heartbeats::Heartbeat,
    model::{RunKey, TaskKey},
};

pub(crate) mod read;
pub(crate) mod write;

/// A JSON text as somebody wrote it. The store does not look into it.
pub type JsonText = Arc<str>;

/// A secret as it is stored. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    text: String,
    is_encrypted: bool,
}

impl Sealed {
    /// A token of Fernet.
    pub fn encrypted(token: String) -> Self {
        Self {
            text: token,
            is_encrypted: true,
        }
    }

    /// The secret itself, where nothing is encrypted.
    pub fn plain(secret: String) -> Self {
        Self {
            text: secret,
            is_encrypted: false,
        }
    }

    /// The token, or the secret itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the text is a token of Fernet.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Sealed");
        shown.field("is_encrypted", &self.is_encrypted);
        shown.finish_non_exhaustive()
    }
}

/// The values of one key of all instances of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct XComKey {
    /// The run.
    pub run: RunKey,
    /// The task.
    pub task_id: String,
    /// The key; `return_value` for what the task returned.
    pub key: String,
}

/// A value that a task leaves for other tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XCom {
    /// Whose value.
    pub key: XComKey,
    /// The map index of the task instance; -1 for an unmapped one.
    pub map_index: i32,
    /// The value.
    pub value: JsonText,
    /// How many task instances a task that maps over the value has.
    pub mapped_length: Option<u32>,
    /// Whether it is the result of the DAG.
    pub is_dag_result: bool,
    /// When it was written.
    pub written_at: Timestamp,
}

/// How many task instances a task that maps over a value has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedLength {
    /// The task that left the value.
    pub task_id: String,
    /// Its map index.
    pub map_index: i32,
    /// The key of the value.
    pub key: String,
    /// How many.
    pub length: u32,
}

/// What people see of a try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The operator's fields with their templates filled in: an object.
    pub fields: Option<JsonText>,
    /// The name of a mapped task instance, in place of its index.
    pub map_index_label: Option<String>,
}

/// A value that tasks read and write, beside their runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVariable {
    /// Its name.
    pub key: String,
    /// Its value.
    pub value: Sealed,
    /// For people.
    pub description: Option<String>,
}

/// A page of the names of variables, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableKeys {
    /// The names of this page.
    pub keys: Vec<String>,
    /// How many there are on all pages.
    pub n_all: u64,
}

/// How tasks reach a foreign system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConnection {
    /// Its name.
    pub conn_id: String,
    /// `postgres`, `http`, ….
    pub conn_type: String,
    /// For people.
    pub description: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// The schema, or whatever the type makes of it.
    pub schema: Option<String>,
    /// The user.
    pub login: Option<String>,
    /// The port.
    pub port: Option<i64>,
    /// The password.
    pub password: Option<Sealed>,
    /// More, mostly JSON.
    pub extra: Option<Sealed>,
}

/// Something that happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What: one word, or a few.
    pub event: String,
    /// The DAG that it is about.
    pub dag_id: Option<String>,
    /// The run of that DAG.
    pub run_id: Option<String>,
    /// The task of that run.
    pub task_id: Option<String>,
    /// The map index of that task.
    pub map_index: Option<i32>,
    /// The try of that task instance.
    pub try_number: Option<u32>,
    /// Who did it.
    pub owner: Option<String>,
    /// More.
    pub extra: Option<String>,
}

/// An event on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Counts from 1.
    pub id: i64,
    /// What happened.
    pub event: Event,
}

/// Which events a list shows, latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only about this DAG.
    pub dag_id: Option<String>,
    /// Only about runs with this id.
    pub run_id: Option<String>,
    /// Only about tasks with this id.
    pub task_id: Option<String>,
    /// Only those before this one: the next page.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: u32,
}

/// What a worker writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromTry {
    /// A value for other tasks, in place of the one of this key.
    XCom(XCom),
    /// Such a value goes.
    NoXCom {
        /// Whose value.
        key: XComKey,
        /// The map index of the task instance.
        map_index: i32,
    },
    /// The operator's fields with their templates filled in: an object.
    RenderedFields(JsonText),
    /// The name of this mapped task instance.
    MapIndexLabel(String),
    /// A value that this task instance keeps from try to try.
    State {
        /// Which of its values.
        key: String,
        /// The value.
        value: JsonText,
        /// From when on it is not there.
        expires_at: Option<Timestamp>,
    },
    /// Such a value goes; all of them where there is no key.
    NoState(Option<String>),
    /// What is of no try.
    Shared(Shared),
}

/// What is of no try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A variable, in place of the one of this name. Without a description the former one stays.
    Variable(StoredVariable),
    /// The variable of this name goes.
    NoVariable(String),
    /// A connection, in place of the one of this name.
    Connection(StoredConnection),
    /// The connection of this name goes.
    NoConnection(String),
    /// Something happened.
    Event(Event),
}

/// Why what a worker wrote is not there.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TellError {
    /// No try ever had this id.
    #[error("expected the id of a try, found {id}; nothing was written")]
    Unknown {
        /// The id.
        id: Uuid,
    },
    /// Another try followed.
    #[error("try {id} is over and another one followed; nothing was written")]
    Earlier {
        /// The id.
        id: Uuid,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Classify for TellError {
    fn class(&self) -> Class {
        match self {
            Self::Unknown { .. } | Self::Earlier { .. } => Class::Invalid,
            Self::Store(error) => error.class(),
        }
    }
}

/// The store as workers and users write to it and read from it, beside the scheduler. Reads use the connections of the
/// service; each write is durable when it returns, in a transaction that it shares with others that wait, and with no
/// round of the scheduler.
#[async_trait]
pub trait ToldStore: Send + Sync + 'static {
    /// Writes what the worker of this try says. Returns how many rows changed: 0 where what was to go was not there.
    ///
    /// # Errors
    /// The try is not the current one of its task instance: then nothing was written.
    async fn tell(&self, id: Uuid, what: FromTry) -> Result<u64, TellError>;

    /// Writes what users and the service say. Returns how many rows changed.
    async fn keep(&self, what: Shared) -> Result<u64, StoreError>;

    /// Writes when workers were heard ([`Heartbeats::due`](crate::Heartbeats::due)). Tries that are no current ones are left
    /// out. Returns how many were written.
    async fn note_heartbeats(&self, heartbeats: &[Heartbeat]) -> Result<u64, StoreError>;

    /// When the worker of a try was last heard, as far as that is written: for people.
    async fn last_heartbeat(&self, id: Uuid) -> Result<Option<Timestamp>, StoreError>;

    /// A value of a task instance.
    async fn xcom(&self, key: &XComKey, map_index: i32) -> Result<Option<JsonText>, StoreError>;

    /// The same of this run, or else of the latest earlier one by logical date that has it.
    async fn xcom_of_this_or_earlier_runs(
        &self,
        key: &XComKey,
        map_index: i32,
    ) -> Result<Option<JsonText>, StoreError>;

    /// How many instances of the task have such a value.
    async fn count_xcoms(&self, key: &XComKey) -> Result<u64, StoreError>;

    /// Such values in the order of the map indexes, from this place on, at most this many.
    async fn xcoms(
        &self,
        key: &XComKey,
        from: u64,
        limit: u32,
    ) -> Result<Vec<JsonText>, StoreError>;

    /// The keys of all values of a task instance, in their order.
    async fn xcom_keys(&self, key: &TaskKey) -> Result<Vec<String>, StoreError>;

    /// All lengths over which tasks of a run map, by task, map index and key. Reads no value.
    async fn mapped_lengths(&self, run: &RunKey) -> Result<Vec<MappedLength>, StoreError>;

    /// What people see of a try.
    async fn rendered(&self, id: Uuid) -> Result<Rendered, StoreError>;

    /// A variable.
    async fn variable(&self, key: &str) -> Result<Option<StoredVariable>, StoreError>;

    /// The names of variables that begin so, from this place on, at most this many. Reads no value.
    async fn variable_keys(
        &self,
        prefix: &str,
        from: u64,
        limit: u32,
    ) -> Result<VariableKeys, StoreError>;

    /// A connection.
    async fn connection(&self, conn_id: &str) -> Result<Option<StoredConnection>, StoreError>;

    /// A value that the task instance of this try keeps, unless it has expired.
    async fn task_state(
        &self,
        id: Uuid,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<JsonText>, StoreError>;

    /// What happened.
    async fn events(&self, filter: &EventFilter) -> Result<Vec<StoredEvent>, StoreError>;
}
