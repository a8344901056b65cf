//! Both engines have the same tables and columns, of the same kinds, in the same order.

use std::collections::BTreeMap;

use longshore_store::Store;
use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

use crate::databases;

/// Tables, with their columns: name, type, whether it can be null.
type Schema = BTreeMap<String, Vec<(String, String, bool)>>;

async fn of_sqlite() -> Schema {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    Store::open(&path).await.unwrap().close().await;
    let mut session = SqliteConnection::connect(path.to_str().unwrap())
        .await
        .unwrap();
    let sql = "SELECT m.name, c.name, c.type, c.\"notnull\" = 0 \
               FROM sqlite_schema m JOIN pragma_table_info(m.name) c \
               WHERE m.type = 'table' AND m.name NOT LIKE '\\_sqlx%' ESCAPE '\\' ORDER BY m.name, c.cid";
    let rows = sqlx::query(AssertSqlSafe(sql))
        .fetch_all(&mut session)
        .await
        .unwrap();
    let mut schema = Schema::new();
    for row in rows {
        let column = (
            row.get(1),
            row.get::<String, _>(2).to_lowercase(),
            row.get(3),
        );
        schema.entry(row.get(0)).or_default().push(column);
    }
    schema
}

async fn of_postgres(url: &str) -> Schema {
    Store::connect(url).await.unwrap().close().await;
    let sql = "SELECT table_name::TEXT, column_name::TEXT, data_type::TEXT, is_nullable = 'YES' \
               FROM information_schema.columns WHERE table_schema = 'public' \
               AND table_name NOT LIKE '\\_sqlx%' ORDER BY table_name, ordinal_position";
    let rows = sqlx::query(AssertSqlSafe(sql))
        .fetch_all(&mut databases::connect(url).await)
        .await
        .unwrap();
    let mut schema = Schema::new();
    for row in rows {
        let column = (row.get(1), row.get(2), row.get(3));
        schema.entry(row.get(0)).or_default().push(column);
    }
    schema
}

#[tokio::test]
async fn both_engines_have_the_same_tables_and_columns() {
    let sqlite = of_sqlite().await;
    let expected = [
        "bundle",
        "connection",
        "dag",
        "dag_version",
        "deferral",
        "document",
        "event_log",
        "heartbeat",
        "import_error",
        "pool",
        "rendered",
        "reschedule",
        "run",
        "scheduler",
        "task_instance",
        "task_state",
        "variable",
        "xcom",
    ];
    assert!(sqlite.keys().eq(expected), "{:?}", sqlite.keys());
    let Some(url) = databases::empty_database().await else {
        return;
    };
    assert_eq!(sqlite, of_postgres(&url).await);
}

#[tokio::test]
async fn text_sorts_by_its_bytes_on_the_server() {
    let Some(url) = databases::empty_database().await else {
        return;
    };
    Store::connect(&url).await.unwrap().close().await;
    let sql = "SELECT table_name || '.' || column_name FROM information_schema.columns \
               WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx%' \
               AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'";
    let rows = sqlx::query(AssertSqlSafe(sql))
        .fetch_all(&mut databases::connect(&url).await)
        .await
        .unwrap();
    let others: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(others, Vec::<String>::new());
}
