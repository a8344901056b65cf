//! Admission webhooks over real connections.

mod connecting;
mod eviction;
mod failing;
mod matching;
mod mutating;
mod services;

use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::{harness::Api, judge::Judge};

pub(super) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A cluster and a webhook that is not registered yet.
pub(super) struct Court {
    pub(super) api: Api,
    pub(super) judge: Judge,
}

impl Court {
    pub(super) fn open() -> Court {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Court {
            api: Api::new(&Cluster::in_memory()),
            judge: Judge::start(),
        }
    }

    /// A webhook about config maps in every namespace, with other members merged in.
    pub(super) fn webhook(&self, name: &str, path: &str, members: Value) -> Value {
        let mut webhook = json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 2,
            "clientConfig": {"url": format!("{}{path}", self.judge.url()), "caBundle": self.judge.ca_bundle()},
            "rules": [rule(&["CREATE", "UPDATE", "DELETE"], "configmaps")],
        });
        json_patch::merge(&mut webhook, &members);
        webhook
    }

    pub(super) async fn register(&self, path: &str, name: &str, webhooks: Vec<Value>) -> Value {
        let configuration = json!({"metadata": {"name": name}, "webhooks": webhooks});
        self.api.make(path, configuration).await
    }

    /// Registers one validating webhook.
    pub(super) async fn validate(&self, path: &str, members: Value) {
        let webhook = self.webhook("one.example.com", path, members);
        self.register(VALIDATING, "one", vec![webhook]).await;
    }

    /// Registers mutating webhooks of one configuration.
    pub(super) async fn mutate(&self, configuration: &str, webhooks: Vec<Value>) {
        self.register(MUTATING, configuration, webhooks).await;
    }
}

pub(super) fn rule(operations: &[&str], resource: &str) -> Value {
    json!({"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]})
}
