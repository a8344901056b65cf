//! Publishes Kubernetes Events: best effort, aggregated, never in the way of a plan.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use longshore_api::REPORTING_CONTROLLER_PREFIX;
use longshore_core::{Announcement, EventType, ObjectRef, PatchKind, Resource, Scope};
use serde_json::{Value, json};

use crate::requests::Requests;

/// `events.k8s.io/v1` Event.
const EVENT: Resource = Resource {
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    plural: "events",
    scope: Scope::Namespaced,
};
/// The longest note that API servers take.
const NOTE_BYTES: usize = 1024;
/// The longest time for publishing one Event, while others wait.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);
/// From one to the next: in a burst, the API server has better things to do.
const PAUSE: Duration = Duration::from_millis(50);
/// How many may wait; those beyond are dropped.
const MAX_WAITING: usize = 1024;
/// How many different Events are counted in memory; beyond that the counts start anew.
const MAX_COUNTED: usize = 4096;

/// Publishes Events in the name of `longshore.dev/<role>`, one after the other beside the rounds: no plan waits for
/// one, and no write that matters waits for an API server that is busy with them.
///
/// The same text about the same object becomes one Event with a count. Its name is a hash of both, so that a restarted
/// process meets its own Event and counts on instead of adding another.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    requests: Requests,
    controller: String,
    counts: Arc<Mutex<BTreeMap<String, u32>>>,
    waiting: Arc<Mutex<Waiting>>,
}

/// What is to be published.
#[derive(Debug, Default)]
struct Waiting {
    announcements: VecDeque<(Announcement, Timestamp)>,
    /// A task publishes them, until there are none.
    is_published: bool,
}

impl Events {
    pub(crate) fn new(requests: Requests, role: &str) -> Self {
        Self {
            requests,
            controller: format!("{REPORTING_CONTROLLER_PREFIX}{role}"),
            counts: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// Has it published as soon as those before it are.
    pub(crate) fn publish(&self, announcement: &Announcement, now: Timestamp) {
        let mut waiting = self.waiting();
        if waiting.announcements.len() >= MAX_WAITING {
            tracing::debug!(reason = announcement.reason, "too many Events wait");
            return;
        }
        waiting.announcements.push_back((announcement.clone(), now));
        if !std::mem::replace(&mut waiting.is_published, true) {
            tokio::spawn(self.clone().publish_all());
        }
    }

    async fn publish_all(self) {
        while let Some((announcement, now)) = self.next() {
            self.publish_one(&announcement, now).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn next(&self) -> Option<(Announcement, Timestamp)> {
        let mut waiting = self.waiting();
        let next = waiting.announcements.pop_front();
        waiting.is_published = next.is_some();
        next
    }

    /// A failure is logged at debug and forgotten.
    async fn publish_one(&self, announcement: &Announcement, now: Timestamp) {
        let target = address(announcement);
        let count = self.count(&target.name);
        let published = async {
            if count == 1 {
                let event = self.build(announcement, &target, now);
                match self.requests.create(&target, &event).await {
                    Err(error) if error.is_already_exists() => {}
                    other => return other,
                }
            }
            let series =
                json!({"series": {"count": count.max(2), "lastObservedTime": micro_time(now)}});
            let patched = self
                .requests
                .patch(&target, None, PatchKind::Merge, series)
                .await;
            match patched {
                // Events are kept for an hour; this one ran out.
                Err(error) if error.code() == Some(404) => {
                    let event = self.build(announcement, &target, now);
                    self.requests.create(&target, &event).await
                }
                other => other,
            }
        };
        match tokio::time::timeout(PUBLISH_TIMEOUT, published).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, reason = announcement.reason, "Event not published")
            }
            Err(_) => tracing::debug!(reason = announcement.reason, "Event not published in time"),
        }
    }

    fn build(&self, announcement: &Announcement, target: &ObjectRef, now: Timestamp) -> Value {
        let regarding = &announcement.regarding;
        let mut reference = json!({
            "apiVersion": regarding.resource.api_version(),
            "kind": regarding.resource.kind,
            "name": regarding.name,
            "uid": regarding.uid,
        });
        if regarding.resource.scope == Scope::Namespaced {
            reference["namespace"] = json!(regarding.namespace);
        }
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "eventTime": micro_time(now),
            "reportingController": self.controller,
            "reportingInstance": self.controller,
            "action": announcement.reason,
            "reason": announcement.reason,
            "type": match announcement.event_type {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            },
            "note": cut(&announcement.note),
            "regarding": reference,
        })
    }

    fn count(&self, name: &str) -> u32 {
        let mut counts = self.counts();
        if counts.len() >= MAX_COUNTED {
            counts.clear();
        }
        let count = counts.entry(name.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Event's own address: beside the object, or in `default` for cluster-scoped ones.
fn address(announcement: &Announcement) -> ObjectRef {
    let regarding = &announcement.regarding;
    let mut hasher = DefaultHasher::new();
    (&regarding.uid, announcement.reason, &announcement.note).hash(&mut hasher);
    let namespace = match regarding.resource.scope {
        Scope::Namespaced => regarding.namespace.clone(),
        Scope::Cluster => "default".to_owned(),
    };
    ObjectRef {
        resource: EVENT,
        namespace,
        name: format!("{}.{:016x}", regarding.name, hasher.finish()),
        uid: None,
    }
}

/// Kubernetes' MicroTime.
pub(crate) fn micro_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn cut(note: &str) -> &str {
    &note[..note.floor_char_boundary(NOTE_BYTES)]
}
