//! What only a database in a file can show: restarts, and files that must not be opened.

use std::{error::Error as _, fs, path::Path};

use longshore_store::{Catalog, OpenError, RunFilter, RunStore, Store, TaskFilter};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, SqliteConnection,
    sqlite::SqliteConnectOptions,
};
use tempfile::TempDir;

use crate::samples::{run, runs, task, tasks};

/// The engine past the store.
async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    options.connect().await.unwrap()
}

async fn execute(path: &Path, sql: &str) {
    let mut connection = connect(path).await;
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

/// What the engine itself says of a database.
pub(crate) async fn integrity(path: &Path) -> String {
    let mut connection = connect(path).await;
    let row = sqlx::query("PRAGMA integrity_check")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    row.get(0)
}

/// A database with a few hundred rows, closed; its directory is removed when dropped.
async fn closed_database() -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = Store::open(&path).await.unwrap();
    store.commit(&runs([run("a")])).await.unwrap();
    let many = (0..300).map(|n| task("a", &format!("task{n}")));
    store.commit(&tasks(many)).await.unwrap();
    store.close().await;
    (directory, path)
}

/// The refusal, after a check that it changed nothing.
async fn refusal(path: &Path) -> OpenError {
    let before = fs::read(path).unwrap_or_default();
    let error = Store::open(path).await.unwrap_err();
    assert!(
        fs::read(path).unwrap_or_default() == before,
        "a refused file was changed"
    );
    error
}

#[tokio::test]
async fn a_restart_finds_everything_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("with ?#% and ü.db");
    let store = Store::open(&path).await.unwrap();
    store.commit(&runs([run("a")])).await.unwrap();
    let (id, before) = (store.scheduler_id().to_owned(), store.load().await.unwrap());
    store.close().await;
    let store = Store::open(&path).await.unwrap();
    assert_eq!(store.scheduler_id(), id);
    assert_eq!(store.load().await.unwrap(), before);
    assert!(path.is_file());
}

#[tokio::test]
async fn two_databases_have_two_ids() {
    let (one, other) = (
        Store::in_memory().await.unwrap(),
        Store::in_memory().await.unwrap(),
    );
    assert_ne!(one.scheduler_id(), other.scheduler_id());
    one.commit(&runs([run("a")])).await.unwrap();
    assert_eq!(other.load().await.unwrap().runs, []);
}

#[tokio::test]
async fn a_database_in_use_is_refused_until_it_is_closed() {
    let (_directory, path) = closed_database().await;
    let store = Store::open(&path).await.unwrap();
    let error = Store::open(&path).await.unwrap_err();
    let expected = format!(
        "database {} is in use by process {}; stop that one first, or use another data directory",
        path.display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    store.close().await;
    Store::open(&path).await.unwrap();
}

/// A list has as many rows as its page, and a document may have megabytes.
#[tokio::test]
async fn no_list_reads_a_document() {
    let (_directory, path) = closed_database().await;
    execute(&path, "UPDATE document SET body = 'no JSON'").await;
    let store = Store::open(&path).await.unwrap();
    let runs = store.runs(&RunFilter::default()).await.unwrap();
    let one = store.listed_run(&runs[0].key).await.unwrap();
    assert_eq!((runs.len(), one.as_ref()), (1, Some(&runs[0])));
    let tasks = store.task_instances(&TaskFilter::default()).await.unwrap();
    assert_eq!(tasks.len(), 300);
    assert!(store.newest_runs().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let (_directory, path) = closed_database().await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (999, 'later', TRUE, x'00', 0)";
    execute(&path, newer).await;
    let error = refusal(&path).await;
    let OpenError::Newer { found, known, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((*found, *known), (999, 8));
}

#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("theirs.db");
    execute(&path, "CREATE TABLE theirs (id INTEGER)").await;
    let error = refusal(&path).await;
    assert!(
        matches!(&error, OpenError::Foreign { table, .. } if table == "theirs"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("no database", |bytes| *bytes = b"kind: Pod\n".repeat(100)),
        ("half of it", |bytes| bytes.truncate(bytes.len() / 2)),
        ("zeroed pages", |bytes| bytes[8192..16384].fill(0)),
        ("garbage in all pages but the first", |bytes| {
            bytes[4096..].fill(0xa5)
        }),
    ];
    for (name, damage) in damages {
        let (_directory, path) = closed_database().await;
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let error = refusal(&path).await;
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "{name}: {error:?}"
        );
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    fs::write(&path, "").unwrap();
    Store::open(&path).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_takes_no_files_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    for path in ["missing/runs.db", "file/runs.db"] {
        let path = directory.path().join(path);
        let error = refusal(&path).await;
        assert!(matches!(error, OpenError::Directory { .. }), "{error:?}");
        assert!(error.source().is_some());
    }
}

#[tokio::test]
async fn a_directory_in_place_of_the_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    fs::create_dir(&path).unwrap();
    let error = refusal(&path).await;
    assert!(matches!(error, OpenError::Denied { .. }), "{error:?}");
}
