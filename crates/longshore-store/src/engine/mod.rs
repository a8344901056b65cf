//! The two engines behind one kind of connection.
//!
//! The rest of the crate writes standard SQL with `?` for each parameter and sees two kinds of values; what the engines
//! do differently is in [`sqlite`] and [`postgres`], and nowhere else.

use std::{borrow::Cow, sync::Arc};

use sqlx::{
    Decode, Postgres, Row as _, Sqlite, Type,
    migrate::{MigrateError, Migrator},
    postgres::PgRow,
    sqlite::SqliteRow,
};

pub(crate) mod postgres;
pub(crate) mod sqlite;

/// A value on its way to a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A value of a `BIGINT` column.
    Int(Option<i64>),
    /// A value of a `TEXT` column.
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
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// A `BIGINT NOT NULL` column.
    pub(crate) fn int(&self, column: &str) -> Result<i64, String> {
        self.get(column)
    }

    /// A `BIGINT` column that may be null.
    pub(crate) fn opt_int(&self, column: &str) -> Result<Option<i64>, String> {
        self.get(column)
    }

    /// A `TEXT NOT NULL` column.
    pub(crate) fn text(&self, column: &str) -> Result<String, String> {
        self.get(column)
    }

    /// A `TEXT` column that may be null.
    pub(crate) fn opt_text(&self, column: &str) -> Result<Option<String>, String> {
        self.get(column)
    }

    fn get<'r, T>(&'r self, column: &str) -> Result<T, String>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>,
    {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        value.map_err(|e| e.to_string())
    }
}

/// What went wrong in the engine, as far as the store acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A unique or foreign key is violated: another row is in the way, or the referenced one is missing.
    Constraint,
    /// Another transaction was in the way; a repetition may succeed.
    Collision,
    /// The disk is full.
    Full,
    /// The file is not a database, or no longer a whole one.
    Damaged,
    /// Reading or writing the file failed: whether it reached the disk is unknown.
    Io,
    /// The connection to the server is lost, and the response with it: this connection is of no use any more.
    Lost,
    /// The database user may not do that, or its password is wrong.
    Denied,
    /// Anything else.
    Other,
}

/// An error of the engine.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct EngineError {
    /// The class of the error, which decides what the store does.
    pub(crate) fault: Fault,
    /// The error text of the engine.
    pub(crate) why: Arc<str>,
}

impl EngineError {
    fn new(fault: Fault, why: String) -> Self {
        let why = why.into();
        Self { fault, why }
    }

    /// A row that does not read as it was written.
    pub(crate) fn unreadable(why: String) -> Self {
        Self::new(Fault::Damaged, why)
    }
}

/// One connection to either engine.
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(sqlite::Connection),
    Postgres(postgres::Connection),
}

impl Connection {
    /// Whether the connection broke: the store can only open another one.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(c) => c.is_lost(),
        }
    }

    /// Makes commits durable when they return.
    pub(crate) async fn make_durable(&mut self) -> Result<(), EngineError> {
        match self {
            Self::Sqlite(c) => c.make_durable().await,
            Self::Postgres(c) => c.make_durable().await,
        }
    }

    /// Brings the tables up to date.
    pub(crate) async fn migrate(&mut self, migrator: &Migrator) -> Result<(), MigrateError> {
        match self {
            Self::Sqlite(c) => c.migrate(migrator).await,
            Self::Postgres(c) => c.migrate(migrator).await,
        }
    }

    /// The names of the tables that are there.
    pub(crate) async fn tables(&mut self) -> Result<Vec<String>, EngineError> {
        let sql = match self {
            Self::Sqlite(_) => sqlite::TABLES,
            Self::Postgres(_) => postgres::TABLES,
        };
        let rows = self.fetch(sql, []).await?;
        Ok(rows
            .iter()
            .filter_map(|row| row.text("name").ok())
            .collect())
    }

    /// What a quick look over the whole database finds wrong; `None` is well.
    pub(crate) async fn damage(&mut self) -> Result<Option<String>, EngineError> {
        match self {
            Self::Sqlite(c) => c.damage().await,
            // The server checks its own files.
            Self::Postgres(_) => Ok(None),
        }
    }

    /// Begins a transaction that may write.
    pub(crate) async fn begin_write(&mut self) -> Result<(), EngineError> {
        let sql = match self {
            Self::Sqlite(_) => sqlite::BEGIN_WRITE,
            Self::Postgres(_) => postgres::BEGIN_WRITE,
        };
        self.execute(sql, []).await.map(drop)
    }

    /// Begins a transaction in which all reads see the same state.
    pub(crate) async fn begin_read(&mut self) -> Result<(), EngineError> {
        let sql = match self {
            Self::Sqlite(_) => sqlite::BEGIN_READ,
            Self::Postgres(_) => postgres::BEGIN_READ,
        };
        self.execute(sql, []).await.map(drop)
    }

    /// Runs one statement; how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<u64, EngineError> {
        match self {
            Self::Sqlite(c) => c.execute(sql.into(), cells).await,
            Self::Postgres(c) => c.execute(&sql.into(), cells).await,
        }
    }

    /// Runs one query; its rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<Vec<Row>, EngineError> {
        match self {
            Self::Sqlite(c) => c.fetch(sql.into(), cells).await,
            Self::Postgres(c) => c.fetch(&sql.into(), cells).await,
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(self) -> Result<(), EngineError> {
        match self {
            Self::Sqlite(c) => c.close().await,
            Self::Postgres(c) => c.close().await,
        }
    }
}
