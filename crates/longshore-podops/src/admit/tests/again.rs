//! Operations that are begun again before they are over.

use std::collections::BTreeMap;

use longshore_api::podops::{LABEL_CONTROL, OperationLabel, operation_permission};
use serde_json::{Value, json};

use super::NOW;
use crate::admit::{Operation, Request, mutate};

const ID: &str = "a";

fn labels(of: &[OperationLabel], is_permitted: bool) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(LABEL_CONTROL.to_owned(), "true".to_owned())]);
    if is_permitted {
        labels.insert(operation_permission("update"), "1".to_owned());
    }
    for label in of {
        let is_type = matches!(
            label,
            OperationLabel::OperationType | OperationLabel::DoneOperationType
        );
        let value = if is_type { "update" } else { "1" };
        labels.insert(label.of(ID), value.to_owned());
    }
    labels
}

/// The labels that an update leads to: which of operation `a` there are.
fn become_of(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> (Vec<OperationLabel>, bool) {
    let pod = |labels| json!({"metadata": {"namespace": "default", "name": "web", "uid": "u", "labels": labels}, "spec": {}});
    let request = Request {
        operation: Operation::Update,
        sub_resource: String::new(),
        is_dry_run: false,
        object: pod(new),
        old_object: pod(old),
        options: Value::Null,
    };
    // The webhook refuses malformed labels only, and returns nothing where it leaves the object as it was sent.
    let object = mutate(&request, NOW).unwrap().unwrap_or(request.object);
    let labels = &object["metadata"]["labels"];
    let has = |label: &OperationLabel| labels.get(label.of(ID)).is_some();
    let of = OperationLabel::ALL.into_iter().filter(has).collect();
    (of, labels.get(operation_permission("update")).is_some())
}

#[test]
fn an_operation_that_was_given_up_meets_its_rules_anew() {
    use OperationLabel::{Operating, OperationType, PreCheck, PreChecked, Preparing};

    let given_up = labels(&[OperationType, PreChecked, Preparing], true);
    let again = labels(&[OperationType, PreChecked, Preparing, Operating], true);
    let (of, is_permitted) = become_of(&given_up, &again);
    assert_eq!(of, [Operating, OperationType, PreCheck]);
    assert!(
        !is_permitted,
        "the webhook refuses a permission without an operation that has passed its rules"
    );
}

#[test]
fn an_operation_that_is_begun_again_while_it_completes_works_and_completes_once_more() {
    use OperationLabel::{
        Completing, DoneOperationType, Operate, Operated, Operating, OperationType, PostChecked,
        PreCheck, PreChecked,
    };

    let begun = [
        Operated,
        DoneOperationType,
        PostChecked,
        Completing,
        Operating,
        OperationType,
        PreCheck,
    ];
    let passed = [&begun[..], &[PreChecked]].concat();
    let (of, is_permitted) = become_of(&labels(&begun, false), &labels(&passed, true));
    // The pod has no gate, and nothing protects it: it may be touched at once.
    assert_eq!(of, [Operating, OperationType, PreChecked, Operate]);
    assert!(is_permitted);
}
