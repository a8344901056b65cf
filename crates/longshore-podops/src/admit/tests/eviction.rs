//! What is answered to evictions, with the budgets of their pods.

use super::*;

#[test]
fn an_eviction_is_noted_and_begins_nothing() {
    let pod = pod(|_| {});
    let request = deletion(Value::Null);
    let verdict = validate_eviction(&graceful(), &request, Some(&pod), &[], NOW);
    let denial = verdict.denial.unwrap();
    assert_eq!((denial.code, denial.retry_after_seconds), (429, Some(5)));
    let begin = verdict.begin.unwrap();
    assert_eq!(begin.kind, PatchKind::Json);
    // For this pod only, and only while it takes part.
    assert_eq!(begin.patch.as_array().unwrap()[..2], tests_of_the_pod());
    assert_eq!(
        applied(&begin, &pod),
        json!({"annotations": {ANNOTATION_EVICTED_AT: stamp(NOW)}})
    );
    let gone = validate_eviction(&graceful(), &request, None, &[], NOW);
    assert_eq!(gone, Verdict::default());
    let another = Request {
        object: json!({"deleteOptions": {"preconditions": {"uid": "another"}}}),
        ..request
    };
    let another = validate_eviction(&graceful(), &another, Some(&pod), &[], NOW);
    assert_eq!(another, Verdict::default(), "API servers answer that");
}

#[test]
fn an_eviction_is_noted_again_while_it_waits_and_until_somebody_wants_the_pod_deleted() {
    let asked_at = |seconds: i64| stamp(Timestamp::constant(1_767_225_600 - seconds, 0));
    let known = |seconds: i64, is_begun: bool, is_evicted: bool| {
        pod(|pod| {
            let metadata = &mut pod["metadata"];
            metadata["annotations"] = json!({});
            if is_begun {
                let labels = &mut metadata["labels"];
                labels[LABEL_TO_DELETE] = json!("1");
                labels[OperationLabel::Operating.of("pod-delete")] = json!("1");
                labels[OperationLabel::OperationType.of("pod-delete")] = json!("delete");
                metadata["annotations"][ANNOTATION_DELETE_TIMESTAMP] = json!(asked_at(seconds));
            }
            if is_evicted {
                metadata["annotations"][ANNOTATION_EVICTED_AT] = json!(asked_at(seconds));
            }
        })
    };
    let now = || Some(json!(stamp(NOW)));
    let unsaid = || Some(Value::Null);
    for (what, pod, by_eviction, by_delete) in [
        ("first", pod(|_| {}), now(), unsaid()),
        ("noted just now", known(1, false, true), None, unsaid()),
        ("noted a while ago", known(31, false, true), now(), unsaid()),
        ("begun", known(31, true, true), None, unsaid()),
        ("deleted just now", known(1, true, false), None, None),
        ("deleted a while ago", known(9, true, false), None, unsaid()),
    ] {
        let said = |verdict: Verdict| {
            let begin = verdict.begin?;
            let changes = applied(&begin, &pod);
            Some(changes["annotations"][ANNOTATION_EVICTED_AT].clone())
        };
        let request = deletion(Value::Null);
        let evicted = validate_eviction(&graceful(), &request, Some(&pod), &[], NOW);
        assert_eq!(said(evicted), by_eviction, "{what}");
        let deleted = validate(&graceful(), &deletion(pod.clone()), NOW);
        assert_eq!(said(deleted), by_delete, "{what}");
    }
}

#[test]
fn an_eviction_that_was_noted_for_a_time_ahead_is_noted_anew() {
    for (seconds, expected) in [(0, false), (5, false), (3_600, true)] {
        let at = NOW + jiff::SignedDuration::from_secs(seconds);
        let pod = pod(|pod| {
            pod["metadata"]["annotations"] = json!({ANNOTATION_EVICTED_AT: stamp(at)});
        });
        let request = deletion(Value::Null);
        let verdict = validate_eviction(&graceful(), &request, Some(&pod), &[], NOW);
        assert_eq!(verdict.begin.is_some(), expected, "{seconds}");
        assert_eq!(is_held(&graceful(), &pod, NOW), !expected, "{seconds}");
    }
}

#[test]
fn an_eviction_that_waits_is_answered_with_the_budgets_of_its_pod() {
    let counted = |name: &str, app: &str, healthy: i64| {
        let budget = json!({
            "metadata": {"namespace": "default", "name": name, "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {
                "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": healthy, "observedGeneration": 1,
            },
        });
        serde_json::from_value::<Budget>(budget).unwrap()
    };
    let budget = |name: &str, app: &str| counted(name, app, 2);
    let pod = pod(|pod| {
        pod["metadata"]["labels"]["app"] = json!("web");
        pod["metadata"]["annotations"] = json!({ANNOTATION_EVICTED_AT: stamp(NOW)});
    });
    assert!(is_held(&graceful(), &pod, NOW));
    let budgets = [budget("web", "web"), budget("db", "db")];
    let request = deletion(Value::Null);
    let verdict = validate_eviction(&graceful(), &request, Some(&pod), &budgets, NOW);
    let message = verdict.denial.unwrap().message;
    assert!(
        message.ends_with(": PodDisruptionBudget default/web: 2 of 3 must stay available, 2 are"),
        "{message}"
    );
    // An eviction that a budget holds gets no retry time, as from the API server: clients of Go would retry by
    // themselves.
    for (what, budgets, expected) in [
        ("no room", vec![budget("web", "web")], None),
        ("room", vec![counted("web", "web", 3)], Some(5)),
        (
            "room in one of two",
            vec![counted("web", "web", 3), budget("both", "web")],
            None,
        ),
        ("of other pods", vec![budget("db", "db")], Some(5)),
        ("no budgets", Vec::new(), Some(5)),
    ] {
        let verdict = validate_eviction(&graceful(), &request, Some(&pod), &budgets, NOW);
        let denial = verdict.denial.unwrap();
        for denial in [denial.clone(), denial.instead("why")] {
            let said = (denial.code, denial.retry_after_seconds);
            assert_eq!(said, (429, expected), "{what}");
        }
    }
}

/// Where the role lacks the right, or an admission policy refuses the write, no disruption is reserved and no operation
/// begins.
#[test]
fn an_eviction_that_does_not_begin_although_its_budgets_have_room_is_answered_so() {
    let said = |seconds: i64, numbers: [i64; 2], entry: Option<&str>| {
        let [healthy, allowed] = numbers;
        let mut budget = json!({
            "metadata": {"namespace": "default", "name": "web", "generation": 1},
            "spec": {"selector": {}},
            "status": {
                "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": healthy,
                "disruptionsAllowed": allowed, "observedGeneration": 1,
            },
        });
        let pod = pod(|pod| {
            let at = stamp(NOW - jiff::SignedDuration::from_secs(seconds));
            pod["metadata"]["annotations"] = json!({ANNOTATION_EVICTED_AT: at});
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        });
        if let Some(at) = entry {
            let name = pod["metadata"]["name"].as_str().unwrap();
            budget["status"]["disruptedPods"] = json!({name: at});
        }
        let budgets = [serde_json::from_value::<Budget>(budget).unwrap()];
        let request = deletion(Value::Null);
        let verdict = validate_eviction(&graceful(), &request, Some(&pod), &budgets, NOW);
        let denial = verdict.denial.unwrap();
        (denial.message, denial.retry_after_seconds)
    };
    let not_begun = "has not begun although the disruption controller counts room for it";
    let now = NOW.to_string();
    for (what, seconds, numbers, entry, expected, again) in [
        ("not reserved", 12, [3, 1], None, not_begun, None),
        ("reserved", 12, [2, 0], Some(now.as_str()), not_begun, None),
        (
            "a moment ago",
            3,
            [3, 1],
            None,
            "begins as soon as",
            Some(5),
        ),
        (
            "no room",
            12,
            [2, 0],
            None,
            "must stay available, 2 are",
            None,
        ),
        (
            "taken by others",
            12,
            [3, 0],
            None,
            "no further disruption",
            None,
        ),
    ] {
        let (message, retry_after) = said(seconds, numbers, entry);
        assert!(message.contains(expected), "{what}: {message}");
        assert_eq!(retry_after, again, "{what}");
    }
}
