//! When the controller deletes a pod, and when it leaves that to a client.

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{
    ANNOTATION_DELETE_TIMESTAMP, ANNOTATION_EVICTED_AT, ANNOTATION_HELD_UNTIL,
    CONDITION_SERVICE_READY, LABEL_CONTROL, LABEL_TO_DELETE, OperationLabel,
};
use longshore_core::{Action, Next, Seen, UnknownCause};
use serde_json::{Value, json};

use super::decide;
use crate::{
    eviction::Budget,
    lifecycle::{Observed, PodEffect},
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
                "app": "web",
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

/// The same, where the delete of a client is held until then.
fn held(granted_ago: i64, until: i64) -> Pod {
    let mut pod = granted(granted_ago, None);
    let annotations = &mut pod.annotations;
    annotations.insert(ANNOTATION_DELETE_TIMESTAMP.to_owned(), before(0));
    annotations.insert(ANNOTATION_HELD_UNTIL.to_owned(), before(-until));
    pod
}

/// The latest time that a stamp can say in 64 bits.
fn held_for_ever() -> Pod {
    let mut pod = held(0, 0);
    let until = i64::MAX.to_string();
    pod.annotations
        .insert(ANNOTATION_HELD_UNTIL.to_owned(), until);
    pod
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
        ("no retry", granted(15, Some(18)), stays, None),
        ("no time", nonsense(), stays, None),
        ("by another clock", granted(0, Some(-5)), stays, Some(15)),
        ("far ahead", granted(0, Some(-3_600)), stays, None),
        ("a client is held", held(0, 9), stays, Some(9)),
        ("no client is held now", held(0, 0), stays, None),
        ("no time of ours", held(0, 3_600), stays, None),
        ("for ever", held_for_ever(), stays, None),
        ("all goes, held", held(0, 9), Namespace::Goes, None),
        ("all goes", granted(0, Some(0)), Namespace::Goes, None),
    ] {
        let observed = Observed {
            now: NOW,
            pod: Seen::Present(pod),
            rules: Seen::Absent,
            services: Default::default(),
            budgets: Seen::Absent,
            namespace,
            traffic: Seen::Absent,
            deadline: None,
        };
        let plan = decide(&observed).unwrap();
        let removes = plan
            .actions
            .iter()
            .any(|it| matches!(it, Action::Delete(_) | Action::Call(_)));
        assert_eq!(removes, left.is_none(), "{what}");
        let next = match plan.next {
            Next::AwaitChange => None,
            Next::After(wait) => Some(wait.as_secs()),
        };
        assert_eq!(next, left, "{what}");
    }
}

/// A budget over the pod, with these numbers.
fn budget(name: &str, desired: i64, healthy: i64) -> Budget {
    let budget = json!({
        "metadata": {"namespace": "default", "name": name, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "expectedPods": 3, "desiredHealthy": desired, "currentHealthy": healthy,
            "observedGeneration": 1,
        },
    });
    serde_json::from_value(budget).unwrap()
}

#[test]
fn what_was_to_be_evicted_is_evicted_and_what_was_to_be_deleted_is_deleted() {
    let evicted = || granted(15, Some(18));
    let of = |budgets: Vec<Budget>| Seen::Present(budgets);
    let spent = || budget("spent", 2, 1);
    for (what, pod, budgets, expected) in [
        ("deleted", granted(0, None), of(vec![spent()]), "delete"),
        ("no budgets", evicted(), of(Vec::new()), "evict"),
        ("budgets are not watched", evicted(), Seen::Absent, "evict"),
        ("room", evicted(), of(vec![budget("b", 2, 2)]), "evict"),
        ("no room", evicted(), of(vec![spent()]), "nothing"),
        // API servers evict no pod that is not Ready where none has to stay, and none of two budgets.
        (
            "none has to stay",
            evicted(),
            of(vec![budget("b", 0, 0)]),
            "delete",
        ),
        (
            "two",
            evicted(),
            of(vec![budget("a", 2, 2), budget("b", 1, 2)]),
            "delete",
        ),
        (
            "two, one spent",
            evicted(),
            of(vec![budget("a", 2, 2), spent()]),
            "nothing",
        ),
        (
            "not seen",
            evicted(),
            Seen::unknown(UnknownCause::Unreachable, "down"),
            "look again",
        ),
    ] {
        let observed = Observed {
            now: NOW,
            pod: Seen::Present(pod.clone()),
            rules: Seen::Absent,
            services: Default::default(),
            budgets,
            namespace: Namespace::Stays,
            traffic: Seen::Absent,
            deadline: None,
        };
        let plan = decide(&observed).unwrap();
        let done = match (plan.actions.first(), plan.next) {
            (Some(Action::Call(PodEffect::Evict(target))), _) => {
                assert_eq!(*target, pod.target, "{what}");
                "evict"
            }
            (Some(Action::Delete(_)), _) => "delete",
            (None, Next::AwaitChange) => "nothing",
            (None, Next::After(_)) => "look again",
            (Some(other), _) => panic!("{what}: {other:?}"),
        };
        assert_eq!(done, expected, "{what}");
    }
}
