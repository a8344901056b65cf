//! TaskActions, each with a pod that ends at once: the controller against a bare client that makes its six writes.

mod floor;
pub(crate) mod memory;
mod template;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroUsize},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use longshore_api::flyte::{GROUP, KIND, LABEL_COMPLETED_TIME, TASK_ACTION_CRD, VERSION};
use longshore_kit::{Cache, ListWatch, Update};
use longshore_test::FlyteServices;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use floor::Floor;
use template::{ENDS_AT_ONCE, Template};

use crate::{
    TasksArgs,
    definitions::install,
    figures::{Times, per_second, round},
    pods::bare,
    rig::Rig,
    say,
    seen::until,
    spent::Spent,
    subject::Subject,
};

/// Clients that create at the same time, unless the command line says otherwise.
const CREATORS: usize = 32;
/// Actions before all others.
const WARM_UP: Load<'_> = Load {
    series: "w",
    n: CREATORS,
    creators: CREATORS,
    per_second: None,
};
/// Actions one after the other, to see what one takes when nothing else goes on: enough for a 99th percentile.
const N_UNLOADED: usize = 100;

/// Measures the controller, then the floor, which knows nothing of a cache service, an events service and outputs.
pub(crate) async fn measure(rig: &Rig, args: &TasksArgs) -> Result<Value> {
    let (common, with_services) = (&args.common, args.with_services);
    let creators = args.creators.map_or(CREATORS, NonZeroUsize::get);
    let load = |series| Load {
        series,
        n: common.n,
        creators,
        per_second: args.create_per_second,
    };
    install(&rig.client, TASK_ACTION_CRD).await?;
    let board = Board::follow(rig);
    let services = if with_services {
        Some(FlyteServices::start().await?)
    } else {
        None
    };
    let (template, arguments) = prepare(rig, services.as_ref())?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let subject = Subject::of(common, "tasks", rig, &arguments).await?;
    // Until the first ones have come through, a controller still lists and connects; the floor's client does so while
    // it makes the actions of the subject.
    all_at_once(rig, &board, &template, WARM_UP).await?;
    say("one after the other");
    let unloaded = one_by_one(rig, &board, &template, "u", N_UNLOADED).await?;
    say(&format!("{} actions", common.n));
    let before = Spent::of(&subject).await?;
    let loaded = all_at_once(rig, &board, &template, load("s")).await?;
    let after = Spent::of(&subject).await?;
    let peak = subject.peak_mib()?;
    let pod = board.pod_of(&name("s", 0)).context("no pod was seen")?;
    let n_pods = board.n_pods("s");
    subject.stop().await?;
    say("the floor");
    let floor = Floor {
        actions: actions(rig),
        pods: Api::namespaced(rig.client.clone(), &rig.namespace),
        board: board.clone(),
        template,
        pod: bare(&pod)?,
    };
    floor.one_by_one("fw", 1).await?;
    let floor_unloaded = floor.one_by_one("fu", N_UNLOADED).await?;
    let floor_loaded = floor.all_at_once(load("f")).await?;
    release(rig, common.n).await?;
    let (rate, floor_rate) = (
        per_second(common.n, loaded.took),
        per_second(common.n, floor_loaded.took),
    );
    Ok(json!({
        "subsystem": "tasks",
        "with_services": with_services,
        "create_per_second": args.create_per_second,
        "creators": args.creators,
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
        "requests_per_action": after.requests_each(&before, common.n),
        "cpu_ms_per_action": after.cpu_ms_each(&before, common.n),
        "peak_rss_mib": peak.map(round),
    }))
}

/// The template of the actions, and the arguments that point a controller at these services.
fn prepare(rig: &Rig, services: Option<&FlyteServices>) -> Result<(Template, Vec<String>)> {
    let Some(services) = services else {
        return Ok((Template::plain(), Vec::new()));
    };
    let (folder, url) = (rig.folder.path(), services.url());
    let services = json!({"EventsServiceURL": url, "cacheServiceURL": url});
    let config = json!({"executor": services, "storage": {"files-root": "/"}});
    let file = folder.join("config.yaml");
    std::fs::write(&file, config.to_string())?;
    let arguments = vec!["--config".to_owned(), file.display().to_string()];
    Ok((Template::cached(&folder.join("store")), arguments))
}

/// Lets the actions go, of which nothing is to be done any more: a server that stays could not remove them.
async fn release(rig: &Rig, n: usize) -> Result<()> {
    let api = actions(rig);
    let (patch, params) = (
        Patch::Merge(json!({"metadata": {"finalizers": null}})),
        PatchParams::default(),
    );
    let all = [
        ("w", CREATORS),
        ("fw", 1),
        ("u", N_UNLOADED),
        ("fu", N_UNLOADED),
        ("s", n),
        ("f", n),
    ];
    let names = all
        .into_iter()
        .flat_map(|(series, n)| (0..n).map(move |i| name(series, i)));
    stream::iter(names.map(Ok))
        .try_for_each_concurrent(CREATORS, |name| {
            let (api, patch, params) = (&api, &patch, &params);
            async move {
                api.patch(&name, params, patch).await?;
                api.delete(&name, &DeleteParams::default()).await?;
                Ok(())
            }
        })
        .await
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

/// What was seen of actions and pods, and when. Clones share it.
#[derive(Clone)]
struct Board {
    seen: watch::Receiver<Observed>,
}

#[derive(Default)]
struct Observed {
    /// The first pod of each action, when it was first seen.
    pods: BTreeMap<String, (Instant, Arc<Pod>)>,
    /// All pods.
    uids: BTreeSet<(String, String)>,
    ended_pods: BTreeSet<String>,
    /// Actions whose code was seen to run, by their status.
    running: BTreeSet<String>,
    /// Actions with the labels of their end.
    ended: BTreeMap<String, Instant>,
}

impl Board {
    fn follow(rig: &Rig) -> Self {
        let (tell, seen) = watch::channel(Observed::default());
        let pods: Api<Pod> = Api::namespaced(rig.client.clone(), &rig.namespace);
        let actions = actions(rig);
        tokio::spawn(async move {
            let pods = ListWatch::new(pods).into_cache(Cache::new());
            let actions = ListWatch::new(actions).into_cache(Cache::new());
            let (mut pods, mut actions) = (pin!(pods), pin!(actions));
            loop {
                tokio::select! {
                    update = pods.next() => if let Some(Update::Applied(pod)) = update {
                        tell.send_modify(|seen| seen.see_pod(pod));
                    },
                    update = actions.next() => if let Some(Update::Applied(action)) = update {
                        tell.send_modify(|seen| seen.see_action(&action));
                    },
                }
            }
        });
        Self { seen }
    }

    fn pod_of(&self, action: &str) -> Option<Arc<Pod>> {
        let seen = self.seen.borrow();
        seen.pods.get(action).map(|(_, pod)| Arc::clone(pod))
    }

    fn n_pods(&self, series: &str) -> usize {
        let seen = self.seen.borrow();
        let of_series = |(action, _): &&(String, String)| action.starts_with(&format!("{series}-"));
        seen.uids.iter().filter(of_series).count()
    }
}

impl Observed {
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
        if action.data["status"]["pluginPhase"] == "PhaseRunning" {
            self.running.insert(action.name_any());
        }
        if action.labels().contains_key(LABEL_COMPLETED_TIME) {
            self.ended
                .entry(action.name_any())
                .or_insert_with(Instant::now);
        }
    }
}

/// Actions that are created.
#[derive(Clone, Copy)]
struct Load<'a> {
    /// The prefix of their names.
    series: &'a str,
    n: usize,
    /// How many are created at the same time.
    creators: usize,
    /// As many as the API server takes where it is `None`.
    per_second: Option<NonZeroU32>,
}

impl Load<'_> {
    /// Creates the actions. Yields their names, and when each create was sent.
    fn create<'a>(
        self,
        api: &'a Api<DynamicObject>,
        template: &'a Template,
    ) -> impl Stream<Item = Result<(String, Instant)>> + use<'a> {
        let begin = Instant::now();
        let at = move |i: usize| {
            let after = self.per_second.map(|n| Duration::from_secs(1) / n.get());
            begin + after.unwrap_or_default() * i as u32
        };
        let names = (0..self.n).map(|i| (at(i), name(self.series, i)));
        let names: Vec<_> = names.collect();
        stream::iter(names)
            .map(move |(at, name)| async move {
                sleep_until(at).await;
                create(api, template, name).await
            })
            .buffer_unordered(self.creators)
    }
}

/// The measured times of many actions.
struct Loaded {
    /// From the first create to the end of the last.
    took: Duration,
    /// From the create of an action to its pod.
    latency: Times,
}

async fn create(
    api: &Api<DynamicObject>,
    template: &Template,
    name: String,
) -> Result<(String, Instant)> {
    let object = template.action(&name, ENDS_AT_ONCE)?;
    let asked_at = Instant::now();
    create_object(api, object).await?;
    Ok((name, asked_at))
}

async fn create_object(api: &Api<DynamicObject>, object: DynamicObject) -> Result<()> {
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn one_by_one(
    rig: &Rig,
    board: &Board,
    template: &Template,
    series: &str,
    n: usize,
) -> Result<Times> {
    let api = actions(rig);
    let mut times = Times::default();
    for i in 0..n {
        let (name, asked_at) = create(&api, template, name(series, i)).await?;
        let what = format!("the end of {name}");
        let pod_at = until(&board.seen, &what, |seen| {
            seen.ended.get(&name)?;
            seen.pods.get(&name).map(|(at, _)| *at)
        })
        .await?;
        times.push(pod_at.duration_since(asked_at));
    }
    Ok(times)
}

async fn all_at_once(
    rig: &Rig,
    board: &Board,
    template: &Template,
    load: Load<'_>,
) -> Result<Loaded> {
    let api = actions(rig);
    let began = Instant::now();
    let created: Vec<(String, Instant)> = load.create(&api, template).try_collect().await?;
    loaded(board, load.series, began, &created).await
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
    let last = until(&board.seen, &what, |seen| {
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
    let seen = board.seen.borrow();
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
