//! One connection to a Postgres server.
//!
//! The store's writing session holds an advisory lock as long as it lives: commits and the right to make them share
//! one fate. A second scheduler cannot begin before that session is over. Once the store has the lock again after a
//! lost connection, every commit of the old session is decided.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Postgres,
    migrate::{MigrateError, Migrator},
    postgres::{PgArguments, PgConnectOptions},
};

use super::{Cell, EngineError, Fault, Row};

/// The names of all tables in the schema of the store's tables.
pub(super) const TABLES: &str =
    "SELECT tablename::TEXT AS name FROM pg_catalog.pg_tables WHERE schemaname = current_schema()";

/// As if transactions ran one after the other: the server refuses a transaction that does not fit in, and the writer
/// repeats it.
pub(super) const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";

/// All reads see the state at the first of them.
pub(super) const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The advisory lock of a scheduler: "longshor" as eight bytes. One per database of the server.
const LOCK: i64 = i64::from_be_bytes(*b"longshor");

/// How long to wait for a response before the connection counts as lost: a server or a network that stands still
/// must not hold the store for the hours that TCP would take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same limit for a new connection.
const PATIENCE_CONNECT: Duration = Duration::from_secs(10);

/// How long to wait for the lock: the session of a process that was killed takes a moment to end.
const WAIT_FOR_LOCK: &str = "SET lock_timeout = '3s'";

/// One connection, lost for good after a timeout or a broken stream.
#[derive(Debug)]
pub(crate) struct Connection {
    inner: PgConnection,
    is_lost: bool,
}

impl Connection {
    /// Connects under a name that the server's administrator sees.
    pub(crate) async fn open(options: &PgConnectOptions, name: &str) -> Result<Self, EngineError> {
        let options = options.clone().application_name(name);
        let options = options.disable_statement_logging();
        let inner = bounded(PATIENCE_CONNECT, options.connect()).await?;
        Ok(Self {
            inner,
            is_lost: false,
        })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Raises the session to a synchronous commit where the server's default is less; never lowers it.
    pub(super) async fn make_durable(&mut self) -> Result<(), EngineError> {
        let sql = "SELECT set_config('synchronous_commit', 'on', false) \
                   WHERE current_setting('synchronous_commit') = 'off'";
        self.execute(sql, []).await.map(drop)
    }

    pub(super) async fn migrate(&mut self, migrator: &Migrator) -> Result<(), MigrateError> {
        migrator.run(&mut self.inner).await
    }

    /// Takes the lock of a scheduler for the life of this session. When another session has the
    /// lock, the inner error names it.
    pub(crate) async fn lock(&mut self) -> Result<Result<(), String>, EngineError> {
        self.execute(WAIT_FOR_LOCK, []).await?;
        let taken = self
            .execute("SELECT pg_advisory_lock(?)", [LOCK.into()])
            .await;
        self.execute("SET lock_timeout = 0", []).await?;
        match taken {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.fault == Fault::Collision => Ok(Err(self.holder().await?)),
            Err(error) => Err(error),
        }
    }

    async fn holder(&mut self) -> Result<String, EngineError> {
        // A lock by one BIGINT shows as its two halves.
        let sql = "SELECT format('session %s of user %s, from %s', pid, usename, \
                   COALESCE(host(client_addr), 'this machine')) AS holder \
                   FROM pg_catalog.pg_locks JOIN pg_catalog.pg_stat_activity USING (pid) \
                   WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
                   AND (classid::BIGINT << 32) + objid::BIGINT = ? AND datname = current_database()";
        let rows = self.fetch(sql, [LOCK.into()]).await?;
        let holder = rows.first().and_then(|row| row.text("holder").ok());
        Ok(holder.unwrap_or_else(|| "another session".to_owned()))
    }

    /// Ends other sessions of this name: those of this store that were lost before the server noticed.
    pub(crate) async fn end_namesakes(&mut self, name: &str) -> Result<(), EngineError> {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
                   WHERE application_name = ? AND pid <> pg_backend_pid() \
                   AND datname = current_database() AND usename = session_user";
        self.execute(sql, [name.into()]).await.map(drop)
    }

    /// Ends the session that holds the lock.
    pub(crate) async fn end_lock_holder(&mut self) -> Result<(), EngineError> {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_locks \
                   JOIN pg_catalog.pg_stat_activity USING (pid) \
                   WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
                   AND (classid::BIGINT << 32) + objid::BIGINT = ? AND datname = current_database()";
        self.execute(sql, [LOCK.into()]).await.map(drop)
    }

    pub(super) async fn execute(
        &mut self,
        sql: &str,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<u64, EngineError> {
        let done = bounded(PATIENCE, query(sql, cells).execute(&mut self.inner)).await;
        Ok(self.noticed(done)?.rows_affected())
    }

    pub(super) async fn fetch(
        &mut self,
        sql: &str,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<Vec<Row>, EngineError> {
        let rows = bounded(PATIENCE, query(sql, cells).fetch_all(&mut self.inner)).await;
        Ok(self.noticed(rows)?.into_iter().map(Row::Postgres).collect())
    }

    fn noticed<T>(&mut self, done: Result<T, EngineError>) -> Result<T, EngineError> {
        self.is_lost |= matches!(&done, Err(error) if error.fault == Fault::Lost);
        done
    }

    pub(crate) async fn close(self) -> Result<(), EngineError> {
        if self.is_lost {
            return Ok(());
        }
        bounded(PATIENCE_CONNECT, self.inner.close()).await
    }
}

async fn bounded<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, EngineError> {
    match tokio::time::timeout(patience, work).await {
        Ok(done) => done.map_err(|e| EngineError::new(fault(&e), words(&e))),
        Err(_) => {
            let why = format!("the server gave no answer within {} s", patience.as_secs());
            Err(EngineError::new(Fault::Lost, why))
        }
    }
}

/// The server's own words, where it sent some.
fn words(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}

fn query(
    sql: &str,
    cells: impl IntoIterator<Item = Cell>,
) -> sqlx::query::Query<'static, Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(numbered(sql)));
    cells.into_iter().fold(query, |query, cell| match cell {
        Cell::Int(value) => query.bind(value),
        Cell::Text(value) => query.bind(value),
    })
}

/// `$1`, `$2`, … for each `?`. The SQL of this crate has no `?` in a string.
fn numbered(sql: &str) -> String {
    let mut parts = sql.split('?');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for (n, part) in parts.enumerate() {
        numbered += &format!("${}{part}", n + 1);
    }
    numbered
}

fn fault(error: &sqlx::Error) -> Fault {
    if let Some(error) = error.as_database_error() {
        return error.code().map_or(Fault::Other, |code| fault_of(&code));
    }
    let is_stream = matches!(
        error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed
    );
    if is_stream { Fault::Lost } else { Fault::Other }
}

/// Codes of "PostgreSQL Error Codes", appendix A of its manual.
fn fault_of(code: &str) -> Fault {
    match code {
        // unique_violation, foreign_key_violation
        "23505" | "23503" => Fault::Constraint,
        // serialization_failure, deadlock_detected, lock_not_available
        "40001" | "40P01" | "55P03" => Fault::Collision,
        "53100" => Fault::Full,
        // invalid authorization, invalid password, no such database, insufficient privilege
        "28000" | "28P01" | "3D000" | "42501" => Fault::Denied,
        // Shut down, crashed, starting up, idle too long; too many connections; a server that became a standby.
        "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25006" => Fault::Lost,
        code if code.starts_with("08") => Fault::Lost,
        _ => Fault::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_in_their_order() {
        let cases = [
            ("SELECT 1", "SELECT 1"),
            ("?", "$1"),
            ("VALUES (?, ?), (?)", "VALUES ($1, $2), ($3)"),
        ];
        for (given, expected) in cases {
            assert_eq!(numbered(given), expected);
        }
    }

    #[test]
    fn codes_tell_what_may_be_tried_again() {
        let cases = [
            ("23505", Fault::Constraint),
            ("23514", Fault::Other),
            ("40001", Fault::Collision),
            ("40P01", Fault::Collision),
            ("53100", Fault::Full),
            ("28P01", Fault::Denied),
            ("57P01", Fault::Lost),
            ("57P03", Fault::Lost),
            ("08006", Fault::Lost),
            ("57014", Fault::Other),
            ("XX000", Fault::Other),
        ];
        for (code, expected) in cases {
            assert_eq!(fault_of(code), expected, "{code}");
        }
    }
}
