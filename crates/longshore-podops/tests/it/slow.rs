//! A slow webhook of a rule: each question begins a task, which is done some seconds later.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use longshore_api::podops::{RuleAnswer, RuleClientConfig, RulePoll, RulePollAnswer, RuleQuestion};
use longshore_podops::RuleTransport;
use tokio::time::Instant;

/// How long a task takes.
const TASK: Duration = Duration::from_secs(7);
/// How long a request takes: longer than it takes the next pod to come to the rule.
const ANSWER: Duration = Duration::from_secs(1);

/// The webhook; it lives through the crashes of the controller that asks it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slow {
    seen: Arc<Mutex<SlowState>>,
}

#[derive(Debug, Default)]
struct SlowState {
    /// When each task is done.
    tasks: BTreeMap<String, Instant>,
    /// The tasks that were begun for a pod.
    of_pods: BTreeMap<String, BTreeSet<String>>,
    /// Tasks that the controller asked about, and that no question has begun.
    unknown: BTreeSet<String>,
}

impl Slow {
    fn seen(&self) -> MutexGuard<'_, SlowState> {
        self.seen.lock().unwrap()
    }

    /// Questions that were asked in other words after a crash, and tasks that do not exist.
    pub(crate) fn broken(&self) -> Vec<String> {
        let seen = self.seen();
        let twice = seen.of_pods.iter().filter(|(_, tasks)| tasks.len() > 1);
        let twice = twice.map(|(pod, tasks)| format!("{pod} has several tasks: {tasks:?}"));
        let unknown = seen
            .unknown
            .iter()
            .map(|task| format!("no question has begun {task}"));
        twice.chain(unknown).collect()
    }
}

#[async_trait]
impl RuleTransport for Slow {
    async fn ask(
        &self,
        _: &RuleClientConfig,
        question: &RuleQuestion,
    ) -> Result<RuleAnswer, String> {
        let task_id = question.trace_id.clone();
        {
            let mut seen = self.seen();
            let done_at = Instant::now() + TASK;
            seen.tasks.entry(task_id.clone()).or_insert(done_at);
            for pod in &question.resources {
                let tasks = seen.of_pods.entry(pod.name.clone()).or_default();
                tasks.insert(task_id.clone());
            }
        }
        tokio::time::sleep(ANSWER).await;
        Ok(RuleAnswer {
            success: true,
            poll: true,
            task_id,
            ..RuleAnswer::default()
        })
    }

    async fn poll(&self, _: &RulePoll, task_id: &str) -> Result<RulePollAnswer, String> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut seen = self.seen();
        let Some(done_at) = seen.tasks.get(task_id).copied() else {
            seen.unknown.insert(task_id.to_owned());
            return Err("no such task".to_owned());
        };
        Ok(RulePollAnswer {
            success: true,
            finished: done_at <= Instant::now(),
            message: "in time".to_owned(),
            ..RulePollAnswer::default()
        })
    }
}
