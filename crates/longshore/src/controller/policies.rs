//! What RBAC cannot say: which parts of an object a role may change. Policies of the API server itself say it.
//!
//! Whoever may patch pods may change their images, and whoever may patch a webhook configuration decides what is asked
//! of whom: both are ways to every right of the cluster. A `ValidatingAdmissionPolicy` is followed by API servers since
//! 1.30, needs no webhook, and holds only for the service account that it names.

use longshore_kit::{Grant, Reach};
use serde_json::{Value, json};

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// The policies for what a role may patch, each with what makes it hold, for a service account of a namespace.
pub(super) fn policies(role: &str, account: &str, namespace: &str, grants: &[Grant]) -> Vec<Value> {
    let may_patch = |resource: &str, is_ours: fn(&Grant) -> bool| {
        let mut grants = grants.iter().filter(|grant| is_ours(grant));
        grants.any(|grant| {
            grant.rule.verbs.contains(&"patch") && grant.rule.resources.contains(&resource)
        })
    };
    let everywhere = |grant: &Grant| grant.rule.reach == Reach::Cluster;
    let mut policies = Vec::new();
    let mut add = |what: &str, constraint: Value, validations: Value| {
        // Policies have no namespace.
        let name = format!("{account}-{role}-{what}.{namespace}");
        let user = format!("system:serviceaccount:{namespace}:{account}");
        policies.extend(policy(&name, &user, &constraint, &validations));
    };
    if may_patch("pods", everywhere) {
        let spec = "object.spec == oldObject.spec";
        let message = "Longshore changes labels, annotations and finalizers of pods, and nothing of their spec";
        let validation = json!({"expression": spec, "message": message});
        add("pods", updates("pods"), json!([validation]));
    }
    if may_patch("pods/status", everywhere) {
        let same = |field: &str| format!("object.status.?{field} == oldObject.status.?{field}");
        let fields = ["phase", "podIP", "podIPs", "hostIP", "containerStatuses"];
        let expression = fields.map(same).join(" && ");
        let message =
            "Longshore changes conditions of pods, and nothing else of what their nodes say";
        let validation = json!({"expression": expression, "message": message});
        add("status", updates("pods/status"), json!([validation]));
    }
    if may_patch("mutatingwebhookconfigurations", everywhere) {
        let of_webhooks = json!({
            "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            "scope": "Cluster",
        });
        add("webhooks", of_webhooks, webhooks(namespace));
    }
    policies
}

/// A policy for what a user does, and the binding without which it does not hold.
fn policy(name: &str, user: &str, constraint: &Value, validations: &Value) -> [Value; 2] {
    [
        json!({
            "apiVersion": API_VERSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConditions": [{
                    "name": "from-longshore",
                    "expression": format!("request.userInfo.username == {user:?}"),
                }],
                "matchConstraints": {"resourceRules": [constraint]},
                "validations": validations,
            },
        }),
        json!({
            "apiVersion": API_VERSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

fn updates(resource: &str) -> Value {
    json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": [resource], "scope": "Namespaced",
    })
}

/// Our webhooks are asked about pods and PodTransitionRules, behind a Service of our namespace or on the machine of the
/// API server.
fn webhooks(namespace: &str) -> Value {
    let resources = ["pods", "pods/status", "pods/eviction", "podtransitionrules"];
    let asked = format!(
        "!has(object.webhooks) || object.webhooks.all(w, w.rules.all(r, \
         r.apiGroups.all(g, g in ['', 'apps.kusionstack.io']) && r.resources.all(it, it in {resources:?})))"
    );
    let answering = format!(
        "!has(object.webhooks) || object.webhooks.all(w, has(w.clientConfig.service) \
         ? w.clientConfig.service.namespace == {namespace:?} : w.clientConfig.url.startsWith('https://127.0.0.1:'))"
    );
    json!([
        {"expression": asked, "message": "the webhooks of Longshore are asked about pods and PodTransitionRules only"},
        {"expression": answering, "message": "the webhooks of Longshore are behind a Service of its own namespace"},
    ])
}
