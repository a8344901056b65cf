use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use longshore_cluster::Cluster;
use longshore_core::{
    Announcement, ChildIdentity, Class, Classify, Create, Delete, EventType, ObjectRef, Patch,
    PatchKind, Resource, Seen,
};
use longshore_kit::{Applier, ApplyError, Cache, Clock, ListWatch, cache::reference};
use longshore_test::{
    Fault, FaultPlan, Faults, Point, SimClock, WatchFault, clock::cluster, faults::Refusal, pod,
    quiet_logs,
};
use serde_json::{Value, json};

const IDENTITY: &str = "test.longshore.dev/identity";

fn create(name: &str, identity: &str) -> Create {
    Create {
        resource: Resource::POD,
        object: pod(name).annotated(IDENTITY, identity).build(),
        identity: ChildIdentity::annotation(IDENTITY, identity),
    }
}

fn applier(cluster: &Cluster) -> Applier {
    Applier::new(cluster.client(), "test", [])
}

fn faulty(cluster: &Cluster, point: &str, fault: Fault) -> Applier {
    let faults = Faults::new(FaultPlan::at(Point::new(point, 1), fault));
    Applier::new(faults.start().client(cluster.service()), "test", [])
}

fn pods(client: Client) -> Api<Pod> {
    Api::default_namespaced(client)
}

async fn stored(cluster: &Cluster, name: &str) -> ObjectRef {
    let pods = pods(cluster.client());
    let pod = match pods.get_opt(name).await.unwrap() {
        Some(pod) => pod,
        None => pods
            .create(&PostParams::default(), &pod(name).typed())
            .await
            .unwrap(),
    };
    reference(Resource::POD, &pod)
}

fn elsewhere(target: &ObjectRef) -> ObjectRef {
    ObjectRef {
        uid: Some("another-uid".to_owned()),
        ..target.clone()
    }
}

fn label(target: ObjectRef, value: &str) -> Patch {
    Patch {
        target,
        subresource: None,
        kind: PatchKind::Merge,
        patch: json!({"metadata": {"labels": {"a": value}}}),
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_create_meets_its_own_object_and_no_other() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let applier = applier(&cluster);
    applier.create(&"k", &create("a", "1")).await.unwrap();
    applier.create(&"k", &create("a", "1")).await.unwrap();

    let error = applier.create(&"k", &create("a", "2")).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid);
    let message = error.refusal().message;
    assert!(message.contains("identity=2, found 1"), "{message}");

    // Bound pods stay for their grace period.
    let finalizer = "test.longshore.dev/hold";
    let target = stored(&cluster, "a").await;
    applier
        .ensure_finalizer(&"k", &target, finalizer)
        .await
        .unwrap();
    pods(cluster.client())
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    let error = applier.create(&"k", &create("a", "1")).await.unwrap_err();
    assert!(matches!(error, ApplyError::StillDeleting(_)), "{error}");
    assert_eq!(error.class(), Class::Retry);
}

#[tokio::test(start_paused = true)]
async fn a_create_without_its_identity_is_a_bug() {
    let cluster = cluster(SimClock::start(), 1);
    let mut create = create("a", "1");
    create.object = pod("a").build();
    let error = applier(&cluster).create(&"k", &create).await.unwrap_err();
    assert_eq!(error.class(), Class::Bug);
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_says_when_to_come_back() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let busy = Fault::Refuse(Refusal::TooManyRequests(7));
    let error = faulty(&cluster, "create pods", busy)
        .create(&"k", &create("a", "1"))
        .await;
    let error = error.unwrap_err();
    assert_eq!(error.class(), Class::Retry);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

#[tokio::test(start_paused = true)]
async fn patches_are_for_one_incarnation() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let applier = applier(&cluster);
    let target = stored(&cluster, "a").await;
    applier
        .patch(&"k", &label(target.clone(), "1"))
        .await
        .unwrap();
    for patch in [
        label(elsewhere(&target), "2"),
        label(
            ObjectRef {
                name: "gone".to_owned(),
                ..target.clone()
            },
            "2",
        ),
    ] {
        let error = applier.patch(&"k", &patch).await.unwrap_err();
        assert!(matches!(error, ApplyError::Changed(_)), "{error:?}");
        assert_eq!(error.class(), Class::Conflict);
    }
    let now = pods(cluster.client()).get("a").await.unwrap();
    assert_eq!(now.metadata.labels.unwrap()["a"], "1");
}

#[tokio::test(start_paused = true)]
async fn deletes_are_for_one_incarnation_and_conflicts_are_not_taken_for_success() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let target = stored(&cluster, "a").await;
    let delete = |target: &ObjectRef| Delete {
        target: target.clone(),
        grace_period_seconds: None,
        resource_version: None,
        waits_for_dependents: false,
    };
    let applier = applier(&cluster);
    applier
        .delete(&"k", &delete(&elsewhere(&target)))
        .await
        .unwrap();
    assert!(pods(cluster.client()).get_opt("a").await.unwrap().is_some());

    let conflict = faulty(&cluster, "delete pods", Fault::Refuse(Refusal::Conflict));
    let error = conflict.delete(&"k", &delete(&target)).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);

    applier.delete(&"k", &delete(&target)).await.unwrap();
    applier.delete(&"k", &delete(&target)).await.unwrap();
    assert!(pods(cluster.client()).get_opt("a").await.unwrap().is_none());

    let nameless = ObjectRef {
        uid: None,
        ..target
    };
    let error = applier.delete(&"k", &delete(&nameless)).await.unwrap_err();
    assert_eq!(error.class(), Class::Bug);
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_added_once_and_removed_from_what_is_there() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let faults = Faults::none();
    let applier = Applier::new(faults.start().client(cluster.service()), "test", []);
    let target = stored(&cluster, "a").await;
    let finalizer = "test.longshore.dev/hold";
    for _ in 0..2 {
        applier
            .ensure_finalizer(&"k", &target, finalizer)
            .await
            .unwrap();
    }
    for _ in 0..2 {
        applier
            .remove_finalizer(&"k", &target, finalizer)
            .await
            .unwrap();
    }
    assert_eq!(faults.count("patch pods"), 2);
    pods(cluster.client())
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    applier
        .remove_finalizer(&"k", &target, finalizer)
        .await
        .unwrap();
    let error = applier
        .ensure_finalizer(&"k", &target, finalizer)
        .await
        .unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_upon_what_was_seen_only() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let target = stored(&cluster, "a").await;
    let applier = applier(&cluster);
    let live = async || -> Value { applier.requests().get(&target).await.unwrap().unwrap() };
    let with_reason = |seen: &Value, reason: &str| {
        let mut status = seen["status"].clone();
        status["reason"] = json!(reason);
        status
    };

    // Another client changed the metadata: the status write still succeeds.
    let seen = live().await;
    applier
        .patch(&"k", &label(target.clone(), "1"))
        .await
        .unwrap();
    let first = with_reason(&seen, "First");
    applier
        .write_status(&"k", &target, &seen, &first)
        .await
        .unwrap();
    assert_eq!(live().await["status"]["reason"], "First");

    // Another client changed the status: the status write fails.
    let second = with_reason(&seen, "Second");
    let error = applier
        .write_status(&"k", &target, &seen, &second)
        .await
        .unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert_eq!(live().await["status"]["reason"], "First");

    // The answer was lost: the repeat, from the same observation, finds it done.
    let seen = live().await;
    let third = with_reason(&seen, "Third");
    let lossy = faulty(&cluster, "patch pods/status", Fault::LoseAnswer);
    let error = lossy
        .write_status(&"k", &target, &seen, &third)
        .await
        .unwrap_err();
    assert_eq!(error.class(), Class::Retry);
    lossy
        .write_status(&"k", &target, &seen, &third)
        .await
        .unwrap();
    assert_eq!(live().await["status"]["reason"], "Third");
}

#[tokio::test(start_paused = true)]
async fn equal_announcements_become_one_event_with_a_count() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let announcement = Announcement {
        regarding: stored(&cluster, "a").await,
        event_type: EventType::Warning,
        reason: "Late",
        note: "é".repeat(2000),
    };
    let first = applier(&cluster);
    for _ in 0..3 {
        first.announce(&announcement, clock.now());
    }
    published().await;
    applier(&cluster).announce(&announcement, clock.now());
    published().await;
    let events = events(&cluster).await;
    let [event] = events.as_slice() else {
        panic!("expected one event, found {events:#?}");
    };
    assert_eq!(
        event.reporting_controller.as_deref(),
        Some("longshore.dev/test")
    );
    assert_eq!(event.note.as_ref().unwrap().len(), 1024);
    assert!(event.series.is_some());
}

/// Events are published beside everything else.
async fn published() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

async fn events(cluster: &Cluster) -> Vec<Event> {
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    events.list(&ListParams::default()).await.unwrap().items
}

#[tokio::test(start_paused = true)]
async fn an_event_that_hangs_is_given_up_and_the_next_ones_are_published() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let hangs = Fault::Delay(Duration::from_secs(600));
    let applier = faulty(&cluster, "create events", hangs);
    let regarding = stored(&cluster, "a").await;
    for reason in ["First", "Second", "Third"] {
        let announcement = Announcement {
            regarding: regarding.clone(),
            event_type: EventType::Normal,
            reason,
            note: String::new(),
        };
        applier.announce(&announcement, clock.now());
    }
    published().await;
    let events = events(&cluster).await;
    let mut reasons: Vec<_> = events
        .iter()
        .filter_map(|it| it.reason.as_deref())
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["Second", "Third"]);
}

#[tokio::test(start_paused = true)]
async fn where_too_many_events_wait_the_last_ones_are_dropped() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let cluster = cluster(clock.clone(), 1);
    let applier = applier(&cluster);
    let regarding = stored(&cluster, "a").await;
    for n in 0..2_000 {
        let announcement = Announcement {
            regarding: regarding.clone(),
            event_type: EventType::Normal,
            reason: "Many",
            note: n.to_string(),
        };
        applier.announce(&announcement, clock.now());
    }
    published().await;
    assert_eq!(events(&cluster).await.len(), 1_024);
}

/// A cache of pods behind watch faults, and the applier that knows it.
fn cached(cluster: &Cluster, fault: Option<WatchFault>) -> (Arc<Cache<Pod>>, Applier) {
    let faults = Faults::new(fault.map_or_else(FaultPlan::none, FaultPlan::watches));
    let client = faults.start().client(cluster.service());
    let cache = Cache::new();
    let updates = ListWatch::new(pods(client.clone())).into_cache(Arc::clone(&cache));
    tokio::spawn(updates.for_each(|_| std::future::ready(())));
    let feed: Arc<dyn longshore_kit::CacheFeed> = cache.clone();
    (cache, Applier::new(client, "test", [(Resource::POD, feed)]))
}

#[tokio::test(start_paused = true)]
async fn a_round_waits_for_its_own_writes_or_reads_live() {
    let _logs = quiet_logs();
    let millis = Duration::from_millis;
    for (late, n_live_reads) in [(millis(300), 0), (millis(2000), 1)] {
        let cluster = cluster(SimClock::start(), 1);
        let (cache, applier) = cached(&cluster, Some(WatchFault::late(late)));
        assert!(cache.get("default", "a").is_unknown());
        tokio::time::sleep(millis(100)).await;
        assert_eq!(cache.get("default", "a"), Seen::Absent);

        applier.create(&"k", &create("a", "1")).await.unwrap();
        assert_eq!(cache.get("default", "a"), Seen::Absent, "the watch is late");
        let writes = applier.own_writes();
        writes.settle(&"other", applier.requests()).await.unwrap();
        assert_eq!(writes.n_waits(), 0, "it is nobody else's write");
        writes.settle(&"k", applier.requests()).await.unwrap();
        let seen = cache.get("default", "a");
        let target = reference(Resource::POD, seen.present().unwrap().as_ref());
        assert_eq!((writes.n_waits(), writes.n_live_reads()), (1, n_live_reads));

        let delete = Delete {
            target,
            grace_period_seconds: None,
            resource_version: None,
            waits_for_dependents: false,
        };
        applier.delete(&"k", &delete).await.unwrap();
        writes.settle(&"k", applier.requests()).await.unwrap();
        assert!(
            cache.get("default", "a").is_absent(),
            "late events do not bring it back"
        );
        tokio::time::sleep(millis(1100)).await;
        assert!(
            cache.get("default", "a").is_absent(),
            "late events do not bring it back"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_next_round_sees_what_is_there() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let target = stored(&cluster, "a").await;
    let (cache, applier) = cached(&cluster, Some(WatchFault::late(Duration::from_secs(20))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = cache.get("default", "a");
    let version = seen.present().unwrap().metadata.resource_version.clone();
    let others = Applier::new(cluster.client(), "others", []);
    others
        .patch(&"k", &label(target.clone(), "theirs"))
        .await
        .unwrap();
    let mut ours = label(target, "ours");
    ours.patch["metadata"]["resourceVersion"] = json!(version);
    let error = applier.patch(&"k", &ours).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    applier
        .own_writes()
        .settle(&"k", applier.requests())
        .await
        .unwrap();
    let seen = cache.get("default", "a");
    let labels = seen.present().unwrap().metadata.labels.clone();
    assert_eq!(labels.unwrap()["a"], "theirs");
}

#[tokio::test(start_paused = true)]
async fn after_a_test_of_a_json_patch_that_does_not_hold_the_next_round_sees_what_is_there() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let target = stored(&cluster, "a").await;
    let (cache, applier) = cached(&cluster, Some(WatchFault::late(Duration::from_secs(20))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let others = Applier::new(cluster.client(), "others", []);
    let theirs = label(target.clone(), "theirs");
    others.patch(&"k", &theirs).await.unwrap();
    let ours = Patch {
        kind: PatchKind::Json,
        patch: json!([
            {"op": "test", "path": "/metadata/labels/a", "value": "as before"},
            {"op": "add", "path": "/metadata/labels/a", "value": "ours"},
        ]),
        ..label(target, "ours")
    };
    let error = applier.patch(&"k", &ours).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid);
    let writes = applier.own_writes();
    writes.settle(&"k", applier.requests()).await.unwrap();
    let seen = cache.get("default", "a");
    let labels = seen.present().unwrap().metadata.labels.clone();
    assert_eq!(labels.unwrap()["a"], "theirs");
}
