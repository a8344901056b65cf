//! What the service keeps and lists, on every engine.

use jiff::Timestamp;
use longshore_store::{
    Changes, Dag, ListedRun, NextRun, Run, RunCursor, RunFilter, RunState, StoreError,
    StoredDocument, TaskFilter, TaskInstance, TaskState,
};
use serde_json::json;

use crate::{
    samples::{
        archive, at, document, full_document, full_run, next_try, run, run_key, runs, task, tasks,
    },
    stores::{AnyStore, on_every_engine},
};

on_every_engine!(
    runs_are_listed_by_state_and_page_by_page,
    task_instances_are_listed_by_state_and_page_by_page,
    a_dag_is_made_and_changed,
    a_row_without_its_document_is_a_conflict,
    a_schedule_goes_on_with_the_run_that_was_due,
    a_dag_that_is_not_as_given_is_a_conflict,
    a_run_is_found_by_its_name_and_by_its_instant,
    a_document_is_read_once_for_all_that_refer_to_it,
    a_list_shows_a_run_as_its_row_has_it,
    a_run_of_more_tasks_than_a_query_reads_is_read_whole,
);

fn aged(dag_id: &str, run_id: &str, state: RunState, age: i64) -> Run {
    let mut run = Run {
        state,
        queued_at: at(-age),
        ..run(run_id)
    };
    run.key.dag_id = dag_id.to_owned();
    run
}

async fn runs_are_listed_by_state_and_page_by_page(store: &dyn AnyStore) {
    use RunState::{Failed, Queued, Running, Success};
    // 3 and 4 are of the same age: their names decide.
    let all = [
        aged("a", "1", Success, 9),
        aged("b", "2", Failed, 8),
        aged("a", "3", Running, 7),
        aged("b", "4", Queued, 7),
        aged("a", "5", Failed, 6),
    ];
    store.commit(&runs(all)).await.unwrap();
    let cases = [
        (None, vec![], vec!["5", "4", "3", "2", "1"]),
        (None, vec![Failed], vec!["5", "2"]),
        (None, vec![Failed, Queued], vec!["5", "4", "2"]),
        (None, vec![Queued], vec!["4"]),
        (Some("a"), vec![Queued, Running], vec!["3"]),
        (Some("a"), vec![Failed, Queued], vec!["5"]),
        (Some("b"), vec![Success], vec![]),
    ];
    for (dag_id, states, expected) in cases {
        let mut filter = RunFilter {
            dag_id: dag_id.map(str::to_owned),
            states,
            ..RunFilter::default()
        };
        for limit in 1..=6 {
            (filter.limit, filter.before) = (Some(limit), None);
            let mut found = Vec::new();
            loop {
                let n_all = store.count_runs(&filter).await.unwrap();
                assert_eq!(n_all, expected.len() as u64, "{filter:?}");
                let page = store.runs(&filter).await.unwrap();
                assert!(page.len() <= limit as usize);
                let Some(last) = page.last() else { break };
                filter.before = Some(RunCursor::from(last));
                found.extend(page.into_iter().map(|run| run.key.run_id));
            }
            assert_eq!(found, expected, "{filter:?}");
        }
    }
    // Of the DAGs that the service knows; `c` has no run, and nobody knows `d`.
    let known = dags(["b", "c", "a"].map(dag));
    store.commit(&known).await.unwrap();
    store
        .commit(&runs([aged("d", "6", Failed, 1)]))
        .await
        .unwrap();
    let found = store.newest_runs().await.unwrap().into_iter();
    assert_eq!(
        found.map(|run| run.key.run_id).collect::<Vec<_>>(),
        ["5", "4"]
    );
}

fn task_filters() -> [(TaskFilter, &'static str); 8] {
    let filter = |dag_id: &str, run_id: &str, task_id: &str, states: &[Option<TaskState>]| {
        let some = |id: &str| (id != "*").then(|| id.to_owned());
        TaskFilter {
            dag_id: some(dag_id),
            run_id: some(run_id),
            task_id: some(task_id),
            states: states.to_vec(),
            ..TaskFilter::default()
        }
    };
    let failed = Some(TaskState::Failed);
    let queued = Some(TaskState::Queued);
    [
        (filter("*", "*", "*", &[]), "a/x a/y b/x b/x[3]"),
        (filter("*", "a", "*", &[]), "a/x a/y"),
        (filter("*", "*", "x", &[]), "a/x b/x b/x[3]"),
        (filter("sales", "b", "*", &[]), "b/x b/x[3]"),
        (filter("other", "*", "*", &[]), ""),
        (filter("*", "*", "*", &[failed]), "a/x b/x[3]"),
        (filter("*", "*", "*", &[None]), "b/x"),
        (filter("*", "*", "*", &[None, queued]), "a/y b/x"),
    ]
}

async fn task_instances_are_listed_by_state_and_page_by_page(store: &dyn AnyStore) {
    let in_state = |run_id: &str, task_id: &str, state| TaskInstance {
        state,
        ..task(run_id, task_id)
    };
    let failed = Some(TaskState::Failed);
    let mut mapped = in_state("b", "x", failed);
    mapped.key.map_index = 3;
    let old = in_state("a", "y", failed);
    let changes = Changes {
        task_instances: vec![
            in_state("b", "x", None),
            mapped,
            in_state("a", "x", failed),
            next_try(&in_state("a", "y", Some(TaskState::Queued))),
        ],
        archived: archive([old]),
        ..runs([run("a"), run("b")])
    };
    store.commit(&changes).await.unwrap();
    for (mut filter, expected) in task_filters() {
        for limit in 1..=5 {
            (filter.limit, filter.after) = (Some(limit), None);
            let mut found = Vec::new();
            loop {
                let page = store.task_instances(&filter).await.unwrap();
                assert!(page.len() <= limit as usize);
                let Some(last) = page.last() else { break };
                filter.after = Some(last.key.clone());
                let name = |task: &TaskInstance| task.key.to_string().replace("sales/", "");
                found.extend(page.iter().map(name));
            }
            let n_all = store.count_task_instances(&filter).await.unwrap();
            assert_eq!(n_all, found.len() as u64, "{filter:?}");
            assert_eq!(found.join(" "), expected, "{filter:?}");
        }
    }
}

fn dag(dag_id: &str) -> Dag {
    Dag {
        dag_id: dag_id.to_owned(),
        file: Some(format!("{dag_id}.yaml")),
        is_paused: false,
        next_run: None,
        last_interval: None,
        parsed_at: at(0),
        error: None,
        document_hash: document().hash().clone(),
        version: 0,
    }
}

fn next_run(seconds: i64) -> NextRun {
    NextRun {
        run_after: at(seconds),
        logical_date: Some(at(seconds - 60)),
        data_interval: Some((at(seconds - 60), at(seconds))),
    }
}

fn dags(dags: impl IntoIterator<Item = Dag>) -> Changes {
    Changes {
        documents: vec![document(), full_document()],
        dags: dags.into_iter().collect(),
        ..Changes::default()
    }
}

async fn only_dag(store: &dyn AnyStore) -> Dag {
    let mut dags = store.load().await.unwrap().dags;
    assert_eq!(dags.len(), 1);
    dags.remove(0)
}

async fn a_dag_is_made_and_changed(store: &dyn AnyStore) {
    assert_eq!(store.load().await.unwrap().dags, []);
    let bare = Dag {
        next_run: Some(NextRun {
            run_after: at(1),
            logical_date: None,
            data_interval: None,
        }),
        ..dag("b")
    };
    let full = Dag {
        file: None,
        is_paused: true,
        next_run: Some(next_run(60)),
        last_interval: Some((at(-60), Timestamp::MAX)),
        parsed_at: at(5),
        error: Some("line 3: unknown key".to_owned()),
        document_hash: full_document().hash().clone(),
        ..dag("b")
    };
    for (version, changed) in [dag("b"), bare, full, dag("b")].into_iter().enumerate() {
        let version = i64::try_from(version).unwrap();
        let given = Dag { version, ..changed };
        store.commit(&dags([given.clone()])).await.unwrap();
        let version = version + 1;
        assert_eq!(only_dag(store).await, Dag { version, ..given });
    }
    store.commit(&dags([dag("c"), dag("a")])).await.unwrap();
    let names = store.load().await.unwrap().dags;
    let names: Vec<_> = names.into_iter().map(|dag| dag.dag_id).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

async fn a_row_without_its_document_is_a_conflict(store: &dyn AnyStore) {
    let hash = document().hash().clone();
    let without = [runs([run("a")]), dags([dag("a")])].map(|changes| Changes {
        documents: vec![full_document()],
        ..changes
    });
    for changes in &without {
        match store.commit(changes).await {
            Err(StoreError::Conflict { what }) => assert_eq!(what, format!("DAG document {hash}")),
            other => panic!("{other:?}"),
        }
    }
    // Documents stay, so that later rows need not bring them.
    let documents = Changes {
        documents: vec![document()],
        ..Changes::default()
    };
    store.commit(&documents).await.unwrap();
    for changes in &without {
        store.commit(changes).await.unwrap();
    }
    assert_eq!(store.document(&hash).await.unwrap(), document());
}

async fn a_schedule_goes_on_with_the_run_that_was_due(store: &dyn AnyStore) {
    store.commit(&dags([dag("a")])).await.unwrap();
    for n in 1..4 {
        let next = Some(next_run(60 * n));
        let changes = Changes {
            runs: vec![run(&n.to_string())],
            ..dags([Dag {
                next_run: next,
                last_interval: Some((at(0), at(n))),
                version: n,
                ..dag("a")
            }])
        };
        store.commit(&changes).await.unwrap();
        let stored = only_dag(store).await;
        assert_eq!(stored.next_run, next);
        assert_eq!(stored.last_interval, Some((at(0), at(n))));
        assert_eq!(store.load().await.unwrap().runs.len(), n as usize);
    }
}

async fn a_dag_that_is_not_as_given_is_a_conflict(store: &dyn AnyStore) {
    store.commit(&dags([dag("a")])).await.unwrap();
    let other = |dag_id: &str, version| Dag {
        next_run: Some(next_run(120)),
        version,
        ..dag(dag_id)
    };
    let before = only_dag(store).await;
    let cases = [
        ("made again", dags([other("a", 0)]), "DAG a"),
        ("newer", dags([other("a", 2)]), "DAG a"),
        ("twice", dags([other("a", 1), other("a", 1)]), "DAG a"),
        ("unknown", dags([other("b", 1)]), "DAG b"),
    ];
    for (name, mut changes, expected) in cases {
        changes.runs.push(run("due"));
        match store.commit(&changes).await {
            Err(StoreError::Conflict { what }) => assert_eq!(what, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(store.load().await.unwrap().runs, [], "{name}");
        assert_eq!(only_dag(store).await, before, "{name}");
    }
}

async fn a_run_is_found_by_its_name_and_by_its_instant(store: &dyn AnyStore) {
    let about = |run_id: &str, logical_date| Run {
        logical_date,
        state: RunState::Success,
        ..run(run_id)
    };
    let all = [about("named", None), about("dated", Some(at(60)))];
    store.commit(&runs(all)).await.unwrap();
    let cases = [
        ("sales", "named", Some(0), true),
        ("sales", "named", None, true),
        ("sales", "other", Some(60), true),
        ("sales", "other", Some(61), false),
        // The run without a date is about none.
        ("sales", "other", None, false),
        ("other", "named", Some(60), false),
    ];
    for (dag_id, run_id, seconds, expected) in cases {
        let mut key = run_key(run_id);
        key.dag_id = dag_id.to_owned();
        let found = store.has_run(&key, seconds.map(at)).await.unwrap();
        assert_eq!(found, expected, "{key} at {seconds:?}");
    }
}

async fn a_document_is_read_once_for_all_that_refer_to_it(store: &dyn AnyStore) {
    // More documents than one query reads, and each in two runs.
    let documents = (0..120).map(|n| StoredDocument::of(&json!({"dag_id": "sales", "n": n})));
    let documents = Vec::from_iter(documents);
    let of = |n: usize, copy: &str| Run {
        dag_hash: documents[n].hash().clone(),
        ..run(&format!("{n:03}-{copy}"))
    };
    let changes = Changes {
        documents: documents.clone(),
        ..runs((0..120).flat_map(|n| [of(n, "a"), of(n, "b")]))
    };
    store.commit(&changes).await.unwrap();
    store.commit(&tasks([task("000-a", "load")])).await.unwrap();
    let found = store.load().await.unwrap();
    let of_runs = found.runs.iter().map(|run| &found.documents[&run.dag_hash]);
    assert!(of_runs.eq((0..240).map(|n| &documents[n / 2])));
    assert_eq!(found.documents.len(), 120);
}

async fn a_list_shows_a_run_as_its_row_has_it(store: &dyn AnyStore) {
    let (plain, full) = (run("a"), full_run("b"));
    store
        .commit(&runs([plain.clone(), full.clone()]))
        .await
        .unwrap();
    for (given, document) in [(plain, document()), (full, full_document())] {
        let expected = ListedRun {
            key: given.key.clone(),
            run_type: given.run_type,
            state: given.state,
            logical_date: given.logical_date,
            queued_at: given.queued_at,
            start_date: given.start_date,
            end_date: given.end_date,
            conf: given.conf,
            reason: given.reason,
        };
        let found = store.listed_run(&given.key).await.unwrap();
        assert_eq!(found.as_ref(), Some(&expected));
        let found = store.runs(&RunFilter::default()).await.unwrap();
        assert!(found.contains(&expected), "{found:?}");
        let found = store.document_of(&given.key).await.unwrap();
        assert_eq!(found, Some(document));
    }
    let unknown = run_key("c");
    assert_eq!(store.listed_run(&unknown).await.unwrap(), None);
    assert_eq!(store.document_of(&unknown).await.unwrap(), None);
}

/// A query reads 500: here the first one ends between two instances of a task.
async fn a_run_of_more_tasks_than_a_query_reads_is_read_whole(store: &dyn AnyStore) {
    store.commit(&runs([run("a"), run("b")])).await.unwrap();
    let mapped = (0..500).flat_map(|n| [(format!("t{n:03}"), -1), (format!("t{n:03}"), 0)]);
    let first = ("a".to_owned(), -1);
    let expected: Vec<(String, i32)> = std::iter::once(first).chain(mapped).collect();
    let rows = |run_id: &str, n_rows: usize| -> Vec<TaskInstance> {
        let keys = expected.iter().take(n_rows);
        let rows = keys.map(|(task_id, map_index)| {
            let mut row = task(run_id, task_id);
            row.key.map_index = *map_index;
            row
        });
        rows.collect()
    };
    for (run_id, n_rows) in [("a", expected.len()), ("b", 500)] {
        store.commit(&tasks(rows(run_id, n_rows))).await.unwrap();
    }
    for (run_id, n_rows) in [("a", expected.len()), ("b", 500)] {
        let (_, found) = store.run(&run_key(run_id)).await.unwrap().unwrap();
        let keys = found
            .into_iter()
            .map(|row| (row.key.task_id, row.key.map_index));
        assert_eq!(keys.collect::<Vec<_>>(), expected[..n_rows], "{run_id}");
    }
}
