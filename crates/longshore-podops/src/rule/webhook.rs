//! What is asked of the webhook of a rule, and what its answer means. Pure: the rounds say whom to ask, and somebody
//! beside them asks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use longshore_api::podops::{
    RuleAnswer, RuleParameter, RuleQuestion, RuleSubject, RuleWebhook, Stage,
};
use serde_json::Value;

use super::evaluate::{Outcome, Subject};

/// When somebody who did not let a pod pass is asked again, upstream's.
const ASK_AGAIN: Duration = Duration::from_secs(5);
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
}

/// What is known about what webhooks say: by rule, and by what brought a pod to it.
pub type Answers = BTreeMap<String, BTreeMap<String, Heard>>;

/// What is known about what a webhook says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// What it said last; `None` where it has not answered yet.
    pub outcome: Option<Outcome>,
    /// When it is asked again; `None` while the question is under way, and where the pod has passed.
    pub again_at: Option<Timestamp>,
}

impl Heard {
    /// Whether it is to be asked now.
    fn is_due(&self, now: Timestamp) -> bool {
        self.again_at.is_some_and(|at| at <= now)
    }
}

/// What a rule's webhook says of pods, and what it is to be asked.
pub(super) fn check(
    rule: &str,
    webhook: &Value,
    stage: Stage,
    subjects: &[&Subject],
    answers: &Answers,
    now: Timestamp,
) -> (Vec<Outcome>, Option<Question>) {
    let webhook: RuleWebhook = match serde_json::from_value(webhook.clone()) {
        Ok(webhook) => webhook,
        Err(error) => {
            let why = format!("the webhook of rule {rule} is not one: {error}");
            return (subjects.iter().map(|_| Err(why.clone())).collect(), None);
        }
    };
    let heard = answers.get(rule);
    let (mut outcomes, mut pods) = (Vec::new(), BTreeMap::new());
    for subject in subjects {
        let heard = heard.and_then(|heard| heard.get(&subject.occasion));
        if heard.is_none_or(|heard| heard.is_due(now)) {
            pods.insert(subject.occasion.clone(), subject.name.clone());
        }
        let outcome = heard.and_then(|heard| heard.outcome.clone());
        let url = &webhook.client_config.url;
        outcomes.push(outcome.unwrap_or_else(|| Err(format!("waits for the answer of {url}"))));
    }
    let question = Question {
        rule: rule.to_owned(),
        stage,
        webhook,
        pods,
    };
    (outcomes, Some(question).filter(|it| !it.pods.is_empty()))
}

impl Question {
    /// What is sent. `pod` gives the whole pod of a name; one that is gone is not asked about.
    pub fn body(&self, trace_id: &str, pod: impl Fn(&str) -> Option<Value>) -> RuleQuestion {
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
            trace_id: trace_id.to_owned(),
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
        trace_id: &str,
        answer: Result<RuleAnswer, String>,
        now: Timestamp,
    ) -> BTreeMap<String, Heard> {
        let (finished, rejected) = match answer {
            Ok(answer) => {
                let rejected = rejection(key, trace_id, &answer);
                (answer.finished_names.into_iter().collect(), rejected)
            }
            Err(why) => {
                let why = format!("Fail to do webhook request {key}, {why}, traceId {trace_id}");
                (BTreeSet::new(), Some(why))
            }
        };
        let hear = |name: &String| match rejected.as_ref().filter(|_| !finished.contains(name)) {
            None => Heard {
                outcome: Some(Ok(())),
                again_at: None,
            },
            Some(why) => Heard {
                outcome: Some(Err(why.clone())),
                again_at: now.checked_add(ASK_AGAIN).ok(),
            },
        };
        let pods = self.pods.iter();
        pods.map(|(occasion, name)| (occasion.clone(), hear(name)))
            .collect()
    }
}

/// Why the pods that are not finished do not pass; `None` where all do.
fn rejection(key: &str, trace_id: &str, answer: &RuleAnswer) -> Option<String> {
    let wants_to_be_polled = answer.poll || answer.is_async;
    let task = match answer.task_id.as_str() {
        _ if !wants_to_be_polled => "",
        "" => answer.trace_id.as_str(),
        task => task,
    };
    let message = &answer.message;
    if !answer.success {
        return Some(format!(
            "Webhook check {key} rejected, traceId {trace_id}, taskId {task}, msg: {message}"
        ));
    }
    if !wants_to_be_polled {
        return None;
    }
    if task.is_empty() {
        return Some(format!("Invalid empty taskID, request trace {trace_id}"));
    }
    // Nobody polls: the same question again tells who is finished by then.
    Some(format!(
        "Webhook {key} has not finished task {task}: it is asked again, polling is not there yet, msg: {message}"
    ))
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
        let webhook = json!({"clientConfig": {"url": "http://x"}, "parameters": parameters});
        Question {
            rule: "hook".to_owned(),
            stage: Stage::PreCheck,
            webhook: serde_json::from_value(webhook).unwrap(),
            pods: [("1", "a"), ("2", "b")]
                .map(|(occasion, name)| (occasion.to_owned(), name.to_owned()))
                .into(),
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
        let sent = question(parameters).body("t", |name| (name == "a").then(|| pod.clone()));
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
        let polled = "Webhook ns/ptr/hook has not finished task 7: it is asked again, polling is not there yet, msg: no";
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
                [None, Some(polled.to_owned())],
            ),
            (
                json!({"success": true, "async": true, "traceId": "7", "message": "no", "finishedNames": ["a"]}),
                [None, Some(polled.to_owned())],
            ),
            (
                json!({"success": true, "poll": true}),
                [Some(empty.to_owned()), Some(empty.to_owned())],
            ),
        ];
        for (answer, expected) in cases {
            let parsed = serde_json::from_value(answer.clone()).unwrap();
            let heard = question(json!([])).hear("ns/ptr/hook", "t", Ok(parsed), NOW);
            let why = heard
                .values()
                .map(|heard| heard.outcome.clone().unwrap().err());
            assert_eq!(why.collect::<Vec<_>>(), expected, "{answer}");
            for heard in heard.values() {
                let is_passed = heard.outcome == Some(Ok(()));
                assert_eq!(heard.again_at.is_none(), is_passed, "{answer}");
            }
        }
        let down = question(json!([])).hear("ns/ptr/hook", "t", Err("down".to_owned()), NOW);
        let why = "Fail to do webhook request ns/ptr/hook, down, traceId t".to_owned();
        assert_eq!(down["1"].outcome, Some(Err(why)));
    }
}
