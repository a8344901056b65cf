//! Protected pods that are deleted: each delete becomes an operation, against a bare client that makes the same four
//! writes of a pod.

mod board;
mod floor;
mod going;
mod node;
mod replay;
mod rules;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, POD_TRANSITION_RULE_CRD};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Common,
    definitions::install,
    figures::{Times, round},
    rig::Rig,
    say,
    spent::Spent,
    subject::Subject,
};
use board::Board;
use floor::Floor;
use node::{Node, PLAYED};

/// Requests of the driver at the same time.
const CLIENTS: usize = 32;
/// Pods that one client deletes one after the other: enough for a 99th percentile.
const N_ONE_CLIENT: usize = 100;
/// Clients that delete at the same time.
const MANY_CLIENTS: usize = 8;
/// Both configurations have this name of Kuperator's, and end as this says.
const CONFIGURATIONS: [(&str, &str); 2] = [
    (
        "MutatingWebhookConfiguration",
        "kusionstack-controller-manager-mutating",
    ),
    (
        "ValidatingWebhookConfiguration",
        "kusionstack-controller-manager-validating",
    ),
];
/// Pause between two checks whether an API server knows the webhooks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The longest time until an API server knows the webhooks.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures the controller, then the floor. The controller has so many rules beside the pods.
pub(crate) async fn measure(rig: &Rig, common: &Common, n_rules: usize) -> Result<Value> {
    install(&rig.client, POD_TRANSITION_RULE_CRD).await?;
    let node = Node::start(&rig.client, format!("{}-played", rig.namespace)).await?;
    let board = Board::follow(rig, &node);
    let gates = ["--feature-gates", "GraceDeleteWebhook=true"];
    let address = ["--webhook-address", "127.0.0.1:0"];
    let subject = Subject::of(common, "podops", rig, &[gates, address].concat()).await?;
    let pods = Pods {
        n_groups: n_rules,
        ..Pods::new(&rig.client, &rig.namespace, &board, &node)
    };
    let measured = measure_subject(rig, common.n, &pods, &subject).await;
    subject.stop().await?;
    if !common.external {
        // The controller has stopped, and a server that stays would call its webhooks in vain.
        forget_webhooks(&rig.client).await?;
    }
    let mut figures = measured?;
    say("the floor");
    let floor = Floor { pods: &pods };
    floor.all_at_once(1, "fw").await?;
    let took = floor.all_at_once(common.n, "f").await?;
    node.leave().await?;
    figures["floor_seconds"] = json!(seconds(took));
    figures["ratio"] = json!(ratio(&figures));
    Ok(figures)
}

/// How much faster the floor is; as elsewhere, 1 is as fast.
fn ratio(figures: &Value) -> Option<f64> {
    Some(round(
        figures["floor_seconds"].as_f64()? / figures["seconds"].as_f64()?,
    ))
}

async fn measure_subject(rig: &Rig, n: usize, pods: &Pods<'_>, subject: &Subject) -> Result<Value> {
    pods.until_protected().await?;
    let n_rules = pods.n_groups;
    if n_rules > 0 {
        say(&format!("{n_rules} rules"));
        rules::create(rig, n_rules).await?;
    }
    // Until the first ones have gone, a controller still lists and connects.
    pods.delete("w", CLIENTS, CLIENTS).await?;
    say("deletes of one client, each when the pod before has gone");
    let unloaded = pods.one_by_one("u", N_ONE_CLIENT).await?;
    say("deletes of one client, each when the one before was answered");
    let one = pods.delete("o", N_ONE_CLIENT, 1).await?;
    say(&format!("deletes of {MANY_CLIENTS} clients"));
    let many = pods.delete("m", n, MANY_CLIENTS).await?;
    say(&format!("{n} pods at once"));
    let began = Instant::now();
    pods.serve("s", n).await?;
    let served = began.elapsed();
    let before = Spent::of(subject).await?;
    let at_once = pods.delete_serving("s", n, CLIENTS).await?;
    let after = Spent::of(subject).await?;
    say(&format!("a namespace of {n} pods goes"));
    let going = going::measure(rig, pods, n).await?;
    say("recorded requests");
    let replayed = replay::measure(rig).await?;
    Ok(json!({
        // Their figures do not compare.
        "subsystem": if n_rules == 0 { "podops" } else { "podops-rules" },
        "server": rig.server,
        "n": n,
        "rules": n_rules,
        "serve_seconds": seconds(served),
        "seconds": seconds(at_once.took),
        "delete_ms": {
            "unloaded": unloaded.milliseconds(),
            "one_client": one.answers.milliseconds(),
            "eight_clients": many.answers.milliseconds(),
            "at_once": at_once.answers.milliseconds(),
        },
        "namespace": going,
        "webhook_ms": replayed,
        "requests_per_pod": after.requests_each(&before, n),
        "cpu_ms_per_pod": after.cpu_ms_each(&before, n),
        "peak_rss_mib": subject.peak_mib()?.map(round),
    }))
}

fn seconds(took: Duration) -> f64 {
    round(took.as_secs_f64())
}

/// The pods of a namespace.
struct Pods<'a> {
    api: Api<Pod>,
    board: &'a Board,
    node: &'a str,
    /// Into so many groups they are divided, each with a rule of its own.
    n_groups: usize,
}

/// The measured times of deletes.
struct Deleted {
    /// From the first delete to the end of the last pod.
    took: Duration,
    /// From a delete to its answer.
    answers: Times,
}

impl<'a> Pods<'a> {
    fn new(client: &Client, namespace: &str, board: &'a Board, node: &'a Node) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            board,
            node: node.name(),
            n_groups: 0,
        }
    }

    /// Waits until the API server creates no more pods without calling the webhooks: it learns of them some time after
    /// the controller is ready.
    async fn until_protected(&self) -> Result<()> {
        let probe = async {
            for i in 0.. {
                let name = name("probe", i);
                // As long as API servers do not trust the webhooks, every create is refused.
                if let Ok(made) = self.create(&name, CONTROLLED).await {
                    let gates = made.spec.and_then(|spec| spec.readiness_gates);
                    if gates.is_some() {
                        self.board.until_serving(&name, 1).await?;
                        self.answered(name.clone()).await?;
                        self.board.until_gone(&name, 1).await?;
                        break;
                    }
                    // It may stay where it is refused now.
                    let at_once = DeleteParams::default().grace_period(0);
                    let _ = self.api.delete(&name, &at_once).await;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(PATIENCE, probe).await {
            Ok(probed) => probed,
            Err(_) => bail!("expected webhooks that give pods their gate, found none in time"),
        }
    }

    /// Makes pods that take part, and waits until they serve.
    async fn serve(&self, series: &str, n: usize) -> Result<()> {
        self.serve_as(CONTROLLED, series, n).await
    }

    async fn serve_as(&self, control: &str, series: &str, n: usize) -> Result<()> {
        stream::iter((0..n).map(Ok))
            .try_for_each_concurrent(CLIENTS, |i| async move {
                self.create_in(&self.group(i), &name(series, i), control)
                    .await
                    .map(drop)
            })
            .await?;
        self.board.until_serving(series, n).await
    }

    /// Makes a pod of the node, which takes part where `control` says so.
    async fn create(&self, name: &str, control: &str) -> Result<Pod> {
        self.create_in("none", name, control).await
    }

    /// The group of a pod of this number.
    fn group(&self, i: usize) -> String {
        match i.checked_rem(self.n_groups) {
            Some(group) => group.to_string(),
            None => "none".to_owned(),
        }
    }

    async fn create_in(&self, group: &str, name: &str, control: &str) -> Result<Pod> {
        let labels = json!({LABEL_CONTROL: control, PLAYED: self.node, rules::GROUP: group});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "nodeName": self.node,
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "example.test/image:1"}],
            },
        }))?;
        Ok(self.api.create(&PostParams::default(), &pod).await?)
    }

    /// Deletes pods while nothing else goes on.
    async fn one_by_one(&self, series: &str, n: usize) -> Result<Times> {
        self.serve(series, n).await?;
        let mut answers = Times::default();
        for i in 0..n {
            answers.push(self.answered(name(series, i)).await?);
            self.board.until_gone(series, i + 1).await?;
        }
        Ok(answers)
    }

    async fn delete(&self, series: &str, n: usize, clients: usize) -> Result<Deleted> {
        self.serve(series, n).await?;
        self.delete_serving(series, n, clients).await
    }

    /// Deletes pods that serve, with this number of clients.
    async fn delete_serving(&self, series: &str, n: usize, clients: usize) -> Result<Deleted> {
        let began = Instant::now();
        let taken: Vec<Duration> = stream::iter(0..n)
            .map(|i| self.answered(name(series, i)))
            .buffer_unordered(clients)
            .try_collect()
            .await?;
        let last = self.board.until_gone(series, n).await?;
        let mut answers = Times::default();
        taken.into_iter().for_each(|time| answers.push(time));
        Ok(Deleted {
            took: last.duration_since(began),
            answers,
        })
    }

    /// Deletes a pod. Returns how long the answer took: a refusal (403), or an allowed delete. The API server calls the
    /// webhook a second time when the first call has changed the pod, and the pod may go by then.
    async fn answered(&self, name: String) -> Result<Duration> {
        let asked_at = Instant::now();
        let answer = self.api.delete(&name, &DeleteParams::default()).await;
        let took = asked_at.elapsed();
        match answer {
            Ok(_) => Ok(took),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(took),
            Err(error) => Err(error.into()),
        }
    }
}

fn name(series: &str, i: usize) -> String {
    format!("{series}-{i:05}")
}

fn configurations(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

async fn forget_webhooks(client: &Client) -> Result<()> {
    for (kind, name) in CONFIGURATIONS {
        let deleted = configurations(client, kind)
            .delete(name, &DeleteParams::default())
            .await;
        match deleted {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other.with_context(|| format!("{name} cannot be deleted"))?),
        }
    }
    Ok(())
}
