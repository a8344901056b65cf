//! What cannot be read is refused, with its place.

use serde_json::json;

use super::*;

/// The error for a document with one member changed.
fn refused(name: &str, place: &str, changed: Value) -> String {
    let mut value = json(name);
    let (object, member) = place.rsplit_once('/').unwrap();
    let object = value.pointer_mut(object).unwrap();
    match member.parse::<usize>() {
        Ok(index) => object[index] = changed,
        Err(_) => object[member] = changed,
    }
    Document::read(value).unwrap_err().to_string()
}

#[test]
fn a_member_of_another_form_is_named() {
    for (name, place, changed, expected) in [
        (
            "t_daily",
            "/__version",
            json!(2),
            "at /__version: expected version 3 of the format, found 2: parse the DAG file again with Airflow 3.1 or newer",
        ),
        (
            "t_daily",
            "/dag",
            json!([]),
            "at /dag: expected an object, found []",
        ),
        (
            "t_daily",
            "/dag/start_date",
            json!("2026-01-01"),
            "at /dag/start_date: expected a moment in seconds since 1970, found \"2026-01-01\"",
        ),
        (
            "t_daily",
            "/dag/start_date",
            json!(1e300),
            "at /dag/start_date: expected a moment in seconds since 1970, found 1e+300",
        ),
        (
            "t_daily",
            "/dag/timetable/__var/timezone",
            json!(1.5),
            "at /dag/timetable/__var/timezone: expected the name of a time zone, or seconds east of UTC, found 1.5",
        ),
    ] {
        check(name, place, changed, expected);
    }
}

#[test]
fn a_member_of_a_task_of_another_form_is_named() {
    for (name, place, changed, expected) in [
        (
            "zoo",
            "/dag/tasks/0/__var/retries",
            json!("three"),
            "at /dag/tasks/0/__var/retries: expected a whole number, found \"three\"",
        ),
        (
            "zoo",
            "/dag/tasks/0/__type",
            json!("dict"),
            "at /dag/tasks/0: expected an object of `__type: operator` and `__var`",
        ),
        (
            "zoo",
            "/dag/tasks/3/__var/trigger_rule",
            json!("sometimes"),
            "at /dag/tasks/3/__var/trigger_rule: expected the name of a trigger rule, found \"sometimes\"",
        ),
        (
            "zoo",
            "/dag/params/0/0",
            json!(5),
            "at /dag/params/0/0: expected a text, found 5",
        ),
        (
            "zoo",
            "/dag/task_group/children/start",
            json!(["operation", "start"]),
            "at /dag/task_group/children/start/0: expected [\"operator\", id] or [\"taskgroup\", group], found \"operation\"",
        ),
        (
            "t_asset_and",
            "/dag/timetable/__var/asset_condition/objects/1/__type",
            json!("asset_none"),
            "at /dag/timetable/__var/asset_condition/objects/1/__type: expected the type of an asset, found \"asset_none\"",
        ),
    ] {
        check(name, place, changed, expected);
    }
}

fn check(name: &str, place: &str, changed: Value, expected: &str) {
    let error = refused(name, place, changed);
    let expected = format!("the serialized DAG cannot be read {expected}");
    assert!(error.starts_with(&expected), "{error}\n{expected}");
}

#[test]
fn a_member_that_is_missing_is_named_with_its_object() {
    let mut value = json("zoo");
    let task = value["dag"]["tasks"][4]["__var"].as_object_mut().unwrap();
    task.remove("task_type");
    let error = Document::read(value).unwrap_err();
    assert_eq!(error.at.as_str(), "/dag/tasks/4/__var");
    let member = "task_type";
    assert_eq!(error.problem, Problem::Missing { member });
}

#[test]
fn a_reference_to_nothing_is_refused() {
    let index = |task_id: &str| {
        let document = document("zoo");
        let mut tasks = document.dag.tasks.iter();
        tasks.position(|task| task.task_id == task_id).unwrap()
    };
    let start = format!("/dag/tasks/{}/__var", index("start"));
    let mapped = format!("/dag/tasks/{}/__var", index("mp"));
    let literal = format!("/dag/tasks/{}/__var", index("mb"));
    for (place, changed, at, problem) in [
        (
            format!("{start}/downstream_task_ids"),
            json!(["g1.x", "gone"]),
            format!("{start}/downstream_task_ids/1"),
            "expected the id of a task of this DAG, found \"gone\"",
        ),
        (
            format!("{start}/task_id"),
            json!("pod"),
            format!("/dag/tasks/{}/__var/task_id", index("pod")),
            "expected an id that is used once, found \"pod\" again",
        ),
        (
            format!("{mapped}/op_kwargs_expand_input/value/__var/a/__var/task_id"),
            json!("gone"),
            format!("{mapped}/op_kwargs_expand_input"),
            "expected the id of a task of this DAG, found \"gone\"",
        ),
        (
            format!("{mapped}/op_kwargs_expand_input/value/__var/a"),
            json!(5),
            format!("{mapped}/op_kwargs_expand_input/value/__var/a"),
            "expected something to map over, found 5",
        ),
        (
            format!("{mapped}/op_kwargs_expand_input"),
            json!(null),
            mapped.clone(),
            "expected a member `op_kwargs_expand_input`, found none",
        ),
        (
            format!("{literal}/expand_input/type"),
            json!("list"),
            format!("{literal}/expand_input/type"),
            "expected `dict-of-lists` or `list-of-dicts`, found \"list\"",
        ),
        (
            "/dag/task_group/children/g1/1/upstream_task_ids".to_owned(),
            json!(["gone"]),
            "/dag/task_group/children/g1/1/upstream_task_ids/0".to_owned(),
            "expected the id of a task of this DAG, found \"gone\"",
        ),
        (
            "/dag/task_group/children/g1/1/downstream_group_ids".to_owned(),
            json!(["g1.inner", "g2"]),
            "/dag/task_group/children/g1/1/downstream_group_ids/1".to_owned(),
            "expected the id of a task group of this DAG, found \"g2\"",
        ),
        (
            "/dag/task_group/children/start/1".to_owned(),
            json!("g1.x"),
            "/dag/task_group/children/start".to_owned(),
            "expected an id that is used once, found \"start\" again",
        ),
    ] {
        let error = refused("zoo", &place, changed);
        let expected = format!("the serialized DAG cannot be read at {at}: {problem}");
        assert_eq!(error, expected);
    }
}

#[test]
fn long_values_are_shown_shortened() {
    let error = refused("zoo", "/dag/dag_id", json!(vec![1; 1000]));
    assert!(error.len() < 200 && error.ends_with('…'), "{error}");
}
