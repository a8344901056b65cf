//! What each role leaves behind, in the order in which the command removes it; and the rights that this needs.

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use longshore_api::{
    flink::{FINALIZER_DEPLOYMENT, FINALIZER_SESSION_JOB, FINALIZER_STATE_SNAPSHOT},
    flyte::{FINALIZER_PLUGIN, FINALIZER_RESOURCE, LABEL_MANAGED, TRUE, TaskActionStatus},
    podops::{EVICTION_POLICY, FINALIZER_PROTECTED},
};
use longshore_core::{ObjectRef, Patch, PatchKind, Resource, Scope};
use longshore_flink::{FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_STATE_SNAPSHOT};
use longshore_kit::lease::LEASE;
use longshore_plugins::{Config, Registry, TASK_ACTION};
use longshore_podops::{
    leave,
    model::Pod,
    rule::{RULE, Rule as TransitionRule},
    webhooks,
};
use longshore_tasks::WebhookSettings;
use serde_json::{Value, json};

use super::{Mode, Verb, mark, sweep::Sweep};
use crate::controller::roles::Role;

const REGISTRATION: &str = "admissionregistration.k8s.io";

/// One step.
#[derive(Debug)]
pub(super) enum Step {
    /// Deletes objects.
    Delete {
        what: String,
        targets: Vec<ObjectRef>,
    },
    /// Stops the controllers.
    Mark,
    /// Removes finalizers, labels or gates from objects.
    Sweep(Sweep),
}

impl Step {
    /// What the step does with its objects.
    pub(super) fn verb(&self) -> Verb {
        match self {
            Self::Delete { .. } => Verb::Delete,
            Self::Mark => Verb::Set,
            Self::Sweep(_) => Verb::Release,
        }
    }
}

const fn registered(kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: REGISTRATION,
        version: "v1",
        kind,
        plural,
        scope: Scope::Cluster,
    }
}

const MUTATING: Resource = registered(
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
const VALIDATING: Resource = registered(
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
pub(super) const BINDING: Resource = registered(
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
);
pub(super) const POLICY: Resource =
    registered("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
const SECRET: Resource = Resource {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    scope: Scope::Namespaced,
};

/// The resources of the role `flink`.
pub(super) const FLINK_KINDS: [Resource; 3] =
    [FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_STATE_SNAPSHOT];

/// The steps of a role.
pub(super) fn of(role: &Role, namespace: &str, webhook: &WebhookSettings) -> Vec<Step> {
    match role.name {
        "podops" => podops(namespace),
        "webhook" => secrets(namespace, webhook),
        "tasks" => tasks(namespace),
        "flink" => flink(namespace),
        _ => vec![Step::Mark],
    }
}

/// The objects that refuse requests go before the mark, and once more after it: a controller may have made them again.
fn podops(namespace: &str) -> Vec<Step> {
    let refusing = || {
        delete(
            "objects that refuse requests",
            vec![
                named(BINDING, "", EVICTION_POLICY),
                named(POLICY, "", EVICTION_POLICY),
                named(MUTATING, "", webhooks::MUTATING),
                named(VALIDATING, "", webhooks::VALIDATING),
            ],
        )
    };
    vec![
        refusing(),
        Step::Mark,
        refusing(),
        Step::Sweep(Sweep {
            what: "pods with our labels, finalizer or closed gate".to_owned(),
            resource: Resource::POD,
            namespace: None,
            labels: None,
            due: Box::new(|pod, now| match Pod::of(pod) {
                Ok(pod) => leave::of_pod(&pod, now).patches,
                Err(_) => Vec::new(),
            }),
        }),
        Step::Sweep(Sweep {
            what: "PodTransitionRules with our finalizer".to_owned(),
            resource: RULE,
            namespace: None,
            labels: None,
            due: Box::new(|rule, _| match TransitionRule::of(rule) {
                Ok(rule) => leave::of_rule(&rule).into_iter().collect(),
                // A rule that cannot be read has the finalizer as well.
                Err(_) => without(RULE, FINALIZER_PROTECTED, rule),
            }),
        }),
        delete(
            "certificates",
            vec![named(SECRET, namespace, webhooks::SECRET)],
        ),
    ]
}

fn secrets(namespace: &str, webhook: &WebhookSettings) -> Vec<Step> {
    let refusing = || {
        delete(
            "objects that refuse requests",
            vec![named(MUTATING, "", &webhook.service_name)],
        )
    };
    let certificates = vec![named(SECRET, namespace, &webhook.secret_name)];
    vec![
        refusing(),
        Step::Mark,
        refusing(),
        delete("certificates", certificates),
    ]
}

fn tasks(namespace: &str) -> Vec<Step> {
    let mut steps = vec![
        Step::Mark,
        Step::Sweep(Sweep {
            what: "TaskActions with our finalizer".to_owned(),
            resource: TASK_ACTION,
            namespace: Some(namespace.to_owned()),
            labels: None,
            due: Box::new(|action, _| without(TASK_ACTION, FINALIZER_PLUGIN, action)),
        }),
    ];
    let mut made = vec![Resource::POD];
    made.extend(
        Registry::new(&Config::default())
            .iter()
            .flat_map(Registry::resources),
    );
    made.sort();
    made.dedup();
    for resource in made {
        let plural = resource.plural;
        steps.push(Step::Sweep(Sweep {
            what: format!("{plural} of tasks with our finalizer"),
            resource,
            namespace: Some(namespace.to_owned()),
            labels: Some(format!("{LABEL_MANAGED}={TRUE}")),
            due: Box::new(move |object, _| without(resource, FINALIZER_RESOURCE, object)),
        }));
    }
    steps
}

/// Jobs run on. Another operator puts its finalizers on again, which have the same names.
fn flink(namespace: &str) -> Vec<Step> {
    let finalizers = [
        FINALIZER_DEPLOYMENT,
        FINALIZER_SESSION_JOB,
        FINALIZER_STATE_SNAPSHOT,
    ];
    let mut steps = vec![Step::Mark];
    for (resource, finalizer) in FLINK_KINDS.into_iter().zip(finalizers) {
        steps.push(Step::Sweep(Sweep {
            what: format!("{}s with our finalizer", resource.kind),
            resource,
            namespace: Some(namespace.to_owned()),
            labels: None,
            due: Box::new(move |object, _| without(resource, finalizer, object)),
        }));
    }
    steps
}

fn delete(what: &str, targets: Vec<ObjectRef>) -> Step {
    Step::Delete {
        what: what.to_owned(),
        targets,
    }
}

pub(super) fn named(resource: Resource, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: None,
    }
}

/// The removal of a finalizer, upon the version that was seen.
fn without(resource: Resource, finalizer: &str, object: &Value) -> Vec<Patch> {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let mut kept = metadata["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let n = kept.len();
    kept.retain(|found| found != finalizer);
    if kept.len() == n {
        return Vec::new();
    }
    vec![Patch {
        target: ObjectRef {
            uid: Some(text("uid")),
            ..named(resource, &text("namespace"), &text("name"))
        },
        subresource: None,
        kind: PatchKind::Merge,
        patch: json!({"metadata": {
            "finalizers": kept, "resourceVersion": metadata["resourceVersion"],
        }}),
    }]
}

/// Whether a TaskAction has ended.
pub(super) fn has_ended(action: &Value) -> bool {
    let status = TaskActionStatus::of(action);
    status.is_ok_and(|status| status.is_terminal())
}

/// The webhook configurations that these steps delete.
pub(super) fn configurations(steps: &[Step]) -> Vec<ObjectRef> {
    let mut found: Vec<ObjectRef> = Vec::new();
    for step in steps {
        let Step::Delete { targets, .. } = step else {
            continue;
        };
        for target in targets {
            let is_configuration = [MUTATING, VALIDATING].contains(&target.resource);
            if is_configuration && !found.contains(target) {
                found.push(target.clone());
            }
        }
    }
    found
}

/// What these steps ask of the Kubernetes API, each right once: some steps are taken twice. An undo takes none of them:
/// it reads and deletes the Lease.
pub(super) fn rights(
    steps: &[Step],
    role: &Role,
    namespace: &str,
    mode: Mode,
) -> Vec<ResourceAttributes> {
    let lease = mark::target(namespace, role);
    if mode == Mode::Undo {
        return of_object(&lease, &["get", "delete"]);
    }
    let is_real = mode == Mode::Real;
    let mut rights = Vec::new();
    for step in steps {
        match step {
            Step::Delete { targets, .. } => {
                let verbs: &[&str] = if is_real {
                    &["get", "delete"]
                } else {
                    &["get"]
                };
                for target in targets {
                    rights.extend(of_object(target, verbs));
                }
            }
            Step::Mark => {
                let verbs: &[&str] = if is_real { &["get", "patch"] } else { &["get"] };
                rights.extend(of_object(&lease, verbs));
                // RBAC knows no name of what is created.
                if is_real {
                    rights.push(right(LEASE, Some(namespace), "create"));
                }
            }
            Step::Sweep(sweep) => {
                let of_sweep = |verb| right(sweep.resource, sweep.namespace.as_deref(), verb);
                rights.push(of_sweep("list"));
                if is_real {
                    rights.push(of_sweep("patch"));
                }
                if is_real && sweep.namespace.is_none() && sweep.resource == Resource::POD {
                    rights.push(ResourceAttributes {
                        subresource: Some("status".to_owned()),
                        ..of_sweep("patch")
                    });
                }
            }
        }
    }
    let mut distinct: Vec<ResourceAttributes> = Vec::new();
    for right in rights {
        if !distinct.contains(&right) {
            distinct.push(right);
        }
    }
    distinct
}

/// Rights on one object.
fn of_object(target: &ObjectRef, verbs: &[&str]) -> Vec<ResourceAttributes> {
    let all = verbs.iter().map(|verb| ResourceAttributes {
        name: Some(target.name.clone()),
        ..right(target.resource, Some(&target.namespace), verb)
    });
    all.collect()
}

fn right(resource: Resource, namespace: Option<&str>, verb: &str) -> ResourceAttributes {
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    ResourceAttributes {
        group: Some(resource.group.to_owned()),
        namespace: namespace.map(str::to_owned),
        resource: Some(resource.plural.to_owned()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::roles::ROLES;

    #[test]
    fn what_refuses_requests_goes_first_and_a_dry_run_needs_no_right_to_write() {
        for role in ROLES {
            let steps = of(role, "longshore", &WebhookSettings::default());
            let marked = steps.iter().position(|step| matches!(step, Step::Mark));
            let marked = marked.unwrap_or_else(|| panic!("{}: no mark", role.name));
            let before = &steps[..marked];
            assert!(
                before
                    .iter()
                    .all(|step| matches!(step, Step::Delete { .. })),
                "{}: {before:?}",
                role.name
            );
            for right in rights(&steps, role, "longshore", Mode::DryRun) {
                let verb = right.verb.unwrap();
                assert!(["get", "list"].contains(&verb.as_str()), "{verb}");
            }
        }
    }

    #[test]
    fn each_right_is_asked_for_once() {
        for role in ROLES {
            for mode in [Mode::DryRun, Mode::Real, Mode::Undo] {
                let steps = of(role, "longshore", &WebhookSettings::default());
                let rights = rights(&steps, role, "longshore", mode);
                for (n, right) in rights.iter().enumerate() {
                    assert!(!rights[..n].contains(right), "{}: {right:?}", role.name);
                }
            }
        }
    }

    #[test]
    fn an_undo_needs_two_rights_on_the_lease_of_the_role_and_no_others() {
        for role in ROLES {
            let steps = of(role, "longshore", &WebhookSettings::default());
            let rights = rights(&steps, role, "longshore", Mode::Undo);
            let texts: Vec<String> = rights
                .into_iter()
                .map(|right| {
                    let texts = [right.verb, right.resource, right.namespace, right.name];
                    texts.map(Option::unwrap).join(" ")
                })
                .collect();
            let of_lease = |verb| format!("{verb} leases longshore {}", role.mark);
            assert_eq!(texts, [of_lease("get"), of_lease("delete")]);
        }
    }

    #[test]
    fn only_the_roles_with_webhooks_have_configurations_of_the_whole_cluster() {
        let n = |name: &str| {
            let role = ROLES.iter().find(|role| role.name == name).unwrap();
            configurations(&of(role, "longshore", &WebhookSettings::default())).len()
        };
        let all = ["podops", "webhook", "tasks", "dags", "flink"].map(n);
        assert_eq!(all, [2, 1, 0, 0, 0]);
    }

    #[test]
    fn a_finalizer_of_ours_is_removed_and_those_of_others_stay() {
        let object = json!({"metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3",
            "finalizers": ["x/y", FINALIZER_PLUGIN],
        }});
        let due = without(TASK_ACTION, FINALIZER_PLUGIN, &object);
        assert_eq!(
            due[0].patch,
            json!({"metadata": {"finalizers": ["x/y"], "resourceVersion": "3"}})
        );
        assert!(without(TASK_ACTION, FINALIZER_RESOURCE, &object).is_empty());
    }
}
