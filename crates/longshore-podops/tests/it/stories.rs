//! What people do to pods.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use longshore_api::podops::OperationLabel;
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
}

pub(crate) const DELETED: Story = Story {
    name: "a pod is deleted",
    people: People::Delete,
    n_pods: 1,
    max_out: 1,
    is_routed: false,
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
};
pub(crate) const IN_TURN: Story = Story {
    name: "an operation begins when another one is done",
    people: People::OperateInTurn,
    n_pods: 1,
    max_out: 1,
    is_routed: false,
};
pub(crate) const UNDER_RULE: Story = Story {
    name: "two pods operated on under a rule",
    people: People::OperateUnderRule,
    n_pods: 2,
    max_out: 1,
    is_routed: false,
};
pub(crate) const FOUR_UNDER_RULE: Story = Story {
    name: "four pods operated on under a rule",
    people: People::OperateUnderRule,
    n_pods: 4,
    max_out: 2,
    is_routed: false,
};

impl Story {
    pub(crate) async fn begin(&self) -> (Arc<World>, MostOut) {
        let world = World::new().await;
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
    while out(&world).await > 0 {
        writes.next().await;
    }
    let watched = world.clone();
    tokio::spawn(async move {
        loop {
            most_out.fetch_max(out(&watched).await, Ordering::Relaxed);
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
        People::OperateUnderRule => {
            for name in &names {
                world.begin(name, "a").await;
            }
            let works = names.iter().map(|name| world.work(name, "a"));
            futures::future::join_all(works).await;
        }
    }
}

/// How many pods do not serve.
async fn out(world: &World) -> usize {
    let pods = world.pods().await;
    pods.iter().filter(|pod| !pod.is_available()).count()
}
