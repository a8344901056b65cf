//! What only a server can show: which logins succeed, what the server refuses, and what a lost connection does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use longshore_core::{Class, Classify as _};
use longshore_store::{Changes, OpenError, Run, RunStore, Store, StoreError, TaskInstance};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    databases::{self, connect, empty_database, execute},
    samples::{run, run_key, runs, task},
    server::{PASSWORD, Server},
};

/// Longer than anything here takes; the machine may be busy.
const LONG: Duration = Duration::from_secs(60);

async fn refusal(url: &str) -> OpenError {
    Store::connect(url).await.unwrap_err()
}

/// The message and its cause, as a log would have them.
fn shown(error: &OpenError) -> String {
    format!("{error} {error:?}")
}

#[tokio::test]
async fn a_restart_finds_everything_again_on_a_server() {
    let Some(url) = empty_database().await else {
        return;
    };
    let store = Store::connect(&url).await.unwrap();
    store.commit(&runs([run("a")])).await.unwrap();
    let (id, before) = (store.scheduler_id().to_owned(), store.load().await.unwrap());
    store.close().await;
    let store = Store::connect(&url).await.unwrap();
    assert_eq!(store.scheduler_id(), id);
    assert_eq!(store.load().await.unwrap(), before);
}

#[tokio::test]
async fn a_server_database_in_use_is_refused_until_it_is_closed() {
    let Some(url) = empty_database().await else {
        return;
    };
    let store = Store::connect(&url).await.unwrap();
    let error = refusal(&url).await;
    assert_eq!(error.class(), Class::Retry);
    let OpenError::InUse { holder, .. } = &error else {
        panic!("{error}");
    };
    assert!(holder.starts_with("session "), "{holder}");
    assert!(
        holder.ends_with(" of user admin, from this machine"),
        "{holder}"
    );
    store.commit(&runs([run("a")])).await.unwrap();
    store.close().await;
    Store::connect(&url).await.unwrap();
}

#[tokio::test]
async fn a_newer_or_foreign_server_database_is_refused() {
    let Some(url) = empty_database().await else {
        return;
    };
    execute(&url, "CREATE TABLE theirs (id BIGINT)").await;
    let error = refusal(&url).await;
    assert!(
        matches!(&error, OpenError::Foreign { table, .. } if table == "theirs"),
        "{error}"
    );
    execute(&url, "DROP TABLE theirs").await;
    Store::connect(&url).await.unwrap().close().await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (999, 'later', TRUE, ''::BYTEA, 0)";
    execute(&url, newer).await;
    let error = refusal(&url).await;
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 999,
                known: 8,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn who_is_not_let_in_is_told_without_the_password() {
    let Some(server) = databases::shared() else {
        return;
    };
    let cases = [
        (
            server.tcp_url("admin", "wr0ng", "postgres"),
            "password authentication failed for user \"admin\"",
        ),
        (
            server.tcp_url("nobody", "wr0ng", "postgres"),
            "password authentication failed for user \"nobody\"",
        ),
        (
            server.tcp_url("admin", PASSWORD, "missing"),
            "database \"missing\" does not exist",
        ),
    ];
    for (url, expected) in cases {
        let error = refusal(&url).await;
        let OpenError::Refused { why, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(&**why, expected);
        assert_eq!(error.class(), Class::Invalid);
        let shown = shown(&error);
        assert!(
            !shown.contains("wr0ng") && !shown.contains(PASSWORD),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_user_without_grants_is_told_so() {
    let (Some(url), Some(server)) = (empty_database().await, databases::shared()) else {
        return;
    };
    let name = format!("user_{}", Uuid::new_v4().simple());
    execute(
        &url,
        &format!("CREATE USER {name} PASSWORD 'p'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
    )
    .await;
    let database = url.split(['/', '?']).nth(3).unwrap();
    let error = refusal(&server.tcp_url(&name, "p", database)).await;
    let expected = "permission denied for schema public";
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_without_the_password() {
    let error = refusal("postgres://ann:s3cret@127.0.0.1:1/runs").await;
    assert_eq!(error.class(), Class::Retry);
    let shown = shown(&error);
    assert!(
        shown.starts_with("database postgres://ann@127.0.0.1:1/runs cannot be reached: "),
        "{shown}"
    );
    assert!(!shown.contains("s3cret"), "{shown}");
    let error = refusal("postgres://ann:s3cret@[::1").await;
    assert!(matches!(error, OpenError::Url { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
}

/// Holds a row of run `a`, so that a commit to it waits; changes it with `sql` once the commit waits.
async fn collide(url: &str, store: &Arc<Store>, sql: &str) -> Result<(), StoreError> {
    let mut other = connect(url).await;
    let mut transaction = other.begin().await.unwrap();
    transaction.execute(AssertSqlSafe(sql)).await.unwrap();
    let commit = tokio::spawn({
        let store = Arc::clone(store);
        async move {
            let known = Run {
                version: 1,
                reason: Some("ours".to_owned()),
                ..run("a")
            };
            store.commit(&runs([known])).await
        }
    });
    let mut watcher = connect(url).await;
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while sqlx::query_scalar::<_, i64>(waiting)
        .fetch_one(&mut watcher)
        .await
        .unwrap()
        == 0
    {
        tokio::task::yield_now().await;
    }
    transaction.commit().await.unwrap();
    timeout(LONG, commit).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_commit_that_collides_is_tried_again() {
    let Some(url) = empty_database().await else {
        return;
    };
    let store = Arc::new(Store::connect(&url).await.unwrap());
    store.commit(&runs([run("a")])).await.unwrap();
    collide(&url, &store, "UPDATE run SET end_date = NULL")
        .await
        .unwrap();
    let found = store.load().await.unwrap().runs.remove(0);
    assert_eq!((found.version, found.reason.as_deref()), (2, Some("ours")));
}

#[tokio::test]
async fn a_commit_that_collides_with_another_version_is_a_conflict() {
    let Some(url) = empty_database().await else {
        return;
    };
    let store = Arc::new(Store::connect(&url).await.unwrap());
    store.commit(&runs([run("a")])).await.unwrap();
    let refused = collide(
        &url,
        &store,
        "UPDATE run SET version = 2, reason = 'theirs'",
    )
    .await;
    match refused {
        Err(StoreError::Conflict { what }) => assert_eq!(what, "run sales/a"),
        other => panic!("{other:?}"),
    }
    let found = store.load().await.unwrap().runs.remove(0);
    assert_eq!(found.reason.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn of_many_writers_of_one_version_exactly_one_wins_on_a_server() {
    let Some(url) = empty_database().await else {
        return;
    };
    let store = Store::connect(&url).await.unwrap();
    store.commit(&runs([run("a")])).await.unwrap();
    let given: Vec<Changes> = (0..50)
        .map(|n: i32| {
            runs([Run {
                version: 1,
                reason: Some(n.to_string()),
                ..run("a")
            }])
        })
        .collect();
    let answers = join_all(given.iter().map(|changes| store.commit(changes))).await;
    let winners: Vec<_> = (0..50).filter(|&n| answers[n].is_ok()).collect();
    assert_eq!(winners.len(), 1);
    let found = store.load().await.unwrap().runs.remove(0);
    assert_eq!(
        (found.version, found.reason),
        (2, Some(winners[0].to_string()))
    );
}

/// Ends all other sessions of the database.
const END_SESSIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                            WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Tries until it is not refused for a lost connection.
async fn patiently<T>(
    mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    timeout(LONG, async {
        loop {
            match ask().await {
                Err(StoreError::Unavailable { .. }) => tokio::task::yield_now().await,
                done => return done,
            }
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_lost_connection_is_told_and_made_again() {
    let Some(url) = empty_database().await else {
        return;
    };
    let store = Store::connect(&url).await.unwrap();
    store.commit(&runs([run("a")])).await.unwrap();
    execute(&url, END_SESSIONS).await;
    let lost = store.commit(&runs([run("b")])).await.unwrap_err();
    assert_eq!(lost.class(), Class::Retry, "{lost}");
    let found = patiently(async || store.load().await).await.unwrap();
    assert_eq!(found.runs.len(), 1);
    patiently(async || store.commit(&runs([run("b")])).await)
        .await
        .unwrap();
    assert_eq!(store.load().await.unwrap().runs.len(), 2);
    // The lock is held again.
    let error = refusal(&url).await;
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    store.close().await;
}

#[tokio::test]
async fn a_store_whose_database_was_taken_over_stops() {
    let Some(url) = empty_database().await else {
        return;
    };
    let first = Store::connect(&url).await.unwrap();
    first.commit(&runs([run("a")])).await.unwrap();
    execute(&url, END_SESSIONS).await;
    let second = Store::connect(&url).await.unwrap();
    second.commit(&runs([run("b")])).await.unwrap();
    first.commit(&runs([run("c")])).await.unwrap_err();
    second.close().await;
    let mut refused = first.commit(&runs([run("c")])).await.unwrap_err();
    let stopped = "another process took over";
    timeout(LONG, async {
        while !refused.to_string().contains(stopped) {
            tokio::task::yield_now().await;
            refused = first.commit(&runs([run("c")])).await.unwrap_err();
        }
    })
    .await
    .unwrap();
    let refused = first.load().await.unwrap_err();
    assert!(refused.to_string().contains(stopped), "{refused}");
    first.close().await;
    let third = Store::connect(&url).await.unwrap();
    assert_eq!(third.load().await.unwrap().runs.len(), 2);
}

#[tokio::test]
async fn a_store_can_be_closed_while_its_server_is_gone() {
    let Some(mut server) = Server::start(false) else {
        return;
    };
    let store = Store::connect(&server.url("postgres")).await.unwrap();
    server.kill();
    // A session may outlive its server for a moment, and takes what comes.
    let refused = async {
        let mut n = 0;
        while store
            .commit(&runs([run(&format!("run-{n}"))]))
            .await
            .is_ok()
        {
            n += 1;
        }
        loop {
            if let Err(refused) = store.load().await {
                break refused;
            }
        }
    };
    let refused = timeout(LONG, refused).await.unwrap();
    assert_eq!(refused.class(), Class::Retry, "{refused}");
    timeout(LONG, store.close()).await.unwrap();
}

const LANES: [&str; 4] = ["lane-0", "lane-1", "lane-2", "lane-3"];
const N_KILLS: usize = 5;

/// A commit of one lane: its run and three task instances, all at this version.
fn next(n_lane: usize, version: i64) -> Changes {
    let lane = LANES[n_lane];
    let task_instance = |n: u128| TaskInstance {
        id: Uuid::from_u128((n_lane as u128 + 1) * 100 + n),
        version,
        ..task(lane, &n.to_string())
    };
    Changes {
        task_instances: (0..3).map(task_instance).collect(),
        ..runs([Run {
            version,
            ..run(lane)
        }])
    }
}

/// Commits up to a version, as a scheduler does: after an answer that tells nothing it reads again.
async fn commit_up_to(
    store: &Store,
    n_lane: usize,
    last: i64,
    acknowledged: &tokio::sync::watch::Sender<u64>,
) {
    let mut version = 0;
    while version < last {
        match store.commit(&next(n_lane, version)).await {
            Ok(()) => {
                version += 1;
                acknowledged.send_modify(|n| *n += 1);
            }
            Err(StoreError::Unavailable { .. }) => {
                let key = run_key(LANES[n_lane]);
                let found = patiently(async || store.run(&key).await).await.unwrap();
                let found = found.map_or(0, |(run, tasks)| {
                    assert!(
                        tasks.iter().all(|task| task.version == run.version),
                        "{tasks:#?}"
                    );
                    assert_eq!(tasks.len(), 3);
                    run.version
                });
                // The commit whose answer was lost happened or not; nothing else did.
                assert!(
                    found == version || found == version + 1,
                    "{key}: {version} was acknowledged, {found} is there"
                );
                version = found;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(mut server) = Server::start(true) else {
        return;
    };
    let url = server.url("postgres");
    let store = Store::connect(&url).await.unwrap();
    let (acknowledged, mut seen) = tokio::sync::watch::channel(0);
    let last = 300;
    let lanes = (0..LANES.len()).map(|n_lane| commit_up_to(&store, n_lane, last, &acknowledged));
    let killer = async {
        let mut at_least = 20;
        for _ in 0..N_KILLS {
            seen.wait_for(|n| *n >= at_least).await.unwrap();
            server = tokio::task::spawn_blocking(move || {
                server.kill();
                server.start_again();
                server
            })
            .await
            .unwrap();
            at_least = *seen.borrow() + 20 + (Uuid::new_v4().as_u128() % 150) as u64;
        }
        server
    };
    let (_, _server) = timeout(LONG, async { tokio::join!(join_all(lanes), killer) })
        .await
        .unwrap();
    let found = store.load().await.unwrap();
    let versions: BTreeMap<_, _> = found
        .runs
        .iter()
        .map(|run| (run.key.run_id.as_str(), run.version))
        .collect();
    assert_eq!(versions, LANES.map(|lane| (lane, last)).into());
    store.close().await;
    // Another scheduler finds the same.
    let store = Store::connect(&url).await.unwrap();
    assert_eq!(store.load().await.unwrap(), found);
}
