//! How a database is opened: locked, looked at, brought up to date, and only then used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_core::{Class, Classify};
use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use uuid::Uuid;

use crate::lock::{Lock, LockError};
use crate::sqlite::{Connection, EngineError, Fault};

/// Every change of the tables there ever was: version and SQL. Append only, never edit one that was released.
const MIGRATIONS: &[(i64, &str, &str)] =
    &[(1, "runs", include_str!("../migrations/0001_runs.sql"))];

/// sqlx's table of applied migrations.
const MIGRATIONS_TABLE: &str = "_sqlx_migrations";

/// Why a database cannot be opened. Nothing was changed in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error(
        "database {} is in use by {}; stop that one first, or use another data directory",
        path.display(), holder(*process)
    )]
    InUse {
        /// The database.
        path: PathBuf,
        /// The process that holds the lock, where the lock file tells.
        process: Option<u32>,
    },
    /// The directory is missing or takes no files.
    #[error(
        "the directory of database {} must exist and be writable: create it, or use another data directory",
        path.display()
    )]
    Directory {
        /// The database.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The file cannot be opened or written.
    #[error("database {} must be a file that this user can read and write: {why}", path.display())]
    Denied {
        /// The database.
        path: PathBuf,
        /// The engine's own words.
        why: Arc<str>,
    },
    /// No space is left.
    #[error("database {} cannot be opened because the disk is full; free some space", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// It was written by a newer version.
    #[error(
        "database {} has version {found}, this program knows versions up to {known}; use the newer program again",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The version of its tables.
        found: i64,
        /// The newest that we know.
        known: i64,
    },
    /// It is a database of something else.
    #[error("database {} belongs to another program (it holds table {table}); use another file", path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
        /// One of its tables.
        table: String,
    },
    /// It is no database, or not a whole one.
    #[error(
        "database {} is damaged: {why}; restore a backup, or move it away to start with an empty one",
        path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        why: Arc<str>,
    },
    /// Its tables could not be brought up to date.
    #[error("the tables of database {} could not be brought up to date: {why}", path.display())]
    Migrate {
        /// The database.
        path: PathBuf,
        /// The engine's own words.
        why: Arc<str>,
    },
    /// The engine failed in another way.
    #[error("database {} cannot be opened: {why}", path.display())]
    Engine {
        /// The database.
        path: PathBuf,
        /// The engine's own words.
        why: Arc<str>,
    },
}

fn holder(process: Option<u32>) -> String {
    process.map_or_else(
        || "another process".to_owned(),
        |id| format!("process {id}"),
    )
}

impl Classify for OpenError {
    fn class(&self) -> Class {
        match self {
            Self::InUse { .. } | Self::Full { .. } | Self::Engine { .. } => Class::Retry,
            Self::Directory { .. }
            | Self::Denied { .. }
            | Self::Newer { .. }
            | Self::Foreign { .. }
            | Self::Damaged { .. } => Class::Invalid,
            Self::Migrate { .. } => Class::Bug,
        }
    }
}

/// Where a database is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In this file.
    File(PathBuf),
    /// In the memory of this process, under this name.
    Memory(String),
}

/// An opened database.
pub(crate) struct Opened {
    pub(crate) writer: Connection,
    pub(crate) reader: Connection,
    pub(crate) lock: Option<Lock>,
    pub(crate) scheduler_id: String,
}

impl Place {
    /// Opens it, and creates it where there is none.
    pub(crate) async fn open(&self) -> Result<Opened, OpenError> {
        let lock = match self {
            Self::File(path) => Some(take_lock(path)?),
            Self::Memory(_) => None,
        };
        let mut writer = self.connect().await?;
        self.inspect(&mut writer).await?;
        self.prepare(&mut writer).await?;
        let scheduler_id = self.identify(&mut writer).await?;
        let reader = self.connect().await?;
        Ok(Opened {
            writer,
            reader,
            lock,
            scheduler_id,
        })
    }

    async fn connect(&self) -> Result<Connection, OpenError> {
        let connection = match self {
            Self::File(path) => Connection::open_file(path).await,
            Self::Memory(name) => Connection::open_memory(name).await,
        };
        connection.map_err(|e| self.error(e))
    }

    /// Reads only: refuses what is not ours before anything is written.
    async fn inspect(&self, c: &mut Connection) -> Result<(), OpenError> {
        if let Some(why) = c.damage().await.map_err(|e| self.error(e))? {
            let why = why.into();
            return Err(OpenError::Damaged {
                path: self.path(),
                why,
            });
        }
        let rows = c.tables().await.map_err(|e| self.error(e))?;
        let tables: Vec<String> = rows
            .iter()
            .filter_map(|row| row.text("name").ok())
            .collect();
        if !tables.iter().any(|table| table == MIGRATIONS_TABLE) {
            return match tables.into_iter().next() {
                None => Ok(()),
                Some(table) => Err(OpenError::Foreign {
                    path: self.path(),
                    table,
                }),
            };
        }
        let sql = "SELECT COALESCE(MAX(version), 0) AS version FROM _sqlx_migrations";
        let rows = c.fetch(sql, []).await.map_err(|e| self.error(e))?;
        let found = rows
            .first()
            .and_then(|row| row.int("version").ok())
            .unwrap_or(0);
        let known = MIGRATIONS
            .iter()
            .map(|(version, ..)| *version)
            .max()
            .unwrap_or(0);
        if found > known {
            return Err(OpenError::Newer {
                path: self.path(),
                found,
                known,
            });
        }
        Ok(())
    }

    async fn prepare(&self, c: &mut Connection) -> Result<(), OpenError> {
        c.make_durable().await.map_err(|e| self.error(e))?;
        let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
            let sql = sql.into_sql_str();
            Migration::new(version, name.into(), MigrationType::Simple, sql, false)
        });
        let migrator = Migrator::with_migrations(migrations.collect());
        c.migrate(&migrator).await.map_err(|e| OpenError::Migrate {
            path: self.path(),
            why: e.to_string().into(),
        })
    }

    /// The scheduler's id: made once, then read.
    async fn identify(&self, c: &mut Connection) -> Result<String, OpenError> {
        let sql = "INSERT INTO scheduler (id) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM scheduler)";
        c.execute(sql, [new_scheduler_id().into()])
            .await
            .map_err(|e| self.error(e))?;
        let rows = c
            .fetch("SELECT id FROM scheduler", [])
            .await
            .map_err(|e| self.error(e))?;
        rows.first()
            .and_then(|row| row.text("id").ok())
            .ok_or_else(|| OpenError::Damaged {
                path: self.path(),
                why: "table scheduler has no row".into(),
            })
    }

    /// For messages.
    fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Memory(_) => PathBuf::from(":memory:"),
        }
    }

    fn error(&self, error: EngineError) -> OpenError {
        let path = self.path();
        let EngineError { fault, why } = error;
        match fault {
            Fault::Full => OpenError::Full { path },
            Fault::Damaged => OpenError::Damaged { path, why },
            Fault::Denied => OpenError::Denied { path, why },
            Fault::Constraint | Fault::Io | Fault::Other => OpenError::Engine { path, why },
        }
    }
}

fn take_lock(path: &Path) -> Result<Lock, OpenError> {
    Lock::take(path).map_err(|error| {
        let path = path.to_owned();
        match error {
            LockError::Held(process) => OpenError::InUse { path, process },
            LockError::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                OpenError::Full { path }
            }
            LockError::Io(error) => OpenError::Directory {
                path,
                source: error.into(),
            },
        }
    })
}

/// 8 random base-36 characters.
fn new_scheduler_id() -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut rest = Uuid::new_v4().as_u128();
    let mut id = String::new();
    for _ in 0..8 {
        id.push(char::from(DIGITS[(rest % 36) as usize]));
        rest /= 36;
    }
    id
}
