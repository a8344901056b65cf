//! Versions of Flink.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A version of Flink that upstream's CRD names. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the versions")]
pub enum FlinkVersion {
    V1_13,
    V1_14,
    V1_15,
    V1_16,
    V1_17,
    V1_18,
    V1_19,
    V1_20,
    V2_0,
    V2_1,
    V2_2,
    V2_3,
    V2_4,
}

/// A text that names no version of Flink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a version of Flink from v1_13 to v1_20 or from v2_0 to v2_4, found {0:?}")]
pub struct UnknownFlinkVersion(String);

impl FlinkVersion {
    /// All versions, the oldest first.
    pub const ALL: [Self; 13] = [
        Self::V1_13,
        Self::V1_14,
        Self::V1_15,
        Self::V1_16,
        Self::V1_17,
        Self::V1_18,
        Self::V1_19,
        Self::V1_20,
        Self::V2_0,
        Self::V2_1,
        Self::V2_2,
        Self::V2_3,
        Self::V2_4,
    ];

    /// The version as specs write it: `v1_20`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1_13 => "v1_13",
            Self::V1_14 => "v1_14",
            Self::V1_15 => "v1_15",
            Self::V1_16 => "v1_16",
            Self::V1_17 => "v1_17",
            Self::V1_18 => "v1_18",
            Self::V1_19 => "v1_19",
            Self::V1_20 => "v1_20",
            Self::V2_0 => "v2_0",
            Self::V2_1 => "v2_1",
            Self::V2_2 => "v2_2",
            Self::V2_3 => "v2_3",
            Self::V2_4 => "v2_4",
        }
    }

    /// Whether resources of this version are reconciled at all (spec 5.3, 7.3).
    pub fn is_supported(self) -> bool {
        self >= Self::V1_15
    }

    /// Whether upstream logs that it will drop this version (spec 5.3).
    pub fn is_deprecated(self) -> bool {
        self <= Self::V1_18
    }

    /// Whether the REST API of this version triggers checkpoints (spec 10.1).
    pub fn triggers_checkpoints(self) -> bool {
        self >= Self::V1_17
    }
}

impl fmt::Display for FlinkVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for FlinkVersion {
    type Err = UnknownFlinkVersion;

    fn from_str(text: &str) -> Result<Self, UnknownFlinkVersion> {
        let found = Self::ALL.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| UnknownFlinkVersion(text.to_owned()))
    }
}
