//! One connection to SQLite: the only file that knows the engine.
//!
//! The rest of the crate writes standard SQL with `?` for each parameter and sees two kinds of values, so a second
//! engine replaces this file and nothing else (one that numbers its parameters replaces the `?`).

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, Row as _, Sqlite, SqliteConnection};

/// A value on its way to a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// For a `BIGINT` column.
    Int(Option<i64>),
    /// For a `TEXT` column.
    Text(Option<String>),
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<Option<String>> for Cell {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

/// A row as the engine gave it.
pub(crate) struct Row(SqliteRow);

impl Row {
    /// A `BIGINT NOT NULL` column.
    pub(crate) fn int(&self, column: &str) -> Result<i64, String> {
        self.0.try_get(column).map_err(|e| e.to_string())
    }

    /// A `TEXT NOT NULL` column.
    pub(crate) fn text(&self, column: &str) -> Result<String, String> {
        self.0.try_get(column).map_err(|e| e.to_string())
    }

    /// A `TEXT` column that may be null.
    pub(crate) fn opt_text(&self, column: &str) -> Result<Option<String>, String> {
        self.0.try_get(column).map_err(|e| e.to_string())
    }
}

/// What went wrong in the engine, as far as we act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A unique or foreign key is violated: another row is in the way, or the referenced one is missing.
    Constraint,
    /// The disk is full.
    Full,
    /// The file is not a database, or no longer a whole one.
    Damaged,
    /// Reading or writing the file failed: whether it reached the disk is unknown.
    Io,
    /// The file cannot be opened or written by this user.
    Denied,
    /// Anything else.
    Other,
}

/// What the engine said.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct EngineError {
    /// What we make of it.
    pub(crate) fault: Fault,
    /// Its own words.
    pub(crate) why: Arc<str>,
}

impl From<sqlx::Error> for EngineError {
    fn from(error: sqlx::Error) -> Self {
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
        Self {
            fault,
            why: why.into(),
        }
    }
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
        Ok(Self(options.connect().await?))
    }

    /// Makes commits durable when they return: the log is synced by each of them. (No effect on in-memory databases.)
    pub(crate) async fn make_durable(&mut self) -> Result<(), EngineError> {
        self.execute("PRAGMA journal_mode = WAL", []).await?;
        self.execute("PRAGMA synchronous = FULL", []).await?;
        Ok(())
    }

    /// Brings the tables up to date.
    pub(crate) async fn migrate(&mut self, migrator: &Migrator) -> Result<(), MigrateError> {
        migrator.run(&mut self.0).await
    }

    /// The names of the tables that are there.
    pub(crate) async fn tables(&mut self) -> Result<Vec<Row>, EngineError> {
        self.fetch("SELECT name FROM sqlite_schema WHERE type = 'table'", [])
            .await
    }

    /// What a quick look over the whole file finds wrong; `None` is well.
    pub(crate) async fn damage(&mut self) -> Result<Option<String>, EngineError> {
        let rows = self.fetch("PRAGMA quick_check(1)", []).await?;
        let found = rows.first().and_then(|row| row.text("quick_check").ok());
        Ok(found.filter(|words| words != "ok"))
    }

    /// Begins a transaction that may write.
    pub(crate) async fn begin_write(&mut self) -> Result<(), EngineError> {
        // Takes the write lock at once: a transaction that takes it later can be refused half-way.
        self.execute("BEGIN IMMEDIATE", []).await.map(drop)
    }

    /// Begins a transaction in which all reads see the same state.
    pub(crate) async fn begin_read(&mut self) -> Result<(), EngineError> {
        self.execute("BEGIN", []).await.map(drop)
    }

    /// Runs one statement; how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<u64, EngineError> {
        let done = query(sql.into(), cells).execute(&mut self.0).await?;
        Ok(done.rows_affected())
    }

    /// Runs one query; its rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<Vec<Row>, EngineError> {
        let rows = query(sql.into(), cells).fetch_all(&mut self.0).await?;
        Ok(rows.into_iter().map(Row).collect())
    }

    /// Closes it; the last one of a file folds the log into it.
    pub(crate) async fn close(self) -> Result<(), EngineError> {
        Ok(self.0.close().await?)
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
