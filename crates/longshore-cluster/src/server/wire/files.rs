//! Files that only their owner may read.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::ServeError;

/// Makes a directory, and those above it, for its owner only.
pub(super) fn make_directory(path: &Path) -> Result<(), ServeError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| failed("create", path, source))
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
    let draft = path.with_extension("new");
    let write = || {
        // A draft that an earlier crash left would keep its mode.
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(|source| failed("write", path, source))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> ServeError {
    ServeError::File {
        action,
        path: path.to_owned(),
        source,
    }
}
