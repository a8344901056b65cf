//! A cluster in a directory: what clients find after a restart.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use longshore_cluster::{Cluster, Durability, OpenError};
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, config_map, events_after, revision};

#[tokio::test]
async fn a_restart_keeps_uids_and_revisions() {
    let directory = tempfile::tempdir().unwrap();
    let mut before = Value::Null;
    for life in 0..3 {
        let cluster = Cluster::open(directory.path()).unwrap();
        let api = Api::new(&cluster);
        if life > 0 {
            let (_, after) = api.get(CONFIG_MAPS).await;
            assert_eq!(after["items"], before["items"]);
        }
        let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(cluster.client());
        let name = format!("m-{life}");
        let map = serde_json::from_value(config_map(&name, "1")).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        let patch = Patch::Merge(json!({"data": {"k": "2"}}));
        maps.patch(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        api.make(CONFIG_MAPS, config_map("passing", "x")).await;
        maps.delete("passing", &DeleteParams::default())
            .await
            .unwrap();
        before = api.get(CONFIG_MAPS).await.1;
        cluster.close();
    }
    assert_eq!(before["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_watch_resumes_across_a_restart_inside_the_window() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        Cluster::builder()
            .watch_window(6)
            .open(directory.path())
            .unwrap()
    };
    let cluster = open();
    let api = Api::new(&cluster);
    let created = api.make(CONFIG_MAPS, config_map("old", "0")).await;
    for n in 0..4 {
        api.patch(
            "merge",
            &format!("{CONFIG_MAPS}/old"),
            json!({"data": {"k": n.to_string()}, "metadata": {"labels": {"n": n.to_string()}}}),
        )
        .await;
    }
    api.make(CONFIG_MAPS, config_map("new", "0")).await;
    api.delete(&format!("{CONFIG_MAPS}/old"), Value::Null).await;
    let (first, query) = (revision(&created), format!("{CONFIG_MAPS}?watch=true"));
    let before = events_after(&api, &query, first, 6).await;
    let selected = format!("{query}&labelSelector=n%3D1");
    let selected_before = events_after(&api, &selected, first, 2).await;
    let kinds: Vec<&Value> = selected_before.iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
    cluster.close();

    let cluster = open();
    let api = Api::new(&cluster);
    assert_eq!(events_after(&api, &query, first, 6).await, before);
    assert_eq!(
        events_after(&api, &selected, first, 2).await,
        selected_before
    );
    let too_old = events_after(&api, &query, first - 1, 1).await;
    assert_eq!(too_old[0]["object"]["code"], 410);
    // The events of this life follow those of the last one.
    let made = api.make(CONFIG_MAPS, config_map("newer", "0")).await;
    let after = events_after(&api, &query, first + 1, 6).await;
    assert_eq!(after[..5], before[1..]);
    assert_eq!(
        after[5]["object"]["metadata"]["uid"],
        made["metadata"]["uid"]
    );
    let (_, list) = api
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={}",
            first + 1
        ))
        .await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_of_one_object_queue_up() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path()).unwrap();
    let api = Api::new(&cluster);
    api.make(CONFIG_MAPS, config_map("hot", "0")).await;
    let writers = (0..4).map(|writer| {
        let api = api.clone();
        tokio::spawn(async move {
            let mut n_written = 0;
            for n in 0..20 {
                let patch = json!({"data": {format!("w{writer}"): n.to_string()}});
                let path = format!("{CONFIG_MAPS}/hot");
                let (code, answer) = api.patch("merge", &path, patch).await;
                assert!(code == 200 || code == 409, "{answer}");
                n_written += u64::from(code == 200);
            }
            n_written
        })
    });
    let n_written: u64 = futures::future::try_join_all(writers)
        .await
        .unwrap()
        .into_iter()
        .sum();
    let first = revision(&api.get("/api/v1/namespaces/kube-system").await.1);
    let query = format!("{CONFIG_MAPS}?watch=true");
    let events = events_after(&api, &query, first, n_written as usize + 1).await;
    let revisions: Vec<u64> = events.iter().map(|it| revision(&it["object"])).collect();
    let expected: Vec<u64> = (first + 1..=first + 1 + n_written).collect();
    assert_eq!(revisions, expected);
    cluster.close();
}

#[tokio::test]
async fn a_relaxed_cluster_stores_everything_when_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::builder()
        .durability(Durability::Relaxed)
        .open(directory.path())
        .unwrap();
    let api = Api::new(&cluster);
    for n in 0..200 {
        api.make(CONFIG_MAPS, config_map(&format!("m-{n}"), "1"))
            .await;
    }
    let (_, before) = api.get(CONFIG_MAPS).await;
    cluster.close();
    let (code, refused) = api.post(CONFIG_MAPS, config_map("late", "1")).await;
    assert_eq!(code, 500);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("shutting down")
    );

    let cluster = Cluster::open(directory.path()).unwrap();
    let (_, after) = Api::new(&cluster).get(CONFIG_MAPS).await;
    assert_eq!(after, before);
}

#[tokio::test]
async fn compaction_on_a_durable_cluster_ends_watches() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path()).unwrap();
    let api = Api::new(&cluster);
    let made = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    cluster.expire_watches();
    cluster.expire_watches();
    let query = format!("{CONFIG_MAPS}?watch=true");
    let events = events_after(&api, &query, revision(&made), 1).await;
    assert_eq!(events[0]["object"]["code"], 410);
    let next = api.make(CONFIG_MAPS, config_map("b", "1")).await;
    assert_eq!(revision(&next), revision(&made) + 3);
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(directory.path()).unwrap();
    let error = Cluster::open(directory.path()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    cluster.close();
    Cluster::open(directory.path()).unwrap();
}

/// The pods of an earlier cluster are found as they were, by clients that list, watch and select.
#[tokio::test]
async fn pods_that_are_put_back_have_their_uid_and_their_status() {
    let cluster = Cluster::in_memory();
    let pod = |name: &str, phase: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"a": "b"}},
            "spec": {"nodeName": "local", "containers": [{"name": "base"}]},
            "status": {"phase": phase},
        })
    };
    cluster.put_back_pods([pod("one", "Succeeded"), pod("two", "Succeeded")]);
    // A name that is taken stays as it is.
    cluster.put_back_pods([pod("one", "Failed")]);
    let api = Api::new(&cluster);
    let selected = "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3Dlocal";
    let (_, list) = api.get(selected).await;
    let found = list["items"].as_array().unwrap().iter();
    let found: Vec<_> = found
        .map(|it| (&it["metadata"]["uid"], &it["status"]["phase"]))
        .collect();
    let succeeded = json!("Succeeded");
    assert_eq!(
        found,
        [
            (&json!("uid-one"), &succeeded),
            (&json!("uid-two"), &succeeded)
        ]
    );
}
