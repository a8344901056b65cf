//! What the controller writes, case by case.

use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, ANNOTATION_EVICTED_AT, CONDITION_SERVICE_READY, Detail,
    LABEL_CONTROL, LABEL_SERVICE_AVAILABLE, LABEL_STAY_OFFLINE, OperationLabel, RejectInfo,
};
use longshore_core::{Action, Next, Seen, UnknownCause};
use serde_json::{Value, json};

use super::*;
use crate::{
    eviction::Budget,
    model::{Labels, Namespace, Pod, stamp},
};

const NOW: jiff::Timestamp = jiff::Timestamp::constant(1_767_225_600, 0);

/// A pod that is Ready, open, and has these labels: words `<key>` or `<key>=<value>`, with `<label>/<id>` for those of
/// operations.
fn pod(labels: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut object = json!({
        "metadata": {
            "name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "7",
            "labels": {LABEL_CONTROL: "true"}, "annotations": {},
        },
        "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": CONDITION_SERVICE_READY, "status": "True"},
        ]},
    });
    for label in labels.split_whitespace() {
        let (key, value) = label.split_once('=').unwrap_or((label, "1"));
        object["metadata"]["labels"][long(key)] = json!(value);
    }
    change(&mut object);
    Pod::of(&object).unwrap()
}

/// `operating/a` as it is on the wire.
fn long(key: &str) -> String {
    let short = |label: &OperationLabel| label.prefix().split('.').next().unwrap_or_default();
    match key.split_once('/') {
        Some((name, id)) => match OperationLabel::ALL
            .iter()
            .find(|label| short(label) == name)
        {
            Some(label) => label.of(id),
            None if name.contains('.') => key.to_owned(),
            None => key.replace('/', ".podopslifecycle.kusionstack.io/"),
        },
        None => key.to_owned(),
    }
}

fn observed(pod: Pod) -> Observed {
    Observed {
        now: NOW,
        pod: Seen::Present(pod),
        rules: Seen::Present(Vec::new()),
        services: Default::default(),
        budgets: Seen::Absent,
        namespace: Namespace::Stays,
        traffic: Seen::Absent,
        deadline: None,
    }
}

/// The only patch of a plan, without the version, and with short keys.
fn patch(observed: &Observed) -> String {
    let plan = decide(observed);
    let patches = plan.actions.iter().filter_map(|action| {
        let Action::Patch(patch) = action else {
            return None;
        };
        Some(patch)
    });
    let patches: Vec<_> = patches.collect();
    assert!(patches.len() <= 1, "{plan:?}");
    let Some(patch) = patches.first() else {
        return String::new();
    };
    assert_eq!(patch.patch["metadata"]["resourceVersion"], "7");
    let mut patch = patch.patch.clone();
    patch["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let now = crate::model::stamp(NOW);
    let text = if let Some(condition) = patch.pointer("/status/conditions/0") {
        format!("gate {}", condition["status"])
    } else if patch["metadata"]["labels"].is_null() {
        patch["metadata"]["annotations"].to_string()
    } else {
        patch["metadata"]["labels"].to_string()
    };
    text.replace(&now, "NOW")
        .replace(".podopslifecycle.kusionstack.io", "")
}

fn not_ready(pod: &mut Value) {
    pod["status"]["conditions"][0]["status"] = json!("False");
}

fn closed(pod: &mut Value) {
    pod["status"]["conditions"][1]["status"] = json!("False");
}

fn new(pod: &mut Value) {
    pod["status"]["conditions"] = json!([]);
}

fn check(cases: &[(&str, Pod, &str)]) {
    for (name, pod, expected) in cases {
        assert_eq!(patch(&observed(pod.clone())), *expected, "{name}");
    }
}

#[test]
fn a_pod_that_nobody_operates_on_is_brought_into_service() {
    let available = r#"{"podopslifecycle.kusionstack.io/service-available":"NOW"}"#;
    let unavailable = r#"{"podopslifecycle.kusionstack.io/service-available":null}"#;
    let deleting =
        |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check(&[
        ("new", pod("", new), r#"gate "True""#),
        ("not Ready yet", pod("", not_ready), ""),
        ("Ready", pod("", |_| {}), available),
        ("serving", pod(LABEL_SERVICE_AVAILABLE, |_| {}), ""),
        (
            "no more",
            pod(LABEL_SERVICE_AVAILABLE, not_ready),
            unavailable,
        ),
        (
            "closed",
            pod(LABEL_SERVICE_AVAILABLE, closed),
            r#"gate "True""#,
        ),
        ("told to stay out", pod(LABEL_STAY_OFFLINE, |_| {}), ""),
        (
            "new, and told to stay out",
            pod(LABEL_STAY_OFFLINE, new),
            r#"gate "False""#,
        ),
        ("being deleted", pod("", deleting), ""),
        (
            "not controlled",
            pod("kusionstack.io/control=false", new),
            "",
        ),
    ]);
}

#[test]
fn an_operation_is_taken_from_stage_to_stage() {
    let begun = "operating/a operation-type/a=update";
    let checked = format!("{begun} pre-checked/a operation-permission/update");
    let done = "operated/a done-operation-type/a=update";
    let completing = format!("{done} post-checked/a completing/a");
    let other =
        "operating/b operation-type/b=update operation-permission/update pre-checked/b operate/b";
    let given_up = "operation-type/a=update pre-checked/a operation-permission/update preparing/a";
    let again = format!("{done} post-check/a pre-check/a {given_up}");
    check(&[
        (
            "of a new pod",
            pod(&format!("{begun} pre-check/a"), new),
            r#"gate "True""#,
        ),
        (
            "the rules have passed",
            pod(&format!("{begun} pre-check/a"), |_| {}),
            r#"{"operation-permission/update":"NOW","pre-checked/a":"NOW"}"#,
        ),
        (
            "preparing",
            pod(&format!("{checked} preparing/a"), |_| {}),
            r#"gate "False""#,
        ),
        ("at work", pod(&format!("{checked} operate/a"), closed), ""),
        (
            "done",
            pod(&format!("{done} post-check/a"), closed),
            r#"{"post-checked/a":"NOW"}"#,
        ),
        ("completing", pod(&completing, closed), r#"gate "True""#),
        (
            "completing while another one works",
            pod(&format!("{completing} {other}"), closed),
            "",
        ),
        (
            "given up without an undo",
            pod(given_up, closed),
            r#"{"operation-permission/update":null,"operation-type/a":null,"pre-checked/a":null,"preparing/a":null}"#,
        ),
        (
            "begun again while it completes, and given up",
            pod(&again, closed),
            r#"{"operation-permission/update":null,"operation-type/a":null,"pre-check/a":null,"pre-checked/a":null,"preparing/a":null}"#,
        ),
    ]);
}

#[test]
fn a_rule_holds_a_pod_until_it_has_passed_it_in_its_stage() {
    let waiting = || {
        let begun = "operating/a operation-type/a=update pre-check/a";
        pod(begun, |_| {})
    };
    let detail = |stage: &str, passed| Detail {
        stage: stage.to_owned(),
        passed,
        reject_info: vec![RejectInfo {
            rule_name: "r".to_owned(),
            reason: "no".to_owned(),
        }],
        ..Detail::default()
    };
    let cases = [
        (None, false),
        (Some(detail("PostCheck", true)), false),
        (Some(detail("PreCheck", false)), false),
        (Some(detail("PreCheck", true)), true),
    ];
    for (detail, passes) in cases {
        let rules = vec![RuleSays {
            rule: "ptr".to_owned(),
            detail,
        }];
        let observed = Observed {
            rules: Seen::Present(rules),
            ..observed(waiting())
        };
        assert_eq!(!patch(&observed).is_empty(), passes, "{observed:?}");
    }
    let unknown = Observed {
        rules: Seen::unknown(UnknownCause::Unreachable, "down"),
        ..observed(waiting())
    };
    let plan = decide(&unknown);
    assert!(plan.actions.is_empty());
    assert_ne!(plan.next, Next::AwaitChange);
}

#[test]
fn a_service_that_is_gone_is_waited_for_by_nobody() {
    let expecting = || {
        let expected = json!({"expectedFinalizers": {"Service/default/s": "f"}});
        pod("app=web", |pod| {
            pod["metadata"]["annotations"][ANNOTATION_AVAILABLE_CONDITIONS] =
                json!(expected.to_string());
        })
    };
    let of = |selector: Seen<Labels>| {
        let services = [("Service/default/s".to_owned(), selector)];
        Observed {
            services: services.into(),
            ..observed(expecting())
        }
    };
    let selector = |value: &str| Labels::from([("app".to_owned(), value.to_owned())]);
    let gone = patch(&of(Seen::Absent));
    assert_eq!(
        gone,
        r#"{"pod.kusionstack.io/available-conditions":"{\"expectedFinalizers\":{}}"}"#
    );
    assert_eq!(patch(&of(Seen::Present(selector("other")))), gone);
    assert_eq!(patch(&of(Seen::Present(selector("web")))), "");
    assert_ne!(
        decide(&of(Seen::unknown(UnknownCause::Unreachable, "down"))).next,
        Next::AwaitChange
    );
}

/// The pod of an operation that prepares for an eviction; it is Ready or not.
fn evicted(is_ready: bool) -> Pod {
    const PREPARING: &str = "operating/pod-delete operation-type/pod-delete=delete pre-checked/pod-delete \
                             operation-permission/delete preparing/pod-delete";
    pod(PREPARING, |pod| {
        pod["metadata"]["annotations"][ANNOTATION_EVICTED_AT] = json!(stamp(NOW));
        if !is_ready {
            not_ready(pod);
        }
    })
}

/// A budget over all pods, with an entry of the pod that was made so many seconds ago.
fn budgets(entry: Option<i64>, change: fn(&mut Value)) -> Seen<Vec<Budget>> {
    let mut budget = json!({
        "metadata": {"namespace": "default", "name": "web", "generation": 1},
        "spec": {"selector": {}},
        "status": {
            "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 2,
            "disruptionsAllowed": 0, "observedGeneration": 1,
        },
    });
    if let Some(seconds) = entry {
        let at = NOW - jiff::SignedDuration::from_secs(seconds);
        budget["status"]["disruptedPods"] = json!({"web-0": at.to_string()});
    }
    change(&mut budget);
    let budget: Budget = serde_json::from_value(budget).unwrap();
    Seen::Present(vec![budget])
}

/// What it is, whether the pod is Ready, its budgets, its namespace, and what is expected.
type BudgetCase = (
    &'static str,
    bool,
    Seen<Vec<Budget>>,
    Namespace,
    &'static str,
);

fn check_budgets(cases: Vec<BudgetCase>) {
    for (what, is_ready, budgets, namespace, expected) in cases {
        let observed = Observed {
            budgets,
            namespace,
            ..observed(evicted(is_ready))
        };
        assert_eq!(patch(&observed), expected, "{what}");
    }
}

const CLOSES: &str = r#"gate "False""#;

/// The disruption may have gone to another pod while no controller was there to renew the entry.
#[test]
fn an_evicted_pod_stays_in_service_until_its_budgets_have_a_disruption_reserved() {
    let of = |entry| budgets(entry, |_| {});
    let unknown = || Seen::unknown(UnknownCause::Unreachable, "down");
    let (stays, goes) = (Namespace::Stays, Namespace::Goes);
    check_budgets(vec![
        ("reserved", true, of(Some(10)), stays, CLOSES),
        ("to be renewed", true, of(Some(70)), stays, ""),
        ("not reserved", true, of(None), stays, ""),
        ("not seen", true, unknown(), stays, ""),
        ("not watched", true, Seen::Absent, stays, CLOSES),
        ("not Ready", false, of(None), stays, CLOSES),
        ("all goes", true, of(None), goes, CLOSES),
    ]);
}

/// A pod that its budget does not let go would neither serve nor be replaced.
#[test]
fn an_evicted_pod_stays_in_service_while_its_budget_is_not_counted_or_wants_more_pods() {
    let edited = |it: &mut Value| it["metadata"]["generation"] = json!(2);
    let raised = |it: &mut Value| {
        it["status"]["expectedPods"] = json!(4);
        it["status"]["currentHealthy"] = json!(3);
        it["status"]["desiredHealthy"] = json!(4);
    };
    let failed = |it: &mut Value| {
        it["status"]["conditions"] = json!([{"type": "DisruptionAllowed", "reason": "SyncFailed"}]);
    };
    let uncounted = |it: &mut Value| it["status"] = Value::Null;
    let none = |it: &mut Value| it["status"]["desiredHealthy"] = json!(0);
    let of_others = |it: &mut Value| {
        it["metadata"]["generation"] = json!(2);
        it["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    };
    let generous = |it: &mut Value| {
        it["metadata"]["generation"] = json!(2);
        it["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    };
    let (stays, goes) = (Namespace::Stays, Namespace::Goes);
    let of = |change: fn(&mut Value)| budgets(Some(10), change);
    check_budgets(vec![
        ("edited", true, of(edited), stays, ""),
        ("raised", true, of(raised), stays, ""),
        ("cannot be counted", true, of(failed), stays, ""),
        ("not counted", true, of(uncounted), stays, ""),
        ("wants none", true, of(none), stays, CLOSES),
        ("of others", true, of(of_others), stays, CLOSES),
        ("raised, not Ready", false, of(raised), stays, CLOSES),
        ("edited, not Ready", false, of(generous), stays, CLOSES),
        ("edited, all goes", true, of(edited), goes, CLOSES),
    ]);
}
