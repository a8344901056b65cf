//! The webhook configurations, by which API servers know a webhook. Pure.

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

/// How far API servers narrow what they ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrowing {
    /// By `matchConditions` as well (CEL; Kubernetes 1.30).
    ByConditions,
    /// By rules and selectors only: the API server refuses or drops `matchConditions`.
    ByRules,
}

const CONDITIONS: &str = "matchConditions";

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
    /// Webhooks that change objects: each as in the Kubernetes API, but for `clientConfig.caBundle`. The caller sets
    /// every field: a change of a field that the caller leaves out is not repaired.
    ///
    /// A webhook must be right without its `matchConditions` too: an API server that does not take
    /// them sends the webhook more requests.
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

    /// Its kind and name.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.resource.kind, self.name)
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
        let publication = Publication {
            bundle: bundle.to_owned(),
            token: None,
        };
        self.published_for(&publication, Narrowing::ByConditions)
    }

    /// The object with which API servers that narrow so far, and no further, trust the authorities and name the token.
    pub(crate) fn published_for(&self, publication: &Publication, narrowing: Narrowing) -> Value {
        let bundle = BASE64_STANDARD.encode(&publication.bundle);
        let mut webhooks = self.webhooks.clone();
        for webhook in &mut webhooks {
            if let (Narrowing::ByRules, Some(webhook)) = (narrowing, webhook.as_object_mut()) {
                webhook.remove(CONDITIONS);
            }
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
    pub(crate) fn is_as(
        &self,
        found: &Value,
        publication: &Publication,
        narrowing: Narrowing,
    ) -> bool {
        let ours = self.published_for(publication, narrowing);
        covers(&found["webhooks"], &ours["webhooks"])
    }

    /// Whether any of the webhooks has `matchConditions`.
    pub(crate) fn has_conditions(&self) -> bool {
        let mut webhooks = self.webhooks.iter();
        webhooks.any(|webhook| {
            let conditions = webhook[CONDITIONS].as_array();
            conditions.is_some_and(|conditions| !conditions.is_empty())
        })
    }
}

/// What API servers have to know of a webhook beside its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    /// The authorities that vouch for the webhook, in PEM.
    pub(crate) bundle: String,
    /// The token that API servers have to name; `None` where they have to show a certificate instead.
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
        let object = registration.published_for(&publication, Narrowing::ByConditions);
        let config = |at: usize| object["webhooks"][at]["clientConfig"].clone();
        assert_eq!(config(0)["url"], "https://127.0.0.1:9443/ask/secret");
        assert_eq!(config(1)["service"]["path"], "/ask/secret");
        assert!(registration.is_as(&object, &publication, Narrowing::ByConditions));
        let other = Publication {
            token: None,
            ..publication
        };
        assert!(!registration.is_as(&object, &other, Narrowing::ByConditions));
        let plain = registration.published_for(&other, Narrowing::ByConditions);
        assert_eq!(
            plain["webhooks"][1]["clientConfig"]["service"]["path"],
            "/ask"
        );
    }

    fn plain() -> Publication {
        Publication {
            bundle: "ca".to_owned(),
            token: None,
        }
    }

    fn registration() -> Registration {
        let condition = json!([{"name": "a", "expression": "true"}]);
        Registration::mutating(
            "m",
            vec![
                json!({"name": "a.b.c", "matchConditions": condition}),
                json!({"name": "d.e.f", "matchConditions": []}),
            ],
        )
    }

    #[test]
    fn an_api_server_that_drops_conditions_has_what_is_right_without_them_and_nothing_else() {
        let registration = registration();
        let mut found = registration.object("ca");
        // An empty list is not stored.
        let webhooks = found["webhooks"].as_array_mut().unwrap();
        webhooks[1].as_object_mut().unwrap().remove(CONDITIONS);
        assert!(registration.is_as(&found, &plain(), Narrowing::ByConditions));
        let dropped = registration.published_for(&plain(), Narrowing::ByRules);
        assert!(!registration.is_as(&dropped, &plain(), Narrowing::ByConditions));
        assert!(registration.is_as(&dropped, &plain(), Narrowing::ByRules));
        assert!(registration.has_conditions());
    }

    #[test]
    fn conditions_of_somebody_else_are_a_difference() {
        let registration = registration();
        let mut found = registration.object("ca");
        found["webhooks"][1][CONDITIONS] = json!([{"name": "off", "expression": "false"}]);
        assert!(!registration.is_as(&found, &plain(), Narrowing::ByConditions));
    }
}
