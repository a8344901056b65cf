//! What can go wrong with the peer's configuration, in a user's eyes.

use std::{error::Error, path::PathBuf};

use longshore_plugins::ConfigErrors;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{} is no YAML", path.display())]
    NoYaml {
        path: PathBuf,
        source: Box<dyn Error + Send + Sync>,
    },
    // What is wrong is the message: each problem names its key.
    #[error("the configuration has mistakes:\n{problems}")]
    Mistakes { problems: ConfigErrors },
}

impl ConfigError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::NoYaml { .. } => "LS1007",
            Self::Mistakes { .. } => "LS1008",
        }
    }

    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::NoYaml { .. } => "correct the file where the cause says",
            Self::Mistakes { .. } => {
                "correct the keys; sections of other components may hold anything"
            }
        }
    }
}
