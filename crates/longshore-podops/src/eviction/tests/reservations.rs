//! Which disruptions are reserved before operations begin, case by case.

use super::*;

/// An entry of a pod, made so many seconds ago.
fn entry(pod: &'static str, seconds: i64) -> impl FnOnce(&mut Value) {
    move |budget: &mut Value| {
        let at = Timestamp::from_second(NOW.as_second() - seconds).unwrap();
        budget["status"]["disruptedPods"][pod] = json!(at.to_string());
    }
}

/// What the patches write: the budget, the pods, and how many disruptions are left.
fn said(reserves: &[Patch]) -> Vec<(String, String, Option<i64>)> {
    let said = reserves.iter().map(|patch| {
        let status = &patch.patch["status"];
        let pods = status["disruptedPods"].as_object().unwrap();
        let pods: Vec<&str> = pods.keys().map(String::as_str).collect();
        let left = status["disruptionsAllowed"].as_i64();
        (patch.target.name.clone(), pods.join(" "), left)
    });
    said.collect()
}

#[test]
fn a_disruption_is_reserved_upon_the_version_of_the_budget_before_an_operation_begins() {
    let seen = observed(
        pods(&["ready evicted", "ready", "ready"]),
        vec![budget("web", [3, 2, 3], nothing)],
    );
    let plan = decide(&seen);
    let [Action::Call(EvictionEffect::Reserve(reserve))] = plan.actions.as_slice() else {
        panic!("{plan:?}");
    };
    assert_eq!(
        (reserve.target.resource, reserve.subresource),
        (BUDGET, Some("status"))
    );
    assert_eq!(reserve.target.uid.as_deref(), Some("web"));
    let expected = json!({
        "metadata": {"resourceVersion": "9"},
        "status": {"disruptionsAllowed": 0, "disruptedPods": {"web-0": "2026-01-01T00:00:00Z"}},
    });
    assert_eq!(reserve.patch, expected);
    assert_eq!(plan.next, Next::After(TRIED_AGAIN));
    let (reserves, begins) = written(&after(&seen, std::slice::from_ref(reserve)));
    assert_eq!(
        (said(&reserves), begins),
        (Vec::new(), vec!["web-0".to_owned()])
    );
}

/// The count of the pods that take part has room for one; the API server has given the disruption to another pod.
#[test]
fn nothing_begins_while_no_disruption_is_left() {
    let given = |it: &mut Value| it["status"]["disruptionsAllowed"] = json!(0);
    let budgets = || vec![budget("web", [3, 2, 3], given)];
    let kinds = ["ready evicted", "ready", "ready"];
    let seen = observed(pods(&kinds), budgets());
    assert_eq!(written(&seen), (Vec::new(), Vec::new()));
    assert_eq!(decide(&seen).next, Next::AwaitChange);
    assert!(!is_short(&seen), "other pods need not be listed");
    let held = holders(&pods(&kinds), &budgets(), &[], NOW);
    let message = "PodDisruptionBudget shop/web: 2 of 3 must stay available, 3 are, and no further disruption is allowed";
    assert_eq!(held["web-0"][0].message, message);
    // A pod that is not Ready needs none, as for the API server.
    let unready = observed(pods(&["unready evicted", "ready", "ready"]), budgets());
    assert_eq!(written(&unready), (Vec::new(), vec!["web-0".to_owned()]));
}

#[test]
fn a_reservation_that_was_made_before_a_crash_is_used_and_not_made_twice() {
    for (age, expected) in [
        (0, (vec![], "web-0")),
        (59, (vec![], "web-0")),
        // It could end before the pod is out of service: it is renewed, and takes nothing more.
        (60, (vec![("web", "web-0", None)], "")),
        (119, (vec![("web", "web-0", None)], "")),
    ] {
        let spent = |it: &mut Value| {
            it["status"]["disruptionsAllowed"] = json!(0);
            entry("web-0", age)(it);
        };
        let seen = observed(
            pods(&["ready evicted", "ready", "ready"]),
            vec![budget("web", [3, 2, 2], spent)],
        );
        let (reserves, begins) = written(&seen);
        let said = said(&reserves);
        let said: Vec<_> = said
            .iter()
            .map(|(budget, pods, left)| (budget.as_str(), pods.as_str(), *left))
            .collect();
        assert_eq!((said, begins.join(" ").as_str()), expected, "{age}");
        assert_eq!(begun(&seen), "web-0", "{age}");
    }
}

#[test]
fn the_entry_of_an_earlier_pod_of_the_name_is_written_again() {
    let mut all = pods(&["ready evicted", "ready", "ready"]);
    all[0].created_at = Some(NOW - SignedDuration::from_secs(20));
    let seen = observed(all, vec![budget("web", [3, 2, 2], entry("web-0", 30))]);
    let (reserves, begins) = written(&seen);
    assert_eq!(
        said(&reserves),
        [("web".to_owned(), "web-0".to_owned(), None)]
    );
    assert!(begins.is_empty(), "{begins:?}");
}

#[test]
fn the_pods_of_a_budget_share_a_write() {
    let seen = observed(
        pods(&["ready evicted", "ready evicted", "ready evicted"]),
        vec![budget("web", [3, 1, 3], nothing)],
    );
    let (reserves, begins) = written(&seen);
    assert_eq!(
        said(&reserves),
        [("web".to_owned(), "web-0 web-1".to_owned(), Some(0))]
    );
    assert!(begins.is_empty(), "{begins:?}");
}

#[test]
fn a_pod_of_several_budgets_has_a_reservation_in_each_in_the_order_of_their_names() {
    let kinds = ["ready evicted", "ready", "ready"];
    let both = vec![
        budget("b", [3, 2, 3], nothing),
        budget("a", [3, 2, 3], nothing),
    ];
    let seen = observed(pods(&kinds), both);
    let (reserves, _) = written(&seen);
    let of = |name: &str| (name.to_owned(), "web-0".to_owned(), Some(0));
    assert_eq!(said(&reserves), [of("a"), of("b")]);
    // A crash between the two writes.
    let (rest, begins) = written(&after(&seen, &reserves[..1]));
    assert_eq!((said(&rest), begins), (vec![of("b")], Vec::new()));
    assert_eq!(begun(&seen), "web-0");
    // Where one has none left, or cannot be written, none is taken from the other one.
    let given = |it: &mut Value| it["status"]["disruptionsAllowed"] = json!(0);
    let one = vec![
        budget("a", [3, 2, 3], nothing),
        budget("b", [3, 2, 3], given),
    ];
    assert_eq!(
        written(&observed(pods(&kinds), one)),
        (Vec::new(), Vec::new())
    );
    let failed = Observed {
        failed: BTreeSet::from(["b".to_owned()]),
        ..seen
    };
    assert_eq!(written(&failed), (Vec::new(), Vec::new()));
    assert_ne!(decide(&failed).next, Next::AwaitChange);
}

/// An operation that waits for its rules while the pod serves keeps its place.
#[test]
fn the_reservation_of_an_operation_that_has_begun_is_renewed_while_the_pod_is_ready() {
    let all = || pods(&["ready evicted begun", "ready", "ready"]);
    let of = |change: Box<dyn FnOnce(&mut Value)>| {
        observed(all(), vec![budget("web", [3, 2, 2], change)])
    };
    let young = of(Box::new(entry("web-0", 20)));
    assert_eq!(written(&young), (Vec::new(), Vec::new()));
    assert_eq!(decide(&young).next, Next::After(Duration::from_secs(40)));
    let old = of(Box::new(entry("web-0", 60)));
    let renewed = ("web".to_owned(), "web-0".to_owned(), None);
    assert_eq!(said(&written(&old).0), [renewed]);
    // No controller ran to renew the entry: what is left is taken first.
    let lapsed = |it: &mut Value| it["status"]["disruptionsAllowed"] = json!(1);
    let lapsed = observed(
        pods(&["ready evicted begun", "ready evicted", "ready"]),
        vec![budget("web", [3, 1, 3], lapsed)],
    );
    let again = ("web".to_owned(), "web-0".to_owned(), Some(0));
    assert_eq!(said(&written(&lapsed).0), [again]);
    // Another pod has it.
    let all = pods(&["ready evicted begun", "ready", "ready"]);
    let budgets = vec![budget("web", [3, 2, 2], nothing)];
    let held = holders(&all, &budgets, &[], NOW);
    assert!(
        held["web-0"][0].message.contains("no further disruption"),
        "{held:?}"
    );
    let spent = observed(all, budgets);
    assert_eq!(written(&spent), (Vec::new(), Vec::new()));
    assert_eq!(decide(&spent).next, Next::AwaitChange);
    // The disruption controller counts a pod as missing that is not Ready.
    let out = observed(
        pods(&["unready evicted begun", "ready", "ready"]),
        vec![budget("web", [3, 2, 2], nothing)],
    );
    assert_eq!(written(&out), (Vec::new(), Vec::new()));
    assert_eq!(decide(&out).next, Next::AwaitChange);
}

/// The budget was edited, cannot be counted, or wants more pods to stay than there are without the one that is to go.
#[test]
fn a_budget_that_changes_while_an_operation_waits_holds_the_pod_in_service_and_takes_nothing() {
    let edited = |it: &mut Value| it["metadata"]["generation"] = json!(3);
    let failed = |it: &mut Value| {
        it["status"]["conditions"] = json!([{
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale",
        }]);
    };
    let never = |it: &mut Value| it["status"]["observedGeneration"] = Value::Null;
    type Case = (&'static str, [i64; 3], fn(&mut Value), &'static str);
    let cases: [Case; 5] = [
        (
            "edited",
            [3, 2, 2],
            edited,
            "has not counted the pods for its present spec",
        ),
        (
            "failed",
            [3, 2, 2],
            failed,
            "cannot count the pods: no scale",
        ),
        (
            "never counted",
            [3, 2, 2],
            never,
            "has not counted the pods for its present spec",
        ),
        (
            "raised",
            [4, 4, 3],
            nothing,
            "4 of 4 must stay available, 3 are",
        ),
        ("no pods", [0, 0, 0], nothing, "has counted no pods yet"),
    ];
    let begun = || pods(&["ready evicted begun", "ready", "ready"]);
    for (what, numbers, change, message) in cases {
        for age in [10, 70] {
            let budget = budget("web", numbers, |it| {
                entry("web-0", age)(it);
                it["status"]["disruptionsAllowed"] = json!(1);
                change(it);
            });
            let budgets = vec![budget];
            assert!(!may_leave(&begun()[0], &budgets, NOW), "{what}");
            let held = holders(&begun(), &budgets, &[], NOW);
            let said = &held["web-0"][0].message;
            assert!(said.ends_with(message), "{what}: {said}");
            // The entry ends by itself: what it takes is needed by others.
            let seen = observed(begun(), budgets.clone());
            assert_eq!(written(&seen), (Vec::new(), Vec::new()), "{what} {age}");
            // A pod that is not Ready costs nothing, and is not held.
            let unready = pod("web-0", "unready evicted begun");
            assert!(may_leave(&unready, &budgets, NOW), "{what}");
            // One that is out of service is not held in it.
            let closed = pods(&["ready evicted begun closed", "ready", "ready"]);
            assert!(holders(&closed, &budgets, &[], NOW).is_empty(), "{what}");
        }
    }
}

#[test]
fn a_budget_that_is_lowered_again_or_wants_no_pod_lets_the_operation_go_on() {
    let begun = || pods(&["ready evicted begun", "ready", "ready"]);
    let lowered = [budget("web", [3, 2, 2], entry("web-0", 10))];
    assert!(may_leave(&begun()[0], &lowered, NOW));
    assert!(holders(&begun(), &lowered, &[], NOW).is_empty());
    let none = [budget("web", [3, 0, 2], entry("web-0", 10))];
    assert!(may_leave(&begun()[0], &none, NOW));
}

#[test]
fn a_pod_that_its_budgets_let_go_and_that_does_not_begin_says_what_could_not_be_written() {
    let held = |words: &str, budget: Budget| {
        let held = holders(&pods(&[words, "ready", "ready"]), &[budget], &[], NOW);
        let held = held.get("web-0").and_then(|held| held.first());
        held.map_or(String::new(), |held| held.message.clone())
    };
    let room = || budget("web", [3, 2, 3], nothing);
    let reserved = || budget("web", [3, 2, 2], entry("web-0", 10));
    let says = "PodDisruptionBudget shop/web: 2 of 3 must stay available, 3 are: it has room, and no disruption could be \
                reserved in it; Events of the pod say why";
    assert_eq!(held("ready earlier", room()), says);
    let message = held("ready earlier", reserved());
    let expected = "it has room, and the operation could not begin; Events of the pod say why";
    assert!(message.ends_with(expected), "{message}");
    // A moment ago: it is about to begin.
    assert_eq!(held("ready evicted", room()), "");
}

#[test]
fn a_budget_that_cannot_be_counted_takes_no_reservation_and_keeps_nobody_from_another_one() {
    let edited = |it: &mut Value| it["metadata"]["generation"] = json!(3);
    let budgets = vec![
        budget("a", [3, 1, 3], edited),
        budget("b", [3, 1, 3], nothing),
    ];
    let begun = observed(pods(&["ready evicted begun", "ready", "ready"]), budgets);
    let of_b = ("b".to_owned(), "web-0".to_owned(), Some(1));
    assert_eq!(said(&written(&begun).0), [of_b]);
}

#[test]
fn a_pod_with_a_reservation_that_is_still_ready_is_deleted_and_costs_no_second_one() {
    let (ready, unready) = (pod("web-0", "ready"), pod("web-0", "unready"));
    let spent = || budget("web", [3, 2, 2], entry("web-0", 20));
    assert_eq!(removal(&ready, &[spent()], NOW), Removal::Delete);
    assert_eq!(removal(&unready, &[spent()], NOW), Removal::Evict);
    let others = || budget("web", [3, 2, 2], entry("web-1", 20));
    assert_eq!(removal(&ready, &[others()], NOW), Removal::Wait);
    let room = || budget("web", [3, 2, 3], nothing);
    assert_eq!(removal(&ready, &[room()], NOW), Removal::Evict);
}
