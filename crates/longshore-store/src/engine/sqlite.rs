//! One connection to SQLite.

use std::{borrow::Cow, path::Path};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection as _, Sqlite, SqliteConnection,
    migrate::{MigrateError, Migrator},
    sqlite::{SqliteArguments, SqliteConnectOptions},
};

use super::{Cell, EngineError, Fault, Row};

/// The names of all tables.
pub(super) const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table'";

/// Takes the write lock at once: a transaction that takes it later can be refused half-way.
pub(super) const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";

/// The first read fixes what all of them see.
pub(super) const BEGIN_READ: &str = "BEGIN";

fn error(error: sqlx::Error) -> EngineError {
    let is_broken = matches!(error, sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed);
    let fault = match error.as_database_error() {
        Some(e) if e.is_unique_violation() || e.is_foreign_key_violation() => Fault::Constraint,
        Some(e) => fault_of_code(e.code().as_deref()),
        None if is_broken => Fault::Io,
        None => Fault::Other,
    };
    // The engine's words without sqlx's "error returned from database".
    let why = error
        .as_database_error()
        .map_or_else(|| error.to_string(), ToString::to_string);
    EngineError::new(fault, why)
}

/// SQLite's result codes (sqlite.org/rescode.html): the low byte is the primary one.
fn fault_of_code(code: Option<&str>) -> Fault {
    const PERM: i32 = 3;
    const READONLY: i32 = 8;
    const IOERR: i32 = 10;
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const CANTOPEN: i32 = 14;
    const NOTADB: i32 = 26;
    match code.and_then(|c| c.parse::<i32>().ok()).map(|c| c & 0xff) {
        Some(PERM | READONLY | CANTOPEN) => Fault::Denied,
        Some(IOERR) => Fault::Io,
        Some(CORRUPT | NOTADB) => Fault::Damaged,
        Some(FULL) => Fault::Full,
        _ => Fault::Other,
    }
}

/// One connection. Its work runs on a thread of its own and waits for no timer of the runtime.
#[derive(Debug)]
pub(crate) struct Connection(SqliteConnection);

impl Connection {
    /// Opens the file, and creates an empty one where there is none. Writes nothing into an existing one.
    pub(crate) async fn open_file(path: &Path) -> Result<Self, EngineError> {
        Self::open(SqliteConnectOptions::new().filename(path)).await
    }

    /// Opens the in-memory database of this name, shared by all connections of this process with the same name; it
    /// lives as long as one of them.
    pub(crate) async fn open_memory(name: &str) -> Result<Self, EngineError> {
        // The `memdb` file system, not a shared cache: readers and the writer then wait for each other as with files.
        Self::open(
            SqliteConnectOptions::new()
                .filename(format!("/{name}"))
                .vfs("memdb"),
        )
        .await
    }

    async fn open(options: SqliteConnectOptions) -> Result<Self, EngineError> {
        let options = options.create_if_missing(true).disable_statement_logging();
        Ok(Self(options.connect().await.map_err(error)?))
    }

    /// Makes commits durable when they return: the log is synced by each of them. (No effect on in-memory databases.)
    pub(crate) async fn make_durable(&mut self) -> Result<(), EngineError> {
        self.execute("PRAGMA journal_mode = WAL".into(), []).await?;
        self.execute("PRAGMA synchronous = FULL".into(), []).await?;
        Ok(())
    }

    /// Brings the tables up to date.
    pub(crate) async fn migrate(&mut self, migrator: &Migrator) -> Result<(), MigrateError> {
        migrator.run(&mut self.0).await
    }

    /// What a quick look over the whole file finds wrong; `None` is well.
    pub(crate) async fn damage(&mut self) -> Result<Option<String>, EngineError> {
        let rows = self.fetch("PRAGMA quick_check(1)".into(), []).await?;
        let found = rows.first().and_then(|row| row.text("quick_check").ok());
        Ok(found.filter(|words| words != "ok"))
    }

    /// Runs one statement; how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: Cow<'static, str>,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<u64, EngineError> {
        let done = query(sql, cells).execute(&mut self.0).await;
        let done = done.map_err(error)?;
        Ok(done.rows_affected())
    }

    /// Runs one query; its rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: Cow<'static, str>,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<Vec<Row>, EngineError> {
        let rows = query(sql, cells).fetch_all(&mut self.0).await;
        Ok(rows.map_err(error)?.into_iter().map(Row::Sqlite).collect())
    }

    /// Closes the connection; the last connection of a file folds the log into the file.
    pub(crate) async fn close(self) -> Result<(), EngineError> {
        self.0.close().await.map_err(error)
    }
}

fn query(
    sql: Cow<'static, str>,
    cells: impl IntoIterator<Item = Cell>,
) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    let query = sqlx::query(AssertSqlSafe(sql));
    cells.into_iter().fold(query, |query, cell| match cell {
        Cell::Int(value) => query.bind(value),
        Cell::Text(value) => query.bind(value),
    })
}
