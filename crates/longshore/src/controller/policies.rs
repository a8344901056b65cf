//! What RBAC cannot say: which parts of an object a role may change. Policies of the API server itself say it.
//!
//! Whoever may patch pods may change their images, and whoever may patch a webhook configuration decides what is asked
//! of whom: both are ways to every right of the cluster. A `ValidatingAdmissionPolicy` is followed by API servers since
//! 1.30, needs no webhook, and holds only for the service account that it names.

use longshore_api::podops::{CONTROLLED, LABEL_CONTROL};
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
        add("pods", updates("pods"), pods());
        let mut deletes = updates("pods");
        deletes["operations"] = json!(["DELETE"]);
        // Other roles, which may have the same account, delete pods of this namespace that they have created.
        let expression = format!(
            "request.namespace == {namespace:?} || {}",
            takes_part("oldObject")
        );
        let message = format!("Longshore deletes only pods with the label {LABEL_CONTROL}");
        let validation = json!({"expression": expression, "message": message});
        add("deletes", deletes, json!([validation]));
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

/// Whether a pod has the label with which its owner lets Longshore operate on it, as an expression.
fn takes_part(object: &str) -> String {
    format!("{object}.metadata.?labels[?{LABEL_CONTROL:?}].orValue('') == {CONTROLLED:?}")
}

/// What may be changed of pods. A user who may give pods the label may delete all of them.
fn pods() -> Value {
    let takes_part = format!("!({}) || {}", takes_part("object"), takes_part("oldObject"));
    json!([
        {
            "expression": "object.spec == oldObject.spec",
            "message": "Longshore changes labels, annotations and finalizers of pods, and nothing of their spec",
        },
        {
            "expression": takes_part,
            "message": format!("Longshore gives no pod the label {LABEL_CONTROL}"),
        },
    ])
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
