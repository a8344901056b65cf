//! Addresses of Services: who gets which, for how long, and what a cluster says of its own API server.

use std::collections::BTreeSet;

use longshore_cluster::{Cluster, ServeConfig};
use serde_json::{Value, json};

use crate::harness::{Api, eventually};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const KUBERNETES: &str = "/api/v1/namespaces/default/services/kubernetes";

fn service(name: &str, change: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    json_patch::merge(&mut service["spec"], &change);
    service
}

fn small() -> Cluster {
    let range = "10.7.0.0/28".parse().unwrap();
    Cluster::builder().service_range(range).build()
}

#[tokio::test(flavor = "multi_thread")]
async fn services_at_the_same_time_get_different_addresses_until_none_is_left() {
    let api = Api::new(&small());
    // Two of the range are the network's and the last one, and one is that of the API server.
    let made = (0..13).map(|it| {
        let api = api.clone();
        tokio::spawn(async move {
            let service = service(&format!("s{it}"), json!({"type": "NodePort"}));
            api.make(SERVICES, service).await
        })
    });
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for made in futures::future::join_all(made).await {
        let made = made.unwrap();
        addresses.insert(made["spec"]["clusterIP"].as_str().unwrap().to_owned());
        ports.insert(made["spec"]["ports"][0]["nodePort"].as_i64().unwrap());
    }
    assert_eq!((addresses.len(), ports.len()), (13, 13));
    assert!(!addresses.contains("10.7.0.1"));
    let (code, status) = api.post(SERVICES, service("more", json!({}))).await;
    let message = "Internal error occurred: failed to allocate a serviceIP: range is full";
    assert_eq!((code, &status["message"]), (500, &json!(message)));
    api.delete(&format!("{SERVICES}/s3"), Value::Null).await;
    api.make(SERVICES, service("more", json!({}))).await;
}

#[tokio::test]
async fn an_address_belongs_to_one_service_and_comes_back_with_it() {
    let api = Api::new(&small());
    let asked = |name: &str| service(name, json!({"clusterIP": "10.7.0.9"}));
    let imagined = api
        .post(&format!("{SERVICES}?dryRun=All"), asked("a"))
        .await;
    assert_eq!(imagined.1["spec"]["clusterIPs"], json!(["10.7.0.9"]));
    api.make(SERVICES, asked("a")).await;
    let (code, status) = api.post(SERVICES, asked("b")).await;
    let why = "Invalid value: [\"10.7.0.9\"]: failed to allocate IP 10.7.0.9: provided IP is already allocated";
    assert_eq!(
        (code, &status["details"]["causes"][0]["message"]),
        (422, &json!(why))
    );
    // An update without it keeps it, and a name has none.
    let path = format!("{SERVICES}/a");
    let (code, kept) = api.put(&path, service("a", json!({}))).await;
    assert_eq!(
        (code, &kept["spec"]["clusterIP"]),
        (200, &json!("10.7.0.9"))
    );
    let name = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let (code, renamed) = api.patch("merge", &path, name).await;
    assert_eq!((code, &renamed["spec"]["clusterIP"]), (200, &Value::Null));
    api.make(SERVICES, asked("b")).await;
    let back =
        json!({"spec": {"type": "ClusterIP", "externalName": null, "clusterIP": "10.7.0.9"}});
    assert_eq!(api.patch("merge", &path, back).await.0, 422);
}

#[tokio::test]
async fn a_restart_keeps_who_has_which_address() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("cluster");
    let before = Cluster::open(&place).unwrap();
    let asked = |name: &str| service(name, json!({"clusterIP": "10.96.0.9"}));
    let made = Api::new(&before).make(SERVICES, asked("a")).await;
    before.close();
    drop(before);
    let after = Cluster::open(&place).unwrap();
    let api = Api::new(&after);
    let (_, found) = api.get(&format!("{SERVICES}/a")).await;
    assert_eq!(found, made);
    assert_eq!(api.post(SERVICES, asked("b")).await.0, 422);
    api.delete(&format!("{SERVICES}/a"), Value::Null).await;
    api.make(SERVICES, asked("b")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_served_cluster_says_where_its_api_server_is() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::in_memory();
    let api = Api::new(&cluster);
    assert_eq!(api.get(KUBERNETES).await.0, 404, "nobody listens yet");
    let serving = cluster.serve(ServeConfig::new(directory.path())).unwrap();
    let port = serving.address().port();
    let (_, found) = api.get(KUBERNETES).await;
    assert_eq!(found["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(found["spec"]["ports"][0]["targetPort"], port);
    let (_, endpoints) = api
        .get("/api/v1/namespaces/default/endpoints/kubernetes")
        .await;
    let subset = &endpoints["subsets"][0];
    assert_eq!(
        (&subset["addresses"][0]["ip"], &subset["ports"][0]["port"]),
        (&json!("127.0.0.1"), &json!(port))
    );
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slices = format!("{slices}?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes");
    let (_, list) = api.get(&slices).await;
    assert_eq!(
        list["items"][0]["endpoints"][0]["addresses"],
        json!(["127.0.0.1"])
    );
    assert_eq!(list["items"][0]["ports"][0]["port"], port);
    // A client that deletes it changes nothing about that.
    api.delete(KUBERNETES, Value::Null).await;
    let again = eventually(&api, KUBERNETES, |code, _| code == 200).await;
    assert_ne!(again["metadata"]["uid"], found["metadata"]["uid"]);
    assert_eq!(again["spec"], found["spec"]);
}

#[tokio::test]
async fn names_and_addresses_that_are_lines_of_a_file_of_hosts_are_refused() {
    let api = Api::new(&small());
    let name = "q\n6.6.6.6\tpayments.default.svc";
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "hostname": name});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    let deployment = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let endpoint =
        |it: Value| json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": [it]});
    let named = endpoint(json!({"addresses": ["10.244.9.9"], "hostname": name}));
    let unreachable = endpoint(json!({"addresses": ["169.254.169.254"]}));
    let subset = json!({"addresses": [{"ip": "10.244.9.9", "hostname": name}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let core = "/api/v1/namespaces/default";
    for (path, object, field) in [
        (
            format!("{core}/pods"),
            json!({"metadata": {"name": "x"}, "spec": spec}),
            "spec.hostname",
        ),
        (
            deployments.to_owned(),
            json!({"metadata": {"name": "x"}, "spec": deployment}),
            "spec.template.spec.hostname",
        ),
        (slices.to_owned(), named, "endpoints[0].hostname"),
        (slices.to_owned(), unreachable, "endpoints[0].addresses[0]"),
        (
            format!("{core}/endpoints"),
            json!({"metadata": {"name": "x"}, "subsets": [subset]}),
            "subsets[0].addresses[0].hostname",
        ),
    ] {
        let (code, status) = api.post(&path, object).await;
        assert_eq!(code, 422, "{status}");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    }
    // Pods without a network of their own have such an address.
    let local = endpoint(json!({"addresses": ["127.1.2.3"], "hostname": "db-0"}));
    api.make(slices, local).await;
}
