//! Keeps the status of PodDisruptionBudgets true: how many of their pods are healthy, and how many
//! of those may be evicted.
//!
//! After a change of a pod, the controller counts the budgets of that pod's namespace again, from
//! fresh lists. Without a budget in the cluster, the controller does not watch pods.

mod count;
mod scale;

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, Error,
    api::{ListParams, PostParams},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, watcher},
    },
};
use longshore_k8s::Selector;
use scale::ScaleError;
use serde_json::json;

use super::{patience::patiently, queue::Queue};

/// Namespace and name of a budget.
type Key = (String, String);

type PodEvents = BoxStream<'static, watcher::Result<Event<PartialObjectMeta<Pod>>>>;

/// Runs for ever.
pub(super) async fn run(client: Client) {
    let budgets: Api<PodDisruptionBudget> = Api::all(client.clone());
    let mut events = watcher(budgets, Config::default())
        .default_backoff()
        .boxed();
    let mut known: BTreeSet<Key> = BTreeSet::new();
    let mut queue: Queue<Key> = Queue::new();
    let mut pods: Option<PodEvents> = None;
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => {
                take(event, &mut known, &mut queue);
                match known.is_empty() {
                    true => pods = None,
                    false => {
                        pods.get_or_insert_with(|| watch_pods(&client));
                    }
                }
            }
            namespace = changed(&mut pods) => {
                let of_namespace = known.iter().filter(|(it, _)| *it == namespace);
                of_namespace.for_each(|key| queue.add(key.clone()));
            }
            key = queue.next() => match count(&client, &key).await {
                Ok(again) => {
                    queue.succeed(&key);
                    if let Some(pause) = again {
                        queue.add_after(key, pause);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, budget = key.1, "budget not counted, trying again");
                    queue.retry(key);
                }
            },
        }
    }
}

fn watch_pods(client: &Client) -> PodEvents {
    let pods: Api<PartialObjectMeta<Pod>> = Api::all(client.clone());
    watcher(pods, Config::default()).default_backoff().boxed()
}

/// The namespace of the next pod that changes. Without a watch of pods, this future never resolves.
async fn changed(pods: &mut Option<PodEvents>) -> String {
    let Some(pods) = pods else {
        return std::future::pending().await;
    };
    loop {
        match pods.next().await {
            Some(Ok(Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod))) => {
                return pod.metadata.namespace.unwrap_or_default();
            }
            Some(Ok(Event::Init | Event::InitDone)) => {}
            Some(Err(error)) => tracing::debug!(%error, "watch of pods failed, starting again"),
            None => return std::future::pending().await,
        }
    }
}

fn take(
    event: watcher::Result<Event<PodDisruptionBudget>>,
    known: &mut BTreeSet<Key>,
    queue: &mut Queue<Key>,
) {
    let key = |budget: PodDisruptionBudget| {
        let metadata = budget.metadata;
        (
            metadata.namespace.unwrap_or_default(),
            metadata.name.unwrap_or_default(),
        )
    };
    match event {
        Ok(Event::Apply(budget) | Event::InitApply(budget)) => {
            let key = key(budget);
            known.insert(key.clone());
            queue.add(key);
        }
        Ok(Event::Delete(budget)) => {
            known.remove(&key(budget));
        }
        Ok(Event::Init) => known.clear(),
        Ok(Event::InitDone) => {}
        Err(error) => tracing::debug!(%error, "watch of budgets failed, starting again"),
    }
}

/// Counts one budget and writes what has changed. Returns the time until the next count.
async fn count(client: &Client, (namespace, name): &Key) -> Result<Option<Duration>, Error> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    let Some(budget) = patiently(|| budgets.get_opt(name)).await? else {
        return Ok(None);
    };
    let pods = pods_of(client, namespace, &budget).await?;
    let n_expected = match count::needs_scale(&budget) {
        true => scale::expected(client, namespace, &pods).await,
        false => Ok(0),
    };
    let now = now();
    let status = match n_expected {
        Ok(n_expected) => count::status(&budget, &pods, n_expected, now),
        Err(error @ ScaleError::Unscaled(_)) => count::failed(&budget, &error.to_string(), now),
        Err(ScaleError::Api(error)) => return Err(error),
    };
    let again = count::next_look(&status, now);
    let again = again.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    if budget.status.as_ref() != Some(&status) {
        let counted = PodDisruptionBudget {
            status: Some(status),
            ..budget
        };
        // With the revision that was counted: an eviction may have taken a disruption meanwhile.
        match budgets
            .replace_status(name, &PostParams::default(), &counted)
            .await
        {
            Ok(_) => {}
            Err(Error::Api(status)) if status.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    // Not before the second has passed in which it stops to count.
    Ok(again.map(|pause| pause + Duration::from_secs(1)))
}

/// The pods that a budget selects: without selector none, with an empty one all.
async fn pods_of(
    client: &Client,
    namespace: &str,
    budget: &PodDisruptionBudget,
) -> Result<Vec<Pod>, Error> {
    let spec = budget.spec.as_ref();
    let selector = spec.and_then(|spec| spec.selector.as_ref());
    let Some(selector) = selector.and_then(|it| Selector::read(&json!(it)).ok()) else {
        return Ok(Vec::new());
    };
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let list = ListParams::default().labels(&selector.to_string());
    Ok(patiently(|| api.list(&list)).await?.items)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a controller beside the server, which has no clock of its own"
)]
fn now() -> Timestamp {
    Timestamp::now()
}
