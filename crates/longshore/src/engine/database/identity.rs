//! Whether a database is the one that the cluster in the data directory was used with.
//!
//! A database that was emptied, or lost, is made anew when it is opened. Its scheduler would know nothing of the pods that
//! still run in the cluster of the data directory, and schedules would make the same runs again: tasks would run twice.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{error::CliError, local_cluster::Lifetime};

/// The file with the ids of the databases that were used with the data directory.
const FILE: &str = "databases.json";
/// Only this user reads it.
const MODE: u32 = 0o600;

/// The databases of a data directory.
pub(super) struct Identities {
    file: PathBuf,
    /// Their ids by name. An id is made with the tables of a database, and never changes.
    ids: BTreeMap<String, String>,
    /// Whether the data directory has a cluster, whose pods outlive their process.
    lifetime: Lifetime,
}

impl Identities {
    /// Reads what is known of the databases of a data directory.
    pub(super) fn read(data_dir: &Path) -> Result<Self, CliError> {
        let file = data_dir.join(FILE);
        let ids = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        };
        let ids = ids.map_err(|source| CliError::in_data_dir(file.clone(), source))?;
        Ok(Self {
            file,
            ids,
            lifetime: Lifetime::of(data_dir),
        })
    }

    /// Refuses a file that is lost or empty, before it is made anew.
    pub(super) fn check_file(&self, name: &str, path: &Path) -> Result<(), CliError> {
        let found = match fs::metadata(path) {
            Ok(file) if file.is_file() && file.len() == 0 => "a file of 0 bytes",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "no such file",
            // The attempt to open it says what is wrong.
            Ok(_) | Err(_) => return Ok(()),
        };
        match self.expected(name) {
            Some(expected) => Err(self.replaced(path.display(), expected, found.to_owned())),
            None => Ok(()),
        }
    }

    /// Refuses a database that is not the one of this name that was used before; else remembers it.
    pub(super) fn check(mut self, name: &str, id: &str) -> Result<(), CliError> {
        if let Some(expected) = self.expected(name).filter(|expected| *expected != id) {
            let found = format!("the id {id}, of a database that was made anew");
            return Err(self.replaced(name, expected, found));
        }
        if self.ids.get(name).is_some_and(|known| known == id) {
            return Ok(());
        }
        self.ids.insert(name.to_owned(), id.to_owned());
        let written = serde_json::to_vec_pretty(&self.ids).map_err(io::Error::from);
        let written = written.and_then(|text| longshore_files::replace(&self.file, MODE, &text));
        written.map_err(|source| CliError::in_data_dir(self.file, source))
    }

    /// The id that the database of this name must have: any, where no pods can be left.
    fn expected(&self, name: &str) -> Option<&str> {
        match self.lifetime {
            Lifetime::OfDataDir => self.ids.get(name).map(String::as_str),
            Lifetime::OfProcess => None,
        }
    }

    fn replaced(&self, database: impl ToString, expected: &str, found: String) -> CliError {
        CliError::DatabaseReplaced {
            database: database.to_string(),
            expected: expected.to_owned(),
            found,
            known: self.file.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const NAME: &str = "runs.db";

    /// Checks the id of the database: what was found, where it is refused.
    fn refused(data_dir: &Path, id: &str) -> Option<String> {
        let checked = Identities::read(data_dir).unwrap().check(NAME, id);
        let error = checked.err()?;
        let CliError::DatabaseReplaced {
            expected, found, ..
        } = &error
        else {
            panic!("{error}");
        };
        Some(format!("{expected}, {found}"))
    }

    /// Checks the file of the database; whether it may be opened.
    fn may_open(data_dir: &Path) -> bool {
        let identities = Identities::read(data_dir).unwrap();
        identities.check_file(NAME, &data_dir.join(NAME)).is_ok()
    }

    #[test]
    fn another_database_is_refused_where_pods_may_be_left() {
        let folder = TempDir::new().unwrap();
        let data_dir = folder.path();
        assert_eq!(refused(data_dir, "a"), None);
        // Without a cluster, no pods outlive their process.
        assert_eq!(refused(data_dir, "b"), None);
        fs::create_dir(data_dir.join("cluster")).unwrap();
        assert_eq!(refused(data_dir, "b"), None);
        let why = "b, the id a, of a database that was made anew".to_owned();
        assert_eq!(refused(data_dir, "a"), Some(why.clone()));
        // A refusal changes nothing.
        assert_eq!(refused(data_dir, "a"), Some(why));
        assert_eq!(refused(data_dir, "b"), None);
        // Another database beside it is no replacement.
        let identities = Identities::read(data_dir).unwrap();
        assert!(identities.check("other.db", "a").is_ok());
    }

    #[test]
    fn a_file_that_is_lost_or_empty_is_refused_unless_it_never_had_anything() {
        let folder = TempDir::new().unwrap();
        let data_dir = folder.path();
        fs::create_dir(data_dir.join("cluster")).unwrap();
        assert!(may_open(data_dir));
        fs::write(data_dir.join(NAME), "").unwrap();
        assert!(may_open(data_dir), "a first start that was killed");
        assert_eq!(refused(data_dir, "a"), None);
        assert!(!may_open(data_dir));
        fs::remove_file(data_dir.join(NAME)).unwrap();
        assert!(!may_open(data_dir));
        fs::write(data_dir.join(NAME), "text").unwrap();
        assert!(may_open(data_dir));
    }
}
