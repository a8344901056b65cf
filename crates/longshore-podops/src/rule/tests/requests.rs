//! Which pods are asked about together, before and after a restart.

use super::*;

/// A rule, its pods, and what this process has heard.
struct Rounds {
    seen: Observed,
    n_writes: usize,
}

impl Rounds {
    fn new(kinds: &str) -> Self {
        let seen = observed(rule(json!([hook()])), pods(kinds));
        Self { seen, n_writes: 0 }
    }

    fn pods(&mut self, kinds: &str) {
        self.seen.pods = Seen::Present(pods(kinds));
    }

    /// One round: the pods of each question, with its `traceId`. The status has all of them before they are asked.
    fn asked(&mut self) -> Vec<(String, String)> {
        let plan = decide(&self.seen);
        let mut asked = Vec::new();
        for action in plan.actions {
            let Seen::Present(rule) = &mut self.seen.rule else {
                unreachable!("the rule exists");
            };
            if let Action::Patch(patch) = action {
                if patch.subresource == Some("status") {
                    rule.status = serde_json::from_value(patch.patch["status"].clone()).unwrap();
                    self.n_writes += 1;
                }
            } else if let Action::Ask(ask) = action
                && let Inquiry::Ask(question) = ask.inquiry
            {
                let states = &rule.status.rule_states;
                assert!(question.is_recorded(states), "{question:?}");
                let pods: Vec<&str> = question.pods.values().map(String::as_str).collect();
                asked.push((pods.join(" "), question.trace_id.clone()));
                for occasion in question.pods.into_keys() {
                    self.hear(occasion, Heard::default());
                }
            }
        }
        asked
    }

    fn hear(&mut self, occasion: String, heard: Heard) {
        let answers = self.seen.answers.entry("hook".to_owned()).or_default();
        answers.insert(occasion, heard);
    }

    /// The webhook refuses a pod, which is asked about again after so many seconds.
    fn refuse(&mut self, name: &str, again_in: i64) {
        let pods = self.seen.pods.present().unwrap();
        let pod = pods.iter().find(|pod| pod.target.name == name).unwrap();
        let (occasion, heard) = heard(pod, Some(Err("no".to_owned())), Some(again_in));
        self.hear(occasion, heard);
    }

    /// The next process knows nothing but the status.
    fn crash(&mut self) {
        self.seen.answers.clear();
    }
}

#[test]
fn pods_that_came_one_after_the_other_are_asked_about_as_before_after_a_crash() {
    let mut rounds = Rounds::new("ps");
    let first = rounds.asked();
    rounds.pods("pp");
    let second = rounds.asked();
    assert_eq!((&*first[0].0, &*second[0].0), ("web-0", "web-1"));
    assert_eq!(rounds.n_writes, 2, "what the rule says of the pods");
    rounds.crash();
    assert_eq!(rounds.asked(), [first.clone(), second.clone()].concat());
    assert_eq!(rounds.asked(), []);
    assert_eq!(rounds.n_writes, 2);
    // A pod that came while no process looked is asked about by itself.
    rounds.crash();
    rounds.pods("ppp");
    let asked = rounds.asked();
    assert_eq!(asked[..2], [first, second].concat());
    assert_eq!((asked.len(), &*asked[2].0), (3, "web-2"));
}

#[test]
fn a_request_without_an_answer_goes_on_about_the_pods_that_are_left() {
    let mut rounds = Rounds::new("pp");
    let both = rounds.asked();
    assert_eq!(both[0].0, "web-0 web-1");
    rounds.pods("ps");
    assert_eq!(rounds.asked(), []);
    rounds.crash();
    assert_eq!(rounds.asked(), [("web-0".to_owned(), both[0].1.clone())]);
    // The next operation on a pod is another question.
    let Seen::Present(pods) = &mut rounds.seen.pods else {
        unreachable!("they are seen");
    };
    let label = OperationLabel::PreCheck.of("a");
    pods[0].labels.insert(label, "2".to_owned());
    let next = rounds.asked();
    assert_eq!(next[0].0, "web-0");
    assert_ne!(next[0].1, both[0].1);
}

#[test]
fn refused_pods_are_asked_about_together_when_they_are_due_and_the_status_has_that_before() {
    let mut rounds = Rounds::new("ps");
    let first = rounds.asked();
    rounds.pods("pp");
    rounds.asked();
    rounds.refuse("web-0", 5);
    rounds.refuse("web-1", 7);
    assert_eq!(rounds.asked(), []);
    assert_eq!(rounds.n_writes, 3);
    // The same question again: no write.
    rounds.refuse("web-0", 0);
    assert_eq!(rounds.asked(), first);
    assert_eq!(rounds.n_writes, 3);
    rounds.refuse("web-0", 0);
    rounds.refuse("web-1", 0);
    let both = rounds.asked();
    assert_eq!((both.len(), &*both[0].0), (1, "web-0 web-1"));
    assert_eq!(rounds.n_writes, 4);
    rounds.crash();
    assert_eq!(rounds.asked(), both);
    // The pods wait for an answer again: no process knows the last one.
    assert_eq!(rounds.n_writes, 5);
}

/// The definition of an earlier version, or of Kuperator, has no such field.
#[test]
fn an_api_server_that_drops_requests_from_the_status_gets_no_write_in_each_round() {
    let mut rounds = Rounds::new("p");
    let drop = |rounds: &mut Rounds| {
        let Seen::Present(rule) = &mut rounds.seen.rule else {
            unreachable!("the rule exists");
        };
        for state in &mut rule.status.rule_states {
            state.webhook_status = Some(Default::default());
        }
    };
    let first = rounds.asked();
    for _ in 0..3 {
        drop(&mut rounds);
        assert_eq!(rounds.asked(), []);
    }
    rounds.refuse("web-0", 5);
    for _ in 0..3 {
        drop(&mut rounds);
        assert_eq!(rounds.asked(), []);
    }
    assert_eq!(rounds.n_writes, 2, "the pod waits, and is refused");
    rounds.crash();
    assert_eq!(rounds.asked(), first);
}
