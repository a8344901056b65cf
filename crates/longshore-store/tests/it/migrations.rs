//! Databases of each earlier version are brought up to date with their rows, on both engines.

use std::path::Path;

use jiff::Timestamp;
use longshore_store::{
    Changes, Dag, Pool, PoolFile, Run, RunDetails, RunState, RunStore, RunType, Snapshot, Store,
    TaskInstance, TaskState,
};
use sha2::{Digest as _, Sha256};
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

const EARLIER: [(&str, &str); 7] = earlier!(
    "0001_runs.sql",
    "0002_schedules.sql",
    "0003_pools.sql",
    "0004_result_notes.sql",
    "0005_airflow.sql",
    "0006_told.sql",
    "0007_heartbeats.sql"
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

/// The version before DAGs from Airflow, and what it wrote beside that: every column that it had.
const BEFORE_AIRFLOW: usize = 4;

const ROWS_BEFORE_AIRFLOW: &str = "
    UPDATE pool SET file = 'pools.yaml', slots_before = 3 WHERE name = 'narrow';
    UPDATE dag SET file = 'sales.yaml', next_run_after = '2026-11-22T00:00:00Z', next_logical_date = '2026-11-21T00:00:00Z',
        next_interval_start = '2026-11-21T00:00:00Z', next_interval_end = '2026-11-22T00:00:00Z',
        last_interval_start = '2026-11-20T00:00:00Z', last_interval_end = '2026-11-21T00:00:00Z', error = 'a mistake',
        version = 6;
    INSERT INTO run (dag_id, run_id, run_type, state, logical_date, queued_at, start_date, end_date, conf, dag_hash,
        is_prepared, reason, version)
        VALUES ('sales', 'b', 'scheduled', 'failed', '2026-11-20T00:00:00Z', '2026-11-21T00:00:00Z',
        '2026-11-21T00:00:01Z', '2026-11-21T00:00:09Z', '{}', 'x', 1, 'timed_out', 7);
    INSERT INTO task_instance (id, dag_id, run_id, task_id, map_index, is_archived, state, try_number, max_tries,
        launch, launch_failures, pool, pool_slots, priority_weight, scheduled_at, queued_at, start_date, end_date,
        pod_name, pod_uid, failure, result, result_note, version) VALUES
        ('00000000-0000-0000-0000-000000000003', 'sales', 'b', 'load', -1, 0, 'failed', 1, 1, 2, 1, 'narrow', 1, 1,
        '2026-11-21T00:00:02Z', '2026-11-21T00:00:03Z', '2026-11-21T00:00:04Z', '2026-11-21T00:00:05Z', 'pod', 'uid',
        '{\"message\":\"it broke\",\"exit_code\":1}', '{\"n\":1}', 'too long', 8)";

/// The SHA-256 of each migration that released databases have gone through, as its first 16 digits, for both engines.
/// sqlx refuses a database whose migrations were others.
const RELEASED: [[&str; 2]; BEFORE_AIRFLOW] = [
    ["88090a3f280f1484", "f37896faf4150bbc"],
    ["ca1c4891861e68be", "8aeb1f64fa8c3606"],
    ["8bd1f0b621e9ffe0", "06c492e046b51b35"],
    ["ddd858de278d820f", "bb97375925351e38"],
];

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

/// What a database of this version has.
fn rows_of(version: usize) -> String {
    let more = [";", ROWS_BEFORE_AIRFLOW].concat();
    let more = if version == BEFORE_AIRFLOW { &more } else { "" };
    format!("{ROWS}{more}")
}

async fn earlier_file(path: &Path, version: usize) {
    let options = SqliteConnectOptions::new().filename(path);
    let mut session: SqliteConnection = options.create_if_missing(true).connect().await.unwrap();
    migrator(version, true).run(&mut session).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(rows_of(version)));
    rows.execute(&mut session).await.unwrap();
    session.close().await.unwrap();
}

async fn earlier_database(url: &str, version: usize) {
    let mut session: PgConnection = databases::connect(url).await;
    migrator(version, false).run(&mut session).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(rows_of(version)));
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
    let is_new = |pool: &Pool| pool.include_deferred || pool.file.is_some();
    assert!(
        version == BEFORE_AIRFLOW || !pools.iter().any(is_new),
        "{version}: {pools:?}"
    );
    assert!(dag_versions.is_empty() && bundles.is_empty() && import_errors.is_empty());
    assert!(dags[0].is_paused, "{version}");
    assert_eq!(runs[0].details, RunDetails::default(), "{version}");
    assert_eq!(runs[0].version, 5, "{version}");
    if version == BEFORE_AIRFLOW {
        check_rows_before_airflow(store, &pools, &dags[0]).await;
    } else {
        assert_eq!((dags[0].version, dags[0].last_interval), (1, None));
    }
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

async fn check_rows_before_airflow(store: &Store, pools: &[Pool], dag: &Dag) {
    let instant = |text: &str| -> Timestamp { text.parse().unwrap() };
    let [before, day, after] =
        ["20", "21", "22"].map(|day| instant(&format!("2026-11-{day}T00:00:00Z")));
    let file = PoolFile {
        name: "pools.yaml".to_owned(),
        slots_before: Some(3),
    };
    let narrow = pools.iter().find(|pool| pool.name == "narrow").unwrap();
    assert_eq!(
        (narrow.slots, narrow.file.as_ref(), narrow.include_deferred),
        (2, Some(&file), false)
    );
    assert_eq!(dag.file.as_deref(), Some("sales.yaml"));
    assert_eq!(dag.error.as_deref(), Some("a mistake"));
    assert_eq!((dag.last_interval, dag.version), (Some((before, day)), 6));
    let next = dag.next_run.as_ref().unwrap();
    assert_eq!(
        (next.logical_date, next.data_interval),
        (Some(day), Some((day, after)))
    );
    let (run, tasks) = store.run(&run_key("b")).await.unwrap().unwrap();
    assert_eq!(
        (run.run_type, run.state),
        (RunType::Scheduled, RunState::Failed)
    );
    assert_eq!((run.logical_date, run.version), (Some(before), 7));
    assert_eq!(run.reason.as_deref(), Some("timed_out"));
    assert_eq!(run.details, RunDetails::default());
    let task = &tasks[0];
    assert_eq!((task.state, task.launch), (Some(TaskState::Failed), 2));
    assert_eq!(task.end_date, Some(instant("2026-11-21T00:00:05Z")));
    assert_eq!(task.failure.as_ref().unwrap().exit_code, Some(1));
    assert_eq!(task.result, Some(serde_json::json!({"n": 1})));
    assert_eq!(task.result_note.as_deref(), Some("too long"));
    assert_eq!((&task.airflow, task.version), (&None, 8));
}

#[test]
fn no_migration_of_a_released_database_changes() {
    for (released, (sqlite, postgres)) in RELEASED.iter().zip(EARLIER) {
        let digest = |sql: &str| {
            let hash = Sha256::digest(sql);
            hash.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let found: [String; 2] = [sqlite, postgres].map(digest);
        assert_eq!(found.map(|hash| hash[..16].to_owned()), *released);
    }
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
