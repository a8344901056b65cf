//! TaskActions, each with a pod that ends at once: the controller against a bare client that makes its six writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use longshore_api::flyte::{
    FINALIZER_PLUGIN, GROUP, KIND, LABEL_COMPLETED_TIME, LABEL_TERMINATION_STATUS, TASK_ACTION_CRD,
    TERMINATED, VERSION,
};
use longshore_kit::{Cache, ListWatch, Update};
use longshore_proto::flyteidl2::core::{
    Container, Identifier, TaskTemplate, task_template::Target,
};
use longshore_test::scripted_node::ANNOTATION_SCRIPT;
use prost::Message;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    Common,
    figures::{Times, per_second, round},
    rig::Rig,
    say,
    subject::Subject,
};

/// Creators at the same time.
const CREATORS: usize = 32;
/// Actions one after the other, to see what one takes when nothing else goes on.
const N_UNLOADED: usize = 20;
/// No action takes longer.
const PATIENCE: Duration = Duration::from_secs(600);

/// Measures the controller, then the floor.
pub(crate) async fn measure(rig: &Rig, common: &Common) -> Result<Value> {
    install(&rig.client).await?;
    let board = Board::follow(rig);
    let subject = if common.external {
        None
    } else {
        Some(Subject::start(common.longshore.as_deref(), "tasks", rig).await?)
    };
    say("one after the other");
    let unloaded = one_by_one(rig, &board, "u").await?;
    say(&format!("{} actions", common.n));
    let before = Spent::of(subject.as_ref()).await?;
    let loaded = all_at_once(rig, &board, "s", common.n).await?;
    let after = Spent::of(subject.as_ref()).await?;
    let spent = before.zip(after);
    let spent = spent.map(|(before, after)| after.each(&before, common.n));
    let (requests, cpu_ms) = spent.unzip();
    let peak = subject.as_ref().map(Subject::peak_mib).transpose()?;
    let pod = board.pod_of(&name("s", 0)).context("no pod was seen")?;
    let n_pods = board.n_pods("s");
    if let Some(subject) = subject {
        subject.stop().await?;
    }
    say("the floor");
    let floor = Floor {
        actions: actions(rig),
        pods: Api::namespaced(rig.client.clone(), &rig.namespace),
        board: board.clone(),
        pod: bare(&pod)?,
    };
    let floor_unloaded = floor.one_by_one().await?;
    let floor_loaded = floor.all_at_once(common.n).await?;
    let (rate, floor_rate) = (
        per_second(common.n, loaded.took),
        per_second(common.n, floor_loaded.took),
    );
    Ok(json!({
        "subsystem": "tasks",
        "server": rig.server,
        "n": common.n,
        "per_second": rate,
        "floor_per_second": floor_rate,
        "ratio": round(rate / floor_rate),
        "pods_per_action": round(n_pods as f64 / common.n as f64),
        "latency_ms": {
            "unloaded": unloaded.milliseconds(),
            "floor_unloaded": floor_unloaded.milliseconds(),
            "loaded": loaded.latency.milliseconds(),
            "floor_loaded": floor_loaded.latency.milliseconds(),
        },
        "requests_per_action": requests,
        "cpu_ms_per_action": cpu_ms,
        "peak_rss_mib": peak.map(round),
    }))
}

/// Installs the resource, and waits until it is served.
async fn install(client: &Client) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let definition: DynamicObject = serde_saphyr::from_str(TASK_ACTION_CRD)?;
    let name = definition.name_any();
    match definitions
        .create(&PostParams::default(), &definition)
        .await
    {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        other => drop(other?),
    }
    let is_established = |object: Option<&DynamicObject>| {
        let conditions = object.and_then(|object| object.data.pointer("/status/conditions"));
        let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        let mut conditions = conditions.filter(|condition| {
            condition["type"] == "Established" && condition["status"] == "True"
        });
        conditions.next().is_some()
    };
    await_condition(definitions, &name, is_established).await?;
    Ok(())
}

fn actions(rig: &Rig) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, KIND);
    Api::namespaced_with(
        rig.client.clone(),
        &rig.namespace,
        &ApiResource::from_gvk(&kind),
    )
}

fn name(series: &str, i: usize) -> String {
    format!("{series}-{i:05}")
}

/// An action whose container the node plays: it ends at once, and owes no outputs.
fn action(name: &str) -> Result<DynamicObject> {
    let template = TaskTemplate {
        id: Some(Identifier {
            project: "bench".to_owned(),
            domain: "development".to_owned(),
            name: "noop".to_owned(),
            version: "v1".to_owned(),
            ..Identifier::default()
        }),
        r#type: "container".to_owned(),
        target: Some(Target::Container(Container {
            image: "noop".to_owned(),
            command: vec!["true".to_owned()],
            ..Container::default()
        })),
        ..TaskTemplate::default()
    };
    Ok(serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": {"name": name, "annotations": {ANNOTATION_SCRIPT: "run 0s exit 0"}},
        "spec": {
            "runName": "bench",
            "project": "bench",
            "domain": "development",
            "actionName": name,
            "taskType": "container",
            "taskTemplate": BASE64_STANDARD.encode(template.encode_to_vec()),
            "inputUri": "file:///nowhere/inputs.pb",
            "runOutputBase": "file:///nowhere",
        },
    }))?)
}

/// What was seen of actions and pods, and when. Clones share it.
#[derive(Clone)]
struct Board {
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<u64>,
}

#[derive(Default)]
struct Seen {
    /// The first pod of each action, when it was first seen.
    pods: BTreeMap<String, (Instant, Arc<Pod>)>,
    /// All pods.
    uids: BTreeSet<(String, String)>,
    ended_pods: BTreeSet<String>,
    /// Actions with the labels of their end.
    ended: BTreeMap<String, Instant>,
}

impl Board {
    fn follow(rig: &Rig) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (tell, changed) = watch::channel(0);
        let board = Self {
            seen: Arc::clone(&seen),
            changed,
        };
        let pods: Api<Pod> = Api::namespaced(rig.client.clone(), &rig.namespace);
        let actions = actions(rig);
        tokio::spawn(async move {
            let pods = ListWatch::new(pods).into_cache(Cache::new());
            let actions = ListWatch::new(actions).into_cache(Cache::new());
            let (mut pods, mut actions) = (pin!(pods), pin!(actions));
            loop {
                tokio::select! {
                    update = pods.next() => if let Some(Update::Applied(pod)) = update {
                        lock(&seen).see_pod(pod);
                    },
                    update = actions.next() => if let Some(Update::Applied(action)) = update {
                        lock(&seen).see_action(&action);
                    },
                }
                tell.send_modify(|n| *n += 1);
            }
        });
        board
    }

    /// Waits until it holds.
    async fn until<T>(&self, what: &str, find: impl Fn(&Seen) -> Option<T>) -> Result<T> {
        let mut changed = self.changed.clone();
        let found = async {
            loop {
                changed.borrow_and_update();
                if let Some(found) = find(&lock(&self.seen)) {
                    return Ok(found);
                }
                changed.changed().await?;
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => bail!("not in time: {what}"),
        }
    }

    fn pod_of(&self, action: &str) -> Option<Arc<Pod>> {
        let seen = lock(&self.seen);
        seen.pods.get(action).map(|(_, pod)| Arc::clone(pod))
    }

    fn n_pods(&self, series: &str) -> usize {
        let seen = lock(&self.seen);
        let of_series = |(action, _): &&(String, String)| action.starts_with(&format!("{series}-"));
        seen.uids.iter().filter(of_series).count()
    }
}

impl Seen {
    fn see_pod(&mut self, pod: Arc<Pod>) {
        let name = pod.name_any();
        // `<action>-<attempt - 1>`
        let Some((action, _)) = name.rsplit_once('-') else {
            return;
        };
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if phase == Some("Succeeded") {
            self.ended_pods.insert(action.to_owned());
        }
        let uid = pod.uid().unwrap_or_default();
        self.uids.insert((action.to_owned(), uid));
        let first = (Instant::now(), Arc::clone(&pod));
        self.pods.entry(action.to_owned()).or_insert(first);
    }

    fn see_action(&mut self, action: &DynamicObject) {
        if action.labels().contains_key(LABEL_COMPLETED_TIME) {
            self.ended
                .entry(action.name_any())
                .or_insert_with(Instant::now);
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of many actions.
struct Loaded {
    /// From the first create to the end of the last.
    took: Duration,
    /// From the create of an action to its pod.
    latency: Times,
}

async fn create(api: &Api<DynamicObject>, name: String) -> Result<(String, Instant)> {
    let object = action(&name)?;
    let asked_at = Instant::now();
    api.create(&PostParams::default(), &object).await?;
    Ok((name, asked_at))
}

async fn one_by_one(rig: &Rig, board: &Board, series: &str) -> Result<Times> {
    let api = actions(rig);
    let mut times = Times::default();
    for i in 0..N_UNLOADED {
        let (name, asked_at) = create(&api, name(series, i)).await?;
        let what = format!("the end of {name}");
        let pod_at = board
            .until(&what, |seen| {
                seen.ended.get(&name)?;
                seen.pods.get(&name).map(|(at, _)| *at)
            })
            .await?;
        times.push(pod_at.duration_since(asked_at));
    }
    Ok(times)
}

async fn all_at_once(rig: &Rig, board: &Board, series: &str, n: usize) -> Result<Loaded> {
    let api = actions(rig);
    let began = Instant::now();
    let created: Vec<(String, Instant)> = stream::iter(0..n)
        .map(|i| create(&api, name(series, i)))
        .buffer_unordered(CREATORS)
        .try_collect()
        .await?;
    loaded(board, series, began, &created).await
}

/// Waits for the end of all.
async fn loaded(
    board: &Board,
    series: &str,
    began: Instant,
    created: &[(String, Instant)],
) -> Result<Loaded> {
    let what = format!("the end of {} actions", created.len());
    let prefix = format!("{series}-");
    let last = board
        .until(&what, |seen| {
            let ended = seen
                .ended
                .iter()
                .filter(|(name, _)| name.starts_with(&prefix));
            let at: Vec<Instant> = ended.map(|(_, at)| *at).collect();
            (at.len() >= created.len())
                .then(|| at.into_iter().max())
                .flatten()
        })
        .await?;
    let mut latency = Times::default();
    let seen = lock(&board.seen);
    for (name, asked_at) in created {
        if let Some((at, _)) = seen.pods.get(name) {
            latency.push(at.duration_since(*asked_at));
        }
    }
    Ok(Loaded {
        took: last.duration_since(began),
        latency,
    })
}

/// What a controller has spent.
struct Spent {
    requests: BTreeMap<String, u64>,
    cpu: Duration,
}

impl Spent {
    /// `None` where the controller is not ours.
    async fn of(subject: Option<&Subject>) -> Result<Option<Self>> {
        let Some(subject) = subject else {
            return Ok(None);
        };
        Ok(Some(Self {
            requests: subject.requests().await?,
            cpu: subject.cpu()?,
        }))
    }

    /// Since `before`, for each of `n` actions: requests by verb and resource, and CPU time in ms.
    fn each(&self, before: &Self, n: usize) -> (Value, f64) {
        let each_of = |spent: u64| json!(round(spent as f64 / n as f64));
        let mut each = serde_json::Map::new();
        let mut total = 0;
        for (what, after) in &self.requests {
            let spent = after - before.requests.get(what).copied().unwrap_or(0);
            if spent > 0 {
                total += spent;
                each.insert(what.clone(), each_of(spent));
            }
        }
        each.insert("total".to_owned(), each_of(total));
        let cpu = self.cpu.saturating_sub(before.cpu);
        let cpu_ms = round(cpu.as_secs_f64() * 1e3 / n as f64);
        (Value::Object(each), cpu_ms)
    }
}

/// A bare client in place of the controller.
#[derive(Clone)]
struct Floor {
    actions: Api<DynamicObject>,
    pods: Api<Pod>,
    board: Board,
    /// What the controller created.
    pod: Value,
}

impl Floor {
    async fn one_by_one(&self) -> Result<Times> {
        let mut times = Times::default();
        for i in 0..N_UNLOADED {
            let name = name("fu", i);
            let (_, asked_at) = create(&self.actions, name.clone()).await?;
            self.run(&name).await?;
            let what = format!("the pod of {name}");
            let pod_at = |seen: &Seen| seen.pods.get(&name).map(|(at, _)| *at);
            let pod_at = self.board.until(&what, pod_at).await?;
            times.push(pod_at.duration_since(asked_at));
        }
        Ok(times)
    }

    async fn all_at_once(&self, n: usize) -> Result<Loaded> {
        let began = Instant::now();
        let (mut created, mut running) = (Vec::new(), Vec::new());
        let mut creating = stream::iter(0..n)
            .map(|i| create(&self.actions, name("f", i)))
            .buffer_unordered(CREATORS);
        while let Some((name, asked_at)) = creating.try_next().await? {
            let floor = self.clone();
            created.push((name.clone(), asked_at));
            running.push(tokio::spawn(async move { floor.run(&name).await }));
        }
        for run in running {
            run.await??;
        }
        loaded(&self.board, "f", began, &created).await
    }

    /// The six writes of one action, in the controller's order.
    async fn run(&self, name: &str) -> Result<()> {
        self.patch(
            name,
            json!({"metadata": {"finalizers": [FINALIZER_PLUGIN]}}),
        )
        .await?;
        let mut pod = self.pod.clone();
        pod["metadata"]["name"] = json!(format!("{name}-0"));
        let pod: Pod = serde_json::from_value(pod)?;
        self.pods.create(&PostParams::default(), &pod).await?;
        self.status(name, &["Queued"]).await?;
        let what = format!("the end of the pod of {name}");
        let ended = |seen: &Seen| seen.ended_pods.contains(name).then_some(());
        let status = self.status(name, &["Queued", "Executing"]);
        let (status, ended) = tokio::join!(status, self.board.until(&what, ended));
        status.and(ended)?;
        self.status(name, &["Queued", "Executing", "Completed"])
            .await?;
        let labels = json!({
            LABEL_TERMINATION_STATUS: TERMINATED, LABEL_COMPLETED_TIME: "2026-11-21.10-00",
        });
        self.patch(name, json!({"metadata": {"labels": labels}}))
            .await
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        self.actions
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// A status as long as a controller's: with a history of these phases.
    async fn status(&self, name: &str, phases: &[&str]) -> Result<()> {
        let at = "2026-11-21T10:00:00Z";
        let last = phases.last().copied().unwrap_or_default();
        let entry =
            |phase: &&str| json!({"phase": phase, "occurredAt": at, "message": "as always"});
        let history: Vec<Value> = phases.iter().map(entry).collect();
        let status = json!({"status": {
            "stateJson": format!("{{\"actionId\":\"bench/{name}\",\"phase\":\"Phase{last}\",\"timestamp\":\"{at}\"}}"),
            "pluginState": BASE64_STANDARD.encode([0; 160]),
            "pluginStateVersion": 1,
            "pluginPhase": format!("Phase{last}"),
            "attempts": 1,
            "phaseHistory": history,
            "conditions": [{
                "type": "Progressing", "status": "True", "reason": last, "message": "as always",
                "lastTransitionTime": at,
            }],
        }});
        self.actions
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }
}

/// A pod as the controller sent it, as far as that can be seen.
fn bare(pod: &Pod) -> Result<Value> {
    let mut pod = serde_json::to_value(pod)?;
    let members = pod.as_object_mut().context("a pod is an object")?;
    members.remove("status");
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| ["labels", "annotations"].contains(&key.as_str()));
    }
    if let Some(spec) = members.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| !["nodeName", "serviceAccount"].contains(&key.as_str()));
    }
    Ok(pod)
}
