use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{document, test_rows::Left};

fn params() -> BTreeMap<String, Value> {
    [
        ("who", json!("you & me")),
        ("n", json!(3)),
        ("flag", json!(true)),
        ("none", json!(null)),
        ("list", json!([1, "a"])),
        ("dotted.name", json!("d")),
        ("deep", json!({"a": {"b": 1}})),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn results() -> BTreeMap<String, Value> {
    [
        (
            "extract",
            json!({"rows": 7, "path": "/tmp/a b", "list": [1, 2]}),
        ),
        ("g1.inner-y", json!({"x": "deep"})),
        ("plain", json!("just text")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn tasks() -> BTreeMap<String, Task> {
    let text = "{dag_id: etl, default_args: {image: i}, tasks: {extract: , g1: , g1.inner-y: , plain: , other.one: }}";
    let document = document::parse("etl.yaml", text).unwrap();
    document.validate(&mut |_| Ok(Vec::new())).unwrap().tasks
}

fn rendered(text: &str) -> Result<String, String> {
    let (params, tasks) = (params(), tasks());
    let notes = [(
        "g1".to_owned(),
        "the result has 5000 bytes, and the limit is 4096".to_owned(),
    )];
    let results = Left {
        notes: notes.into(),
        ..Left::of(results())
    };
    let logical_date: Timestamp = "2026-01-01T00:00:00Z".parse().map_err(|_| "no date")?;
    let context = Context {
        dag_id: "etl",
        run_id: "manual__1",
        task_id: "load",
        logical_date: Some(logical_date),
        try_number: 2,
        params: &params,
        tasks: &tasks,
        results: &results,
    };
    render(text, &context).map_err(|error| error.to_string())
}

#[test]
fn expressions_are_filled_in() {
    for (text, expected) in [
        ("", ""),
        ("no braces, { one } } {", "no braces, { one } } {"),
        (
            "{{run_id}} {{  dag_id }} {{\ttask_id\n}} {{ try_number }}",
            "manual__1 etl load 2",
        ),
        ("{{ logical_date }}", "2026-01-01T00:00:00+00:00"),
        ("hello {{ params.who }}!", "hello you & me!"),
        (
            "{{ params.n }}{{ params.flag }}{{ params.none }}",
            "3truenull",
        ),
        ("{{ params.list }}", r#"[1,"a"]"#),
        (
            "{{ params.dotted.name }} {{ params.deep.a }}",
            r#"d {"b":1}"#,
        ),
        (
            "{{ xcom.extract.rows }} from {{ xcom.extract.path }}",
            "7 from /tmp/a b",
        ),
        ("{{ xcom.extract.list }}", "[1,2]"),
        ("{{ xcom.g1.inner-y.x }} {{ xcom.plain }}", "deep just text"),
        ("{{ '{{' }} .Names {{ '}}' }}", "{{ .Names }}"),
        (r#"{{ "{{ it's }}" }}"#, "{{ it's }}"),
        ("ü{{ params.n }}ü", "ü3ü"),
    ] {
        assert_eq!(rendered(text).as_deref(), Ok(expected), "of {text:?}");
    }
}

#[test]
fn a_run_without_logical_date_has_an_empty_one() {
    let (params, tasks, results) = (BTreeMap::new(), BTreeMap::new(), Left::default());
    let context = Context {
        dag_id: "d",
        run_id: "r",
        task_id: "t",
        logical_date: None,
        try_number: 1,
        params: &params,
        tasks: &tasks,
        results: &results,
    };
    assert_eq!(render("[{{ logical_date }}]", &context).unwrap(), "[]");
}

#[test]
fn what_is_missing_is_named() {
    for (text, expected) in [
        ("{{ run_id", "`{{` has no `}}`"),
        ("a {{ }}", "there is nothing between `{{` and `}}`"),
        ("{{ ds }}", "template variable `ds` does not exist"),
        ("{{ params }}", "template variable `params` does not exist"),
        ("{{ .Names }}", "template variable `.Names` does not exist"),
        (
            "{{ params.n | int }}",
            "template expression `params.n | int` is more than a name",
        ),
        (
            "{{ params.m }}",
            "the run has no parameter `m`; it has `deep`, `dotted.name`, `flag`, `list`, `n`, \
             `none`, `who`",
        ),
        (
            "{{ xcom.other.one.rows }}",
            "`{{ xcom.other.one.rows }}` needs the result of task `other.one`, but the task left none; let that task \
             write JSON of at most 4096 bytes to the file that $LONGSHORE_RETURN names",
        ),
        (
            "{{ xcom.g1 }}",
            "`{{ xcom.g1 }}` needs the result of task `g1`, but it was not taken: the result has 5000 bytes, and the \
             limit is 4096; let that task write JSON of at most 4096 bytes to the file that $LONGSHORE_RETURN names",
        ),
        (
            "{{ xcom.extract.row }}",
            "`{{ xcom.extract.row }}` needs field `row` of the result of task `extract`, which \
             was {\"list\":[1,2],\"path\":\"/tmp/a b\",\"rows\":7}",
        ),
        (
            "{{ xcom.plain.x }}",
            "`{{ xcom.plain.x }}` needs field `x` of the result of task `plain`, which was \
             \"just text\"",
        ),
    ] {
        assert_eq!(rendered(text), Err(expected.to_owned()), "of {text:?}");
    }
}

#[test]
fn problems_know_their_bytes() {
    let error = Template::parse("ü {{ nobody }} x").unwrap_err();
    assert_eq!(error.range, 3..15);
    let template = Template::parse("ü {{ run_id }}{{ params.a }}").unwrap();
    let found: Vec<_> = template
        .expressions()
        .map(|(e, range)| (e.to_string(), range))
        .collect();
    assert_eq!(
        found,
        [
            ("run_id".to_owned(), 3..15),
            ("params.a".to_owned(), 15..29)
        ]
    );
}

proptest! {
    #[test]
    fn no_text_is_trouble(text in "(\\{\\{|\\}\\}|[ '\"a.üxcom]|params\\.n|xcom\\.){0,20}") {
        let _ = rendered(&text);
    }

    #[test]
    fn a_text_without_braces_stays(text in "[^{]*") {
        prop_assert_eq!(rendered(&text), Ok(text));
    }
}
