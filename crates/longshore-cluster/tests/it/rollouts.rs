//! Deployments, ReplicaSets, ReplicationControllers, StatefulSets and EndpointSlices at work, on a node that is played.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::harness::{Api, PODS, controlled, eventually, gone};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A node that makes every pod ready at once, and lets go of those that are deleted.
pub(crate) struct PlayedNode(AbortHandle);

impl Drop for PlayedNode {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn play_node(api: &Api) -> PlayedNode {
    api.make(
        "/api/v1/nodes",
        json!({"metadata": {"name": "n1"}, "status": {
            "allocatable": {"pods": "110", "cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .await;
    let api = api.clone();
    let task = tokio::spawn(async move {
        loop {
            let (_, list) = api
                .get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn1"))
                .await;
            for pod in list["items"].as_array().into_iter().flatten() {
                play_pod(&api, pod).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    PlayedNode(task.abort_handle())
}

async fn play_pod(api: &Api, pod: &Value) {
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    let uid = &pod["metadata"]["uid"];
    if pod["metadata"]["deletionTimestamp"].is_string() {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        api.delete(&path, options).await;
    } else if pod["status"]["phase"] == "Pending" {
        // The address says which template the pod is of.
        let image = pod
            .pointer("/spec/containers/0/image")
            .and_then(Value::as_str)
            .unwrap();
        let is_ready = if image == "broken" { "False" } else { "True" };
        let status = json!({"metadata": {"uid": uid}, "status": {
            "phase": "Running", "podIP": "127.1.1.1",
            "conditions": [{"type": "Ready", "status": is_ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }});
        api.patch("merge", &format!("{path}/status"), status).await;
    }
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image, "ports": [{"name": "http", "containerPort": 80}]}]},
    })
}

fn workload(n_replicas: u32) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": n_replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("i:1"),
    }})
}

async fn pods(api: &Api) -> Vec<Value> {
    api.get(PODS).await.1["items"].as_array().unwrap().clone()
}

fn names(objects: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = objects
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// Waits until every pod is of the present template and available, as `kubectl rollout status` does.
async fn rolled_out(api: &Api, n_replicas: u64) -> Value {
    let path = format!("{DEPLOYMENTS}/web");
    let is_done = |_, it: &Value| {
        let status = &it["status"];
        let is = |key: &str| status[key].as_u64().unwrap_or(0) == n_replicas;
        status["observedGeneration"] == it["metadata"]["generation"]
            && is("replicas")
            && is("updatedReplicas")
            && is("availableReplicas")
    };
    eventually(api, &path, is_done).await
}

#[tokio::test(start_paused = true)]
async fn a_deployment_comes_up_rolls_scales_and_goes() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    api.make(DEPLOYMENTS, workload(3)).await;
    let done = rolled_out(&api, 3).await;
    assert_eq!(
        done["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );
    let first = pods(&api).await;
    let set = first[0]["metadata"]["ownerReferences"][0].clone();
    assert_eq!(
        (&set["kind"], &set["controller"]),
        (&json!("ReplicaSet"), &json!(true))
    );
    let hash = first[0]["metadata"]["labels"]["pod-template-hash"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(set["name"], format!("web-{hash}"));

    let path = format!("{DEPLOYMENTS}/web");
    api.patch(
        "merge",
        &path,
        json!({"spec": {"template": template("i:2")}}),
    )
    .await;
    let done = rolled_out(&api, 3).await;
    assert_eq!(
        done["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    let of_old = format!("{PODS}?labelSelector=pod-template-hash%3D{hash}");
    eventually(&api, &of_old, |_, list| list["items"] == json!([])).await;
    let (_, sets) = api.get(REPLICA_SETS).await;
    assert_eq!(
        sets["items"].as_array().unwrap().len(),
        2,
        "the old one stays for a rollback"
    );

    let scale = json!({"spec": {"replicas": 5}});
    assert_eq!(
        api.patch("merge", &format!("{path}/scale"), scale).await.0,
        200
    );
    rolled_out(&api, 5).await;
    let (_, scale) = api.get(&format!("{path}/scale")).await;
    assert_eq!(scale["status"]["replicas"], 5);
    api.delete(&path, json!({"propagationPolicy": "Background"}))
        .await;
    eventually(&api, PODS, |_, list| list["items"] == json!([])).await;
    eventually(&api, REPLICA_SETS, |_, list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_does_not_come_up_leaves_enough_old_pods() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    api.make(DEPLOYMENTS, workload(4)).await;
    rolled_out(&api, 4).await;
    let path = format!("{DEPLOYMENTS}/web");
    api.patch(
        "merge",
        &path,
        json!({"spec": {"template": template("broken")}}),
    )
    .await;
    let is_halfway = |_, it: &Value| {
        it["status"]["updatedReplicas"] == 2 && it["status"]["availableReplicas"] == 3
    };
    eventually(&api, &path, is_halfway).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (_, still) = api.get(&path).await;
    assert_eq!(still["status"]["availableReplicas"], 3);
    // Undone as kubectl does it: by the template of the revision before.
    api.patch(
        "merge",
        &path,
        json!({"spec": {"template": template("i:1")}}),
    )
    .await;
    let done = rolled_out(&api, 4).await;
    assert_eq!(
        done["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "3"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_held_on_its_way_out_is_replaced() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    let mut set = workload(2);
    set["spec"]["template"]["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.make(REPLICA_SETS, set).await;
    let path = format!("{REPLICA_SETS}/web");
    eventually(&api, &path, |_, it| it["status"]["availableReplicas"] == 2).await;
    let victim = pods(&api).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    api.delete(&format!("{PODS}/{victim}"), Value::Null).await;
    eventually(&api, PODS, |_, list| {
        list["items"].as_array().is_some_and(|it| it.len() == 3)
    })
    .await;
    eventually(&api, &path, |_, it| it["status"]["availableReplicas"] == 2).await;
    let release = json!({"metadata": {"finalizers": null}});
    api.patch("merge", &format!("{PODS}/{victim}"), release)
        .await;
    gone(&api, &format!("{PODS}/{victim}")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(pods(&api).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_are_released_and_adopted_by_their_labels() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    api.make(REPLICA_SETS, workload(1)).await;
    eventually(&api, PODS, |_, list| {
        list["items"].as_array().is_some_and(|it| it.len() == 1)
    })
    .await;
    let name = pods(&api).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{PODS}/{name}");
    api.patch(
        "merge",
        &path,
        json!({"metadata": {"labels": {"app": "other"}}}),
    )
    .await;
    eventually(&api, &path, |_, it| {
        it["metadata"].get("ownerReferences").is_none()
    })
    .await;
    eventually(&api, PODS, |_, list| {
        list["items"].as_array().is_some_and(|it| it.len() == 2)
    })
    .await;
    let set = format!("{REPLICA_SETS}/web");
    api.patch("merge", &set, json!({"spec": {"replicas": 2}}))
        .await;
    api.patch(
        "merge",
        &path,
        json!({"metadata": {"labels": {"app": "web"}}}),
    )
    .await;
    let is_owned = |_, it: &Value| it["metadata"]["ownerReferences"][0]["name"] == "web";
    eventually(&api, &path, |code, it| code == 404 || is_owned(code, it)).await;
    eventually(&api, &set, |_, it| it["status"]["availableReplicas"] == 2).await;
}

/// The pods that an object controls, by their names.
fn controlled_by(owner: &Value, pods: &[Value]) -> Vec<String> {
    let is_owner = |reference: &Value| {
        reference["uid"] == owner["metadata"]["uid"] && reference["controller"] == true
    };
    let owned = pods.iter().filter(|pod| {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(is_owner)
    });
    let owned: Vec<Value> = owned.cloned().collect();
    names(&owned).into_iter().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_adopts_scales_releases_and_leaves_orphans() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    let orphan = json!({"metadata": {"name": "orphan", "labels": {"app": "web"}}, "spec": template("i:1")["spec"]});
    api.make(PODS, orphan).await;
    // Without a selector: that is the labels of its template.
    let two =
        json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "template": template("i:1")}});
    let two = api.make(CONTROLLERS, two).await;
    let path = format!("{CONTROLLERS}/web");
    let done = eventually(&api, &path, |_, it| it["status"]["availableReplicas"] == 2).await;
    let numbers = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "observedGeneration",
    ];
    let numbers = numbers.map(|name| &done["status"][name]);
    assert_eq!(json!(numbers), json!([2, 2, 2, 1]));
    let first = controlled_by(&two, &pods(&api).await);
    assert_eq!(first.len(), 2);
    assert!(first.iter().any(|name| name == "orphan"), "{first:?}");
    assert!(
        first.iter().any(|name| name.starts_with("web-")),
        "{first:?}"
    );

    let scale = json!({"spec": {"replicas": 3}});
    let (_, scaled) = api.patch("merge", &format!("{path}/scale"), scale).await;
    assert_eq!(scaled["status"]["selector"], "app=web");
    eventually(&api, &path, |_, it| it["status"]["availableReplicas"] == 3).await;

    let other = json!({"metadata": {"labels": {"app": "other"}}});
    api.patch("merge", &format!("{PODS}/orphan"), other).await;
    let is_free = |_, it: &Value| it["metadata"].get("ownerReferences").is_none();
    eventually(&api, &format!("{PODS}/orphan"), is_free).await;
    let n_owned = |list: &Value| controlled_by(&two, list["items"].as_array().unwrap()).len();
    let all_run = |list: &Value| {
        let mut pods = list["items"].as_array().into_iter().flatten();
        pods.all(|pod| pod["status"]["phase"] == "Running")
    };
    eventually(&api, PODS, |_, list| n_owned(list) == 3 && all_run(list)).await;
    eventually(&api, &path, |_, it| it["status"]["availableReplicas"] == 3).await;

    api.delete(&path, json!({"propagationPolicy": "Orphan"}))
        .await;
    gone(&api, &path).await;
    let left = pods(&api).await;
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(controlled_by(&two, &left).is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_says_why_it_has_no_pods() {
    let (_cluster, api, _guard) = controlled();
    let mut one = json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {
        "selector": {"app": "web"}, "template": template("i:1"),
    }});
    // Taken in a template, and refused in a pod.
    one["spec"]["template"]["metadata"]["labels"]["tier"] = json!("not a label");
    let path = format!("{CONTROLLERS}/web");
    api.make(CONTROLLERS, one).await;
    let failed = eventually(&api, &path, |_, it| {
        it["status"].get("conditions").is_some()
    })
    .await;
    let condition = &failed["status"]["conditions"][0];
    assert_eq!(condition["type"], "ReplicaFailure");
    assert_eq!(condition["reason"], "FailedCreate");
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedCreate";
    let list = eventually(&api, events, |_, list| list["items"] != json!([])).await;
    let event = &list["items"][0];
    assert_eq!(event["involvedObject"]["kind"], "ReplicationController");
    assert_eq!(event["reportingComponent"], "replication-controller");
}

#[tokio::test(start_paused = true)]
async fn a_service_follows_its_pods() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"name": "http", "port": 8080, "targetPort": "http"}],
    }});
    api.make(SERVICES, service).await;
    let of_service = format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3Dweb");
    let ready = |list: &Value| -> usize {
        let slices = list["items"].as_array().into_iter().flatten();
        let endpoints = slices.flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
        endpoints
            .filter(|it| it["conditions"]["ready"] == true)
            .count()
    };
    eventually(&api, &of_service, |_, list| {
        list["items"].as_array().is_some_and(|it| it.len() == 1)
    })
    .await;
    api.make(DEPLOYMENTS, workload(3)).await;
    let list = eventually(&api, &of_service, |_, list| ready(list) == 3).await;
    assert_eq!(
        list["items"][0]["ports"],
        json!([{"name": "http", "port": 80, "protocol": "TCP"}])
    );
    assert_eq!(list["items"][0]["addressType"], "IPv4");
    let victim = pods(&api).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    api.patch("merge", &format!("{PODS}/{victim}"), hold).await;
    api.delete(&format!("{PODS}/{victim}"), Value::Null).await;
    let is_leaving = |_, list: &Value| {
        let slices = list["items"].as_array().into_iter().flatten();
        let mut endpoints = slices.flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
        endpoints.any(|it| {
            it["targetRef"]["name"] == victim
                && it["conditions"] == json!({"ready": false, "serving": true, "terminating": true})
        })
    };
    eventually(&api, &of_service, is_leaving).await;
    eventually(&api, &of_service, |_, list| ready(list) == 3).await;
    api.delete(&format!("{SERVICES}/web"), Value::Null).await;
    eventually(&api, &of_service, |_, list| list["items"] == json!([])).await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_keeps_names_and_claims() {
    let (_cluster, api, _guard) = controlled();
    let _node = play_node(&api).await;
    let mut set = workload(3);
    set["spec"]["serviceName"] = json!("web");
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}]);
    api.make(STATEFUL_SETS, set).await;
    let path = format!("{STATEFUL_SETS}/web");
    let is_updated = |_, it: &Value| {
        let status = &it["status"];
        status["observedGeneration"] == it["metadata"]["generation"]
            && status["updatedReplicas"] == it["spec"]["replicas"]
            && status["availableReplicas"] == it["spec"]["replicas"]
            && status["currentRevision"] == status["updateRevision"]
    };
    let first = eventually(&api, &path, is_updated).await;
    assert_eq!(names(&pods(&api).await), ["web-0", "web-1", "web-2"]);
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let (_, list) = api.get(claims).await;
    assert_eq!(
        names(list["items"].as_array().unwrap()),
        ["data-web-0", "data-web-1", "data-web-2"]
    );
    let (_, pod) = api.get(&format!("{PODS}/web-1")).await;
    assert_eq!(pod["spec"]["hostname"], "web-1");
    assert_eq!(
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"],
        "1"
    );

    api.patch(
        "merge",
        &path,
        json!({"spec": {"template": template("i:2")}}),
    )
    .await;
    let second = eventually(&api, &path, is_updated).await;
    assert_ne!(
        first["status"]["updateRevision"],
        second["status"]["updateRevision"]
    );
    let images: Vec<Value> = pods(&api)
        .await
        .iter()
        .map(|it| it["spec"]["containers"][0]["image"].clone())
        .collect();
    assert_eq!(images, ["i:2", "i:2", "i:2"]);
    api.patch("merge", &path, json!({"spec": {"replicas": 1}}))
        .await;
    eventually(&api, PODS, |_, list| {
        names(list["items"].as_array().unwrap()) == ["web-0"]
    })
    .await;
    assert_eq!(
        api.get(claims).await.1["items"].as_array().unwrap().len(),
        3,
        "claims outlive pods"
    );
}
