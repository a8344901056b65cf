//! One registered webhook.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use k8s_openapi::{
    api::admissionregistration::v1::{MutatingWebhook, WebhookClientConfig},
    apimachinery::pkg::apis::meta::v1::LabelSelector as WireSelector,
};
use longshore_k8s::Selector;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rules::Rule;

/// Seconds that a webhook has when its registration does not say.
const DEFAULT_TIMEOUT_SECONDS: i32 = 10;
const DEFAULT_PORT: i32 = 443;

/// The address of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: i32,
        /// With its leading slash.
        path: String,
    },
}

/// What happens to a request whose webhook does not answer: `Fail` refuses it, `Ignore` lets it
/// pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailurePolicy {
    Fail,
    Ignore,
}

/// A webhook of a registration, parsed, so that requests can be matched against it.
#[derive(Debug)]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) target: Target,
    /// Certificates in PEM form that its own must follow from; empty for those of the machine.
    pub(super) ca_bundle: Vec<u8>,
    pub(super) rules: Vec<Rule>,
    /// The rules are about every version of a resource.
    pub(super) matches_equivalent: bool,
    pub(super) namespace_selector: Selector,
    pub(super) object_selector: Selector,
    pub(super) failure_policy: FailurePolicy,
    /// Whether the webhook has no side effects, so that dry runs may call it.
    pub(super) takes_dry_runs: bool,
    pub(super) timeout: Duration,
    /// The webhook is called again after later webhooks have changed the object.
    pub(super) is_reinvoked: bool,
    is_failing: AtomicBool,
}

impl Webhook {
    /// Reads an item of `webhooks`, of either kind of configuration.
    pub(super) fn read(item: &Value) -> Result<Webhook, serde_json::Error> {
        let read = MutatingWebhook::deserialize(item)?;
        let says = |found: &Option<String>, expected: &str| found.as_deref() == Some(expected);
        let seconds = read.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        let failure_policy = match says(&read.failure_policy, "Ignore") {
            true => FailurePolicy::Ignore,
            false => FailurePolicy::Fail,
        };
        Ok(Webhook {
            target: target(&read.client_config),
            ca_bundle: read
                .client_config
                .ca_bundle
                .map_or_else(Vec::new, |it| it.0),
            rules: read
                .rules
                .unwrap_or_default()
                .into_iter()
                .map(Rule::from)
                .collect(),
            matches_equivalent: !says(&read.match_policy, "Exact"),
            namespace_selector: selector(read.namespace_selector.as_ref()),
            object_selector: selector(read.object_selector.as_ref()),
            failure_policy,
            takes_dry_runs: matches!(read.side_effects.as_str(), "None" | "NoneOnDryRun"),
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            is_reinvoked: says(&read.reinvocation_policy, "IfNeeded"),
            is_failing: AtomicBool::new(false),
            name: read.name,
        })
    }

    /// Notes how a call ended. Returns whether the webhook begins to fail: the log has one line about that, and not one
    /// for each object.
    pub(super) fn begins_to_fail(&self, has_failed: bool) -> bool {
        let was_failing = self.is_failing.swap(has_failed, Ordering::Relaxed);
        has_failed && !was_failing
    }
}

fn target(config: &WebhookClientConfig) -> Target {
    match (&config.url, &config.service) {
        (None, Some(service)) => {
            let path = service.path.as_deref().unwrap_or("");
            let slash = if path.starts_with('/') { "" } else { "/" };
            Target::Service {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                port: service.port.unwrap_or(DEFAULT_PORT),
                path: format!("{slash}{path}"),
            }
        }
        (url, _) => Target::Url(url.clone().unwrap_or_default()),
    }
}

/// Nothing selects everything. What could not be read was refused when it was registered.
fn selector(selector: Option<&WireSelector>) -> Selector {
    Selector::read(&json!(selector)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_begins_to_fail_once_until_it_answers() {
        let webhook = json!({
            "name": "a.example.com", "clientConfig": {"url": "https://a.example.com"},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        });
        let webhook = Webhook::read(&webhook).unwrap();
        let calls = [true, true, false, false, true, true];
        let begins = calls.map(|has_failed| webhook.begins_to_fail(has_failed));
        assert_eq!(begins, [true, false, false, false, true, false]);
    }
}
