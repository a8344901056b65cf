//! The toy on the kit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt, future::ready, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client};
use longshore_core::{
    Class, Classify, Create, Incarnation, Never, ObjectRef, Patch, PatchKind, Plan, Resource, Seen,
};
use longshore_kit::{
    Answers, ApiError, Applier, ApplyError, Cache, CacheFeed, Clock, Controller, ListWatch,
    Refusal, Runner, Update, cache::reference,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    Bug, Effect, Observed, Order, OrderPod, PodPhase, Status,
    decide::{LABEL_ATTEMPT, LABEL_ORDER},
};

/// The namespace of orders.
const NAMESPACE: &str = "default";

/// The toy controller.
#[derive(Debug)]
pub struct Orders {
    bug: Bug,
    applier: Applier,
    maps: Arc<Cache<ConfigMap>>,
    pods: Arc<Cache<Pod>>,
    refused: Mutex<BTreeSet<String>>,
    seen_running: Mutex<BTreeSet<String>>,
    failed_creates: Mutex<BTreeMap<String, u32>>,
}

impl Orders {
    /// Runs the toy until `shutdown`.
    pub async fn run(bug: Bug, client: Client, clock: Arc<dyn Clock>, shutdown: CancellationToken) {
        let (maps, pods) = (Cache::new(), Cache::new());
        let feeds: [(Resource, Arc<dyn CacheFeed>); 2] = [
            (Resource::CONFIG_MAP, maps.clone()),
            (Resource::POD, pods.clone()),
        ];
        let feeds = feeds.into_iter().filter(|_| bug != Bug::SkipsOwnWrites);
        let applier = Applier::new(client.clone(), "planted", feeds);
        let controller = Arc::new(Self {
            bug,
            applier: applier.clone(),
            maps,
            pods,
            refused: Mutex::default(),
            seen_running: Mutex::default(),
            failed_creates: Mutex::default(),
        });
        let triggers = controller.triggers(client);
        Runner::new(controller, applier, clock)
            .run(triggers, shutdown)
            .await;
    }

    fn triggers(self: &Arc<Self>, client: Client) -> impl Stream<Item = String> + Send + use<> {
        let maps = ListWatch::new(Api::<ConfigMap>::all(client.clone()));
        let maps = maps.labels(LABEL_ORDER).into_cache(Arc::clone(&self.maps));
        let orders = maps
            .filter_map(|update| ready(update.into_object()))
            .filter_map(|map| ready(map.metadata.name.clone()));
        let pods = ListWatch::new(Api::<Pod>::all(client)).into_cache(Arc::clone(&self.pods));
        let controller = Arc::clone(self);
        let owners = pods.filter_map(move |update| ready(controller.owner(update)));
        stream::select(orders.boxed(), owners.boxed())
    }

    fn owner(&self, update: Update<Pod>) -> Option<String> {
        let pod = update.into_object()?;
        if phase_of(&pod) == Some("Running") {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            lock(&self.seen_running).insert(uid);
        }
        Some(pod.metadata.labels.as_ref()?.get(LABEL_ORDER)?.clone())
    }

    fn order_pod(&self, pod: &Pod, order: &str) -> Option<OrderPod> {
        let labels = pod.metadata.labels.as_ref()?;
        if labels.get(LABEL_ORDER).map(String::as_str) != Some(order) {
            return None;
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        Some(OrderPod {
            target: reference(Resource::POD, pod),
            attempt: labels.get(LABEL_ATTEMPT)?.parse().ok()?,
            phase: phase_of(pod).map(|phase| match phase {
                "Succeeded" => PodPhase::Succeeded,
                "Failed" => PodPhase::Failed,
                _ => PodPhase::Unfinished,
            }),
            was_seen_running: lock(&self.seen_running).contains(&uid),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
        })
    }

    fn n_failed_creates(&self, key: &str) -> u32 {
        let failed = lock(&self.failed_creates);
        if self.bug == Bug::GivesUpAfterTwo {
            return failed.values().sum();
        }
        failed.get(key).copied().unwrap_or(0)
    }

    async fn create(&self, create: &Create) -> Result<(), ApiError> {
        let name = create.object.pointer("/metadata/name");
        let target = ObjectRef {
            resource: create.resource,
            namespace: NAMESPACE.to_owned(),
            name: name
                .and_then(|name| name.as_str())
                .unwrap_or_default()
                .to_owned(),
            uid: None,
        };
        match self
            .applier
            .requests()
            .create(&target, &create.object)
            .await
        {
            Err(error) if error.is_already_exists() => Ok(()),
            other => other.map(drop),
        }
    }
}

fn phase_of(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The errors of the toy.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// An order that cannot be read.
    #[error("order {name}: {why}")]
    Unreadable {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A write failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl Classify for OrderError {
    fn class(&self) -> Class {
        match self {
            Self::Unreadable { .. } => Class::Invalid,
            Self::Apply(error) => error.class(),
        }
    }
}

fn order_of(map: &ConfigMap) -> Result<Order, OrderError> {
    let empty = BTreeMap::new();
    let data = map.data.as_ref().unwrap_or(&empty);
    let text = |key: &str| data.get(key).map(String::as_str).unwrap_or_default();
    let unreadable = |why: String| OrderError::Unreadable {
        name: map.metadata.name.clone().unwrap_or_default(),
        why,
    };
    let n_attempts = text("attempts").parse();
    Ok(Order {
        target: reference(Resource::CONFIG_MAP, map),
        version: map.metadata.resource_version.clone().unwrap_or_default(),
        script: text("script").to_owned(),
        n_attempts: n_attempts.map_err(|_| unreadable("no attempts".to_owned()))?,
        state: text("state").parse().map_err(unreadable)?,
    })
}

impl Controller for Orders {
    type Key = String;
    type Observed = Observed;
    type Status = Status;
    type Effect = Effect;
    type Question = Never;
    type Error = OrderError;

    fn name(&self) -> &'static str {
        "planted.orders"
    }

    async fn observe(
        &self,
        key: &String,
        now: Timestamp,
        _: &Answers<Never>,
    ) -> Result<Observed, OrderError> {
        let order = match self.maps.get(NAMESPACE, key) {
            Seen::Present(map) => Seen::Present(order_of(&map)?),
            Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why),
        };
        let pods = self.pods.all();
        Ok(Observed {
            order,
            pods: pods.map(|pods| {
                let pods = pods.iter();
                pods.filter_map(|pod| self.order_pod(pod, key)).collect()
            }),
            is_refused: lock(&self.refused).contains(key),
            n_failed_creates: self.n_failed_creates(key),
            now,
        })
    }

    fn decide(&self, observed: &Observed) -> Plan<Status, Effect> {
        self.bug.plan(observed)
    }

    async fn persist(&self, key: &String, status: &Status) -> Result<(), OrderError> {
        let mut data = json!({"state": status.state.to_string()});
        if let Some(at) = status.checked_at {
            data["checkedAt"] = json!(at.to_string());
        }
        let mut patch = json!({"data": data});
        if self.bug != Bug::WritesWithoutVersion {
            patch["metadata"] = json!({"resourceVersion": status.version});
        }
        let patch = Patch {
            target: status.target.clone(),
            subresource: None,
            kind: PatchKind::Merge,
            patch,
        };
        if self.bug == Bug::WarnsOfNothing {
            tracing::warn!(key, "an order is written");
        }
        let written = self.applier.patch(key, &patch).await;
        if self.bug == Bug::LogsPassingErrors && written.is_err() {
            tracing::error!(key, "an order is not written");
        }
        Ok(written?)
    }

    async fn call(&self, key: &String, effect: &Effect) -> Result<(), OrderError> {
        match effect {
            Effect::CreateAnyhow(create) => {
                self.create(create).await.map_err(ApplyError::from)?;
            }
            Effect::CreateCounted(create) => {
                let created = self.applier.create(key, create).await;
                if let Err(error) = &created {
                    let is_refused = error.class() == Class::Invalid;
                    // One answer with a retry time holds the creates of all orders: they are not sent.
                    let is_sent = !matches!(error, ApplyError::Paused { .. });
                    if self.bug != Bug::GivesUpAfterTwo || (is_sent && !is_refused) {
                        *lock(&self.failed_creates).entry(key.clone()).or_default() += 1;
                    }
                    if is_refused {
                        self.refused(key, &Seen::Absent, &error.refusal());
                    }
                }
                created?;
            }
            Effect::DeleteAnyhow(target) => {
                let _ = self.applier.requests().delete(target, None).await;
            }
        }
        Ok(())
    }

    fn refused(&self, key: &String, _: &Seen<Incarnation>, _: &Refusal) {
        lock(&self.refused).insert(key.clone());
    }
}
