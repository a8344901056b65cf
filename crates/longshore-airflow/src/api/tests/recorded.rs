//! What the unmodified task SDK 1.3.2 sends reads into our types, and what it was answered our types write.

use serde_json::Value;

use super::{asset::*, store::*, task_instance::*, *};

const RECORDED: [&str; 15] = [
    include_str!("../../../testdata/execution-api/recorded/bash_heartbeat.json"),
    include_str!("../../../testdata/execution-api/recorded/branch_skip_downstream.json"),
    include_str!("../../../testdata/execution-api/recorded/deferrable_defer.json"),
    include_str!("../../../testdata/execution-api/recorded/deferrable_resume.json"),
    include_str!("../../../testdata/execution-api/recorded/fail_final.json"),
    include_str!("../../../testdata/execution-api/recorded/fail_retry.json"),
    include_str!("../../../testdata/execution-api/recorded/gen_mapped_length.json"),
    include_str!("../../../testdata/execution-api/recorded/mapped_0.json"),
    include_str!("../../../testdata/execution-api/recorded/mapped_1.json"),
    include_str!("../../../testdata/execution-api/recorded/mapped_2.json"),
    include_str!("../../../testdata/execution-api/recorded/mapped_reduce.json"),
    include_str!("../../../testdata/execution-api/recorded/sensor_reschedule.json"),
    include_str!("../../../testdata/execution-api/recorded/skip.json"),
    include_str!("../../../testdata/execution-api/recorded/success_pull.json"),
    include_str!("../../../testdata/execution-api/recorded/success_push.json"),
];

/// Each exchange of each recording, with its name.
fn exchanges() -> Vec<(String, Value, Value)> {
    let mut exchanges = Vec::new();
    for text in RECORDED {
        let recording: Value = serde_json::from_str(text).unwrap();
        for (at, exchange) in recording["exchanges"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            let name = format!("{} {at}", recording["case"]);
            exchanges.push((
                name,
                exchange["request"].clone(),
                exchange["response"].clone(),
            ));
        }
    }
    assert_eq!(exchanges.len(), 84);
    exchanges
}

/// The route and the typed request of a recorded one.
fn read(name: &str, request: &Value) -> (Matched, Request) {
    let header = request["headers"]["airflow-api-version"].as_str();
    // Each parameter has a list of its values.
    let mut query = Vec::new();
    for (name, texts) in request["query"].as_object().unwrap() {
        for text in texts.as_array().unwrap() {
            query.push((name.clone(), text.as_str().unwrap().to_owned()));
        }
    }
    let body = Some(&request["body"]).filter(|it| !it.is_null());
    let body = body.map_or(Vec::new(), |it| serde_json::to_vec(it).unwrap());
    let raw = RawRequest {
        version: ApiVersion::negotiate(header).unwrap(),
        method: Method::parse(request["method"].as_str().unwrap()).unwrap(),
        path: request["path"]
            .as_str()
            .unwrap()
            .strip_prefix("/execution")
            .unwrap(),
        query: &query,
        body: &body,
    };
    let matched = raw
        .route()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let read = raw.read(matched.clone());
    (
        matched,
        read.unwrap_or_else(|error| panic!("{name}: {error}")),
    )
}

/// The body that a typed request is written as; null for a request without one. A value that may be anything is as it was
/// recorded.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the recordings hold a few of the requests only"
)]
fn body_of(request: &Request, recorded: &Value) -> Value {
    let written = match request {
        Request::TaskInstance(_, TaskInstanceRequest::Run(body)) => serde_json::to_value(body),
        Request::TaskInstance(_, TaskInstanceRequest::State(body)) => serde_json::to_value(body),
        Request::TaskInstance(_, TaskInstanceRequest::Heartbeat(body)) => {
            serde_json::to_value(body)
        }
        Request::TaskInstance(_, TaskInstanceRequest::SkipDownstream(body)) => {
            serde_json::to_value(body)
        }
        Request::TaskInstance(_, TaskInstanceRequest::RenderedFields(body)) => {
            serde_json::to_value(body)
        }
        // Its value is the text of the body.
        Request::XCom(_, XComRequest::Set(_)) => Ok(recorded.clone()),
        Request::TaskInstance(_, TaskInstanceRequest::InactiveAssets)
        | Request::XCom(_, XComRequest::Get(_) | XComRequest::Item(_))
        | Request::Variable(_)
        | Request::Connection(_) => Ok(Value::Null),
        other => panic!("no recording asks for {other:?}"),
    };
    written.unwrap()
}

/// The answer that our type makes of a recorded one.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the recordings hold a few of the requests only"
)]
fn answer_of(request: &Request, body: Value) -> Value {
    match request {
        Request::TaskInstance(_, TaskInstanceRequest::Run(_)) => through::<RunContext>(body),
        Request::TaskInstance(_, TaskInstanceRequest::InactiveAssets) => {
            through::<InactiveAssets>(body)
        }
        Request::TaskInstance(_, TaskInstanceRequest::RenderedFields(_)) => {
            serde_json::to_value(Message::rendered_fields_set()).unwrap()
        }
        Request::XCom(_, XComRequest::Set(..)) => {
            serde_json::to_value(Message::xcom_set()).unwrap()
        }
        Request::XCom(_, XComRequest::Get(_)) => through::<XCom>(body),
        Request::Variable(_) => through::<Variable>(body),
        Request::Connection(_) => through::<Connection>(body),
        // A value alone, or nothing.
        _ => body,
    }
}

#[test]
fn every_recorded_request_reads_and_is_written_as_it_was() {
    for (name, request, _) in exchanges() {
        let (_, read) = read(&name, &request);
        let body = &request["body"];
        assert_eq!(&body_of(&read, body), body, "{name}");
    }
}

#[test]
fn every_recorded_answer_is_what_our_types_write() {
    for (name, request, response) in exchanges() {
        let (matched, read) = read(&name, &request);
        let status = u16::try_from(response["status"].as_u64().unwrap()).unwrap();
        let body = response["body"].clone();
        if status >= 400 {
            let error = ApiError::read(status, &body).unwrap();
            assert_eq!((error.body(), error.status()), (body, status), "{name}");
            assert_eq!(error.reason(), Some("not_found"), "{name}");
            continue;
        }
        assert_eq!(matched.route.status, status, "{name}");
        let answer = answer_of(&read, body.clone());
        let written = matched.route.write(&answer, ApiVersion::LATEST).unwrap();
        assert_eq!(written, body, "{name}");
        let is_run = matched.route.access == Access::SameTaskOrWorkload;
        let is_refreshed = response["headers"].get(HEADER_REFRESHED_TOKEN).is_some();
        assert_eq!(
            is_refreshed, is_run,
            "{name}: only the token of a workload is exchanged"
        );
    }
}

#[test]
fn a_recorded_run_context_is_brought_to_older_versions() {
    let (name, request, response) = exchanges().swap_remove(0);
    let (matched, _) = read(&name, &request);
    let context: RunContext = serde_json::from_value(response["body"].clone()).unwrap();
    let run = |version| matched.route.write(&context, version).unwrap();
    let (old, middle) = (run(ApiVersion::V2025_11_05), run(ApiVersion::V2026_04_06));
    let has = |body: &Value, pointer: &str| body.pointer(pointer).is_some();
    for (pointer, in_old, in_middle) in [
        ("/upstream_map_indexes", true, false),
        ("/dag_run/triggering_user_name", true, true),
        ("/dag_run/partition_key", false, true),
        ("/dag_run/note", false, true),
        ("/dag_run/partition_date", false, false),
        ("/dag_run/team_name", false, false),
    ] {
        let found = (has(&old, pointer), has(&middle, pointer));
        assert_eq!(found, (in_old, in_middle), "{pointer}");
    }
}
