//! A cache against an API server whose answers come late: reads and writes are answered at one time, and the cache takes
//! the answers at another one, in any order with the events of the watch.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::WatchEvent;
use longshore_core::{ObjectRef, Resource, Seen};
use longshore_kit::{Cache, CacheFeed, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Another client creates the object, or changes it.
    Write,
    /// Another client deletes it.
    Delete,
    /// We change it, and the API server answers.
    OwnWrite,
    /// The API server answers a live read of the incarnation that the cache shows.
    Read,
    /// The cache takes one of the answers that are on their way.
    Take(prop::sample::Index),
    /// The watch delivers an event.
    Deliver,
    /// The watch has expired, and the API server answers a list.
    List,
    /// The cache takes the list.
    Replace,
}

/// The object: its uid, and how many changes of others and of us it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    uid: u64,
    version: u64,
    theirs: u64,
    ours: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Applied(Object),
    Deleted(Object),
}

/// An answer that is on its way.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Wrote(Object),
    Read { uid: u64, found: Option<Object> },
}

#[derive(Debug, Default)]
struct World {
    cache: Cache<ConfigMap>,
    version: u64,
    object: Option<Object>,
    /// What the watch has yet to deliver.
    events: Vec<Event>,
    answers: Vec<Answer>,
    /// A list that is on its way, with its version.
    list: Option<(Option<Object>, u64)>,
    /// What the followers of the updates know.
    told: Option<Object>,
}

fn value(object: Object) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "a", "namespace": "default", "uid": object.uid.to_string(),
            "resourceVersion": object.version.to_string(),
        },
        "data": {"theirs": object.theirs.to_string(), "ours": object.ours.to_string()},
    })
}

fn map(object: Object) -> ConfigMap {
    serde_json::from_value(value(object)).unwrap()
}

fn read(map: &ConfigMap) -> Object {
    let number = |text: Option<&String>| -> u64 { text.unwrap().parse().unwrap() };
    let data = |key: &str| number(map.data.as_ref().unwrap().get(key));
    Object {
        uid: number(map.metadata.uid.as_ref()),
        version: number(map.metadata.resource_version.as_ref()),
        theirs: data("theirs"),
        ours: data("ours"),
    }
}

fn target(uid: u64) -> ObjectRef {
    ObjectRef {
        resource: Resource::CONFIG_MAP,
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        uid: Some(uid.to_string()),
    }
}

impl World {
    fn step(&mut self, step: Step) {
        match step {
            Step::Write => {
                self.version += 1;
                let new = Object {
                    uid: self.version,
                    version: 0,
                    theirs: 0,
                    ours: 0,
                };
                let mut object = self.object.unwrap_or(new);
                object.version = self.version;
                object.theirs += 1;
                self.set(object);
            }
            Step::Delete => {
                if let Some(mut object) = self.object.take() {
                    self.version += 1;
                    object.version = self.version;
                    self.events.push(Event::Deleted(object));
                }
            }
            Step::OwnWrite => {
                if let Some(mut object) = self.object {
                    self.version += 1;
                    object.version = self.version;
                    object.ours += 1;
                    self.set(object);
                    self.answers.push(Answer::Wrote(object));
                }
            }
            Step::Read => {
                if let Some(Object { uid, .. }) = self.shown() {
                    let found = self.object;
                    self.answers.push(Answer::Read { uid, found });
                }
            }
            Step::Take(index) => {
                if !self.answers.is_empty() {
                    let answer = self.answers.remove(index.index(self.answers.len()));
                    self.take(answer);
                }
            }
            // While a list is on its way, there is no watch.
            Step::Deliver if self.list.is_none() && !self.events.is_empty() => {
                let event = match self.events.remove(0) {
                    Event::Applied(object) => WatchEvent::Modified(map(object)),
                    Event::Deleted(object) => WatchEvent::Deleted(map(object)),
                };
                let update = self.cache.apply_event(event);
                self.tell(update);
            }
            Step::List if self.list.is_none() => {
                self.events.clear();
                self.list = Some((self.object, self.version));
            }
            Step::Replace => {
                if let Some((object, version)) = self.list.take() {
                    let objects = object.map(map).into_iter().collect();
                    let updates = self.cache.replace(objects, version);
                    self.tell(updates);
                }
            }
            Step::Deliver | Step::List => {}
        }
    }

    fn set(&mut self, object: Object) {
        self.object = Some(object);
        self.events.push(Event::Applied(object));
    }

    fn take(&self, answer: Answer) {
        match answer {
            Answer::Wrote(object) => self.cache.learn(&value(object).into()).unwrap(),
            Answer::Read { uid, found } => {
                let found = found.map(value);
                self.cache.feed(&target(uid), found).unwrap();
            }
        }
    }

    fn tell(&mut self, updates: impl IntoIterator<Item = Update<ConfigMap>>) {
        for update in updates {
            match update {
                Update::Applied(map) => self.told = Some(read(&map)),
                // Of an earlier incarnation, where the next one is known already: its event comes after this one.
                Update::Deleted(_) => self.told = None,
                Update::Reached(_) => {}
            }
        }
    }

    fn shown(&self) -> Option<Object> {
        match self.cache.get("default", "a") {
            Seen::Present(map) => Some(read(&map)),
            Seen::Absent | Seen::Unknown(_) => None,
        }
    }

    /// Everything that is on its way arrives: the answers before the events, or after them.
    fn settle(&mut self, answers_first: bool) {
        self.step(Step::Replace);
        for are_answers in [answers_first, !answers_first] {
            if are_answers {
                for answer in std::mem::take(&mut self.answers) {
                    self.take(answer);
                }
            }
            while !are_answers && !self.events.is_empty() {
                self.step(Step::Deliver);
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let take = any::<prop::sample::Index>().prop_map(Step::Take);
    let step = prop_oneof![
        3 => Just(Step::Write),
        2 => Just(Step::Delete),
        2 => Just(Step::OwnWrite),
        3 => Just(Step::Read),
        4 => take,
        5 => Just(Step::Deliver),
        1 => Just(Step::List),
        1 => Just(Step::Replace),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cache_ends_with_what_there_is_and_has_told_of_it_but_for_own_writes(
        steps in steps(),
        answers_first in any::<bool>(),
    ) {
        let mut world = World::default();
        let updates = world.cache.replace(Vec::new(), 0);
        world.tell(updates);
        for step in steps {
            world.step(step);
        }
        world.settle(answers_first);
        prop_assert_eq!(world.shown(), world.object, "shown: {:?}", &world);
        let essence = |object: Option<Object>| object.map(|object| (object.uid, object.theirs));
        prop_assert_eq!(essence(world.told), essence(world.object), "told: {:?}", &world);
    }
}
