//! The node's own objects: a Node that is Ready, and a Lease that shows that it still is.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use longshore_api::node::{
    ANNOTATION_NODE_IMAGES, LABEL_NODE_KIND, LABEL_NODE_PROFILE, NODE_KIND_PROCESS,
};
use longshore_k8s::Backoff;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{clock, config::NodeConfig, images::NodeImages, profile::Profile};

/// Where Kubernetes keeps the leases of nodes.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How often the lease is renewed, as a kubelet does it.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// After this time without a renewal, others may call the node lost.
const LEASE_SECONDS: i32 = 40;
/// How often the Node's heartbeat is written, as a kubelet does it for an unchanged status.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(300);

/// Registers the node, tries until it is done, and keeps lease and heartbeat fresh until `shutdown`.
///
/// Every write is repeated as it is until it is taken; nothing depends on an answer that got lost.
pub(crate) async fn keep(
    client: Client,
    config: NodeConfig,
    profile: Profile,
    ip: String,
    shutdown: CancellationToken,
) {
    let mut renew = tokio::time::interval(RENEW_INTERVAL);
    let n_renewals = HEARTBEAT_INTERVAL.as_secs() / RENEW_INTERVAL.as_secs();
    let mut n_since_heartbeat = n_renewals;
    let work = async {
        loop {
            renew.tick().await;
            if n_since_heartbeat >= n_renewals {
                until_done("Node", || write_node(&client, &config, profile, &ip)).await;
                n_since_heartbeat = 0;
            }
            n_since_heartbeat += 1;
            until_done("Lease", || renew_lease(&client, &config.name)).await;
        }
    };
    shutdown.run_until_cancelled(work).await;
}

async fn until_done<F: Future<Output = Result<(), kube::Error>>>(
    what: &str,
    write: impl Fn() -> F,
) {
    let mut n_failures = 0;
    while let Err(error) = write().await {
        n_failures += 1;
        tracing::warn!(%error, what, "node not registered, trying again");
        tokio::time::sleep(Backoff::RETRY.wait(n_failures)).await;
    }
}

async fn write_node(
    client: &Client,
    config: &NodeConfig,
    profile: Profile,
    ip: &str,
) -> Result<(), kube::Error> {
    let api = Api::<Node>::all(client.clone());
    let labels = labels(config, profile);
    let images = NodeImages::of(&config.images, config.unmapped_images);
    let images = serde_json::to_string(&images).map_err(kube::Error::SerdeError)?;
    let annotations = json!({ANNOTATION_NODE_IMAGES: images});
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": config.name, "labels": labels, "annotations": annotations},
        "status": status(config, ip),
    });
    match api.create(&PostParams::default(), &parse(node)?).await {
        Ok(_) => {}
        Err(kube::Error::Api(error)) if error.code == 409 => {
            let metadata = json!({"labels": labels, "annotations": annotations});
            let patch = Patch::Merge(json!({"metadata": metadata}));
            api.patch(&config.name, &PatchParams::default(), &patch)
                .await?;
        }
        Err(error) => return Err(error),
    }
    // A created Node keeps its status only on some API servers.
    let patch = Patch::Strategic(json!({"status": status(config, ip)}));
    api.patch_status(&config.name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

async fn renew_lease(client: &Client, name: &str) -> Result<(), kube::Error> {
    let api = Api::<Lease>::namespaced(client.clone(), LEASE_NAMESPACE);
    let now = clock::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec =
        json!({"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now});
    let patch = Patch::Merge(json!({"spec": spec}));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(error)) if error.code == 404 => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
                "spec": spec,
            });
            api.create(&PostParams::default(), &parse(lease)?)
                .await
                .map(drop)
        }
        other => other.map(drop),
    }
}

fn parse<T: serde::de::DeserializeOwned>(object: Value) -> Result<T, kube::Error> {
    serde_json::from_value(object).map_err(kube::Error::SerdeError)
}

/// Labels that Kubernetes clients expect, and ours.
fn labels(config: &NodeConfig, profile: Profile) -> BTreeMap<String, String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let own = [
        ("kubernetes.io/hostname", config.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        (LABEL_NODE_KIND, NODE_KIND_PROCESS),
        (LABEL_NODE_PROFILE, profile.as_str()),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    own.into_iter().chain(config.labels.clone()).collect()
}

/// What pods may use: the machine's, and what the configuration says.
pub(crate) fn allocatable(config: &NodeConfig) -> BTreeMap<String, String> {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or("0");
    let own = [
        ("cpu", crate::config::n_processors().to_string()),
        ("memory", format!("{kilobytes}Ki")),
        ("pods", config.max_pods.to_string()),
    ];
    let own = own.map(|(name, amount)| (name.to_owned(), amount));
    own.into_iter().chain(config.resources.clone()).collect()
}

fn status(config: &NodeConfig, ip: &str) -> Value {
    let now = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let amounts = allocatable(config);
    let log_port = config.log_port.unwrap_or(0);
    json!({
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [
            {"type": "InternalIP", "address": ip},
            {"type": "Hostname", "address": config.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the process node takes pods",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }],
        "nodeInfo": {
            "architecture": std::env::consts::ARCH,
            "bootID": "", "machineID": "", "systemUUID": "", "kernelVersion": "",
            "kubeProxyVersion": "", "osImage": "host",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": concat!("longshore-", env!("CARGO_PKG_VERSION")),
            "operatingSystem": "linux",
        },
    })
}
