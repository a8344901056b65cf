use proptest::prelude::*;
use serde_json::json;

use super::*;

type Labels = BTreeMap<String, String>;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../testdata/selectors.json")).unwrap()
}

/// Compares what was read with what upstream makes of it.
fn check(vector: &Value, read: Result<Selector, InvalidSelector>, labels: &[Labels]) {
    let Some(text) = vector["text"].as_str() else {
        assert!(read.is_err(), "{vector}: {read:?}");
        return;
    };
    let read = read.unwrap_or_else(|error| panic!("{vector}: {error}"));
    assert_eq!(read.to_string(), text.replace("==", "="), "{vector}");
    let found: Vec<bool> = labels.iter().map(|labels| read.matches(labels)).collect();
    assert_eq!(json!(found), vector["matches"], "{vector}");
    for labels in labels {
        let object = json!({"metadata": {"labels": labels}});
        assert_eq!(read.matches_object(&object), read.matches(labels));
    }
}

#[test]
fn every_text_selects_what_it_selects_upstream() {
    let vectors = vectors();
    let labels: Vec<Labels> = serde_json::from_value(vectors["labels"].clone()).unwrap();
    for vector in vectors["texts"].as_array().unwrap() {
        let text = vector["in"].as_str().unwrap();
        check(vector, Selector::parse(text), &labels);
    }
}

#[test]
fn a_text_is_refused_in_the_words_of_api_servers() {
    let label = "a valid label must be an empty string or consist";
    for (text, expected) in [
        (
            "=b",
            "found '=', expected: !, identifier, or 'end of string'",
        ),
        ("a,", "found '', expected: identifier after ','"),
        ("a=b)", "found ')', expected: ',' or 'end of string'"),
        (
            "a===b",
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            "a in (b",
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
        (
            "a in b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            "a near b",
            "unable to parse requirement: found 'near', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "-a=b",
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist",
        ),
        (
            "a=-b",
            &format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {label}"),
        ),
    ] {
        let error = Selector::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn every_object_selects_what_it_selects_upstream() {
    let vectors = vectors();
    let labels: Vec<Labels> = serde_json::from_value(vectors["labels"].clone()).unwrap();
    for vector in vectors["objects"].as_array().unwrap() {
        check(vector, Selector::read(&vector["in"]), &labels);
        let is_refused = vector["text"].is_null();
        assert_eq!(faults(&vector["in"]).is_empty(), !is_refused, "{vector}");
    }
    assert!(Selector::read(&Value::Null).unwrap().selects_all());
}

#[test]
fn all_that_is_wrong_with_an_object_is_named() {
    let expression = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
    let selector = json!({
        "matchLabels": {"a b": "c"},
        "matchExpressions": [
            expression("a", "Is", json!(["b"])),
            expression("", "In", Value::Null),
            expression("a", "Exists", json!(["b"])),
            expression("a", "NotIn", json!(["b", "c d"])),
        ],
    });
    let text = str::to_owned;
    let expected = [
        Fault::Label {
            key: text("a b"),
            value: text("c"),
        },
        Fault::Operator {
            at: 0,
            operator: text("Is"),
        },
        Fault::ValuesMissing {
            at: 1,
            operator: text("In"),
        },
        Fault::Key {
            at: 1,
            key: text(""),
        },
        Fault::ValuesForbidden {
            at: 2,
            operator: text("Exists"),
            values: vec![text("b")],
        },
        Fault::Value {
            at: 3,
            n: 1,
            value: text("c d"),
        },
    ];
    assert_eq!(faults(&selector), expected);
    for shape in [
        json!({"matchLabels": "a"}),
        json!([]),
        json!({"matchExpressions": {}}),
    ] {
        let faults = faults(&shape);
        assert!(matches!(faults.as_slice(), [Fault::Shape(_)]), "{faults:?}");
        assert!(Selector::read(&shape).is_err());
    }
}

#[test]
fn labels_select_the_objects_that_have_them_all() {
    let labels = Labels::from([("a".to_owned(), "b".to_owned())]);
    let selector = Selector::of_labels(&labels);
    assert_eq!(selector.to_string(), "a=b");
    assert!(selector.matches(&labels) && !selector.matches(&Labels::new()));
    assert!(Selector::of_labels(&Labels::new()).selects_all());
    let needed = selector.requirements()[0].needed_values();
    assert_eq!(needed, Some(&BTreeSet::from(["b".to_owned()])));
}

const KEY: &str = r"[a-c]|in|example\.com/x";

fn requirements() -> impl Strategy<Value = Requirement> {
    let set = prop_oneof![Just(Operator::In), Just(Operator::NotIn)];
    let one = prop_oneof![Just(Operator::Equals), Just(Operator::NotEquals)];
    let none = prop_oneof![Just(Operator::Exists), Just(Operator::DoesNotExist)];
    let bound = prop_oneof![Just(Operator::GreaterThan), Just(Operator::LessThan)];
    let value = "|[a-c]|[0-9]{1,3}|in|notin";
    let parts = prop_oneof![
        (set, proptest::collection::vec(value, 1..4)),
        (one, proptest::collection::vec(value, 1)),
        (none, Just(Vec::new())),
        (bound, proptest::collection::vec("[0-9]{1,3}", 1)),
    ];
    (KEY, parts)
        .prop_map(|(key, (operator, values))| Requirement::new(key, operator, values).unwrap())
}

fn selectors() -> impl Strategy<Value = Selector> {
    proptest::collection::vec(requirements(), 0..4).prop_map(Selector::sorted)
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(selector in selectors()) {
        prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn an_object_is_selected_if_every_requirement_allows_it(
        selector in selectors(),
        labels in proptest::collection::btree_map(KEY, "|[a-c]|[0-9]{1,3}", 0..4),
    ) {
        let all = selector.requirements().iter().all(|it| it.allows(labels.get(it.key()).map(String::as_str)));
        prop_assert_eq!(selector.matches(&labels), all);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-c!=<>(),/ \t-]{0,24}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
