//! Files that only their owner may read.

use std::{fs, io, path::Path};

use super::ServeError;

/// Makes a directory, and those above it, for its owner only.
pub(super) fn make_directory(path: &Path) -> Result<(), ServeError> {
    longshore_files::make_directories(path, 0o700).map_err(|source| failed("create", path, source))
}

/// The text of a file; `None` when there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, ServeError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", path, source)),
    }
}

/// Puts a file in place as a whole, durably: after a crash it is there with all of its text, or as
/// it was before.
pub(super) fn write(path: &Path, text: &str) -> Result<(), ServeError> {
    longshore_files::replace(path, 0o600, text.as_bytes())
        .map_err(|source| failed("write", path, source))
}

pub(super) fn failed(action: &'static str, path: &Path, source: io::Error) -> ServeError {
    ServeError::File {
        action,
        path: path.to_owned(),
        source,
    }
}
