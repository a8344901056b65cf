use serde_json::json;

use super::*;
use crate::api::{
    XComAddress,
    query::{SliceQuery, XComQuery},
    store::{Variable, XCom},
    task_instance::PreviousSuccessfulRun,
};

const ZOO: &str = include_str!("../../testdata/serialization/example-zoo.json");

fn request() -> ParseRequest {
    ParseRequest::of_file("dags-folder", "/opt/airflow/dags/", "team/zoo.py")
}

fn read(body: Value) -> ParsingResult {
    match FromParser::read(body, &request()) {
        Ok(FromParser::Result(result)) => *result,
        other => panic!("{other:?}"),
    }
}

fn asked(body: Value) -> ParserQuestion {
    match FromParser::read(body, &request()) {
        Ok(FromParser::Question(question)) => question,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_what_the_supervisor_of_upstream_sends() {
    assert_eq!(
        request().to_json(),
        json!({
            "type": "DagFileParseRequest", "file": "/opt/airflow/dags/team/zoo.py",
            "bundle_path": "/opt/airflow/dags", "bundle_name": "dags-folder", "callback_requests": [],
        })
    );
    assert_eq!(request().relative_path(), "team/zoo.py");
}

#[test]
fn documents_errors_and_warnings_are_taken_from_a_result() {
    let zoo: Value = serde_json::from_str(ZOO).unwrap();
    let result = read(json!({
        "type": "DagFileParsingResult",
        "fileloc": "/opt/airflow/dags/team/zoo.py",
        "serialized_dags": [{"data": zoo, "last_loaded": "2026-11-21T00:58:55.476971Z"}],
        "warnings": [
            {"dag_id": "zoo", "warning_type": "runtime varying value", "message": "Line 3"},
            "of another form",
        ],
        "import_errors": {
            "team/zoo.py": "Traceback: a", "/opt/airflow/dags/team/z.zip/b.py": "Traceback: b",
            "/elsewhere/c.py": "Traceback: c",
        },
        "of_a_later_version": 1,
    }));
    let [dag] = &result.dags[..] else {
        panic!("{result:?}");
    };
    assert_eq!(dag.document.to_json(), zoo);
    assert_eq!(
        dag.last_loaded.unwrap().to_string(),
        "2026-11-21T00:58:55.476971Z"
    );
    let errors: Vec<_> = result.import_errors.iter().collect();
    let expected = [
        ("/elsewhere/c.py", "Traceback: c"),
        ("team/z.zip/b.py", "Traceback: b"),
        ("team/zoo.py", "Traceback: a"),
    ];
    let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert!(
        errors
            .into_iter()
            .eq(expected.iter().map(|(path, text)| (path, text)))
    );
    assert_eq!(
        result.warnings,
        [DagWarning {
            dag_id: "zoo".to_owned(),
            warning_type: "runtime varying value".to_owned(),
            message: "Line 3".to_owned(),
        }]
    );
    assert_eq!(
        ParsingResult::reply(),
        json!({"type": "OKResponse", "ok": true})
    );
}

#[test]
fn a_result_of_nothing_is_one() {
    for nothing in [
        json!({"warnings": [], "import_errors": {}}),
        json!({"warnings": null, "import_errors": null}),
        json!({}),
    ] {
        let mut body = nothing;
        body["type"] = ParsingResult::TYPE.into();
        body["serialized_dags"] = json!([]);
        let result = read(body);
        let is_empty = result.dags.is_empty() && result.warnings.is_empty();
        assert!(is_empty && result.import_errors.is_empty(), "{result:?}");
    }
}

#[test]
fn a_document_that_cannot_be_read_is_an_error_by_name_and_the_others_count() {
    let zoo: Value = serde_json::from_str(ZOO).unwrap();
    let mut bad = zoo.clone();
    bad["dag"]["dag_id"] = "bad".into();
    bad["dag"]["relative_fileloc"] = "team/zoo.py".into();
    bad["dag"]["tasks"] = "none".into();
    let mut old = zoo.clone();
    old["__version"] = 1.into();
    old["dag"]["dag_id"] = "old".into();
    old["dag"]["relative_fileloc"] = Value::Null;
    let result = read(json!({
        "type": "DagFileParsingResult", "fileloc": "x",
        "serialized_dags": [{"data": bad}, {"data": zoo}, {"data": old}, {"data": 7}],
        "import_errors": {"team/zoo.py": "Traceback"},
    }));
    assert_eq!(result.dags.len(), 1);
    let text = &result.import_errors["team/zoo.py"];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[0], "Traceback");
    for (line, words) in lines[1..].iter().zip([
        ["DAG `bad`", "/dag/tasks"],
        ["DAG `old`", "expected version 3"],
        ["DAG `without an id`", "expected"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
}

#[test]
fn a_parser_without_a_result_is_an_error_of_its_file() {
    let failed = ParsingResult::failed(&request(), "killed after 50 s".to_owned());
    assert_eq!(failed.import_errors["team/zoo.py"], "killed after 50 s");
    assert!(failed.dags.is_empty());
}

fn xcom() -> XComAddress {
    XComAddress {
        dag_id: "d".to_owned(),
        run_id: "r".to_owned(),
        task_id: "t".to_owned(),
        key: "k".to_owned(),
    }
}

#[test]
fn questions_are_read_as_the_sdk_writes_them() {
    let at = json!({"key": "k", "dag_id": "d", "run_id": "r", "task_id": "t"});
    let of_xcom = |kind: &str, rest: Value| {
        let mut body = at.clone();
        body["type"] = kind.into();
        for (name, value) in rest.as_object().unwrap() {
            body[name] = value.clone();
        }
        asked(body)
    };
    let query = |map_index| XComQuery {
        map_index,
        include_prior_dates: true,
        offset: None,
    };
    for (map_index, expected) in [(Value::Null, -1), (json!(3), 3)] {
        let rest = json!({"map_index": map_index, "include_prior_dates": true});
        let expected = ParserQuestion::XCom(xcom(), query(expected));
        assert_eq!(of_xcom("GetXCom", rest), expected);
    }
    let slice = SliceQuery {
        start: Some(1),
        stop: None,
        step: Some(-1),
        include_prior_dates: false,
    };
    let rest = json!({"start": 1, "stop": null, "step": -1, "include_prior_dates": false});
    assert_eq!(
        of_xcom("GetXComSequenceSlice", rest),
        ParserQuestion::XComSlice(xcom(), slice)
    );
    assert_eq!(
        of_xcom("GetXComSequenceItem", json!({"offset": -2})),
        ParserQuestion::XComItem(xcom(), -2)
    );
    assert_eq!(
        of_xcom("GetXComCount", json!({})),
        ParserQuestion::CountXComs(xcom())
    );
    let secret = json!({"type": "MaskSecret", "value": "hunter2", "name": null});
    assert_eq!(asked(secret), ParserQuestion::MaskSecret);
    let put = json!({"type": "PutVariable", "key": "k", "value": "v", "description": null});
    let ParserQuestion::PutVariable(key, put) = asked(put) else {
        panic!("a variable is written");
    };
    assert_eq!((key.as_str(), put.val.as_deref()), ("k", Some("v")));
}

#[test]
fn the_other_questions_are_read_too() {
    let at = "2026-01-07T00:00:00Z";
    for body in [
        json!({"type": "GetVariable", "key": "k"}),
        json!({"type": "GetVariableKeys", "prefix": null, "limit": 1000, "offset": 0}),
        json!({"type": "DeleteVariable", "key": "k"}),
        json!({"type": "GetConnection", "conn_id": "c"}),
        json!({
            "type": "GetTICount", "dag_id": "d", "map_index": null, "task_ids": ["t"],
            "task_group_id": null, "logical_dates": [at], "run_ids": null, "states": null,
        }),
        json!({"type": "GetTaskStates", "dag_id": "d", "run_ids": ["r"]}),
        json!({
            "type": "GetPreviousTI", "dag_id": "d", "task_id": "t", "logical_date": at,
            "map_index": -1, "state": "success",
        }),
        json!({"type": "GetPreviousDagRun", "dag_id": "d", "logical_date": at, "state": null}),
        json!({"type": "GetPrevSuccessfulDagRun", "ti_id": "019aa3f0-0000-7000-8000-0000118489a4"}),
    ] {
        asked(body);
    }
    for body in [
        json!({"type": "LaunchRocket"}),
        json!({"type": "GetVariable"}),
        json!(3),
    ] {
        let unknown = FromParser::read(body, &request()).unwrap_err();
        assert!(
            unknown
                .to_string()
                .starts_with("expected a message of Airflow"),
            "{unknown}"
        );
    }
}

/// The forms that `airflow.sdk.execution_time.comms` of task SDK 1.3.2 declares.
#[test]
fn answers_have_the_forms_that_the_sdk_reads() {
    let variable = ParserQuestion::Variable("k".to_owned());
    let found = ParserReply::Variable(Variable {
        key: "k".to_owned(),
        value: Some("ü".to_owned()),
    });
    let body = json!({"type": "VariableResult", "key": "k", "value": "ü"});
    assert_eq!(found.to_body(&variable), ReplyBody::Body(body));
    let value = ParserReply::XCom(XCom {
        key: "k".to_owned(),
        value: json!([1]),
    });
    let query = XComQuery {
        map_index: -1,
        include_prior_dates: false,
        offset: None,
    };
    let of_xcom = ParserQuestion::XCom(xcom(), query);
    let body = json!({"type": "XComResult", "key": "k", "value": [1]});
    assert_eq!(value.to_body(&of_xcom), ReplyBody::Body(body));
    for (reply, question, body) in [
        (ParserReply::Done, &ParserQuestion::MaskSecret, Value::Null),
        (
            ParserReply::Done,
            &ParserQuestion::DeleteVariable("k".to_owned()),
            json!({"type": "OKResponse", "ok": true}),
        ),
        (
            ParserReply::Count(3),
            &ParserQuestion::CountXComs(xcom()),
            json!({"type": "XComCountResponse", "len": 3}),
        ),
        (
            ParserReply::XComItem(json!(1)),
            &ParserQuestion::XComItem(xcom(), 0),
            json!({"type": "XComSequenceIndexResult", "root": 1}),
        ),
        (
            ParserReply::XComSlice(vec![json!(1)]),
            &ParserQuestion::XComSlice(xcom(), SliceQuery::default()),
            json!({"type": "XComSequenceSliceResult", "root": [1]}),
        ),
        (
            ParserReply::PreviousSuccessfulRun(PreviousSuccessfulRun::default()),
            &ParserQuestion::PreviousSuccessfulRun(uuid::Uuid::nil()),
            json!({
                "type": "PrevSuccessfulDagRunResult", "data_interval_start": null,
                "data_interval_end": null, "start_date": null, "end_date": null,
            }),
        ),
        (
            ParserReply::Missing,
            &of_xcom,
            json!({"type": "XComResult", "key": "k", "value": null}),
        ),
    ] {
        assert_eq!(
            reply.to_body(question),
            ReplyBody::Body(body),
            "{question:?}"
        );
    }
}

#[test]
fn what_is_not_there_or_cannot_be_told_is_an_error() {
    for (reply, question, kind, detail) in [
        (
            ParserReply::Missing,
            ParserQuestion::Variable("k".to_owned()),
            "VARIABLE_NOT_FOUND",
            json!({"key": "k"}),
        ),
        (
            ParserReply::Missing,
            ParserQuestion::Connection("c".to_owned()),
            "CONNECTION_NOT_FOUND",
            json!({"conn_id": "c"}),
        ),
        (
            ParserReply::Missing,
            ParserQuestion::XComItem(xcom(), 4),
            "XCOM_NOT_FOUND",
            json!({"dag_id": "d", "run_id": "r", "task_id": "t", "key": "k", "offset": 4}),
        ),
        (
            ParserReply::Failed("the database is gone".to_owned()),
            ParserQuestion::Variable("k".to_owned()),
            "API_SERVER_ERROR",
            json!({"status_code": 500, "message": "the database is gone"}),
        ),
    ] {
        let body = json!({"type": "ErrorResponse", "error": kind, "detail": detail});
        assert_eq!(
            reply.to_body(&question),
            ReplyBody::Error(body),
            "{question:?}"
        );
    }
}
