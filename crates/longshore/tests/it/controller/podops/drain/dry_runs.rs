//! Dry runs of everything that drains a node.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{super::http, Scene, clients::eviction};

/// In this time nothing changes by itself.
const QUIET: Duration = Duration::from_secs(1);

/// Asks for evictions and deletes of all pods, and for drains of both nodes, always as a dry run: pods, budgets, rules
/// and nodes are the same afterwards. How many requests that were; a run of kubectl counts as one.
pub(super) async fn change_nothing(scene: &Scene<'_>) -> usize {
    let before = quiet(scene).await;
    let mut n_asked = 0;
    let place = &scene.place;
    for pod in place.pods().await {
        let name = &pod.target.name;
        let path = place.core(&format!("pods/{name}"));
        let plain = eviction(&place.namespace, name);
        let mut dry = plain.clone();
        dry["deleteOptions"] = json!({"dryRun": ["All"]});
        // No pod of these workloads is away: each of them alone may be evicted. A delete of one that takes part is refused.
        let evicting = format!("{path}/eviction");
        for (path, eviction) in [
            (evicting.clone(), &dry),
            (format!("{evicting}?dryRun=All"), &plain),
        ] {
            let answer = http::create(&scene.client, &path, eviction).await;
            assert!(answer.is_ok(), "{path}: {answer:?}");
        }
        let answer = http::delete(&scene.client, &path, json!({"dryRun": ["All"]})).await;
        assert_eq!(answer.is_err(), pod.is_controlled(), "{path}: {answer:?}");
        n_asked += 3;
    }
    if let Some(kubectl) = &scene.kubectl {
        for node in place.world.kubelet.nodes() {
            let run = kubectl
                .drain(node, &["--dry-run=server", "--timeout=60s"])
                .await;
            let text = String::from_utf8_lossy(&run.stderr);
            assert!(
                run.status.success(),
                "kubectl drain --dry-run {node}: {text}"
            );
            n_asked += 1;
        }
    }
    assert_eq!(quiet(scene).await, before, "dry runs changed something");
    n_asked
}

/// The versions of all objects, once they stay the same for a while.
async fn quiet(scene: &Scene<'_>) -> BTreeMap<String, String> {
    let mut last = versions(scene).await;
    loop {
        tokio::time::sleep(QUIET).await;
        let now = versions(scene).await;
        if now == last {
            return now;
        }
        last = now;
    }
}

async fn versions(scene: &Scene<'_>) -> BTreeMap<String, String> {
    let place = &scene.place;
    let mut versions = BTreeMap::new();
    for path in [place.core("pods"), place.rules(""), scene.budgets()] {
        let list = http::get(place.client(), &path).await.unwrap();
        for object in list["items"].as_array().unwrap() {
            let metadata = &object["metadata"];
            let key = format!("{path}/{}", metadata["name"]);
            versions.insert(key, metadata["resourceVersion"].to_string());
        }
    }
    for node in place.world.kubelet.nodes() {
        // Nodes say again and again that they live.
        let node = http::get(place.client(), &format!("/api/v1/nodes/{node}"))
            .await
            .unwrap();
        let spec: &Value = &node["spec"];
        versions.insert(node["metadata"]["name"].to_string(), spec.to_string());
    }
    versions
}
