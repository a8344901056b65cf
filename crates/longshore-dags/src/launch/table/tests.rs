//! The tries with objects, and what is remembered of them.

use longshore_store::TaskState;
use serde_json::json;

use super::*;
use crate::test_rows::queued;

fn pod(name: &str) -> LaunchedPod {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "d", "uid": name}}))
        .unwrap()
}

fn row(id: Uuid) -> TaskInstance {
    let run = RunKey {
        dag_id: "dag".to_owned(),
        run_id: "run".to_owned(),
    };
    queued(id, &run, "task")
}

fn archived(row: TaskInstance) -> ArchivedTry {
    ArchivedTry { task_instance: row }
}

#[test]
fn rows_that_left_the_board_are_at_hand_until_their_last_object_is_gone() {
    let table = LaunchTable::new(1);
    let [with, without] = [Uuid::new_v4(), Uuid::new_v4()];
    table.insert(with, &pod("a"));
    table.insert(with, &pod("b"));
    table.tries_ended(&[archived(row(with)), archived(row(without))]);
    assert!(table.ended(&without).is_none(), "the try has no object");
    assert!(table.has_objects(&with) && !table.has_objects(&without));
    table.remove(with, &pod("a"));
    assert!(table.has_objects(&with));
    assert!(table.ended(&with).is_some());
    table.remove(with, &pod("b"));
    assert!(table.ended(&with).is_none());
    assert!(!table.has_objects(&with));
}

/// A run that was over goes on when a user clears it: the tries that are followed by others fail.
#[test]
fn the_newest_row_is_the_one_at_hand_and_none_is_after_a_reload() {
    let table = LaunchTable::new(1);
    let id = Uuid::new_v4();
    table.insert(id, &pod("a"));
    for state in [TaskState::Success, TaskState::Failed] {
        let row = TaskInstance {
            state: Some(state),
            ..row(id)
        };
        table.tries_ended(&[archived(row)]);
        assert_eq!(table.ended(&id).and_then(|row| row.state), Some(state));
    }
    table.rows_reloaded();
    assert!(table.ended(&id).is_none());
}

#[test]
fn an_object_is_there_unless_its_own_kind_was_listed_without_it() {
    let table = LaunchTable::new(1);
    let id = Uuid::new_v4();
    assert!(table.has(Launcher::Pod, &id, "u"), "nothing is listed yet");
    assert!(table.of(&id, None).is_unknown());
    assert!(
        !table.has(Launcher::TaskAction, &id, "u"),
        "no task needs them"
    );
    table.reach(Launcher::Pod, Stage::Listed);
    table.reach(Launcher::TaskAction, Stage::Wanted);
    assert!(!table.has(Launcher::Pod, &id, "u"));
    assert!(table.has(Launcher::TaskAction, &id, "u"));
    assert!(table.of(&id, None).is_unknown());
    table.reach(Launcher::TaskAction, Stage::Missing);
    assert!(table.of(&id, None).is_absent());
    table.insert(id, &pod("a"));
    assert!(table.of(&id, None).is_unknown(), "it is not in the cache");
    assert_eq!(table.ids(Launcher::Pod), [id]);
    assert!(table.ids(Launcher::TaskAction).is_empty());
}

#[test]
fn what_keeps_a_try_from_its_start_is_told_once_and_goes_with_its_objects() {
    let table = LaunchTable::new(1);
    let id = Uuid::new_v4();
    let object = pod("a");
    table.insert(id, &object);
    assert!(!table.note_pending(id, None));
    assert!(table.note_pending(id, Some("no room")));
    assert!(!table.note_pending(id, Some("no room")));
    assert!(table.note_pending(id, Some("no image")));
    assert_eq!(table.pending(&id).as_deref(), Some("no image"));
    assert!(table.note_pending(id, None));
    table.note_pending(id, Some("no room"));
    table.remove(id, &object);
    assert_eq!(table.pending(&id), None);
}

#[test]
fn the_newest_failed_objects_are_kept_and_the_others_are_too_many() {
    let failed = |name: &str, second: u32| -> LaunchedPod {
        let created = format!("2026-11-21T10:00:{second:02}Z");
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created},
            "status": {"phase": "Failed"},
        }))
        .unwrap()
    };
    let table = LaunchTable::new(2);
    let ids = [1, 2, 3, 4].map(Uuid::from_u128);
    let objects = [
        failed("a", 3),
        failed("b", 1),
        failed("c", 2),
        failed("d", 4),
    ];
    let surplus = |table: &LaunchTable| table.newest_surplus().map(|(_, uid)| uid);
    let given = ids.iter().zip(&objects);
    let found: Vec<_> = given
        .map(|(id, object)| table.insert(*id, object))
        .collect();
    // The oldest goes for the third, and the third for the fourth.
    assert_eq!(found, [None, None, Some(ids[1]), Some(ids[2])]);
    assert_eq!(surplus(&table).as_deref(), Some("c"));
    assert_eq!(table.insert(ids[3], &objects[3]), None, "known already");
    table.insert(Uuid::nil(), &pod("e"));
    assert_eq!(surplus(&table).as_deref(), Some("c"), "it has not failed");
    table.remove(ids[0], &objects[0]);
    assert_eq!(surplus(&table).as_deref(), Some("b"));
}

/// What the table keeps grows with the objects that there are, not with those that there were.
#[test]
fn of_tries_whose_objects_are_gone_nothing_is_kept() {
    const KEPT: usize = 2;
    let object = |n: u128, phase: &str| -> LaunchedPod {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("p{n}"), "uid": n.to_string(), "creationTimestamp": "2026-11-21T10:00:00Z",
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    };
    let left = |n_tries: u128| {
        let table = LaunchTable::new(KEPT);
        for n in 1..=n_tries {
            let id = Uuid::from_u128(n);
            table.insert(id, &object(n, "Pending"));
            table.note_pending(id, Some("no room"));
            table.insert(id, &object(n, "Running"));
            table.tries_ended(&[archived(row(id))]);
            if n % 2 == 0 {
                table.insert(id, &object(n, "Failed"));
            } else {
                table.remove(id, &object(n, "Succeeded"));
            }
        }
        while let Some((_, uid)) = table.newest_surplus() {
            let n = uid.parse().unwrap();
            table.remove(Uuid::from_u128(n), &object(n, "Failed"));
        }
        let known = table.known();
        (known.tries.len(), known.failed.len(), known.pending.len())
    };
    // Those that have failed and are kept say why they waited.
    assert_eq!(left(8), (KEPT, KEPT, KEPT));
    assert_eq!(left(4 * 8), left(8));
}
