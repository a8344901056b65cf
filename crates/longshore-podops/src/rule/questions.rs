//! The questions of rules to webhooks as the kit sends them, and what is known of the answers. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use longshore_api::podops::{RuleAnswer, RulePollAnswer};
use longshore_core::{Asked, Question as _, QuestionId};

use super::{
    decide::Inquiry,
    model::RuleKey,
    task::{Polled, Polls},
    webhook::{Answers, Heard},
};

/// A question to a webhook, on behalf of a namespace: tenants choose URLs, so limits are by namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleAsk {
    /// The namespace of the PodTransitionRule.
    pub namespace: String,
    /// What is asked.
    pub inquiry: Inquiry,
}

/// What a webhook answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleReply {
    /// Whether pods may go on.
    Asked(RuleAnswer),
    /// How far a task is.
    Polled(RulePollAnswer),
}

impl longshore_core::Question for RuleAsk {
    type Answer = RuleReply;

    fn kind(&self) -> &'static str {
        match self.inquiry {
            Inquiry::Ask(_) => "rule_webhook",
            Inquiry::Poll(_) => "rule_poll",
        }
    }

    fn host(&self) -> &str {
        &self.namespace
    }

    fn about(&self) -> String {
        match &self.inquiry {
            // The same question about the same pods has the same one.
            Inquiry::Ask(question) => question.trace_id.clone(),
            Inquiry::Poll(poll) => format!("{}/{}", poll.rule, poll.task_id),
        }
    }

    fn repeats_after(&self) -> Option<std::time::Duration> {
        match &self.inquiry {
            Inquiry::Ask(_) => None,
            Inquiry::Poll(poll) => Some(poll.interval()),
        }
    }
}

/// A question of a rule, how far it is, and what it was answered before where it is asked again.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    pub(crate) ask: &'a RuleAsk,
    pub(crate) asked: Asked<RuleReply>,
    pub(crate) before: Asked<RuleReply>,
}

/// What is still of interest.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// What brought pods into a stage, of those that are in one.
    pub(crate) occasions: BTreeSet<String>,
    /// The tasks that the status has, by rule and id.
    pub(crate) tasks: BTreeSet<(String, String)>,
}

/// What is known for one version of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RuleAnswers {
    pub(crate) answers: Answers,
    pub(crate) polls: Polls,
    /// Questions of which nothing is of interest any more.
    pub(crate) spent: Vec<QuestionId>,
}

/// What was said of a pod, when, and in answer to which question.
struct Said {
    at: Timestamp,
    id: QuestionId,
    heard: Heard,
}

/// What the questions of a rule say about what is of interest.
pub(crate) fn known<'a>(
    key: &RuleKey,
    requests: impl Iterator<Item = InFlight<'a>>,
    wanted: &Wanted,
) -> RuleAnswers {
    let mut known = RuleAnswers::default();
    let mut said: BTreeMap<(String, String), Said> = BTreeMap::new();
    let mut under_way: BTreeSet<(String, String)> = BTreeSet::new();
    let mut questions = Vec::new();
    for request in requests {
        let id = request.ask.id();
        match &request.ask.inquiry {
            Inquiry::Poll(poll) => {
                let task = (poll.rule.clone(), poll.task_id.clone());
                if wanted.tasks.contains(&task) {
                    known.polls.insert(task, polled(&request));
                } else {
                    known.spent.push(id);
                }
            }
            Inquiry::Ask(question) => {
                let is_wanted = |occasion: &&String| wanted.occasions.contains(*occasion);
                let place = |occasion: &String| (question.rule.clone(), occasion.clone());
                let occasions = question.pods.keys().filter(is_wanted);
                if matches!(request.asked, Asked::UnderWay { .. }) {
                    under_way.extend(occasions.map(place));
                }
                for (occasion, new) in heard(key, &request) {
                    if !wanted.occasions.contains(&occasion) {
                        continue;
                    }
                    let (at, heard) = new;
                    let is_newer = |known: &Said| known.at < at;
                    let place = place(&occasion);
                    if said.get(&place).is_none_or(is_newer) {
                        let id = id.clone();
                        said.insert(place, Said { at, id, heard });
                    }
                }
                questions.push((id, question));
            }
        }
    }
    let is_needed = |id: &QuestionId| said.values().any(|said| said.id == *id);
    for (id, question) in questions {
        let occasions = question.pods.keys();
        let mut places = occasions.map(|occasion| (question.rule.clone(), occasion.clone()));
        if !is_needed(&id) && !places.any(|place| under_way.contains(&place)) {
            known.spent.push(id);
        }
    }
    for (rule, occasion) in under_way {
        let outcome = said.remove(&(rule.clone(), occasion.clone()));
        let heard = Heard {
            outcome: outcome.and_then(|said| said.heard.outcome),
            ..Heard::default()
        };
        let answers = known.answers.entry(rule).or_default();
        answers.insert(occasion, heard);
    }
    for ((rule, occasion), Said { heard, .. }) in said {
        let answers = known.answers.entry(rule).or_default();
        answers.insert(occasion, heard);
    }
    known
}

/// What is known of the pods that a question is about, and since when.
fn heard(key: &RuleKey, request: &InFlight<'_>) -> BTreeMap<String, (Timestamp, Heard)> {
    let Inquiry::Ask(question) = &request.ask.inquiry else {
        return BTreeMap::new();
    };
    let Some((at, reply)) = reply(request) else {
        return BTreeMap::new();
    };
    let answer = reply.and_then(|reply| match reply {
        RuleReply::Asked(answer) => Ok(answer),
        RuleReply::Polled(_) => Err("it answered another question".to_owned()),
    });
    let RuleKey { namespace, name } = key;
    let key = format!("{namespace}/{name}/{}", question.rule);
    let heard = question.hear(&key, answer, at).into_iter();
    heard
        .map(|(occasion, heard)| (occasion, (at, heard)))
        .collect()
}

/// What is known of a task.
fn polled(request: &InFlight<'_>) -> Polled {
    let Inquiry::Poll(poll) = &request.ask.inquiry else {
        return Polled::default();
    };
    let Some((at, reply)) = reply(request) else {
        return Polled::default();
    };
    let answer = reply.and_then(|reply| match reply {
        RuleReply::Polled(answer) => Ok(answer),
        RuleReply::Asked(_) => Err("it answered another question".to_owned()),
    });
    let mut polled = poll.hear(&Polled::default(), answer, at);
    if !request.asked.is_over() {
        polled.again_at = None;
    }
    polled
}

/// The newest answer, or why there is none.
fn reply(request: &InFlight<'_>) -> Option<(Timestamp, Result<RuleReply, String>)> {
    let newest = match request.asked {
        Asked::Answered { .. } | Asked::Failed { .. } => &request.asked,
        Asked::NotAsked | Asked::UnderWay { .. } | Asked::AskedByAnother => &request.before,
    };
    match newest {
        Asked::Answered { at, answer } => Some((*at, Ok(answer.clone()))),
        Asked::Failed { at, message, .. } => Some((*at, Err(message.clone()))),
        Asked::NotAsked | Asked::UnderWay { .. } | Asked::AskedByAnother => None,
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::podops::Stage;
    use longshore_core::NoAnswer;
    use longshore_test::EPOCH;
    use serde_json::json;

    use super::*;
    use crate::rule::{Poll, Question};

    fn key() -> RuleKey {
        RuleKey {
            namespace: "default".to_owned(),
            name: "ptr".to_owned(),
        }
    }

    fn ask(trace_id: &str, pods: &[&str]) -> RuleAsk {
        let pods = pods
            .iter()
            .map(|name| (format!("o{name}"), (*name).to_owned()));
        RuleAsk {
            namespace: "default".to_owned(),
            inquiry: Inquiry::Ask(Question {
                rule: "hook".to_owned(),
                stage: Stage::PreCheck,
                webhook: Default::default(),
                pods: pods.collect(),
                trace_id: trace_id.to_owned(),
            }),
        }
    }

    fn poll() -> RuleAsk {
        RuleAsk {
            namespace: "default".to_owned(),
            inquiry: Inquiry::Poll(Poll {
                rule: "hook".to_owned(),
                task_id: "7 8".to_owned(),
                poll: Default::default(),
            }),
        }
    }

    fn answered(second: i64, finished: &[&str]) -> Asked<RuleReply> {
        let answer = json!({"success": false, "message": "wait", "finishedNames": finished});
        Asked::Answered {
            at: EPOCH + jiff::SignedDuration::from_secs(second),
            answer: RuleReply::Asked(serde_json::from_value(answer).unwrap()),
        }
    }

    fn under_way() -> Asked<RuleReply> {
        Asked::UnderWay { since: EPOCH }
    }

    fn wanted(pods: &[&str]) -> Wanted {
        Wanted {
            occasions: pods.iter().map(|name| format!("o{name}")).collect(),
            tasks: [("hook".to_owned(), "7 8".to_owned())].into(),
        }
    }

    /// What is known of the pods, and which questions are spent.
    fn of_pods(
        requests: &[(&RuleAsk, Asked<RuleReply>, Asked<RuleReply>)],
        pods: &[&str],
    ) -> (Vec<String>, Vec<String>) {
        let requests = requests.iter().map(|(ask, asked, before)| InFlight {
            ask,
            asked: asked.clone(),
            before: before.clone(),
        });
        let known = known(&key(), requests, &wanted(pods));
        let heard = known.answers.get("hook").into_iter().flatten();
        let heard = heard.map(|(occasion, heard)| {
            let outcome = match &heard.outcome {
                None => "nothing",
                Some(Ok(())) => "passes",
                Some(Err(_)) => "rejected",
            };
            let again = heard.again_at.map_or("", |_| ", asked again");
            format!("{occasion} {outcome}{again}")
        });
        let spent = known.spent.into_iter().map(|id| id.about);
        (heard.collect(), spent.collect())
    }

    #[test]
    fn an_answer_is_known_of_the_pods_that_still_wait_for_it() {
        let (ab, none) = (ask("1", &["a", "b", "c"]), Asked::NotAsked);
        let (heard, spent) = of_pods(&[(&ab, under_way(), none.clone())], &["a", "b"]);
        assert_eq!(heard, ["oa nothing", "ob nothing"]);
        assert!(spent.is_empty());
        let said = [(&ab, answered(1, &["a"]), none.clone())];
        let (heard, spent) = of_pods(&said, &["a", "b"]);
        assert_eq!(heard, ["oa passes", "ob rejected, asked again"]);
        assert!(spent.is_empty());
        let (heard, spent) = of_pods(&said, &["d"]);
        assert!(heard.is_empty());
        assert_eq!(spent, ["1"]);
        let failed = Asked::Failed {
            at: EPOCH,
            why: NoAnswer::TimedOut,
            message: "silence".to_owned(),
        };
        let (heard, _) = of_pods(&[(&ab, failed, none)], &["a"]);
        assert_eq!(heard, ["oa rejected, asked again"]);
    }

    #[test]
    fn what_was_said_before_stands_until_the_next_answer() {
        let (one, both, none) = (ask("1", &["a"]), ask("2", &["a", "b"]), Asked::NotAsked);
        let again = [(&one, under_way(), answered(1, &[]))];
        assert_eq!(of_pods(&again, &["a"]).0, ["oa rejected"]);
        let joined = [
            (&one, answered(1, &[]), none.clone()),
            (&both, under_way(), none.clone()),
        ];
        let (heard, spent) = of_pods(&joined, &["a", "b"]);
        assert_eq!(heard, ["oa rejected", "ob nothing"]);
        assert!(spent.is_empty());
        let over = [
            (&one, answered(1, &[]), none.clone()),
            (&both, answered(2, &["a"]), none),
        ];
        let (heard, spent) = of_pods(&over, &["a", "b"]);
        assert_eq!(heard, ["oa passes", "ob rejected, asked again"]);
        assert_eq!(spent, ["1"]);
    }

    #[test]
    fn an_answer_about_a_task_is_known_while_the_status_has_the_task() {
        let poll = poll();
        let answer = json!({"success": true, "finishedNames": ["a"], "message": "half"});
        let answered = Asked::Answered {
            at: EPOCH,
            answer: RuleReply::Polled(serde_json::from_value(answer).unwrap()),
        };
        let of = |asked: Asked<RuleReply>, before: Asked<RuleReply>, wanted: &Wanted| {
            let ask = &poll;
            let request = InFlight { ask, asked, before };
            known(&key(), [request].into_iter(), wanted)
        };
        let task = ("hook".to_owned(), "7 8".to_owned());
        let first = of(under_way(), Asked::NotAsked, &wanted(&[]));
        assert_eq!(first.polls[&task], Polled::default());
        let said = of(answered.clone(), Asked::NotAsked, &wanted(&[]));
        let polled = &said.polls[&task];
        assert_eq!(polled.approved, ["a".to_owned()].into());
        assert!(polled.again_at > polled.at, "{polled:?}");
        let again = of(under_way(), answered.clone(), &wanted(&[]));
        assert_eq!(again.polls[&task].message, "half");
        assert_eq!(again.polls[&task].again_at, None);
        let ended = of(answered, Asked::NotAsked, &Wanted::default());
        assert!(ended.polls.is_empty());
        assert_eq!(ended.spent, [poll.id()]);
    }
}
