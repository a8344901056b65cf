//! Dependencies between instances of mapped tasks.

use serde_json::json;

use super::*;

fn task(task_id: &str) -> Value {
    json!({"__type": "operator", "__var": {"task_id": task_id, "task_type": "T", "_task_module": "m"}})
}

fn mapped(task_id: &str, over: &Value) -> Value {
    let mut task = task(task_id);
    let members = task["__var"].as_object_mut().unwrap();
    members.insert("_is_mapped".to_owned(), json!(true));
    members.insert("_expand_input_attr".to_owned(), json!("expand_input"));
    members.insert("expand_input".to_owned(), product(over));
    task
}

fn product(over: &Value) -> Value {
    json!({"type": "dict-of-lists", "value": {"__type": "dict", "__var": {"x": over}}})
}

fn group(id: &str, over: Option<&Value>, children: Value) -> Value {
    let mut group = json!({"_group_id": id, "children": children});
    if let Some(over) = over {
        group["is_mapped"] = json!(true);
        group["expand_input"] = product(over);
    }
    json!(["taskgroup", group])
}

/// `gen` and `far` outside; the mapped group `g` (2 instances) with `a`, in a plain group `b`, and `m` that is mapped over
/// 3; `late` is mapped over what is not known; `h` is a group in `g`, mapped over `gen` (5), with `c` and `d`.
fn dag() -> Document {
    let xcom = |task_id: &str| json!({"__type": "xcomref", "__var": {"task_id": task_id, "key": "return_value"}});
    let leaf = |task_id: &str| json!(["operator", task_id]);
    let inner = group(
        "h",
        Some(&xcom("gen")),
        json!({"g.h.c": leaf("g.h.c"), "g.h.d": leaf("g.h.d")}),
    );
    let plain = group("p", None, json!({"g.p.b": leaf("g.p.b")}));
    let outer = group(
        "g",
        Some(&json!([1, 2])),
        json!({"g.a": leaf("g.a"), "g.p": plain, "g.m": leaf("g.m"), "g.h": inner, "g.late": leaf("g.late")}),
    );
    let three = json!([1, 2, 3]);
    Document::read(json!({"__version": 3, "dag": {
        "dag_id": "d", "fileloc": "d.py",
        "tasks": [
            task("gen"), task("far"), task("g.a"), task("g.p.b"), mapped("g.m", &three),
            mapped("g.late", &xcom("far")), task("g.h.c"), task("g.h.d"), mapped("many", &three),
        ],
        "task_group": {"_group_id": null, "children": {
            "gen": leaf("gen"), "far": leaf("far"), "many": leaf("many"), "g": outer,
        }},
    }}))
    .unwrap()
}

fn known(task_id: &str) -> Option<u64> {
    (task_id == "gen").then_some(5)
}

fn relevant(task_id: &str, map_index: i64, rule: TriggerRule, upstream: &str) -> Relevant {
    let document = dag();
    let of = |task_id: &str| document.dag.tasks.get(task_id).unwrap();
    let instance = Instance {
        task: of(task_id),
        map_index,
        trigger_rule: rule,
    };
    document.dag.relevant(instance, of(upstream), &known)
}

#[test]
fn instances_depend_on_those_of_their_own_expansion() {
    for (task_id, map_index, upstream, expected) in [
        // In the same group, one depends on one, in plain groups too.
        ("g.p.b", 1, "g.a", Relevant::Among(1..2)),
        ("g.a", 0, "g.p.b", Relevant::Among(0..1)),
        // On all of a task outside, and all of a mapped one.
        ("g.a", 1, "gen", Relevant::All),
        ("g.a", 1, "many", Relevant::All),
        ("far", -1, "g.a", Relevant::All),
        ("many", 2, "g.a", Relevant::All),
        // A mapped task in the group: instances 0 to 2 belong to the first.
        ("g.m", 2, "g.a", Relevant::Among(0..1)),
        ("g.m", 3, "g.a", Relevant::Among(1..2)),
        // Of a task that is mapped further, those of the same outer instance; but counted by the task's own number.
        ("g.a", 1, "g.m", Relevant::Among(1..2)),
        ("g.m", 4, "g.m", Relevant::Among(3..6)),
        // In the inner group: 10 instances, 5 in each of the outer.
        ("g.h.c", 7, "g.h.d", Relevant::Among(7..8)),
        ("g.h.c", 7, "g.a", Relevant::Among(1..2)),
        ("g.h.c", 7, "g.m", Relevant::Among(5..10)),
        // How many instances there will be is not known.
        ("g.late", 0, "g.a", Relevant::All),
    ] {
        let found = relevant(task_id, map_index, TriggerRule::AllSuccess, upstream);
        assert_eq!(found, expected, "{task_id}[{map_index}] on {upstream}");
    }
}

#[test]
fn an_instance_that_is_not_expanded_depends_on_no_expanded_one_unless_one_could_settle_it() {
    for (task_id, rule, upstream, expected) in [
        (
            "g.p.b",
            TriggerRule::AllSuccess,
            "g.a",
            Relevant::Among(-1..0),
        ),
        ("g.p.b", TriggerRule::AllDone, "g.m", Relevant::Among(-1..0)),
        ("g.p.b", TriggerRule::OneSuccess, "g.a", Relevant::All),
        ("g.p.b", TriggerRule::OneFailed, "g.a", Relevant::All),
        ("g.p.b", TriggerRule::OneDone, "g.a", Relevant::All),
        (
            "g.p.b",
            TriggerRule::NoneFailedMinOneSuccess,
            "g.a",
            Relevant::All,
        ),
        ("g.h.c", TriggerRule::OneSuccess, "gen", Relevant::All),
        ("many", TriggerRule::OneSuccess, "gen", Relevant::All),
    ] {
        let found = relevant(task_id, -1, rule, upstream);
        assert_eq!(found, expected, "{task_id} by {rule:?} on {upstream}");
    }
    let none = relevant("g.p.b", -1, TriggerRule::AllSuccess, "g.a");
    assert!(none.contains(-1) && !none.contains(0) && !none.contains(1));
    let one = relevant("g.p.b", 1, TriggerRule::AllSuccess, "g.a");
    assert!(one.contains(-1) && !one.contains(0) && one.contains(1));
    assert!(Relevant::All.contains(7) && Relevant::All.contains(-1));
}

#[test]
fn sources_of_a_mapping_are_those_of_the_task_or_of_its_innermost_mapped_group() {
    let document = dag();
    for (task_id, expected) in [
        ("gen", &[][..]),
        ("g.a", &[]),
        ("g.h.c", &["gen"]),
        ("g.late", &["far"]),
        ("many", &[]),
    ] {
        let task = document.dag.tasks.get(task_id).unwrap();
        let sources: Vec<&str> = document.dag.mapping_sources(task).into_iter().collect();
        assert_eq!(sources, expected, "{task_id}");
    }
}
