//! The decided rows of DAGs from Python, on every engine.

use jiff::{SignedDuration, Timestamp};
use longshore_store::{
    AirflowTask, Bundle, BundleVersion, Changes, DagVersion, Deferral, Expansion, FileKey,
    ImportError, Looks, Reschedule, Run, RunDetails, RunState, StoreError, StoredDocument,
    TaskInstance, Trigger, WorkerProcess,
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    samples::{
        archive, at, document, next_try, run, run_key, runs, stored, stored_run, task, tasks,
    },
    stores::{AnyStore, on_every_engine},
};

on_every_engine!(
    bundles_and_import_errors_are_made_changed_and_mended,
    a_dag_version_says_the_same_for_ever,
    a_start_reads_the_latest_versions_and_those_of_unfinished_runs,
    a_run_moves_on_to_the_next_version_and_its_document,
    all_of_a_task_of_airflow_comes_back_and_goes_with_its_try,
    an_expansion_keeps_the_try_and_gives_it_the_first_index,
    reschedules_and_deferrals_are_kept_by_try,
    texts_from_outside_may_have_nul_bytes,
    what_is_not_as_given_is_a_conflict_by_name,
);

/// A version of a DAG that was not stored yet.
fn version(dag_id: &str, number: u32) -> DagVersion {
    DagVersion {
        id: Uuid::now_v7(),
        dag_id: dag_id.to_owned(),
        number,
        content_hash: format!("{dag_id}{number}"),
        document: serialized(number).hash().clone(),
        source: None,
        bundle: None,
        file: "sales.py".to_owned(),
        created_at: at(i64::from(number)),
        version: 0,
    }
}

/// The serialized DAG of such a version.
fn serialized(number: u32) -> StoredDocument {
    StoredDocument::of(&json!({"__version": 3, "dag": {"n": number}}))
}

fn versions(versions: impl IntoIterator<Item = DagVersion>) -> Changes {
    Changes {
        documents: (1..=4).map(serialized).chain([document()]).collect(),
        dag_versions: versions.into_iter().collect(),
        ..Changes::default()
    }
}

fn at_version(it: &DagVersion, version: i64) -> DagVersion {
    DagVersion {
        version,
        ..it.clone()
    }
}

/// A run of this version, with its document.
fn run_of(run_id: &str, version: &DagVersion) -> Run {
    Run {
        dag_hash: version.document.clone(),
        details: RunDetails {
            dag_version: Some(version.id),
            ..RunDetails::default()
        },
        ..run(run_id)
    }
}

fn file(name: &str) -> FileKey {
    FileKey {
        bundle: "dags-folder".to_owned(),
        file: name.to_owned(),
    }
}

fn import_error(name: &str, error: &str) -> ImportError {
    ImportError {
        key: file(name),
        error: error.to_owned(),
        seen_at: at(1),
        version: 0,
    }
}

async fn bundles_and_import_errors_are_made_changed_and_mended(store: &dyn AnyStore) {
    let folder = Bundle {
        name: "dags-folder".to_owned(),
        bundle_version: None,
        refreshed_at: None,
        is_active: true,
        version: 0,
    };
    let git = Bundle {
        name: "git".to_owned(),
        bundle_version: Some("4f2a".to_owned()),
        refreshed_at: Some(at(3)),
        is_active: false,
        version: 0,
    };
    let (a, b) = (
        import_error("a.py", "line 1"),
        import_error("b.py", "line 2"),
    );
    let changes = Changes {
        bundles: vec![git.clone(), folder.clone()],
        import_errors: vec![b.clone(), a.clone()],
        mended: vec![file("never-broken.py")],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let (folder, git) = (
        Bundle {
            version: 1,
            ..folder
        },
        Bundle { version: 1, ..git },
    );
    let found = store.load().await.unwrap();
    assert_eq!(found.bundles, [folder.clone(), git.clone()]);
    let (a, b) = (
        ImportError { version: 1, ..a },
        ImportError { version: 1, ..b },
    );
    assert_eq!(found.import_errors, [a.clone(), b.clone()]);

    let git = Bundle {
        bundle_version: None,
        is_active: true,
        ..git
    };
    let b = ImportError {
        error: "line 3".to_owned(),
        seen_at: at(9),
        ..b
    };
    let changes = Changes {
        bundles: vec![git.clone()],
        import_errors: vec![b.clone()],
        mended: vec![a.key],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap();
    assert_eq!(found.bundles, [folder, Bundle { version: 2, ..git }]);
    assert_eq!(found.import_errors, [ImportError { version: 2, ..b }]);
}

async fn a_dag_version_says_the_same_for_ever(store: &dyn AnyStore) {
    let first = version("sales", 1);
    store.commit(&versions([first.clone()])).await.unwrap();
    let source = StoredDocument::of_source("import airflow\n");
    let moved = DagVersion {
        source: Some(source.hash().clone()),
        bundle: Some(BundleVersion {
            name: "git".to_owned(),
            version: Some("4f2a".to_owned()),
        }),
        file: "moved.py".to_owned(),
        version: 1,
        ..first.clone()
    };
    let changed = DagVersion {
        content_hash: "other".to_owned(),
        document: serialized(2).hash().clone(),
        created_at: at(99),
        ..moved.clone()
    };
    let mut changes = versions([changed]);
    changes.documents.push(source.clone());
    store.commit(&changes).await.unwrap();
    let found = store.dag_versions("sales").await.unwrap();
    assert_eq!(found, [at_version(&moved, 2)]);
    assert_eq!(store.text(source.hash()).await.unwrap(), source);
    assert_eq!(store.text(&first.document).await.unwrap(), serialized(1));
}

async fn a_start_reads_the_latest_versions_and_those_of_unfinished_runs(store: &dyn AnyStore) {
    let of_sales = [1, 2, 3, 4].map(|number| version("sales", number));
    let of_costs = [1, 2].map(|number| version("costs", number));
    let ended = Run {
        state: RunState::Failed,
        ..run_of("ended", &of_sales[2])
    };
    let changes = Changes {
        runs: vec![run_of("running", &of_sales[0]), ended],
        ..versions(of_sales.iter().chain(&of_costs).cloned())
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap().dag_versions;
    let expected = [&of_costs[1], &of_sales[0], &of_sales[3]];
    assert_eq!(found, expected.map(|it| at_version(it, 1)));
    let numbers = store.dag_versions("sales").await.unwrap();
    let numbers: Vec<u32> = numbers.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [4, 3, 2, 1]);
}

async fn a_run_moves_on_to_the_next_version_and_its_document(store: &dyn AnyStore) {
    let (old, new) = (version("sales", 1), version("sales", 2));
    let changes = Changes {
        runs: vec![run_of("a", &old)],
        ..versions([old, new.clone()])
    };
    store.commit(&changes).await.unwrap();
    let moved = Run {
        version: 1,
        ..run_of("a", &new)
    };
    let changes = Changes {
        runs: vec![moved.clone()],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap();
    assert_eq!(found.runs, [stored_run(&moved)]);
    assert!(found.documents.contains_key(&new.document));
}

async fn all_of_a_task_of_airflow_comes_back_and_goes_with_its_try(store: &dyn AnyStore) {
    let of = version("sales", 1);
    let full = AirflowTask {
        dag_version: of.id,
        process: Some(WorkerProcess {
            hostname: "worker-1".to_owned(),
            unixname: "airflow".to_owned(),
            pid: 7,
        }),
        next_method: Some("execute_complete".to_owned()),
        timeout_at: Some(at(60)),
        looks: Some(Looks {
            n: 3,
            first_at: at(1),
            next_at: at(90),
        }),
        retry_delay: Some(SignedDuration::from_micros(1_500_000)),
        retry_reason: Some("rate limit".to_owned()),
    };
    let first = TaskInstance {
        airflow: Some(Box::new(full.clone())),
        ..task("a", "load")
    };
    let bare = TaskInstance {
        airflow: Some(Box::new(AirflowTask::new(of.id))),
        ..task("a", "save")
    };
    let changes = Changes {
        runs: vec![run_of("a", &of)],
        task_instances: vec![first.clone(), bare.clone()],
        ..versions([of.clone()])
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap().task_instances;
    assert_eq!(found, [stored(&first), stored(&bare)]);

    let ended = stored(&first);
    let second = TaskInstance {
        airflow: Some(Box::new(AirflowTask::new(of.id))),
        ..next_try(&ended)
    };
    let changes = Changes {
        archived: archive([ended.clone()]),
        ..tasks([second.clone()])
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap().task_instances;
    assert_eq!(found, [stored(&second), stored(&bare)]);
    assert_eq!(
        store.history(&run_key("a")).await.unwrap(),
        archive([ended])
    );
}

async fn an_expansion_keeps_the_try_and_gives_it_the_first_index(store: &dyn AnyStore) {
    let (mapped, other) = (task("a", "load"), task("a", "other"));
    let changes = Changes {
        task_instances: vec![mapped.clone(), other.clone()],
        ..runs([run("a")])
    };
    store.commit(&changes).await.unwrap();
    let at_index = |map_index, of: &TaskInstance| {
        let mut task = of.clone();
        task.key.map_index = map_index;
        task
    };
    let first = TaskInstance {
        try_number: 1,
        ..at_index(0, &stored(&mapped))
    };
    let second = at_index(1, &task("a", "load"));
    let changes = Changes {
        expansions: vec![Expansion {
            run: run_key("a"),
            task_id: "load".to_owned(),
            version: 1,
        }],
        ..tasks([first.clone(), second.clone()])
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap().task_instances;
    assert_eq!(found, [stored(&first), stored(&second), stored(&other)]);
    assert_eq!(found[0].id, mapped.id);
    // It has no instance without an index any more.
    let refused = store.commit(&changes).await.unwrap_err();
    let expected = "task instance sales/a/load";
    assert!(
        matches!(&refused, StoreError::Conflict { what } if what == expected),
        "{refused}"
    );
}

async fn reschedules_and_deferrals_are_kept_by_try(store: &dyn AnyStore) {
    let (id, other) = (Uuid::now_v7(), Uuid::now_v7());
    let look = |of, number, seconds: i64| Reschedule {
        task_instance_id: of,
        number,
        start_date: at(seconds),
        end_date: at(seconds + 1),
        reschedule_date: at(seconds + 60),
    };
    let looks = [look(id, 1, 0), look(id, 2, 60)];
    let of_human = Deferral {
        task_instance_id: id,
        trigger: None,
        next_kwargs: json!({}),
    };
    let of_trigger = Deferral {
        trigger: Some(Trigger {
            classpath: "a.b.Trigger".to_owned(),
            kwargs: json!("gAAAA"),
            queue: Some("slow".to_owned()),
        }),
        next_kwargs: json!({"event": {"__type": "dict", "__var": {"n": 1}}}),
        ..of_human.clone()
    };
    assert_eq!(store.deferral(id).await.unwrap(), None);
    for deferral in [of_human, of_trigger.clone()] {
        let changes = Changes {
            deferrals: vec![deferral.clone()],
            ..Changes::default()
        };
        store.commit(&changes).await.unwrap();
        assert_eq!(store.deferral(id).await.unwrap(), Some(deferral));
    }
    let changes = Changes {
        reschedules: vec![looks[1].clone(), look(other, 1, 5), looks[0].clone()],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    assert_eq!(store.reschedules(id).await.unwrap(), looks);
    assert_eq!(store.reschedules(Uuid::nil()).await.unwrap(), []);
    assert_eq!(store.deferral(other).await.unwrap(), None);
}

async fn texts_from_outside_may_have_nul_bytes(store: &dyn AnyStore) {
    let source = StoredDocument::of_source("x = '\0'");
    let changes = Changes {
        documents: vec![source.clone()],
        import_errors: vec![import_error("a.py", "found \0 here")],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap().import_errors.remove(0);
    assert_eq!(found.error, "found \u{fffd} here");
    let found = store.text(source.hash()).await.unwrap();
    assert_eq!(found.body(), "x = '\u{fffd}'");
}

/// Changes that are refused, and the row that is named.
fn refusals(old: &DagVersion, seen: Timestamp) -> Vec<(Changes, String)> {
    let with = |changes: Changes| Changes {
        documents: vec![serialized(1), serialized(2), document()],
        ..changes
    };
    let bundle = Bundle {
        name: "git".to_owned(),
        bundle_version: None,
        refreshed_at: Some(seen),
        is_active: true,
        version: 7,
    };
    let bundles = Changes {
        bundles: vec![bundle],
        ..Changes::default()
    };
    let errors = Changes {
        import_errors: vec![ImportError {
            version: 1,
            ..import_error("a.py", "")
        }],
        ..Changes::default()
    };
    let unknown = Uuid::nil();
    let of_unknown = Run {
        details: RunDetails {
            dag_version: Some(unknown),
            ..RunDetails::default()
        },
        ..run("b")
    };
    let without_text = DagVersion {
        source: Some(StoredDocument::of_source("?").hash().clone()),
        ..version("sales", 2)
    };
    let expansion = Changes {
        expansions: vec![Expansion {
            run: run_key("a"),
            task_id: "load".to_owned(),
            version: 2,
        }],
        ..Changes::default()
    };
    let missing = StoredDocument::of_source("?");
    vec![
        (bundles, "bundle git".to_owned()),
        (errors, "import error of dags-folder/a.py".to_owned()),
        (
            with(versions([version("sales", 1)])),
            "version 1 of DAG sales".to_owned(),
        ),
        (
            with(versions([at_version(old, 2)])),
            "version 1 of DAG sales".to_owned(),
        ),
        (
            with(versions([without_text])),
            format!("DAG document {}", missing.hash()),
        ),
        (with(runs([of_unknown])), format!("DAG version {unknown}")),
        (expansion, "task instance sales/a/load".to_owned()),
    ]
}

async fn what_is_not_as_given_is_a_conflict_by_name(store: &dyn AnyStore) {
    let old = version("sales", 1);
    let look = Reschedule {
        task_instance_id: Uuid::nil(),
        number: 1,
        start_date: at(0),
        end_date: at(1),
        reschedule_date: at(2),
    };
    let changes = Changes {
        runs: vec![run("a")],
        task_instances: vec![task("a", "load")],
        reschedules: vec![look.clone()],
        ..versions([old.clone()])
    };
    store.commit(&changes).await.unwrap();
    let before = store.load().await.unwrap();
    let again = Changes {
        reschedules: vec![look],
        ..Changes::default()
    };
    let again = (again, format!("reschedule 1 of try {}", Uuid::nil()));
    for (changes, expected) in refusals(&old, at(0)).into_iter().chain([again]) {
        match store.commit(&changes).await {
            Err(StoreError::Conflict { what }) => assert_eq!(what, expected),
            other => panic!("{expected}: {other:?}"),
        }
        assert_eq!(store.load().await.unwrap(), before, "{expected}");
    }
}
