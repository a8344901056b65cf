//! The namespace of a scenario: its pods, and what was seen of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use kube::{Api, Client};
use longshore_api::podops::LABEL_SERVICE_AVAILABLE;
use longshore_core::Resource;
use longshore_kit::{Cache, ListWatch, RawObject, Update, api_resource};
use longshore_podops::model::Pod;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::{
    super::replica::until,
    http::{self, Asked},
    world::{RULES, World},
};

/// The namespace of a scenario.
pub(super) struct Place<'a> {
    pub(super) world: &'a World,
    pub(super) namespace: String,
}

impl Place<'_> {
    pub(super) fn client(&self) -> &Client {
        self.world.client()
    }

    /// The path of a resource of `v1`, or of one of its objects.
    pub(super) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub(super) fn apps(&self, rest: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub(super) fn rules(&self, rest: &str) -> String {
        format!("{RULES}/{}/podtransitionrules{rest}", self.namespace)
    }

    /// Makes pods, and waits until they serve.
    pub(super) async fn serving(&self, names: &[&str]) {
        for name in names {
            let pod = self.world.pod(name);
            http::create(self.client(), &self.core("pods"), &pod)
                .await
                .unwrap();
        }
        for name in names {
            self.until_serving(name).await;
        }
    }

    pub(super) async fn until_serving(&self, name: &str) {
        self.until_label(name, LABEL_SERVICE_AVAILABLE).await;
    }

    /// Waits until a pod has this label.
    pub(super) async fn until_label(&self, name: &str, label: &str) -> Value {
        let path = self.core(&format!("pods/{name}"));
        let has = |pod: &Value| pod["metadata"]["labels"][label].is_string();
        self.world.until_object(&path, has).await
    }

    /// Waits until a pod is gone.
    pub(super) async fn until_gone(&self, name: &str) {
        let path = self.core(&format!("pods/{name}"));
        for _ in 0..1_200 {
            match http::get(self.client(), &path).await {
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        panic!("{path} stays");
    }

    pub(super) async fn pod(&self, name: &str) -> Pod {
        let pod = http::get(self.client(), &self.core(&format!("pods/{name}"))).await;
        Pod::of(&pod.unwrap()).unwrap()
    }

    pub(super) async fn pods(&self) -> Vec<Pod> {
        let list = http::get(self.client(), &self.core("pods")).await.unwrap();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|pod| Pod::of(pod).unwrap()).collect()
    }

    /// Writes labels of a pod; null removes one.
    pub(super) async fn label(&self, name: &str, labels: Value) {
        self.change(name, json!({"labels": labels})).await;
    }

    /// Sets labels, and retries while no webhook answers the API server.
    pub(super) async fn insist(&self, name: &str, labels: Value) {
        let path = self.core(&format!("pods/{name}"));
        let patch = json!({"metadata": {"labels": labels}});
        while http::patch(self.client(), &path, Asked::Merge, &patch)
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Writes something of the metadata of a pod. Controllers and nodes write it as well.
    pub(super) async fn change(&self, name: &str, metadata: Value) {
        let path = self.core(&format!("pods/{name}"));
        let patch = json!({"metadata": metadata});
        loop {
            match http::patch(self.client(), &path, Asked::Merge, &patch).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                written => return drop(written.unwrap()),
            }
        }
    }

    /// Asks for a pod's deletion.
    pub(super) async fn delete(&self, name: &str) -> kube::Result<Value> {
        http::delete(
            self.client(),
            &self.core(&format!("pods/{name}")),
            json!({}),
        )
        .await
    }

    /// Makes a PodTransitionRule about all pods here.
    pub(super) async fn rule(&self, name: &str, rules: Value) {
        let rule = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "rules": rules},
        });
        http::create(self.client(), &self.rules(""), &rule)
            .await
            .unwrap();
    }

    /// Follows the pods from now on.
    pub(super) fn trail(&self) -> Trail {
        Trail::start(self.client().clone(), &self.namespace)
    }
}

/// Every version of every pod of a namespace that a watch has shown.
pub(super) struct Trail {
    seen: Arc<Mutex<Vec<Pod>>>,
    task: AbortHandle,
}

impl Trail {
    fn start(client: Client, namespace: &str) -> Self {
        let kind = api_resource(Resource::POD);
        let api: Api<RawObject> = Api::namespaced_with(client, namespace, &kind);
        let seen: Arc<Mutex<Vec<Pod>>> = Arc::default();
        let kept = Arc::clone(&seen);
        let watching = async move {
            let updates = ListWatch::new(api).into_cache(Cache::passing_on());
            let mut updates = std::pin::pin!(updates);
            while let Some(update) = updates.next().await {
                if let Update::Applied(pod) = update {
                    kept.lock().unwrap().push(pod.read().unwrap());
                }
            }
        };
        Self {
            seen,
            task: tokio::spawn(watching).abort_handle(),
        }
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> Vec<Pod> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until it is seen that a pod got this label.
    pub(super) async fn until_got(&self, name: &str, label: &str) {
        let has = || self.got(name).iter().any(|got| got == label);
        until(&format!("{name} got {label}"), has).await;
    }

    /// The labels that a pod got, in the order in which it got them.
    pub(super) fn got(&self, name: &str) -> Vec<String> {
        let mut got: Vec<String> = Vec::new();
        let mut had: BTreeMap<String, String> = BTreeMap::new();
        for pod in self.seen().iter().filter(|pod| pod.target.name == name) {
            let new = pod.labels.keys().filter(|key| !had.contains_key(*key));
            got.extend(new.cloned());
            had.clone_from(&pod.labels);
        }
        got
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.task.abort();
    }
}
