//! Where runs are kept, and how patiently that is opened.

use std::{fmt, path::Path, str::FromStr, time::Duration};

use longshore_store::{OpenError, Store};

use crate::{error::CliError, progress::phases::Phases};

/// How often it is tried to open a database that is in use or does not answer, and the pause between two tries. The
/// session of a process that was killed ends a moment after it, and a server may be on its way up.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(200);

/// Where runs are kept.
#[derive(Clone, Debug, Default)]
pub(crate) enum Database {
    /// `longshore.db` in the data directory.
    #[default]
    InDataDir,
    /// A Postgres database.
    Server(DatabaseUrl),
}

/// The address of a Postgres database. It may hold a password, so that nothing prints it.
#[derive(Clone)]
pub(crate) struct DatabaseUrl(String);

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(hidden)")
    }
}

impl FromStr for DatabaseUrl {
    type Err = std::convert::Infallible;

    /// Takes any text: what is wrong with it is said when it is opened, without repeating it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

/// What lets us write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Nobody else has it open: who came first has it.
    First,
    /// We hold the lease: whoever still has a server's database open must not write any more.
    Leader,
}

impl Database {
    /// What it is, in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::InDataDir => "sqlite",
            Self::Server(_) => "postgres",
        }
    }

    /// Opens it.
    pub(crate) async fn open(
        &self,
        data_dir: &Path,
        rights: Rights,
        phases: &Phases,
    ) -> Result<Store, CliError> {
        phases.wait_for("the database");
        let mut last_told = String::new();
        for _ in 1..TRIES {
            match self.open_once(data_dir, rights).await {
                Ok(store) => return Ok(store),
                Err(error @ (OpenError::InUse { .. } | OpenError::Unreachable { .. })) => {
                    let why = error.to_string();
                    if why != last_told {
                        phases.wait_for(&format!("the database: {why}"));
                        last_told = why;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(CliError::in_opening(data_dir, error)),
            }
        }
        let opened = self.open_once(data_dir, rights).await;
        opened.map_err(|error| CliError::in_opening(data_dir, error))
    }

    async fn open_once(&self, data_dir: &Path, rights: Rights) -> Result<Store, OpenError> {
        match self {
            Self::InDataDir => Store::open(data_dir.join("longshore.db")).await,
            Self::Server(DatabaseUrl(url)) => match rights {
                Rights::First => Store::connect(url).await,
                Rights::Leader => Store::take_over(url).await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_never_printed() {
        let url: DatabaseUrl = "postgres://ann:s3cret@db/runs".parse().unwrap();
        let database = Database::Server(url);
        assert_eq!(format!("{database:?}"), "Server(DatabaseUrl(hidden))");
    }
}
