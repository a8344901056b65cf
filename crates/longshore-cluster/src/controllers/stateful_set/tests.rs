//! What a StatefulSet decides, as tables.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, from_value, json};

use super::{
    decide::decide,
    model::{Desired, Observed},
};
use crate::controllers::workloads::{
    Body,
    hands::{Request, Target},
};

fn body(meta: Value, data: Value) -> Body {
    Body {
        meta: from_value(meta).unwrap(),
        data,
    }
}

fn template(version: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": version}]}})
}

/// A set at its second template, changed by a merge.
fn set(n_replicas: usize, change: Value) -> Desired {
    let mut data = json!({"spec": {
        "replicas": n_replicas, "serviceName": "s", "selector": {"matchLabels": {"app": "web"}},
        "template": template("new"), "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    }, "status": {"currentRevision": "web-old", "updateRevision": "web-new"}});
    json_patch::merge(&mut data["spec"], &change);
    let meta = json!({"name": "web", "namespace": "default", "uid": "u", "generation": 1});
    Desired::of(body(meta, data)).unwrap()
}

fn revisions() -> Vec<Body> {
    let revision = |name: &str, version: &str, number: i64| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]);
        let mut template = template(version);
        template["$patch"] = json!("replace");
        body(
            json!({"name": name, "uid": name, "ownerReferences": owner}),
            json!({"data": {"spec": {"template": template}}, "revision": number}),
        )
    };
    vec![revision("web-old", "old", 1), revision("web-new", "new", 2)]
}

fn pod(ordinal: usize, revision: &str, state: &str) -> Pod {
    let is_ready = if state == "ready" || state == "goes" {
        "True"
    } else {
        "False"
    };
    let deleted_at = (state == "goes").then_some("2026-01-01T00:00:00Z");
    from_value(json!({
        "metadata": {
            "name": format!("web-{ordinal}"), "namespace": "default", "uid": format!("p{ordinal}"),
            "labels": {"app": "web", "controller-revision-hash": revision}, "deletionTimestamp": deleted_at,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}],
        },
        "status": {
            "phase": match state {
                "failed" => "Failed",
                "waits" => "Pending",
                _ => "Running",
            },
            "conditions": [{"type": "Ready", "status": is_ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }))
    .unwrap()
}

/// What a round does to pods, as `+web-0:image` and `-web-0`.
fn steps(desired: &Desired, pods: Vec<Pod>) -> Vec<String> {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let observed = Observed {
        pods,
        revisions: revisions(),
        claims: Vec::new(),
        now,
    };
    let plan = decide(desired, &observed);
    let steps = plan.requests.iter().filter_map(|request| match request {
        Request::Create {
            target: Target::Pod,
            object,
        } => {
            let image = object["spec"]["containers"][0]["image"].as_str().unwrap();
            Some(format!(
                "+{}:{image}",
                object["metadata"]["name"].as_str().unwrap()
            ))
        }
        Request::Delete {
            target: Target::Pod,
            name,
            ..
        } => Some(format!("-{name}")),
        Request::Create { .. } | Request::Delete { .. } | Request::Patch { .. } => None,
        Request::PatchStatus { .. } | Request::Announce(_) => None,
    });
    steps.collect()
}

/// A case: what it is, its pods, and the steps that follow.
type Case = (&'static str, Vec<Pod>, Vec<&'static str>);

fn check(set: &Desired, cases: Vec<Case>) {
    for (what, pods, expected) in cases {
        assert_eq!(steps(set, pods), expected, "{what}");
    }
}

const NEW: &str = "web-new";
const OLD: &str = "web-old";

fn pair(first: (&str, &str), second: (&str, &str)) -> Vec<Pod> {
    vec![pod(0, first.0, first.1), pod(1, second.0, second.1)]
}

#[test]
fn pods_are_made_in_their_order() {
    let ordered = set(2, json!({}));
    let one = |state: &str| vec![pod(0, NEW, state)];
    let four = |last: &str| {
        let mut pods: Vec<Pod> = (0..3).map(|i| pod(i, NEW, "ready")).collect();
        pods.push(pod(3, NEW, last));
        pods
    };
    check(
        &ordered,
        vec![
            ("the first", vec![], vec!["+web-0:new"]),
            ("the second waits", one("comes"), vec![]),
            ("the second", one("ready"), vec!["+web-1:new"]),
            ("one that failed", one("failed"), vec!["-web-0"]),
            ("done", pair((NEW, "ready"), (NEW, "ready")), vec![]),
            ("the surplus from the end", four("ready"), vec!["-web-3"]),
            ("one after the other", four("goes"), vec![]),
        ],
    );
    let parallel = set(2, json!({"podManagementPolicy": "Parallel"}));
    check(
        &parallel,
        vec![("all at once", vec![], vec!["+web-0:new", "+web-1:new"])],
    );
    let later = set(2, json!({"ordinals": {"start": 5}}));
    let too_low = vec![
        pod(0, NEW, "ready"),
        pod(5, NEW, "ready"),
        pod(6, NEW, "ready"),
    ];
    check(
        &later,
        vec![
            (
                "other numbers",
                vec![pod(5, NEW, "ready")],
                vec!["+web-6:new"],
            ),
            ("numbers that are too low", too_low, vec!["-web-0"]),
        ],
    );
}

#[test]
fn an_ordered_set_does_not_get_smaller_while_its_pods_are_ill() {
    let three = |states: [&str; 3]| {
        let pods = states.iter().enumerate();
        pods.map(|(i, state)| pod(i, NEW, state))
            .collect::<Vec<Pod>>()
    };
    let ordered = set(0, json!({}));
    check(
        &ordered,
        vec![
            ("all are ill", three(["ill", "ill", "ill"]), vec![]),
            (
                "the last is ill alone",
                three(["ready", "ready", "ill"]),
                vec!["-web-2"],
            ),
            (
                "the first is ill",
                three(["ill", "ready", "ready"]),
                vec!["-web-2"],
            ),
            ("two are ill", three(["ready", "ill", "ill"]), vec![]),
            (
                "one goes, the last is ill",
                three(["goes", "ready", "ill"]),
                vec![],
            ),
        ],
    );
    let slow = set(0, json!({"minReadySeconds": 86_400}));
    let ready = three(["ready", "ready", "ready"]);
    check(&slow, vec![("not available yet", ready, vec![])]);
    let parallel = set(0, json!({"podManagementPolicy": "Parallel"}));
    let all = vec!["-web-2", "-web-1", "-web-0"];
    check(
        &parallel,
        vec![("all at once", three(["ill", "ill", "ill"]), all)],
    );
}

#[test]
fn pods_are_replaced_from_the_last_one_on() {
    let old = || pair((OLD, "ready"), (OLD, "ready"));
    check(
        &set(2, json!({})),
        vec![
            ("the last one first", old(), vec!["-web-1"]),
            (
                "one at a time",
                pair((OLD, "ready"), (NEW, "comes")),
                vec![],
            ),
            (
                "then the next",
                pair((OLD, "ready"), (NEW, "ready")),
                vec!["-web-0"],
            ),
            (
                "its name is taken",
                pair((OLD, "ready"), (OLD, "goes")),
                vec![],
            ),
        ],
    );
    let parallel = set(2, json!({"podManagementPolicy": "Parallel"}));
    let coming = pair((OLD, "ready"), (NEW, "comes"));
    check(&parallel, vec![("one at a time", coming, vec![])]);
    let on_delete = set(2, json!({"updateStrategy": {"type": "OnDelete"}}));
    check(&on_delete, vec![("a client deletes", old(), vec![])]);
    let parted = set(
        2,
        json!({"updateStrategy": {"rollingUpdate": {"partition": 1}}}),
    );
    check(
        &parted,
        vec![
            (
                "below the partition",
                pair((OLD, "ready"), (NEW, "ready")),
                vec![],
            ),
            ("as it was", vec![pod(1, NEW, "ready")], vec!["+web-0:old"]),
        ],
    );
}

/// As the controller of Kubernetes does for pods in phase `Pending`.
#[test]
fn a_claim_that_was_deleted_is_made_again_for_a_pod_that_waits() {
    let templates = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let set = set(1, json!({"volumeClaimTemplates": templates}));
    for (state, expected) in [("waits", vec!["data-web-0"]), ("ready", vec![])] {
        let observed = Observed {
            pods: vec![pod(0, NEW, state)],
            revisions: revisions(),
            claims: Vec::new(),
            now: Timestamp::UNIX_EPOCH,
        };
        let plan = decide(&set, &observed);
        let made = plan.requests.iter().filter_map(|request| match request {
            Request::Create {
                target: Target::Claim,
                object,
            } => object["metadata"]["name"].as_str(),
            Request::Create { .. } | Request::Delete { .. } | Request::Patch { .. } => None,
            Request::PatchStatus { .. } | Request::Announce(_) => None,
        });
        assert_eq!(made.collect::<Vec<_>>(), expected, "{state}");
    }
}

#[test]
fn a_template_that_comes_back_has_its_revision() {
    let rolled_back = set(1, json!({"template": template("old")}));
    let now = Timestamp::UNIX_EPOCH;
    let observed = Observed {
        pods: Vec::new(),
        revisions: revisions(),
        claims: Vec::new(),
        now,
    };
    let plan = decide(&rolled_back, &observed);
    assert_eq!(plan.revisions.update.name, "web-old");
    let expected = Request::Patch {
        target: Target::Revision,
        name: "web-old".to_owned(),
        patch: json!({"metadata": {"uid": "web-old"}, "revision": 3}),
    };
    assert_eq!(plan.requests[0], expected);
}
