//! The stored state of a connector's job, in the peer's encoding (task action spec §9.3).

use std::collections::BTreeMap;

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::Connection;

use crate::{
    gob::{self, Gob, Kind, Writer},
    remote::{Addressee, Category, StoredState},
    state::{STATE_VERSION, StateError, corrupt, int_of, text_of, time_bytes, time_of, version_of},
};

/// Ids of the types that the stream describes.
const STATE: i64 = 64;
const TIME: i64 = 65;
const META: i64 = 66;
const CATEGORY: i64 = 67;
const CONNECTION: i64 = 68;
const TEXTS: i64 = 69;

/// What Go calls the type of [`ResourceMeta`].
const META_TYPE: &str = "github.com/flyteorg/flyte/v2/flyteplugins/go/tasks/plugins/webapi/connector.ResourceMetaWrapper";
/// The field of that type that names the connector. The peer does not have it: Go passes over fields that it does not know.
const CONNECTOR: &str = "LongshoreConnector";

/// The phase of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum WebApiPhase {
    /// No request was sent: the job waits for a slot, or for its turn.
    #[default]
    NotStarted = 0,
    /// The request to begin the job is about to be sent, or it was sent and its answer is not known.
    AllocationTokenAcquired = 1,
    /// The job was begun.
    ResourcesCreated = 2,
    /// The job ended well.
    Succeeded = 3,
    /// The job failed.
    UserFailure = 4,
    /// The requests for the state of the job have failed too often.
    SystemFailure = 5,
}

impl WebApiPhase {
    const ALL: [Self; 6] = [
        Self::NotStarted,
        Self::AllocationTokenAcquired,
        Self::ResourcesCreated,
        Self::Succeeded,
        Self::UserFailure,
        Self::SystemFailure,
    ];

    /// Whether the connector gets no more requests about the job.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded | Self::UserFailure | Self::SystemFailure => true,
            Self::NotStarted | Self::AllocationTokenAcquired | Self::ResourcesCreated => false,
        }
    }
}

/// The stored state of a task of a connector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebApiState {
    /// The phase of the job.
    pub phase: WebApiPhase,
    /// Version of the phase.
    pub version: u32,
    /// Which job it is, once it was begun.
    pub resource_meta: Option<ResourceMeta>,
    /// Questions in a row that failed.
    pub sync_failures: u32,
    /// Since when the job waits for a slot, or for its turn.
    pub token_requested_at: Option<Timestamp>,
    /// Why the last question failed.
    pub error_message: String,
}

/// Which job of which connector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceMeta {
    /// The output prefix of the attempt.
    pub output_prefix: String,
    /// The bytes by which the connector identifies the job.
    pub connector_meta: Vec<u8>,
    /// The category by which the connector is chosen.
    pub category: Category,
    /// How the connector gets to where the job runs.
    pub connection: Option<Connection>,
    /// The name of the connector in the configuration; empty where the peer has begun the job. The peer passes this field
    /// over.
    pub connector: String,
}

impl WebApiState {
    /// The state of `status.pluginState`; none at all is a new one.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn read(state: StoredState<'_>) -> Result<Self, StateError> {
        if state.bytes.is_empty() {
            return Ok(Self::default());
        }
        if state.version != STATE_VERSION {
            return Err(StateError::Version(state.version));
        }
        let fields = gob::read_struct(state.bytes).map_err(corrupt)?;
        let number = int_of(fields.get("Phase"))?;
        let phase = usize::try_from(number).ok();
        let phase = phase.and_then(|number| WebApiPhase::ALL.get(number).copied());
        let failures = int_of(fields.get("SyncFailureCount"))?;
        Ok(Self {
            phase: phase.ok_or_else(|| corrupt(format!("phase {number}")))?,
            version: version_of(fields.get("PhaseVersion"))?,
            resource_meta: match fields.get("ResourceMeta") {
                Some(Gob::Struct(fields)) => Some(ResourceMeta::of(fields)?),
                _ => None,
            },
            sync_failures: u32::try_from(failures).unwrap_or(u32::MAX),
            token_requested_at: time_of(fields.get("AllocationTokenRequestStartTime"))?,
            error_message: text_of(fields.get("ErrorMessage"))?,
        })
    }

    /// The peer's encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Writer::value_of(STATE);
        value.int_field(1, i64::from(self.phase as u8));
        value.uint_field(2, self.version.into());
        if let Some(meta) = &self.resource_meta {
            value.interface_field(3, META_TYPE, &meta_types(meta), META, |fields| {
                meta.write(fields)
            });
        }
        value.int_field(4, self.sync_failures.into());
        value.bytes_field(5, &time_bytes(self.token_requested_at));
        value.bytes_field(6, self.error_message.as_bytes());
        value.end();
        let state = [
            ("Phase", Kind::Int),
            ("PhaseVersion", Kind::Uint),
            ("ResourceMeta", Kind::Interface),
            ("SyncFailureCount", Kind::Int),
            ("AllocationTokenRequestStartTime", Kind::Described(TIME)),
            ("ErrorMessage", Kind::String),
        ];
        [
            gob::struct_type(STATE, "State", &state),
            gob::time_type(TIME),
            value.into_message(),
        ]
        .concat()
    }
}

fn meta_types(meta: &ResourceMeta) -> [Vec<u8>; 4] {
    let is_named = !meta.connector.is_empty();
    let connector = is_named.then_some((CONNECTOR, Kind::String));
    let meta = [
        ("OutputPrefix", Kind::String),
        ("ConnectorResourceMeta", Kind::Bytes),
        ("TaskCategory", Kind::Described(CATEGORY)),
        ("Project", Kind::String),
        ("Domain", Kind::String),
        ("Connection", Kind::Described(CONNECTION)),
    ];
    let meta: Vec<(&str, Kind)> = meta.into_iter().chain(connector).collect();
    let category = [("Name", Kind::String), ("Version", Kind::Int)];
    let connection = [
        ("TaskType", Kind::String),
        ("Secrets", Kind::Described(TEXTS)),
        ("Configs", Kind::Described(TEXTS)),
    ];
    [
        gob::struct_type(META, "ResourceMetaWrapper", &meta),
        gob::struct_type(CATEGORY, "TaskCategory", &category),
        gob::struct_type(CONNECTION, "Connection", &connection),
        gob::texts_type(TEXTS),
    ]
}

impl ResourceMeta {
    fn of(fields: &BTreeMap<String, Gob>) -> Result<Self, StateError> {
        let none = BTreeMap::new();
        let category = match fields.get("TaskCategory") {
            Some(Gob::Struct(category)) => category,
            _ => &none,
        };
        let version = int_of(category.get("Version"))?;
        Ok(Self {
            output_prefix: text_of(fields.get("OutputPrefix"))?,
            connector_meta: match fields.get("ConnectorResourceMeta") {
                Some(Gob::Bytes(bytes)) => bytes.clone(),
                _ => Vec::new(),
            },
            category: Category {
                project: text_of(fields.get("Project"))?,
                domain: text_of(fields.get("Domain"))?,
                task_type: text_of(category.get("Name"))?,
                version: i32::try_from(version).map_err(corrupt)?,
            },
            connection: match fields.get("Connection") {
                Some(Gob::Struct(connection)) => Some(Connection {
                    task_type: text_of(connection.get("TaskType"))?,
                    secrets: texts_of(connection.get("Secrets")),
                    configs: texts_of(connection.get("Configs")),
                }),
                _ => None,
            },
            connector: text_of(fields.get(CONNECTOR))?,
        })
    }

    /// The name of the connector that has the job, where that is on record.
    pub(super) fn connector(&self) -> Option<String> {
        Some(self.connector.clone()).filter(|name| !name.is_empty())
    }

    /// Whom requests about the job are for.
    pub(super) fn addressee(&self) -> Addressee {
        Addressee {
            category: self.category.clone(),
            connector: self.connector(),
            is_begun: true,
        }
    }

    fn write(&self, fields: &mut Writer) {
        fields.bytes_field(1, self.output_prefix.as_bytes());
        fields.bytes_field(2, &self.connector_meta);
        if !self.category.task_type.is_empty() || self.category.version != 0 {
            fields.struct_field(3, |category| {
                category.bytes_field(1, self.category.task_type.as_bytes());
                category.int_field(2, self.category.version.into());
            });
        }
        fields.bytes_field(4, self.category.project.as_bytes());
        fields.bytes_field(5, self.category.domain.as_bytes());
        if let Some(connection) = &self.connection {
            fields.struct_field(6, |fields| {
                fields.bytes_field(1, connection.task_type.as_bytes());
                fields.texts_field(2, &connection.secrets);
                fields.texts_field(3, &connection.configs);
            });
        }
        fields.bytes_field(7, self.connector.as_bytes());
    }
}

fn texts_of(value: Option<&Gob>) -> BTreeMap<String, String> {
    match value {
        Some(Gob::Texts(texts)) => texts.clone(),
        _ => BTreeMap::new(),
    }
}
