//! What people do to pods.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use longshore_api::podops::OperationLabel;
use longshore_podops::model::Pod;
use serde_json::json;

use crate::world::World;

/// How many pods were out of service at once, at most, once all of them served.
pub(crate) type MostOut = Arc<AtomicUsize>;

/// A story.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) people: People,
    pub(crate) n_pods: usize,
    /// No more pods are out of service at once.
    pub(crate) max_out: usize,
    /// Whether a Service routes to them.
    pub(crate) is_routed: bool,
    /// What becomes of writes of the status.
    pub(crate) statuses: Statuses,
}

/// Whether the webhook sees writes of the status of pods: API servers let them pass where it does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statuses {
    Seen,
    Unseen,
}

/// What people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum People {
    /// A pod is deleted.
    Delete,
    /// Two operations on a pod: one ends, the other one is taken back.
    OperateTwice,
    /// An operation begins while another one's end is checked.
    OperateInTurn,
    /// All pods are operated on at once; at most half of them may be out of service.
    OperateUnderRule,
    /// All pods are evicted at once, by clients that retry; a budget lets one go at a time, and each is replaced.
    Evict,
    /// A pod is evicted by a client that does not retry.
    EvictOnce,
    /// All pods are operated on at once, under a rule that asks a slow webhook.
    OperateUnderTask,
    /// A pod takes part no more while an operation is at work.
    Free,
}

pub(crate) const DELETED: Story = Story {
    name: "a pod is deleted",
    people: People::Delete,
    n_pods: 1,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};
pub(crate) const DELETED_BEHIND_A_SERVICE: Story = Story {
    name: "a pod behind a Service is deleted",
    is_routed: true,
    ..DELETED
};
pub(crate) const IN_TURN_BEHIND_A_SERVICE: Story = Story {
    name: "an operation behind a Service begins when another one is done",
    is_routed: true,
    ..IN_TURN
};
pub(crate) const TWICE: Story = Story {
    name: "two operations on a pod, one of them taken back",
    people: People::OperateTwice,
    n_pods: 1,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};
pub(crate) const IN_TURN: Story = Story {
    name: "an operation begins when another one is done",
    people: People::OperateInTurn,
    n_pods: 1,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};
pub(crate) const UNDER_RULE: Story = Story {
    name: "two pods operated on under a rule",
    people: People::OperateUnderRule,
    n_pods: 2,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};
pub(crate) const UNDER_TASK: Story = Story {
    name: "a pod operated on under a rule that asks about a task",
    people: People::OperateUnderTask,
    n_pods: 1,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};
pub(crate) const UNDER_TASKS: Story = Story {
    name: "two pods, one after the other, operated on under a rule that asks about tasks",
    n_pods: 2,
    max_out: 2,
    ..UNDER_TASK
};
pub(crate) const FREED: Story = Story {
    name: "a pod that takes part no more while an operation is at work",
    people: People::Free,
    n_pods: 1,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};
pub(crate) const FOUR_UNDER_RULE: Story = Story {
    name: "four pods operated on under a rule",
    people: People::OperateUnderRule,
    n_pods: 4,
    max_out: 2,
    is_routed: false,
    statuses: Statuses::Seen,
};

pub(crate) const DELETED_PAST_THE_WEBHOOK: Story = Story {
    name: "a pod behind a Service is deleted, and no webhook sees its status",
    statuses: Statuses::Unseen,
    ..DELETED_BEHIND_A_SERVICE
};
pub(crate) const TWICE_PAST_THE_WEBHOOK: Story = Story {
    name: "two operations on a pod, one of them taken back, and no webhook sees its status",
    statuses: Statuses::Unseen,
    ..TWICE
};

pub(crate) const EVICTED: Story = Story {
    name: "two pods evicted under a budget",
    people: People::Evict,
    n_pods: 2,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};
pub(crate) const EVICTED_ONCE: Story = Story {
    name: "a pod evicted under a budget by a client that does not retry",
    people: People::EvictOnce,
    n_pods: 2,
    max_out: 1,
    is_routed: false,
    statuses: Statuses::Seen,
};

impl Story {
    pub(crate) async fn begin(&self) -> (Arc<World>, MostOut) {
        let world = World::new(self.statuses).await;
        if self.is_routed {
            world.open_front().await;
        }
        let most_out = MostOut::default();
        if self.people == People::OperateUnderRule {
            let policy = json!({"maxUnavailableValue": "50%"});
            world
                .rule(json!([{"name": "half", "availablePolicy": policy}]))
                .await;
        }
        if matches!(self.people, People::Evict | People::EvictOnce) {
            world.budget(1).await;
        }
        if self.people == People::OperateUnderTask {
            let poll = json!({"url": "http://x/tasks", "intervalSeconds": 2});
            let config = json!({"url": "http://x", "poll": poll});
            let rule = json!([{"name": "slow", "webhook": {"clientConfig": config}}]);
            world.rule(rule).await;
        }
        let names: Vec<String> = (0..self.n_pods).map(|n| format!("web-{n}")).collect();
        for name in &names {
            world.make(name).await;
        }
        tokio::spawn(people(world.clone(), self.people, names, most_out.clone()));
        (world, most_out)
    }
}

async fn people(world: Arc<World>, people: People, names: Vec<String>, most_out: MostOut) {
    let mut writes = world.writes();
    while world.pods().await.iter().any(|pod| !pod.is_available()) {
        writes.next().await;
    }
    let watched = world.clone();
    tokio::spawn(async move {
        loop {
            most_out.fetch_max(out(&watched, people).await, Ordering::Relaxed);
            writes.next().await;
        }
    });
    let pod = names.first().cloned().unwrap_or_default();
    match people {
        People::Delete => world.delete(&pod).await,
        People::OperateTwice => {
            world.begin(&pod, "a").await;
            world.begin(&pod, "b").await;
            world.work(&pod, "a").await;
            let undo = json!({OperationLabel::UndoOperationType.of("b"): "update"});
            while !world
                .write(&pod, &json!({"metadata": {"labels": undo}}))
                .await
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        People::OperateInTurn => {
            world.begin(&pod, "a").await;
            world.work(&pod, "a").await;
            world.begin(&pod, "b").await;
            world.work(&pod, "b").await;
        }
        People::Evict => {
            let world = &world;
            let evicted = names.iter().map(|name| async move {
                while !world.evict(name).await {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
                while world.pod(name).await.is_some() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                world.make(&format!("{name}-next")).await;
            });
            futures::future::join_all(evicted).await;
        }
        People::EvictOnce => drop(world.evict(&pod).await),
        People::Free => {
            world.begin(&pod, "a").await;
            world.until_granted(&pod, "a").await;
            world.free(&pod).await;
        }
        People::OperateUnderRule | People::OperateUnderTask => {
            for name in &names {
                world.begin(name, "a").await;
            }
            let works = names.iter().map(|name| world.work(name, "a"));
            futures::future::join_all(works).await;
        }
    }
}

/// How many pods do not serve: for budgets, those that are not Ready.
async fn out(world: &World, people: People) -> usize {
    let pods = world.pods().await;
    let serves = |pod: &&Pod| match people {
        People::Evict | People::EvictOnce => pod.is_ready && !pod.is_deleting,
        People::Delete
        | People::OperateTwice
        | People::OperateInTurn
        | People::OperateUnderRule
        | People::OperateUnderTask
        | People::Free => pod.is_available(),
    };
    pods.len() - pods.iter().filter(serves).count()
}
