//! What refuses a commit, and that a refused commit leaves nothing behind.

use longshore_store::{Changes, Run, RunStore, StoreError, TaskInstance};

use crate::samples::{archive, next_try, run, run_key, runs, task, tasks};
use crate::stores::on_every_engine;

on_every_engine!(
    a_stale_row_refuses_the_whole_commit_and_is_named,
    a_conflict_far_down_a_long_commit_takes_all_of_it_back,
);

/// What the cases start from: run `a` with task instances `load` (at version 2, one archived try) and `save`.
struct World {
    load: TaskInstance,
    save: TaskInstance,
    archived: TaskInstance,
}

async fn world(store: &dyn RunStore) -> World {
    let (first, save) = (task("a", "load"), task("a", "save"));
    let changes = Changes {
        task_instances: vec![first.clone(), save.clone()],
        ..runs([run("a")])
    };
    store.commit(&changes).await.unwrap();
    let archived = TaskInstance {
        version: 1,
        ..first
    };
    let load = next_try(&archived);
    let changes = Changes {
        archived: archive([archived.clone()]),
        ..tasks([load.clone()])
    };
    store.commit(&changes).await.unwrap();
    World {
        load: TaskInstance { version: 2, ..load },
        save: TaskInstance { version: 1, ..save },
        archived,
    }
}

fn at_version(task: &TaskInstance, version: i64) -> TaskInstance {
    TaskInstance {
        version,
        ..task.clone()
    }
}

async fn a_stale_row_refuses_the_whole_commit_and_is_named(store: &dyn RunStore) {
    let World {
        load,
        save,
        archived,
    } = world(store).await;
    let run_at = |version| Run {
        version,
        ..run("a")
    };
    let named_load = "task instance sales/a/load".to_owned();
    let try_of = |task: &TaskInstance, holder: &TaskInstance| {
        format!("try {} of task instance {}", task.id, holder.key)
    };
    let with_id = |of: &TaskInstance, to: &TaskInstance| TaskInstance {
        id: of.id,
        ..to.clone()
    };
    let only_archived = |task: &TaskInstance| Changes {
        archived: archive([task.clone()]),
        ..Changes::default()
    };
    let cases = [
        (
            "run inserted again",
            runs([run_at(0)]),
            "run sales/a".to_owned(),
        ),
        ("run too old", runs([run_at(-1)]), "run sales/a".to_owned()),
        ("run too new", runs([run_at(2)]), "run sales/a".to_owned()),
        (
            "unknown run updated",
            runs([Run {
                version: 1,
                ..run("x")
            }]),
            "run sales/x".to_owned(),
        ),
        (
            "run given twice",
            runs([run_at(1), run_at(1)]),
            "run sales/a".to_owned(),
        ),
        (
            "new run given twice",
            runs([run("x"), run("x")]),
            "run sales/x".to_owned(),
        ),
        (
            "task inserted again",
            tasks([at_version(&next_try(&load), 0)]),
            named_load.clone(),
        ),
        (
            "task too old",
            tasks([at_version(&load, 1)]),
            named_load.clone(),
        ),
        (
            "task too new",
            tasks([at_version(&load, 3)]),
            named_load.clone(),
        ),
        (
            "task given twice",
            tasks([load.clone(), load.clone()]),
            named_load.clone(),
        ),
        (
            "new task given twice",
            tasks([task("a", "x"), task("a", "x")]),
            "task instance sales/a/x".to_owned(),
        ),
        (
            "unknown task updated",
            tasks([at_version(&task("a", "x"), 1)]),
            "task instance sales/a/x".to_owned(),
        ),
        (
            "task of an unknown run",
            tasks([task("x", "load")]),
            "run sales/x".to_owned(),
        ),
        (
            "try of an unknown run",
            only_archived(&task("x", "load")),
            "run sales/x".to_owned(),
        ),
        (
            "archived again",
            only_archived(&archived),
            try_of(&archived, &load),
        ),
        (
            "current try archived but not left",
            only_archived(&load),
            try_of(&load, &load),
        ),
        (
            "id of another task instance",
            tasks([with_id(&save, &load)]),
            try_of(&save, &load),
        ),
        (
            "id of an archived try",
            tasks([with_id(&archived, &load)]),
            try_of(&archived, &load),
        ),
        (
            "new task with a used id",
            tasks([with_id(&save, &task("a", "x"))]),
            try_of(&save, &task("a", "x")),
        ),
    ];
    let before = store.load().await.unwrap();
    let history = store.history(&run_key("a")).await.unwrap();
    for (name, mut changes, expected) in cases {
        // Good changes around the bad one.
        changes.runs.insert(0, run("good"));
        changes.task_instances.insert(0, task("a", "good"));
        changes.task_instances.push(TaskInstance {
            launch: 9,
            ..save.clone()
        });
        changes
            .archived
            .push(archive([task("a", "good")]).remove(0));
        changes.watch_position = Some("77".to_owned());
        let refused = store.commit(&changes).await.unwrap_err();
        let StoreError::Conflict { what } = refused else {
            panic!("{name}: {refused}");
        };
        assert_eq!(what, expected, "{name}");
        assert_eq!(store.load().await.unwrap(), before, "{name}");
        assert_eq!(
            store.history(&run_key("a")).await.unwrap(),
            history,
            "{name}"
        );
    }
}

async fn a_conflict_far_down_a_long_commit_takes_all_of_it_back(store: &dyn RunStore) {
    world(store).await;
    let before = store.load().await.unwrap();
    let mut given: Vec<_> = (0..350).map(|n| task("a", &format!("task{n}"))).collect();
    given.push(task("a", "save"));
    let refused = store.commit(&tasks(given)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "task instance sales/a/save was changed by another writer since it was read; read it again"
    );
    assert_eq!(store.load().await.unwrap(), before);
}
