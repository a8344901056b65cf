//! What webhooks of rules were asked and have answered: asked beside the rounds, so that one that takes its time keeps no
//! round waiting. Kept in memory: what let a pod pass is in the status, as are the tasks that were begun, and everything
//! else is asked again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt, channel::mpsc};
use longshore_api::podops::RuleQuestion;
use longshore_kit::Clock;
use tokio::sync::Semaphore;

use crate::{
    ask_webhooks::RuleTransport,
    rule::{Answers, Heard, Poll, Polled, Polls, Question, RuleKey},
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
    polls: Polls,
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
    what: What,
}

#[derive(Debug)]
enum What {
    Question {
        question: Question,
        body: RuleQuestion,
    },
    Poll {
        poll: Poll,
        before: Polled,
    },
}

/// What is known for one version of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) answers: Answers,
    pub(crate) polls: Polls,
}

/// What is still of interest of it.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// What brought pods into a stage, of those that are in one.
    pub(crate) occasions: BTreeSet<String>,
    /// The tasks that the status has, by rule and id.
    pub(crate) tasks: BTreeSet<(String, String)>,
}

impl Conversations {
    /// Also the rules whose answers came; they come for as long as somebody asks for them.
    pub(crate) fn new(
        transport: Arc<dyn RuleTransport>,
        clock: Arc<dyn Clock>,
    ) -> (Arc<Self>, impl Stream<Item = RuleKey> + Send + 'static) {
        let (asking, questions) = mpsc::unbounded();
        let conversations = Arc::new(Self {
            talks: Mutex::default(),
            asking,
        });
        let heard = Arc::clone(&conversations);
        let room = Arc::new(Rooms::default());
        let answered = questions.map(move |asking: Asking| {
            let (heard, transport) = (Arc::clone(&heard), Arc::clone(&transport));
            let (clock, room) = (Arc::clone(&clock), Arc::clone(&room));
            async move {
                let room_of_namespace = room.of(&asking.key.namespace);
                // Semaphores that nobody closes always give room.
                let _of_namespace = room_of_namespace.acquire().await;
                let _of_all = room.all.acquire().await;
                heard.hear(&asking, &*transport, &*clock).await;
                asking.key
            }
        });
        (conversations, answered.buffer_unordered(NOTED))
    }

    async fn hear(&self, asking: &Asking, transport: &dyn RuleTransport, clock: &dyn Clock) {
        match &asking.what {
            What::Question { question, body } => {
                let answer = transport.ask(&question.webhook.client_config, body).await;
                let RuleKey { namespace, name } = &asking.key;
                let key = format!("{namespace}/{name}/{}", question.rule);
                let answer = question.hear(&key, answer, clock.now());
                self.note_answer(asking, &question.rule, answer);
            }
            What::Poll { poll, before } => {
                let answer = transport.poll(&poll.poll, &poll.task_id).await;
                let polled = poll.hear(before, answer, clock.now());
                self.note_poll(asking, poll, polled);
            }
        }
    }

    /// What is known for this version of a rule. What nobody is interested in any more is forgotten.
    pub(crate) fn known(&self, key: &RuleKey, generation: i64, wanted: &Wanted) -> Known {
        let mut talks = self.talks();
        let Some(talk) = talks.get_mut(key) else {
            return Known::default();
        };
        if talk.generation != generation {
            talks.remove(key);
            return Known::default();
        }
        for heard in talk.answers.values_mut() {
            heard.retain(|occasion, _| wanted.occasions.contains(occasion));
        }
        talk.polls.retain(|task, _| wanted.tasks.contains(task));
        Known {
            answers: talk.answers.clone(),
            polls: talk.polls.clone(),
        }
    }

    /// Nobody asks for this rule any more.
    pub(crate) fn forget(&self, key: &RuleKey) {
        self.talks().remove(key);
    }

    /// Asks; the rule has a round once there is an answer.
    pub(crate) fn ask(
        &self,
        key: &RuleKey,
        generation: i64,
        question: &Question,
        body: RuleQuestion,
    ) {
        self.with_talk(key, generation, |talk| {
            let heard = talk.answers.entry(question.rule.clone()).or_default();
            for occasion in question.pods.keys() {
                let heard = heard.entry(occasion.clone()).or_default();
                (heard.again_at, heard.task) = (None, None);
            }
        });
        let question = question.clone();
        self.send(key, generation, What::Question { question, body });
    }

    /// Asks about a task; the rule has a round once there is an answer.
    pub(crate) fn poll(&self, key: &RuleKey, generation: i64, poll: &Poll) {
        let task = (poll.rule.clone(), poll.task_id.clone());
        let before = self.with_talk(key, generation, |talk| {
            let polled = talk.polls.entry(task).or_default();
            polled.again_at = None;
            polled.clone()
        });
        let poll = poll.clone();
        self.send(key, generation, What::Poll { poll, before });
    }

    fn with_talk<T>(
        &self,
        key: &RuleKey,
        generation: i64,
        change: impl FnOnce(&mut Talk) -> T,
    ) -> T {
        let mut talks = self.talks();
        let talk = talks.entry(key.clone()).or_default();
        if talk.generation != generation {
            *talk = Talk::default();
            talk.generation = generation;
        }
        change(talk)
    }

    fn send(&self, key: &RuleKey, generation: i64, what: What) {
        // Nobody listens where no round will come.
        let _ = self.asking.unbounded_send(Asking {
            key: key.clone(),
            generation,
            what,
        });
    }

    /// Answers about pods that nobody waits for any more are not kept.
    fn note_answer(&self, asking: &Asking, rule: &str, answer: BTreeMap<String, Heard>) {
        let mut talks = self.talks();
        let talk = talks.get_mut(&asking.key);
        let Some(talk) = talk.filter(|talk| talk.generation == asking.generation) else {
            return;
        };
        let Some(known) = talk.answers.get_mut(rule) else {
            return;
        };
        for (occasion, heard) in answer {
            if let Some(known) = known.get_mut(&occasion) {
                *known = heard;
            }
        }
    }

    /// Answers about tasks that have ended meanwhile are not kept.
    fn note_poll(&self, asking: &Asking, poll: &Poll, polled: Polled) {
        let mut talks = self.talks();
        let talk = talks.get_mut(&asking.key);
        let talk = talk.filter(|talk| talk.generation == asking.generation);
        let task = (poll.rule.clone(), poll.task_id.clone());
        if let Some(known) = talk.and_then(|talk| talk.polls.get_mut(&task)) {
            *known = polled;
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
    use crate::ask_webhooks::{AskWebhooks, tests::of_a_laptop};

    fn of_here() -> Arc<AskWebhooks> {
        Arc::new(AskWebhooks::within(of_a_laptop()))
    }

    /// Webhooks that say nothing hold up to their namespace's share, and no other namespace.
    #[tokio::test]
    async fn webhooks_of_one_namespace_that_never_answer_keep_no_other_namespace_waiting() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = format!("http://{}", silent.local_addr().unwrap());
        let answers = HttpAnswers::start(|_| (200, json!({"success": true})));
        let answers = answers.await.unwrap();
        let (talk, woken) = Conversations::new(of_here(), Arc::new(SystemClock));
        let mut woken = std::pin::pin!(woken);
        let ask = |namespace: &str, name: String, url: &str| {
            let webhook = json!({"clientConfig": {"url": url}});
            let question = Question {
                rule: "hook".to_owned(),
                stage: Stage::PreCheck,
                webhook: serde_json::from_value(webhook).unwrap(),
                pods: [("o".to_owned(), "a".to_owned())].into(),
                trace_id: "t".to_owned(),
            };
            let key = RuleKey {
                namespace: namespace.to_owned(),
                name,
            };
            let body = question.body(|_| None);
            talk.ask(&key, 1, &question, body);
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
        let (talk, woken) = Conversations::new(of_here(), Arc::new(SystemClock));
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
            trace_id: "t".to_owned(),
        };
        let body = question.body(|_| Some(json!({})));
        talk.ask(&key, 1, &question, body);
        let all = Wanted {
            occasions: question.pods.keys().cloned().collect(),
            ..Wanted::default()
        };
        assert!(
            talk.known(&key, 1, &all).answers["hook"]
                .values()
                .all(|it| *it == Heard::default())
        );
        // One of them is gone before the answer comes.
        let left = Wanted {
            occasions: ["oa", "ob"].map(str::to_owned).into(),
            ..Wanted::default()
        };
        talk.known(&key, 1, &left);
        assert_eq!(woken.next().await, Some(key.clone()));
        let known = talk.known(&key, 1, &all).answers;
        let said: Vec<_> = known["hook"].iter().collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0].1.outcome, Some(Ok(())));
        let why = said[1].1.outcome.clone().unwrap().unwrap_err();
        assert!(
            why.starts_with("Webhook check default/ptr/hook rejected, traceId "),
            "{why}"
        );
        assert_eq!(answers.asked()[0]["traceId"], "t");
        assert_eq!(talk.known(&key, 2, &all), Known::default());
    }

    #[tokio::test]
    async fn an_answer_about_a_task_is_known_while_the_status_has_the_task() {
        let some = || json!({"success": true, "finishedNames": ["a"], "message": "half"});
        let answers = HttpAnswers::start(move |_| (200, some())).await.unwrap();
        let (talk, woken) = Conversations::new(of_here(), Arc::new(SystemClock));
        let mut woken = std::pin::pin!(woken);
        let key = RuleKey {
            namespace: "default".to_owned(),
            name: "ptr".to_owned(),
        };
        let poll = json!({"url": format!("{}/tasks?of=me", answers.url())});
        let poll = Poll {
            rule: "hook".to_owned(),
            task_id: "7 8".to_owned(),
            poll: serde_json::from_value(poll).unwrap(),
        };
        let task = (poll.rule.clone(), poll.task_id.clone());
        let wanted = Wanted {
            tasks: [task.clone()].into(),
            ..Wanted::default()
        };
        talk.poll(&key, 1, &poll);
        assert_eq!(talk.known(&key, 1, &wanted).polls[&task], Polled::default());
        assert_eq!(woken.next().await, Some(key.clone()));
        assert_eq!(
            answers.asked()[0],
            json!({"GET": "/tasks?of=me&task-id=7+8"})
        );
        let known = talk.known(&key, 1, &wanted).polls[&task].clone();
        assert_eq!(known.approved, ["a".to_owned()].into());
        assert!(known.at.is_some() && known.again_at > known.at, "{known:?}");
        // One that has ended meanwhile.
        talk.poll(&key, 1, &poll);
        talk.known(&key, 1, &Wanted::default());
        assert_eq!(woken.next().await, Some(key.clone()));
        assert!(talk.known(&key, 1, &wanted).polls.is_empty());
    }
}
