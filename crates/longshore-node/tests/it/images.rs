//! Images that have no entry in the image map.

use std::time::Duration;

use k8s_openapi::api::{core::v1::Node, events::v1::Event};
use kube::{Api, api::ListParams};
use longshore_api::node::{ANNOTATION_NODE_IMAGES, REASON_IMAGE_NOT_MAPPED};
use longshore_node::{ImageMap, NodeImages, PodsLifetime, UnmappedImages};
use serde_json::json;

use crate::node_rig::{PATIENCE, Rig, script};

/// The pods about which a node has said that their image is not mapped, once there are this many.
async fn told(rig: &Rig, n: usize) -> Vec<String> {
    let api = Api::<Event>::default_namespaced(rig.client.clone());
    let read = async {
        loop {
            let events = api
                .list(&ListParams::default())
                .await
                .expect("a list")
                .items;
            let told = events
                .into_iter()
                .filter(|event| event.reason.as_deref() == Some(REASON_IMAGE_NOT_MAPPED));
            let pods: Vec<String> = told.filter_map(|event| event.regarding?.name).collect();
            if pods.len() >= n {
                return pods;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("Events")
}

#[tokio::test]
async fn an_image_without_an_entry_is_told_once() {
    let rig = Rig::new();
    let node = rig.start().await;
    for (name, image) in [("a", "same:1"), ("b", "same:1"), ("c", "other:1")] {
        let mut spec = script("true");
        spec["containers"][0]["image"] = json!(image);
        rig.run(name, spec).await;
        rig.until_phase(name, "Succeeded").await;
    }
    let mut told = told(&rig, 2).await;
    told.sort();
    assert_eq!(told, ["a", "c"]);
    node.stop().await;
}

#[tokio::test]
async fn a_strict_node_refuses_an_image_without_an_entry_and_publishes_its_entries() {
    let rig = Rig::new();
    let map = rig.path().join("images.yaml");
    std::fs::write(&map, "'mapped:*': {}\n").expect("a map");
    let mut config = rig.config(PodsLifetime::DieWithNode);
    config.images = ImageMap::load(&map).expect("a map");
    config.unmapped_images = UnmappedImages::Refuse;
    let node = rig.start_with(config).await;
    let mut spec = script("true");
    spec["containers"][0]["image"] = json!("other:1");
    rig.run("refused", spec).await;
    let status = rig
        .until("refused", "refused", |status| {
            status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
        })
        .await;
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    let message = waiting["message"].as_str().expect("a message");
    assert!(message.contains("add \"other:1\":"), "{message}");
    let mut spec = script("true");
    spec["containers"][0]["image"] = json!("mapped:1");
    rig.run("mapped", spec).await;
    rig.until_phase("mapped", "Succeeded").await;

    let nodes = Api::<Node>::all(rig.client.clone());
    let annotations = nodes
        .get("node-0")
        .await
        .expect("a Node")
        .metadata
        .annotations;
    let published = annotations.expect("annotations");
    let published: NodeImages =
        serde_json::from_str(&published[ANNOTATION_NODE_IMAGES]).expect("what the node has");
    assert_eq!(published.unmapped, UnmappedImages::Refuse);
    assert_eq!(published.entry_of("mapped:1"), Some("mapped:*"));
    node.stop().await;
}
