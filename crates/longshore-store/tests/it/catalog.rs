//! What the service keeps and lists, on every engine.

use longshore_store::{
    Catalog, Changes, Dag, DagAdvance, NextRun, ParsedDag, Run, RunCursor, RunFilter, RunState,
    StoreError, TaskFilter, TaskInstance, TaskState,
};
use serde_json::json;

use crate::samples::{archive, at, next_try, run, runs, task, tasks};
use crate::stores::on_every_engine;

on_every_engine!(
    runs_are_listed_by_state_and_page_by_page,
    task_instances_are_listed_by_state_and_page_by_page,
    a_dag_is_made_and_changed,
    a_dag_with_an_error_keeps_its_document,
    a_schedule_goes_on_with_the_run_that_was_due,
    a_schedule_that_is_not_as_given_is_a_conflict,
    a_dag_that_is_not_there_cannot_be_paused,
    runs_of_one_document_each_have_it,
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

async fn runs_are_listed_by_state_and_page_by_page(store: &dyn Catalog) {
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

async fn task_instances_are_listed_by_state_and_page_by_page(store: &dyn Catalog) {
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

fn parsed(dag_id: &str) -> ParsedDag {
    ParsedDag {
        dag_id: dag_id.to_owned(),
        file: Some(format!("{dag_id}.yaml")),
        parsed_at: at(0),
        error: None,
        document: Some(json!({"dag_id": dag_id})),
        is_paused_upon_creation: false,
    }
}

fn next_run(seconds: i64) -> NextRun {
    NextRun {
        run_after: at(seconds),
        logical_date: Some(at(seconds - 60)),
        data_interval: Some((at(seconds - 60), at(seconds))),
    }
}

fn advance(dag_id: &str, from: Option<NextRun>, to: Option<NextRun>) -> Changes {
    let dag_id = dag_id.to_owned();
    Changes {
        dag_advances: vec![DagAdvance { dag_id, from, to }],
        ..Changes::default()
    }
}

async fn only_dag(store: &dyn Catalog) -> Dag {
    let mut dags = store.dags().await.unwrap();
    assert_eq!(dags.len(), 1);
    dags.remove(0)
}

async fn a_dag_is_made_and_changed(store: &dyn Catalog) {
    assert_eq!(store.dags().await.unwrap(), []);
    let first = ParsedDag {
        is_paused_upon_creation: true,
        ..parsed("b")
    };
    store.set_dag(&first).await.unwrap();
    let made = only_dag(store).await;
    let expected = Dag {
        dag_id: "b".to_owned(),
        file: Some("b.yaml".to_owned()),
        is_paused: true,
        next_run: None,
        parsed_at: at(0),
        error: None,
        document_hash: made.document_hash.clone(),
    };
    assert_eq!(made, expected);
    let hash = made.document_hash.unwrap();
    assert_eq!(store.document(&hash).await.unwrap(), first.document);
    assert_eq!(store.document("none").await.unwrap(), None);

    // What users and scheduler decided stays.
    let next = Some(next_run(60));
    store.set_paused("b", false).await.unwrap();
    store.commit(&advance("b", None, next)).await.unwrap();
    let second = ParsedDag {
        file: None,
        parsed_at: at(5),
        document: Some(json!({"dag_id": "b", "tasks": {}})),
        ..first.clone()
    };
    store.set_dag(&second).await.unwrap();
    let changed = only_dag(store).await;
    let expected = Dag {
        file: None,
        is_paused: false,
        next_run: next,
        parsed_at: at(5),
        document_hash: changed.document_hash.clone(),
        ..expected
    };
    assert_eq!(changed, expected);
    let new_hash = changed.document_hash.unwrap();
    assert_eq!(store.document(&new_hash).await.unwrap(), second.document);
    assert_eq!(store.document(&hash).await.unwrap(), first.document);

    store.set_dag(&parsed("a")).await.unwrap();
    let names = store.dags().await.unwrap();
    let names: Vec<_> = names.into_iter().map(|dag| dag.dag_id).collect();
    assert_eq!(names, ["a", "b"]);
}

async fn a_dag_with_an_error_keeps_its_document(store: &dyn Catalog) {
    let broken = ParsedDag {
        error: Some("line 3: unknown key".to_owned()),
        document: None,
        ..parsed("a")
    };
    store.set_dag(&broken).await.unwrap();
    assert_eq!(only_dag(store).await.document_hash, None);
    store.set_dag(&parsed("a")).await.unwrap();
    let good = only_dag(store).await;
    assert_eq!(good.error, None);
    assert!(good.document_hash.is_some());
    store.set_dag(&broken).await.unwrap();
    let kept = only_dag(store).await;
    assert_eq!(kept.error, broken.error);
    assert_eq!(kept.document_hash, good.document_hash);
}

async fn a_schedule_goes_on_with_the_run_that_was_due(store: &dyn Catalog) {
    store.set_dag(&parsed("a")).await.unwrap();
    let bare = NextRun {
        run_after: at(1),
        logical_date: None,
        data_interval: None,
    };
    let steps = [
        None,
        Some(next_run(60)),
        Some(bare),
        Some(next_run(120)),
        None,
    ];
    for (n, step) in steps.windows(2).enumerate() {
        let changes = Changes {
            runs: vec![run(&n.to_string())],
            ..advance("a", step[0], step[1])
        };
        store.commit(&changes).await.unwrap();
        assert_eq!(only_dag(store).await.next_run, step[1]);
        assert_eq!(store.load().await.unwrap().runs.len(), n + 1);
    }
}

async fn a_schedule_that_is_not_as_given_is_a_conflict(store: &dyn Catalog) {
    store.set_dag(&parsed("a")).await.unwrap();
    let now = Some(next_run(60));
    store.commit(&advance("a", None, now)).await.unwrap();
    let other_interval = Some(NextRun {
        data_interval: None,
        ..next_run(60)
    });
    let later = Some(next_run(120));
    let mut twice = advance("a", now, later);
    twice
        .dag_advances
        .extend(advance("a", now, later).dag_advances);
    let cases = [
        ("none", advance("a", None, later), "DAG a"),
        ("later", advance("a", later, later), "DAG a"),
        (
            "another interval",
            advance("a", other_interval, later),
            "DAG a",
        ),
        ("twice", twice, "DAG a"),
        ("unknown", advance("b", None, later), "DAG b"),
    ];
    for (name, mut changes, expected) in cases {
        changes.runs.push(run("due"));
        match store.commit(&changes).await {
            Err(StoreError::Conflict { what }) => assert_eq!(what, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(store.load().await.unwrap().runs, [], "{name}");
        assert_eq!(only_dag(store).await.next_run, now, "{name}");
    }
}

async fn a_dag_that_is_not_there_cannot_be_paused(store: &dyn Catalog) {
    match store.set_paused("a", true).await {
        Err(StoreError::Conflict { what }) => assert_eq!(what, "DAG a"),
        other => panic!("{other:?}"),
    }
}

async fn runs_of_one_document_each_have_it(store: &dyn Catalog) {
    // More documents than one query reads, and each in two runs.
    let of = |n: i32, copy: &str| Run {
        dag: json!({"dag_id": "sales", "n": n}),
        ..run(&format!("{n:03}-{copy}"))
    };
    let all = (0..120).flat_map(|n| [of(n, "a"), of(n, "b")]);
    store.commit(&runs(all)).await.unwrap();
    store.commit(&tasks([task("000-a", "load")])).await.unwrap();
    let found = store.load().await.unwrap().runs;
    let n_of = |run: &Run| run.dag["n"].as_i64();
    let expected: Vec<_> = (0..240).map(|n| Some(n / 2)).collect();
    assert_eq!(found.iter().map(n_of).collect::<Vec<_>>(), expected);
}
