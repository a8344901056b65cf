//! How API servers learn of the webhooks. Pure.
//!
//! `failurePolicy` is `Fail`, as upstream: a pod that was created past the webhook would never get its gate, and one that
//! was deleted past it would lose traffic. So that nobody waits for us who does not have to, pods are chosen by the label
//! with which they take part; evictions, which do not show the labels of their pods, are asked about only where deletes
//! become operations at all. Neither the namespaces of the cluster itself nor the one in which we run ever wait: our own
//! replicas, and whatever they need to come up, can always be created, evicted and deleted.

use longshore_api::podops::{CONTROLLED, GROUP, LABEL_CONTROL, VERSION};
use longshore_webhook::Registration;
use serde_json::{Value, json};

use super::{MUTATING, MUTATING_PATH, VALIDATING, VALIDATING_PATH};
use crate::{config::AdmitConfig, rule::RULE};

/// So long API servers wait, in seconds.
const TIMEOUT: u32 = 10;
/// Pods of the cluster itself never wait for us.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// How API servers reach the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// We run in their cluster, behind a Service of our namespace.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// We run beside them, and listen at this base, as `https://127.0.0.1:9443`.
    Url(String),
}

impl Reach {
    fn client_config(&self, path: &str) -> Value {
        match self {
            Self::Service {
                namespace,
                name,
                port,
            } => json!({"service": {
                "namespace": namespace, "name": name, "port": port, "path": path,
            }}),
            Self::Url(base) => json!({"url": format!("{base}{path}")}),
        }
    }

    /// Only who is a pod of the cluster can be in its own way.
    fn namespaces(&self) -> Vec<&str> {
        let mut namespaces = SYSTEM_NAMESPACES.to_vec();
        if let Self::Service { namespace, .. } = self {
            namespaces.push(namespace);
        }
        namespaces
    }

    fn webhook(&self, name: &str, path: &str, rule: &Value, selector: &Value) -> Value {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": self.client_config(path),
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [{
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": self.namespaces(),
            }]},
            "objectSelector": selector,
            "rules": [rule],
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT,
        })
    }
}

/// What API servers are told.
pub fn registrations(config: &AdmitConfig, reach: &Reach) -> [Registration; 2] {
    let controlled = json!({"matchExpressions": [{
        "key": LABEL_CONTROL, "operator": "In", "values": [CONTROLLED],
    }]});
    let rule = |operations: &[&str], resources: &[&str]| {
        json!({
            "apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced",
            "operations": operations, "resources": resources,
        })
    };
    let mut mutating = reach.webhook(
        "mutating-pod.apps.kusionstack.io",
        MUTATING_PATH,
        &rule(&["CREATE", "UPDATE"], &["pods", "pods/status"]),
        &controlled,
    );
    // Asked again for what another webhook has changed, it would take the pod a step further than one write does.
    mutating["reinvocationPolicy"] = "Never".into();
    let mut pods = reach.webhook(
        "validating-pod.apps.kusionstack.io",
        VALIDATING_PATH,
        &rule(&["CREATE", "UPDATE", "DELETE"], &["pods"]),
        &controlled,
    );
    // A delete that is refused begins an operation, but not in a dry run.
    pods["sideEffects"] = "NoneOnDryRun".into();
    let rules = |name: &str, path: &str| {
        let rule = json!({
            "apiGroups": [GROUP], "apiVersions": [VERSION], "scope": "Namespaced",
            "operations": ["CREATE", "UPDATE"], "resources": [RULE.plural],
        });
        reach.webhook(name, path, &rule, &json!({}))
    };
    let mut defaulting = rules("mutating-generic.apps.kusionstack.io", MUTATING_PATH);
    defaulting["reinvocationPolicy"] = "Never".into();
    let checking = rules("validating-generic.apps.kusionstack.io", VALIDATING_PATH);
    let mut validating = vec![pods, checking];
    if config.grace_delete {
        let mut evictions = reach.webhook(
            "validating-eviction.apps.kusionstack.io",
            VALIDATING_PATH,
            &rule(&["CREATE"], &["pods/eviction"]),
            &json!({}),
        );
        evictions["sideEffects"] = "NoneOnDryRun".into();
        validating.push(evictions);
    }
    [
        Registration::mutating(MUTATING, vec![mutating, defaulting]),
        Registration::validating(VALIDATING, validating),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(grace_delete: bool, reach: &Reach) -> Vec<Value> {
        let config = AdmitConfig {
            grace_delete,
            ..AdmitConfig::default()
        };
        registrations(&config, reach)
            .iter()
            .map(|registration| registration.object("ca"))
            .collect()
    }

    fn service() -> Reach {
        Reach::Service {
            namespace: "longshore".to_owned(),
            name: "longshore-podops".to_owned(),
            port: 443,
        }
    }

    #[test]
    fn nothing_of_the_cluster_or_of_ours_waits_for_us() {
        for object in told(true, &service()) {
            for webhook in object["webhooks"].as_array().unwrap() {
                assert_eq!(
                    webhook["namespaceSelector"]["matchExpressions"],
                    json!([{
                        "key": "kubernetes.io/metadata.name", "operator": "NotIn",
                        "values": ["kube-node-lease", "kube-public", "kube-system", "longshore"],
                    }])
                );
                let resources = &webhook["rules"][0]["resources"];
                let is_about_evictions = *resources == json!(["pods/eviction"]);
                let is_about_rules = *resources == json!(["podtransitionrules"]);
                let is_chosen =
                    webhook["objectSelector"]["matchExpressions"][0]["key"] == LABEL_CONTROL;
                assert!(
                    is_chosen || is_about_evictions || is_about_rules,
                    "{webhook}"
                );
            }
        }
    }

    #[test]
    fn evictions_are_asked_about_only_where_they_become_operations() {
        let asked = |grace_delete| {
            let told = told(grace_delete, &service());
            told[1]["webhooks"].as_array().unwrap().len()
        };
        assert_eq!((asked(false), asked(true)), (2, 3));
    }

    #[test]
    fn beside_the_api_server_the_url_is_told_and_no_namespace_is_ours() {
        let told = told(false, &Reach::Url("https://127.0.0.1:7".to_owned()));
        let webhook = &told[0]["webhooks"][0];
        assert_eq!(
            webhook["clientConfig"]["url"],
            "https://127.0.0.1:7/mutating-generic"
        );
        let namespaces = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(*namespaces, json!(SYSTEM_NAMESPACES));
    }
}
