//! The webhook that puts secrets into pods that ask for them (task action spec §13): each is looked up where the peer's
//! secret service keeps it, in a Kubernetes Secret of one namespace.
//!
//! Whose secrets a pod gets, its labels say, and its namespace has to agree: an author writes labels, an API server
//! vouches for the namespace.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_api::flyte::{LABEL_INJECT_SECRETS, TRUE};
use longshore_core::{ObjectRef, Resource, Scope};
use longshore_kit::{ApiError, Grant, Requests, Rule};
use longshore_plugins::{
    SecretError, SecretReference, SecretScope, SecretValue, requested_secrets,
};
use longshore_webhook::{Admission, Denial, Registration, Response, Review, Verdict};
use serde_json::{Value, json};

use crate::{
    WebhookSettings,
    secret_cache::{KeptSecret, SecretCache},
};

/// Where API servers ask.
pub const PATH: &str = "/mutate--v1-pod";

const NAME: &str = "flyte-pod-webhook.flyte.org";
/// So long API servers wait, in seconds.
const TIMEOUT: u32 = 10;
/// Pods of the cluster itself never wait for us.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];
const SECRET: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    scope: Scope::Namespaced,
};

/// Everything that the webhook asks of the Kubernetes API: its own certificates, its registration with API servers, and
/// the Secrets of tasks.
///
/// The first two have names. Those of tasks' Secrets are made from what tasks ask for, and RBAC knows no prefixes: the
/// right to read them is one on a whole namespace, which is why it is a grant of its own.
pub fn grants(settings: &WebhookSettings) -> Vec<Grant> {
    let mut grants =
        vec![Rule::new("", &["secrets"], &["get", "patch"]).granted_on(&[&settings.secret_name])];
    if settings.is_registered {
        let registration = Rule::new(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations"],
            &["get", "patch"],
        );
        let registration = registration.cluster_wide();
        grants.push(registration.granted_on(&[&settings.service_name]));
    }
    let of_tasks = Rule::new("", &["secrets"], &["get"]);
    grants.push(of_tasks.granted_in(&settings.secrets_namespace));
    // Whether the role was uninstalled.
    let mark = Rule::new("coordination.k8s.io", &["leases"], &["get"]);
    grants.push(mark.granted_on(&["longshore-webhook"]));
    grants
}

/// Puts secrets into pods.
#[derive(Debug)]
pub struct SecretsWebhook {
    settings: WebhookSettings,
    requests: Requests,
    cache: Arc<SecretCache>,
}

/// Why a pod does not get its secrets.
#[derive(Debug, thiserror::Error)]
enum NotInjected {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(
        "none of the secret managers injected secret {key:?}: there is none of its project, its domain or its organization in the namespace {namespace}"
    )]
    Unknown { key: String, namespace: String },
    #[error(
        "expected one value in the Secret {0}, of type Opaque, as the secret service writes it"
    )]
    NotASecretOfTasks(String),
    #[error("secret {key:?} cannot be looked up: {source}")]
    Unreadable { key: String, source: ApiError },
}

impl NotInjected {
    /// Ours or the API server's mistake is worth another try, the pod's is not.
    fn code(&self) -> u16 {
        match self {
            Self::Secret(_) | Self::Unknown { .. } | Self::NotASecretOfTasks(_) => 400,
            Self::Unreadable { .. } => 503,
        }
    }
}

impl SecretsWebhook {
    /// Looks values up with these requests, and keeps them in a cache.
    pub fn new(settings: WebhookSettings, requests: Requests, cache: Arc<SecretCache>) -> Self {
        Self {
            settings,
            requests,
            cache,
        }
    }

    /// How API servers learn of it, where its Service is in this namespace. Only pods that say that they want secrets
    /// ever wait for it: neither ours nor the cluster's do.
    pub fn registration(settings: &WebhookSettings, namespace: &str) -> Registration {
        let webhook = json!({
            "name": NAME,
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {
                "name": settings.service_name,
                "namespace": namespace,
                "path": PATH,
                "port": settings.service_port,
            }},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [{
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": SYSTEM_NAMESPACES,
            }]},
            "objectSelector": {"matchLabels": {LABEL_INJECT_SECRETS: TRUE}},
            "reinvocationPolicy": "Never",
            "rules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "*",
            }],
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT,
        });
        Registration::mutating(&settings.service_name, vec![webhook])
    }

    /// The pod with its secrets, in the namespace that the API server names: what the pod says of its namespace counts
    /// for nothing.
    async fn inject(&self, namespace: &str, pod: &Value) -> Result<Option<Value>, NotInjected> {
        let secrets = requested_secrets(pod)?;
        if secrets.is_empty() {
            return Ok(None);
        }
        let scope = SecretScope::of(pod)?;
        let of_secrets = &self.settings.secrets_namespace;
        self.settings
            .bindings
            .check(namespace, of_secrets, &scope)?;
        let mut changed = pod.clone();
        for secret in &secrets {
            let (name, found) = self.find(&scope, &secret.key).await?;
            let reference = (namespace == of_secrets).then_some(SecretReference {
                secret: &name,
                key: &found.key,
            });
            let value = SecretValue {
                bytes: &found.value,
                reference,
            };
            self.settings
                .injection
                .inject(&mut changed, secret, value)?;
        }
        Ok(Some(changed))
    }

    /// The secret of the narrowest scope that has the key, and the name of its Kubernetes Secret.
    async fn find(
        &self,
        scope: &SecretScope,
        key: &str,
    ) -> Result<(String, KeptSecret), NotInjected> {
        for name in scope.names(key) {
            if let Some(secret) = self.cache.get(&name) {
                return Ok((name, secret));
            }
            let target = ObjectRef {
                resource: SECRET,
                namespace: self.settings.secrets_namespace.clone(),
                name: name.clone(),
                uid: None,
            };
            let found = self.requests.get(&target).await;
            let found = found.map_err(|source| NotInjected::Unreadable {
                key: key.to_owned(),
                source,
            })?;
            let Some(found) = found else {
                continue;
            };
            let secret =
                secret_of(&found).ok_or_else(|| NotInjected::NotASecretOfTasks(name.clone()))?;
            self.cache.keep(&name, secret.clone());
            return Ok((name, secret));
        }
        Err(NotInjected::Unknown {
            key: key.to_owned(),
            namespace: self.settings.secrets_namespace.clone(),
        })
    }
}

/// The secret service puts one value into each Secret, under its whole name. Secrets of other types are keys and tokens
/// of somebody.
fn secret_of(secret: &Value) -> Option<KeptSecret> {
    if !matches!(secret["type"].as_str(), None | Some("Opaque")) {
        return None;
    }
    let mut values = secret["data"].as_object()?.iter();
    let ((key, value), None) = (values.next()?, values.next()) else {
        return None;
    };
    Some(KeptSecret {
        key: key.as_str().into(),
        value: BASE64_STANDARD.decode(value.as_str()?).ok()?.into(),
    })
}

#[async_trait]
impl Admission for SecretsWebhook {
    async fn admit(&self, review: &Review) -> Response {
        let is_new_pod = review.operation == "CREATE" && review.resource == "pods";
        if !is_new_pod || !review.subresource.is_empty() {
            return Verdict::Allowed.into();
        }
        match self.inject(&review.namespace, &review.object).await {
            Ok(None) => Verdict::Allowed.into(),
            Ok(Some(pod)) => Verdict::Changed(pod).into(),
            Err(error) => Denial::because(error.code(), error.to_string()).into(),
        }
    }
}

#[cfg(test)]
mod tests;
