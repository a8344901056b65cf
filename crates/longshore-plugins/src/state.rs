//! What the manager of Kubernetes plugins remembers between rounds: `status.pluginState` (task action spec §9.3).
//!
//! Encoded exactly as the peer does, so that either can take over the other's running actions.

use jiff::Timestamp;
use longshore_core::text::is_same;

use crate::{
    gob::{self, Gob, GobError, Kind, Writer},
    phase::{Phase, PhaseInfo, ReasonInfo},
};

/// `status.pluginStateVersion` of this encoding.
pub const STATE_VERSION: u8 = 1;

/// Seconds from the year 1 to 1970.
const GO_EPOCH: i64 = 62_135_596_800;
/// Type ids that a Go process assigns to its own types begin here.
const FIRST_ID: i64 = 64;

/// Whether the resource of this attempt was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Launch {
    /// No creation is on record.
    #[default]
    NotStarted,
    /// The API server accepted the resource.
    Started,
}

/// What was last said about the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct K8sState {
    /// The phase; [`Phase::Undefined`] where it is not known.
    pub phase: Phase,
    /// The version of the phase.
    pub version: u32,
    /// The reason of the phase.
    pub reason: String,
}

/// The stored state of a task with a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginState {
    /// Whether the resource was created.
    pub launch: Launch,
    /// The last reported phase of the resource.
    pub k8s: K8sState,
    /// Creation time of the last reported Event; `None` before the first.
    pub last_event_created_at: Option<Timestamp>,
    /// When that Event was noticed, by the process's own clock.
    pub last_event_recorded_at: Option<Timestamp>,
}

/// A plugin state that cannot be read. What to do then: see decision 2 of the spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Another program wrote the state.
    #[error("plugin state version mismatch expected [{STATE_VERSION}] got [{0}]")]
    Version(u8),
    /// The bytes are no state.
    #[error("plugin state is corrupt: {0}")]
    Corrupt(String),
}

impl PluginState {
    /// The state of `status.pluginState` and `status.pluginStateVersion`; none at all is a new one.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn read(version: u8, bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        if version != STATE_VERSION {
            return Err(StateError::Version(version));
        }
        Self::decode(bytes)
    }

    /// Reads the peer's encoding, whatever else it holds.
    ///
    /// # Errors
    /// [`StateError::Corrupt`].
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let fields = gob::read_struct(bytes).map_err(|error: GobError| corrupt(error))?;
        let launch = match fields.get("Phase") {
            None | Some(Gob::Uint(0)) => Launch::NotStarted,
            Some(Gob::Uint(1)) => Launch::Started,
            Some(other) => return Err(corrupt(format!("launch phase {other:?}"))),
        };
        let k8s = match fields.get("K8sPluginState") {
            None => K8sState::default(),
            Some(Gob::Struct(fields)) => K8sState {
                phase: phase_of(fields.get("Phase"))?,
                version: version_of(fields.get("PhaseVersion"))?,
                reason: text_of(fields.get("Reason"))?,
            },
            Some(other) => return Err(corrupt(format!("resource state {other:?}"))),
        };
        Ok(Self {
            launch,
            k8s,
            last_event_created_at: time_of(fields.get("LastEventUpdate"))?,
            last_event_recorded_at: time_of(fields.get("LastEventRecordedAt"))?,
        })
    }

    /// The peer's encoding.
    pub fn encode(&self) -> Vec<u8> {
        const STATE: i64 = FIRST_ID;
        const K8S: i64 = FIRST_ID + 1;
        const TIME: i64 = FIRST_ID + 2;
        let mut value = Writer::value_of(STATE);
        value.uint_field(
            1,
            match self.launch {
                Launch::NotStarted => 0,
                Launch::Started => 1,
            },
        );
        value.struct_field(2, |k8s| {
            k8s.int_field(1, i64::from(self.k8s.phase as u8));
            k8s.uint_field(2, self.k8s.version.into());
            k8s.bytes_field(3, self.k8s.reason.as_bytes());
        });
        value.bytes_field(3, &time_bytes(self.last_event_created_at));
        value.bytes_field(4, &time_bytes(self.last_event_recorded_at));
        value.end();
        let state = [
            ("Phase", Kind::Uint),
            ("K8sPluginState", Kind::Described(K8S)),
            ("LastEventUpdate", Kind::Described(TIME)),
            ("LastEventRecordedAt", Kind::Described(TIME)),
        ];
        let k8s = [
            ("Phase", Kind::Int),
            ("PhaseVersion", Kind::Uint),
            ("Reason", Kind::String),
        ];
        [
            // Both structs have the same name in Go, in different packages.
            gob::struct_type(STATE, "PluginState", &state),
            gob::struct_type(K8S, "PluginState", &k8s),
            gob::time_type(TIME),
            value.into_message(),
        ]
        .concat()
    }
}

impl PhaseInfo {
    /// The phase with a version that no receiver drops and that never goes back: within a phase a
    /// new reason gets a new version, which is at least the stored one. A reason that is stored in short is no new one.
    #[must_use]
    pub fn ordered_after(mut self, stored: &K8sState) -> Self {
        if self.phase == stored.phase && self.version <= stored.version {
            let is_news = !is_same(&stored.reason, &self.reason);
            self.version = stored.version.saturating_add(is_news.into());
        }
        self
    }

    /// The phase with these reasons, oldest first. Reasons alone make a new version (task action spec §9.4).
    #[must_use]
    pub fn with_reasons(mut self, reasons: Vec<ReasonInfo>, stored: &K8sState) -> Self {
        if reasons.is_empty() {
            return self;
        }
        self.reasons.extend(reasons);
        if self.phase == stored.phase && self.version <= stored.version {
            self.version = stored.version.saturating_add(1);
        }
        self
    }

    /// The part of the phase that is stored.
    pub fn to_k8s_state(&self) -> K8sState {
        K8sState {
            phase: self.phase,
            version: self.version,
            reason: self.reason.clone(),
        }
    }
}

pub(crate) fn corrupt(what: impl ToString) -> StateError {
    StateError::Corrupt(what.to_string())
}

/// A phase that is not known here is as good as none.
fn phase_of(value: Option<&Gob>) -> Result<Phase, StateError> {
    match value {
        None => Ok(Phase::Undefined),
        Some(Gob::Int(number)) => Ok(usize::try_from(*number)
            .ok()
            .and_then(|number| Phase::ALL.get(number).copied())
            .unwrap_or_default()),
        Some(other) => Err(corrupt(format!("phase {other:?}"))),
    }
}

pub(crate) fn version_of(value: Option<&Gob>) -> Result<u32, StateError> {
    match value {
        None => Ok(0),
        Some(Gob::Uint(number)) => {
            u32::try_from(*number).map_err(|_| corrupt(format!("phase version {number}")))
        }
        Some(other) => Err(corrupt(format!("phase version {other:?}"))),
    }
}

pub(crate) fn int_of(value: Option<&Gob>) -> Result<i64, StateError> {
    match value {
        None => Ok(0),
        Some(Gob::Int(number)) => Ok(*number),
        Some(other) => Err(corrupt(format!("number {other:?}"))),
    }
}

pub(crate) fn text_of(value: Option<&Gob>) -> Result<String, StateError> {
    match value {
        None => Ok(String::new()),
        Some(Gob::Bytes(bytes)) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Some(other) => Err(corrupt(format!("reason {other:?}"))),
    }
}

/// Go's `time.MarshalBinary`: version, seconds since the year 1, nanoseconds, minutes east of UTC (and, in version 2,
/// seconds of that offset). The offset does not change the instant.
pub(crate) fn time_of(value: Option<&Gob>) -> Result<Option<Timestamp>, StateError> {
    let bytes = match value {
        None => return Ok(None),
        Some(Gob::Bytes(bytes)) => bytes.as_slice(),
        Some(other) => return Err(corrupt(format!("time {other:?}"))),
    };
    let bad = || corrupt(format!("time of {} bytes", bytes.len()));
    let (version, rest) = bytes.split_first().ok_or_else(bad)?;
    let (seconds, rest) = rest.split_first_chunk().ok_or_else(bad)?;
    let (nanoseconds, rest) = rest.split_first_chunk().ok_or_else(bad)?;
    if !matches!((version, rest.len()), (1, 2) | (2, 3)) {
        return Err(bad());
    }
    let seconds = i64::from_be_bytes(*seconds);
    let nanoseconds = i32::from_be_bytes(*nanoseconds);
    if (seconds, nanoseconds) == (0, 0) {
        return Ok(None);
    }
    let unix = seconds.checked_sub(GO_EPOCH).ok_or_else(bad)?;
    Timestamp::new(unix, nanoseconds).map(Some).map_err(corrupt)
}

/// The time as [`time_of`] reads it, in UTC; empty for no time.
pub(crate) fn time_bytes(at: Option<Timestamp>) -> Vec<u8> {
    const UTC: i16 = -1;
    let Some(at) = at else { return Vec::new() };
    // Go's nanoseconds count forwards, also before 1970.
    let nanoseconds = at.subsec_nanosecond();
    let (seconds, nanoseconds) = if nanoseconds < 0 {
        (at.as_second() - 1, nanoseconds + 1_000_000_000)
    } else {
        (at.as_second(), nanoseconds)
    };
    let mut bytes = vec![1];
    bytes.extend((seconds + GO_EPOCH).to_be_bytes());
    bytes.extend(nanoseconds.to_be_bytes());
    bytes.extend(UTC.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
