//! The workloads: each with a Service, and with the budget and the rule under which it is drained.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use kube::Client;
use longshore_api::podops::{ANNOTATION_DRAIN_DELAY, ID_POD_DELETE, LABEL_CONTROL, OperationLabel};
use longshore_test::HttpAnswers;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::{
    super::{
        http::{self, Asked},
        kubelet::PLAYED,
        place::Place,
    },
    sampler::Record,
};

/// The workload whose pods need an approval.
const APPROVED: &str = "approved";
/// Two Deployments under one budget: one has pods with the label, the other one pods without it.
const MIXED: &str = "mixed";
/// The label of the pods that are under one budget: the name of what has that budget.
pub(super) const GROUP: &str = "group";
/// Pause between two lists of the pods that wait for approval.
const LOOK: Duration = Duration::from_millis(300);

/// What keeps the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deployment,
    /// One pod after the other.
    StatefulSet,
    /// All at once.
    ParallelStatefulSet,
    /// Other workloads: there is a Service and a budget over the pods of all of them.
    Others,
}

/// A workload with its Service. The budget and the rule are about its pods alone, except those of
/// [`Others`](Kind::Others).
#[derive(Clone)]
pub(super) struct Workload {
    /// Also of its Service, its budget and its rule, and the label `app` of its pods.
    pub(super) name: &'static str,
    /// Whose budget its pods are under; `None`: its own one.
    group: Option<&'static str>,
    kind: Kind,
    pub(super) replicas: usize,
    takes_part: bool,
    budget: Option<Value>,
    rule: Option<Value>,
    /// So many of its endpoints are ready at any time.
    pub(super) floor: usize,
}

/// All workloads. `hook` is the URL of the webhook of a rule.
pub(super) fn all(hook: &str) -> Vec<Workload> {
    let available = |policy: Value| Some(json!({"name": "available", "availablePolicy": policy}));
    vec![
        Workload {
            budget: Some(json!({"minAvailable": 2})),
            ..controlled("number", Kind::Deployment, 3, 2)
        },
        Workload {
            budget: Some(json!({"minAvailable": "50%"})),
            ..controlled("percent", Kind::Deployment, 4, 2)
        },
        Workload {
            budget: Some(json!({"maxUnavailable": 1})),
            ..controlled("set", Kind::StatefulSet, 3, 2)
        },
        Workload {
            budget: Some(json!({"maxUnavailable": 2})),
            rule: available(json!({"maxUnavailableValue": 1})),
            ..controlled("both", Kind::Deployment, 3, 2)
        },
        Workload {
            rule: available(json!({"maxUnavailableValue": 1})),
            ..controlled("ruled", Kind::ParallelStatefulSet, 3, 2)
        },
        Workload {
            rule: available(json!({"minAvailableValue": "50%"})),
            ..controlled("least", Kind::Deployment, 4, 2)
        },
        Workload {
            budget: Some(json!({"maxUnavailable": 1})),
            rule: Some(json!({
                "name": "approval",
                "labelCheck": {"requires": {"matchLabels": {"approved": "yes"}}},
            })),
            ..controlled(APPROVED, Kind::Deployment, 2, 1)
        },
        Workload {
            budget: Some(json!({"minAvailable": 1})),
            rule: Some(json!({"name": "hook", "webhook": {"clientConfig": {"url": hook}}})),
            ..controlled("asked", Kind::Deployment, 2, 1)
        },
        controlled("free", Kind::Deployment, 2, 0),
        Workload {
            budget: Some(json!({"minAvailable": 2})),
            takes_part: false,
            ..controlled("plain", Kind::Deployment, 3, 2)
        },
    ]
    .into_iter()
    .chain(mixed())
    .collect()
}

/// A budget over two Deployments: the controller evicts the pods of one, and the API server those of the other one.
fn mixed() -> [Workload; 3] {
    [
        Workload {
            group: Some(MIXED),
            ..controlled("with-label", Kind::Deployment, 4, 0)
        },
        Workload {
            group: Some(MIXED),
            takes_part: false,
            ..controlled("without-label", Kind::Deployment, 4, 0)
        },
        Workload {
            budget: Some(json!({"maxUnavailable": 1})),
            ..controlled(MIXED, Kind::Others, 8, 7)
        },
    ]
}

/// A workload of pods that take part, without a budget and a rule.
fn controlled(name: &'static str, kind: Kind, replicas: usize, floor: usize) -> Workload {
    Workload {
        name,
        group: None,
        kind,
        replicas,
        takes_part: true,
        budget: None,
        rule: None,
        floor,
    }
}

impl Workload {
    /// Makes all of it.
    pub(super) async fn create(&self, place: &Place<'_>, drain_delay: Duration) {
        let name = self.name;
        let namespace = &place.namespace;
        let labels = match self.kind {
            Kind::Others => json!({GROUP: name}),
            Kind::Deployment | Kind::StatefulSet | Kind::ParallelStatefulSet => {
                json!({"app": name})
            }
        };
        let selector = json!({"matchLabels": labels});
        let delay = format!("{}ms", drain_delay.as_millis());
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "annotations": {ANNOTATION_DRAIN_DELAY: delay}},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        });
        create(place, &place.core("services"), service).await;
        if let Some(budget) = &self.budget {
            let mut spec = budget.clone();
            spec["selector"] = selector.clone();
            let object = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": name}, "spec": spec,
            });
            let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
            create(place, &path, object).await;
        }
        if let Some(rule) = &self.rule {
            let object = json!({
                "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
                "metadata": {"name": name}, "spec": {"selector": selector, "rules": [rule]},
            });
            create(place, &place.rules(""), object).await;
        }
        let (kind, plural) = match self.kind {
            Kind::Deployment => ("Deployment", "deployments"),
            Kind::StatefulSet | Kind::ParallelStatefulSet => ("StatefulSet", "statefulsets"),
            Kind::Others => return,
        };
        let mut spec = json!({
            "replicas": self.replicas, "selector": selector, "template": self.template(place),
        });
        if kind == "StatefulSet" {
            spec["serviceName"] = json!(name);
        }
        if self.kind == Kind::ParallelStatefulSet {
            spec["podManagementPolicy"] = json!("Parallel");
        }
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        create(place, &place.apps(plural), object).await;
    }

    fn template(&self, place: &Place<'_>) -> Value {
        let mut labels = place.world.labels();
        labels["app"] = json!(self.name);
        labels[GROUP] = json!(self.group.unwrap_or(self.name));
        let mut spec = place.world.spec();
        spec["nodeSelector"] = json!({PLAYED: labels[PLAYED]});
        if !self.takes_part {
            labels.as_object_mut().unwrap().remove(LABEL_CONTROL);
        }
        json!({"metadata": {"labels": labels}, "spec": spec})
    }

    /// What it is, and how it fared.
    pub(super) fn to_value(&self, record: &Record) -> Value {
        let kind = match self.kind {
            Kind::Deployment => "Deployment",
            Kind::StatefulSet => "StatefulSet",
            Kind::ParallelStatefulSet => "StatefulSet, parallel",
            Kind::Others => "two Deployments, of which one has the label",
        };
        json!({
            "name": self.name, "kind": kind, "replicas": self.replicas, "labelled": self.takes_part,
            "budget": self.budget, "rule": self.rule, "floor": self.floor,
            "lowest": record.lowest(self.name), "samples_below": record.n_below(self.name),
        })
    }
}

async fn create(place: &Place<'_>, path: &str, object: Value) {
    http::create(place.client(), path, &object).await.unwrap();
}

/// The webhook and the approver that the rules of the workloads wait for.
pub(super) struct Helpers {
    hook: HttpAnswers,
    approving: AbortHandle,
}

impl Helpers {
    pub(super) async fn start(place: &Place<'_>) -> Self {
        let n_asked = AtomicU64::new(0);
        let hook = HttpAnswers::start(move |_| {
            let passes = !n_asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
            (200, json!({"success": passes, "message": "not now"}))
        });
        let approving = approve(place.client().clone(), place.namespace.clone());
        Self {
            hook: hook.await.unwrap(),
            approving: tokio::spawn(approving).abort_handle(),
        }
    }

    pub(super) fn url(&self) -> String {
        self.hook.url()
    }

    /// Stops them; returns the number of requests to the webhook.
    pub(super) async fn end(self) -> usize {
        self.approving.abort();
        let n_asked = self.hook.asked().len();
        self.hook.stop().await;
        n_asked
    }
}

/// Approves of every pod that waits for it.
async fn approve(client: Client, namespace: String) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let waiting = OperationLabel::PreCheck.of(ID_POD_DELETE);
    let approval = json!({"metadata": {"labels": {"approved": "yes"}}});
    loop {
        let path = format!("{pods}?labelSelector=app={APPROVED},{waiting}");
        let list = http::get(&client, &path).await.unwrap_or_default();
        for pod in list["items"].as_array().into_iter().flatten() {
            let path = format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap());
            // While no webhook answers the API server, it refuses this patch; the next pass repeats it.
            let _ = http::patch(&client, &path, Asked::Merge, &approval).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}
