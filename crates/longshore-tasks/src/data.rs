//! What attempts are given and what they leave behind: inputs, outputs, or why one failed after all (task action spec
//! §9.2). [`Storage`] is where that is.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use longshore_api::flyte::{FILE_ERROR, FILE_OUTPUTS};
use longshore_core::text::MAX_TEXT;
use longshore_object_store::{DataError, File, Storage};
use longshore_plugins::{ErrorKind, TaskError};
use longshore_proto::flyteidl2::core::{
    ErrorDocument, LiteralMap, container_error::Kind, execution_error,
};
use prost::{DecodeError, Message};

/// Of an error's message, in bytes: with words of ours around it, it is kept as it is.
const MAX_MESSAGE: usize = MAX_TEXT - 1024;
/// Of an error's code, in bytes.
const MAX_CODE: usize = 256;

/// What an attempt that ended left behind.
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
    /// What is in the directory of an attempt that ended.
    ///
    /// # Errors
    /// Where the store did not answer: that says nothing about the attempt.
    async fn outcome(&self, output_prefix: &str, owed: Owed) -> Result<Outcome, DataError>;

    /// The inputs at this URL, of a task whose resource cannot be built without them; `None` where there is no file.
    /// The inner error says why what is there is of no use.
    ///
    /// # Errors
    /// Where the store did not answer.
    async fn inputs(&self, url: &str) -> Result<Result<Option<LiteralMap>, String>, DataError>;

    /// Whether actions of a namespace may name this URL, and something can be there.
    ///
    /// # Errors
    /// [`DataError::NotAllowed`] or [`DataError::Impossible`].
    fn admits(&self, _namespace: &str, _url: &str) -> Result<(), DataError> {
        Ok(())
    }

    /// Whether there is a store for this URL.
    ///
    /// # Errors
    /// [`DataError::Unsupported`].
    fn supports(&self, _url: &str) -> Result<(), DataError> {
        Ok(())
    }

    /// Whether an attempt can only write there when its directory has been made, which is ours to do.
    fn has_directories(&self, _output_prefix: &str) -> bool {
        false
    }

    /// Makes the directory of an attempt, and those above it, where they are not there.
    ///
    /// # Errors
    /// Where the file system refuses.
    async fn make_directory(&self, _output_prefix: &str) -> Result<(), DataError> {
        Ok(())
    }

    /// Writes the outputs of an attempt that wrote none itself: a `LiteralMap`, as it is in a file.
    ///
    /// # Errors
    /// Where they are not there now.
    async fn write_outputs(&self, output_prefix: &str, outputs: Bytes) -> Result<(), DataError>;
}

/// Attempts' directories in stores.
#[derive(Clone, Debug)]
pub struct StoredData {
    storage: Arc<Storage>,
}

impl StoredData {
    /// Directories in these stores.
    pub fn new(storage: Arc<Storage>) -> Self {
        Self { storage }
    }

    async fn outputs(&self, prefix: &str) -> Result<Outcome, DataError> {
        let url = format!("{prefix}/{FILE_OUTPUTS}");
        Ok(match self.storage.read(&url).await? {
            File::Missing => Outcome::Incomplete(format!(
                "the task declares outputs and ended with 0, but there is no {url}"
            )),
            // They are for whoever reads them next: the executor needs to know no more than that they are there.
            File::TooLarge(_) => Outcome::Complete,
            File::Read(bytes) => match LiteralMap::decode(bytes) {
                Ok(_) => Outcome::Complete,
                Err(error) => Outcome::Incomplete(undecodable(&url, &error)),
            },
        })
    }

    /// Whether outputs were written after the error. An attempt that is launched again after a system failure finds
    /// what the launch before it has left.
    async fn is_outdated(&self, error_url: &str, prefix: &str) -> Result<bool, DataError> {
        let outputs = format!("{prefix}/{FILE_OUTPUTS}");
        let Some(outputs_at) = self.storage.written_at(&outputs).await? else {
            return Ok(false);
        };
        let error_at = self.storage.written_at(error_url).await?;
        Ok(error_at.is_some_and(|error_at| error_at < outputs_at))
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
        let error = match self.storage.read(&url).await? {
            File::Missing => None,
            File::TooLarge(size) => Some(bad_error_file(format!("it has {size} bytes"))),
            File::Read(bytes) => Some(failed(&bytes)),
        };
        match (error, owed) {
            (Some(error), _) if !self.is_outdated(&url, output_prefix).await? => Ok(error),
            (_, Owed::Nothing) => Ok(Outcome::Complete),
            (_, Owed::Outputs) => self.outputs(output_prefix).await,
        }
    }

    async fn inputs(&self, url: &str) -> Result<Result<Option<LiteralMap>, String>, DataError> {
        inputs(&self.storage, url).await
    }

    fn admits(&self, namespace: &str, url: &str) -> Result<(), DataError> {
        self.storage.admits(namespace, url)
    }

    fn supports(&self, url: &str) -> Result<(), DataError> {
        self.storage.is_supported(url)
    }

    fn has_directories(&self, output_prefix: &str) -> bool {
        self.storage.has_directories(output_prefix)
    }

    async fn make_directory(&self, output_prefix: &str) -> Result<(), DataError> {
        self.storage.make_directory(output_prefix).await
    }

    async fn write_outputs(&self, output_prefix: &str, outputs: Bytes) -> Result<(), DataError> {
        let url = format!("{output_prefix}/{FILE_OUTPUTS}");
        self.storage.write(&url, outputs).await
    }
}

/// The inputs at this URL, `None` where there is no file; or why what is there is of no use.
///
/// # Errors
/// Where the store did not answer.
pub(crate) async fn inputs(
    storage: &Storage,
    url: &str,
) -> Result<Result<Option<LiteralMap>, String>, DataError> {
    let read = match storage.read(url).await {
        Err(error @ DataError::Unsupported { .. }) => return Ok(Err(error.to_string())),
        read => read?,
    };
    Ok(match read {
        File::Missing => Ok(None),
        File::TooLarge(size) => Err(too_large(storage, url, size)),
        File::Read(bytes) => match LiteralMap::decode(bytes) {
            Ok(inputs) => Ok(Some(inputs)),
            Err(error) => Err(undecodable(url, &error)),
        },
    })
}

fn too_large(storage: &Storage, url: &str, size: u64) -> String {
    let max = storage.max_download();
    format!("{url} has {size} bytes, and no more than {max} are read")
}

fn undecodable(url: &str, error: &DecodeError) -> String {
    format!("expected a flyteidl2.core.LiteralMap in {url}: {error}")
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
    Outcome::Failed {
        error: TaskError {
            code: excerpt(&error.code, MAX_CODE),
            message: excerpt(&error.message, MAX_MESSAGE),
            kind,
        },
        is_recoverable,
    }
}

/// A text that may be long: its beginning and its end, where a traceback has what matters.
fn excerpt(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let start = text.floor_char_boundary(max / 4);
    let end = text.ceil_char_boundary(text.len() - (max - max / 4));
    let n_omitted = end - start;
    format!(
        "{}\n… {n_omitted} bytes left out …\n{}",
        &text[..start],
        &text[end..]
    )
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
