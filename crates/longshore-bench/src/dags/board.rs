//! What was seen of the pods of tasks, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use longshore_kit::{Cache, ListWatch, Update};
use tokio::{sync::watch, time::Instant};

use super::{between, span, task};
use crate::{figures::Times, rig::Rig, seen::until};

/// DAG and task.
type Key = (String, String);

/// The observed pods. Clones share it.
#[derive(Clone)]
pub(super) struct Board {
    seen: watch::Receiver<BTreeMap<Key, TaskPods>>,
}

/// The observed pods of one task.
struct TaskPods {
    first: Arc<Pod>,
    uids: BTreeSet<String>,
    made_at: Instant,
    ended_at: Option<Instant>,
    gone_at: Option<Instant>,
}

impl Board {
    pub(super) fn follow(rig: &Rig) -> Self {
        let (tell, seen) = watch::channel(BTreeMap::new());
        let pods: Api<Pod> = Api::namespaced(rig.client.clone(), &rig.namespace);
        tokio::spawn(async move {
            let mut pods = pin!(ListWatch::new(pods).into_cache(Cache::new()));
            while let Some(update) = pods.next().await {
                let is_gone = matches!(update, Update::Deleted(_));
                if let Some(pod) = update.into_object() {
                    tell.send_modify(|seen| see(seen, pod, is_gone));
                }
            }
        });
        Self { seen }
    }

    /// Waits until the pods of all tasks were there and are gone. Returns the time from the first
    /// one's beginning to the last one's end.
    pub(super) async fn until_gone(&self, dag: &str, n: usize) -> Result<Duration> {
        until(&self.seen, &format!("the end of {dag}"), |seen| {
            let pods: Vec<&TaskPods> = of(seen, dag).collect();
            let is_over = pods.len() >= n && pods.iter().all(|pod| pod.gone_at.is_some());
            let from = pods.iter().map(|pod| pod.made_at).min();
            let to = pods.iter().filter_map(|pod| pod.gone_at).max();
            span(from, to).filter(|_| is_over)
        })
        .await
    }

    /// Waits until the pod of a task has ended.
    pub(super) async fn until_ended(&self, dag: &str, task: &str) -> Result<()> {
        let key = (dag.to_owned(), task.to_owned());
        until(&self.seen, &format!("the end of {dag}/{task}"), |seen| {
            seen.get(&key)?.ended_at.map(drop)
        })
        .await
    }

    /// From the end of a pod to the pod of the next task.
    pub(super) fn latency(&self, dag: &str, n: usize) -> Times {
        let seen = self.seen.borrow();
        let of = |i: usize| seen.get(&(dag.to_owned(), task(i)));
        let ended: Vec<_> = (0..n).map(|i| of(i).and_then(|pod| pod.ended_at)).collect();
        let made: Vec<_> = (0..n).map(|i| of(i).map(|pod| pod.made_at)).collect();
        between(&ended, &made)
    }

    pub(super) fn pod_of(&self, dag: &str, task: &str) -> Option<Arc<Pod>> {
        let seen = self.seen.borrow();
        let pod = seen.get(&(dag.to_owned(), task.to_owned()))?;
        Some(Arc::clone(&pod.first))
    }

    pub(super) fn n_pods(&self, dag: &str) -> usize {
        of(&self.seen.borrow(), dag).map(|pod| pod.uids.len()).sum()
    }
}

fn of<'a>(seen: &'a BTreeMap<Key, TaskPods>, dag: &str) -> impl Iterator<Item = &'a TaskPods> {
    let of_dag = move |(key, _): &(&Key, &TaskPods)| key.0 == dag;
    seen.iter()
        .filter(of_dag)
        .map(|(_, pod)| pod)
        .collect::<Vec<_>>()
        .into_iter()
}

fn see(seen: &mut BTreeMap<Key, TaskPods>, pod: Arc<Pod>, is_gone: bool) {
    let annotation = |key: &str| pod.annotations().get(key).cloned();
    let (Some(dag), Some(task)) = (annotation("dag_id"), annotation("task_id")) else {
        return;
    };
    let now = Instant::now();
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    let entry = seen.entry((dag, task)).or_insert_with(|| TaskPods {
        first: Arc::clone(&pod),
        uids: BTreeSet::new(),
        made_at: now,
        ended_at: None,
        gone_at: None,
    });
    entry.uids.insert(pod.uid().unwrap_or_default());
    if phase.as_deref() == Some("Succeeded") {
        entry.ended_at.get_or_insert(now);
    }
    if is_gone {
        entry.gone_at = Some(now);
    }
}
