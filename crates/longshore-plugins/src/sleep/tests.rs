use jiff::ToSpan;
use longshore_proto::{flyteidl2::core::TaskTemplate, from_json};
use serde_json::{Value, json};

use super::*;
use crate::{fixtures, scenarios::digest};

const START: &str = "2026-01-01T00:00:00Z";

fn context(inputs: &Value, outputs: &Value, literals: &Value) -> TaskContext {
    let template: TaskTemplate = from_json(&json!({
        "type": "core-sleep",
        "interface": {"inputs": {"variables": inputs}, "outputs": {"variables": outputs}},
    }))
    .unwrap();
    let mut context = fixtures::context(template, 1);
    context.inputs = Ok(Some(from_json(&json!({"literals": literals})).unwrap()));
    context
}

fn sleeps(duration: &str) -> TaskContext {
    context(
        &json!([{"key": "t", "value": {"type": {"simple": "DURATION"}}}]),
        &json!([]),
        &json!({"t": {"scalar": {"primitive": {"duration": duration}}}}),
    )
}

fn step(context: &TaskContext, state: &[u8], seconds: i64) -> Step {
    let start: Timestamp = START.parse().unwrap();
    let round = Round {
        state: StoredState {
            version: STATE_VERSION,
            bytes: state,
        },
        is_state_ours: false,
        answer: None,
        has_slot: true,
        now: start + seconds.seconds(),
    };
    SleepPlugin.step(context, &round).unwrap()
}

#[test]
fn the_start_is_remembered_so_that_a_restart_does_not_begin_again() {
    let context = sleeps("60s");
    let first = step(&context, &[], 0);
    assert_eq!(digest(&first.info), "Running");
    assert_eq!(first.again, Some(Duration::from_secs(60)));
    assert_eq!(first.state, br#"{"startedAt":"2026-01-01T00:00:00Z"}"#);
    let later = step(&context, &first.state, 45);
    assert_eq!(later.again, Some(Duration::from_secs(15)));
    assert_eq!(later.state, first.state);
    let end = step(&context, &first.state, 60);
    assert_eq!(digest(&end.info), "Success");
    assert_eq!(end.again, None);
    // A clock that went back does not lengthen the sleep beyond the requested time.
    assert_eq!(
        step(&context, &first.state, -5).again,
        Some(Duration::from_secs(60))
    );
    assert_eq!(digest(&step(&sleeps("0s"), &[], 0).info), "Success");
}

#[test]
fn what_is_no_sleep_is_refused_with_its_reason() {
    let duration = json!([{"key": "t", "value": {"type": {"simple": "DURATION"}}}]);
    let text = json!([{"key": "t", "value": {"type": {"simple": "STRING"}}}]);
    let none = json!([]);
    let value = |value: Value| json!({"t": {"scalar": {"primitive": value}}});
    for (context, problem) in [
        (
            context(&none, &none, &json!({})),
            "found 0 inputs and 0 outputs",
        ),
        (context(&duration, &duration, &json!({})), "1 outputs"),
        (context(&text, &none, &json!({})), "the type of input \"t\""),
        (
            context(&duration, &none, &json!({})),
            "as input \"t\", found none",
        ),
        (
            context(&duration, &none, &value(json!({"integer": "1"}))),
            "found none",
        ),
        (
            context(&duration, &none, &value(json!({"duration": "-1s"}))),
            "not to be negative",
        ),
    ] {
        let info = step(&context, &[], 0).info;
        let found = digest(&info);
        assert!(
            found.starts_with("PermanentFailure User BadTaskSpecification: "),
            "{found}"
        );
        assert!(found.contains(problem), "{found}");
    }
}

#[test]
fn a_state_of_somebody_else_is_no_state() {
    let context = sleeps("60s");
    let read = |version, bytes| {
        let round = Round {
            state: StoredState { version, bytes },
            is_state_ours: false,
            answer: None,
            has_slot: true,
            now: START.parse().unwrap(),
        };
        SleepPlugin.step(&context, &round).unwrap_err()
    };
    assert_eq!(read(2, b"{}"), StateError::Version(2));
    assert!(matches!(read(1, b"{}"), StateError::Corrupt(_)));
}
