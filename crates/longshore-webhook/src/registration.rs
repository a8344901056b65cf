//! How API servers learn of a webhook. Pure.

use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_core::{ObjectRef, Resource, Scope};
use serde_json::{Value, json};

use crate::review::covers;

/// A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    resource: Resource,
    name: String,
    webhooks: Vec<Value>,
}

const fn configuration(kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: "admissionregistration.k8s.io",
        version: "v1",
        kind,
        plural,
        scope: Scope::Cluster,
    }
}

const MUTATING: Resource = configuration(
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
const VALIDATING: Resource = configuration(
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);

impl Registration {
    /// Webhooks that change objects: each as in the Kubernetes API, but for `clientConfig.caBundle`. Say every field, or
    /// a change of it is not repaired.
    pub fn mutating(name: &str, webhooks: Vec<Value>) -> Self {
        Self {
            resource: MUTATING,
            name: name.to_owned(),
            webhooks,
        }
    }

    /// Webhooks that only allow or deny.
    pub fn validating(name: &str, webhooks: Vec<Value>) -> Self {
        Self {
            resource: VALIDATING,
            ..Self::mutating(name, webhooks)
        }
    }

    pub(crate) fn target(&self) -> ObjectRef {
        ObjectRef {
            resource: self.resource,
            namespace: String::new(),
            name: self.name.clone(),
            uid: None,
        }
    }

    /// The object with which API servers trust these authorities.
    pub fn object(&self, bundle: &str) -> Value {
        let bundle = BASE64_STANDARD.encode(bundle);
        let mut webhooks = self.webhooks.clone();
        for webhook in &mut webhooks {
            webhook["clientConfig"]["caBundle"] = bundle.as_str().into();
        }
        json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "metadata": {"name": self.name},
            "webhooks": webhooks,
        })
    }

    /// Whether an object is as it is to be.
    pub(crate) fn is_as(&self, found: &Value, bundle: &str) -> bool {
        covers(&found["webhooks"], &self.object(bundle)["webhooks"])
    }
}
