//! Writes at the same time, until the cluster is gone.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    jobs::{JOBS, job},
    known::{Known, Token, known_service},
    pods::TalkingPod,
};
use crate::pod_network::{create, service};

/// Not the namespace of the pods: short names in their hosts files stay as they are.
pub(super) const SERVICES: &str = "/api/v1/namespaces/load/services";
pub(super) const MAPS: &str = "/api/v1/namespaces/load/configmaps";

/// Most writes of each kind between two kills: hosts files and lists stay small.
const MOST_SERVICES: usize = 6;
const MOST_MAPS: usize = 40;
const MOST_JOBS: usize = 2;
/// Longer than a campaign.
const TOKEN_SECONDS: u64 = 7_200;
/// How long a write may wait for a cluster that is gone.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new());
    client.request(request.unwrap()).await.unwrap()
}

pub(super) async fn delete(client: &Client, path: &str) -> kube::Result<Value> {
    let request = http::Request::delete(path).body(Vec::new());
    client.request(request.unwrap()).await
}

async fn replace(client: &Client, path: &str, object: &Value) -> kube::Result<Value> {
    let request = http::Request::put(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes());
    client.request(request.unwrap()).await
}

/// The answer to a write. Without one the cluster is gone; a refusal is a mistake.
fn answered(answer: kube::Result<Value>) -> Option<Value> {
    match answer {
        Ok(answer) => Some(answer),
        Err(kube::Error::Api(refusal)) => panic!("a write was refused: {refusal:?}"),
        Err(_) => None,
    }
}

/// Makes the namespace.
pub(super) async fn prepare(client: &Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}});
    create(client, "/api/v1/namespaces", &namespace)
        .await
        .unwrap();
}

/// The writers of one life of the cluster. Each ends with the first write that has no answer.
pub(super) struct Load {
    known: Arc<Mutex<Known>>,
    writers: JoinSet<()>,
}

/// What a writer works with.
#[derive(Clone)]
struct Writer {
    client: Client,
    life: u64,
    known: Arc<Mutex<Known>>,
}

impl Load {
    /// Starts the writers; must be called within a runtime.
    pub(super) fn start(
        client: &Client,
        pod: &TalkingPod,
        life: u64,
        counts: &Path,
        known: Known,
    ) -> Self {
        let known = Arc::new(Mutex::new(known));
        let writer = Writer {
            client: client.clone(),
            life,
            known: Arc::clone(&known),
        };
        let mut writers = JoinSet::new();
        writers.spawn(writer.clone().services());
        writers.spawn(writer.clone().maps());
        writers.spawn(writer.clone().counter());
        writers.spawn(writer.clone().token(pod.name.clone(), pod.uid.clone()));
        writers.spawn(writer.jobs(counts.to_owned()));
        Self { known, writers }
    }

    /// Waits until the writers have noticed that the cluster is gone.
    pub(super) async fn end(mut self) -> Known {
        let ended = async {
            while self
                .writers
                .join_next()
                .await
                .transpose()
                .unwrap()
                .is_some()
            {}
        };
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        assert!(ended.is_ok(), "the writers end with the cluster");
        std::mem::take(&mut *self.known.lock().unwrap())
    }
}

impl Writer {
    /// Notes an answer.
    fn acknowledged(&self, note: impl FnOnce(&mut Known)) {
        let mut known = self.known.lock().unwrap();
        known.n_acknowledged += 1;
        note(&mut known);
    }

    /// Makes Services, and deletes every other one.
    async fn services(self) {
        for n in 0..MOST_SERVICES {
            let name = format!("s{:04}-{n}", self.life);
            let object = service(&name, 80, None);
            let Some(made) = answered(create(&self.client, SERVICES, &object).await) else {
                return;
            };
            self.acknowledged(|known| {
                known.services.insert(name.clone(), known_service(&made));
            });
            if n % 2 == 0 {
                continue;
            }
            self.known.lock().unwrap().leaving.insert(name.clone());
            let path = format!("{SERVICES}/{name}");
            if answered(delete(&self.client, &path).await).is_none() {
                return;
            }
            self.acknowledged(|known| {
                known.services.remove(&name);
                known.leaving.remove(&name);
                known.gone.insert(name);
            });
        }
    }

    async fn maps(self) {
        for n in 0..MOST_MAPS {
            let name = format!("m{}-{n}", self.life);
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"text": "x".repeat(500)},
            });
            let Some(made) = answered(create(&self.client, MAPS, &object).await) else {
                return;
            };
            let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
            self.acknowledged(|known| {
                known.maps.insert(name, uid);
            });
        }
    }

    /// Counts for as long as there is a cluster: so that no kill meets an idle one.
    async fn counter(self) {
        let name = format!("counter{}", self.life);
        for n in 0_u64.. {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"n": n.to_string()},
            });
            let written = if n == 0 {
                create(&self.client, MAPS, &object).await
            } else {
                replace(&self.client, &format!("{MAPS}/{name}"), &object).await
            };
            if answered(written).is_none() {
                return;
            }
            self.acknowledged(|known| {
                known.counters.insert(name.clone(), n);
            });
        }
    }

    /// A token that is good for as long as a pod is there.
    async fn token(self, pod: String, uid: String) {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": TOKEN_SECONDS,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid},
            },
        });
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let Some(made) = answered(create(&self.client, path, &request).await) else {
            return;
        };
        let token = Token {
            token: made["status"]["token"].as_str().unwrap().to_owned(),
            user: "system:serviceaccount:default:default".to_owned(),
        };
        self.acknowledged(|known| known.tokens.push(token));
    }

    async fn jobs(self, counts: PathBuf) {
        for n in 0..MOST_JOBS {
            let name = format!("j{}-{n}", self.life);
            let made = create(&self.client, JOBS, &job(&name, &counts)).await;
            if answered(made).is_none() {
                return;
            }
            self.acknowledged(|known| {
                known.jobs.insert(name);
            });
        }
    }
}
