//! Pods that run over all kills, with what they have: a process, a network, names and a token.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{
    known::Token,
    load::{delete, get},
};
use crate::{
    pod_network::{
        Afterwards, addresses, create, free_port, has_answers, service, talking, until_account,
    },
    service_process::until,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// Each asks the next one.
const NAMES: [&str; 3] = ["ka", "kb", "kc"];

/// The pods.
pub(super) struct Pods {
    port: u16,
    pods: Vec<TalkingPod>,
}

/// A pod, as it was before the first kill.
pub(super) struct TalkingPod {
    pub(super) name: String,
    pub(super) uid: String,
    status: Value,
    inside: Inside,
    names: BTreeSet<String>,
}

/// What the process of a pod has: its id, the namespace of its network, and the addresses there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inside {
    id: u32,
    network: PathBuf,
    addresses: BTreeSet<String>,
}

impl Pods {
    /// Starts them, and waits until each has talked to the next one and to the API server.
    pub(super) fn start(runtime: &Runtime, client: &Client) -> Self {
        let port = free_port();
        let next = |at: usize| NAMES[(at + 1) % NAMES.len()];
        runtime.block_on(async {
            until_account(client).await;
            for (at, name) in NAMES.into_iter().enumerate() {
                let path = "/api/v1/namespaces/default/services";
                let service = service(name, port, None);
                create(client, path, &service).await.unwrap();
                let pod = talking(name, port, next(at), Afterwards::Serve);
                create(client, PODS, &pod).await.unwrap();
            }
        });
        let pods = NAMES.into_iter().enumerate().map(|(at, name)| {
            until(&format!("pod {name} has its answers"), || {
                runtime.block_on(has_answers(client, name, next(at)))
            });
            let pod = runtime.block_on(get(client, &format!("{PODS}/{name}")));
            let inside = inside(name, port).unwrap();
            TalkingPod {
                name: name.to_owned(),
                uid: pod["metadata"]["uid"].as_str().unwrap().to_owned(),
                status: lasting(&pod),
                names: names(&inside),
                inside,
            }
        });
        let pods = pods.collect();
        Self { port, pods }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TalkingPod> {
        self.pods.iter()
    }

    pub(super) fn first(&self) -> &TalkingPod {
        &self.pods[0]
    }

    /// They are as before, and learn of a Service that is newer than they are.
    pub(super) fn check(&self, runtime: &Runtime, client: &Client, newest: Option<&str>) {
        for pod in &self.pods {
            let name = &pod.name;
            let now = runtime.block_on(get(client, &format!("{PODS}/{name}")));
            assert_eq!(lasting(&now), pod.status, "{name}");
            assert_eq!(inside(name, self.port).as_ref(), Some(&pod.inside));
            let missing = |found: &BTreeSet<String>| pod.names.difference(found).count();
            assert_eq!(missing(&names(&pod.inside)), 0, "{name} has lost names");
            if let Some(newest) = newest {
                let newest = format!("{newest}.load");
                until(&format!("{name} knows {newest}"), || {
                    let lines = names(&pod.inside);
                    let mut words = lines.iter().flat_map(|line| line.split('\t'));
                    words.any(|word| word == newest)
                });
            }
        }
    }

    /// A new pod is made, and reaches them and the API server.
    pub(super) fn ask(&self, runtime: &Runtime, client: &Client, life: u64) {
        let (name, peer) = (format!("ask-{life}"), &self.first().name);
        let path = format!("{PODS}/{name}");
        let pod = talking(&name, self.port, peer, Afterwards::End);
        runtime.block_on(create(client, PODS, &pod)).unwrap();
        until(&format!("{name} has its answers"), || {
            let pod = runtime.block_on(get(client, &path));
            let phase = &pod["status"]["phase"];
            assert_ne!(phase, "Failed", "{pod}");
            phase == "Succeeded"
        });
        runtime.block_on(delete(client, &path)).unwrap();
    }
}

impl TalkingPod {
    /// The token that it has.
    pub(super) fn token(&self) -> Token {
        let id = self.inside.id;
        // `/var/run` may be a link, which would be followed outside of the container.
        let places = ["run", "var/run"].map(|place| {
            format!("/proc/{id}/root/{place}/secrets/kubernetes.io/serviceaccount/token")
        });
        let token = places.iter().find_map(|path| fs::read_to_string(path).ok());
        Token {
            token: token.unwrap(),
            user: "system:serviceaccount:default:default".to_owned(),
        }
    }
}

/// What of a pod must not change.
fn lasting(pod: &Value) -> Value {
    let status = &pod["status"];
    json!({
        "uid": pod["metadata"]["uid"],
        "address": status["podIP"],
        "phase": status["phase"],
        "restarts": status["containerStatuses"][0]["restartCount"],
        "container": status["containerStatuses"][0]["containerID"],
    })
}

/// What the process of a pod has, if there is one.
fn inside(name: &str, port: u16) -> Option<Inside> {
    let port = port.to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut ids = processes.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let arguments: Vec<&str> = line.split('\0').collect();
        // The program of [`talking`] has its text in front of these.
        (arguments.get(4..6) == Some(&[port.as_str(), name][..])).then_some(id)
    });
    let id = ids.next()?;
    let process = Path::new("/proc").join(id.to_string());
    Some(Inside {
        id,
        network: fs::read_link(process.join("ns/net")).unwrap(),
        addresses: addresses(&process.join("net")),
    })
}

/// The lines of the hosts file of a process. The node fills the file up with empty ones.
fn names(of: &Inside) -> BTreeSet<String> {
    let path = format!("/proc/{}/root/etc/hosts", of.id);
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}
