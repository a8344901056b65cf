//! How the webhooks are registered with API servers. Pure.
//!
//! What must be seen fails closed while no replica answers: creates of pods (a pod past the webhook never gets its gate),
//! their updates and deletes, and PodTransitionRules. Everything else fails open. A status write past the webhook is made
//! up for by the controller, which writes what the state machine has left; a node that cannot report that a pod is not
//! Ready would keep the pod's endpoint. An Eviction does not show the labels of its pod, so that no rule can spare the
//! pods of others; where the policy of `deploy/podops-evictions.yaml` is applied, the API server itself refuses to evict a
//! protected pod past the webhook. That is why the eviction webhook is a mutating one: the policy comes after it, and sees
//! the mark of what the webhook allows.
//!
//! Where API servers take `matchConditions` ([`conditions`]), they do not ask about writes that the webhooks would leave
//! alone. For each webhook with such a condition an API server converts the object and the old object, which costs about
//! half as much as a call of the webhook. Therefore one webhook receives each update of a pod: the mutating webhook also
//! checks its labels.
//!
//! Neither the namespaces of the cluster itself nor the one in which we run ever wait: our own replicas, and whatever they
//! need to come up, can always be created, evicted and deleted.

use longshore_api::podops::{CONTROLLED, GROUP, LABEL_CONTROL, VERSION};
use longshore_webhook::Registration;
use serde_json::{Value, json};

use super::{MUTATING, MUTATING_PATH, VALIDATING, VALIDATING_PATH, conditions};
use crate::{
    config::{AdmitConfig, FailurePolicy, RegistrationConfig},
    rule::RULE,
};

/// How long API servers wait for an answer, in seconds.
const TIMEOUT: u32 = 10;
/// The same, for an eviction. Our own answer comes within 5 s; a client that evicts a pod without the label waits that
/// long at most while no replica answers.
const EVICTION_TIMEOUT: u32 = 7;
/// The same, for a status. It is answered without a request; a node writes the statuses of its pods one after the other.
const STATUS_TIMEOUT: u32 = 2;
/// The longest that they can.
const MAX_TIMEOUT: u32 = 30;
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

    /// The namespaces that never wait. Our own is one of them where we are a pod of the cluster: only then we could be in
    /// our own way.
    fn excluded(&self, config: &RegistrationConfig) -> Vec<String> {
        let mut namespaces: Vec<String> = SYSTEM_NAMESPACES.map(str::to_owned).into();
        if let Self::Service { namespace, .. } = self {
            namespaces.push(namespace.clone());
        }
        namespaces.extend(config.excluded_namespaces.iter().cloned());
        namespaces.sort();
        namespaces.dedup();
        namespaces
    }
}

/// One webhook, as far as the webhooks differ.
struct Webhook<'a> {
    name: &'a str,
    path: &'a str,
    rule: Value,
    selector: Value,
    failure_policy: FailurePolicy,
    timeout_seconds: u32,
    /// Expressions by name: API servers call the webhook where all of them are true.
    conditions: Vec<(&'a str, String)>,
    side_effects: &'a str,
}

impl Webhook<'_> {
    fn to_json(&self, reach: &Reach, namespaces: &[String]) -> Value {
        let conditions = self.conditions.iter();
        let conditions =
            conditions.map(|(name, expression)| json!({"name": name, "expression": expression}));
        json!({
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": reach.client_config(self.path),
            "failurePolicy": self.failure_policy.as_str(),
            "matchConditions": conditions.collect::<Vec<_>>(),
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [{
                "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces,
            }]},
            "objectSelector": self.selector,
            "rules": [self.rule],
            "sideEffects": self.side_effects,
            "timeoutSeconds": self.timeout_seconds,
        })
    }
}

/// What is registered with API servers.
pub fn registrations(
    config: &AdmitConfig,
    registration: &RegistrationConfig,
    reach: &Reach,
) -> [Registration; 2] {
    let namespaces = reach.excluded(registration);
    let mutating = mutating(config, registration).into_iter().map(|webhook| {
        let mut webhook = webhook.to_json(reach, &namespaces);
        // Asked again for what another webhook has changed, it would take the pod a step further than one write does.
        webhook["reinvocationPolicy"] = "Never".into();
        webhook
    });
    let validating = validating(config, registration).into_iter();
    let validating = validating.map(|webhook| webhook.to_json(reach, &namespaces));
    [
        Registration::mutating(MUTATING, mutating.collect()),
        Registration::validating(VALIDATING, validating.collect()),
    ]
}

fn mutating(config: &AdmitConfig, registration: &RegistrationConfig) -> Vec<Webhook<'static>> {
    let policies = &registration.failure_policies;
    let pods = Webhook {
        name: "mutating-pod.apps.kusionstack.io",
        path: MUTATING_PATH,
        rule: about_pods(&["CREATE", "UPDATE"], "pods"),
        selector: controlled(),
        failure_policy: policies.pods,
        timeout_seconds: TIMEOUT,
        conditions: vec![("operations", conditions::written())],
        side_effects: "None",
    };
    let statuses = Webhook {
        name: "mutating-pod-status.apps.kusionstack.io",
        rule: about_pods(&["UPDATE"], "pods/status"),
        selector: controlled(),
        failure_policy: policies.statuses,
        timeout_seconds: STATUS_TIMEOUT,
        conditions: vec![("operations", conditions::advanced())],
        ..pods
    };
    let mut webhooks = vec![
        pods,
        statuses,
        about_rules(
            "mutating-generic.apps.kusionstack.io",
            MUTATING_PATH,
            policies.rules,
        ),
    ];
    if config.grace_delete {
        webhooks.push(Webhook {
            name: "mutating-eviction.apps.kusionstack.io",
            path: VALIDATING_PATH,
            rule: about_pods(&["CREATE"], "pods/eviction"),
            selector: json!({}),
            failure_policy: policies.evictions,
            timeout_seconds: EVICTION_TIMEOUT,
            conditions: Vec::new(),
            side_effects: "NoneOnDryRun",
        });
    }
    webhooks
}

fn validating(config: &AdmitConfig, registration: &RegistrationConfig) -> Vec<Webhook<'static>> {
    let policies = &registration.failure_policies;
    // Without the gate no webhook has to see deletes.
    let operations: &[&str] = if config.grace_delete {
        &["CREATE", "DELETE"]
    } else {
        &["CREATE"]
    };
    // A delete may be held, and is answered then.
    let held = config.hold_deletes.filter(|_| config.grace_delete);
    let held = held.map_or(0, |held| {
        u32::try_from(held.as_secs().saturating_add(1)).unwrap_or(MAX_TIMEOUT)
    });
    let pods = Webhook {
        name: "validating-pod.apps.kusionstack.io",
        path: VALIDATING_PATH,
        rule: about_pods(operations, "pods"),
        selector: controlled(),
        failure_policy: policies.pods,
        timeout_seconds: (TIMEOUT + held).min(MAX_TIMEOUT),
        conditions: vec![("operations", conditions::protected())],
        // A delete that is refused begins an operation, but not in a dry run.
        side_effects: "NoneOnDryRun",
    };
    let rules = about_rules(
        "validating-generic.apps.kusionstack.io",
        VALIDATING_PATH,
        policies.rules,
    );
    vec![pods, rules]
}

/// Pods that take part.
fn controlled() -> Value {
    json!({"matchExpressions": [{
        "key": LABEL_CONTROL, "operator": "In", "values": [CONTROLLED],
    }]})
}

fn about_pods(operations: &[&str], resource: &str) -> Value {
    json!({
        "apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced",
        "operations": operations, "resources": [resource],
    })
}

fn about_rules<'a>(name: &'a str, path: &'a str, failure_policy: FailurePolicy) -> Webhook<'a> {
    Webhook {
        name,
        path,
        rule: json!({
            "apiGroups": [GROUP], "apiVersions": [VERSION], "scope": "Namespaced",
            "operations": ["CREATE", "UPDATE"], "resources": [RULE.plural],
        }),
        selector: json!({}),
        failure_policy,
        timeout_seconds: TIMEOUT,
        conditions: vec![("spec", conditions::rule_is_written())],
        side_effects: "None",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FailurePolicies;

    fn told(grace_delete: bool, reach: &Reach) -> Vec<Value> {
        told_with(grace_delete, reach, &RegistrationConfig::default())
    }

    fn told_with(
        grace_delete: bool,
        reach: &Reach,
        registration: &RegistrationConfig,
    ) -> Vec<Value> {
        let config = AdmitConfig {
            grace_delete,
            ..AdmitConfig::default()
        };
        registrations(&config, registration, reach)
            .iter()
            .map(|registration| registration.object("ca"))
            .collect()
    }

    fn webhooks(told: &[Value]) -> impl Iterator<Item = &Value> {
        let lists = told.iter().map(|object| object["webhooks"].as_array());
        lists.flatten().flatten()
    }

    fn service() -> Reach {
        Reach::Service {
            namespace: "longshore".to_owned(),
            name: "longshore-podops".to_owned(),
            port: 443,
        }
    }

    #[test]
    fn nothing_of_the_cluster_of_ours_or_of_an_excluded_namespace_waits_for_us() {
        let registration = RegistrationConfig {
            excluded_namespaces: vec!["legacy".to_owned(), "kube-system".to_owned()],
            ..RegistrationConfig::default()
        };
        for webhook in webhooks(&told_with(true, &service(), &registration)) {
            assert_eq!(
                webhook["namespaceSelector"]["matchExpressions"],
                json!([{
                    "key": "kubernetes.io/metadata.name", "operator": "NotIn",
                    "values": ["kube-node-lease", "kube-public", "kube-system", "legacy", "longshore"],
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

    #[test]
    fn deletes_and_evictions_are_asked_about_only_where_they_become_operations() {
        let asked = |grace_delete| {
            let told = told(grace_delete, &service());
            let has =
                |what: &dyn Fn(&Value) -> bool| webhooks(&told).any(|it| what(&it["rules"][0]));
            let deletes = |rule: &Value| {
                let mut operations = rule["operations"].as_array().unwrap().iter();
                operations.any(|operation| operation == "DELETE")
            };
            let evictions = |rule: &Value| rule["resources"] == json!(["pods/eviction"]);
            [has(&deletes), has(&evictions)]
        };
        assert_eq!((asked(false), asked(true)), ([false; 2], [true; 2]));
    }

    #[test]
    fn only_creates_updates_and_deletes_of_pods_that_take_part_and_rules_fail_closed() {
        let policies = |registration: &RegistrationConfig| -> Vec<(String, String)> {
            let told = told_with(true, &service(), registration);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let pair = |webhook: &Value| {
                let name = text(&webhook["name"]);
                let (name, _) = name.split_once('.').unwrap();
                (name.to_owned(), text(&webhook["failurePolicy"]))
            };
            webhooks(&told).map(pair).collect()
        };
        let pairs = |[pods, statuses, evictions, rules]: [&str; 4]| {
            [
                ("mutating-pod", pods),
                ("mutating-pod-status", statuses),
                ("mutating-generic", rules),
                ("mutating-eviction", evictions),
                ("validating-pod", pods),
                ("validating-generic", rules),
            ]
            .map(|(name, policy)| (name.to_owned(), policy.to_owned()))
        };
        let default = RegistrationConfig::default();
        assert_eq!(
            policies(&default),
            pairs(["Fail", "Ignore", "Ignore", "Fail"])
        );
        let closed = RegistrationConfig {
            failure_policies: FailurePolicies::all(FailurePolicy::Fail),
            ..default
        };
        assert_eq!(policies(&closed), pairs(["Fail"; 4]));
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
