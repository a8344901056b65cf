//! Large answers of connectors, and the outputs that they return.

use longshore_proto::flyteidl2::core::LiteralMap;

use super::*;

#[test]
fn outputs_are_taken_from_a_connector_that_returns_them() {
    let mut world = World::launched();
    let outputs = json!({"literals": [{"name": "o", "value": {"scalar": {}}}]});
    let step = world.step(
        false,
        told(&json!({"phase": "SUCCEEDED", "outputs": outputs})),
    );
    let outputs = match step.outputs {
        Some(JobOutputs::Here(outputs)) => LiteralMap::decode(outputs).unwrap(),
        other => panic!("expected outputs, found {other:?}"),
    };
    assert!(outputs.literals.contains_key("o"));
    let mut world = World::launched();
    let step = world.step(false, told(&json!({"phase": "SUCCEEDED"})));
    assert_eq!(step.outputs, None);
}

#[test]
fn a_job_whose_answer_was_not_read_fails_its_task_and_no_other_one_is_begun() {
    let step = World::announced().step(true, Some(Answer::CreatedTooLarge(1000)));
    assert_eq!((step.call, step.abort), (None, None));
    assert_eq!(
        digest(&step.info),
        "PermanentFailure User ResourceMetaTooLarge: the connector answered CreateTask with more than 1000 bytes, and a \
         TaskAction stores at most 262144 bytes of a resource_meta: the job runs on unseen; expected a connector that \
         identifies its jobs by less, delete the job there"
    );
}

#[test]
fn large_outputs_are_not_held_and_are_asked_for_once_more() {
    let value = "o".repeat(20_000);
    let literal = json!({"name": "o", "value": {"scalar": {"primitive": {"stringValue": value}}}});
    let whole = told(&json!({"phase": "SUCCEEDED", "outputs": {"literals": [literal]}})).unwrap();
    let cut = whole.clone().bounded();
    let Answer::Told { response, .. } = &cut else {
        panic!("expected the same answer, found {cut:?}");
    };
    assert!(response.encoded_len() < 100, "{response:?}");
    let step = World::launched().step(false, Some(cut.clone()));
    let Some(JobOutputs::Again(call)) = step.outputs else {
        panic!("expected a request for the outputs");
    };
    assert!(matches!(call.request, crate::Request::Get(_)), "{call:?}");
    assert!(whole.into_outputs().unwrap().literals.contains_key("o"));
    assert_eq!(cut.into_outputs(), None);
    let running = told(&json!({"phase": "RUNNING", "outputs": {"literals": []}})).unwrap();
    assert_eq!(running.into_outputs(), None);
}
