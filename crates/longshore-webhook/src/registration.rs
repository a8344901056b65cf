//! How API servers learn of a webhook. Pure.

use base64::{Engine, prelude::BASE64_STANDARD};
use longshore_core::{ObjectRef, Resource, Scope};
use serde_json::{Value, json};

use crate::{review::covers, token::Token};

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
        self.published(&Publication {
            bundle: bundle.to_owned(),
            token: None,
        })
    }

    /// The object with which API servers trust the authorities and name the token.
    pub(crate) fn published(&self, publication: &Publication) -> Value {
        let bundle = BASE64_STANDARD.encode(&publication.bundle);
        let mut webhooks = self.webhooks.clone();
        for webhook in &mut webhooks {
            let config = &mut webhook["clientConfig"];
            config["caBundle"] = bundle.as_str().into();
            for place in ["/url", "/service/path"] {
                if let (Some(token), Some(Value::String(path))) =
                    (&publication.token, config.pointer_mut(place))
                {
                    path.push('/');
                    path.push_str(token.text());
                }
            }
        }
        json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "metadata": {"name": self.name},
            "webhooks": webhooks,
        })
    }

    /// Whether an object is as it is to be.
    pub(crate) fn is_as(&self, found: &Value, publication: &Publication) -> bool {
        covers(&found["webhooks"], &self.published(publication)["webhooks"])
    }
}

/// What API servers have to know of a webhook beside its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    /// The authorities that vouch for it, in PEM.
    pub(crate) bundle: String,
    /// What they have to name; `None` where they have to show a certificate instead.
    pub(crate) token: Option<Token>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_the_last_part_of_every_path() {
        let webhooks = vec![
            json!({"clientConfig": {"url": "https://127.0.0.1:9443/ask"}}),
            json!({"clientConfig": {"service": {"name": "s", "path": "/ask"}}}),
        ];
        let registration = Registration::mutating("r", webhooks);
        let publication = Publication {
            bundle: "ca".to_owned(),
            token: Some(Token::of_test("secret")),
        };
        let object = registration.published(&publication);
        let config = |at: usize| object["webhooks"][at]["clientConfig"].clone();
        assert_eq!(config(0)["url"], "https://127.0.0.1:9443/ask/secret");
        assert_eq!(config(1)["service"]["path"], "/ask/secret");
        assert!(registration.is_as(&object, &publication));
        let other = Publication {
            token: None,
            ..publication
        };
        assert!(!registration.is_as(&object, &other));
        let plain = registration.published(&other);
        assert_eq!(
            plain["webhooks"][1]["clientConfig"]["service"]["path"],
            "/ask"
        );
    }
}
