//! `client.yaml`: the address of the service and the token of its clients, in the data directory that both use.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::token::Token;

const NAME: &str = "client.yaml";

/// The content of `client.yaml`: how commands reach the service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    /// The address of the service.
    pub server: String,
    /// The token that clients show.
    pub token: Token,
}

/// Why the file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's own words.
        source: io::Error,
    },
    /// The file has other content.
    #[error("{} does not have server and token: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Other users may read the token.
    #[error("{} can be read by others: its mode is {mode:o}, expected 600", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
    },
}

impl ClientFile {
    /// Where the file of a data directory is.
    pub fn path(data_dir: &Path) -> PathBuf {
        data_dir.join(NAME)
    }

    /// Reads the file of a data directory; `None` where there is none.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, FileError> {
        let path = Self::path(data_dir);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FileError::Io { path, source }),
        };
        let mode = match fs::metadata(&path) {
            Ok(metadata) => metadata.permissions().mode() & 0o777,
            Err(source) => return Err(FileError::Io { path, source }),
        };
        if mode & 0o077 != 0 {
            return Err(FileError::Mode { path, mode });
        }
        match serde_saphyr::from_str(&text) {
            Ok(content) => Ok(Some(content)),
            // The parser's own words may show the token.
            Err(_) => Err(FileError::Content {
                path,
                why: "it is not the YAML that the service writes".to_owned(),
            }),
        }
    }

    /// The file that a service at this address writes. It keeps the token that its clients know,
    /// where the directory has one, so that a client that follows a run goes on after a restart.
    pub fn renew(data_dir: &Path, server: impl Into<String>) -> Result<Self, FileError> {
        let token = match Self::read(data_dir) {
            Ok(Some(known)) => known.token,
            // Other users could read or write the file, so they may know the token.
            Ok(None) | Err(FileError::Mode { .. } | FileError::Content { .. }) => Token::generate(),
            Err(error) => return Err(error),
        };
        let file = Self {
            server: server.into(),
            token,
        };
        file.write(data_dir)?;
        Ok(file)
    }

    /// Writes the file of a data directory: readable by its owner only, whole or not at all.
    pub fn write(&self, data_dir: &Path) -> Result<(), FileError> {
        let path = Self::path(data_dir);
        let write = || -> io::Result<()> {
            let text = serde_saphyr::to_string(self).map_err(io::Error::other)?;
            longshore_files::replace(&path, 0o600, text.as_bytes())
        };
        write().map_err(|source| FileError::Io { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ClientFile::read(folder.path()).unwrap().is_none());
        let file = ClientFile {
            server: "http://127.0.0.1:7080".to_owned(),
            token: Token::new("abc"),
        };
        fs::write(folder.path().join("client.yaml.new"), "left by a crash").unwrap();
        file.write(folder.path()).unwrap();
        file.write(folder.path()).unwrap();
        let read = ClientFile::read(folder.path()).unwrap().unwrap();
        assert_eq!(read.server, file.server);
        assert!(read.token.is("abc"));
        let renewed = ClientFile::renew(folder.path(), "http://127.0.0.1:7081").unwrap();
        assert!(renewed.token.is("abc"), "clients stay in over a restart");
        let path = ClientFile::path(folder.path());
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = ClientFile::read(folder.path()).unwrap_err();
        assert!(matches!(error, FileError::Mode { mode: 0o640, .. }));
        let renewed = ClientFile::renew(folder.path(), "http://127.0.0.1:7081").unwrap();
        assert!(!renewed.token.is("abc"), "others may know it");
    }

    #[test]
    fn a_damaged_file_is_refused_without_showing_its_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = ClientFile::path(folder.path());
        fs::write(&path, "server: x\ntoken: [hunter2]\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = ClientFile::read(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("client.yaml") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
