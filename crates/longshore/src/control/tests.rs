//! The service over a database in memory; what needs a cluster is tested where there is one.

use longshore_store::RunStore as _;

use super::*;
use crate::progress::fixtures::{Adjectives, run_change, task_change};

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_each_other_without_gap_or_overlap() {
    let service = service().await;
    for n in 0..5 {
        let trigger = objects::Trigger {
            run_id: Some(format!("r{n}")),
            logical_date: Some(format!("2026-11-0{}T00:00:00Z", n + 1).parse().unwrap()),
            ..objects::Trigger::default()
        };
        service.trigger("etl", trigger).await.unwrap();
    }
    for (states, n_expected) in [(&[][..], 5), (&["queued", "running"], 5), (&["failed"], 0)] {
        for limit in [1, 2, 4, 5, 6] {
            let mut query = RunQuery {
                states: states.iter().map(|state| (*state).to_owned()).collect(),
                limit,
                ..RunQuery::default()
            };
            let mut seen = Vec::new();
            loop {
                let RunPage { runs, has_more } = service.runs(&query).await.unwrap();
                assert!(runs.len() <= limit);
                seen.extend(runs.iter().map(|run| run.run_id.clone()));
                if !has_more {
                    break;
                }
                query.after = runs.last().map(|last| RunName {
                    dag_id: last.dag_id.clone(),
                    run_id: last.run_id.clone(),
                });
            }
            let expected: Vec<String> = (0..n_expected).rev().map(|n| format!("r{n}")).collect();
            assert_eq!(seen, expected, "{states:?}, {limit} a page");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_no_dag_is_told_with_its_reason() {
    let service = service().await;
    let errors = service.import_errors().await.unwrap();
    let [error] = errors.as_slice() else {
        panic!("expected one file that is no DAG, found {errors:?}");
    };
    assert_eq!((error.file.as_str(), &error.dag_id), ("broken.yaml", &None));
    assert!(error.message.contains("dag_id"), "{}", error.message);
}

#[tokio::test]
async fn a_list_of_dags_has_their_number_of_tasks_and_a_dag_has_its_tasks() {
    let service = service().await;
    let listed = service.dags().await.unwrap().remove(0);
    assert_eq!((listed.task_count, listed.tasks.as_ref()), (1, None));
    let shown = service.dag("etl").await.unwrap();
    let tasks = shown.tasks.clone().unwrap();
    assert_eq!(tasks[0].task_id, "extract");
    let without = objects::Dag {
        tasks: None,
        ..shown
    };
    assert_eq!(without, listed);
}

#[tokio::test]
async fn a_misspelt_dag_is_recognised() {
    let service = service().await;
    for (given, expected) in [
        ("elt", Some("etl")),
        ("etl2", Some("etl")),
        ("report", None),
    ] {
        let unknown = service.dag(given).await.unwrap_err();
        let ControlError::UnknownDag { nearest, .. } = unknown else {
            panic!("{unknown:?}");
        };
        assert_eq!(nearest.as_deref(), expected, "{given}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dag_whose_file_was_removed_is_not_triggered() {
    let files = folder();
    let service = service_of(files.path()).await;
    std::fs::remove_file(files.path().join("etl.yaml")).unwrap();
    while service.known("etl").unwrap().file.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = service.trigger("etl", objects::Trigger::default()).await;
    let expected = "no run can be made of the DAG etl: its file was removed from the DAG folder";
    assert!(
        matches!(&refused, Err(ControlError::Invalid(why)) if why == expected),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_feed_tells_what_the_scheduler_tells_in_the_same_words() {
    use longshore_store::{RunState, TaskState};

    let changes = [
        run_change(0, None, RunState::Queued, None),
        task_change(
            5,
            "extract",
            Some(TaskState::Running),
            Some(TaskState::UpForRetry),
        )
        .in_try(2)
        .with_pod("etl-extract-x1")
        .because_it_failed(),
    ];
    let (tell, told) = broadcast::channel(8);
    let feed = Feed::default();
    let mut reader = feed.reader(None);
    for change in &changes {
        tell.send(change.clone()).unwrap();
    }
    drop(tell);
    publish_changes(told, feed).await;
    for change in &changes {
        let Some(longshore_console::feed::Next::Change(_, published)) = reader.next().await else {
            panic!("expected a change");
        };
        assert_eq!(
            serde_json::to_value(&*published).unwrap(),
            serde_json::to_value(to_objects::change(change)).unwrap()
        );
    }
}

/// A DAG, and a file that is none.
fn folder() -> tempfile::TempDir {
    let text = "dag_id: etl\ntasks:\n  extract:\n    command: [\"true\"]\n";
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("etl.yaml"), text).unwrap();
    std::fs::write(files.path().join("broken.yaml"), "dag_id: 7\n").unwrap();
    files
}

/// A service of a folder that is gone after the first look.
async fn service() -> ServiceControl {
    service_of(folder().path()).await
}

/// A service on a cluster without nodes: pods are made and never run.
async fn service_of(files: &std::path::Path) -> ServiceControl {
    let client = longshore_cluster::Cluster::in_memory().client();
    let store = Arc::new(longshore_store::Store::in_memory().await.unwrap());
    let clock = Arc::new(longshore_kit::SystemClock);
    let folder = std::path::Path::new("/nonexistent/logs");
    let directory = longshore_dags::logs::LogDirectory::new(folder);
    let dags = Dags::start(
        client.clone(),
        store.clone(),
        Arc::new(longshore_dags::logs::NoLogArchive),
        clock.clone(),
        crate::engine::scheduling::config(
            4,
            "default",
            store.scheduler_id(),
            longshore_kit::Metrics::new(),
        ),
    );
    let dags = dags.await.unwrap();
    dags.follow(files).unwrap();
    dags.first_look().await;
    ServiceControl {
        dags: Arc::new(dags),
        store,
        logs: Logs {
            directory,
            pods: kube::Api::namespaced(client, "default"),
        },
        feed: Feed::default(),
        clock,
        metrics: Metrics::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_triggered_seen_and_cancelled() {
    let service = service().await;
    let trigger = objects::Trigger {
        run_id: Some("r1".to_owned()),
        ..objects::Trigger::default()
    };
    let run = service.trigger("etl", trigger.clone()).await.unwrap();
    assert_eq!(
        (run.run_id.as_str(), run.run_type.as_str()),
        ("r1", "manual")
    );
    let name = "etl/r1".parse().unwrap();
    let again = service.trigger("etl", trigger).await.unwrap_err();
    assert!(matches!(again, ControlError::RunExists(run) if run == name));

    let last = service.dags().await.unwrap()[0].last_run.clone().unwrap();
    assert_eq!(last.run_id, "r1");
    assert_eq!(service.tasks(&name).await.unwrap()[0].task_id, "extract");
    let no_such_try = LogQuery {
        attempt: Some(9),
        ..LogQuery::default()
    };
    let task = "etl/r1/extract".parse().unwrap();
    let log = service.logs(&task, no_such_try).await;
    let error = log.err().unwrap();
    assert!(matches!(error, ControlError::NoLog { .. }), "{error:?}");

    let cancelled = service.cancel(&name).await.unwrap();
    assert_eq!(
        (cancelled.state.as_str(), cancelled.reason.as_deref()),
        ("failed", Some("cancelled"))
    );
    let again = service.cancel(&name).await.unwrap_err();
    assert!(matches!(again, ControlError::WrongState { .. }));
    let unknown = service
        .task(&"etl/r1/nope".parse().unwrap())
        .await
        .unwrap_err();
    assert!(matches!(unknown, ControlError::UnknownTask(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_about_an_instant_to_come_says_so_with_its_tasks() {
    let service = service().await;
    let date = "2100-01-01T00:00:00Z".parse().unwrap();
    let trigger = objects::Trigger {
        run_id: Some("later".to_owned()),
        logical_date: Some(date),
        ..objects::Trigger::default()
    };
    let run = service.trigger("etl", trigger).await.unwrap();
    let query = RunQuery {
        limit: 1,
        ..RunQuery::default()
    };
    let listed = service.runs(&query).await.unwrap().runs.remove(0);
    assert_eq!(listed, run);
    assert_eq!((run.state.as_str(), run.not_before), ("queued", Some(date)));
    let why = "it begins at its logical date, 2100-01-01T00:00:00Z";
    assert_eq!(run.blocked.as_deref(), Some(why));
    let task = service.task(&"etl/later/extract".parse().unwrap()).await;
    let blocked = task.unwrap().blocked.unwrap();
    assert_eq!(blocked, format!("run etl/later is queued: {why}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_a_file_is_not_changed_by_request() {
    let files = folder();
    std::fs::write(files.path().join("pools.yaml"), "db: {slots: 2}").unwrap();
    let service = service_of(files.path()).await;
    let has_pool = async || {
        service
            .pools()
            .await
            .unwrap()
            .iter()
            .any(|pool| pool.name == "db")
    };
    let deadline = Duration::from_secs(30);
    let made = async {
        while !has_pool().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(deadline, made).await.unwrap();
    let larger = objects::Pool {
        name: "db".to_owned(),
        slots: 9,
        file: None,
    };
    let error = service.set_pool(larger).await.unwrap_err();
    assert!(
        matches!(error, ControlError::PoolInFile { .. }),
        "{error:?}"
    );
    let error = service.delete_pool("db").await.unwrap_err();
    assert!(
        matches!(error, ControlError::PoolInFile { .. }),
        "{error:?}"
    );
    let listed = service.pools().await.unwrap().remove(0);
    assert_eq!(
        (listed.slots, listed.file.as_deref()),
        (2, Some("pools.yaml"))
    );
}

fn ids(tasks: &[objects::Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.task_id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_is_retried_and_a_task_cleared() {
    let service = service().await;
    let trigger = objects::Trigger {
        run_id: Some("r1".to_owned()),
        ..objects::Trigger::default()
    };
    service.trigger("etl", trigger).await.unwrap();
    let name: RunName = "etl/r1".parse().unwrap();
    let error = service.retry(&name).await.unwrap_err();
    assert!(
        matches!(error, ControlError::WrongState { .. }),
        "{error:?}"
    );
    service.cancel(&name).await.unwrap();
    assert_eq!(ids(&service.retry(&name).await.unwrap()), ["extract"]);
    let run = service.run(&name).await.unwrap();
    assert!(!run.is_finished() && run.reason.is_none(), "{run:?}");

    service.cancel(&name).await.unwrap();
    let clear = objects::Clear { downstream: true };
    let task = "etl/r1/extract".parse().unwrap();
    assert_eq!(
        ids(&service.clear(&task, clear.clone()).await.unwrap()),
        ["extract"]
    );
    let error = service
        .clear(&"etl/r1/nope".parse().unwrap(), clear)
        .await
        .unwrap_err();
    assert!(matches!(error, ControlError::UnknownTask(_)), "{error:?}");
    let error = service.retry(&"etl/r9".parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, ControlError::UnknownRun(_)), "{error:?}");
}
