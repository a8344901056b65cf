//! Which budgets are to be counted again, case by case.

use longshore_api::podops::ENTRY_COUNT_AGAIN;

use super::*;

/// `web-0` waits; all are Ready for so many seconds.
fn seen(words: &str, seconds: i64, budget: Budget) -> Observed {
    let mut all = pods(&[words, "ready", "ready"]);
    for pod in &mut all {
        pod.ready_changed_at = Some(NOW - SignedDuration::from_secs(seconds));
    }
    observed(all, vec![budget])
}

fn recounts(observed: &Observed) -> (usize, bool) {
    let plan = decide(observed);
    let is_recount =
        |action: &&Action<_, _>| matches!(action, Action::Call(EvictionEffect::CountAgain(_)));
    let n = plan.actions.iter().filter(is_recount).count();
    (n, plan.next != Next::AwaitChange)
}

/// The disruption controller has looked at another budget of the pod that became Ready.
#[test]
fn a_budget_whose_count_is_older_than_the_pods_is_counted_again_where_a_pod_waits_for_it() {
    let old = || budget("web", [3, 2, 2], nothing);
    let seen_old = seen("ready evicted", 60, old());
    let plan = decide(&seen_old);
    let [Action::Call(EvictionEffect::CountAgain(patch))] = plan.actions.as_slice() else {
        panic!("{plan:?}");
    };
    assert_eq!(
        (patch.target.name.as_str(), patch.subresource),
        ("web", Some("status"))
    );
    let expected = json!({
        "metadata": {"resourceVersion": "9"},
        "status": {"disruptedPods": {ENTRY_COUNT_AGAIN: "1970-01-01T00:00:00Z"}},
    });
    assert_eq!(patch.patch, expected);
    let held = holders(seen_old.pods.present().unwrap(), &[old()], &[], NOW);
    let message = &held["web-0"][0].message;
    assert!(
        message.ends_with("; 2 are counted, 3 are Ready"),
        "{message}"
    );
    // An operation that has begun may wait for it as well, in service or out of it.
    assert_eq!(recounts(&seen("ready evicted begun", 60, old())), (1, true));
}

#[test]
fn a_count_is_left_alone_where_nobody_waits_or_it_may_be_about_to_come() {
    let old = || budget("web", [3, 2, 2], nothing);
    let asked = |it: &mut Value| {
        it["status"]["disruptedPods"] = json!({ENTRY_COUNT_AGAIN: "1970-01-01T00:00:00Z"});
    };
    let edited = |it: &mut Value| it["metadata"]["generation"] = json!(3);
    let entry = |it: &mut Value| {
        it["status"]["disruptedPods"] = json!({"web-1": NOW.to_string()});
    };
    for (what, observed, expected) in [
        ("none waits", seen("ready", 60, old()), (0, false)),
        ("just Ready", seen("ready evicted", 3, old()), (0, true)),
        (
            "asked",
            seen("ready evicted", 60, budget("web", [3, 2, 2], asked)),
            (0, false),
        ),
        (
            "edited",
            seen("ready evicted", 60, budget("web", [3, 2, 2], edited)),
            (0, false),
        ),
        (
            "an entry",
            seen("ready evicted", 60, budget("web", [3, 2, 2], entry)),
            (0, false),
        ),
        (
            "all counted",
            seen("ready evicted", 60, budget("web", [3, 3, 3], nothing)),
            (0, false),
        ),
    ] {
        assert_eq!(recounts(&observed), expected, "{what}");
    }
    let just_asked = Observed {
        recounted: BTreeSet::from(["web".to_owned()]),
        ..seen("ready evicted", 60, old())
    };
    assert_eq!(recounts(&just_asked), (0, true));
}
