//! Which pods are held, until when; and what slices and Services say.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use longshore_api::podops::{
    ANNOTATION_DRAIN_DELAY, CONDITION_SERVICE_READY, FINALIZER_SERVICES, LABEL_CONTROL,
};
use longshore_core::{Action, Next, Seen, UnknownCause};
use longshore_kit::{RawObject, Update};
use serde_json::{Value, json};

use super::{Concerned, Routes, Traffic, decide};
use crate::{
    lifecycle::Observed,
    model::{Namespace, Pod, PodKey},
};

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);
const OTHER: &str = "prot.podopslifecycle.kusionstack.io/other";

/// A pod that is Ready and open.
fn pod(change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "7",
            "labels": {LABEL_CONTROL: "true", "app": "web"}, "finalizers": [OTHER],
        },
        "spec": {"readinessGates": [{"conditionType": CONDITION_SERVICE_READY}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": before(60)},
            {"type": CONDITION_SERVICE_READY, "status": "True"},
        ]},
    });
    change(&mut pod);
    Pod::of(&pod).unwrap()
}

fn before(seconds: i64) -> String {
    (NOW - SignedDuration::from_secs(seconds)).to_string()
}

fn held(pod: &mut Value) {
    pod["metadata"]["finalizers"] = json!([OTHER, FINALIZER_SERVICES]);
}

/// Held, closed, and not Ready for so many seconds.
fn leaving(seconds: i64) -> impl FnOnce(&mut Value) {
    move |pod| {
        held(pod);
        let conditions = &mut pod["status"]["conditions"];
        conditions[0]["status"] = json!("False");
        conditions[0]["lastTransitionTime"] = json!(before(seconds));
        conditions[1]["status"] = json!("False");
    }
}

fn object(object: &Value) -> Arc<RawObject> {
    Arc::new(serde_json::from_value(object.clone()).unwrap())
}

fn service(name: &str, change: impl FnOnce(&mut Value)) -> Arc<RawObject> {
    let mut service = json!({
        "metadata": {"name": name, "namespace": "default", "annotations": {}, "labels": {}},
        "spec": {"selector": {"app": "web"}},
    });
    change(&mut service);
    object(&service)
}

fn slice(name: &str, of: &str, endpoints: Value) -> Arc<RawObject> {
    object(&json!({
        "metadata": {
            "name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": of},
        },
        "endpoints": endpoints,
    }))
}

fn endpoint(conditions: Value) -> Value {
    json!({"conditions": conditions, "targetRef": {"kind": "Pod", "name": "web-0", "uid": "u"}})
}

/// What is known of these objects.
fn routes(services: &[Arc<RawObject>], slices: &[Arc<RawObject>]) -> Routes {
    let routes = Routes::new(Duration::from_secs(5));
    for service in services {
        routes.see_service(&Update::Applied(service.clone()));
    }
    for slice in slices {
        routes.see_slice(&Update::Applied(slice.clone()));
    }
    routes.see_service(&Update::Reached(1));
    routes.see_slice(&Update::Reached(1));
    routes
}

/// What one Service is to the pod, which it has as ready or had so many seconds ago.
fn traffic(out: Option<i64>, delay: Option<&str>) -> Seen<Traffic> {
    let web = service("web", |service| {
        if let Some(delay) = delay {
            service["metadata"]["annotations"][ANNOTATION_DRAIN_DELAY] = json!(delay);
        }
    });
    let endpoints = json!([endpoint(json!({"ready": out.is_none()}))]);
    let routes = routes(&[web], &[slice("web-1", "web", endpoints)]);
    let at = NOW - SignedDuration::from_secs(out.unwrap_or_default());
    routes.of(&pod(|_| {}), at)
}

/// `+` and `-` for the finalizer, `!` for an Event, and the seconds until it is looked again.
fn done(pod: Pod, traffic: Seen<Traffic>) -> String {
    let observed = Observed {
        now: NOW,
        pod: Seen::Present(pod),
        rules: Seen::Absent,
        services: Default::default(),
        budgets: Seen::Absent,
        namespace: Namespace::Stays,
        traffic,
        deadline: None,
    };
    let Some(plan) = decide(&observed) else {
        return "cannot tell".to_owned();
    };
    let mut words = String::new();
    for action in &plan.actions {
        match action {
            Action::Patch(patch) => {
                let metadata = &patch.patch["metadata"];
                assert_eq!(metadata["resourceVersion"], "7");
                words += match &metadata["finalizers"] {
                    all if *all == json!([OTHER, FINALIZER_SERVICES]) => "+",
                    others if *others == json!([OTHER]) => "-",
                    unexpected => panic!("{unexpected}"),
                };
            }
            Action::Announce(_) => words += "!",
            Action::Persist(_)
            | Action::EnsureFinalizer { .. }
            | Action::Create(_)
            | Action::Delete(_)
            | Action::Call(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::RemoveFinalizer { .. } => panic!("{action:?}"),
        }
    }
    if let Next::After(wait) = plan.next {
        words += &wait.as_secs().to_string();
    }
    words
}

#[test]
fn a_pod_is_held_before_it_is_ready_and_until_its_traffic_has_drained() {
    let not_ready = |pod: &mut Value| pod["status"]["conditions"] = json!([]);
    let closed = |pod: &mut Value| leaving(60)(pod);
    let free = |pod: &mut Value| {
        closed(pod);
        pod["metadata"]["finalizers"] = json!([OTHER]);
    };
    let still_ready = |pod: &mut Value| {
        closed(pod);
        pod["status"]["conditions"][0]["status"] = json!("True");
    };
    let routed = || traffic(None, None);
    let out = |seconds| traffic(Some(seconds), None);
    let none = || routes(&[], &[]).of(&pod(|_| {}), NOW);
    for (what, pod, traffic, expected) in [
        ("new", pod(not_ready), out(0), "+"),
        ("in service, from before", pod(|_| {}), routed(), "+"),
        ("in service", pod(held), routed(), ""),
        ("open, and not Ready for a while", pod(held), out(60), ""),
        ("of no Service", pod(|_| {}), none(), ""),
        ("of no Service any more", pod(held), none(), "5"),
        ("closed, and in a slice", pod(closed), routed(), ""),
        ("out just now", pod(closed), out(0), "5"),
        ("out for a while", pod(closed), out(3), "2"),
        ("out for long enough", pod(closed), out(5), "-"),
        ("slices that came late", pod(leaving(1)), out(60), "4"),
        ("a node that is gone", pod(still_ready), routed(), ""),
        ("in no slice yet", pod(still_ready), out(60), ""),
        (
            "Ready, of no Service any more",
            pod(still_ready),
            none(),
            "5",
        ),
        ("closed and free", pod(free), out(60), ""),
        (
            "told to take longer",
            pod(closed),
            traffic_of("10s", 5),
            "5",
        ),
        ("told not to wait", pod(closed), traffic_of("0s", 0), "-"),
        ("told nonsense", pod(|_| {}), traffic_of("soon", 0), "+!"),
        (
            "told nonsense, and out",
            pod(closed),
            traffic_of("soon", 3),
            "2",
        ),
        ("switched off", pod(held), Seen::Absent, "-"),
        ("switched off and free", pod(|_| {}), Seen::Absent, ""),
        (
            "unknown",
            pod(held),
            Seen::unknown(UnknownCause::Unreachable, "down"),
            "cannot tell",
        ),
    ] {
        assert_eq!(done(pod, traffic), expected, "{what}");
    }
}

fn traffic_of(delay: &str, out: i64) -> Seen<Traffic> {
    traffic(Some(out), Some(delay))
}

#[test]
fn a_pod_that_cannot_be_saved_is_not_held() {
    let deleted = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!(before(0));
    let over = |pod: &mut Value| pod["status"]["phase"] = json!("Failed");
    let ungated = |pod: &mut Value| pod["spec"] = json!({});
    let changes: [fn(&mut Value); 3] = [deleted, over, ungated];
    for change in changes {
        let traffic = || traffic(None, None);
        assert_eq!(done(pod(change), traffic()), "", "{:?}", pod(change));
        let is_held = pod(|pod| {
            held(pod);
            change(pod);
        });
        assert_eq!(done(is_held.clone(), traffic()), "-", "{is_held:?}");
        assert_eq!(
            done(is_held, Seen::unknown(UnknownCause::Unreachable, "down")),
            "-"
        );
    }
}

#[test]
fn services_that_route_by_readiness_and_have_nobody_else_protect_their_pods() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, bool); 6] = [
        ("plain", |_| {}, true),
        (
            "of others",
            |it| it["spec"]["selector"]["app"] = json!("db"),
            false,
        ),
        (
            "without selector",
            |it| it["spec"]["selector"] = json!({}),
            false,
        ),
        ("without spec", |it| it["spec"] = Value::Null, false),
        (
            "a name",
            |it| it["spec"]["type"] = json!("ExternalName"),
            false,
        ),
        (
            "with a controller of its own",
            |it| it["metadata"]["labels"][LABEL_CONTROL] = json!("true"),
            false,
        ),
    ];
    for (what, change, protects) in cases {
        let routes = routes(&[service("web", change)], &[]);
        let Seen::Present(traffic) = routes.of(&pod(|_| {}), NOW) else {
            panic!("{what}");
        };
        assert_eq!(!traffic.services.is_empty(), protects, "{what}");
    }
}

#[test]
fn an_endpoint_is_routed_to_while_it_is_ready_and_serves() {
    for (conditions, is_routed) in [
        (json!({"ready": true, "serving": true}), true),
        (json!({}), true),
        (
            json!({"ready": false, "serving": true, "terminating": true}),
            false,
        ),
        (json!({"ready": false, "serving": false}), false),
        // A Service that publishes addresses that are not ready.
        (json!({"ready": true, "serving": false}), false),
    ] {
        let endpoints = json!([endpoint(conditions.clone())]);
        let slices = [slice("web-1", "web", endpoints)];
        let routes = routes(&[service("web", |_| {})], &slices);
        let traffic = routes.of(&pod(|_| {}), NOW);
        let routed_by = &traffic.present().unwrap().routed_by;
        assert_eq!(!routed_by.is_empty(), is_routed, "{conditions}");
    }
}

#[test]
fn slices_of_the_same_incarnation_and_of_services_that_select_it_count() {
    let of = |slice: Arc<RawObject>| {
        let routes = routes(&[service("web", |_| {})], &[slice]);
        let traffic = routes.of(&pod(|_| {}), NOW);
        !traffic.present().unwrap().routed_by.is_empty()
    };
    let mut earlier = endpoint(json!({}));
    earlier["targetRef"]["uid"] = json!("earlier");
    let mut unsaid = endpoint(json!({}));
    unsaid["targetRef"] = json!({"kind": "Pod", "name": "web-0"});
    let mut node = endpoint(json!({}));
    node["targetRef"]["kind"] = json!("Node");
    let same = || endpoint(json!({}));
    assert!(of(slice("a", "web", json!([same()]))));
    assert!(of(slice("a", "web", json!([unsaid]))));
    assert!(!of(slice("a", "other", json!([same()]))));
    assert!(!of(slice("a", "web", json!([earlier]))));
    assert!(!of(slice("a", "web", json!([node]))));
    assert!(!of(slice("a", "web", Value::Null)));
}

#[test]
fn a_change_wakes_the_pods_that_it_concerns() {
    let key = PodKey {
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
    };
    let pods = |some: bool| Concerned::Pods(some.then(|| key.clone()).into_iter().collect());
    let routes = Routes::new(Duration::from_secs(5));
    let web = service("web", |_| {});
    let here = Concerned::Namespace("default".to_owned());
    assert_eq!(routes.see_service(&Update::Applied(web.clone())), here);
    assert_eq!(
        routes.see_service(&Update::Applied(web.clone())),
        Concerned::Nobody
    );
    let is_known = |routes: &Routes| routes.of(&pod(|_| {}), NOW).present().is_some();
    assert_eq!(routes.see_service(&Update::Reached(1)), Concerned::Nobody);
    assert!(!is_known(&routes));
    assert_eq!(routes.see_slice(&Update::Reached(1)), Concerned::All);
    assert!(is_known(&routes));
    assert_eq!(routes.see_slice(&Update::Reached(2)), Concerned::Nobody);

    let with = |ready: bool| slice("a", "web", json!([endpoint(json!({"ready": ready}))]));
    for (ready, wakes) in [(false, false), (true, true), (true, false), (false, true)] {
        let concerned = routes.see_slice(&Update::Applied(with(ready)));
        assert_eq!(concerned, pods(wakes), "{ready}");
    }
    routes.see_slice(&Update::Applied(with(true)));
    assert_eq!(routes.see_slice(&Update::Deleted(with(true))), pods(true));
    assert_eq!(routes.see_service(&Update::Deleted(web)), here);
}

#[test]
fn a_pod_is_out_since_it_was_last_seen_in_a_slice() {
    let later = NOW + SignedDuration::from_secs(9);
    let with = |ready: bool| {
        let endpoints = json!([endpoint(json!({"ready": ready}))]);
        Update::Applied(slice("a", "web", endpoints))
    };
    let routes = routes(&[service("web", |_| {})], &[]);
    let out_since = |at| routes.of(&pod(|_| {}), at).present().unwrap().out_since;
    assert_eq!(out_since(NOW), NOW);
    assert_eq!(out_since(later), NOW);
    // Between two looks at the pod it came and left.
    routes.see_slice(&with(true));
    routes.see_slice(&with(false));
    assert_eq!(out_since(later), later);
    routes.forget("u");
    assert_eq!(out_since(NOW), NOW);
}
