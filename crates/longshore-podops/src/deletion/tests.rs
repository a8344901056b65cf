//! Who deletes a pod, and when.

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{
    ANNOTATION_EVICTED_AT, CONDITION_SERVICE_READY, LABEL_CONTROL, LABEL_TO_DELETE, OperationLabel,
};
use longshore_core::{Action, Next, Seen};
use serde_json::{Value, json};

use super::decide;
use crate::{
    lifecycle::Observed,
    model::{Namespace, Pod, stamp},
};

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn before(seconds: i64) -> String {
    stamp(NOW - SignedDuration::from_secs(seconds))
}

/// A pod whose deletion was granted so many seconds ago, and whose eviction was asked for.
fn granted(granted: i64, evicted: Option<i64>) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": "web-0", "namespace": "default", "uid": "u", "annotations": {},
            "labels": {
                LABEL_CONTROL: "true",
                LABEL_TO_DELETE: "1",
                OperationLabel::Operating.of("pod-delete"): "1",
                OperationLabel::OperationType.of("pod-delete"): "delete",
                OperationLabel::Operate.of("pod-delete"): before(granted),
            },
        },
        "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
    });
    if let Some(evicted) = evicted {
        pod["metadata"]["annotations"][ANNOTATION_EVICTED_AT] = json!(before(evicted));
    }
    Pod::of(&pod).unwrap()
}

fn nonsense() -> Pod {
    let mut pod = granted(0, None);
    let nonsense = Value::from("soon").to_string();
    pod.annotations
        .insert(ANNOTATION_EVICTED_AT.to_owned(), nonsense);
    pod
}

#[test]
fn whoever_evicts_a_pod_has_some_time_to_do_it() {
    let stays = Namespace::Stays;
    for (what, pod, namespace, left) in [
        ("wanted deleted", granted(0, None), stays, None),
        ("evicted, granted now", granted(0, Some(8)), stays, Some(15)),
        ("asked since", granted(8, Some(3)), stays, Some(12)),
        ("nobody came", granted(15, Some(18)), stays, None),
        ("no time", nonsense(), stays, None),
        ("all goes", granted(0, Some(0)), Namespace::Goes, None),
    ] {
        let observed = Observed {
            now: NOW,
            pod: Seen::Present(pod),
            rules: Seen::Absent,
            services: Default::default(),
            namespace,
            traffic: Seen::Absent,
            deadline: None,
        };
        let plan = decide(&observed).unwrap();
        let deletes = plan
            .actions
            .iter()
            .any(|it| matches!(it, Action::Delete(_)));
        assert_eq!(deletes, left.is_none(), "{what}");
        let next = match plan.next {
            Next::AwaitChange => None,
            Next::After(wait) => Some(wait.as_secs()),
        };
        assert_eq!(next, left, "{what}");
    }
}
