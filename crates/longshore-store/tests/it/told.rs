//! Told rows, on every engine: what workers and users write beside the scheduler.

use std::sync::Arc;

use longshore_core::{Class, Classify as _};
use longshore_store::{
    Changes, Event, EventFilter, FromTry, Heartbeat, MappedLength, Rendered, Run, Sealed, Shared,
    StoreError, StoredConnection, StoredVariable, TaskInstance, TellError, XCom, XComKey,
};
use uuid::Uuid;

use crate::{
    samples::{archive, at, next_try, run, run_key, runs, stored, task, tasks},
    stores::{AnyStore, on_every_engine},
};

on_every_engine!(
    an_earlier_try_writes_nothing_and_is_told_so,
    an_xcom_is_replaced_and_goes,
    xcoms_of_a_mapped_task_are_read_by_their_place,
    an_xcom_of_an_earlier_run_is_the_latest_one,
    rendered_fields_and_the_name_of_an_index_are_kept_by_try,
    a_task_instance_keeps_its_state_from_try_to_try,
    variables_are_replaced_listed_and_go,
    a_connection_comes_back_whole_and_goes,
    events_are_counted_and_listed_latest_first,
    no_start_reads_what_was_told,
    nul_bytes_are_replaced_and_found_again,
    heartbeats_are_written_for_current_tries_and_forgotten,
);

/// A run `a` with task `load` in its second try: the ids of both tries.
async fn two_tries(store: &dyn AnyStore) -> (Uuid, Uuid) {
    let first = task("a", "load");
    let changes = Changes {
        task_instances: vec![first.clone()],
        ..runs([run("a")])
    };
    store.commit(&changes).await.unwrap();
    let ended = stored(&first);
    let second = next_try(&ended);
    let changes = Changes {
        archived: archive([ended]),
        ..tasks([second.clone()])
    };
    store.commit(&changes).await.unwrap();
    (first.id, second.id)
}

fn key(run_id: &str, task_id: &str, key: &str) -> XComKey {
    XComKey {
        run: run_key(run_id),
        task_id: task_id.to_owned(),
        key: key.to_owned(),
    }
}

fn xcom(key: &XComKey, map_index: i32, value: &str) -> XCom {
    XCom {
        key: key.clone(),
        map_index,
        value: value.into(),
        mapped_length: None,
        is_dag_result: false,
        written_at: at(1),
    }
}

fn variable(key: &str, value: &str) -> StoredVariable {
    StoredVariable {
        key: key.to_owned(),
        value: Sealed::plain(value.to_owned()),
        description: None,
    }
}

fn connection(conn_id: &str) -> StoredConnection {
    StoredConnection {
        conn_id: conn_id.to_owned(),
        conn_type: "http".to_owned(),
        description: None,
        host: None,
        schema: None,
        login: None,
        port: None,
        password: None,
        extra: None,
    }
}

/// Something that happened, about nothing.
pub(crate) fn event(name: &str) -> Shared {
    Shared::Event(bare_event(name))
}

fn bare_event(name: &str) -> Event {
    Event {
        at: at(1),
        event: name.to_owned(),
        dag_id: None,
        run_id: None,
        task_id: None,
        map_index: None,
        try_number: None,
        owner: None,
        extra: None,
    }
}

fn state(key: &str, value: &str) -> FromTry {
    FromTry::State {
        key: key.to_owned(),
        value: value.into(),
        expires_at: None,
    }
}

/// Everything that a worker can write.
fn all_writes(of: &XComKey) -> Vec<FromTry> {
    vec![
        FromTry::XCom(xcom(of, -1, "1")),
        FromTry::NoXCom {
            key: of.clone(),
            map_index: -1,
        },
        FromTry::RenderedFields("{}".into()),
        FromTry::MapIndexLabel("x".to_owned()),
        state("k", "1"),
        FromTry::NoState(Some("k".to_owned())),
        FromTry::NoState(None),
        FromTry::Shared(Shared::Variable(variable("k", "v"))),
        FromTry::Shared(Shared::NoVariable("k".to_owned())),
        FromTry::Shared(Shared::Connection(connection("c"))),
        FromTry::Shared(Shared::NoConnection("c".to_owned())),
        FromTry::Shared(event("running")),
    ]
}

/// All told values that the test of earlier tries touches.
async fn values(store: &dyn AnyStore, of: &XComKey, ids: [Uuid; 2]) -> String {
    let events = EventFilter {
        limit: 10,
        ..EventFilter::default()
    };
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        store.xcom(of, -1).await.unwrap(),
        store.rendered(ids[0]).await.unwrap(),
        store.rendered(ids[1]).await.unwrap(),
        store.task_state(ids[1], "k", at(0)).await.unwrap(),
        store.variable("k").await.unwrap(),
        store.connection("c").await.unwrap(),
        store.events(&events).await.unwrap(),
    )
}

async fn an_earlier_try_writes_nothing_and_is_told_so(store: &dyn AnyStore) {
    let (old, new) = two_tries(store).await;
    let of = key("a", "load", "return_value");
    let nobody = Uuid::nil();
    // Once with nothing there, once with something of each kind there.
    for _ in 0..2 {
        let before = values(store, &of, [old, new]).await;
        for what in all_writes(&of) {
            let error = store.tell(old, what.clone()).await.unwrap_err();
            assert!(
                matches!(error, TellError::Earlier { id } if id == old),
                "{what:?}"
            );
            assert_eq!(error.class(), Class::Invalid);
            let error = store.tell(nobody, what.clone()).await.unwrap_err();
            assert!(
                matches!(error, TellError::Unknown { id } if id == nobody),
                "{what:?}"
            );
        }
        assert_eq!(values(store, &of, [old, new]).await, before);
        for what in all_writes(&of) {
            let is_deletion = matches!(
                what,
                FromTry::NoXCom { .. }
                    | FromTry::NoState(_)
                    | FromTry::Shared(Shared::NoVariable(_) | Shared::NoConnection(_))
            );
            if !is_deletion {
                assert_eq!(store.tell(new, what).await.unwrap(), 1);
            }
        }
        assert_ne!(values(store, &of, [old, new]).await, before);
    }
}

async fn an_xcom_is_replaced_and_goes(store: &dyn AnyStore) {
    let (_, id) = two_tries(store).await;
    let of = key("a", "load", "return_value");
    let task_key = run_key("a").task("load");
    assert_eq!(store.xcom(&of, -1).await.unwrap(), None);
    let numbers = XCom {
        mapped_length: Some(3),
        is_dag_result: true,
        ..xcom(&of, -1, "[1, 2.50, {\"b\": 1, \"a\": 2}]")
    };
    let other = xcom(&key("a", "load", "other"), -1, "null");
    for written in [xcom(&of, -1, "\"\\u0000\""), numbers.clone(), other] {
        let value = Arc::clone(&written.value);
        let name = written.key.clone();
        let n_rows = store.tell(id, FromTry::XCom(written)).await.unwrap();
        assert_eq!(n_rows, 1);
        assert_eq!(store.xcom(&name, -1).await.unwrap(), Some(value));
    }
    assert_eq!(
        store.xcom_keys(&task_key).await.unwrap(),
        ["other", "return_value"]
    );
    let length = MappedLength {
        task_id: "load".to_owned(),
        map_index: -1,
        key: "return_value".to_owned(),
        length: 3,
    };
    assert_eq!(store.mapped_lengths(&run_key("a")).await.unwrap(), [length]);
    assert_eq!(store.mapped_lengths(&run_key("b")).await.unwrap(), []);
    for n_rows in [1, 0] {
        let gone = FromTry::NoXCom {
            key: of.clone(),
            map_index: -1,
        };
        assert_eq!(store.tell(id, gone).await.unwrap(), n_rows);
        assert_eq!(store.xcom(&of, -1).await.unwrap(), None);
    }
    assert_eq!(store.xcom_keys(&task_key).await.unwrap(), ["other"]);
    let of_nothing = FromTry::XCom(xcom(&key("x", "load", "k"), -1, "1"));
    let error = store.tell(id, of_nothing).await.unwrap_err();
    let TellError::Store(StoreError::Conflict { what }) = error else {
        panic!("{error}");
    };
    assert_eq!(what, "run sales/x");
}

async fn xcoms_of_a_mapped_task_are_read_by_their_place(store: &dyn AnyStore) {
    let (_, id) = two_tries(store).await;
    let of = key("a", "load", "return_value");
    for index in [10, 2, 0, 7] {
        let written = xcom(&of, index, &index.to_string());
        store.tell(id, FromTry::XCom(written)).await.unwrap();
    }
    let other = xcom(&key("a", "load", "other"), 1, "1");
    store.tell(id, FromTry::XCom(other)).await.unwrap();
    assert_eq!(store.count_xcoms(&of).await.unwrap(), 4);
    let cases = [
        (0, 9, "0 2 7 10"),
        (1, 2, "2 7"),
        (3, 1, "10"),
        (4, 1, ""),
        (u64::MAX, 1, ""),
        (0, 0, ""),
    ];
    for (from, limit, expected) in cases {
        let found = store.xcoms(&of, from, limit).await.unwrap();
        assert_eq!(found.join(" "), expected, "{from} {limit}");
    }
    assert_eq!(store.xcom(&of, 7).await.unwrap().as_deref(), Some("7"));
    assert_eq!(store.xcom(&of, -1).await.unwrap(), None);
}

async fn an_xcom_of_an_earlier_run_is_the_latest_one(store: &dyn AnyStore) {
    let about = |run_id: &str, day: i64| Run {
        logical_date: Some(at(day)),
        ..run(run_id)
    };
    let all = ["1", "2", "3", "4", "5"].map(|n| about(n, n.parse().unwrap()));
    let writer = task("1", "load");
    let changes = Changes {
        task_instances: vec![writer.clone()],
        ..runs(all.into_iter().chain([run("timeless")]))
    };
    store.commit(&changes).await.unwrap();
    for run_id in ["2", "3", "5"] {
        let written = xcom(&key(run_id, "load", "k"), -1, run_id);
        store.tell(writer.id, FromTry::XCom(written)).await.unwrap();
    }
    let cases = [
        ("1", None),
        ("2", Some("2")),
        ("3", Some("3")),
        ("4", Some("3")),
        ("5", Some("5")),
        ("timeless", None),
    ];
    for (run_id, expected) in cases {
        let of = key(run_id, "load", "k");
        let found = store.xcom_of_this_or_earlier_runs(&of, -1).await.unwrap();
        assert_eq!(found.as_deref(), expected, "{run_id}");
        let other = key(run_id, "save", "k");
        let found = store.xcom_of_this_or_earlier_runs(&other, -1).await;
        assert_eq!(found.unwrap(), None);
    }
}

async fn rendered_fields_and_the_name_of_an_index_are_kept_by_try(store: &dyn AnyStore) {
    let (old, id) = two_tries(store).await;
    assert_eq!(store.rendered(id).await.unwrap(), Rendered::default());
    let label = FromTry::MapIndexLabel("Paris".to_owned());
    store.tell(id, label).await.unwrap();
    for fields in ["{\"sql\": \"SELECT 1\"}", "{}"] {
        let what = FromTry::RenderedFields(fields.into());
        store.tell(id, what).await.unwrap();
        let expected = Rendered {
            fields: Some(fields.into()),
            map_index_label: Some("Paris".to_owned()),
        };
        assert_eq!(store.rendered(id).await.unwrap(), expected);
    }
    assert_eq!(store.rendered(old).await.unwrap(), Rendered::default());
}

async fn a_task_instance_keeps_its_state_from_try_to_try(store: &dyn AnyStore) {
    let (old, id) = two_tries(store).await;
    let expiring = FromTry::State {
        key: "page".to_owned(),
        value: "2".into(),
        expires_at: Some(at(60)),
    };
    for (what, expected) in [(state("page", "1"), "1"), (expiring, "2")] {
        store.tell(id, what).await.unwrap();
        // A task instance is known by all of its tries.
        for reader in [old, id] {
            let found = store.task_state(reader, "page", at(59)).await.unwrap();
            assert_eq!(found.as_deref(), Some(expected));
        }
    }
    assert_eq!(store.task_state(id, "page", at(60)).await.unwrap(), None);
    assert_eq!(
        store.task_state(Uuid::nil(), "page", at(0)).await.unwrap(),
        None
    );
    let current = store.try_by_id(id).await.unwrap().unwrap();
    let third = next_try(&current);
    let changes = Changes {
        archived: archive([current]),
        ..tasks([third.clone()])
    };
    store.commit(&changes).await.unwrap();
    let found = store.task_state(third.id, "page", at(0)).await.unwrap();
    assert_eq!(found.as_deref(), Some("2"));
    store.tell(third.id, state("other", "3")).await.unwrap();
    let one = FromTry::NoState(Some("page".to_owned()));
    assert_eq!(store.tell(third.id, one.clone()).await.unwrap(), 1);
    assert_eq!(store.tell(third.id, one).await.unwrap(), 0);
    let found = store.task_state(third.id, "other", at(0)).await.unwrap();
    assert_eq!(found.as_deref(), Some("3"));
    store.tell(third.id, state("page", "4")).await.unwrap();
    let all = FromTry::NoState(None);
    assert_eq!(store.tell(third.id, all).await.unwrap(), 2);
}

async fn variables_are_replaced_listed_and_go(store: &dyn AnyStore) {
    let secret = StoredVariable {
        value: Sealed::encrypted("gAAAA".to_owned()),
        description: Some("of the shop".to_owned()),
        ..variable("shop/b", "")
    };
    for key in ["shop/a", "shop/c", "shüp/d", "sh_p/e"] {
        let what = Shared::Variable(variable(key, "1"));
        store.keep(what).await.unwrap();
    }
    store.keep(Shared::Variable(secret.clone())).await.unwrap();
    assert_eq!(
        store.variable("shop/b").await.unwrap(),
        Some(secret.clone())
    );
    assert!(!format!("{secret:?}").contains("gAAAA"));
    // A task sets a value; the description is that of the user.
    let set = Shared::Variable(variable("shop/b", "2"));
    store.keep(set).await.unwrap();
    let expected = StoredVariable {
        value: Sealed::plain("2".to_owned()),
        ..secret
    };
    assert_eq!(store.variable("shop/b").await.unwrap(), Some(expected));
    let cases = [
        ("shop/", 0, 9, "shop/a shop/b shop/c", 3),
        ("shop/", 1, 1, "shop/b", 3),
        ("shü", 0, 9, "shüp/d", 1),
        ("sh_", 0, 9, "sh_p/e", 1),
        ("%", 0, 9, "", 0),
        ("", 3, 9, "shop/c shüp/d", 5),
    ];
    for (prefix, from, limit, expected, n_all) in cases {
        let found = store.variable_keys(prefix, from, limit).await.unwrap();
        assert_eq!(found.keys.join(" "), expected, "{prefix}");
        assert_eq!(found.n_all, n_all, "{prefix}");
    }
    for n_rows in [1, 0] {
        let gone = Shared::NoVariable("shop/b".to_owned());
        assert_eq!(store.keep(gone).await.unwrap(), n_rows);
    }
    assert_eq!(store.variable("shop/b").await.unwrap(), None);
}

async fn a_connection_comes_back_whole_and_goes(store: &dyn AnyStore) {
    let full = StoredConnection {
        description: Some("the shop".to_owned()),
        host: Some("db.example".to_owned()),
        schema: Some("shop".to_owned()),
        login: Some("anna".to_owned()),
        port: Some(5432),
        password: Some(Sealed::encrypted("gAAAA1".to_owned())),
        extra: Some(Sealed::plain("{\"sslmode\": \"require\"}".to_owned())),
        ..connection("shop")
    };
    let secret_extra = StoredConnection {
        password: Some(Sealed::plain("open".to_owned())),
        extra: Some(Sealed::encrypted("gAAAA2".to_owned())),
        ..full.clone()
    };
    for given in [connection("shop"), full, secret_extra, connection("shop")] {
        assert!(!format!("{given:?}").contains("gAAAA"));
        let what = Shared::Connection(given.clone());
        store.keep(what).await.unwrap();
        assert_eq!(store.connection("shop").await.unwrap(), Some(given));
    }
    for n_rows in [1, 0] {
        let gone = Shared::NoConnection("shop".to_owned());
        assert_eq!(store.keep(gone).await.unwrap(), n_rows);
    }
    assert_eq!(store.connection("shop").await.unwrap(), None);
}

async fn events_are_counted_and_listed_latest_first(store: &dyn AnyStore) {
    let full = Event {
        dag_id: Some("sales".to_owned()),
        run_id: Some("a".to_owned()),
        task_id: Some("load".to_owned()),
        map_index: Some(-1),
        try_number: Some(2),
        owner: Some("anna".to_owned()),
        extra: Some("{}".to_owned()),
        ..bare_event("running")
    };
    let of_other = Event {
        dag_id: Some("costs".to_owned()),
        ..bare_event("paused")
    };
    for given in [full.clone(), bare_event("started"), of_other, full.clone()] {
        assert_eq!(store.keep(Shared::Event(given)).await.unwrap(), 1);
    }
    let filter = |dag_id: Option<&str>, before, limit| EventFilter {
        dag_id: dag_id.map(str::to_owned),
        before,
        limit,
        ..EventFilter::default()
    };
    let cases = [
        (filter(None, None, 9), vec![4, 3, 2, 1]),
        (filter(None, Some(4), 2), vec![3, 2]),
        (filter(Some("sales"), None, 9), vec![4, 1]),
        (filter(Some("sales"), Some(4), 9), vec![1]),
        (filter(Some("x"), None, 9), vec![]),
    ];
    for (filter, expected) in cases {
        let found = store.events(&filter).await.unwrap();
        let ids: Vec<i64> = found.iter().map(|it| it.id).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
    let of_task = EventFilter {
        run_id: Some("a".to_owned()),
        task_id: Some("load".to_owned()),
        ..filter(None, None, 1)
    };
    assert_eq!(store.events(&of_task).await.unwrap()[0].event, full);
}

async fn no_start_reads_what_was_told(store: &dyn AnyStore) {
    let (_, id) = two_tries(store).await;
    let before = store.load().await.unwrap();
    for what in all_writes(&key("a", "load", "k")) {
        store.tell(id, what).await.unwrap();
    }
    assert_eq!(store.load().await.unwrap(), before);
    let second: Vec<TaskInstance> = before.task_instances;
    assert_eq!(second[0].version, 2);
}

async fn nul_bytes_are_replaced_and_found_again(store: &dyn AnyStore) {
    let (_, id) = two_tries(store).await;
    let set = Shared::Variable(variable("a\0b", "x\0y"));
    store.tell(id, FromTry::Shared(set)).await.unwrap();
    let found = store.variable("a\0b").await.unwrap().unwrap();
    assert_eq!(
        (found.key.as_str(), found.value.text()),
        ("a\u{fffd}b", "x\u{fffd}y")
    );
    let of = key("a", "load", "k\0");
    store
        .tell(id, FromTry::XCom(xcom(&of, -1, "1")))
        .await
        .unwrap();
    assert!(store.xcom(&of, -1).await.unwrap().is_some());
}

async fn heartbeats_are_written_for_current_tries_and_forgotten(store: &dyn AnyStore) {
    let (old, id) = two_tries(store).await;
    let many: Vec<TaskInstance> = (0..250).map(|n| task("a", &n.to_string())).collect();
    store.commit(&tasks(many.clone())).await.unwrap();
    let before = store.load().await.unwrap();
    let heard = |id, seconds| Heartbeat {
        id,
        at: at(seconds),
    };
    let all = many.iter().map(|it| heard(it.id, 0));
    let all: Vec<_> = all
        .chain([heard(old, 0), heard(Uuid::nil(), 0), heard(id, 1)])
        .collect();
    assert_eq!(store.note_heartbeats(&[]).await.unwrap(), 0);
    assert_eq!(store.note_heartbeats(&all).await.unwrap(), 251);
    for (of, expected) in [(id, Some(at(1))), (many[249].id, Some(at(0))), (old, None)] {
        assert_eq!(store.last_heartbeat(of).await.unwrap(), expected);
    }
    let later = [heard(id, 3_601)];
    assert_eq!(store.note_heartbeats(&later).await.unwrap(), 1);
    assert_eq!(store.last_heartbeat(id).await.unwrap(), Some(at(3_601)));
    assert_eq!(store.last_heartbeat(many[0].id).await.unwrap(), None);
    // No heartbeat changes a row that the scheduler has in memory.
    assert_eq!(store.load().await.unwrap(), before);
}
