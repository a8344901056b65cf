//! What refuses a commit, and that a refused commit leaves nothing behind.

use longshore_store::{Changes, Run, StoreError, TaskInstance};

use crate::{
    samples::{archive, next_try, run, run_key, runs, task, tasks},
    stores::{AnyStore, on_every_engine},
};

on_every_engine!(
    a_run_that_is_not_as_given_is_a_conflict,
    a_task_instance_that_is_not_as_given_is_a_conflict,
    an_id_that_is_taken_is_a_conflict,
    a_conflict_far_down_a_long_commit_takes_all_of_it_back,
);

/// What the cases start from: run `a` with task instances `load` (at version 2, one archived try) and `save`.
struct World {
    load: TaskInstance,
    save: TaskInstance,
    archived: TaskInstance,
}

async fn world(store: &dyn AnyStore) -> World {
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

fn with_id(of: &TaskInstance, to: &TaskInstance) -> TaskInstance {
    TaskInstance {
        id: of.id,
        ..to.clone()
    }
}

fn only_archived(task: &TaskInstance) -> Changes {
    Changes {
        archived: archive([task.clone()]),
        ..Changes::default()
    }
}

/// Commits each with good changes around it; it must be refused with that row's name, and change nothing.
async fn refused(store: &dyn AnyStore, world: &World, cases: Vec<(&str, Changes, &str)>) {
    let before = store.load().await.unwrap();
    let history = store.history(&run_key("a")).await.unwrap();
    for (name, mut changes, expected) in cases {
        changes.runs.insert(0, run("good"));
        changes.task_instances.insert(0, task("a", "good"));
        if !changes
            .task_instances
            .iter()
            .any(|task| task.key == world.save.key)
        {
            let good = TaskInstance {
                launch: 9,
                ..world.save.clone()
            };
            changes.task_instances.push(good);
        }
        changes.archived.extend(archive([task("a", "good")]));
        changes.watch_position = Some("77".to_owned());
        match store.commit(&changes).await {
            Err(StoreError::Conflict { what }) => assert_eq!(what, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(store.load().await.unwrap(), before, "{name}");
        assert_eq!(
            store.history(&run_key("a")).await.unwrap(),
            history,
            "{name}"
        );
    }
}

async fn a_run_that_is_not_as_given_is_a_conflict(store: &dyn AnyStore) {
    let world = world(store).await;
    let a = |version| Run {
        version,
        ..run("a")
    };
    let x = |version| Run {
        version,
        ..run("x")
    };
    let cases = vec![
        ("inserted again", runs([a(0)]), "run sales/a"),
        ("too old", runs([a(-1)]), "run sales/a"),
        ("too new", runs([a(2)]), "run sales/a"),
        ("unknown, updated", runs([x(1)]), "run sales/x"),
        ("given twice", runs([a(1), a(1)]), "run sales/a"),
        (
            "given twice, in sequence",
            runs([a(1), a(2)]),
            "run sales/a",
        ),
        ("new, given twice", runs([x(0), x(0)]), "run sales/x"),
        (
            "new, given twice, in sequence",
            runs([x(0), x(1)]),
            "run sales/x",
        ),
    ];
    refused(store, &world, cases).await;
}

async fn a_task_instance_that_is_not_as_given_is_a_conflict(store: &dyn AnyStore) {
    let world = world(store).await;
    let load = |version| at_version(&world.load, version);
    let new = |version| at_version(&task("a", "x"), version);
    let known = "task instance sales/a/load";
    let unknown = "task instance sales/a/x";
    let cases = vec![
        ("inserted again", tasks([next_try(&load(0))]), known),
        ("too old", tasks([load(1)]), known),
        ("too new", tasks([load(3)]), known),
        ("given twice", tasks([load(2), load(2)]), known),
        ("given twice, in sequence", tasks([load(2), load(3)]), known),
        ("new, given twice", tasks([new(0), new(0)]), unknown),
        (
            "new, given twice, in sequence",
            tasks([new(0), new(1)]),
            unknown,
        ),
        ("unknown, updated", tasks([new(1)]), unknown),
        (
            "of an unknown run",
            tasks([task("x", "load")]),
            "run sales/x",
        ),
    ];
    refused(store, &world, cases).await;
}

async fn an_id_that_is_taken_is_a_conflict(store: &dyn AnyStore) {
    let world = world(store).await;
    let World {
        load,
        save,
        archived,
    } = &world;
    let new = task("a", "x");
    let name = |task: &TaskInstance, of: &TaskInstance| {
        format!("try {} of task instance {}", task.id, of.key)
    };
    let cases = [
        (
            "archived, of an unknown run",
            only_archived(&task("x", "load")),
            "run sales/x".to_owned(),
        ),
        (
            "archived again",
            only_archived(archived),
            name(archived, load),
        ),
        (
            "archived, but still current",
            only_archived(load),
            name(load, load),
        ),
        (
            "of another task instance",
            tasks([with_id(save, load)]),
            name(save, load),
        ),
        (
            "of an archived try",
            tasks([with_id(archived, load)]),
            name(archived, load),
        ),
        (
            "new with that of another",
            tasks([with_id(load, &new)]),
            name(load, &new),
        ),
        (
            "new with that of an archived try",
            tasks([with_id(archived, &new)]),
            name(archived, &new),
        ),
        (
            "exchanged",
            tasks([with_id(save, load), with_id(load, save)]),
            name(save, load),
        ),
    ];
    let cases = cases.iter();
    let cases = cases.map(|(name, changes, what)| (*name, changes.clone(), what.as_str()));
    refused(store, &world, cases.collect()).await;
}

async fn a_conflict_far_down_a_long_commit_takes_all_of_it_back(store: &dyn AnyStore) {
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
