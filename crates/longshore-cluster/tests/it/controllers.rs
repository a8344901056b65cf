//! Garbage collection, namespace deletion and binding, run as clients of the cluster.

use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, PODS, config_map, controlled, eventually, gone, pod};

fn owned(name: &str, owners: &[(&Value, bool)]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|(owner, is_blocking)| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": is_blocking,
            })
        })
        .collect();
    let mut object = config_map(name, "1");
    object["metadata"]["ownerReferences"] = references.into();
    object
}

fn path(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

#[tokio::test(start_paused = true)]
async fn what_nobody_owns_any_more_is_deleted() {
    let (_cluster, api, _guard) = controlled();
    let owner = api.make(CONFIG_MAPS, config_map("owner", "1")).await;
    let child = api
        .make(CONFIG_MAPS, owned("child", &[(&owner, false)]))
        .await;
    api.make(CONFIG_MAPS, owned("grandchild", &[(&child, false)]))
        .await;
    let other = api.make(CONFIG_MAPS, config_map("other", "1")).await;
    api.make(
        CONFIG_MAPS,
        owned("shared", &[(&owner, false), (&other, false)]),
    )
    .await;
    api.delete(&path("owner"), Value::Null).await;
    gone(&api, &path("child")).await;
    gone(&api, &path("grandchild")).await;
    let n_owners = |object: &Value| {
        object["metadata"]["ownerReferences"]
            .as_array()
            .map_or(0, Vec::len)
    };
    eventually(&api, &path("shared"), |_, object| n_owners(object) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_was_or_was_another_does_not_count() {
    let (_cluster, api, _guard) = controlled();
    let mut owner = api.make(CONFIG_MAPS, config_map("owner", "1")).await;
    api.make(CONFIG_MAPS, owned("right", &[(&owner, false)]))
        .await;
    owner["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
    api.make(CONFIG_MAPS, owned("wrong", &[(&owner, false)]))
        .await;
    gone(&api, &path("wrong")).await;
    assert_eq!(api.get(&path("right")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn owners_in_another_namespace_do_not_count_and_are_reported() {
    let (_cluster, api, _guard) = controlled();
    let elsewhere = "/api/v1/namespaces/kube-public/configmaps";
    let owner = api.make(elsewhere, config_map("owner", "1")).await;
    api.make(CONFIG_MAPS, owned("child", &[(&owner, false)]))
        .await;
    gone(&api, &path("child")).await;
    let events =
        "/api/v1/namespaces/default/events?fieldSelector=reason%3DOwnerRefInvalidNamespace";
    eventually(&api, events, |_, list| {
        list["items"].as_array().is_some_and(|it| it.len() == 1)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_waits_for_blocking_dependents() {
    let (_cluster, api, _guard) = controlled();
    let owner = api.make(CONFIG_MAPS, config_map("owner", "1")).await;
    let mut child = owned("child", &[(&owner, true)]);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.make(CONFIG_MAPS, child).await;
    assert_eq!(
        api.delete(&path("owner"), json!({"propagationPolicy": "Foreground"}))
            .await
            .0,
        200
    );
    let is_marked = |_, object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    eventually(&api, &path("child"), is_marked).await;
    assert_eq!(api.get(&path("owner")).await.0, 200);
    api.patch(
        "merge",
        &path("child"),
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    gone(&api, &path("owner")).await;
}

#[tokio::test(start_paused = true)]
async fn owners_that_own_each_other_do_not_wait_for_ever() {
    let (_cluster, api, _guard) = controlled();
    let a = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let b = api.make(CONFIG_MAPS, owned("b", &[(&a, true)])).await;
    let references = owned("a", &[(&b, true)])["metadata"]["ownerReferences"].clone();
    api.patch(
        "merge",
        &path("a"),
        json!({"metadata": {"ownerReferences": references}}),
    )
    .await;
    api.delete(&path("a"), json!({"propagationPolicy": "Foreground"}))
        .await;
    gone(&api, &path("a")).await;
    gone(&api, &path("b")).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_without_their_owner() {
    let (_cluster, api, _guard) = controlled();
    let owner = api.make(CONFIG_MAPS, config_map("owner", "1")).await;
    api.make(CONFIG_MAPS, owned("child", &[(&owner, true)]))
        .await;
    // The collector must have seen the child: orphaning knows only what the watches have shown.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    api.delete(&path("owner"), json!({"propagationPolicy": "Orphan"}))
        .await;
    gone(&api, &path("owner")).await;
    let (code, child) = api.get(&path("child")).await;
    assert_eq!(
        (code, child["metadata"].get("ownerReferences")),
        (200, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_is_emptied_pods_first() {
    let (_cluster, api, _guard) = controlled();
    let namespace = "/api/v1/namespaces/x";
    let made = api
        .make("/api/v1/namespaces", json!({"metadata": {"name": "x"}}))
        .await;
    assert_eq!(
        made["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "x"
    );
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.make(&format!("{namespace}/pods"), held).await;
    api.make(&format!("{namespace}/configmaps"), config_map("a", "1"))
        .await;
    let (code, marked) = api.delete(namespace, Value::Null).await;
    assert_eq!(
        (code, &marked["status"]["phase"]),
        (200, &json!("Terminating"))
    );

    let (code, status) = api
        .post(&format!("{namespace}/configmaps"), config_map("b", "1"))
        .await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
    let reports_finalizers = |_, namespace: &Value| {
        let conditions = namespace["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|it| it["type"] == "NamespaceFinalizersRemaining" && it["status"] == "True")
    };
    eventually(&api, namespace, reports_finalizers).await;
    assert_eq!(
        api.get(&format!("{namespace}/configmaps/a")).await.0,
        200,
        "pods go first"
    );
    api.patch(
        "merge",
        &format!("{namespace}/pods/held"),
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    gone(&api, namespace).await;
    assert_eq!(api.get("/api/v1/configmaps").await.1["items"], json!([]));
}

async fn make_node(api: &Api, name: &str, n_pods: u32) {
    api.make(
        "/api/v1/nodes",
        json!({"metadata": {"name": name}, "status": {
        "allocatable": {"pods": n_pods.to_string(), "cpu": "4"},
        "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_as_nodes_have_room() {
    let (_cluster, api, _guard) = controlled();
    make_node(&api, "n1", 2).await;
    for name in ["a", "b", "c"] {
        api.make(PODS, pod(name)).await;
    }
    let is_bound = |_, pod: &Value| pod["spec"]["nodeName"] == "n1";
    let left = loop {
        let (_, list) = api
            .get(&format!("{PODS}?fieldSelector=spec.nodeName%3D"))
            .await;
        let items = list["items"].as_array().unwrap().clone();
        if let [only] = items.as_slice() {
            break only["metadata"]["name"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let path = format!("{PODS}/{left}");
    let waiting = eventually(&api, &path, |_, pod| {
        pod["status"]["conditions"][0]["reason"] == "Unschedulable"
    })
    .await;
    assert_eq!(
        waiting["status"]["conditions"][0]["message"],
        "0/1 nodes are available: 1 Too many pods."
    );
    let events = "/api/v1/events?fieldSelector=reason%3DFailedScheduling";
    eventually(&api, events, |_, list| {
        list["items"].as_array().is_some_and(|it| it.len() == 1)
    })
    .await;
    let (_, events) = api.get("/api/v1/events").await;
    let n_events = events["items"].as_array().unwrap().len();
    assert_eq!(n_events, 1, "a pod that gets a node costs none: {events}");

    let bound = ["a", "b", "c"]
        .into_iter()
        .find(|name| **name != *left)
        .unwrap();
    api.patch(
        "merge",
        &format!("{PODS}/{bound}/status"),
        json!({"status": {"phase": "Succeeded"}}),
    )
    .await;
    eventually(&api, &path, is_bound).await;
}

/// On the network of the host, the ports of a container are the node's.
#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_a_port_of_the_node_that_another_pod_has() {
    let (_cluster, api, _guard) = controlled();
    make_node(&api, "n1", 9).await;
    let mut holder = pod("holder");
    holder["spec"]["hostNetwork"] = true.into();
    holder["spec"]["initContainers"] = json!([{
        "name": "sidecar", "image": "i", "restartPolicy": "Always",
        "ports": [{"containerPort": 80, "hostPort": 0}],
    }]);
    api.make(PODS, holder).await;
    let is_bound = |_, pod: &Value| pod["spec"]["nodeName"] == "n1";
    eventually(&api, &format!("{PODS}/holder"), is_bound).await;
    let mut waiting = pod("waiting");
    waiting["spec"]["containers"][0]["ports"] = json!([
        {"containerPort": 8080, "hostPort": 80, "hostIP": "127.0.0.1"},
    ]);
    api.make(PODS, waiting).await;
    let path = format!("{PODS}/waiting");
    let refused = eventually(&api, &path, |_, pod| {
        pod["status"]["conditions"][0]["reason"] == "Unschedulable"
    })
    .await;
    let why =
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(refused["status"]["conditions"][0]["message"], why);
    assert_eq!(refused["status"]["phase"], "Pending");
    let events = "/api/v1/events?fieldSelector=reason%3DFailedScheduling";
    eventually(&api, events, |_, list| list["items"][0]["message"] == why).await;
    let ended = json!({"status": {"phase": "Succeeded"}});
    api.patch("merge", &format!("{PODS}/holder/status"), ended)
        .await;
    eventually(&api, &path, is_bound).await;
}

#[tokio::test(start_paused = true)]
async fn more_important_and_older_pods_get_their_node_first() {
    let now = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(1_000_000));
    let clock = now.clone();
    let tick = move || {
        let seconds = clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        jiff::Timestamp::from_second(seconds).unwrap()
    };
    let cluster = longshore_cluster::Cluster::builder()
        .clock(std::sync::Arc::new(tick))
        .build();
    let api = Api::new(&cluster);
    for (name, priority) in [("z-first", 0), ("a-second", 0), ("m-important", 10)] {
        let mut pod = pod(name);
        pod["spec"]["priority"] = priority.into();
        api.make(PODS, pod).await;
    }
    make_node(&api, "n1", 1).await;
    let shutdown = tokio_util::sync::CancellationToken::new();
    tokio::spawn(longshore_cluster::controllers::run(
        cluster.client(),
        shutdown.clone(),
    ));
    let _guard = shutdown.drop_guard();
    for name in ["m-important", "z-first", "a-second"] {
        let path = format!("{PODS}/{name}");
        eventually(&api, &path, |_, pod| pod["spec"]["nodeName"] == "n1").await;
        let (_, list) = api
            .get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn1"))
            .await;
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
        api.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn gated_pods_and_those_of_other_schedulers_are_left_alone() {
    let (_cluster, api, _guard) = controlled();
    make_node(&api, "n1", 10).await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    let made = api.make(PODS, gated).await;
    assert_eq!(made["status"]["conditions"][0]["reason"], "SchedulingGated");
    let mut foreign = pod("foreign");
    foreign["spec"]["schedulerName"] = "other".into();
    api.make(PODS, foreign).await;
    api.make(PODS, pod("plain")).await;
    let is_bound = |_, pod: &Value| pod["spec"]["nodeName"] == "n1";
    eventually(&api, &format!("{PODS}/plain"), is_bound).await;
    let (_, list) = api
        .get(&format!("{PODS}?fieldSelector=spec.nodeName%3D"))
        .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    api.patch(
        "json",
        &format!("{PODS}/gated"),
        json!([{"op": "remove", "path": "/spec/schedulingGates"}]),
    )
    .await;
    eventually(&api, &format!("{PODS}/gated"), is_bound).await;
}

#[tokio::test(start_paused = true)]
async fn each_pod_of_a_replica_set_has_an_event_of_its_own() {
    let (_cluster, api, _guard) = controlled();
    let labels = json!({"app": "web"});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("any")["spec"]},
        },
    });
    api.make("/apis/apps/v1/namespaces/default/replicasets", set)
        .await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DSuccessfulCreate";
    let list = eventually(&api, events, |_, list| {
        list["items"]
            .as_array()
            .is_some_and(|items| items.len() == 3)
    })
    .await;
    let (_, pods) = api.get(PODS).await;
    let names = |list: &Value, of: &dyn Fn(&Value) -> String| {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> = items.iter().map(of).collect();
        names.sort();
        names
    };
    let created = |pod: &Value| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        format!("Created pod: {name}")
    };
    let told = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(names(&list, &told), names(&pods, &created));
}
