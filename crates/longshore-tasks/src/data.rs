//! What an attempt that ended well left behind: its outputs, or why it failed after all (task action spec §9.2).

use std::path::PathBuf;

use async_trait::async_trait;
use longshore_api::flyte::{FILE_ERROR, FILE_OUTPUTS};
use longshore_core::{Class, Classify};
use longshore_plugins::{ErrorKind, TaskError};
use longshore_proto::flyteidl2::core::{
    ContainerError, ErrorDocument, LiteralMap, container_error::Kind, execution_error,
};
use object_store::{ObjectStoreExt, local::LocalFileSystem, path::Path};
use prost::Message;

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
}

/// A store that did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{url} cannot be read")]
pub struct DataError {
    url: String,
    source: object_store::Error,
}

impl Classify for DataError {
    fn class(&self) -> Class {
        Class::Retry
    }
}

/// Attempts' directories on this machine: `file://` URLs, and paths without a scheme.
#[derive(Debug)]
pub struct LocalData {
    files: LocalFileSystem,
    root: PathBuf,
    max_download: u64,
}

/// A file of an attempt.
enum File {
    Missing,
    TooLarge(u64),
    Read(Vec<u8>),
}

impl LocalData {
    /// URLs begin at `root`; no file is read beyond `max_download` bytes.
    pub fn new(root: PathBuf, max_download: u64) -> Self {
        Self {
            files: LocalFileSystem::new(),
            root,
            max_download,
        }
    }

    async fn read(&self, prefix: &str, name: &str) -> Result<File, DataError> {
        let fail = |source| DataError {
            url: format!("{prefix}/{name}"),
            source,
        };
        let below = prefix.strip_prefix("file://").unwrap_or(prefix);
        let file = self.root.join(below.trim_start_matches('/')).join(name);
        let path = Path::from_absolute_path(file).map_err(|error| fail(error.into()))?;
        let found = match self.files.get(&path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(File::Missing),
            Err(error) => return Err(fail(error)),
        };
        if found.meta.size > self.max_download {
            return Ok(File::TooLarge(found.meta.size));
        }
        Ok(File::Read(found.bytes().await.map_err(fail)?.into()))
    }

    async fn outputs(&self, prefix: &str) -> Result<Outcome, DataError> {
        let url = format!("{prefix}/{FILE_OUTPUTS}");
        Ok(match self.read(prefix, FILE_OUTPUTS).await? {
            File::Missing => Outcome::Incomplete(format!(
                "the task declares outputs and ended with 0, but there is no {url}"
            )),
            File::TooLarge(size) => Outcome::Incomplete(format!(
                "{url} has {size} bytes, and no more than {} are read",
                self.max_download
            )),
            File::Read(bytes) => match LiteralMap::decode(bytes.as_slice()) {
                Ok(_) => Outcome::Complete,
                Err(error) => Outcome::Incomplete(format!(
                    "expected a flyteidl2.core.LiteralMap in {url}: {error}"
                )),
            },
        })
    }
}

#[async_trait]
impl TaskData for LocalData {
    async fn outcome(&self, output_prefix: &str, owed: Owed) -> Result<Outcome, DataError> {
        if !is_local(output_prefix) {
            return Ok(match owed {
                Owed::Nothing => Outcome::Complete,
                Owed::Outputs => Outcome::Incomplete(format!(
                    "expected a file:// URL, found {output_prefix}: no other store can be read yet"
                )),
            });
        }
        match self.read(output_prefix, FILE_ERROR).await? {
            File::Read(bytes) => Ok(failed(&bytes)),
            File::TooLarge(size) => Ok(bad_error_file(format!("it has {size} bytes"))),
            File::Missing if owed == Owed::Nothing => Ok(Outcome::Complete),
            File::Missing => self.outputs(output_prefix).await,
        }
    }

    async fn inputs(&self, url: &str) -> Result<Option<LiteralMap>, DataError> {
        let Some((prefix, name)) = url.rsplit_once('/').filter(|_| is_local(url)) else {
            return Ok(None);
        };
        Ok(match self.read(prefix, name).await? {
            File::Read(bytes) => LiteralMap::decode(bytes.as_slice()).ok(),
            File::Missing | File::TooLarge(_) => None,
        })
    }
}

fn is_local(url: &str) -> bool {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_none_or(|scheme| scheme == "file")
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
