use bytes::Bytes;
use longshore_flink_core::conf::operator::SavepointFormatType;

use super::*;
use crate::rest::Trigger;

fn read(call: &RestCall, status: u16, body: impl Into<Bytes>) -> Result<RestAnswer, AskError> {
    let body = body.into();
    call.read(&HttpAnswer { status, body })
}

fn job() -> String {
    "0cc1".to_owned()
}

fn stop() -> RestCall {
    let trigger = Trigger {
        job: job(),
        trigger_id: "aa".to_owned(),
        directory: None,
        format: SavepointFormatType::Canonical,
    };
    RestCall::Stop {
        trigger,
        drain: false,
    }
}

fn poll() -> RestCall {
    RestCall::Savepoint {
        job: job(),
        trigger_id: "aa".to_owned(),
    }
}

fn every_call() -> Vec<RestCall> {
    vec![
        RestCall::Version,
        RestCall::Jobs,
        RestCall::FailureCause { job: job() },
        RestCall::Checkpoints { job: job() },
        RestCall::CheckpointPath {
            job: job(),
            checkpoint: 3,
        },
        RestCall::Metrics { job: job() },
        stop(),
        poll(),
    ]
}

#[test]
fn what_is_no_json_of_flink_is_not_understood() {
    let long = vec![b' '; 4 << 20];
    let bodies: [&[u8]; 5] = [
        b"",
        b"<html><body>Bad Gateway</body></html>",
        b"{",
        b"7",
        &long,
    ];
    for call in every_call() {
        for body in bodies {
            let error = read(&call, 200, Bytes::copy_from_slice(body)).unwrap_err();
            assert_eq!(error.why, NoAnswer::NotUnderstood, "{call:?}");
            assert!(!error.message.contains("html"), "{error}");
        }
    }
}

#[test]
fn a_refusal_is_final_and_a_failure_passes() {
    let trace = r#"{"errors":["org.apache.flink.X: no leader\n\tat org.apache.flink.Y"]}"#;
    for call in every_call() {
        for (status, body, why, message) in [
            (400, "", NoAnswer::Refused, "the JobManager answered 400"),
            (
                500,
                "<html>",
                NoAnswer::Unreachable,
                "the JobManager answered 500",
            ),
            (
                503,
                trace,
                NoAnswer::Unreachable,
                "the JobManager answered 503: org.apache.flink.X: no leader",
            ),
        ] {
            let error = read(&call, status, body).unwrap_err();
            assert_eq!(
                (error.why, error.message.as_str()),
                (why, message),
                "{call:?}"
            );
        }
    }
}

#[test]
fn a_job_runs_once_all_of_its_tasks_do() {
    let body = r#"{"jobs":[
        {"jid":"a","name":"one","start-time":7,"state":"RUNNING","tasks":{"running":1,"finished":1,"total":2}},
        {"jid":"b","name":"two","start-time":8,"state":"RUNNING","tasks":{"running":1,"scheduled":1,"total":2}},
        {"jid":"c","state":"FINISHED"}
    ]}"#;
    let Ok(RestAnswer::Jobs(jobs)) = read(&RestCall::Jobs, 200, body) else {
        panic!("no jobs");
    };
    let found: Vec<_> = jobs
        .iter()
        .map(|job| (job.id.as_str(), job.state))
        .collect();
    let expected = [
        ("a", JobState::Running),
        ("b", JobState::Created),
        ("c", JobState::Finished),
    ];
    assert_eq!(found, expected);
    let unknown = r#"{"jobs":[{"jid":"a","state":"DREAMING"}]}"#;
    assert!(read(&RestCall::Jobs, 200, unknown).is_err());
}

#[test]
fn the_newest_snapshot_has_the_greatest_number() {
    let body = r#"{"counts":{"completed":2},"latest":{
        "completed":{"id":4,"external_path":"file:/c4","trigger_timestamp":40},
        "savepoint":{"id":5,"external_path":"file:/s5","trigger_timestamp":50},
        "restored":{"id":1,"external_path":"file:/r1"},"failed":null},
        "history":[{"id":6,"status":"IN_PROGRESS","trigger_timestamp":60}]}"#;
    let call = RestCall::Checkpoints { job: job() };
    let Ok(RestAnswer::Checkpoints(found)) = read(&call, 200, body) else {
        panic!("no checkpoints");
    };
    let newest = found.newest().unwrap();
    assert_eq!((newest.id, newest.path.as_deref()), (5, Some("file:/s5")));
    assert_eq!((found.n_completed, found.pending_at_ms), (2, Some(60)));
    let hidden = format!(
        r#"{{"counts":{{"completed":1}},"latest":{{"completed":{{"id":1,"external_path":"{NOT_ADDRESSABLE}"}}}}}}"#
    );
    let Ok(RestAnswer::Checkpoints(found)) = read(&call, 200, hidden) else {
        panic!("no checkpoints");
    };
    assert_eq!(found.newest().unwrap().path, None);
}

#[test]
fn an_operation_is_told_from_another_one() {
    let table = [
        (
            200,
            r#"{"status":{"id":"IN_PROGRESS"},"operation":null}"#,
            Some(Operation::InProgress),
        ),
        (
            200,
            r#"{"status":{"id":"COMPLETED"},"operation":{"location":"file:/sp"}}"#,
            Some(Operation::Savepoint {
                path: "file:/sp".to_owned(),
            }),
        ),
        (
            200,
            r#"{"status":{"id":"COMPLETED"},"operation":{"checkpointId":43}}"#,
            Some(Operation::Checkpoint { id: 43 }),
        ),
        (
            200,
            r#"{"status":{"id":"COMPLETED"},"operation":{"failure-cause":{"class":"X","stack-trace":"X\n"}}}"#,
            Some(Operation::Failed(FailureCause {
                class: "X".to_owned(),
                stack_trace: "X\n".to_owned(),
            })),
        ),
        (200, r#"{"status":{"id":"COMPLETED"},"operation":{}}"#, None),
        (200, r#"{"status":{"id":"LOST"}}"#, None),
        (404, r#"{"errors":["unknown"]}"#, Some(Operation::Unknown)),
        (500, "", None),
    ];
    for (status, body, expected) in table {
        let found = read(&poll(), status, body).ok();
        assert_eq!(
            found,
            expected.map(RestAnswer::Operation),
            "{status} {body}"
        );
    }
    for (body, is_ours) in [
        (r#"{"request-id":"aa"}"#, true),
        (r#"{"request-id":"bb"}"#, false),
    ] {
        assert_eq!(read(&stop(), 202, body).is_ok(), is_ours, "{body}");
    }
}

#[test]
fn a_repeat_of_what_is_done_is_a_success() {
    let cancel = RestCall::Cancel { job: job() };
    for (status, is_done) in [(202, true), (409, true), (404, false), (500, false)] {
        assert_eq!(read(&cancel, status, "{}").is_ok(), is_done, "{status}");
    }
    let submit = RestCall::Submit(Arc::new(crate::rest::Submission {
        job: job(),
        jar: None,
        body: serde_json::Value::Null,
    }));
    let taken = format!(r#"{{"errors":["… {DUPLICATE}: Job has already been submitted."]}}"#);
    assert_eq!(read(&submit, 400, taken), Ok(RestAnswer::Accepted));
    assert!(read(&submit, 400, r#"{"errors":["ProgramInvocationException"]}"#).is_err());
}

#[test]
fn a_checkpoint_is_the_one_that_was_asked_about() {
    let call = RestCall::CheckpointPath {
        job: job(),
        checkpoint: 3,
    };
    let found = read(&call, 200, r#"{"id":3,"external_path":"file:/c3"}"#);
    assert_eq!(
        found,
        Ok(RestAnswer::CheckpointPath(Some("file:/c3".to_owned())))
    );
    assert!(read(&call, 200, r#"{"id":4,"external_path":"file:/c4"}"#).is_err());
}

#[test]
fn the_id_of_a_jar_is_a_file_name() {
    for (filename, id) in [
        ("/tmp/flink-web-upload/1f_job.jar", Some("1f_job.jar")),
        ("/tmp/..%2Fjobs", None),
        ("/tmp/", None),
    ] {
        let body = format!(r#"{{"filename":"{filename}","status":"success"}}"#);
        let answer = HttpAnswer {
            status: 200,
            body: body.into(),
        };
        assert_eq!(jar_id(&answer).ok().as_deref(), id, "{filename}");
    }
}
