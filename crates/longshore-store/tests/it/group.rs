//! Commits that wait together share one transaction, and do not harm each other.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use longshore_store::{
    Catalog as _, Changes, EventFilter, FromTry, Run, RunFilter, RunStore, Store, StoreError,
    TaskInstance, TellError, ToldStore as _,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    samples::{run, runs, task, tasks},
    told,
};

#[tokio::test]
async fn waiting_commits_share_a_transaction() {
    let store = Store::in_memory().await.unwrap();
    let given: Vec<Changes> = (0..200).map(|n| runs([run(&n.to_string())])).collect();
    let answers = join_all(given.iter().map(|changes| store.commit(changes))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let counters = store.counters();
    assert_eq!(counters.n_requests, 200);
    assert!(counters.n_transactions <= 3, "{counters:?}");
    assert_eq!(store.load().await.unwrap().runs.len(), 200);
}

#[tokio::test]
async fn a_conflict_refuses_its_own_commit_only() {
    let store = Store::in_memory().await.unwrap();
    // Every third commit is stale: of its two rows, the second conflicts.
    let given: Vec<Changes> = (0..99)
        .map(|n| {
            let stale = Run {
                version: i64::from(n % 3 == 0),
                ..run(&format!("{n}"))
            };
            runs([run(&format!("of-{n}")), stale])
        })
        .collect();
    let answers = join_all(given.iter().map(|changes| store.commit(changes))).await;
    for (n, answer) in answers.iter().enumerate() {
        let is_conflict = matches!(answer, Err(StoreError::Conflict { .. }));
        assert_eq!(is_conflict, n % 3 == 0, "{n}: {answer:?}");
    }
    let n_rows = store.runs(&RunFilter::default()).await.unwrap().len();
    assert_eq!(n_rows, 66 * 2);
    assert!(
        store.counters().n_transactions <= 3,
        "{:?}",
        store.counters()
    );
}

#[tokio::test]
async fn what_is_told_at_the_same_time_shares_a_transaction_and_is_fenced_alone() {
    let store = Store::in_memory().await.unwrap();
    let worker = task("a", "load");
    let changes = Changes {
        task_instances: vec![worker.clone()],
        ..runs([run("a")])
    };
    store.commit(&changes).await.unwrap();
    let before = store.counters();
    let event = |n: usize| {
        let id = if n.is_multiple_of(3) {
            Uuid::nil()
        } else {
            worker.id
        };
        store.tell(id, FromTry::Shared(told::event(&n.to_string())))
    };
    let answers = join_all((0..99).map(event)).await;
    for (n, answer) in answers.iter().enumerate() {
        let is_unknown = matches!(answer, Err(TellError::Unknown { .. }));
        assert_eq!(is_unknown, n % 3 == 0, "{n}: {answer:?}");
    }
    let after = store.counters();
    assert_eq!(after.n_requests - before.n_requests, 99);
    let n_transactions = after.n_transactions - before.n_transactions;
    assert!(n_transactions <= 3, "{n_transactions}");
    let all = EventFilter {
        limit: 1_000,
        ..EventFilter::default()
    };
    let found = store.events(&all).await.unwrap();
    let ids: Vec<i64> = found.iter().map(|it| it.id).collect();
    assert_eq!(ids, (1..=66).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn of_many_writers_of_one_version_exactly_one_wins() {
    let store = Store::in_memory().await.unwrap();
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

/// Drops callers after every number of polls that it can take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_harms_nobody_and_its_commit_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path().join("runs.db")).await.unwrap());
    let both = |n: u32| Changes {
        task_instances: vec![task(&format!("gone-{n}"), "load")],
        ..runs([run(&format!("gone-{n}"))])
    };
    let mut n_kept = 0;
    for n in 0..60_u32 {
        let leaver = {
            let (store, changes) = (Arc::clone(&store), both(n));
            tokio::spawn(async move { store.commit(&changes).await })
        };
        let stayer = {
            let (store, changes) = (Arc::clone(&store), runs([run(&format!("stays-{n}"))]));
            tokio::spawn(async move { store.commit(&changes).await })
        };
        for _ in 0..n % 6 {
            tokio::task::yield_now().await;
        }
        leaver.abort();
        stayer.await.unwrap().unwrap();
        // A later commit is answered after all earlier ones: whatever the leaver started is over.
        store
            .commit(&runs([run(&format!("after-{n}"))]))
            .await
            .unwrap();
        let kept = store.run(&run(&format!("gone-{n}")).key).await.unwrap();
        if let Some((_, its_tasks)) = kept {
            assert_eq!(its_tasks.len(), 1, "{n}");
            n_kept += 1;
        }
    }
    let n_rows = store.runs(&RunFilter::default()).await.unwrap().len();
    assert_eq!(n_rows, 120 + n_kept);
}

#[tokio::test(start_paused = true)]
async fn the_store_takes_no_virtual_time() {
    let store = Store::in_memory().await.unwrap();
    let started = Instant::now();
    // A timer that an idle runtime would jump to.
    let timer = tokio::spawn(tokio::time::sleep(Duration::from_secs(3600)));
    store.commit(&runs([run("a")])).await.unwrap();
    for version in 0..30 {
        let given = TaskInstance {
            version,
            ..task("a", "load")
        };
        store.commit(&tasks([given])).await.unwrap();
        assert_eq!(
            store.load().await.unwrap().task_instances[0].version,
            version + 1
        );
    }
    store.close().await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(!timer.is_finished());
}

#[tokio::test]
async fn a_closed_store_answers_that_it_is_closed() {
    let store = Store::in_memory().await.unwrap();
    store.close().await;
    store.close().await;
    let expected = "failed: the store is closed";
    let refused = store.commit(&runs([run("a")])).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("the database commit {expected}")
    );
    let refused = store.load().await.unwrap_err();
    assert_eq!(refused.to_string(), format!("the database read {expected}"));
}

#[tokio::test]
async fn closing_waits_for_the_commits_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = Store::open(&path).await.unwrap();
    let changes = runs([run("a")]);
    let (answer, ()) = tokio::join!(store.commit(&changes), store.close());
    answer.unwrap();
    let store = Store::open(&path).await.unwrap();
    assert_eq!(store.load().await.unwrap().runs.len(), 1);
}
