//! Why a round of a controller fails.

use longshore_core::{Class, Classify};
use longshore_kit::ApplyError;

use crate::kinds::FlinkKey;

/// Why a round fails.
#[derive(Debug, thiserror::Error)]
pub enum FlinkError {
    /// An object is no JSON that can be read.
    #[error("an object around {key} cannot be read")]
    Unreadable {
        /// The key of the round.
        key: FlinkKey,
        /// What is wrong with the object.
        #[source]
        source: serde_json::Error,
    },
    /// The status was not written.
    #[error(transparent)]
    Write(#[from] ApplyError),
}

impl Classify for FlinkError {
    fn class(&self) -> Class {
        match self {
            Self::Unreadable { .. } => Class::Invalid,
            Self::Write(error) => error.class(),
        }
    }
}
