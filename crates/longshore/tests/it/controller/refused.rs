//! Pods of actions that an API server does not make or delete, because a webhook of somebody else is down: the action, an
//! Event and `longshore actions get` quote the API server, and all goes on afterwards.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, events::v1::Event,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use longshore_api::flyte::CONDITION_WAITING;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::replica::{Plan, until};
use crate::{
    cluster::TestCluster,
    longshore, outcome,
    task_actions::{Board, PodRecord, TaskActions, action},
};

/// The action.
const HELD: &str = "held";
/// It is said within 10 s; the machine may be busy. (The stories in simulated time hold the 10 s.)
const IN_TIME: Duration = Duration::from_secs(60);
/// What API servers say of the webhook.
const QUOTE: &str = "failed calling webhook \"dead.example.test\"";

/// A webhook at which nobody listens, for this operation on the pods of a namespace.
struct Down {
    webhooks: Api<ValidatingWebhookConfiguration>,
    name: String,
}

impl Down {
    async fn begin(cluster: &TestCluster, operation: &str) -> Self {
        let name = format!("{}-{}", cluster.namespace, operation.to_lowercase());
        let webhook = json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": "dead.example.test",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation],
                    "resources": ["pods"],
                }],
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": cluster.namespace},
                },
                "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"],
            }],
        });
        let webhooks = Api::all(cluster.admin.clone());
        let webhook = serde_json::from_value(webhook).unwrap();
        let created = webhooks.create(&PostParams::default(), &webhook).await;
        created.unwrap();
        Self { webhooks, name }
    }

    async fn end(self) {
        let parameters = DeleteParams::default();
        let deleted = self.webhooks.delete(&self.name, &parameters);
        deleted.await.unwrap();
    }
}

/// What the action says of what holds it.
fn said(board: &BTreeMap<String, Value>) -> Option<&str> {
    let conditions = board.get(HELD)?["status"]["conditions"].as_array()?;
    let mut conditions = conditions.iter();
    let waiting =
        conditions.find(|it| it["type"] == CONDITION_WAITING && it["status"] == "True")?;
    waiting["message"].as_str()
}

/// Waits until the action quotes the API server after these words, and looks for the same elsewhere.
async fn is_said(cluster: &TestCluster, board: &Board, words: &str) {
    let deadline = || Instant::now() + IN_TIME;
    let quotes = |text: &str| text.contains(words) && text.contains(QUOTE);
    let holds = |board: &BTreeMap<String, Value>| said(board).is_some_and(quotes);
    board.until(words, deadline(), holds).await;
    let mut command = longshore();
    command.args(["actions", "get", HELD, "-n", &cluster.namespace]);
    command.arg("--kubeconfig").arg(cluster.admin_kubeconfig());
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!(code, 0, "{stderr}");
    assert!(quotes(&stdout), "{stdout}");
    // Events are published beside the rounds.
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), &cluster.namespace);
    let told = async {
        let is_told = |event: &Event| event.note.as_deref().is_some_and(quotes);
        let all = ListParams::default();
        while !events.list(&all).await.unwrap().iter().any(is_told) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout_at(deadline(), told).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_whose_pod_a_dead_webhook_holds_says_so_and_goes_on_afterwards() {
    let cluster = TestCluster::start().await;
    let actions = TaskActions::install(&cluster).await;
    let (record, board) = (PodRecord::start(&cluster), Board::follow(&actions));
    let mut controller = Plan::of(&cluster, "tasks").start("controller");
    until("it runs", || controller.leads()).await;
    let deadline = || Instant::now() + IN_TIME;

    let down = Down::begin(&cluster, "CREATE").await;
    actions.create(&action(HELD, 0, "run 600s exit 0")).await;
    is_said(&cluster, &board, "its resource is not created: ").await;
    assert_eq!(record.n_pods(), 0);
    down.end().await;
    let runs = |board: &BTreeMap<String, Value>| {
        let is_running = |it: &Value| it["status"]["pluginPhase"] == "PhaseRunning";
        board.get(HELD).is_some_and(is_running) && said(board).is_none()
    };
    board.until("it runs", deadline(), runs).await;
    let status = actions.get(HELD).await["status"].clone();
    assert_eq!(status["attempts"], 1, "{status}");
    assert!(status["systemFailures"].is_null(), "{status}");

    let down = Down::begin(&cluster, "DELETE").await;
    let deleted = actions.api().delete(HELD, &DeleteParams::default()).await;
    deleted.unwrap();
    let words = format!("Pod {}/{HELD}-0 is not deleted: ", cluster.namespace);
    is_said(&cluster, &board, &words).await;
    down.end().await;
    board
        .until("it is gone", deadline(), BTreeMap::is_empty)
        .await;
    record.assert_one_pod_per_launch();
    assert_eq!(record.n_launches_of_all(), 1);
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
}
