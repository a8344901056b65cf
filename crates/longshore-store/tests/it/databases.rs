//! Databases of the Postgres server of this process, and sessions past the store.

use std::sync::OnceLock;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

use crate::server::Server;

/// The server of this process, without syncs to the disk: for all tests that do not kill it.
pub(crate) fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(false)).as_ref()
}

/// An empty database on the shared server; `None` without a server.
pub(crate) async fn empty_database() -> Option<String> {
    // One at a time: the server copies its template for each.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let server = shared()?;
    let name = format!("test_{}", Uuid::new_v4().simple());
    let _turn = TURN.lock().await;
    execute(&server.url("postgres"), &format!("CREATE DATABASE {name}")).await;
    Some(server.url(&name))
}

/// A session past the store.
pub(crate) async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// Runs statements past the store.
pub(crate) async fn execute(url: &str, sql: &str) {
    let mut session = connect(url).await;
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut session)
        .await
        .unwrap();
    session.close().await.unwrap();
}
