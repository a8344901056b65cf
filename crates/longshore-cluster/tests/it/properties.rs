//! Laws of lists, watches and patches under random concurrent writes.

use std::collections::BTreeMap;

use longshore_cluster::Cluster;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    harness::{Api, CONFIG_MAPS, config_map, revision},
    watch::Lines,
};

#[derive(Debug, Clone)]
enum Op {
    /// Creates or replaces the object of this number with this label.
    Put(u8, u8),
    Delete(u8),
    List,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4_u8, 0..3_u8).prop_map(|(name, label)| Op::Put(name, label)),
        2 => (0..4_u8).prop_map(Op::Delete),
        1 => Just(Op::List),
    ]
}

fn object(name: u8, label: u8, value: usize) -> Value {
    let mut object = config_map(&format!("o{name}"), &value.to_string());
    object["metadata"]["labels"] = json!({"l": label.to_string()});
    object
}

/// What one writer has learned.
#[derive(Default)]
struct Journal {
    /// Revisions of its own writes, deletions aside (their answers do not say).
    written: Vec<u64>,
    n_deleted: usize,
    lists: Vec<Value>,
}

async fn write(api: Api, writer: usize, ops: Vec<Op>) -> Journal {
    let mut journal = Journal::default();
    for (step, op) in ops.into_iter().enumerate() {
        match op {
            Op::Put(name, label) => {
                // Every value is written once, so that no write is a repetition.
                let object = object(name, label, writer * 1000 + step);
                let (code, answer) = match api.post(CONFIG_MAPS, object.clone()).await {
                    (409, _) => api.put(&format!("{CONFIG_MAPS}/o{name}"), object).await,
                    other => other,
                };
                if code < 300 {
                    journal.written.push(revision(&answer));
                }
            }
            Op::Delete(name) => {
                let (code, _) = api
                    .delete(&format!("{CONFIG_MAPS}/o{name}"), Value::Null)
                    .await;
                journal.n_deleted += usize::from(code == 200);
            }
            Op::List => journal.lists.push(api.get(CONFIG_MAPS).await.1),
        }
        tokio::task::yield_now().await;
    }
    journal
}

/// Type, name and revision of an event.
type SeenEvent = (String, String, u64);

fn seen(event: &Value) -> SeenEvent {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        text(&event["type"]),
        text(&event["object"]["metadata"]["name"]),
        revision(&event["object"]),
    )
}

/// Name of the object whose events end the watches; its label goes from the first to the last.
const END: &str = "end";
const LABELS: [&str; 3] = ["0", "1", "2"];

/// Everything a watch sends until the end mark of a label.
async fn read_until_end(mut lines: Lines, label: &'static str) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = lines.next().await {
        let metadata = &event["object"]["metadata"];
        match (metadata["name"] == END, metadata["labels"]["l"] == label) {
            (true, true) => break,
            (true, false) => {}
            (false, _) => events.push(event),
        }
    }
    events
}

async fn mark_end(api: &Api) {
    for label in LABELS {
        let mut mark = config_map(END, label);
        mark["metadata"]["labels"] = json!({"l": label});
        if api.post(CONFIG_MAPS, mark.clone()).await.0 == 409 {
            assert_eq!(api.put(&format!("{CONFIG_MAPS}/{END}"), mark).await.0, 200);
        }
    }
}

/// What a watcher of one label must have seen, by the log of all events.
fn project(log: &[Value], label: &str) -> Vec<SeenEvent> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut expected = Vec::new();
    for event in log {
        let (kind, name, revision) = seen(event);
        let now = event["object"]["metadata"]["labels"]["l"]
            .as_str()
            .unwrap()
            .to_owned();
        let was_in = labels.get(&name).is_some_and(|it| it == label);
        let is_in = kind != "DELETED" && now == label;
        let shown = match (was_in, is_in) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        };
        expected.extend(shown.map(|kind| (kind.to_owned(), name.clone(), revision)));
        if kind == "DELETED" {
            labels.remove(&name);
        } else {
            labels.insert(name, now);
        }
    }
    expected
}

/// Name and revision of every object after the events up to a revision.
fn state_at(log: &[Value], at: u64) -> BTreeMap<String, u64> {
    let mut state = BTreeMap::new();
    for (kind, name, revision) in log
        .iter()
        .map(seen)
        .filter(|(_, _, revision)| *revision <= at)
    {
        if kind == "DELETED" {
            state.remove(&name);
        } else {
            state.insert(name, revision);
        }
    }
    state
}

fn state_of(list: &Value) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().unwrap();
    let entry = |item: &Value| {
        (
            item["metadata"]["name"].as_str().unwrap().to_owned(),
            revision(item),
        )
    };
    items.iter().map(entry).collect()
}

fn path(options: &str) -> String {
    format!("{CONFIG_MAPS}?watch=true&{options}")
}

async fn watched(
    api: &Api,
    options: &str,
    end: &'static str,
) -> tokio::task::JoinHandle<Vec<Value>> {
    tokio::spawn(read_until_end(Lines::open(api, &path(options)).await, end))
}

async fn check_watches(writers: Vec<Vec<Op>>) {
    let api = Api::new(&Cluster::in_memory());
    let (_, list) = api.get(CONFIG_MAPS).await;
    let start = revision(&list);
    let everything = watched(&api, &format!("resourceVersion={start}"), "2").await;
    let mut selective = Vec::new();
    for label in LABELS {
        let options = format!("resourceVersion={start}&labelSelector=l%3D{label}");
        selective.push((label, watched(&api, &options, label).await));
    }
    let tasks: Vec<_> = writers
        .into_iter()
        .enumerate()
        .map(|(index, ops)| tokio::spawn(write(api.clone(), index, ops)))
        .collect();
    // Opened while the writers write: what it starts with and what follows must join without a
    // seam.
    tokio::task::yield_now().await;
    let late = watched(&api, "resourceVersion=0", "2").await;
    let journals = futures::future::try_join_all(tasks).await.unwrap();
    let (_, last) = api.get(CONFIG_MAPS).await;
    mark_end(&api).await;

    let log = everything.await.unwrap();
    let revisions: Vec<u64> = log.iter().map(|event| revision(&event["object"])).collect();
    assert!(revisions.is_sorted_by(|a, b| a < b), "order: {revisions:?}");
    let mut written: Vec<u64> = journals.iter().flat_map(|it| it.written.clone()).collect();
    written.sort_unstable();
    let put: Vec<u64> = log
        .iter()
        .map(seen)
        .filter(|it| it.0 != "DELETED")
        .map(|it| it.2)
        .collect();
    assert_eq!(put, written, "every write is seen once");
    let n_deleted: usize = journals.iter().map(|it| it.n_deleted).sum();
    assert_eq!(
        log.len() - put.len(),
        n_deleted,
        "every deletion is seen once"
    );

    for list in journals.iter().flat_map(|it| &it.lists).chain([&last]) {
        assert_eq!(
            state_of(list),
            state_at(&log, revision(list)),
            "a list is the state of its revision"
        );
    }
    for (label, events) in selective {
        let events: Vec<SeenEvent> = events.await.unwrap().iter().map(seen).collect();
        assert_eq!(events, project(&log, label), "selector {label}");
    }
    let late = sorted(late.await.unwrap());
    let seen_once = |pair: &[Value]| revision(&pair[0]["object"]) < revision(&pair[1]["object"]);
    assert!(
        late.windows(2).all(seen_once),
        "state and events overlap: {late:?}"
    );
    assert_eq!(
        state_at(&late, u64::MAX),
        state_of(&last),
        "a late watcher ends in the same state"
    );
    check_past(&api, &log).await;
    check_resumption(&api, &log).await;
}

/// Initial events come in the order of names; the state does not care.
fn sorted(mut events: Vec<Value>) -> Vec<Value> {
    events.sort_by_key(|event| revision(&event["object"]));
    events
}

/// An exact list of every revision is the state of that time.
async fn check_past(api: &Api, log: &[Value]) {
    for revision in log.iter().map(|event| revision(&event["object"])) {
        let exact = format!("{CONFIG_MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
        let (_, past) = api.get(&exact).await;
        assert_eq!(
            state_of(&past),
            state_at(log, revision),
            "the past at {revision}"
        );
    }
}

/// From every revision that was seen, a new watch goes on with exactly the rest.
async fn check_resumption(api: &Api, log: &[Value]) {
    for (index, event) in log.iter().enumerate() {
        let rest = &log[index + 1..];
        let from = format!("resourceVersion={}", revision(&event["object"]));
        let mut lines = Lines::open(api, &path(&from)).await;
        for expected in rest {
            assert_eq!(lines.next().await.as_ref(), Some(expected));
        }
    }
}

/// A small object or patch.
fn json_tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// A patch of containers and finalizers: lists with a key, and sets. Each key occurs once, and
/// nothing is both added and removed: such patches have no meaning.
fn keyed_patch() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let item = |(name, how): (&str, u8)| match how {
        0 => json!({"name": name, "$patch": "delete"}),
        1 => json!({"name": name, "image": null}),
        how => json!({
            "name": name, "image": how.to_string(), "env": [{"name": "E", "value": how.to_string()}],
        }),
    };
    let items = prop::collection::btree_map(name, 0..4_u8, 0..4);
    let finalizers = prop::collection::btree_map(
        prop::sample::select(vec!["x/a", "x/b", "x/c"]),
        any::<bool>(),
        0..3,
    );
    (items, finalizers).prop_map(move |(items, finalizers)| {
        let items: Vec<Value> = items.into_iter().map(item).collect();
        let chosen = |is_added: bool| -> Vec<&str> {
            finalizers.iter().filter(|(_, added)| **added == is_added).map(|(name, _)| *name).collect()
        };
        json!({
            "metadata": {"finalizers": chosen(true), "$deleteFromPrimitiveList/finalizers": chosen(false)},
            "data": {"containers": items},
        })
    })
}

async fn check_idempotence(language: &str, patch: Value) {
    let api = Api::new(&Cluster::in_memory());
    let path = format!("{CONFIG_MAPS}/a");
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let (code, once) = api.patch(language, &path, patch.clone()).await;
    assert!(code == 200 || code == 400, "{once}");
    let (_, twice) = api.patch(language, &path, patch.clone()).await;
    assert_eq!(once, twice, "{language} {patch}");
}

fn run(property: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true);
    runtime.build().unwrap().block_on(property);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn watchers_see_exactly_what_was_written(
        writers in prop::collection::vec(prop::collection::vec(op(), 1..25), 1..4)
    ) {
        // Real threads, so that writes race.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
        runtime.block_on(check_watches(writers));
    }

    #[test]
    fn merge_patches_are_idempotent(patch in json_tree()) {
        run(check_idempotence("merge", json!({"data": {"tree": patch}})));
    }

    #[test]
    fn strategic_patches_are_idempotent(patch in keyed_patch()) {
        run(check_idempotence("strategic", patch));
    }
}
