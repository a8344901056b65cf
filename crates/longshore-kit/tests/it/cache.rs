use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Pod;
use kube::core::WatchEvent;
use longshore_core::{ObjectRef, Resource, Seen};
use longshore_kit::{Cache, CacheFeed, Update, cache::Follow};
use serde_json::{Value, json};

fn object(uid: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "namespace": "default", "uid": uid, "resourceVersion": version.to_string(),
        },
    })
}

fn pod(uid: &str, version: u64) -> Pod {
    serde_json::from_value(object(uid, version)).unwrap()
}

fn target(uid: &str) -> ObjectRef {
    ObjectRef {
        resource: Resource::POD,
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        uid: Some(uid.to_owned()),
    }
}

/// The cached version, or why there is none.
fn state(cache: &Cache<Pod>) -> String {
    match cache.get("default", "a") {
        Seen::Present(pod) => pod.metadata.resource_version.clone().unwrap_or_default(),
        Seen::Absent => "absent".to_owned(),
        Seen::Unknown(_) => "unknown".to_owned(),
    }
}

#[test]
fn what_was_never_seen_is_unknown_until_a_list_is_complete() {
    let cache = Cache::<Pod>::new();
    cache.start_at(3);
    assert_eq!(state(&cache), "unknown");
    assert!(cache.all().is_unknown());
    cache.apply_event(WatchEvent::Added(pod("u", 4)));
    assert_eq!(state(&cache), "4");
    cache.apply_event(WatchEvent::Deleted(pod("u", 5)));
    assert_eq!(state(&cache), "absent", "it was seen going");
    cache.replace(Vec::new(), 6);
    assert_eq!(state(&cache), "absent");
    assert_eq!(cache.progress(), 6);
}

#[test]
fn events_never_turn_an_object_back() {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    cache.feed(&target("u"), Some(object("u", 9))).unwrap();
    assert!(
        cache
            .apply_event(WatchEvent::Modified(pod("u", 6)))
            .is_none()
    );
    assert_eq!(state(&cache), "9");
    assert!(
        cache
            .apply_event(WatchEvent::Modified(pod("u", 10)))
            .is_some()
    );
    assert_eq!(state(&cache), "10");
}

#[test]
fn what_a_live_read_found_gone_stays_gone() {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    cache.feed(&target("u"), None).unwrap();
    assert_eq!(state(&cache), "absent");
    cache.apply_event(WatchEvent::Modified(pod("u", 6)));
    assert_eq!(state(&cache), "absent", "an event of the old incarnation");
    cache.apply_event(WatchEvent::Deleted(pod("u", 7)));
    cache.apply_event(WatchEvent::Added(pod("v", 8)));
    assert_eq!(state(&cache), "8", "the next incarnation");
}

#[test]
fn a_live_read_ahead_of_the_watch_survives_the_end_of_the_old_incarnation() {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    cache.feed(&target("v"), Some(object("v", 9))).unwrap();
    let told = cache.apply_event(WatchEvent::Deleted(pod("u", 7)));
    assert!(
        matches!(told, Some(Update::Deleted(_))),
        "the watch may select the old one only"
    );
    assert_eq!(state(&cache), "9");
    cache.replace(vec![pod("u", 4)], 5);
    assert_eq!(state(&cache), "9", "a list older than the live read");
    let gone = cache.replace(Vec::new(), 12);
    assert!(
        matches!(gone.as_slice(), [Update::Deleted(_), Update::Reached(12)]),
        "{gone:?}"
    );
    assert_eq!(state(&cache), "absent");
}

#[test]
fn a_live_read_that_is_late_does_not_bring_back_what_is_gone() {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    cache.apply_event(WatchEvent::Deleted(pod("u", 6)));
    // It was read before it went.
    cache.feed(&target("u"), Some(object("u", 5))).unwrap();
    assert_eq!(state(&cache), "absent");
    cache.feed(&target("v"), Some(object("v", 7))).unwrap();
    assert_eq!(state(&cache), "7", "the watch has yet to deliver it");
}

#[test]
fn a_live_read_that_found_nothing_does_not_hide_the_next_incarnation() {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    cache.apply_event(WatchEvent::Deleted(pod("u", 6)));
    cache.apply_event(WatchEvent::Added(pod("v", 7)));
    cache.feed(&target("u"), None).unwrap();
    assert_eq!(state(&cache), "7");
    cache.feed(&target("v"), None).unwrap();
    assert_eq!(state(&cache), "absent");
}

#[test]
fn a_live_read_of_an_object_that_the_watch_does_not_select_is_forgotten_in_the_end() {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    cache.feed(&target("v"), Some(object("v", 9))).unwrap();
    cache.apply_event(WatchEvent::Deleted(pod("u", 7)));
    assert_eq!(state(&cache), "9", "the watch may deliver it");
    let mut other = pod("w", 10);
    other.metadata.name = Some("b".to_owned());
    cache.apply_event(WatchEvent::Added(other.clone()));
    assert_eq!(state(&cache), "absent", "it has not");
    cache.feed(&target("x"), Some(object("x", 12))).unwrap();
    cache.apply_event(WatchEvent::Added(pod("x", 12)));
    other.metadata.resource_version = Some("13".to_owned());
    cache.apply_event(WatchEvent::Modified(other));
    assert_eq!(state(&cache), "12", "it has");
}

#[test]
fn an_answer_is_learned_unless_the_watch_has_come_past_it() {
    let cache = Cache::<Pod>::new();
    cache.replace(Vec::new(), 3);
    cache.learn(&object("u", 4).into()).unwrap();
    assert_eq!(state(&cache), "4");
    cache.apply_event(WatchEvent::Added(pod("u", 4)));
    cache.apply_event(WatchEvent::Deleted(pod("u", 5)));
    cache.learn(&object("u", 4).into()).unwrap();
    assert_eq!(
        state(&cache),
        "absent",
        "it came and went before the answer"
    );
}

#[test]
fn an_object_whose_last_finalizer_we_removed_does_not_come_back() {
    let cache = Cache::<Pod>::new();
    let mut deleting = object("u", 4);
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut held = deleting.clone();
    held["metadata"]["finalizers"] = json!(["example.test/a"]);
    let held: Pod = serde_json::from_value(held).unwrap();
    cache.replace(vec![pod("u", 3)], 3);
    cache.learn(&deleting.into()).unwrap();
    assert_eq!(state(&cache), "absent");
    cache.apply_event(WatchEvent::Modified(held));
    assert_eq!(state(&cache), "absent", "the watch is behind");
    let told = cache.apply_event(WatchEvent::Deleted(pod("u", 5)));
    assert!(matches!(told, Some(Update::Deleted(_))));
}

/// What the watch tells of these versions, after our own writes were answered with `ours`.
fn told(ours: &[u64], delivered: &[u64]) -> Vec<String> {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    for version in ours {
        cache.learn(&object("u", *version).into()).unwrap();
    }
    let updates = delivered
        .iter()
        .filter_map(|version| cache.apply_event(WatchEvent::Modified(pod("u", *version))));
    let objects = updates.filter_map(Update::into_object);
    objects
        .map(|pod| pod.metadata.resource_version.clone().unwrap())
        .collect()
}

#[test]
fn own_writes_are_no_news_but_what_others_wrote_in_between_is() {
    let table: [(&[u64], &[u64], &[&str]); 5] = [
        (&[5], &[5], &[]),
        (&[5, 6], &[5, 6], &[]),
        (&[5], &[5, 6], &["6"]),
        // It was hidden by our own, which holds it.
        (&[6], &[5, 6], &["6"]),
        (&[5, 7], &[5, 6, 7, 8], &["7", "8"]),
    ];
    for (ours, delivered, expected) in table {
        assert_eq!(told(ours, delivered), expected, "{ours:?} {delivered:?}");
    }
}

#[test]
fn what_others_wrote_is_news_also_where_a_live_read_of_our_own_write_came_first() {
    let cache = Cache::<Pod>::new();
    cache.replace(vec![pod("u", 4)], 4);
    let found = || cache.feed(&target("u"), Some(object("u", 6)));
    found().unwrap();
    let theirs = cache.apply_event(WatchEvent::Modified(pod("u", 5)));
    assert!(theirs.is_none(), "the watch delivers what was found later");
    found().unwrap();
    cache.learn(&object("u", 6).into()).unwrap();
    let both = cache.apply_event(WatchEvent::Modified(pod("u", 6)));
    assert!(matches!(both, Some(Update::Applied(_))), "{both:?}");
}

#[test]
fn a_cache_that_passes_on_keeps_nothing() {
    let cache = Cache::<Pod>::passing_on();
    assert_eq!(cache.replace(vec![pod("u", 4)], 4).len(), 2);
    assert_eq!(state(&cache), "unknown");
    let update = cache.apply_event(WatchEvent::Added(pod("u", 5)));
    assert!(matches!(update, Some(Update::Applied(_))));
    let update = cache.apply_event(WatchEvent::Deleted(pod("u", 6)));
    assert!(matches!(update, Some(Update::Deleted(_))));
    assert_eq!(state(&cache), "unknown");
    assert_eq!(cache.progress(), 6);
}

/// What a follower was told: the versions of those that are there, by name.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<BTreeMap<String, String>>>);

impl Follow<Pod> for Told {
    fn follow(&self, _: &str, name: &str, object: Option<&Arc<Pod>>) {
        let mut told = self.0.lock().unwrap();
        match object {
            Some(pod) => {
                let version = pod.metadata.resource_version.clone();
                told.insert(name.to_owned(), version.unwrap_or_default());
            }
            None => {
                told.remove(name);
            }
        }
    }
}

#[test]
fn a_follower_knows_what_the_cache_shows_whatever_the_cache_was_fed_with() {
    let told = Told::default();
    let cache = Cache::<Pod>::followed_by(Arc::new(told.clone()));
    let is_in_step = |what: &str, expected: &str| {
        assert_eq!(state(&cache), expected, "{what}");
        let told = told.0.lock().unwrap().get("a").cloned();
        let told = told.unwrap_or_else(|| "absent".to_owned());
        assert_eq!(told, expected, "the follower, after {what}");
    };
    cache.replace(vec![pod("u", 4)], 4);
    is_in_step("a list", "4");
    cache.feed(&target("u"), Some(object("u", 9))).unwrap();
    is_in_step("a live read", "9");
    cache.apply_event(WatchEvent::Modified(pod("u", 6)));
    is_in_step("an event that is late", "9");
    cache.replace(Vec::new(), 7);
    is_in_step("a list that is late", "9");
    cache.apply_event(WatchEvent::Deleted(pod("u", 10)));
    is_in_step("a delete", "absent");
    cache.learn(&object("v", 12).into()).unwrap();
    is_in_step("a write of ours", "12");
    cache.feed(&target("v"), None).unwrap();
    is_in_step("a live read that finds nothing", "absent");
    cache.apply_event(WatchEvent::Added(pod("w", 14)));
    cache.replace(Vec::new(), 15);
    is_in_step("a list without it", "absent");
}
