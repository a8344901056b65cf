//! What a scheduler reads of values that workers send.

use serde_json::json;

use super::*;

fn recorded() -> Value {
    serde_json::from_str(include_str!("../../testdata/serde/recorded.json")).unwrap()
}

fn object(class: &str, version: Value, data: Value) -> Value {
    json!({"__classname__": class, "__version__": version, "__data__": data})
}

#[test]
fn lengths_are_those_of_python() {
    let list = || json!([1, "a", {"b": 2}]);
    for (value, expected) in [
        (list(), Some(3)),
        (json!([]), Some(0)),
        (json!({"a": 1, "b": 2}), Some(2)),
        (json!({}), Some(0)),
        (object("builtins.tuple", json!(1), list()), Some(3)),
        (object("builtins.tuple", json!(0), json!([])), Some(0)),
        (object("builtins.set", json!(1), json!([1])), None),
        (object("builtins.frozenset", json!(1), json!([])), None),
        (json!({"__type": "set", "__var": [1]}), None),
        (json!({"__type": "tuple", "__var": [1, 2]}), Some(2)),
        (json!({"__type": "dict", "__var": {"a": 1}}), Some(1)),
        // Without a version, or with the half of an old value, it is a dict like others.
        (
            json!({"__classname__": "builtins.tuple", "__data__": []}),
            Some(2),
        ),
        (json!({"__type": "tuple"}), Some(1)),
        (json!("abc"), None),
        (json!(null), None),
        (json!(3.5), None),
        (
            object("pandas.core.frame.DataFrame", json!(1), json!("…")),
            None,
        ),
        (object("my.Rows", json!(0), json!([1, 2])), None),
    ] {
        assert_eq!(mapped_length(&value).unwrap(), expected, "{value}");
    }
}

#[test]
fn moments_and_lengths_of_time_are_read_in_both_encodings() {
    let kwargs = recorded()["trigger_kwargs"].clone();
    let at = moment(member(&kwargs, "moment").unwrap()).unwrap();
    assert_eq!(at.to_string(), "2026-11-21T03:30:00Z");
    let old = json!({"__type": "dict", "__var": {"moment": {"__type": "datetime", "__var": 1_795_231_800.0}}});
    assert_eq!(moment(member(&old, "moment").unwrap()).unwrap(), at);
    let seconds = json!({"timestamp": 1_795_231_800.5, "tz": null});
    let half = at + SignedDuration::from_millis(500);
    for (class, version) in [("datetime.datetime", 2), ("pendulum.datetime.DateTime", 1)] {
        let value = object(class, json!(version), seconds.clone());
        assert_eq!(moment(&value).unwrap(), half, "{class}");
    }
    let bare = object("datetime.datetime", json!(2), json!(1_795_231_800));
    assert_eq!(moment(&bare).unwrap(), at);
    let delta = object("datetime.timedelta", json!(2), json!(-90.25));
    assert_eq!(
        duration(&delta).unwrap(),
        SignedDuration::from_millis(-90_250)
    );
    let old = json!({"__type": "timedelta", "__var": 60});
    assert_eq!(duration(&old).unwrap(), SignedDuration::from_mins(1));
}

#[test]
fn what_is_something_else_is_refused_and_says_so() {
    let is = |result: Result<String, Undecodable>, expected: &str| {
        let error = result.unwrap_err().to_string();
        let expected = format!("the value cannot be read: expected {expected}");
        assert!(error.starts_with(&expected), "{error}");
    };
    let text = |at: Timestamp| at.to_string();
    is(moment(&json!(5)).map(text), "a moment, found 5");
    is(
        moment(&object("datetime.date", json!(2), json!("2026-01-01"))).map(text),
        "a moment",
    );
    is(
        moment(&object(
            "datetime.datetime",
            json!(2),
            json!({"timestamp": 1e300}),
        ))
        .map(text),
        "a moment",
    );
    is(
        moment(&object("datetime.datetime", json!("2"), json!(0))).map(text),
        "a class and its version",
    );
    is(
        moment(&json!({"__type": 1, "__var": 2})).map(text),
        "the name of a type, found 1",
    );
    is(
        duration(&json!("PT5M")).map(|length| format!("{length:?}")),
        "a length of time, found \"PT5M\"",
    );
    is(
        mapped_length(&object("builtins.tuple", json!(2), json!([]))).map(|_| String::new()),
        "a tuple of version 1",
    );
    is(
        mapped_length(&object("builtins.tuple", json!(1), json!({}))).map(|_| String::new()),
        "a list, found {}",
    );
    is(
        member(&json!({"a": 1}), "b").map(Value::to_string),
        "a dict with the member",
    );
    is(
        SkipMark::read(&json!(["a"])).map(|_| String::new()),
        "`followed` or `skipped`, found [\"a\"]",
    );
    is(
        SkipMark::read(&json!({"skipped": "a"})).map(|_| String::new()),
        "a list of task ids, found \"a\"",
    );
}

#[test]
fn a_branch_skips_what_it_does_not_follow() {
    let recorded = SkipMark::read(&recorded()["skipmixin_key"]).unwrap();
    assert!(!recorded.skips("left") && recorded.skips("right"));
    for (value, task_id, expected) in [
        (json!({"followed": []}), "a", true),
        (json!({"followed": ["a", ["b", 1]]}), "a", false),
        (json!({"skipped": ["a"]}), "a", true),
        (json!({"skipped": ["a"]}), "b", false),
        (json!({"followed": ["a"], "skipped": ["a"]}), "a", true),
        (
            json!({"__type": "dict", "__var": {"skipped": ["a"]}}),
            "a",
            true,
        ),
        (json!({}), "a", false),
    ] {
        let mark = SkipMark::read(&value).unwrap();
        assert_eq!(mark.skips(task_id), expected, "{value} for {task_id}");
    }
}
