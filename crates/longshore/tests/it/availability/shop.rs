//! A Deployment of six servers behind a Service, and what is done to it.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use http::Request;
use kube::{Client, core::Status};
use longshore_api::podops::{ANNOTATION_DRAIN_DELAY, CONTROLLED, LABEL_CONTROL};
use longshore_podops::webhooks;
use serde_json::{Value, json};

use super::server;
use crate::controller::kills::dice::Dice;

const REPLICAS: u64 = 6;
/// Many times what a request takes, and what a client that follows slices lags behind on a busy machine.
const DRAIN_DELAY: &str = "2s";
/// Between looks at something.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Pause before a refused request is repeated: as `kubectl drain` does, but shorter.
const RETRY: Duration = Duration::from_millis(300);
pub(super) const LOOKS: u32 = 2_400;

/// Whether the pods take part in PodOpsLifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labelled {
    Yes,
    No,
}

/// The Deployment in a namespace of its own.
pub(super) struct Shop {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Shop {
    /// Makes a namespace, and nothing in it.
    pub(super) async fn empty(client: &Client, namespace: &str) -> Self {
        let shop = Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
        };
        let of_namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        });
        shop.create("/api/v1/namespaces", of_namespace).await;
        shop.until_asked("mutatingwebhookconfigurations", webhooks::MUTATING)
            .await;
        shop.until_asked("validatingwebhookconfigurations", webhooks::VALIDATING)
            .await;
        shop
    }

    /// Waits until the API server asks the webhooks: a pod that is made before takes no part.
    async fn until_asked(&self, plural: &str, name: &str) {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
        for _ in 0..LOOKS {
            let request = Request::get(&path).body(Vec::new()).unwrap();
            match self.client.request::<Value>(request).await {
                Ok(found) if found["webhooks"][0]["clientConfig"]["caBundle"].is_string() => return,
                _ => tokio::time::sleep(LOOK).await,
            }
        }
        panic!("{path} is not there in time");
    }

    /// Makes everything, and waits until all pods serve.
    pub(super) async fn open(client: &Client, namespace: &str, labelled: Labelled) -> Self {
        let shop = Self::empty(client, namespace).await;
        let selector = json!({"matchLabels": {"app": "web"}});
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "annotations": {ANNOTATION_DRAIN_DELAY: DRAIN_DELAY}},
            "spec": {
                "selector": {"app": "web"},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            },
        });
        shop.create(&shop.core("services"), service).await;
        // No more than half of the pods are away at the same time. Of those without the label, only evictions know that.
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"}, "spec": {"selector": selector, "maxUnavailable": 3},
        });
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
        shop.create(&path, budget).await;
        let mut labels = json!({"app": "web"});
        if labelled == Labelled::Yes {
            labels[LABEL_CONTROL] = json!(CONTROLLED);
            let policy = json!({"name": "half", "availablePolicy": {"maxUnavailableValue": 3}});
            let rule = json!({
                "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
                "metadata": {"name": "web"}, "spec": {"selector": selector, "rules": [policy]},
            });
            let path = format!(
                "/apis/apps.kusionstack.io/v1alpha1/namespaces/{namespace}/podtransitionrules"
            );
            shop.create(&path, rule).await;
        }
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": REPLICAS,
                "selector": selector,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [server::container()], "terminationGracePeriodSeconds": 5},
                },
            },
        });
        shop.create(&shop.apps("deployments"), deployment).await;
        shop.until_all_serve(&BTreeSet::new()).await;
        for pod in shop.pods().await {
            let takes_part = pod["spec"]["readinessGates"].is_array();
            assert_eq!(takes_part, labelled == Labelled::Yes, "{pod}");
        }
        shop
    }

    /// A rolling update, to its end.
    pub(super) async fn update(&self, what: &str) {
        let before = self.pods().await;
        let annotations = json!({"test.longshore.dev/update": what});
        let change = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        let request = Request::patch(self.apps("deployments/web"))
            .header("content-type", "application/merge-patch+json")
            .body(change.to_string().into_bytes());
        let _: Value = self.client.request(request.unwrap()).await.unwrap();
        self.until_all_serve(&uids(&before)).await;
    }

    /// Evicts all pods, as `kubectl drain` does: a refused eviction is repeated until the pod is
    /// gone. The node stays open, because there is no other.
    pub(super) async fn drain(&self) {
        let pods = self.pods().await;
        join_all(pods.iter().map(|pod| self.evict(name(pod)))).await;
        self.until_all_serve(&uids(&pods)).await;
    }

    /// Deletes any pod, and waits until another one serves in its place.
    pub(super) async fn delete_one(&self, dice: &mut Dice) {
        let pods = self.pods().await;
        let n = dice.between(0, pods.len() as u64 - 1);
        let pod = &pods[usize::try_from(n).unwrap()];
        let path = self.core(&format!("pods/{}", name(pod)));
        let request = Request::delete(path).body(Vec::new()).unwrap();
        // Refused, where it becomes an operation, which goes on by itself.
        let _ = self.client.request::<Value>(request).await;
        self.until_all_serve(&uids(std::slice::from_ref(pod))).await;
    }

    /// Asks for the eviction of a pod, by its name, until that is granted or there is none.
    pub(super) async fn evict(&self, pod: &str) {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        });
        let path = self.core(&format!("pods/{pod}/eviction"));
        for _ in 0..LOOKS {
            match self.post(&path, &eviction).await {
                Err(kube::Error::Api(status)) if is_refusal(&status) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                answer => return drop(answer.unwrap()),
            }
            tokio::time::sleep(RETRY).await;
        }
        panic!("{pod} was not evicted in time");
    }

    /// Waits until there are six pods, all of them Ready and none of these.
    async fn until_all_serve(&self, old: &BTreeSet<String>) {
        let mut last = Vec::new();
        for _ in 0..LOOKS {
            last = self.pods().await;
            let ready = last.iter().filter(|pod| is_ready(pod)).count() as u64;
            let is_over = last.len() as u64 == REPLICAS && uids(&last).is_disjoint(old);
            if is_over && ready == REPLICAS {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("not in time in {}: {last:#?}", self.namespace);
    }

    pub(super) async fn pods(&self) -> Vec<Value> {
        let request = Request::get(self.core("pods")).body(Vec::new()).unwrap();
        let list: Value = self.client.request(request).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    pub(super) async fn create(&self, path: &str, object: Value) {
        self.post(path, &object).await.unwrap();
    }

    async fn post(&self, path: &str, object: &Value) -> kube::Result<Value> {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes());
        self.client.request(request.unwrap()).await
    }

    fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub(super) fn apps(&self, rest: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/{rest}", self.namespace)
    }
}

/// Not for ever: of a budget, a webhook, or a busy API server.
fn is_refusal(status: &Status) -> bool {
    matches!(status.code, 429 | 500 | 409)
}

pub(super) fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap()
}

pub(super) fn uids(pods: &[Value]) -> BTreeSet<String> {
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    pods.iter().map(uid).collect()
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_going = pod["metadata"]["deletionTimestamp"].is_string();
    !is_going && conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}
