//! Databases of each earlier version are brought up to date with their rows, on both engines.

use std::path::Path;

use longshore_store::{Changes, Run, RunDetails, RunStore, Snapshot, Store, TaskInstance};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, SqlSafeStr as _,
    SqliteConnection,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::SqliteConnectOptions,
};
use uuid::Uuid;

use crate::{databases, samples::run_key};

/// The text of every migration but the last one, in the words of both engines.
macro_rules! earlier {
    ($($file:literal),*) => {
        [$((
            include_str!(concat!("../../migrations/sqlite/", $file)),
            include_str!(concat!("../../migrations/postgres/", $file)),
        )),*]
    };
}

const EARLIER: [(&str, &str); 6] = earlier!(
    "0001_runs.sql",
    "0002_schedules.sql",
    "0003_pools.sql",
    "0004_result_notes.sql",
    "0005_airflow.sql",
    "0006_told.sql"
);

/// Rows as the first version wrote them.
const ROWS: &str = "
    INSERT INTO scheduler (id, watch_position, n_openings) VALUES ('abcd1234', '77', 1);
    INSERT INTO pool (name, slots) VALUES ('narrow', 2);
    INSERT INTO document (hash, body) VALUES ('x', '{}');
    INSERT INTO dag (dag_id, is_paused, parsed_at, document_hash)
        VALUES ('sales', 1, '2026-11-21T10:00:00Z', 'x');
    INSERT INTO run (dag_id, run_id, run_type, state, queued_at, conf, dag_hash, is_prepared, version)
        VALUES ('sales', 'a', 'manual', 'running', '2026-11-21T10:00:00Z', '{\"n\":1}', 'x', 1, 5);
    INSERT INTO task_instance (id, dag_id, run_id, task_id, map_index, is_archived, state, try_number, max_tries,
        launch, launch_failures, pool, pool_slots, priority_weight, version) VALUES
        ('00000000-0000-0000-0000-000000000001', 'sales', 'a', 'load', -1, 1, 'up_for_retry', 1, 1, 1, 0, 'narrow', 1, 1, 3),
        ('00000000-0000-0000-0000-000000000002', 'sales', 'a', 'load', -1, 0, 'running', 2, 1, 1, 0, 'narrow', 1, 1, 4)";

/// The migrations up to and with this version.
fn migrator(version: usize, is_sqlite: bool) -> Migrator {
    let earlier = EARLIER.iter().take(version).zip(1..);
    let migrations = earlier.map(|((sqlite, postgres), number)| {
        let sql = if is_sqlite { *sqlite } else { *postgres };
        let (name, sql) = ("earlier".into(), sql.into_sql_str());
        Migration::new(number, name, MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(migrations.collect())
}

async fn earlier_file(path: &Path, version: usize) {
    let options = SqliteConnectOptions::new().filename(path);
    let mut session: SqliteConnection = options.create_if_missing(true).connect().await.unwrap();
    migrator(version, true).run(&mut session).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(ROWS));
    rows.execute(&mut session).await.unwrap();
    session.close().await.unwrap();
}

async fn earlier_database(url: &str, version: usize) {
    let mut session: PgConnection = databases::connect(url).await;
    migrator(version, false).run(&mut session).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(ROWS));
    rows.execute(&mut session).await.unwrap();
    session.close().await.unwrap();
}

/// The rows are there, say nothing new, and can be changed.
async fn check(store: &Store, version: usize) {
    assert_eq!(store.scheduler_id(), "abcd1234", "{version}");
    let Snapshot {
        runs,
        task_instances,
        pools,
        watch_position,
        dags,
        dag_versions,
        bundles,
        import_errors,
        documents,
    } = store.load().await.unwrap();
    assert_eq!(watch_position.as_deref(), Some("77"), "{version}");
    assert_eq!((pools.len(), documents.len()), (2, 1), "{version}");
    let is_new = |pool: &longshore_store::Pool| pool.include_deferred || pool.file.is_some();
    assert!(!pools.iter().any(is_new), "{version}: {pools:?}");
    assert!(dag_versions.is_empty() && bundles.is_empty() && import_errors.is_empty());
    assert_eq!((dags[0].is_paused, dags[0].last_interval), (true, None));
    assert_eq!(runs[0].details, RunDetails::default(), "{version}");
    assert_eq!((runs[0].version, dags[0].version), (5, 1), "{version}");
    let task = &task_instances[0];
    assert_eq!((task.id, task.version), (Uuid::from_u128(2), 4));
    assert_eq!((&task.airflow, &task.result_note), (&None, &None));
    let history = store.try_by_id(Uuid::from_u128(1)).await.unwrap().unwrap();
    assert_eq!((history.try_number, history.version), (1, 3), "{version}");
    let changes = Changes {
        runs: vec![Run {
            reason: Some("later".to_owned()),
            ..runs[0].clone()
        }],
        task_instances: vec![TaskInstance {
            launch: 2,
            ..task.clone()
        }],
        dags,
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let (run, tasks) = store.run(&run_key("a")).await.unwrap().unwrap();
    assert_eq!(run.reason.as_deref(), Some("later"), "{version}");
    assert_eq!((tasks[0].launch, tasks[0].version), (2, 5), "{version}");
}

#[tokio::test]
async fn a_file_of_each_earlier_version_keeps_its_rows() {
    for version in 1..=EARLIER.len() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        earlier_file(&path, version).await;
        let store = Store::open(&path).await.unwrap();
        check(&store, version).await;
    }
}

#[tokio::test]
async fn a_server_of_each_earlier_version_keeps_its_rows() {
    for version in 1..=EARLIER.len() {
        let Some(url) = databases::empty_database().await else {
            return;
        };
        earlier_database(&url, version).await;
        let store = Store::connect(&url).await.unwrap();
        check(&store, version).await;
    }
}
