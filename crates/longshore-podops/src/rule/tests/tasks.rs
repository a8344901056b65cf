//! Tasks of webhooks that poll.

use super::*;

/// A rule whose webhook may take its time: 60 s, asked every 5 s.
fn slow() -> Value {
    let config = json!({"url": "http://x", "poll": {"url": "http://x/tasks"}});
    json!({"name": "hook", "webhook": {"clientConfig": config}})
}

/// Takes over what the plan writes to the status; what is asked, and what of each pod is said.
fn follow(seen: &mut Observed) -> (Vec<String>, String) {
    let plan = decide(seen);
    let asks = plan.actions.iter().filter_map(|action| {
        let Action::Ask(RuleAsk { inquiry, .. }) = action else {
            return None;
        };
        Some(match inquiry {
            Inquiry::Ask(question) => {
                let pods: Vec<&str> = question.pods.values().map(String::as_str).collect();
                format!("ask {}", pods.join(" "))
            }
            Inquiry::Poll(poll) => format!("poll {}", poll.task_id),
        })
    });
    let asks = asks.collect();
    let Seen::Present(rule) = &mut seen.rule else {
        panic!("{:?}", seen.rule);
    };
    for action in &plan.actions {
        if let Action::Patch(patch) = action
            && patch.subresource == Some("status")
        {
            rule.status = serde_json::from_value(patch.patch["status"].clone()).unwrap();
        }
    }
    let details = rule.status.details.iter();
    let said = details.map(|detail| {
        let why = detail.reject_info.first();
        why.map_or("passed", |info| info.reason.as_str()).to_owned()
    });
    (asks, said.collect::<Vec<_>>().join("\n"))
}

fn tasks(seen: &Observed) -> (Vec<RuleTask>, Vec<RuleTask>) {
    let states = seen.rule.present().unwrap().status.rule_states.first();
    let status = states.and_then(|state| state.webhook_status.clone());
    let status = status.unwrap_or_default();
    (status.task_states, status.history)
}

fn later(seen: &mut Observed, seconds: i64) {
    seen.now += jiff::SignedDuration::from_secs(seconds);
}

/// Both pods wait for a task that an answer has begun.
fn begun(names: &str) -> Observed {
    let pods = pods(names);
    let mut seen = observed(rule(json!([slow()])), pods.clone());
    assert!(follow(&mut seen).0[0].starts_with("ask web-0"));
    let heard = pods.iter().map(|pod| {
        let task = Begun {
            id: "7".to_owned(),
            message: "wait".to_owned(),
            at: NOW,
        };
        let heard = Heard {
            outcome: Some(Err("begun".to_owned())),
            again_at: None,
            task: Some(task),
        };
        (Subject::of(pod).occasion, heard)
    });
    seen.answers = Answers::from([("hook".to_owned(), heard.collect())]);
    seen
}

/// What was answered about the task, which is asked about again at once.
fn answered(seen: &mut Observed, answer: Value) {
    let poll = Poll {
        rule: "hook".to_owned(),
        task_id: "7".to_owned(),
        poll: Default::default(),
    };
    let id = ("hook".to_owned(), "7".to_owned());
    let before = seen.polls.get(&id).cloned().unwrap_or_default();
    let answer = serde_json::from_value(answer).map_err(|error| error.to_string());
    let mut polled = poll.hear(&before, answer, seen.now);
    polled.again_at = Some(seen.now);
    seen.polls.insert(id, polled);
}

#[test]
fn a_task_is_in_the_status_before_it_is_asked_about_and_what_was_answered_before_it_is_asked_again()
{
    let mut seen = begun("pp");
    let (asks, said) = follow(&mut seen);
    assert_eq!((asks, said.as_str()), (vec![], "begun\nbegun"));
    let (running, _) = tasks(&seen);
    assert_eq!(running[0].processing, ["web-0", "web-1"]);
    assert_eq!(
        running[0].begin_time.as_deref(),
        Some("2026-01-01T00:00:00.000000Z")
    );
    // The next process knows nothing but the status.
    seen.answers.clear();
    let said = follow(&mut seen).1;
    let initialized =
        "Polling task default/ptr/hook initialized, will polling by taskId 7, msg: wait";
    assert_eq!(said, [initialized, initialized].join("\n"));
    assert_eq!(follow(&mut seen).0, [""; 0]);
    assert_eq!(
        decide(&seen).next,
        Next::After(std::time::Duration::from_secs(5))
    );
    later(&mut seen, 5);
    assert_eq!(follow(&mut seen).0, ["poll 7"]);
    answered(
        &mut seen,
        json!({"success": true, "finishedNames": ["web-1", "x"], "message": "half"}),
    );
    let (asks, said) = follow(&mut seen);
    let running = "Not approved by webhook default/ptr/hook, polling task 7 is running half";
    assert_eq!((asks, said), (vec![], format!("{running}\npassed")));
    let (running, _) = tasks(&seen);
    assert_eq!(
        (&running[0].processing, &running[0].approved),
        (&vec!["web-0".to_owned()], &vec!["web-1".to_owned()])
    );
    assert_eq!(follow(&mut seen).0, ["poll 7"]);
    answered(&mut seen, json!({"success": true, "finished": true}));
    let (asks, said) = follow(&mut seen);
    assert_eq!((asks, said.as_str()), (vec![], "passed\npassed"));
    let (running, ended) = tasks(&seen);
    assert_eq!((running.len(), ended.len()), (0, 1));
    // For ten minutes.
    later(&mut seen, 601);
    follow(&mut seen);
    assert_eq!(tasks(&seen).1.len(), 0);
}

#[test]
fn a_task_that_is_stopped_or_out_of_time_has_ended_before_the_rule_asks_anew() {
    for is_stopped in [true, false] {
        let mut seen = begun("p");
        follow(&mut seen);
        follow(&mut seen);
        let words = if is_stopped {
            later(&mut seen, 5);
            answered(&mut seen, json!({"stop": true, "message": "no"}));
            "stopped no"
        } else {
            // From the time at which it began, whichever process asks.
            later(&mut seen, 59);
            assert_eq!(follow(&mut seen).0, ["poll 7"]);
            later(&mut seen, 1);
            "stopped Polling Timeout. wait"
        };
        let (asks, said) = follow(&mut seen);
        let expected = format!("Not approved by webhook default/ptr/hook, polling task 7 {words}");
        assert_eq!((asks, said), (vec![], expected));
        let (running, ended) = tasks(&seen);
        assert_eq!(
            (running.len(), &ended[0].processing),
            (0, &vec!["web-0".to_owned()])
        );
        // Not at once, and neither does the next process, which knows nothing but the status.
        let mut next = seen.clone();
        next.answers.clear();
        for seen in [&mut seen, &mut next] {
            for seconds in [4, 1] {
                assert_eq!(follow(seen).0, [""; 0]);
                later(seen, seconds);
            }
            assert_eq!(follow(seen).0, ["ask web-0"]);
        }
    }
}

#[test]
fn a_task_has_a_possible_time_whatever_a_stored_rule_says() {
    const DAY: i64 = 24 * 60 * 60;
    for (interval, timeout, expected) in [
        (0, 0, (1, 1)),
        (-1, i64::MIN, (1, 1)),
        (300_000_000_000, 300_000_000_000, (DAY, 30 * DAY)),
        (4_000_000_000_000, 4_000_000_000_000, (DAY, 30 * DAY)),
        (i64::MAX, i64::MAX, (DAY, 30 * DAY)),
    ] {
        let mut seen = begun("p");
        if let Seen::Present(rule) = &mut seen.rule {
            let poll = json!({
                "url": "http://x/tasks", "intervalSeconds": interval, "timeoutSeconds": timeout,
            });
            let config = json!({"url": "http://x", "poll": poll});
            rule.spec.rules[0].webhook = Some(json!({"clientConfig": config}));
        }
        follow(&mut seen);
        assert_eq!(tasks(&seen).0.len(), 1, "it runs: {interval} {timeout}");
        follow(&mut seen);
        let (interval, timeout) = expected;
        let wait = std::time::Duration::from_secs(interval.unsigned_abs());
        assert_eq!(decide(&seen).next, Next::After(wait));
        later(&mut seen, timeout);
        follow(&mut seen);
        assert_eq!(tasks(&seen).0.len(), 0, "it ended: {interval} {timeout}");
    }
}

#[test]
fn a_task_is_not_about_a_pod_that_came_after_it_began() {
    let mut seen = begun("p");
    follow(&mut seen);
    let Seen::Present(pods) = &mut seen.pods else {
        panic!("{:?}", seen.pods);
    };
    let at = crate::model::stamp(NOW + jiff::SignedDuration::from_secs(1));
    pods[0].labels.insert(OperationLabel::PreCheck.of("a"), at);
    later(&mut seen, 5);
    answered(&mut seen, json!({"success": true, "finished": true}));
    let (asks, said) = follow(&mut seen);
    assert_eq!(
        (asks, said.as_str()),
        (
            vec!["ask web-0".to_owned()],
            "waits for the answer of http://x"
        )
    );
}

#[test]
fn the_same_question_has_the_same_trace_and_another_one_another() {
    let trace = |seen: &Observed| {
        let plan = decide(seen);
        let mut questions = plan.actions.iter().filter_map(|action| {
            let Action::Ask(RuleAsk {
                inquiry: Inquiry::Ask(question),
                ..
            }) = action
            else {
                return None;
            };
            Some(question.trace_id.clone())
        });
        questions.next().unwrap()
    };
    let seen = || observed(rule(json!([slow()])), pods("p"));
    let mut later_on = seen();
    later(&mut later_on, 60);
    assert_eq!(trace(&seen()), trace(&later_on));
    assert_ne!(
        trace(&seen()),
        trace(&observed(rule(json!([slow()])), pods("pp")))
    );
    let mut stopped = begun("p");
    follow(&mut stopped);
    later(&mut stopped, 60);
    follow(&mut stopped);
    later(&mut stopped, 5);
    assert_ne!(trace(&seen()), trace(&stopped));
}
