//! What is asked of the webhook of a rule, and what its answer means. Pure: the rounds say which webhook to ask, and
//! the kit sends the question beside them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use longshore_api::podops::{
    RuleAnswer, RuleParameter, RuleQuestion, RuleState, RuleSubject, RuleWebhook,
    RuleWebhookStatus, Stage,
};
use longshore_core::text::shorten_to;
use longshore_outbound::shown;
use serde_json::Value;

use super::{
    evaluate::{Before, Outcome, Subject},
    requests::Requests,
    task::{Follow, Poll, asked_after, ended_since, initialized},
};

/// When a webhook that did not let a pod pass is asked again, upstream's.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Bytes of a webhook's message that are kept.
const MAX_MESSAGE: usize = 1024;
/// Bytes of the id of a task.
const MAX_TASK_ID: usize = 256;
/// What is wrong with a webhook that cannot be read. The value is not quoted: it may be a URL with a password.
const OTHER_TYPE: &str =
    "a field has another type than kubectl explain podtransitionrule.spec.rules.webhook says";
/// Upstream's spelling of what a pod is.
const SUBJECT_API_VERSION: &str = "core/v1";
const SUBJECT_KIND: &str = "Pod";

/// A question about pods that are in a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The rule, of its PodTransitionRule.
    pub rule: String,
    /// The stage.
    pub stage: Stage,
    /// Whom to ask, and what to say of the pods.
    pub webhook: RuleWebhook,
    /// The pods by what brought them there ([`Subject::occasion`]).
    pub pods: BTreeMap<String, String>,
    /// Tells this question from others in logs. It is in the status before the question is sent: a controller that was
    /// killed and asks the same again sends the same id, so that the webhook can tell.
    pub trace_id: String,
}

/// What is known about what webhooks say: by rule, and by what brought a pod to it.
pub type Answers = BTreeMap<String, BTreeMap<String, Heard>>;

/// What is known about what a webhook says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// What the webhook answered last; `None` where it has not answered yet.
    pub outcome: Option<Outcome>,
    /// When the webhook is asked again; `None` while the question is under way, where the pod has passed, and where a
    /// task has begun.
    pub again_at: Option<Timestamp>,
    /// The task that the answer has begun.
    pub task: Option<Begun>,
}

/// A task that an answer has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its id, which the webhook chose.
    pub id: String,
    /// What was said, for people.
    pub message: String,
    /// When the answer came.
    pub at: Timestamp,
}

impl Heard {
    fn has_passed(&self) -> bool {
        self.outcome == Some(Ok(()))
    }

    /// Whether a question is under way.
    pub(super) fn is_asked(&self) -> bool {
        !self.has_passed() && self.again_at.is_none() && self.task.is_none()
    }

    /// When the webhook is asked anew; `None` where it is not. Where a task was, the status has the end of the task
    /// before the rule asks anew, some time after that end.
    pub(super) fn due_at(&self, status: &RuleWebhookStatus, now: Timestamp) -> Option<Timestamp> {
        let task = self.task.as_ref();
        let ended_at = task.and_then(|task| ended_since(status, task));
        let due_at = self.again_at.or(ended_at.map(|at| asked_after(at, now)));
        due_at.filter(|_| !self.has_passed())
    }
}

/// A webhook rule in its stage.
pub(super) struct Asking<'a> {
    pub(super) rule: &'a str,
    pub(super) webhook: &'a Value,
    pub(super) stage: Stage,
}

/// What a rule's webhook says of pods.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Of each pod, in their order.
    pub(super) outcomes: Vec<Outcome>,
    /// What it is to be asked about pods that no task is about.
    pub(super) questions: Vec<Question>,
    /// What it is to be asked about tasks.
    pub(super) polls: Vec<Poll>,
    /// What the status is to say of its tasks.
    pub(super) status: RuleWebhookStatus,
    /// When something is due that no change tells of.
    pub(super) next_at: Option<Timestamp>,
}

impl Asking<'_> {
    /// What the webhook says of pods that it has not let pass, and what it is to be asked.
    pub(super) fn check(&self, open: &[&Subject], before: &Before<'_>) -> Checked {
        let rule = self.rule;
        let webhook: RuleWebhook = match serde_json::from_value(self.webhook.clone()) {
            Ok(webhook) => webhook,
            Err(_) => {
                let why = format!("the webhook of rule {rule} is not one: {OTHER_TYPE}");
                let outcomes = open.iter().map(|_| Err(why.clone())).collect();
                return Checked {
                    outcomes,
                    ..Checked::default()
                };
            }
        };
        let states = before.states.iter().find(|state| state.name == rule);
        let status = states.and_then(|state| state.webhook_status.clone());
        let status = status.unwrap_or_default();
        let follow = Follow {
            rule,
            key: format!("{}/{rule}", before.key),
            poll: webhook.client_config.poll.as_ref(),
            polls: before.polls,
            now: before.now,
        };
        let mut followed = follow.tasks(&status, open);
        let unknown = BTreeMap::new();
        let heard = before.answers.get(rule).unwrap_or(&unknown);
        let is_free = |subject: &&&Subject| !followed.outcomes.contains_key(&subject.name);
        let free: Vec<&Subject> = open.iter().filter(is_free).copied().collect();
        let known = free
            .iter()
            .filter_map(|subject| Some((*subject, heard.get(&subject.occasion)?)));
        follow.begin(known, &mut followed);
        let requests = Requests {
            asking: self,
            webhook: &webhook,
            heard,
            status: &status,
            before,
        };
        let (questions, due_at) = requests.about(&free, &mut followed.status);
        let mut outcomes = Vec::new();
        for subject in open {
            let outcome = followed.outcomes.remove(&subject.name);
            outcomes.push(outcome.unwrap_or_else(|| {
                let heard = heard.get(&subject.occasion);
                let outcome = heard.and_then(|heard| heard.outcome.clone());
                let url = shown(&webhook.client_config.url);
                outcome.unwrap_or_else(|| Err(format!("waits for the answer of {url}")))
            }));
        }
        Checked {
            outcomes,
            questions,
            polls: followed.polls,
            status: followed.status,
            next_at: followed.next_at.into_iter().chain(due_at).min(),
        }
    }
}

impl Question {
    /// Whether the status has it.
    pub(super) fn is_recorded(&self, states: &[RuleState]) -> bool {
        let states = states.iter().filter(|state| state.name == self.rule);
        let mut requests = states
            .filter_map(|state| state.webhook_status.as_ref())
            .flat_map(|status| &status.requests);
        requests.any(|request| {
            let mut names = self.pods.values();
            request.trace_id == self.trace_id && names.all(|name| request.pods.contains_key(name))
        })
    }

    /// What is sent. `pod` gives the whole pod of a name; one that is gone is not asked about.
    pub fn body(&self, pod: impl Fn(&str) -> Option<Value>) -> RuleQuestion {
        let names: BTreeSet<&String> = self.pods.values().collect();
        let subject = |name: &String| {
            let pod = pod(name)?;
            let parameters = self.webhook.parameters.iter();
            Some(RuleSubject {
                api_version: SUBJECT_API_VERSION.to_owned(),
                kind: SUBJECT_KIND.to_owned(),
                name: name.clone(),
                parameters: parameters
                    .map(|parameter| (parameter.key.clone(), value_of(parameter, &pod)))
                    .collect(),
            })
        };
        RuleQuestion {
            trace_id: self.trace_id.clone(),
            rule_name: self.rule.clone(),
            stage: self.stage.as_str().to_owned(),
            resources: names.into_iter().filter_map(subject).collect(),
        }
    }

    /// What an answer, or why there is none, says of the pods that it was about. `key` is the rule as upstream names it,
    /// `<namespace>/<PodTransitionRule>/<rule>`.
    pub fn hear(
        &self,
        key: &str,
        answer: Result<RuleAnswer, String>,
        now: Timestamp,
    ) -> BTreeMap<String, Heard> {
        let trace_id = &self.trace_id;
        let (finished, said) = match answer {
            Ok(answer) => {
                let said = self.said(key, &answer, now);
                (answer.finished_names.into_iter().collect(), said)
            }
            Err(why) => {
                let why = short(&why);
                let why = format!("Fail to do webhook request {key}, {why}, traceId {trace_id}");
                (BTreeSet::new(), Said::Rejects(why))
            }
        };
        let hear = |name: &String| {
            let passed = Heard {
                outcome: Some(Ok(())),
                ..Heard::default()
            };
            match &said {
                Said::Passes => passed,
                Said::Rejects(_) if finished.contains(name) => passed,
                Said::Rejects(why) => Heard {
                    outcome: Some(Err(why.clone())),
                    again_at: now.checked_add(ASK_AGAIN).ok(),
                    task: None,
                },
                Said::Begins(task) => Heard {
                    outcome: Some(match finished.contains(name) {
                        true => Ok(()),
                        false => Err(initialized(key, &task.id, &task.message)),
                    }),
                    again_at: None,
                    task: Some(task.clone()),
                },
            }
        };
        let pods = self.pods.iter();
        pods.map(|(occasion, name)| (occasion.clone(), hear(name)))
            .collect()
    }

    /// What an answer says of the pods that are not finished.
    fn said(&self, key: &str, answer: &RuleAnswer, now: Timestamp) -> Said {
        let wants_to_be_polled = answer.poll || answer.is_async;
        let task = match answer.task_id.as_str() {
            _ if !wants_to_be_polled => "",
            "" => answer.trace_id.as_str(),
            task => task,
        };
        let (message, trace_id) = (short(&answer.message), &self.trace_id);
        if !answer.success {
            let task = short(task);
            return Said::Rejects(format!(
                "Webhook check {key} rejected, traceId {trace_id}, taskId {task}, msg: {message}"
            ));
        }
        if !wants_to_be_polled {
            return Said::Passes;
        }
        if task.is_empty() {
            return Said::Rejects(format!("Invalid empty taskID, request trace {trace_id}"));
        }
        if task.len() > MAX_TASK_ID {
            return Said::Rejects(format!(
                "Invalid taskID of {} bytes, at most {MAX_TASK_ID} are taken, request trace {trace_id}",
                task.len()
            ));
        }
        if self.webhook.client_config.poll.is_none() {
            return Said::Rejects(format!(
                "Fail to get {key} polling config , null polling config in rule {key}"
            ));
        }
        Said::Begins(Begun {
            id: task.to_owned(),
            message,
            at: now,
        })
    }
}

/// What an answer says of the pods that it does not name as finished.
enum Said {
    /// The pods pass.
    Passes,
    /// The pods do not pass, and this is why.
    Rejects(String),
    /// The pods wait for this task.
    Begins(Begun),
}

/// As much of a webhook's message as people read: it is kept in the status, and on every pod.
pub(super) fn short(text: &str) -> String {
    shorten_to(text, MAX_MESSAGE)
}

fn value_of(parameter: &RuleParameter, pod: &Value) -> String {
    let source = parameter.value_from.as_ref();
    match source.and_then(|source| source.field_ref.as_ref()) {
        Some(field) if parameter.value.is_empty() => field_of(pod, &field.field_path),
        Some(_) | None => parameter.value.clone(),
    }
}

/// A field of a pod as text: what `fieldRef` of an environment variable gives, or whatever stands at a dotted path.
fn field_of(pod: &Value, path: &str) -> String {
    let metadata = &pod["metadata"];
    if let Some((map, key)) = path.split_once("['") {
        let map = map.strip_prefix("metadata.").unwrap_or_default();
        let key = key.strip_suffix("']").unwrap_or_default();
        return text(&metadata[map][key]);
    }
    match path {
        "metadata.labels" => lines(&metadata["labels"]),
        "metadata.annotations" => lines(&metadata["annotations"]),
        path => text(path.split('.').fold(pod, |value, part| &value[part])),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// `key="value"`, a line each, as the downward API writes them.
fn lines(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten();
    let lines: Vec<String> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

    fn question(parameters: Value) -> Question {
        let config = json!({"url": "http://x", "poll": {"url": "http://x/tasks"}});
        let webhook = json!({"clientConfig": config, "parameters": parameters});
        Question {
            rule: "hook".to_owned(),
            stage: Stage::PreCheck,
            webhook: serde_json::from_value(webhook).unwrap(),
            pods: [("1", "a"), ("2", "b")]
                .map(|(occasion, name)| (occasion.to_owned(), name.to_owned()))
                .into(),
            trace_id: "t".to_owned(),
        }
    }

    #[test]
    fn a_question_has_upstreams_shape_and_leaves_out_who_is_gone() {
        let parameters = json!([
            {"key": "text", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"key": "name", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"key": "app", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a.b/c']"}}},
            {"key": "labels", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}},
            {"key": "grace", "valueFrom": {"fieldRef": {"fieldPath": "spec.grace"}}},
            {"key": "none", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]);
        let pod = json!({
            "metadata": {"name": "a", "labels": {"a.b/c": "1", "d": "\"2\""}},
            "spec": {"grace": 30},
        });
        let sent = question(parameters).body(|name| (name == "a").then(|| pod.clone()));
        let expected = json!({
            "traceId": "t", "ruleName": "hook", "stage": "PreCheck",
            "resources": [{"apiVersion": "core/v1", "kind": "Pod", "name": "a", "parameters": {
                "text": "v", "name": "a", "app": "1", "grace": "30", "none": "",
                "labels": "a.b/c=\"1\"\nd=\"\\\"2\\\"\"",
            }}],
        });
        assert_eq!(serde_json::to_value(sent).unwrap(), expected);
    }

    #[test]
    fn what_an_answer_means() {
        let rejected = |task: &str| {
            format!("Webhook check ns/ptr/hook rejected, traceId t, taskId {task}, msg: no")
        };
        let polled =
            "Polling task ns/ptr/hook initialized, will polling by taskId 7, msg: no".to_owned();
        let empty = "Invalid empty taskID, request trace t";
        let cases: [(Value, [Option<String>; 2]); 7] = [
            (
                json!({"success": true, "finishedNames": null}),
                [None, None],
            ),
            (
                json!({"success": false, "message": "no"}),
                [Some(rejected("")), Some(rejected(""))],
            ),
            (
                json!({"message": "no", "finishedNames": ["b", "z"]}),
                [Some(rejected("")), None],
            ),
            (
                json!({"message": "no", "poll": true, "taskId": "7", "finishedNames": ["b"]}),
                [Some(rejected("7")), None],
            ),
            (
                json!({"success": true, "poll": true, "taskId": "7", "message": "no", "finishedNames": ["a"]}),
                [None, Some(polled.clone())],
            ),
            (
                json!({"success": true, "async": true, "traceId": "7", "message": "no", "finishedNames": ["a"]}),
                [None, Some(polled.clone())],
            ),
            (
                json!({"success": true, "poll": true}),
                [Some(empty.to_owned()), Some(empty.to_owned())],
            ),
        ];
        for (answer, expected) in cases {
            let parsed = serde_json::from_value(answer.clone()).unwrap();
            let heard = question(json!([])).hear("ns/ptr/hook", Ok(parsed), NOW);
            let why = heard
                .values()
                .map(|heard| heard.outcome.clone().unwrap().err());
            assert_eq!(why.collect::<Vec<_>>(), expected, "{answer}");
            for heard in heard.values() {
                let is_passed = heard.outcome == Some(Ok(()));
                let has_begun = heard.task.is_some();
                assert_eq!(heard.again_at.is_none(), is_passed || has_begun, "{answer}");
            }
        }
        let down = question(json!([])).hear("ns/ptr/hook", Err("down".to_owned()), NOW);
        let why = "Fail to do webhook request ns/ptr/hook, down, traceId t".to_owned();
        assert_eq!(down["1"].outcome, Some(Err(why)));
    }
}
