use serde_json::{Value, json};

use super::*;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn action_of_a_real_run() -> Value {
    yaml(include_str!("../../testdata/sdk-root-taskaction.yaml"))
}

#[test]
fn a_real_action_reads_and_writes_back_unchanged() {
    let action = action_of_a_real_run();
    let spec = TaskActionSpec::of(&action).unwrap();
    let status = TaskActionStatus::of(&action).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap(), action["spec"]);
    assert_eq!(serde_json::to_value(&status).unwrap(), action["status"]);
    assert!(status.is_terminal());
    assert_eq!(
        status.condition(CONDITION_SUCCEEDED).unwrap().reason,
        REASON_COMPLETED
    );
}

#[test]
fn zero_values_are_left_out_and_read_as_such() {
    assert_eq!(
        serde_json::to_value(TaskActionStatus::default()).unwrap(),
        json!({})
    );
    assert_eq!(
        serde_json::to_value(TaskActionSpec::default()).unwrap(),
        json!({})
    );
    let empty = json!({});
    assert_eq!(
        TaskActionSpec::of(&empty).unwrap(),
        TaskActionSpec::default()
    );
    assert!(!TaskActionStatus::of(&empty).unwrap().is_terminal());
}

#[test]
fn the_stale_sample_reads_with_its_fields_missing() {
    let sample = yaml(include_str!("../../testdata/flyte.org_v1_taskaction.yaml"));
    let spec = TaskActionSpec::of(&sample).unwrap();
    assert_eq!(spec.run_name, "sample-run");
    assert_eq!(spec.task_type, "");
    assert!(spec.task_template.is_empty());
}

#[test]
fn bytes_that_are_not_base64_are_refused() {
    let error = TaskActionSpec::of(&json!({"spec": {"taskTemplate": "{}"}})).unwrap_err();
    assert!(error.to_string().contains("expected base64"), "{error}");
}

#[test]
fn times_are_written_by_the_second() {
    let entry = PhaseTransition {
        phase: REASON_QUEUED.to_owned(),
        occurred_at: "2026-11-21T00:58:44.987654321Z".parse().unwrap(),
        message: String::new(),
    };
    assert_eq!(
        serde_json::to_value(entry).unwrap(),
        json!({"phase": "Queued", "occurredAt": "2026-11-21T00:58:44Z"})
    );
}

#[test]
fn the_views_know_every_field_of_the_schema() {
    let crd = yaml(TASK_ACTION_CRD);
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let at = "2026-11-21T00:58:44Z".parse().unwrap();
    let spec = TaskActionSpec {
        run_name: "r".into(),
        project: "p".into(),
        domain: "d".into(),
        action_name: "a".into(),
        parent_action_name: "a".into(),
        action_type: "task".into(),
        condition_spec: vec![1],
        input_uri: "i".into(),
        run_output_base: "o".into(),
        cache_key: "c".into(),
        task_type: "t".into(),
        short_name: "s".into(),
        task_template: vec![1],
        env_vars: [("A".to_owned(), "b".to_owned())].into(),
        interruptible: Some(false),
        group: "g".into(),
    };
    let status = TaskActionStatus {
        state_json: "{}".into(),
        plugin_state: vec![1],
        plugin_state_version: 1,
        plugin_phase: "PhaseRunning".into(),
        plugin_phase_version: 1,
        attempts: 1,
        system_failures: 1,
        cache_status: 1,
        conditions: vec![Condition {
            kind: CONDITION_FAILED.into(),
            status: "True".into(),
            observed_generation: 1,
            last_transition_time: at,
            reason: REASON_ABORTED.into(),
            message: String::new(),
        }],
        phase_history: vec![PhaseTransition {
            phase: "Queued".into(),
            occurred_at: at,
            message: "m".into(),
        }],
        error_state: Some(ErrorState {
            code: "c".into(),
            kind: ERROR_KIND_USER.into(),
            message: "m".into(),
        }),
        signal_value: vec![1],
        signalled_by: "s".into(),
        signalled_at: Some(at),
    };
    for (part, view) in [
        ("spec", serde_json::to_value(&spec).unwrap()),
        ("status", serde_json::to_value(&status).unwrap()),
    ] {
        let known: Vec<&String> = view.as_object().unwrap().keys().collect();
        let mut fields: Vec<&String> = schema[part]["properties"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        fields.sort();
        assert_eq!(known, fields, "of {part}");
    }
    let back: TaskActionStatus =
        serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
    assert_eq!(back, status);
}
