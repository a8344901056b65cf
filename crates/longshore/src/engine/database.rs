//! Where runs are stored, and how often the process tries to open the database.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use longshore_store::{OpenError, RunStore as _, Store};

use crate::{cli::is_on_command_line, error::CliError, output, progress::phases::Phases};

mod identity;

use identity::Identities;

/// How often the process tries to open a database that is in use or does not respond, and the pause between two tries.
/// The session of a process that was killed ends a moment after it, and a server may be on its way up.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(200);

/// The name of the database in the data directory.
const IN_DATA_DIR: &str = "longshore.db";

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

    /// Accepts any text: the attempt to open the database reports what is wrong with it, without repeating it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl DatabaseUrl {
    /// Whether a password is in it.
    fn has_password(&self) -> bool {
        let Some((_, rest)) = self.0.split_once("://") else {
            return false;
        };
        let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        user.is_some_and(|user| user.contains(':')) || rest.contains("password=")
    }
}

/// Where runs are to be kept.
#[derive(Args, Clone, Debug)]
pub(crate) struct DatabaseArgs {
    /// Keep runs in the Postgres whose URL is in this file
    #[arg(
        long,
        value_name = "FILE",
        env = "LONGSHORE_DATABASE_URL_FILE",
        hide_env = true
    )]
    database_url_file: Option<PathBuf>,
    // Hidden: other users of the machine see the command line, hence passwords belong into the file, or into the
    // environment, as LONGSHORE_DATABASE_URL.
    /// Keep runs in Postgres: postgres://USER@HOST:PORT/DATABASE
    #[arg(
        long,
        hide = true,
        value_name = "URL",
        env = "LONGSHORE_DATABASE_URL",
        hide_env = true,
        hide_env_values = true
    )]
    database_url: Option<DatabaseUrl>,
}

impl DatabaseArgs {
    /// The database that the arguments name, or the one in the data directory. The file comes before the URL.
    pub(crate) fn database(&self) -> Result<Database, CliError> {
        if let Some(file) = &self.database_url_file {
            let url = url_in(fs::read_to_string(file));
            let url = url.map_err(|found| CliError::DatabaseUrlFile {
                path: file.clone(),
                found,
            })?;
            return Ok(Database::Server(url));
        }
        let Some(url) = &self.database_url else {
            return Ok(Database::InDataDir);
        };
        if url.has_password() && is_on_command_line("--database-url", std::env::args_os()) {
            output::note(
                "the password of the database is on the command line, where every user of this machine can read it: \
                 write the URL into a file of yours and name that with --database-url-file, or set LONGSHORE_DATABASE_URL",
            );
        }
        Ok(Database::Server(url.clone()))
    }
}

/// The URL that a file holds, in its only line; lines without any text do not count.
///
/// # Errors
/// What was found instead, without any text of the file: it may be a password.
fn url_in(text: io::Result<String>) -> Result<DatabaseUrl, String> {
    let text = text.map_err(|error| {
        let known = [
            (io::ErrorKind::NotFound, "no such file"),
            (io::ErrorKind::IsADirectory, "a directory"),
            (
                io::ErrorKind::InvalidData,
                "a file that is no text in UTF-8",
            ),
        ];
        let found = known.iter().find(|(kind, _)| *kind == error.kind());
        found.map_or_else(
            || format!("a file that cannot be read: {error}"),
            |(_, what)| (*what).to_owned(),
        )
    })?;
    let lines = text.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => Err("an empty file".to_owned()),
        [url] => Ok(DatabaseUrl((*url).to_owned())),
        lines => Err(format!("{} lines", lines.len())),
    }
}

/// By which right this process writes to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// The first process to open the database keeps it. A second one fails with [`OpenError::InUse`].
    First,
    /// This process holds the lease: a connection of an earlier leader loses its right to write.
    Leader,
}

impl Database {
    /// The kind of database, in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::InDataDir => "sqlite",
            Self::Server(_) => "postgres",
        }
    }

    /// Opens the database. Refuses one that was emptied while the data directory still has its cluster, with pods of the
    /// runs that are lost.
    pub(crate) async fn open(
        &self,
        data_dir: &Path,
        rights: Rights,
        phases: &Phases,
    ) -> Result<Store, CliError> {
        if rights == Rights::Leader {
            // The data directory is this replica's alone, and has no cluster.
            return self.open_patiently(data_dir, rights, phases).await;
        }
        let identities = Identities::read(data_dir)?;
        if matches!(self, Self::InDataDir) {
            identities.check_file(IN_DATA_DIR, &data_dir.join(IN_DATA_DIR))?;
        }
        let store = self.open_patiently(data_dir, rights, phases).await?;
        let name = match self {
            Self::InDataDir => IN_DATA_DIR,
            Self::Server(_) => store.database(),
        };
        let checked = identities.check(name, store.scheduler_id());
        if checked.is_err() {
            store.close().await;
        }
        checked.map(|()| store)
    }

    async fn open_patiently(
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
            Self::InDataDir => Store::open(data_dir.join(IN_DATA_DIR)).await,
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
    fn a_password_in_an_address_is_seen_wherever_it_is() {
        for (url, expected) in [
            ("postgres://ann:s3cret@db/runs", true),
            ("postgres://ann@db:5432/runs", false),
            ("postgres://db/runs?user=ann&password=s3cret", true),
            ("postgres://db:5432/runs", false),
            ("postgres://ann:a@b@db/runs", true),
            ("runs", false),
        ] {
            let parsed: DatabaseUrl = url.parse().unwrap();
            assert_eq!(parsed.has_password(), expected, "{url}");
        }
    }

    #[test]
    fn a_file_has_one_address_or_says_what_it_has() {
        let failed = |kind: io::ErrorKind| Err(io::Error::from(kind));
        let url = "postgres://ann:s3cret@db/runs";
        for (text, expected) in [
            (Ok(url.to_owned()), Ok(url)),
            (Ok(format!("{url}\n")), Ok(url)),
            (Ok(format!("\n {url} \r\n\n")), Ok(url)),
            (Ok(String::new()), Err("an empty file")),
            (Ok(" \n\n".to_owned()), Err("an empty file")),
            (Ok(format!("{url}\n{url}\n")), Err("2 lines")),
            (failed(io::ErrorKind::NotFound), Err("no such file")),
            (failed(io::ErrorKind::IsADirectory), Err("a directory")),
            (
                failed(io::ErrorKind::InvalidData),
                Err("a file that is no text in UTF-8"),
            ),
        ] {
            let found = url_in(text).map(|url| url.0);
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned));
        }
        let denied = url_in(failed(io::ErrorKind::PermissionDenied)).unwrap_err();
        assert!(
            denied.starts_with("a file that cannot be read: "),
            "{denied}"
        );
    }

    #[test]
    fn an_address_is_never_printed() {
        let url: DatabaseUrl = "postgres://ann:s3cret@db/runs".parse().unwrap();
        let database = Database::Server(url);
        assert_eq!(format!("{database:?}"), "Server(DatabaseUrl(hidden))");
    }
}
