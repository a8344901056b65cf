//! Every method of the trait, on every engine.

use longshore_store::{
    Changes, Pool, PoolFile, Run, RunFilter, RunState, Snapshot, StoreError, TaskInstance,
};
use uuid::Uuid;

use crate::{
    samples::{
        archive, at, full_document, full_run, full_task, next_try, run, run_key, runs, stored,
        stored_run, task, tasks,
    },
    stores::{AnyStore, on_every_engine},
};

on_every_engine!(
    a_new_store_is_empty_but_for_the_default_pool,
    the_scheduler_id_is_8_characters_of_base_36,
    rows_come_back_whole,
    an_update_replaces_the_row_and_counts_its_version_up,
    empty_changes_are_no_commit,
    a_thousand_rows_fit_into_one_commit,
    load_shows_unfinished_runs_oldest_first,
    runs_are_listed_newest_first,
    a_run_that_is_not_there_is_none,
    a_try_is_found_by_its_id_before_and_after_it_is_archived,
    history_is_oldest_first_and_of_that_run_only,
    a_pool_is_made_and_changed,
    a_pool_keeps_the_file_that_it_comes_from,
    the_watch_position_is_the_last_one_committed,
);

fn pool(name: &str, slots: i64) -> Pool {
    Pool::new(name, slots)
}

/// A pool in which deferred tasks hold their slots.
fn deferring(name: &str, slots: i64) -> Pool {
    Pool {
        include_deferred: true,
        ..pool(name, slots)
    }
}

async fn tasks_of(store: &dyn AnyStore, run_id: &str) -> Vec<TaskInstance> {
    store.run(&run_key(run_id)).await.unwrap().unwrap().1
}

async fn a_new_store_is_empty_but_for_the_default_pool(store: &dyn AnyStore) {
    let expected = Snapshot {
        pools: vec![pool("default_pool", 128)],
        ..Snapshot::default()
    };
    assert_eq!(store.load().await.unwrap(), expected);
    assert_eq!(store.runs(&RunFilter::default()).await.unwrap(), []);
}

async fn the_scheduler_id_is_8_characters_of_base_36(store: &dyn AnyStore) {
    let id = store.scheduler_id();
    assert_eq!(id.len(), 8, "{id}");
    assert!(
        id.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
        "{id}"
    );
}

async fn rows_come_back_whole(store: &dyn AnyStore) {
    let (plain, full) = (run("a"), full_run("b"));
    let (none, some) = (task("b", "extract"), full_task("b", "load"));
    let changes = Changes {
        task_instances: vec![none.clone(), some.clone()],
        ..runs([plain.clone(), full.clone()])
    };
    store.commit(&changes).await.unwrap();
    let found = store.run(&full.key).await.unwrap();
    assert_eq!(
        found,
        Some((stored_run(&full), vec![stored(&none), stored(&some)]))
    );
    let found = store.run(&plain.key).await.unwrap();
    assert_eq!(found, Some((stored_run(&plain), vec![])));
}

async fn an_update_replaces_the_row_and_counts_its_version_up(store: &dyn AnyStore) {
    let (old, neighbour) = (task("a", "load"), task("a", "other"));
    let changes = Changes {
        task_instances: vec![old.clone(), neighbour.clone()],
        ..runs([run("a")])
    };
    store.commit(&changes).await.unwrap();
    let mut new_run = full_run("a");
    let mut new_task = TaskInstance {
        key: old.key,
        ..full_task("a", "load")
    };
    for version in 1..=3 {
        (new_run.version, new_task.version) = (version, version);
        // Another document than the one that it was created with.
        new_run.dag_hash = full_document().hash().clone();
        let changes = Changes {
            task_instances: vec![new_task.clone()],
            ..runs([new_run.clone()])
        };
        store.commit(&changes).await.unwrap();
        let found = store.run(&new_run.key).await.unwrap();
        let expected = vec![stored(&new_task), stored(&neighbour)];
        assert_eq!(found, Some((stored_run(&new_run), expected)));
    }
}

async fn empty_changes_are_no_commit(store: &dyn AnyStore) {
    store.commit(&Changes::default()).await.unwrap();
    assert_eq!(store.load().await.unwrap().runs, []);
}

async fn a_thousand_rows_fit_into_one_commit(store: &dyn AnyStore) {
    store.commit(&runs([run("a")])).await.unwrap();
    let mut given: Vec<_> = (0..1037)
        .map(|n| task("a", &format!("task{n:04}")))
        .collect();
    for version in 0..3 {
        for task in &mut given {
            task.version = version;
            task.launch += 1;
        }
        store.commit(&tasks(given.clone())).await.unwrap();
        let expected: Vec<_> = given.iter().map(stored).collect();
        assert_eq!(tasks_of(store, "a").await, expected);
    }
}

async fn load_shows_unfinished_runs_oldest_first(store: &dyn AnyStore) {
    let in_state = |run_id: &str, state, age: i64| Run {
        state,
        queued_at: at(-age),
        ..run(run_id)
    };
    let all = [
        in_state("queued", RunState::Queued, 1),
        in_state("running", RunState::Running, 2),
        in_state("success", RunState::Success, 3),
        in_state("failed", RunState::Failed, 4),
    ];
    let of_each: Vec<_> = all
        .iter()
        .map(|run| task(&run.key.run_id, "load"))
        .collect();
    let mut changes = runs(all.clone());
    changes.task_instances.clone_from(&of_each);
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap();
    assert_eq!(found.runs, [stored_run(&all[1]), stored_run(&all[0])]);
    assert_eq!(
        found.task_instances,
        [stored(&of_each[1]), stored(&of_each[0])]
    );
}

async fn runs_are_listed_newest_first(store: &dyn AnyStore) {
    let aged = |dag_id: &str, run_id: &str, age: i64| {
        let mut run = Run {
            queued_at: at(-age),
            ..run(run_id)
        };
        run.key.dag_id = dag_id.to_owned();
        run
    };
    let all = [aged("a", "1", 3), aged("b", "2", 2), aged("a", "3", 1)];
    store.commit(&runs(all)).await.unwrap();
    let cases = [
        (None, None, vec!["3", "2", "1"]),
        (None, Some(2), vec!["3", "2"]),
        (None, Some(0), vec![]),
        (Some("a"), None, vec!["3", "1"]),
        (Some("a"), Some(1), vec!["3"]),
        (Some("c"), None, vec![]),
    ];
    for (dag_id, limit, expected) in cases {
        let filter = RunFilter {
            dag_id: dag_id.map(str::to_owned),
            limit,
            ..RunFilter::default()
        };
        let found = store.runs(&filter).await.unwrap();
        let found: Vec<_> = found.into_iter().map(|run| run.key.run_id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

async fn a_run_that_is_not_there_is_none(store: &dyn AnyStore) {
    assert_eq!(store.run(&run_key("a")).await.unwrap(), None);
    assert_eq!(store.history(&run_key("a")).await.unwrap(), []);
    assert_eq!(store.try_by_id(Uuid::nil()).await.unwrap(), None);
}

async fn a_try_is_found_by_its_id_before_and_after_it_is_archived(store: &dyn AnyStore) {
    store.commit(&runs([run("a")])).await.unwrap();
    let given = full_task("a", "load");
    store.commit(&tasks([given])).await.unwrap();
    let first = tasks_of(store, "a").await.remove(0);
    assert_eq!(
        store.try_by_id(first.id).await.unwrap().as_ref(),
        Some(&first)
    );

    let second = TaskInstance {
        try_number: 2,
        ..next_try(&first)
    };
    let changes = Changes {
        archived: archive([first.clone()]),
        ..tasks([second.clone()])
    };
    store.commit(&changes).await.unwrap();
    assert_eq!(
        store.try_by_id(first.id).await.unwrap().as_ref(),
        Some(&first)
    );
    assert_eq!(
        store.try_by_id(second.id).await.unwrap(),
        Some(stored(&second))
    );
    assert_eq!(tasks_of(store, "a").await, [stored(&second)]);
    assert_eq!(
        store.load().await.unwrap().task_instances,
        [stored(&second)]
    );
    assert_eq!(
        store.history(&first.key.run).await.unwrap(),
        archive([first])
    );
}

async fn history_is_oldest_first_and_of_that_run_only(store: &dyn AnyStore) {
    store.commit(&runs([run("a"), run("b")])).await.unwrap();
    let ended = |run_id: &str, task_id: &str, end| TaskInstance {
        end_date: Some(at(end)),
        ..task(run_id, task_id)
    };
    let early = ended("a", "z", 1);
    let late = ended("a", "a", 2);
    let never_ran = TaskInstance {
        end_date: None,
        queued_at: Some(at(3)),
        ..task("a", "m")
    };
    let changes = Changes {
        archived: archive([
            late.clone(),
            never_ran.clone(),
            early.clone(),
            ended("b", "a", 0),
        ]),
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let found = store.history(&run_key("a")).await.unwrap();
    assert_eq!(found, archive([early, late, never_ran]));
}

async fn a_pool_is_made_and_changed(store: &dyn AnyStore) {
    for given in [
        pool("narrow", 1),
        pool("narrow", 2),
        pool("default_pool", -1),
        deferring("narrow", 2),
    ] {
        store.set_pool(&given).await.unwrap();
    }
    let expected = [pool("default_pool", -1), deferring("narrow", 2)];
    assert_eq!(store.load().await.unwrap().pools, expected);
}

async fn a_pool_keeps_the_file_that_it_comes_from(store: &dyn AnyStore) {
    let of_file = |name: &str, slots_before: Option<i64>| Pool {
        file: Some(PoolFile {
            name: "pools.yaml".to_owned(),
            slots_before,
        }),
        ..pool(name, 3)
    };
    let named = [of_file("default_pool", Some(128)), of_file("new", None)];
    for given in &named {
        store.set_pool(given).await.unwrap();
    }
    assert_eq!(store.load().await.unwrap().pools, named);
    store.set_pool(&pool("default_pool", 128)).await.unwrap();
    store.delete_pool("new").await.unwrap();
    let expected = [pool("default_pool", 128)];
    assert_eq!(store.load().await.unwrap().pools, expected);
}

async fn the_watch_position_is_the_last_one_committed(store: &dyn AnyStore) {
    let seen = |position: &str| Changes {
        watch_position: Some(position.to_owned()),
        ..Changes::default()
    };
    for position in ["10", "9", "11"] {
        store.commit(&seen(position)).await.unwrap();
        let found = store.load().await.unwrap().watch_position;
        assert_eq!(found.as_deref(), Some(position));
    }
    store.commit(&runs([run("a")])).await.unwrap();
    let stale = Changes {
        watch_position: Some("12".to_owned()),
        ..runs([run("a")])
    };
    let refused = store.commit(&stale).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    assert_eq!(
        store.load().await.unwrap().watch_position.as_deref(),
        Some("11")
    );
}
