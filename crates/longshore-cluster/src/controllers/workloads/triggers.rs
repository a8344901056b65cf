//! Which objects need a round after an event. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::runtime::watcher::{self, Event};
use longshore_k8s::Selector;
use serde_json::Value;

use super::body::{controller_of, selector_of_labels, workload_selector};

/// The label that names the service of an EndpointSlice.
pub(crate) const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The finalizer by which a Job holds its pods until it has counted them.
pub(crate) const FINALIZER_JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The label that names the Job of a pod.
const LABEL_JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The kinds that have a controller here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    Job,
    Service,
}

/// The kinds that adopt pods.
const KEEPERS: &[Kind] = &[
    Kind::ReplicaSet,
    Kind::ReplicationController,
    Kind::StatefulSet,
    Kind::Job,
];

impl Kind {
    fn of(owner: &OwnerReference) -> Option<Kind> {
        match owner.kind.as_str() {
            "Deployment" => Some(Kind::Deployment),
            "ReplicaSet" => Some(Kind::ReplicaSet),
            "ReplicationController" => Some(Kind::ReplicationController),
            "StatefulSet" => Some(Kind::StatefulSet),
            // Other groups have Jobs too.
            "Job" if owner.api_version.starts_with("batch/") => Some(Kind::Job),
            _ => None,
        }
    }
}

/// One object that has a controller here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Which watch speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Owner(Kind),
    Pod,
    Slice,
    Endpoints,
}

/// An event of a watch.
#[derive(Debug)]
pub(super) struct Note {
    source: Source,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Present(Box<ObjectMeta>, Option<Selector>),
    Gone(Box<ObjectMeta>),
    ListBegins,
    ListEnds,
    Nothing,
}

impl Note {
    pub(super) fn of<T>(
        source: Source,
        event: watcher::Result<Event<T>>,
        read: impl Fn(T) -> (ObjectMeta, Option<Selector>),
    ) -> Note {
        let change = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let (meta, selector) = read(object);
                Change::Present(Box::new(meta), selector)
            }
            Ok(Event::Delete(object)) => Change::Gone(Box::new(read(object).0)),
            Ok(Event::Init) => Change::ListBegins,
            Ok(Event::InitDone) => Change::ListEnds,
            Err(error) => {
                tracing::debug!(%error, ?source, "watch failed, starting again");
                Change::Nothing
            }
        };
        Note { source, change }
    }
}

/// The selector by which an object chooses pods.
pub(super) fn selector_of(kind: Kind, data: &Value) -> Option<Selector> {
    let selector = data.pointer("/spec/selector")?;
    match kind {
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::Job => {
            workload_selector(selector)
        }
        Kind::ReplicationController | Kind::Service => selector_of_labels(selector),
    }
}

type Place = (Source, String, String);

/// The state that the last events have left: selectors of owners, and dependents.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    selectors: BTreeMap<Key, Selector>,
    parts: BTreeMap<Place, Part>,
    /// What a list in progress has shown.
    listed: BTreeMap<Source, BTreeSet<Place>>,
}

/// An object that may belong to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    labels: BTreeMap<String, String>,
    /// Its controller, when that is one of ours.
    owner: Option<Key>,
    has_owner: bool,
    /// The Job that holds it, or held it before it lost its owner.
    holder: Option<Key>,
}

impl Triggers {
    /// Records an event of a watch. Returns the keys that need a round.
    pub(super) fn take(&mut self, note: Note) -> BTreeSet<Key> {
        let source = note.source;
        match note.change {
            Change::Present(meta, selector) => self.present(source, &meta, selector),
            Change::Gone(meta) => self.gone(&place(source, &meta)),
            Change::ListBegins => {
                self.listed.insert(source, BTreeSet::new());
                BTreeSet::new()
            }
            Change::ListEnds => {
                let listed = self.listed.remove(&source).unwrap_or_default();
                let known = self.parts.keys().filter(|it| it.0 == source);
                let missing: Vec<Place> =
                    known.filter(|it| !listed.contains(*it)).cloned().collect();
                missing.iter().flat_map(|it| self.gone(it)).collect()
            }
            Change::Nothing => BTreeSet::new(),
        }
    }

    fn present(
        &mut self,
        source: Source,
        meta: &ObjectMeta,
        selector: Option<Selector>,
    ) -> BTreeSet<Key> {
        let place = place(source, meta);
        if let Some(listed) = self.listed.get_mut(&source) {
            listed.insert(place.clone());
        }
        let mut affected = BTreeSet::new();
        if let Source::Owner(kind) = source {
            let key = key(kind, &place.1, &place.2);
            match selector {
                Some(selector) => drop(self.selectors.insert(key.clone(), selector)),
                None => drop(self.selectors.remove(&key)),
            }
            affected.insert(key);
        }
        let part = Part::of(meta);
        let old = self.parts.insert(place.clone(), part.clone());
        affected.extend(self.concerned(&place, &part));
        if let Some(old) = old.filter(|old| *old != part) {
            affected.extend(self.concerned(&place, &old));
        }
        affected
    }

    fn gone(&mut self, place: &Place) -> BTreeSet<Key> {
        let mut affected = BTreeSet::new();
        if let Source::Owner(kind) = place.0 {
            let key = key(kind, &place.1, &place.2);
            self.selectors.remove(&key);
            affected.insert(key);
        }
        if let Some(part) = self.parts.remove(place) {
            affected.extend(self.concerned(place, &part));
        }
        affected
    }

    /// The keys that need a round after a change of a dependent: its controller, or without one every workload that
    /// could adopt it. A pod concerns also the services that select it, and a slice its service.
    fn concerned(&self, place: &Place, part: &Part) -> BTreeSet<Key> {
        let (source, namespace, name) = place;
        let selecting = |kinds: &'static [Kind]| {
            let selectors = self.selectors.iter();
            selectors
                .filter(move |(key, selector)| {
                    kinds.contains(&key.kind)
                        && key.namespace == *namespace
                        && selector.matches(&part.labels)
                })
                .map(|(key, _)| key.clone())
        };
        let mut keys: BTreeSet<Key> = part.owner.clone().into_iter().collect();
        match source {
            Source::Pod => {
                keys.extend(selecting(&[Kind::Service]));
                if !part.has_owner {
                    keys.extend(selecting(KEEPERS));
                }
                keys.extend(part.holder.clone());
            }
            Source::Owner(Kind::ReplicaSet) if !part.has_owner => {
                keys.extend(selecting(&[Kind::Deployment]));
            }
            Source::Owner(_) => {}
            Source::Slice => {
                let service = part.labels.get(LABEL_SERVICE_NAME);
                keys.extend(service.map(|name| key(Kind::Service, namespace, name)));
            }
            // They have the name of their service.
            Source::Endpoints => keys.extend([key(Kind::Service, namespace, name)]),
        }
        keys
    }

    /// Pods that an object controls without selecting them: what a list by labels does not show. Those of a Job are
    /// asked for also when the Job is gone, because it has to let go of them.
    pub(super) fn strays_of(&self, key: &Key) -> Vec<String> {
        let selector = self.selectors.get(key);
        if selector.is_none() && key.kind != Kind::Job {
            return Vec::new();
        }
        let is_stray = |part: &Part| {
            let is_selected = selector.is_some_and(|it| it.matches(&part.labels));
            let belongs = part.owner.as_ref() == Some(key) || part.holder.as_ref() == Some(key);
            belongs && !is_selected
        };
        let pods = self.parts.iter().filter(|(place, part)| {
            place.0 == Source::Pod && place.1 == key.namespace && is_stray(part)
        });
        pods.map(|(place, _)| place.2.clone()).collect()
    }
}

impl Part {
    fn of(meta: &ObjectMeta) -> Part {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let owner = controller_of(meta);
        let ours = owner.and_then(|owner| Some(key(Kind::of(owner)?, namespace, &owner.name)));
        let labels = meta.labels.clone().unwrap_or_default();
        let mut finalizers = meta.finalizers.iter().flatten();
        let is_held = finalizers.any(|it| it == FINALIZER_JOB_TRACKING);
        let holder = is_held.then(|| {
            let name = labels.get(LABEL_JOB_NAME).map_or("", String::as_str);
            key(Kind::Job, namespace, name)
        });
        Part {
            holder: holder.filter(|_| owner.is_none()),
            has_owner: owner.is_some(),
            owner: ours,
            labels,
        }
    }
}

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn place(source: Source, meta: &ObjectMeta) -> Place {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (source, text(&meta.namespace), text(&meta.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn note(source: Source, change: Change) -> Note {
        Note { source, change }
    }

    fn present(source: Source, meta: Value, selector: Value) -> Note {
        let kind = match source {
            Source::Owner(kind) => Some(kind),
            Source::Pod | Source::Slice | Source::Endpoints => None,
        };
        let data = json!({"spec": {"selector": selector}});
        let selector = kind.and_then(|kind| selector_of(kind, &data));
        let meta: ObjectMeta = from_value(meta).unwrap();
        note(source, Change::Present(Box::new(meta), selector))
    }

    fn pod(labels: Value, owner: Option<&str>) -> Note {
        let owners = owner.map(|name| {
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true}])
        });
        let meta =
            json!({"name": "p", "namespace": "x", "labels": labels, "ownerReferences": owners});
        present(Source::Pod, meta, Value::Null)
    }

    fn names(keys: BTreeSet<Key>) -> Vec<String> {
        keys.into_iter()
            .map(|key| format!("{:?}/{}", key.kind, key.name))
            .collect()
    }

    fn triggers() -> Triggers {
        let mut triggers = Triggers::default();
        for (kind, namespace, name, selector) in [
            (Kind::Service, "x", "a", json!({"app": "a"})),
            (Kind::Service, "x", "b", json!({"app": "b"})),
            (Kind::Service, "y", "a", json!({"app": "a"})),
            (
                Kind::ReplicaSet,
                "x",
                "set",
                json!({"matchLabels": {"app": "a"}}),
            ),
        ] {
            let meta = json!({"name": name, "namespace": namespace});
            triggers.take(present(Source::Owner(kind), meta, selector));
        }
        triggers
    }

    #[test]
    fn a_pod_concerns_its_owner_or_who_could_adopt_it_and_its_services() {
        let mut triggers = triggers();
        let orphan = triggers.take(pod(json!({"app": "a"}), None));
        assert_eq!(names(orphan), ["ReplicaSet/set", "Service/a"]);
        let owned = triggers.take(pod(json!({"app": "a"}), Some("other")));
        assert_eq!(
            names(owned),
            ["ReplicaSet/other", "ReplicaSet/set", "Service/a"],
            "the old state counts"
        );
        let moved = triggers.take(pod(json!({"app": "b"}), Some("other")));
        assert_eq!(names(moved), ["ReplicaSet/other", "Service/a", "Service/b"]);
    }

    #[test]
    fn an_orphan_concerns_a_replication_controller_by_its_plain_labels() {
        let mut triggers = Triggers::default();
        let source = Source::Owner(Kind::ReplicationController);
        let meta = json!({"name": "c", "namespace": "x"});
        triggers.take(present(source, meta, json!({"app": "a"})));
        let orphan = triggers.take(pod(json!({"app": "a"}), None));
        assert_eq!(names(orphan), ["ReplicationController/c"]);
        let other = triggers.take(pod(json!({"app": "b"}), Some("set")));
        assert_eq!(names(other), ["ReplicaSet/set", "ReplicationController/c"]);
    }

    #[test]
    fn a_pod_that_is_not_selected_any_more_is_a_stray() {
        let mut triggers = triggers();
        let set = key(Kind::ReplicaSet, "x", "set");
        triggers.take(pod(json!({"app": "a"}), Some("set")));
        assert!(triggers.strays_of(&set).is_empty());
        triggers.take(pod(json!({"app": "b"}), Some("set")));
        assert_eq!(triggers.strays_of(&set), ["p"]);
    }

    #[test]
    fn pods_concern_the_job_that_holds_them_also_when_it_is_gone() {
        let mut triggers = Triggers::default();
        let job = key(Kind::Job, "x", "j");
        let held = |owner: Value, labels: Value| {
            let finalizers = [FINALIZER_JOB_TRACKING];
            let meta = json!({
                "name": "p", "namespace": "x", "labels": labels, "ownerReferences": owner, "finalizers": finalizers,
            });
            present(Source::Pod, meta, Value::Null)
        };
        let of = |group: &str| {
            let owner = json!([{
                "apiVersion": format!("{group}/v1"), "kind": "Job", "name": "j", "uid": "u", "controller": true,
            }]);
            held(owner, json!({}))
        };
        assert_eq!(
            names(triggers.take(of("example.com"))),
            [""; 0],
            "another kind of Job"
        );
        assert_eq!(names(triggers.take(of("batch"))), ["Job/j"]);
        assert_eq!(triggers.strays_of(&job), ["p"]);
        let lost = held(Value::Null, json!({"batch.kubernetes.io/job-name": "j"}));
        assert_eq!(names(triggers.take(lost)), ["Job/j"]);
        assert_eq!(triggers.strays_of(&job), ["p"]);
        let nameless = names(triggers.take(held(Value::Null, json!({}))));
        assert_eq!(nameless, ["Job/", "Job/j"], "the old state counts");
    }

    #[test]
    fn what_a_list_does_not_show_is_gone() {
        let mut triggers = triggers();
        triggers.take(pod(json!({"app": "a"}), Some("set")));
        triggers.take(note(Source::Pod, Change::ListBegins));
        let gone = triggers.take(note(Source::Pod, Change::ListEnds));
        assert_eq!(names(gone), ["ReplicaSet/set", "Service/a"]);
        triggers.take(note(Source::Pod, Change::ListBegins));
        triggers.take(pod(json!({"app": "a"}), Some("set")));
        let gone = triggers.take(note(Source::Pod, Change::ListEnds));
        assert_eq!(names(gone), [""; 0], "it was listed");
    }
}
