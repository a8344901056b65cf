//! Statuses that are at the limit of size of an object, and names that are beyond that of annotations.

use longshore_api::podops::{REASON_INVALID_RULE, REASON_STATUS_TOO_LARGE, RuleState};
use longshore_core::StatusForm;

use super::*;

/// What the fields around the lists of a status take, at most.
const FRAME: usize = 1024;

/// A round: what it writes to the status, which is taken over.
fn write(seen: &mut Observed) -> Option<Value> {
    let plan = decide(seen);
    let mut written = plan.actions.iter().filter_map(|action| {
        let Action::Patch(patch) = action else {
            return None;
        };
        let is_status = patch.subresource == Some("status");
        is_status.then(|| patch.patch["status"].clone())
    });
    let written = written.next()?;
    let Seen::Present(rule) = &mut seen.rule else {
        unreachable!("the rule exists");
    };
    rule.status = serde_json::from_value(written.clone()).unwrap();
    Some(written)
}

/// Whether a round warns that the status is too large.
fn warns(seen: &Observed) -> bool {
    let plan = decide(seen);
    let first = plan.actions.first();
    matches!(first, Some(Action::Announce(it)) if it.reason == REASON_STATUS_TOO_LARGE)
}

/// So many pods wait, and a webhook has refused each of them with this message.
fn refused(n: usize, message: &str) -> Observed {
    let pods = pods(&"p".repeat(n));
    let refused = pods
        .iter()
        .map(|pod| heard(pod, Some(Err(message.to_owned())), Some(5)));
    let answers = Answers::from([("hook".to_owned(), refused.collect())]);
    Observed {
        answers,
        ..observed(rule(json!([hook()])), pods)
    }
}

#[test]
fn a_status_has_its_room_for_any_number_of_pods_and_any_messages() {
    let plain = "m".repeat(1024);
    let (escaped, multibyte) = ("\u{1}\"".repeat(512), "ö".repeat(512));
    for (n, message, form, warned) in [
        (10, &plain, StatusForm::Full, false),
        (1500, &plain, StatusForm::Full, true),
        (1500, &escaped, StatusForm::Full, true),
        (1500, &multibyte, StatusForm::Full, true),
        (9000, &plain, StatusForm::Full, true),
        (100, &plain, StatusForm::Short, true),
        (1000, &escaped, StatusForm::Short, true),
        (1000, &plain, StatusForm::Unwritable, true),
    ] {
        let what = format!("{n} pods, {form:?}");
        let mut seen = refused(n, message);
        seen.form = form;
        assert_eq!(warns(&seen), warned, "{what}");
        let size = write(&mut seen).unwrap().to_string().len();
        let room = match form {
            StatusForm::Full => 1 << 20,
            StatusForm::Short | StatusForm::Unwritable => 32 << 10,
        };
        assert!(size <= room + FRAME, "{what}: {size} bytes");
        assert!(warned || size < 32 << 10, "{what}: {size} bytes");
        assert_eq!(write(&mut seen), None, "{what}: once is enough");
    }
}

#[test]
fn messages_are_shortened_alike_before_a_pod_is_left_out() {
    let mut seen = refused(1500, &"m".repeat(1024));
    write(&mut seen).unwrap();
    let status = &seen.rule.present().unwrap().status;
    assert_eq!((status.targets.len(), status.details.len()), (1500, 1500));
    let reasons = status.details.iter().map(|it| &it.reject_info[0].reason);
    for reason in reasons {
        assert_eq!(reason.len(), 512);
        assert!(reason.ends_with("m… (1024 bytes, shortened)"), "{reason}");
    }
    // People see the whole message on the pod.
    let plan = decide(&seen);
    let Some(Action::Patch(shown)) = plan.actions.first() else {
        panic!("{plan:?}");
    };
    assert!(shown.patch.to_string().contains(&"m".repeat(1024)));
}

/// The pods that the status lets go on.
fn let_go_on(seen: &Observed) -> Vec<String> {
    let details = &seen.rule.present().unwrap().status.details;
    let passed = details.iter().filter(|detail| detail.passed);
    passed.map(|detail| detail.name.clone()).collect()
}

#[test]
fn pods_go_on_in_turns_where_the_status_has_no_room_for_all() {
    let (waiting, out) = (pods(&"p".repeat(2000)), pods(&"s".repeat(2000)));
    let later = waiting[1000..].to_vec();
    let mut seen = observed(rule(json!([])), later);
    seen.form = StatusForm::Short;
    write(&mut seen).unwrap();
    let first = let_go_on(&seen);
    assert!((100..1000).contains(&first.len()), "{}", first.len());
    // Others that come before them by name take no place away.
    seen.pods = Seen::Present(waiting.clone());
    write(&mut seen);
    let still = let_go_on(&seen);
    assert!(first.iter().all(|name| still.contains(name)));
    let mut gone = std::collections::BTreeSet::new();
    let mut n_turns = 0;
    while gone.len() < 2000 {
        n_turns += 1;
        assert!(n_turns < 20, "{} have gone on", gone.len());
        let n_before = gone.len();
        gone.extend(let_go_on(&seen));
        assert!(gone.len() > n_before, "{n_before} have gone on");
        let left = waiting.iter().zip(&out).map(|(waits, out)| {
            let is_gone = gone.contains(&waits.target.name);
            if is_gone { out.clone() } else { waits.clone() }
        });
        seen.pods = Seen::Present(left.collect());
        write(&mut seen);
    }
}

#[test]
fn a_pod_that_passes_shows_that_only_when_the_status_lets_it_go_on() {
    let mut seen = observed(rule(json!([])), pods(&"p".repeat(2000)));
    seen.form = StatusForm::Short;
    write(&mut seen).unwrap();
    let go_on = let_go_on(&seen);
    let Seen::Present(pods) = &mut seen.pods else {
        unreachable!("they are seen");
    };
    // Those that go on show it already.
    let text = r#"{"stage":"PreCheck","passed":true}"#;
    for pod in pods.iter_mut().filter(|it| go_on.contains(&it.target.name)) {
        let key = detail_annotation("ptr");
        pod.annotations.insert(key, text.to_owned());
    }
    assert!(decide(&seen).actions.is_empty());
}

#[test]
fn the_webhook_is_asked_although_no_status_is_taken() {
    for (form, expected) in [
        (StatusForm::Full, "status ask"),
        (StatusForm::Short, "status ask"),
        (StatusForm::Unwritable, "warn ask status"),
    ] {
        let mut seen = observed(rule(json!([hook()])), pods("p"));
        seen.form = form;
        let plan = decide(&seen);
        let done = plan.actions.iter().map(|action| match action {
            Action::Patch(_) => "status",
            Action::Ask(_) => "ask",
            Action::Announce(_) => "warn",
            Action::Persist(_)
            | Action::EnsureFinalizer { .. }
            | Action::RemoveFinalizer { .. }
            | Action::Create(_)
            | Action::Delete(_)
            | Action::Call(_)
            | Action::Used(_) => "other",
        });
        assert_eq!(done.collect::<Vec<_>>().join(" "), expected, "{form:?}");
    }
}

/// The tasks of the only rule.
fn states(seen: &Observed) -> &[RuleState] {
    &seen.rule.present().unwrap().status.rule_states
}

#[test]
fn a_shortened_message_of_a_task_is_no_news() {
    let pods = pods(&"p".repeat(40));
    let config = json!({"url": "http://x", "poll": {"url": "http://x/tasks"}});
    let slow = json!({"name": "hook", "webhook": {"clientConfig": config}});
    let mut seen = observed(rule(json!([slow])), pods.clone());
    seen.form = StatusForm::Short;
    let message = "m".repeat(1024);
    let begun = pods.iter().map(|pod| {
        let (occasion, heard) = heard(pod, Some(Err(message.clone())), None);
        let task = Some(Begun {
            id: "7".to_owned(),
            message: message.clone(),
            at: NOW,
        });
        (occasion, Heard { task, ..heard })
    });
    seen.answers = Answers::from([("hook".to_owned(), begun.collect())]);
    let n_writes = (0..5).filter(|_| write(&mut seen).is_some()).count();
    assert!((1..4).contains(&n_writes), "{n_writes} writes");
    for seconds in [5, 10, 15] {
        seen.now = NOW + jiff::SignedDuration::from_secs(seconds);
        let polled = Polled {
            at: Some(seen.now),
            message: message.clone(),
            again_at: Some(seen.now + jiff::SignedDuration::from_secs(5)),
            ..Polled::default()
        };
        let id = ("hook".to_owned(), "7".to_owned());
        seen.polls.insert(id, polled);
        let n_writes = (0..5).filter(|_| write(&mut seen).is_some()).count();
        assert!(n_writes <= usize::from(seconds == 5), "{n_writes} writes");
        let tasks = &states(&seen)[0]
            .webhook_status
            .as_ref()
            .unwrap()
            .task_states;
        assert!(tasks[0].message.ends_with("bytes, shortened)"), "{tasks:?}");
        assert_eq!(tasks[0].processing.len(), 40);
    }
}

#[test]
fn a_stored_rule_whose_name_no_annotation_can_have_is_followed_and_says_so() {
    for (length, is_shown) in [(63, true), (64, false)] {
        let mut seen = observed(rule(json!([])), pods("p"));
        if let Seen::Present(rule) = &mut seen.rule {
            rule.target.name = "r".repeat(length);
        }
        let plan = decide(&seen);
        let told = plan.actions.first();
        let is_told =
            matches!(told, Some(Action::Announce(it)) if it.reason == REASON_INVALID_RULE);
        assert_eq!(is_told, !is_shown, "{told:?}");
        write(&mut seen).unwrap();
        assert_eq!(let_go_on(&seen), ["web-0"]);
        assert_eq!(decide(&seen).actions.len(), usize::from(is_shown));
    }
}
