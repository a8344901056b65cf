//! Values of Python.

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::{
    pointer::Place,
    serialized::{record::Json, time},
};

fn read(value: Value) -> Var {
    let var = Var::read(value.clone(), &Place::ROOT).unwrap();
    assert_eq!(var.write(), value);
    var
}

#[test]
fn every_type_is_read_and_written_again() {
    let typed = |name: &str, var: Value| json!({"__type": name, "__var": var});
    let plain = json!({"task_id": "a", "key": "k"});
    for (value, expected) in [
        (json!(null), "Null"),
        (json!(true), "Bool"),
        (json!(1.0), "Number"),
        (json!(-3), "Number"),
        (json!("nan"), "Text"),
        (json!([1, ["a"]]), "List"),
        (
            typed("dict", json!({"a": typed("set", json!([1]))})),
            "Dict",
        ),
        (typed("set", json!([])), "Set"),
        (typed("tuple", json!([null])), "Tuple"),
        (typed("datetime", json!(1_767_225_600.25)), "Datetime"),
        (typed("timedelta", json!(-1.5)), "Timedelta"),
        (typed("timezone", json!("Europe/Berlin")), "Timezone"),
        (typed("timezone", json!(-3600)), "Timezone"),
        (
            typed("relativedelta", json!({"days": 1, "weekday": [0]})),
            "Relativedelta",
        ),
        (typed("k8s.V1Pod", json!({"x-new": 1})), "Pod"),
        (typed("xcomref", plain.clone()), "XcomRef"),
        (
            typed("xcomref", json!({"type": "zip", "args": [plain]})),
            "XcomRef",
        ),
        (
            typed("asset", json!({"name": "a", "uri": "a", "extra": {}})),
            "Asset",
        ),
        (
            typed(
                "asset_any",
                json!({"objects": [{"__type": "asset_alias", "name": "a"}]}),
            ),
            "Asset",
        ),
        (typed("arg_not_set", json!(null)), "NotSet"),
        (
            typed(
                "param",
                json!({"__class": "P", "default": null, "schema": typed("dict", json!({}))}),
            ),
            "Param",
        ),
        (typed("base_trigger", json!([1])), "Object"),
        (json!({"__type": "dict", "__var": {}, "more": 1}), "Object"),
        (json!({"__type": 5, "__var": {}}), "Object"),
        (json!({"plain": {"__type": "dict"}}), "Object"),
    ] {
        let var = read(value.clone());
        assert!(format!("{var:?}").starts_with(expected), "{value}: {var:?}");
    }
}

#[test]
fn a_known_type_with_another_content_is_refused() {
    for (name, var, expected) in [
        ("dict", json!([]), "/__var: expected an object"),
        ("timedelta", json!("5"), "/__var: expected a length of time"),
        ("datetime", json!(null), "/__var: expected a moment"),
        (
            "xcomref",
            json!({"key": "k"}),
            "/__var: expected a member `task_id`",
        ),
        (
            "xcomref",
            json!({"type": "sum", "args": []}),
            "/__var/type: expected `map`",
        ),
        ("k8s.V1Pod", json!("pod"), "/__var: expected a pod"),
        (
            "asset",
            json!({"name": "a"}),
            "/__var: expected a member `uri`",
        ),
        ("set", json!({}), "/__var: expected a list"),
    ] {
        let value = json!({"__type": name, "__var": var});
        let error = Var::read(value, &Place::ROOT).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn moments_are_read_to_the_microsecond_as_python_reads_them() {
    for (seconds, expected) in [
        (0.0, "1970-01-01T00:00:00Z"),
        (1_767_225_600.0, "2026-01-01T00:00:00Z"),
        (1_767_225_600.123_457, "2026-01-01T00:00:00.123457Z"),
        (-0.5, "1969-12-31T23:59:59.5Z"),
        // Half a microsecond goes to the even one.
        (0.000_000_5, "1970-01-01T00:00:00Z"),
        (0.000_001_5, "1970-01-01T00:00:00.000002Z"),
    ] {
        let at = time::since_1970(seconds).unwrap();
        assert_eq!(at.to_string(), expected, "{seconds}");
    }
    assert_eq!(time::since_1970(f64::NAN), None);
    assert_eq!(time::since_1970(f64::INFINITY), None);
    assert_eq!(time::since_1970(1e13), None);
    let Var::Timedelta(length) = read(json!({"__type": "timedelta", "__var": 86_400.000_001}))
    else {
        panic!()
    };
    assert_eq!(
        length.duration(),
        SignedDuration::new(86_400, 1000),
        "a microsecond is not lost"
    );
}

#[test]
fn parameters_keep_their_order() {
    let zoo = document("zoo");
    let params = zoo.dag.settings.params();
    let env = params.get("env").unwrap();
    assert_eq!(env.default, Some(Var::Text("dev".to_owned())));
    let schema = env.schema.as_ref().unwrap();
    assert!(matches!(schema.get("enum"), Some(Var::List(values)) if values.len() == 2));
    let (name, param) = (json!("a"), json!({"__class": "P"}));
    let value = json!([["z", param], [name, param], ["z", param]]);
    let params = Params::read(value.clone(), &Place::ROOT).unwrap();
    assert_eq!(params.write(), value);
    assert!(params.get("b").is_none());
}
