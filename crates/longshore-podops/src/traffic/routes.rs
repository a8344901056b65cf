//! What is known of Services and EndpointSlices, by pod: a round looks at one pod, and a slice has a hundred.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use longshore_core::{Seen, UnknownCause};
use longshore_kit::{RawObject, Update};

use super::model::{Protects, Service, Slice, Traffic};
use crate::{
    model::{Pod, PodKey},
    service::key_of,
};

/// Services and EndpointSlices as last seen. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    drain_delay: Duration,
    known: Arc<Mutex<RouteIndex>>,
}

#[derive(Debug, Default)]
struct RouteIndex {
    /// Whether all Services that exist are among them.
    has_services: bool,
    has_slices: bool,
    services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, Slice>,
    /// The slices that have a pod as ready.
    by_pod: BTreeMap<PodKey, BTreeSet<Key>>,
    /// Since when a pod was seen in no slice, by its uid.
    out_since: BTreeMap<String, Timestamp>,
}

/// A Service or a slice: an object in its namespace.
type Key = PodKey;

/// Whose traffic a change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Concerned {
    /// No pod's.
    Nobody,
    /// Any pod's: now everything is known.
    All,
    /// Any pod's of a namespace.
    Namespace(String),
    /// That of these pods.
    Pods(BTreeSet<PodKey>),
}

impl Routes {
    /// Nothing is known yet. Pods are held that long after they have left all slices, unless a Service says otherwise.
    pub(crate) fn new(drain_delay: Duration) -> Self {
        Self {
            drain_delay,
            known: Arc::default(),
        }
    }

    /// Takes in a change of a Service. A Service that cannot be read selects no pod.
    pub(crate) fn see_service(&self, update: &Update<RawObject>) -> Concerned {
        let mut known = self.known();
        let (key, service) = match update {
            Update::Reached(_) => {
                let was_complete = std::mem::replace(&mut known.has_services, true);
                return known.completed(was_complete);
            }
            Update::Applied(object) => {
                let read = object.read().ok();
                (key_of(object), read.and_then(|Protects(service)| service))
            }
            Update::Deleted(object) => (key_of(object), None),
        };
        if known.services.get(&key) == service.as_ref() {
            return Concerned::Nobody;
        }
        let namespace = key.namespace.clone();
        match service {
            Some(service) => known.services.insert(key, service),
            None => known.services.remove(&key),
        };
        Concerned::Namespace(namespace)
    }

    /// Takes in a change of a slice. A slice that cannot be read routes to no pod.
    pub(crate) fn see_slice(&self, update: &Update<RawObject>) -> Concerned {
        let mut known = self.known();
        let (key, slice) = match update {
            Update::Reached(_) => {
                let was_complete = std::mem::replace(&mut known.has_slices, true);
                return known.completed(was_complete);
            }
            Update::Applied(object) => (key_of(object), object.read::<Slice>().ok()),
            Update::Deleted(object) => (key_of(object), None),
        };
        Concerned::Pods(known.put_slice(key, slice))
    }

    /// What routes traffic to a pod, now.
    pub(crate) fn of(&self, pod: &Pod, now: Timestamp) -> Seen<Traffic> {
        let mut known = self.known();
        if !known.has_services || !known.has_slices {
            return Seen::unknown(
                UnknownCause::NotListedYet,
                "Services and their slices were not listed yet",
            );
        }
        let namespace = &pod.target.namespace;
        let mut services = Vec::new();
        let all = known.services.range(
            Key {
                namespace: namespace.clone(),
                name: String::new(),
            }..,
        );
        for (_, service) in all.take_while(|(key, _)| key.namespace == *namespace) {
            if service.selects(pod) {
                services.push(service.clone());
            }
        }
        let routed_by = known.routing(pod, &services);
        let uid = pod.target.uid.clone().unwrap_or_default();
        let out_since = if routed_by.is_empty() {
            *known.out_since.entry(uid).or_insert(now)
        } else {
            known.out_since.remove(&uid);
            now
        };
        Seen::Present(Traffic {
            services,
            routed_by,
            out_since,
            drain_delay: self.drain_delay,
        })
    }

    /// A pod is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.known().out_since.remove(uid);
    }

    fn known(&self) -> MutexGuard<'_, RouteIndex> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RouteIndex {
    /// The pods that waited for everything to be known are woken once.
    fn completed(&self, was_complete: bool) -> Concerned {
        if self.has_services && self.has_slices && !was_complete {
            Concerned::All
        } else {
            Concerned::Nobody
        }
    }

    /// Replaces a slice. Returns the pods that have come to it or left it.
    fn put_slice(&mut self, key: Key, slice: Option<Slice>) -> BTreeSet<PodKey> {
        let before = match &slice {
            Some(slice) => self.slices.insert(key.clone(), slice.clone()),
            None => self.slices.remove(&key),
        };
        let none = BTreeMap::new();
        let (before, after) = (
            before.as_ref().map_or(&none, |slice| &slice.ready),
            slice.as_ref().map_or(&none, |slice| &slice.ready),
        );
        let pod = |name: &String| PodKey {
            namespace: key.namespace.clone(),
            name: name.clone(),
        };
        let left = before.iter().filter(|(name, _)| !after.contains_key(*name));
        let left: BTreeSet<PodKey> = left.map(|(name, _)| pod(name)).collect();
        for pod in &left {
            if let Some(slices) = self.by_pod.get_mut(pod) {
                slices.remove(&key);
                if slices.is_empty() {
                    self.by_pod.remove(pod);
                }
            }
        }
        let came = after
            .iter()
            .filter(|(name, uid)| before.get(*name) != Some(uid));
        let came: BTreeSet<PodKey> = came.map(|(name, _)| pod(name)).collect();
        for (pod, uid) in came
            .iter()
            .filter_map(|pod| Some((pod, after.get(&pod.name)?)))
        {
            self.out_since.remove(uid);
            let slices = self.by_pod.entry(pod.clone()).or_default();
            slices.insert(key.clone());
        }
        left.into_iter().chain(came).collect()
    }

    /// Which of these Services have a pod as ready.
    fn routing(&self, pod: &Pod, services: &[Service]) -> Vec<String> {
        let key = PodKey {
            namespace: pod.target.namespace.clone(),
            name: pod.target.name.clone(),
        };
        let slices = self.by_pod.get(&key).into_iter().flatten();
        let slices = slices.filter_map(|slice| self.slices.get(slice));
        let same = slices.filter(|slice| slice.routes_to(pod));
        let routing: BTreeSet<&str> = same.map(|slice| slice.service.as_str()).collect();
        let names = services.iter().map(|service| service.name.clone());
        names
            .filter(|name| routing.contains(name.as_str()))
            .collect()
    }
}
