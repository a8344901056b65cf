//! What webhooks of rules were asked and have answered: asked beside the rounds, so that one that takes its time keeps no
//! round waiting. Kept in memory: what let a pod pass is in the status, and everything else is asked again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt, channel::mpsc};
use longshore_api::podops::RuleQuestion;
use longshore_kit::Clock;
use tokio::sync::Semaphore;

use crate::{
    ask_webhooks::AskWebhooks,
    rule::{Answers, Heard, Question, RuleKey},
};

/// Questions under way.
const UNDER_WAY: usize = 64;
/// Questions of one namespace under way: webhooks that take their whole time keep only the rules beside them waiting.
const UNDER_WAY_OF_NAMESPACE: usize = 8;
/// Questions that are under way, or wait to be.
const NOTED: usize = 16 * 1024;

/// Who is asked, and what was heard.
#[derive(Debug)]
pub(crate) struct Conversations {
    talks: Mutex<BTreeMap<RuleKey, Talk>>,
    asking: mpsc::UnboundedSender<Asking>,
}

/// What was heard about one version of a PodTransitionRule.
#[derive(Debug, Default)]
struct Talk {
    generation: i64,
    answers: Answers,
    /// Tells the questions of a rule from those of others: the same for all of them, so that what a webhook says again
    /// reads the same.
    traces: BTreeMap<String, String>,
}

/// Who may be asked at the same time.
#[derive(Debug)]
struct Rooms {
    all: Semaphore,
    by_namespace: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            all: Semaphore::new(UNDER_WAY),
            by_namespace: Mutex::default(),
        }
    }
}

impl Rooms {
    /// The room of a namespace. Those that nobody uses any more are forgotten.
    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let rooms = self.by_namespace.lock();
        let mut rooms = rooms.unwrap_or_else(PoisonError::into_inner);
        rooms.retain(|_, room| Arc::strong_count(room) > 1);
        let room = rooms.entry(namespace.to_owned());
        let room = room.or_insert_with(|| Arc::new(Semaphore::new(UNDER_WAY_OF_NAMESPACE)));
        Arc::clone(room)
    }
}

#[derive(Debug)]
struct Asking {
    key: RuleKey,
    generation: i64,
    question: Question,
    body: RuleQuestion,
}

impl Conversations {
    /// Also the rules whose answers came; they come for as long as somebody asks for them.
    pub(crate) fn new(
        webhooks: AskWebhooks,
        clock: Arc<dyn Clock>,
    ) -> (Arc<Self>, impl Stream<Item = RuleKey> + Send + 'static) {
        let (asking, questions) = mpsc::unbounded();
        let conversations = Arc::new(Self {
            talks: Mutex::default(),
            asking,
        });
        let heard = Arc::clone(&conversations);
        let webhooks = Arc::new(webhooks);
        let room = Arc::new(Rooms::default());
        let answered = questions.map(move |asking: Asking| {
            let (heard, webhooks) = (Arc::clone(&heard), Arc::clone(&webhooks));
            let (clock, room) = (Arc::clone(&clock), Arc::clone(&room));
            async move {
                let room_of_namespace = room.of(&asking.key.namespace);
                // Semaphores that nobody closes always give room.
                let _of_namespace = room_of_namespace.acquire().await;
                let _of_all = room.all.acquire().await;
                let client_config = &asking.question.webhook.client_config;
                let answer = webhooks.ask(client_config, &asking.body).await;
                let Asking { key, question, .. } = &asking;
                let name = format!("{}/{}/{}", key.namespace, key.name, question.rule);
                let answer = question.hear(&name, &asking.body.trace_id, answer, clock.now());
                heard.note(&asking, answer);
                asking.key
            }
        });
        (conversations, answered.buffer_unordered(NOTED))
    }

    /// What is known for this version of a rule. What was said about pods that are not in a stage any more is forgotten.
    pub(crate) fn known(
        &self,
        key: &RuleKey,
        generation: i64,
        occasions: &BTreeSet<String>,
    ) -> Answers {
        let mut talks = self.talks();
        let Some(talk) = talks.get_mut(key) else {
            return Answers::new();
        };
        if talk.generation != generation {
            talks.remove(key);
            return Answers::new();
        }
        for heard in talk.answers.values_mut() {
            heard.retain(|occasion, _| occasions.contains(occasion));
        }
        talk.answers.clone()
    }

    /// Nobody asks for this rule any more.
    pub(crate) fn forget(&self, key: &RuleKey) {
        self.talks().remove(key);
    }

    /// Asks; the rule has a round once there is an answer. `body` is what is sent under this trace id.
    pub(crate) fn ask(
        &self,
        key: &RuleKey,
        generation: i64,
        question: &Question,
        body: impl FnOnce(&str) -> RuleQuestion,
    ) {
        let body = {
            let mut talks = self.talks();
            let talk = talks.entry(key.clone()).or_default();
            if talk.generation != generation {
                *talk = Talk::default();
                talk.generation = generation;
            }
            let heard = talk.answers.entry(question.rule.clone()).or_default();
            for occasion in question.pods.keys() {
                heard.entry(occasion.clone()).or_default().again_at = None;
            }
            let trace = talk.traces.entry(question.rule.clone());
            body(trace.or_insert_with(|| uuid::Uuid::new_v4().to_string()))
        };
        // Nobody listens where no round will come.
        let _ = self.asking.unbounded_send(Asking {
            key: key.clone(),
            generation,
            question: question.clone(),
            body,
        });
    }

    /// Answers about pods that nobody waits for any more are not kept.
    fn note(&self, asking: &Asking, answer: BTreeMap<String, Heard>) {
        let mut talks = self.talks();
        let talk = talks.get_mut(&asking.key);
        let Some(talk) = talk.filter(|talk| talk.generation == asking.generation) else {
            return;
        };
        let Some(known) = talk.answers.get_mut(&asking.question.rule) else {
            return;
        };
        for (occasion, heard) in answer {
            if let Some(known) = known.get_mut(&occasion) {
                *known = heard;
            }
        }
    }

    fn talks(&self) -> MutexGuard<'_, BTreeMap<RuleKey, Talk>> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::podops::Stage;
    use longshore_kit::SystemClock;
    use longshore_test::HttpAnswers;
    use serde_json::json;

    use super::*;
    use crate::ask_webhooks::tests::of_a_laptop;

    /// Webhooks that say nothing hold up to their namespace's share, and no other namespace.
    #[tokio::test]
    async fn webhooks_of_one_namespace_that_never_answer_keep_no_other_namespace_waiting() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = format!("http://{}", silent.local_addr().unwrap());
        let answers = HttpAnswers::start(|_| (200, json!({"success": true})));
        let answers = answers.await.unwrap();
        let webhooks = AskWebhooks::within(of_a_laptop());
        let (talk, woken) = Conversations::new(webhooks, Arc::new(SystemClock));
        let mut woken = std::pin::pin!(woken);
        let ask = |namespace: &str, name: String, url: &str| {
            let webhook = json!({"clientConfig": {"url": url}});
            let question = Question {
                rule: "hook".to_owned(),
                stage: Stage::PreCheck,
                webhook: serde_json::from_value(webhook).unwrap(),
                pods: [("o".to_owned(), "a".to_owned())].into(),
            };
            let key = RuleKey {
                namespace: namespace.to_owned(),
                name,
            };
            talk.ask(&key, 1, &question, |trace| question.body(trace, |_| None));
            key
        };
        for n in 0..2 * UNDER_WAY {
            ask("theirs", format!("ptr-{n}"), &silent);
        }
        let ours = ask("ours", "ptr".to_owned(), &answers.url());
        let limit = std::time::Duration::from_secs(10);
        let first = tokio::time::timeout(limit, woken.next()).await;
        assert_eq!(first.unwrap(), Some(ours));
    }

    #[tokio::test]
    async fn an_answer_wakes_its_rule_and_is_known_while_its_pods_wait_for_that_version() {
        let some = || (200, json!({"success": false, "finishedNames": ["a"]}));
        let answers = HttpAnswers::start(move |_| some()).await.unwrap();
        let webhooks = AskWebhooks::within(of_a_laptop());
        let (talk, woken) = Conversations::new(webhooks, Arc::new(SystemClock));
        let mut woken = std::pin::pin!(woken);
        let key = RuleKey {
            namespace: "default".to_owned(),
            name: "ptr".to_owned(),
        };
        let webhook = json!({"clientConfig": {"url": answers.url()}});
        let names = ["a", "b", "c"].map(|name| (format!("o{name}"), name.to_owned()));
        let question = Question {
            rule: "hook".to_owned(),
            stage: Stage::PreCheck,
            webhook: serde_json::from_value(webhook).unwrap(),
            pods: names.into(),
        };
        let body = |trace: &str| question.body(trace, |_| Some(json!({})));
        talk.ask(&key, 1, &question, body);
        let all: BTreeSet<String> = question.pods.keys().cloned().collect();
        assert!(
            talk.known(&key, 1, &all)["hook"]
                .values()
                .all(|it| *it == Heard::default())
        );
        // One of them is gone before the answer comes.
        let left = ["oa", "ob"].map(str::to_owned).into();
        talk.known(&key, 1, &left);
        assert_eq!(woken.next().await, Some(key.clone()));
        let known = talk.known(&key, 1, &all);
        let said: Vec<_> = known["hook"].iter().collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0].1.outcome, Some(Ok(())));
        let why = said[1].1.outcome.clone().unwrap().unwrap_err();
        assert!(
            why.starts_with("Webhook check default/ptr/hook rejected, traceId "),
            "{why}"
        );
        // The same question again has the same trace, so that what is said again reads the same.
        talk.ask(&key, 1, &question, body);
        assert_eq!(woken.next().await, Some(key.clone()));
        let asked = answers.asked();
        assert_eq!(asked[0]["traceId"], asked[1]["traceId"]);
        assert_eq!(talk.known(&key, 2, &all), Answers::new());
    }
}
