//! What workers ask, on every engine.

use longshore_store::{
    Changes, FileKey, FromTry, ImportError, InstancesWanted, PreviousInstance, Run, RunState,
    RunsWanted, Store, TaskInstance, TaskState, XCom, XComKey,
};
use uuid::Uuid;

use crate::{
    samples::{archive, at, next_try, run, run_key, runs, stored, task, tasks},
    stores::{AnyStore, on_every_engine},
};

on_every_engine!(
    an_id_is_that_of_a_present_try_or_of_an_earlier_one,
    earlier_runs_are_those_before_an_instant,
    runs_are_counted_by_what_is_wanted,
    task_instances_are_counted_by_what_is_wanted,
    the_previous_instance_is_the_latest_one_before,
    values_of_earlier_runs_are_found,
    a_file_without_a_dag_is_known,
);

/// Runs about the seconds 1 to 3, the second of which failed, and one about none.
async fn four_runs(store: &dyn AnyStore) {
    let about = |run_id: &str, second, state| Run {
        logical_date: Some(at(second)),
        state,
        ..run(run_id)
    };
    let changes = Changes {
        task_instances: vec![
            with_state("r1", Some(TaskState::Success)),
            with_state("r2", Some(TaskState::Failed)),
            with_state("r3", None),
            with_state("none", Some(TaskState::Success)),
        ],
        ..runs([
            about("r1", 1, RunState::Success),
            about("r2", 2, RunState::Failed),
            about("r3", 3, RunState::Running),
            run("none"),
        ])
    };
    store.commit(&changes).await.unwrap();
}

fn with_state(run_id: &str, state: Option<TaskState>) -> TaskInstance {
    TaskInstance {
        state,
        ..task(run_id, "load")
    }
}

async fn an_id_is_that_of_a_present_try_or_of_an_earlier_one(store: &dyn AnyStore) {
    let first = TaskInstance {
        state: Some(TaskState::Running),
        ..task("a", "load")
    };
    let changes = Changes {
        task_instances: vec![first.clone()],
        ..runs([run("a")])
    };
    store.commit(&changes).await.unwrap();
    let known = store.known_try(first.id).await.unwrap().unwrap();
    assert_eq!((known.key, known.state), (first.key.clone(), first.state));
    assert_eq!((known.process, known.is_archived), (None, false));

    let ended = stored(&first);
    let second = next_try(&ended);
    let changes = Changes {
        archived: archive([ended]),
        ..tasks([second.clone()])
    };
    store.commit(&changes).await.unwrap();
    let known = store.known_try(first.id).await.unwrap().unwrap();
    assert!(known.is_archived);
    let known = store.known_try(second.id).await.unwrap().unwrap();
    assert!(!known.is_archived);
    assert_eq!(store.known_try(Uuid::nil()).await.unwrap(), None);
}

async fn earlier_runs_are_those_before_an_instant(store: &dyn AnyStore) {
    four_runs(store).await;
    for (second, state, expected) in [
        (3, None, Some("r2")),
        (9, None, Some("r3")),
        (3, Some(RunState::Success), Some("r1")),
        (1, None, None),
        (9, Some(RunState::Queued), None),
    ] {
        let found = store.previous_run("sales", at(second), state).await;
        let found = found.unwrap().map(|run| run.key.run_id);
        assert_eq!(found.as_deref(), expected, "{second} {state:?}");
    }
    let other = store.previous_run("other", at(9), None).await.unwrap();
    assert_eq!(other, None);
    let row = store.run_row(&run_key("r2")).await.unwrap().unwrap();
    assert_eq!((row.key, row.state), (run_key("r2"), RunState::Failed));
    assert_eq!(store.run_row(&run_key("r9")).await.unwrap(), None);
}

fn text(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|it| (*it).to_owned()).collect()
}

async fn runs_are_counted_by_what_is_wanted(store: &dyn AnyStore) {
    four_runs(store).await;
    let all = || RunsWanted {
        dag_id: "sales".to_owned(),
        ..RunsWanted::default()
    };
    for (wanted, expected) in [
        (all(), 4),
        (
            RunsWanted {
                states: text(&["success", "nonsense"]),
                ..all()
            },
            1,
        ),
        (
            RunsWanted {
                run_ids: text(&["r1", "none"]),
                ..all()
            },
            2,
        ),
        (
            RunsWanted {
                logical_dates: vec![at(1), at(3)],
                ..all()
            },
            2,
        ),
        (RunsWanted::default(), 0),
    ] {
        let n = store.count_wanted_runs(&wanted).await.unwrap();
        assert_eq!(n, expected, "{wanted:?}");
    }
}

fn instances_of_sales() -> InstancesWanted {
    InstancesWanted {
        dag_id: "sales".to_owned(),
        ..InstancesWanted::default()
    }
}

async fn task_instances_are_counted_by_what_is_wanted(store: &dyn AnyStore) {
    four_runs(store).await;
    let all = instances_of_sales;
    for (wanted, expected) in [
        (all(), 4),
        (
            InstancesWanted {
                states: text(&["null", "failed"]),
                ..all()
            },
            2,
        ),
        (
            InstancesWanted {
                states: text(&["success"]),
                ..all()
            },
            2,
        ),
        (
            InstancesWanted {
                map_index: Some(0),
                ..all()
            },
            0,
        ),
        (
            InstancesWanted {
                map_index: Some(-1),
                ..all()
            },
            4,
        ),
        (
            InstancesWanted {
                task_ids: text(&["other"]),
                ..all()
            },
            0,
        ),
        (
            InstancesWanted {
                logical_dates: vec![at(2)],
                ..all()
            },
            1,
        ),
        (
            InstancesWanted {
                run_ids: text(&["r3"]),
                ..all()
            },
            1,
        ),
    ] {
        let n = store.count_wanted_instances(&wanted).await.unwrap();
        assert_eq!(n, expected, "{wanted:?}");
        let states = store.instance_states(&wanted).await.unwrap();
        assert_eq!(states.len(), usize::try_from(expected).unwrap());
    }
    let one = InstancesWanted {
        run_ids: text(&["r2"]),
        ..all()
    };
    let found = store.instance_states(&one).await.unwrap().remove(0);
    assert_eq!(found.key, run_key("r2").task("load"));
    assert_eq!(found.state, Some(TaskState::Failed));
}

async fn the_previous_instance_is_the_latest_one_before(store: &dyn AnyStore) {
    four_runs(store).await;
    for (before, state, expected) in [
        (Some(at(3)), None, Some(("r2", Some(at(2))))),
        (Some(at(3)), Some("success"), Some(("r1", Some(at(1))))),
        (None, None, Some(("r3", Some(at(3))))),
        (None, Some("success"), Some(("r1", Some(at(1))))),
        (Some(at(1)), None, None),
        (None, Some("nonsense"), None),
    ] {
        let wanted = PreviousInstance {
            dag_id: "sales".to_owned(),
            task_id: "load".to_owned(),
            map_index: -1,
            before,
            state: state.map(str::to_owned),
        };
        let found = store.previous_instance(&wanted).await.unwrap();
        let found = found.map(|(row, date)| (row.key.run.run_id, date));
        let expected = expected.map(|(id, date)| (id.to_owned(), date));
        assert_eq!(found, expected, "{wanted:?}");
    }
}

async fn values_of_earlier_runs_are_found(store: &dyn AnyStore) {
    four_runs(store).await;
    let key = |run_id: &str| XComKey {
        run: run_key(run_id),
        task_id: "load".to_owned(),
        key: "k".to_owned(),
    };
    let latest = async |run_id: &str| {
        let found = store.latest_run_with_xcom(&key(run_id)).await.unwrap();
        found.map(|run| run.run_id)
    };
    assert_eq!(latest("r3").await, None);
    let wanted = InstancesWanted {
        dag_id: "sales".to_owned(),
        ..InstancesWanted::default()
    };
    assert_eq!(store.instance_states(&wanted).await.unwrap().len(), 4);
    let (_, rows) = store.run(&run_key("r1")).await.unwrap().unwrap();
    for run_id in ["r1", "none"] {
        let value = FromTry::XCom(XCom {
            key: key(run_id),
            map_index: 0,
            value: "1".into(),
            mapped_length: None,
            is_dag_result: false,
            written_at: at(1),
        });
        store.tell(rows[0].id, value).await.unwrap();
    }
    assert_eq!(latest("r3").await.as_deref(), Some("r1"));
    assert_eq!(latest("r1").await.as_deref(), Some("r1"));
    // A run about no instant has none before it, and is before none.
    assert_eq!(latest("none").await.as_deref(), Some("none"));
}

async fn a_file_without_a_dag_is_known(store: &dyn AnyStore) {
    let file = FileKey {
        bundle: "b".to_owned(),
        file: "x.py".to_owned(),
    };
    assert!(!store.has_import_error(&file).await.unwrap());
    let changes = Changes {
        import_errors: vec![ImportError {
            key: file.clone(),
            error: "SyntaxError".to_owned(),
            seen_at: at(1),
            version: 0,
        }],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    assert!(store.has_import_error(&file).await.unwrap());
    assert_eq!(store.latest_version("sales").await.unwrap(), None);
    assert_eq!(store.version_row(Uuid::nil()).await.unwrap(), None);
}

#[tokio::test]
async fn the_first_secret_of_tokens_stays_also_for_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    for offered in ["first", "second", "third"] {
        let store = Store::open(&path).await.unwrap();
        assert_eq!(store.token_secret(offered).await.unwrap(), "first");
        store.close().await;
    }
}
