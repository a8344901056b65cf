//! What rules say, and what is written about it.

mod addresses;
mod requests;
mod room;
mod tasks;

use longshore_api::podops::{
    CONTROLLED, FINALIZER_PROTECTED, LABEL_CONTROL, LABEL_SERVICE_AVAILABLE, OperationLabel,
    RuleTask, detail_annotation,
};
use longshore_core::{Action, Next, Seen, UnknownCause};
use serde_json::{Value, json};

use super::*;
use crate::model::Pod;

const NOW: jiff::Timestamp = jiff::Timestamp::constant(1_767_225_600, 0);

fn rule(rules: Value) -> Rule {
    Rule::of(&json!({
        "metadata": {
            "namespace": "default", "name": "ptr", "uid": "r", "resourceVersion": "3",
            "generation": 1, "finalizers": [FINALIZER_PROTECTED],
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "rules": rules},
    }))
    .unwrap()
}

/// `web-0` and so on: `s` serves, `p` waits in PreCheck and serves, `u` does not serve, `x` waits and does not serve.
fn pods(kinds: &str) -> Vec<Pod> {
    let pod = |(n, kind): (usize, char)| {
        let mut labels = json!({LABEL_CONTROL: CONTROLLED, "app": "web", "n": n.to_string()});
        if matches!(kind, 's' | 'p') {
            labels[LABEL_SERVICE_AVAILABLE] = json!("1");
        }
        if matches!(kind, 'p' | 'x') {
            labels[OperationLabel::Operating.of("a")] = json!("1");
            labels[OperationLabel::PreCheck.of("a")] = json!("1");
        }
        Pod::of(&json!({"metadata": {
            "namespace": "default", "name": format!("web-{n}"), "uid": format!("p{n}"), "labels": labels,
        }}))
        .unwrap()
    };
    kinds.chars().enumerate().map(pod).collect()
}

fn observed(rule: Rule, pods: Vec<Pod>) -> Observed {
    Observed {
        now: NOW,
        name: rule.target.name.clone(),
        rule: Seen::Present(rule),
        pods: Seen::Present(pods),
        workloads: Seen::Absent,
        answers: Answers::new(),
        polls: Polls::new(),
        spent: Vec::new(),
        skipped: Default::default(),
        form: Default::default(),
    }
}

/// Takes over what the plan writes to the status.
fn told(rule: &mut Rule, pods: &[Pod]) -> String {
    let plan = decide(&observed(rule.clone(), pods.to_vec()));
    let mut patches = plan.actions.iter().filter_map(|action| {
        let Action::Patch(patch) = action else {
            return None;
        };
        Some(patch)
    });
    let Some(patch) = patches.next() else {
        return "nothing".to_owned();
    };
    assert_eq!(patch.subresource, Some("status"), "{patch:?}");
    rule.status = serde_json::from_value(patch.patch["status"].clone()).unwrap();
    let details = rule.status.details.iter();
    let details: Vec<String> = details
        .map(|detail| match detail.reject_info.first() {
            None => format!("{} passed", detail.name),
            Some(info) => format!("{} {}", detail.name, info.reason),
        })
        .collect();
    details.join("\n")
}

#[test]
fn at_most_so_many_are_out_of_service() {
    let policy = |max: Value| {
        rule(json!([{"name": "max", "availablePolicy": {"maxUnavailableValue": max}}]))
    };
    let full = |n: usize, of: usize| {
        format!(
            "[max] blocked by max unavailable policy: [max unavailable]={n}/{of}, [current unavailable]={n}/{of}"
        )
    };
    let two_of_four = format!(
        "web-0 passed\nweb-1 passed\nweb-2 {0}\nweb-3 {0}",
        full(2, 4)
    );
    assert_eq!(told(&mut policy(json!("50%")), &pods("pppp")), two_of_four);
    assert_eq!(told(&mut policy(json!(2)), &pods("pppp")), two_of_four);
    let rounded_up = format!("web-0 passed\nweb-1 passed\nweb-2 {}", full(2, 3));
    assert_eq!(told(&mut policy(json!("50%")), &pods("ppp")), rounded_up);
    let one_is_out = format!("web-1 passed\nweb-2 {}", full(2, 4));
    assert_eq!(told(&mut policy(json!(2)), &pods("upps")), one_is_out);
    // A pod that is out of service already takes no place.
    assert_eq!(told(&mut policy(json!(1)), &pods("xs")), "web-0 passed");
}

#[test]
fn who_has_passed_keeps_its_place() {
    let mut rule = rule(json!([{"name": "max", "availablePolicy": {"maxUnavailableValue": 1}}]));
    assert!(told(&mut rule, &pods("pps")).starts_with("web-0 passed\nweb-1 [max] blocked"));
    // The same again: nothing is given away twice.
    let again = decide(&observed(rule.clone(), pods("pps")));
    assert!(
        again
            .actions
            .iter()
            .all(|action| matches!(action, Action::Patch(patch) if patch.subresource.is_none()))
    );
    // It is on its way and out of service: still no other pod passes.
    assert!(told(&mut rule, &pods("ups")).starts_with("web-1 [max] blocked"));
    // It serves again.
    assert_eq!(told(&mut rule, &pods("sps")), "web-1 passed");
}

#[test]
fn a_replica_that_does_not_exist_yet_is_out_of_service() {
    let policy = || json!([{"name": "max", "availablePolicy": {"maxUnavailableValue": 1}}]);
    let set = |replicas: usize| {
        let set = json!({
            "metadata": {"uid": "set"},
            "spec": {
                "replicas": replicas,
                "template": {"metadata": {"labels": {LABEL_CONTROL: CONTROLLED, "app": "web"}}},
            },
        });
        Seen::Present(vec![serde_json::from_value(set).unwrap()])
    };
    let owned = |kinds: &str| {
        let mut pods = pods(kinds);
        pods.iter_mut()
            .for_each(|pod| pod.owner = Some("set".to_owned()));
        pods
    };
    // The last of six was deleted, and the next one of its name is not there yet.
    let mut seen = observed(rule(policy()), owned("pssss"));
    seen.workloads = set(6);
    assert_eq!(
        details(&decide(&seen)),
        [
            "web-0 [max] blocked by max unavailable policy: [max unavailable]=1/6, [current unavailable]=1/6"
        ]
    );
    // It is there, and does not serve yet.
    seen.pods = Seen::Present(owned("pssssu"));
    assert!(details(&decide(&seen))[0].contains("[current unavailable]=1/6"));
    seen.pods = Seen::Present(owned("psssss"));
    assert_eq!(details(&decide(&seen)), ["web-0 passed"]);
    // Of another workload, whose pods the rule is not about.
    seen.pods = Seen::Present(owned("pssss"));
    if let Seen::Present(workloads) = &mut seen.workloads {
        workloads[0].labels.remove("app");
    }
    assert_eq!(details(&decide(&seen)), ["web-0 passed"]);
    seen.workloads = Seen::unknown(UnknownCause::Unreachable, "down");
    assert!(decide(&seen).actions.is_empty());
}

/// What a plan writes to the status.
fn details(plan: &RulePlan) -> Vec<String> {
    let Some(Action::Patch(patch)) = plan.actions.first() else {
        panic!("{plan:?}");
    };
    let details = patch.patch["status"]["details"].as_array().unwrap().iter();
    let says = |detail: &Value| {
        let name = detail["name"].as_str().unwrap();
        let reason = detail["rejectInfo"][0]["reason"].as_str();
        format!("{name} {}", reason.unwrap_or("passed"))
    };
    details.map(says).collect()
}

#[test]
fn at_least_so_many_serve() {
    let mut rule = rule(json!([{"name": "min", "availablePolicy": {"minAvailableValue": "50%"}}]));
    assert_eq!(
        told(&mut rule, &pods("ppp")),
        "web-0 passed\nweb-1 passed\nweb-2 blocked by min available policy: [min available]=1/3, \
         [current keep available]=1/3"
    );
}

#[test]
fn a_label_is_waited_for() {
    let check = json!({"requires": {"matchLabels": {"n": "1"}}});
    let mut rule = rule(json!([{"name": "labels", "labelCheck": check}]));
    assert_eq!(
        told(&mut rule, &pods("pps")),
        "web-0 block by label check policy, pod default/web-0 labels not match n=1\nweb-1 passed"
    );
}

#[test]
fn rules_that_are_not_about_a_pod_do_not_hold_it() {
    let never = json!({"requires": {"matchLabels": {"never": "1"}}});
    let rules = [
        json!({"disabled": true}),
        json!({"stage": "PostCheck"}),
        json!({"conditions": ["unknown"]}),
        json!({"filter": {"labelSelector": {"matchLabels": {"n": "9"}}}}),
    ];
    for extra in rules {
        let mut one = json!({"name": "labels", "labelCheck": never});
        one.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        assert_eq!(
            told(&mut rule(json!([one])), &pods("p")),
            "web-0 passed",
            "{extra}"
        );
    }
    let mut skipping = pods("p");
    skipping[0].annotations.insert(
        longshore_api::podops::ANNOTATION_SKIP_RULES.to_owned(),
        json!({"skipRules": ["labels"]}).to_string(),
    );
    let mut rule = rule(json!([{"name": "labels", "labelCheck": never}]));
    assert_eq!(told(&mut rule, &skipping), "web-0 passed");
}

#[test]
fn the_later_of_two_rules_of_one_name_holds_its_pods_and_says_why() {
    let never = json!({"requires": {"matchLabels": {"never": "1"}}});
    let always = json!({"requires": {"matchLabels": {"app": "web"}}});
    let mut twice = rule(json!([
        {"name": "a", "labelCheck": always},
        {"name": "a", "labelCheck": never},
    ]));
    let held = "web-0 expected a name of its own for each rule, found another rule with the name \"a\" before this one: \
                rename one of them";
    assert_eq!(told(&mut twice, &pods("p")), held);
    // What was written about the first one lets no pod pass the second one.
    let again = decide(&observed(twice.clone(), pods("p")));
    assert!(
        again
            .actions
            .iter()
            .all(|action| matches!(action, Action::Patch(patch) if patch.subresource.is_none())),
        "{again:?}"
    );
    // A rule that is not asked has no part in it, and neither has one of the other stage.
    for extra in [json!({"disabled": true}), json!({"stage": "PostCheck"})] {
        let mut other = json!({"name": "a", "labelCheck": never});
        other
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let rules = json!([other, {"name": "a", "labelCheck": always}]);
        assert_eq!(
            told(&mut rule(rules), &pods("p")),
            "web-0 passed",
            "{extra}"
        );
    }
    // The tasks of webhooks are kept by name, of whatever stage.
    let mut first = hook();
    first["stage"] = json!("PostCheck");
    let hooks = observed(rule(json!([first, hook()])), pods("p"));
    assert_eq!(asked(&decide(&hooks)), [""; 0]);
}

#[test]
fn a_rule_of_several_kinds_passes_where_all_of_them_do() {
    let one = json!({"maxUnavailableValue": 1});
    let check = json!({"requires": {"matchExpressions": [{"key": "n", "operator": "In", "values": ["0", "1"]}]}});
    let both = || rule(json!([{"name": "a", "availablePolicy": one, "labelCheck": check}]));
    let full =
        "[a] blocked by max unavailable policy: [max unavailable]=1/2, [current unavailable]=1/2";
    assert_eq!(
        told(&mut both(), &pods("pp")),
        format!("web-0 passed\nweb-1 {full}")
    );
    let mut pods = pods("pp");
    pods[0].labels.insert("n".to_owned(), "9".to_owned());
    assert_eq!(
        told(&mut both(), &pods),
        format!(
            "web-0 block by label check policy, pod default/web-0 labels not match n in (0,1)\nweb-1 {full}"
        )
    );
    // A webhook is asked about those only that its rule does not hold already.
    let mut hook = hook();
    hook["labelCheck"] = check.clone();
    let mut seen = observed(rule(json!([hook])), pods);
    assert_eq!(asked(&decide(&seen)), ["hook web-1"]);
    // Where one of the kinds is skipped, the other ones are still asked.
    seen.skipped = [RuleKind::Webhook].into();
    let plan = decide(&seen);
    assert_eq!(asked(&plan), [""; 0]);
    assert!(details(&plan)[0].starts_with("web-0 block by label check policy"));
    seen.skipped = [RuleKind::Webhook, RuleKind::LabelCheck].into();
    assert_eq!(details(&decide(&seen)), ["web-0 passed", "web-1 passed"]);
}

fn hook() -> Value {
    json!({"name": "hook", "webhook": {"clientConfig": {"url": "http://x"}}})
}

/// Which webhooks are asked about which pods.
fn asked(plan: &RulePlan) -> Vec<String> {
    let questions = plan.actions.iter().filter_map(|action| {
        let Action::Ask(RuleAsk {
            inquiry: Inquiry::Ask(question),
            ..
        }) = action
        else {
            return None;
        };
        Some(question)
    });
    questions
        .map(|question| {
            let pods: Vec<&str> = question.pods.values().map(String::as_str).collect();
            format!("{} {}", question.rule, pods.join(" "))
        })
        .collect()
}

/// What a webhook said of a pod.
fn heard(pod: &Pod, outcome: Option<Outcome>, again_in: Option<i64>) -> (String, Heard) {
    let again_at = again_in.map(|seconds| NOW + jiff::SignedDuration::from_secs(seconds));
    let heard = Heard {
        outcome,
        again_at,
        task: None,
    };
    (Subject::of(pod).occasion, heard)
}

#[test]
fn a_webhook_is_asked_once_about_all_pods_that_wait_and_holds_them_until_it_answers() {
    let never = json!({"requires": {"matchLabels": {"n": "1"}}});
    let cheap = json!({"name": "labels", "labelCheck": never});
    let mut rule = rule(json!([hook(), cheap]));
    let pods = pods("pppu");
    // The one that another rule holds already is not offered to it.
    let mut seen = observed(rule.clone(), pods.clone());
    assert_eq!(asked(&decide(&seen)), ["hook web-1"]);
    assert!(
        told(&mut rule, &pods).contains("web-1 waits for the answer of http://x"),
        "{:?}",
        rule.status
    );
    seen = observed(rule, pods.clone());
    let under_way = heard(&pods[1], None, None);
    seen.answers = Answers::from([("hook".to_owned(), [under_way].into())]);
    assert_eq!(asked(&decide(&seen)), [""; 0]);
}

#[test]
fn who_was_refused_is_asked_about_again_in_time_and_who_has_passed_never() {
    let pods = pods("pp");
    let mut rule = rule(json!([hook()]));
    let mut seen = observed(rule.clone(), pods.clone());
    let refused = Some(Err("no".to_owned()));
    let answers = [
        heard(&pods[0], Some(Ok(())), None),
        heard(&pods[1], refused.clone(), Some(5)),
    ];
    seen.answers = Answers::from([("hook".to_owned(), answers.into())]);
    let plan = decide(&seen);
    assert_eq!(asked(&plan), [""; 0]);
    assert_eq!(plan.next, Next::After(std::time::Duration::from_secs(5)));
    let Some(Action::Patch(patch)) = plan.actions.first() else {
        panic!("{plan:?}");
    };
    rule.status = serde_json::from_value(patch.patch["status"].clone()).unwrap();
    assert_eq!(rule.status.details[0].passed_rules, ["hook"]);
    assert_eq!(rule.status.details[1].reject_info[0].reason, "no");
    // The next process knows nothing of the answers, but what was written.
    let mut next = observed(rule, pods.clone());
    assert_eq!(asked(&decide(&next)), ["hook web-1"]);
    let due = heard(&pods[1], refused, Some(0));
    next.answers = Answers::from([("hook".to_owned(), [due].into())]);
    assert_eq!(asked(&decide(&next)), ["hook web-1"]);
    assert_eq!(
        decide(&next).actions.len(),
        3,
        "the question, and what both pods show"
    );
}

#[test]
fn what_was_said_of_a_pod_is_not_said_of_its_next_operation() {
    let now = pods("p");
    let mut later = now.clone();
    let label = OperationLabel::PreCheck.of("a");
    later[0].labels.insert(label, "2".to_owned());
    let mut seen = observed(rule(json!([hook()])), later);
    let passed = heard(&now[0], Some(Ok(())), None);
    seen.answers = Answers::from([("hook".to_owned(), [passed].into())]);
    assert_eq!(asked(&decide(&seen)), ["hook web-0"]);
}

#[test]
fn a_webhook_that_is_none_holds_and_is_not_asked() {
    let mut rule = rule(json!([{"name": "hook", "webhook": {"clientConfig": "x"}}]));
    let pods = pods("p");
    assert_eq!(
        asked(&decide(&observed(rule.clone(), pods.clone()))),
        [""; 0]
    );
    assert!(told(&mut rule, &pods).starts_with("web-0 the webhook of rule hook is not one: "));
}

#[test]
fn what_a_pod_shows_follows_the_status() {
    let mut rule = rule(json!([]));
    let mut pods = pods("ps");
    told(&mut rule, &pods);
    let key = detail_annotation("ptr");
    let path = format!("/metadata/annotations/{}", key.replace('/', "~1"));
    let shown = |rule: &Rule, pods: &[Pod]| {
        let plan = decide(&observed(rule.clone(), pods.to_vec()));
        let patches = plan.actions.iter().map(|action| {
            let Action::Patch(patch) = action else {
                return format!("{action:?}");
            };
            let operations = patch.patch.as_array().unwrap();
            let shown = operations.iter().find(|it| it["path"] == path.as_str());
            format!("{} {}", patch.target.name, shown.unwrap()["value"])
        });
        patches.collect::<Vec<_>>().join("\n")
    };
    let passed = r#"web-0 "{\"stage\":\"PreCheck\",\"passed\":true}""#;
    assert_eq!(shown(&rule, &pods), passed);
    let text = r#"{"stage":"PreCheck","passed":true}"#.to_owned();
    pods[0].annotations.insert(key.clone(), text);
    assert_eq!(shown(&rule, &pods), "");

    let mut out_of_stage = pods.clone();
    let is_stage = |key: &String| key.starts_with(OperationLabel::PreCheck.prefix());
    out_of_stage[0].labels.retain(|key, _| !is_stage(key));
    let mut later = rule.clone();
    told(&mut later, &out_of_stage);
    assert_eq!(shown(&later, &out_of_stage), "web-0 null");

    rule.is_deleting = true;
    assert_eq!(shown(&rule, &pods), "web-0 null");
    pods[0].annotations.clear();
    assert!(shown(&rule, &pods).starts_with("RemoveFinalizer"));
}

/// Applies the plans of a rule to these pods until no annotation is left; how many rounds wrote.
fn rounds_until_nothing_is_shown(mut observed: Observed, mut pods: Vec<Pod>) -> usize {
    let key = detail_annotation("ptr");
    let is_shown = |pod: &Pod| pod.annotations.contains_key(&key);
    let mut n_rounds = 0;
    loop {
        observed.pods = Seen::Present(pods.clone());
        let plan = decide(&observed);
        let mut n_written = 0;
        for action in &plan.actions {
            let Action::Patch(patch) = action else {
                panic!("{action:?}")
            };
            assert_eq!(patch.subresource, None, "{patch:?}");
            let mut pods = pods.iter_mut();
            let pod = pods.find(|pod| pod.target == patch.target).unwrap();
            assert!(pod.annotations.remove(&key).is_some(), "{patch:?}");
            n_written += 1;
        }
        n_rounds += 1;
        if !pods.iter().any(is_shown) {
            assert_eq!(plan.next, Next::AwaitChange);
            return n_rounds;
        }
        // No event has to come: none of these pods may ever change again.
        assert!(n_written > 0);
        assert_eq!(plan.next, Next::After(std::time::Duration::ZERO));
    }
}

/// So many pods with the annotation of the rule, which it does not select.
fn let_go(n: usize) -> Vec<Pod> {
    let mut pods = pods(&"s".repeat(n));
    for pod in &mut pods {
        pod.labels.insert("app".to_owned(), "db".to_owned());
        let key = detail_annotation("ptr");
        pod.annotations.insert(key, "{}".to_owned());
    }
    pods
}

#[test]
fn all_pods_that_a_rule_lets_go_at_once_lose_its_annotation() {
    let mut rule = rule(json!([]));
    told(&mut rule, &[]);
    for (n, n_rounds) in [(1, 1), (16, 1), (17, 2), (40, 3)] {
        let observed = observed(rule.clone(), Vec::new());
        assert_eq!(rounds_until_nothing_is_shown(observed, let_go(n)), n_rounds);
    }
    rule.is_deleting = true;
    let observed = observed(rule, Vec::new());
    assert_eq!(rounds_until_nothing_is_shown(observed, let_go(17)), 2);
}

#[test]
fn pods_lose_the_annotation_of_a_rule_that_is_gone() {
    let observed = Observed {
        rule: Seen::Absent,
        ..observed(rule(json!([])), Vec::new())
    };
    assert_eq!(rounds_until_nothing_is_shown(observed, let_go(17)), 2);
}

#[test]
fn nothing_is_concluded_from_what_cannot_be_seen() {
    let unknown = Observed {
        pods: Seen::unknown(UnknownCause::Unreachable, "down"),
        ..observed(rule(json!([])), Vec::new())
    };
    let plan = decide(&unknown);
    assert!(plan.actions.is_empty());
    assert_ne!(plan.next, Next::AwaitChange);
}

#[test]
fn a_rule_is_about_pods_of_its_namespace_that_it_has_looked_at() {
    let mut rule = rule(json!([]));
    let pods = pods("p");
    assert_eq!(rule.says_of(&pods[0]).unwrap().detail, None);
    told(&mut rule, &pods);
    assert!(
        rule.says_of(&pods[0])
            .unwrap()
            .detail
            .is_some_and(|detail| detail.passed)
    );
    rule.generation = 2;
    assert_eq!(rule.says_of(&pods[0]).unwrap().detail, None);
    rule.target.namespace = "other".to_owned();
    assert_eq!(rule.says_of(&pods[0]), None);
}

#[test]
fn the_first_detail_of_a_pod_counts_in_whatever_order_somebody_has_written_them() {
    let detail = |name: &str, stage: &str| json!({"name": name, "stage": stage});
    let details = [
        detail("web-2", "a"),
        detail("web-0", "b"),
        detail("web-2", "c"),
        detail("web-3", "d"),
    ];
    let rule = Rule::of(&json!({
        "metadata": {"namespace": "default", "name": "ptr", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "details": details},
    }))
    .unwrap();
    let pods = pods("ssss");
    let stages = pods.iter().map(|pod| {
        let detail = rule.says_of(pod).unwrap().detail;
        detail.map(|detail| detail.stage)
    });
    let stages: Vec<Option<String>> = stages.collect();
    let stage = |stage: &str| Some(stage.to_owned());
    assert_eq!(stages, [stage("b"), None, stage("a"), stage("d")]);
}
