//! What tasks are mapped over, and into how many instances.

use serde_json::json;

use super::*;

/// The lengths that are known in these tests.
fn known(task_id: &str) -> Option<u64> {
    match task_id {
        "lst" => Some(3),
        "gen" => Some(5),
        "nothing" => Some(0),
        _ => None,
    }
}

fn reference(task_id: &str) -> Value {
    json!({"task_id": task_id, "key": "return_value"})
}

/// A DAG whose `mp` is mapped over something else, and that also has `gen`, `nothing` and `late`.
fn mapped_over(expand_input: Value) -> Document {
    let mut value = json("zoo");
    let tasks = value["dag"]["tasks"].as_array_mut().unwrap();
    let place = |tasks: &[Value], id: &str| {
        let mut tasks = tasks.iter();
        tasks
            .position(|task| task["__var"]["task_id"] == id)
            .unwrap()
    };
    for task_id in ["gen", "nothing", "late"] {
        let mut task = tasks[place(tasks, "lst")].clone();
        task["__var"]["task_id"] = task_id.into();
        tasks.push(task);
    }
    let mapped = place(tasks, "mp");
    tasks[mapped]["__var"]["op_kwargs_expand_input"] = expand_input;
    let document = Document::read(value.clone()).unwrap();
    assert_eq!(document.to_json(), value);
    document
}

/// How many instances `mp` has then.
fn length(expand_input: Value) -> Option<u64> {
    let document = mapped_over(expand_input);
    let task = document.dag.tasks.get("mp")?;
    document.dag.n_instances(task, &known)
}

fn product(arguments: Value) -> Value {
    json!({"type": "dict-of-lists", "value": {"__type": "dict", "__var": arguments}})
}

fn xcom(reference: Value) -> Value {
    json!({"__type": "xcomref", "__var": reference})
}

#[test]
fn the_examples_have_as_many_instances_as_airflow_makes() {
    let zoo = document("zoo");
    for (task_id, expected) in [
        ("start", Some(1)),
        ("mp", Some(3)),
        ("mb", Some(2)),
        ("tg.inner", Some(2)),
    ] {
        let task = zoo.dag.tasks.get(task_id).unwrap();
        assert_eq!(zoo.dag.n_instances(task, &known), expected, "{task_id}");
    }
    let mapped = zoo.dag.tasks.get("mp").unwrap();
    assert_eq!(zoo.dag.n_instances(mapped, &|_| None), None);
    let sources = mapped.expansion().unwrap().sources();
    let sources: Vec<_> = sources
        .iter()
        .map(|source| (source.task_id.as_str(), source.key.as_str()))
        .collect();
    assert_eq!(sources, [("lst", "return_value")]);
}

#[test]
fn lengths_multiply_and_wait_for_each_other() {
    let (lst, gen_, late) = (reference("lst"), reference("gen"), reference("late"));
    let of = |kind: &str, args: &[&Value]| json!({"type": kind, "args": args});
    for (input, expected) in [
        (product(json!({"a": [1, 2], "b": [1, 2, 3]})), Some(6)),
        (product(json!({"a": [1, 2], "b": []})), Some(0)),
        (product(json!({})), Some(0)),
        (
            product(
                json!({"a": {"__type": "dict", "__var": {"k": 1, "l": 2}}, "b": xcom(lst.clone())}),
            ),
            Some(6),
        ),
        (
            product(
                json!({"a": {"__type": "tuple", "__var": [1]}, "b": {"__type": "set", "__var": [1, 2]}}),
            ),
            Some(2),
        ),
        (
            product(json!({"a": xcom(lst.clone()), "b": xcom(late.clone())})),
            None,
        ),
        (
            product(json!({"a": xcom(json!({"type": "map", "arg": lst, "callables": ["f"]}))})),
            Some(3),
        ),
        (
            product(json!({"a": xcom(of("concat", &[&lst, &gen_]))})),
            Some(8),
        ),
        (
            product(json!({"a": xcom(of("concat", &[&lst, &late]))})),
            None,
        ),
        (
            product(json!({"a": xcom(of("zip", &[&lst, &gen_]))})),
            Some(3),
        ),
        (
            product(
                json!({"a": xcom(json!({"type": "zip", "args": [lst, gen_], "fillvalue": null}))}),
            ),
            Some(5),
        ),
        (
            product(json!({"a": xcom(of("zip", &[&late, &gen_]))})),
            None,
        ),
        (
            json!({"type": "list-of-dicts", "value": xcom(gen_.clone())}),
            Some(5),
        ),
        (
            json!({"type": "list-of-dicts", "value": xcom(reference("nothing"))}),
            Some(0),
        ),
        (json!({"type": "list-of-dicts", "value": []}), Some(0)),
        (
            json!({"type": "list-of-dicts", "value": [xcom(reference("late")), {"__type": "dict", "__var": {}}]}),
            Some(2),
        ),
    ] {
        assert_eq!(length(input.clone()), expected, "{input}");
    }
}

#[test]
fn a_reference_among_sets_of_arguments_is_a_source() {
    let sets = json!([xcom(reference("late")), {"__type": "dict", "__var": {"a": 1}}]);
    let document = mapped_over(json!({"type": "list-of-dicts", "value": sets}));
    let task = document.dag.tasks.get("mp").unwrap();
    let sources = task.expansion().unwrap().sources();
    assert_eq!(sources.len(), 1);
    assert_eq!(sources[0].task_id, "late");
}

#[test]
fn a_map_in_a_mapped_group_has_the_product_and_more_than_fits_is_the_largest_number() {
    let mut value = json("zoo");
    let group = &mut value["dag"]["task_group"]["children"]["tg"][1];
    let task = json!(["operator", "mp"]);
    group["children"]["mp"] = task;
    let root = value["dag"]["task_group"]["children"]
        .as_object_mut()
        .unwrap();
    root.remove("mp");
    let zoo = Document::read(value).unwrap();
    let mapped = zoo.dag.tasks.get("mp").unwrap();
    assert_eq!(zoo.dag.n_instances(mapped, &known), Some(6));
    let huge = |_: &str| Some(u64::MAX);
    assert_eq!(zoo.dag.n_instances(mapped, &huge), Some(u64::MAX));
}

#[test]
fn groups_are_found_from_the_root_down() {
    let zoo = document("zoo");
    for (task_id, expected) in [
        ("start", vec![None]),
        ("g1.x", vec![None, Some("g1")]),
        ("g1.inner.y", vec![None, Some("g1"), Some("inner")]),
        ("tg.inner", vec![None, Some("tg")]),
        ("gone", vec![]),
    ] {
        let groups = zoo.dag.groups_of(task_id);
        let ids: Vec<_> = groups
            .iter()
            .map(|group| group.group_id.as_deref())
            .collect();
        assert_eq!(ids, expected, "{task_id}");
    }
}

#[test]
fn upstream_is_downstream_turned_round() {
    let upstream = document("zoo");
    let upstream = upstream.dag.upstream();
    let of = |task_id: &str| upstream[task_id].iter().copied().collect::<Vec<_>>();
    assert_eq!(of("start"), [""; 0]);
    assert_eq!(of("g1.x"), ["start"]);
    assert_eq!(of("r_always"), ["g1.inner.y"]);
    assert_eq!(of("rm"), ["mk", "work"]);
}
