//! Opens a database: locks it, checks its version, migrates it, and only then uses it.

use std::{
    io,
    path::{Path, PathBuf},
};

use sqlx::{
    SqlSafeStr as _,
    migrate::{Migration, MigrationType, Migrator},
};
use uuid::Uuid;

use crate::{
    engine::{Connection, EngineError, Fault, sqlite},
    lock::{Lock, LockError},
    open_error::OpenError,
    server::Server,
};

/// One change of the tables, in the words of each engine; the result is the same tables and columns.
struct Change {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// Every change of the tables there ever was. Append only, never edit one that was released.
const MIGRATIONS: &[Change] = &[
    Change {
        version: 1,
        name: "runs",
        sqlite: include_str!("../migrations/sqlite/0001_runs.sql"),
        postgres: include_str!("../migrations/postgres/0001_runs.sql"),
    },
    Change {
        version: 2,
        name: "schedules",
        sqlite: include_str!("../migrations/sqlite/0002_schedules.sql"),
        postgres: include_str!("../migrations/postgres/0002_schedules.sql"),
    },
    Change {
        version: 3,
        name: "pools",
        sqlite: include_str!("../migrations/sqlite/0003_pools.sql"),
        postgres: include_str!("../migrations/postgres/0003_pools.sql"),
    },
    Change {
        version: 4,
        name: "result notes",
        sqlite: include_str!("../migrations/sqlite/0004_result_notes.sql"),
        postgres: include_str!("../migrations/postgres/0004_result_notes.sql"),
    },
    Change {
        version: 5,
        name: "airflow",
        sqlite: include_str!("../migrations/sqlite/0005_airflow.sql"),
        postgres: include_str!("../migrations/postgres/0005_airflow.sql"),
    },
    Change {
        version: 6,
        name: "told",
        sqlite: include_str!("../migrations/sqlite/0006_told.sql"),
        postgres: include_str!("../migrations/postgres/0006_told.sql"),
    },
    Change {
        version: 7,
        name: "heartbeats",
        sqlite: include_str!("../migrations/sqlite/0007_heartbeats.sql"),
        postgres: include_str!("../migrations/postgres/0007_heartbeats.sql"),
    },
    Change {
        version: 8,
        name: "worker tokens",
        sqlite: include_str!("../migrations/sqlite/0008_worker_tokens.sql"),
        postgres: include_str!("../migrations/postgres/0008_worker_tokens.sql"),
    },
];

/// sqlx's table of applied migrations.
const MIGRATIONS_TABLE: &str = "_sqlx_migrations";

/// The place of a database.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In this file.
    File(PathBuf),
    /// In the memory of this process, under this name.
    Memory(String),
    /// On this Postgres server.
    Server(Box<Server>),
}

/// An opened database.
pub(crate) struct Opened {
    pub(crate) writer: Connection,
    pub(crate) reader: Connection,
    pub(crate) lock: Option<Lock>,
    pub(crate) scheduler_id: String,
    /// Which opening of the database this is, counted in the database: shows whether another process came in between.
    pub(crate) opening: i64,
}

impl Place {
    /// Opens the database, and creates it where there is none.
    pub(crate) async fn open(&self) -> Result<Opened, OpenError> {
        let lock = match self {
            Self::File(path) => Some(take_lock(path)?),
            Self::Memory(_) | Self::Server(_) => None,
        };
        let mut writer = self.connect_writer().await?;
        self.inspect(&mut writer).await?;
        self.prepare(&mut writer).await?;
        let scheduler_id = self.identify(&mut writer).await?;
        let opening = self.opening(&mut writer).await?;
        let reader = self.connect_reader().await?;
        Ok(Opened {
            writer,
            reader,
            lock,
            scheduler_id,
            opening,
        })
    }

    /// Opens another connection for the writer in place of one that was lost. Returns when the old session has ended,
    /// whatever it was doing.
    ///
    /// # Errors
    /// [`OpenError::TakenOver`] when another process has used the database meanwhile, and every failure to connect.
    pub(crate) async fn reopen(&self, opening: i64) -> Result<Connection, OpenError> {
        let mut writer = self.connect_writer().await?;
        writer.make_durable().await.map_err(|e| self.error(e))?;
        if self.opening(&mut writer).await? == opening {
            Ok(writer)
        } else {
            let database = self.name();
            Err(OpenError::TakenOver { database })
        }
    }

    /// The connection that writes; with the lock, where the engine keeps it.
    async fn connect_writer(&self) -> Result<Connection, OpenError> {
        let Self::Server(server) = self else {
            return self.connect_reader().await;
        };
        let connect = async || {
            let mut writer = server.connect_writer().await?;
            writer.end_namesakes(&server.writer_name()).await?;
            let locked = writer.lock().await?;
            Ok((writer, locked))
        };
        let (writer, locked) = connect().await.map_err(|e| self.error(e))?;
        locked.map_err(|holder| OpenError::InUse {
            database: self.name(),
            holder,
            instead: "database",
        })?;
        Ok(Connection::Postgres(writer))
    }

    /// Ends the session that holds the lock of a server's database, whichever process it belongs to.
    pub(crate) async fn end_former_writer(&self) -> Result<(), OpenError> {
        let Self::Server(server) = self else {
            return Ok(());
        };
        let end = async || {
            let mut session = server.connect_reader().await?;
            session.end_lock_holder().await?;
            session.close().await
        };
        end().await.map_err(|e| self.error(e))
    }

    /// A connection that reads.
    pub(crate) async fn connect_reader(&self) -> Result<Connection, OpenError> {
        let connection = match self {
            Self::File(path) => sqlite::Connection::open_file(path)
                .await
                .map(Connection::Sqlite),
            Self::Memory(name) => sqlite::Connection::open_memory(name)
                .await
                .map(Connection::Sqlite),
            Self::Server(server) => server.connect_reader().await.map(Connection::Postgres),
        };
        connection.map_err(|e| self.error(e))
    }

    /// Reads only: refuses a database of another program before anything is written.
    async fn inspect(&self, c: &mut Connection) -> Result<(), OpenError> {
        let database = self.name();
        if let Some(why) = c.damage().await.map_err(|e| self.error(e))? {
            let why = why.into();
            return Err(OpenError::Damaged { database, why });
        }
        let tables = c.tables().await.map_err(|e| self.error(e))?;
        let has = |name: &str| tables.iter().any(|table| table == name);
        let is_ours = has(MIGRATIONS_TABLE) && has("scheduler");
        if let Some(table) = tables.iter().find(|table| *table != MIGRATIONS_TABLE)
            && !is_ours
        {
            let table = table.clone();
            return Err(OpenError::Foreign { database, table });
        }
        if !is_ours {
            return Ok(());
        }
        let sql = "SELECT COALESCE(MAX(version), 0) AS version FROM _sqlx_migrations";
        let found = self.number(c, sql, "version").await?;
        let known = MIGRATIONS.iter().map(|change| change.version).max();
        let known = known.unwrap_or(0);
        if found > known {
            return Err(OpenError::Newer {
                database,
                found,
                known,
            });
        }
        Ok(())
    }

    async fn prepare(&self, c: &mut Connection) -> Result<(), OpenError> {
        c.make_durable().await.map_err(|e| self.error(e))?;
        let migrations = MIGRATIONS.iter().map(|change| {
            let sql = match self {
                Self::File(_) | Self::Memory(_) => change.sqlite,
                Self::Server(_) => change.postgres,
            };
            let (name, sql) = (change.name.into(), sql.into_sql_str());
            Migration::new(change.version, name, MigrationType::Simple, sql, false)
        });
        let migrator = Migrator::with_migrations(migrations.collect());
        c.migrate(&migrator).await.map_err(|e| OpenError::Migrate {
            database: self.name(),
            why: e.to_string().into(),
        })
    }

    /// The scheduler's id: made once, then read. Counts this opening.
    async fn identify(&self, c: &mut Connection) -> Result<String, OpenError> {
        let sql = "INSERT INTO scheduler (id, n_openings) \
                   SELECT ?, 0 WHERE NOT EXISTS (SELECT 1 FROM scheduler)";
        c.execute(sql, [new_scheduler_id().into()])
            .await
            .map_err(|e| self.error(e))?;
        let sql = "UPDATE scheduler SET n_openings = n_openings + 1";
        c.execute(sql, []).await.map_err(|e| self.error(e))?;
        let rows = c
            .fetch("SELECT id FROM scheduler", [])
            .await
            .map_err(|e| self.error(e))?;
        rows.first()
            .and_then(|row| row.text("id").ok())
            .ok_or_else(|| self.no_scheduler())
    }

    async fn opening(&self, c: &mut Connection) -> Result<i64, OpenError> {
        let sql = "SELECT n_openings FROM scheduler";
        self.number(c, sql, "n_openings").await
    }

    async fn number(
        &self,
        c: &mut Connection,
        sql: &'static str,
        column: &str,
    ) -> Result<i64, OpenError> {
        let rows = c.fetch(sql, []).await.map_err(|e| self.error(e))?;
        rows.first()
            .and_then(|row| row.int(column).ok())
            .ok_or_else(|| self.no_scheduler())
    }

    fn no_scheduler(&self) -> OpenError {
        OpenError::Damaged {
            database: self.name(),
            why: "table scheduler has no row".into(),
        }
    }

    /// The name of the database in messages, without secrets.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Memory(_) => ":memory:".to_owned(),
            Self::Server(server) => server.to_string(),
        }
    }

    /// An error of opening it.
    pub(crate) fn error(&self, error: EngineError) -> OpenError {
        let database = self.name();
        let EngineError { fault, why } = error;
        match fault {
            Fault::Full => OpenError::Full { database },
            Fault::Damaged => OpenError::Damaged { database, why },
            Fault::Lost => OpenError::Unreachable { database, why },
            Fault::Denied => match self {
                Self::File(_) | Self::Memory(_) => OpenError::Denied { database, why },
                Self::Server(_) => OpenError::Refused { database, why },
            },
            Fault::Constraint | Fault::Collision | Fault::Io | Fault::Other => {
                OpenError::Engine { database, why }
            }
        }
    }
}

fn take_lock(path: &Path) -> Result<Lock, OpenError> {
    Lock::take(path).map_err(|error| {
        let database = path.display().to_string();
        match error {
            LockError::Held(process) => OpenError::InUse {
                database,
                holder: process.map_or_else(
                    || "another process".to_owned(),
                    |id| format!("process {id}"),
                ),
                instead: "data directory",
            },
            LockError::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                OpenError::Full { database }
            }
            LockError::Io(error) => OpenError::Directory {
                database,
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
