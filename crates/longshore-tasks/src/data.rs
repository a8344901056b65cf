//! What attempts are given and what they leave behind: inputs, outputs, or why one failed after all (task action spec
//! §9.2). [`Storage`] is where that is.

mod config;
mod error;
mod location;
mod storage;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use longshore_api::flyte::{FILE_ERROR, FILE_OUTPUTS};
use longshore_plugins::{ErrorKind, TaskError};
use longshore_proto::flyteidl2::core::{
    ContainerError, ErrorDocument, LiteralMap, container_error::Kind, execution_error,
};
use prost::Message;

pub use config::{StorageConfig, StorageConfigError};
pub use error::DataError;
pub use storage::{File, Storage};

/// What an attempt that ended well left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that was asked for.
    Complete,
    /// A document that says why it failed.
    Failed {
        /// Why.
        error: TaskError,
        /// Whether another attempt may help.
        is_recoverable: bool,
    },
    /// Not the outputs that its interface declares: what is wrong with them.
    Incomplete(String),
}

/// What an attempt owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    /// Its interface declares outputs.
    Outputs,
    /// It declares none: whether there are any is not looked at.
    Nothing,
}

/// Looks at what attempts left behind.
#[async_trait]
pub trait TaskData: std::fmt::Debug + Send + Sync + 'static {
    /// What is in the directory of an attempt that ended well.
    ///
    /// # Errors
    /// Where the store did not answer: that says nothing about the attempt.
    async fn outcome(&self, output_prefix: &str, owed: Owed) -> Result<Outcome, DataError>;

    /// The inputs at this URL, of a task whose resource cannot be built without them; `None` where there are none that
    /// can be read.
    ///
    /// # Errors
    /// Where the store did not answer.
    async fn inputs(&self, url: &str) -> Result<Option<LiteralMap>, DataError>;

    /// Writes the outputs of an attempt that wrote none itself.
    ///
    /// # Errors
    /// Where they are not there now.
    async fn write_outputs(
        &self,
        output_prefix: &str,
        outputs: &LiteralMap,
    ) -> Result<(), DataError>;
}

/// Attempts' directories in stores.
#[derive(Clone, Debug)]
pub struct StoredData {
    storage: Arc<Storage>,
}

/// Attempts' directories on this machine: [`StoredData::new`].
pub type LocalData = StoredData;

impl StoredData {
    /// Directories on this machine, and nothing else: see [`Storage::local`].
    pub fn new(root: PathBuf, max_download: u64) -> Self {
        Self::over(Arc::new(Storage::local(root, max_download)))
    }

    /// Directories in any store that is configured.
    pub fn over(storage: Arc<Storage>) -> Self {
        Self { storage }
    }

    async fn outputs(&self, prefix: &str) -> Result<Outcome, DataError> {
        let url = format!("{prefix}/{FILE_OUTPUTS}");
        Ok(match self.storage.read(&url).await? {
            File::Missing => Outcome::Incomplete(format!(
                "the task declares outputs and ended with 0, but there is no {url}"
            )),
            File::TooLarge(size) => Outcome::Incomplete(format!(
                "{url} has {size} bytes, and no more than {} are read",
                self.storage.max_download()
            )),
            File::Read(bytes) => match LiteralMap::decode(bytes) {
                Ok(_) => Outcome::Complete,
                Err(error) => Outcome::Incomplete(format!(
                    "expected a flyteidl2.core.LiteralMap in {url}: {error}"
                )),
            },
        })
    }
}

#[async_trait]
impl TaskData for StoredData {
    async fn outcome(&self, output_prefix: &str, owed: Owed) -> Result<Outcome, DataError> {
        if let Err(why) = self.storage.is_supported(output_prefix) {
            return Ok(match owed {
                Owed::Nothing => Outcome::Complete,
                Owed::Outputs => Outcome::Incomplete(why.to_string()),
            });
        }
        let url = format!("{output_prefix}/{FILE_ERROR}");
        match self.storage.read(&url).await? {
            File::Read(bytes) => Ok(failed(&bytes)),
            File::TooLarge(size) => Ok(bad_error_file(format!("it has {size} bytes"))),
            File::Missing if owed == Owed::Nothing => Ok(Outcome::Complete),
            File::Missing => self.outputs(output_prefix).await,
        }
    }

    async fn inputs(&self, url: &str) -> Result<Option<LiteralMap>, DataError> {
        if self.storage.is_supported(url).is_err() {
            return Ok(None);
        }
        Ok(match self.storage.read(url).await? {
            File::Read(bytes) => LiteralMap::decode(bytes).ok(),
            File::Missing | File::TooLarge(_) => None,
        })
    }

    async fn write_outputs(
        &self,
        output_prefix: &str,
        outputs: &LiteralMap,
    ) -> Result<(), DataError> {
        let url = format!("{output_prefix}/{FILE_OUTPUTS}");
        self.storage
            .write(&url, outputs.encode_to_vec().into())
            .await
    }
}

fn failed(document: &[u8]) -> Outcome {
    let error = match ErrorDocument::decode(document) {
        Ok(ErrorDocument { error: Some(error) }) => error,
        Ok(ErrorDocument { error: None }) => return bad_error_file("it holds no error".to_owned()),
        Err(error) => return bad_error_file(error.to_string()),
    };
    let is_recoverable = error.kind() == Kind::Recoverable;
    let kind = match error.origin() {
        execution_error::ErrorKind::Unknown => ErrorKind::Unknown,
        execution_error::ErrorKind::User => ErrorKind::User,
        execution_error::ErrorKind::System => ErrorKind::System,
    };
    let ContainerError { code, message, .. } = error;
    Outcome::Failed {
        error: TaskError {
            code,
            message,
            kind,
        },
        is_recoverable,
    }
}

fn bad_error_file(why: String) -> Outcome {
    Outcome::Failed {
        error: TaskError {
            code: "ErrorFileBadFormat".to_owned(),
            message: format!("expected a flyteidl2.core.ErrorDocument in {FILE_ERROR}: {why}"),
            kind: ErrorKind::System,
        },
        is_recoverable: true,
    }
}

#[cfg(test)]
mod tests;
