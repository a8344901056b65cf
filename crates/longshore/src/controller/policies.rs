//! Restrictions that RBAC cannot express: which parts of an object a role may change.
//! ValidatingAdmissionPolicies express them.
//!
//! An account that may patch pods may change their images. An account that may patch a webhook
//! configuration decides which server receives which requests. Both are ways to every right of the
//! cluster. API servers evaluate a `ValidatingAdmissionPolicy` since 1.30; it needs no webhook, and
//! it holds only for the service account that it names.

use longshore_api::{
    flyte::{LABEL_MANAGED, TRUE},
    podops::{CONTROLLED, GROUP, LABEL_CONTROL, VERSION},
};
use longshore_kit::{Grant, Reach};
use serde_json::{Value, json};

use super::{podops, rbac::Installation, webhook};

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// The policies for what a role may patch, each with its binding, for a service account of the installation.
pub(super) fn policies(
    role: &str,
    account: &str,
    installation: &Installation,
    grants: &[Grant],
) -> Vec<Value> {
    let namespace = installation.namespace.as_str();
    let may_patch = |resource: &str| patched(grants, resource).next().is_some();
    let mut policies = Vec::new();
    let mut add = |what: &str, constraint: Value, validations: Value| {
        // Policies have no namespace.
        let name = format!("{account}-{role}-{what}.{namespace}");
        let user = format!("system:serviceaccount:{namespace}:{account}");
        policies.extend(policy(&name, &user, &constraint, &validations));
    };
    if may_patch("pods") {
        add("pods", updates("", "v1", "pods"), pods());
        let mut deletes = updates("", "v1", "pods");
        deletes["operations"] = json!(["DELETE"]);
        add("deletes", deletes, pods_deleted(namespace));
    }
    if may_patch("pods/status") {
        add("status", updates("", "v1", "pods/status"), statuses());
    }
    if may_patch("podtransitionrules") {
        let of_rules = updates(GROUP, VERSION, "podtransitionrules");
        add("rules", of_rules, transition_rules());
    }
    if may_patch("poddisruptionbudgets/status") {
        let of_budgets = updates("policy", "v1", "poddisruptionbudgets/status");
        add("budgets", of_budgets, budgets());
    }
    if may_patch("mutatingwebhookconfigurations") {
        let named = [
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ];
        let named = named.map(|resource| patched(grants, resource));
        let names: Vec<&String> = named
            .into_iter()
            .flatten()
            .flat_map(|it| &it.names)
            .collect();
        let of_webhooks = json!({
            "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            // Another role of the same account has webhooks of its own.
            "resourceNames": names,
            "scope": "Cluster",
        });
        add("webhooks", of_webhooks, webhooks(role, installation));
    }
    policies
}

/// The grants that allow to patch a resource in the whole cluster.
fn patched<'a>(grants: &'a [Grant], resource: &'a str) -> impl Iterator<Item = &'a Grant> {
    grants.iter().filter(move |grant| {
        let rule = &grant.rule;
        rule.reach == Reach::Cluster
            && rule.verbs.contains(&"patch")
            && rule.resources.contains(&resource)
    })
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

/// The labels with which Longshore may delete a pod: its owner lets Longshore operate on it, or it is of a TaskAction.
const DELETABLE: [(&str, &str); 2] = [(LABEL_CONTROL, CONTROLLED), (LABEL_MANAGED, TRUE)];

/// Whether an object has a label with this value, as an expression.
fn has(object: &str, (label, value): (&str, &str)) -> String {
    format!("{object}.metadata.?labels[?{label:?}].orValue('') == {value:?}")
}

/// An object whose owner does not exist is deleted by the garbage collector of Kubernetes.
const SAME_OWNERS: &str = "object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences";

fn validation(expression: impl Into<String>, message: impl Into<String>) -> Value {
    json!({"expression": expression.into(), "message": message.into()})
}

/// What may be changed of pods.
fn pods() -> Value {
    json!([
        validation(
            "object.spec == oldObject.spec",
            "Longshore changes labels, annotations and finalizers of pods, and nothing of their spec",
        ),
        validation(SAME_OWNERS, "Longshore changes no owners of pods"),
        is_not_given(DELETABLE[0]),
        is_not_given(DELETABLE[1]),
    ])
}

/// Refuses writes that add a label to a pod with which Longshore may delete it: a user who may add the label may delete
/// every pod.
fn is_not_given(label: (&str, &str)) -> Value {
    validation(
        format!("!({}) || {}", has("object", label), has("oldObject", label)),
        format!("Longshore gives no pod the label {}", label.0),
    )
}

/// Which pods may be deleted.
fn pods_deleted(namespace: &str) -> Value {
    // Other roles, which may have the same account, delete pods that they have created: those of DAGs are in this
    // namespace.
    let labels = DELETABLE.map(|label| has("oldObject", label)).join(" || ");
    json!([validation(
        format!("request.namespace == {namespace:?} || {labels}"),
        format!("Longshore deletes only pods with the label {LABEL_CONTROL} or {LABEL_MANAGED}"),
    )])
}

/// A status may differ in these fields only.
fn same_status_but(fields: &[&str]) -> String {
    // The other fields are not listed, because each version of Kubernetes has others. `dyn` lets an expression iterate
    // over the fields of an object.
    let (new, old) = ("dyn(object.status)", "dyn(oldObject.status)");
    let may_change = json!(fields);
    format!(
        "{new}.all(f, f in {may_change} || (f in {old} && {new}[f] == {old}[f])) \
         && {old}.all(f, f in {may_change} || f in {new})"
    )
}

/// What may be changed with the status of a pod.
fn statuses() -> Value {
    json!([
        validation(
            same_status_but(&["conditions"]),
            "Longshore changes conditions of pods, and nothing else of what their nodes say",
        ),
        // API servers take labels from a write of the status too.
        is_not_given(DELETABLE[0]),
        is_not_given(DELETABLE[1]),
    ])
}

/// How many entries of `disruptedPods` one write may add beyond those for which it takes a disruption.
const ENTRIES_ADDED: usize = 64;

/// What a role may change in the status of a disruption budget. A user who may write all of it may allow any number of
/// disruptions, and may claim that none of the evicted pods counts: only the disruption controller may do that.
///
/// The disruption controller drops an entry that is older than two minutes, and counts its pod as
/// healthy again: an entry with an early time allows a disruption, as the removal of an entry does.
/// CEL has no current time, so the policy cannot refuse an entry with a time in the future.
fn budgets() -> Value {
    let metadata = ["labels", "annotations", "finalizers", "ownerReferences"];
    let same = metadata
        .map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"))
        .join(" && ");
    let (new, old) = (
        "object.status.?disruptedPods.orValue({})",
        "oldObject.status.?disruptedPods.orValue({})",
    );
    // Times are texts here; a time of zero is null. The lists give names to both maps, so that the cost of the
    // expression does not grow with a new map for each entry.
    let kept = format!(
        "object.status.disruptionsAllowed <= oldObject.status.disruptionsAllowed && \
         [{old}].all(old, [{new}].all(new, old.all(name, name in new && (old[name] == null || \
         (new[name] != null && timestamp(new[name]) >= timestamp(old[name]))))))"
    );
    let bounded = format!(
        "size({new}) <= size({old}) + oldObject.status.disruptionsAllowed \
         - object.status.disruptionsAllowed + {ENTRIES_ADDED}"
    );
    json!([
        validation(
            format!(
                "{same} && {}",
                same_status_but(&["disruptedPods", "disruptionsAllowed"])
            ),
            "Longshore changes disruptedPods and disruptionsAllowed of disruption budgets, and no other field of them",
        ),
        validation(
            kept,
            "Longshore adds nothing to disruptionsAllowed of disruption budgets, and removes or dates back no entry of disruptedPods",
        ),
        validation(
            bounded,
            format!(
                "Longshore adds at most {ENTRIES_ADDED} entries to disruptedPods beyond the disruptions that it takes"
            ),
        ),
    ])
}

/// What may be changed of PodTransitionRules: a rule that is disabled holds no pod.
fn transition_rules() -> Value {
    json!([
        validation(
            "object.?spec == oldObject.?spec",
            "Longshore changes finalizers of PodTransitionRules, and nothing of their spec",
        ),
        validation(
            SAME_OWNERS,
            "Longshore changes no owners of PodTransitionRules"
        ),
    ])
}

fn updates(group: &str, version: &str, resource: &str) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": [version], "operations": ["UPDATE"],
        "resources": [resource], "scope": "Namespaced",
    })
}

/// The requests for which API servers may ask the webhooks of a role, as GROUP/RESOURCE/OPERATION.
fn asked_about(role: &str) -> Vec<String> {
    let pods = |operations: &[&str]| -> Vec<String> {
        operations.iter().map(|it| format!("/pods/{it}")).collect()
    };
    match role {
        webhook::ROLE => pods(&["CREATE"]),
        podops::ROLE => {
            let mut asked = pods(&["CREATE", "UPDATE", "DELETE"]);
            asked.extend(pods(&["status/UPDATE", "eviction/CREATE"]));
            let of_rules = ["CREATE", "UPDATE"];
            asked.extend(of_rules.map(|it| format!("{GROUP}/podtransitionrules/{it}")));
            asked
        }
        _ => Vec::new(),
    }
}

/// For which requests API servers ask the webhooks of a role, and where.
fn webhooks(role: &str, installation: &Installation) -> Value {
    let asked = format!(
        "!has(object.webhooks) || object.webhooks.all(w, !has(w.rules) || w.rules.all(r, \
         r.apiGroups.all(g, r.resources.all(it, r.operations.all(o, g + '/' + it + '/' + o in {:?})))))",
        asked_about(role)
    );
    let namespace = &installation.namespace;
    let behind = format!("w.clientConfig.service.namespace == {namespace:?}");
    // A webhook on its own loopback lets an API server send requests to any program that listens there. Only the
    // webhooks of podops can be reached by URL.
    let (answering, message) = if installation.webhooks_on_loopback && role == podops::ROLE {
        let url = r"w.clientConfig.url.matches('^https://(127[.]0[.]0[.]1|[[]::1[]]):[0-9]+/')";
        (
            format!("has(w.clientConfig.service) ? {behind} : {url}"),
            "the webhooks of Longshore are on loopback, or behind a Service of its own namespace",
        )
    } else {
        (
            format!("has(w.clientConfig.service) && {behind}"),
            "the webhooks of Longshore are behind a Service of its own namespace",
        )
    };
    let answering = format!("!has(object.webhooks) || object.webhooks.all(w, {answering})");
    json!([
        validation(
            asked,
            "the webhooks of Longshore are asked about what they are made for only"
        ),
        validation(answering, message),
    ])
}

#[cfg(test)]
mod tests {
    use longshore_podops::{AdmitConfig, RegistrationConfig, webhooks};
    use longshore_tasks::{WebhookSettings, secrets::SecretsWebhook};
    use longshore_webhook::Registration;

    use super::*;

    /// The requests that a registration names, as [`asked_about`] has them.
    fn registered(registration: &Registration) -> Vec<String> {
        let object = registration.object("");
        let mut registered = Vec::new();
        let texts = |value: &Value| -> Vec<String> {
            let texts = value.as_array().unwrap().iter();
            texts.map(|it| it.as_str().unwrap().to_owned()).collect()
        };
        for webhook in object["webhooks"].as_array().unwrap() {
            for rule in webhook["rules"].as_array().unwrap() {
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        let operations = texts(&rule["operations"]).into_iter();
                        registered.extend(operations.map(|it| format!("{group}/{resource}/{it}")));
                    }
                }
            }
        }
        registered
    }

    #[test]
    fn api_servers_may_ask_each_role_about_what_it_registers_and_nothing_else() {
        let admit = AdmitConfig {
            grace_delete: true,
            ..AdmitConfig::default()
        };
        let reach = webhooks::Reach::Url("https://127.0.0.1:1".to_owned());
        let of_podops = webhooks::registrations(&admit, &RegistrationConfig::default(), &reach);
        let of_webhook = [SecretsWebhook::registration(
            &WebhookSettings::default(),
            "n",
        )];
        for (role, registrations) in [
            (podops::ROLE, of_podops.as_slice()),
            (webhook::ROLE, of_webhook.as_slice()),
        ] {
            let mut registered: Vec<String> = registrations.iter().flat_map(registered).collect();
            registered.sort();
            registered.dedup();
            let mut asked = asked_about(role);
            asked.sort();
            assert_eq!(registered, asked, "{role}");
        }
    }
}
