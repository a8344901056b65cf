//! One run of all actions, from the first create until nothing is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Mutex,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use longshore_proto::flyteidl2::core::CatalogCacheStatus;
use longshore_test::{FaultPlan, FaultProxy, Faults, FlyteServices, flyte::outputs};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    Plan, Variant,
    checks::{cache_status, check, told},
    work::{Expected, Kind, MAX_SYSTEM_FAILURES, Work},
};
use crate::{
    cluster::TestCluster,
    controller::{
        actions::ending,
        kills::{BINARY, dice::Dice, told as setting},
        replica::{Replica, until},
        requests::{Requests, of_metrics},
    },
    task_actions::{Board, PodRecord, TaskActions},
};

/// Creators at the same time.
const CREATORS: usize = 16;
/// How long a controller that is killed lives, in milliseconds: one time counted from its start, the next from when it
/// leads.
const LIFE_MS: (u64, u64) = (50, 1_500);
/// What a killed controller may have to ask again, for each kill: it has so many rounds at the same time.
const ASKED_AGAIN: u64 = 64;

/// What there is besides the controller.
struct World {
    cluster: TestCluster,
    actions: TaskActions,
    pods: PodRecord,
    board: Board,
    services: FlyteServices,
    faults: Faults,
    proxy: Option<FaultProxy>,
    n_actions: u32,
    /// Those that were deleted while their code ran.
    aborted: Mutex<BTreeSet<String>>,
}

impl World {
    async fn start(variant: &Variant, n_actions: u32) -> Self {
        let cluster = TestCluster::playing(outputs::leave).await;
        let actions = TaskActions::install(&cluster).await;
        let faults = Faults::unbounded(FaultPlan {
            watches: variant.watches.clone(),
            ..FaultPlan::none()
        });
        let proxy = if variant.has_proxy {
            let process = faults.start();
            let proxy = FaultProxy::start(cluster.admin.clone(), &process).await;
            Some(proxy.unwrap())
        } else {
            None
        };
        Self {
            pods: PodRecord::start(&cluster),
            board: Board::follow(&actions),
            services: FlyteServices::start().await.unwrap(),
            cluster,
            actions,
            faults,
            proxy,
            n_actions,
            aborted: Mutex::default(),
        }
    }

    /// The controller that is to be started.
    fn plan(&self) -> Plan {
        let url = self.services.url();
        let executor = json!({
            "EventsServiceURL": url,
            "cacheServiceURL": url,
            "maxSystemFailures": MAX_SYSTEM_FAILURES,
        });
        let config = json!({"executor": executor, "storage": {"files-root": "/"}});
        let file = self.folder().join("config.yaml");
        fs::write(&file, config.to_string()).unwrap();
        let mut plan = Plan::of(&self.cluster, "tasks");
        plan.config = Some(file);
        // Renewals are no requests about actions.
        plan.lease = "0";
        if let Some(proxy) = &self.proxy {
            plan.kubeconfig = proxy.kubeconfig();
        }
        if let Some(binary) = setting(BINARY) {
            plan.program = binary.into();
        }
        plan
    }

    fn folder(&self) -> &Path {
        self.cluster.folder.path()
    }

    /// Until this instant at most something is waited for.
    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(180 + 2 * u64::from(self.n_actions))
    }

    async fn create(&self, range: std::ops::Range<u32>) {
        stream::iter(range.map(Work))
            .for_each_concurrent(CREATORS, |work| async move {
                self.actions.create(&work.action(self.folder())).await;
            })
            .await;
    }

    /// Deletes those of the created actions that only a delete ends, once their code runs.
    async fn abort(&self, n_created: u32) {
        let to_abort = |work: &Work| work.kind() == Kind::Aborted;
        for work in (0..n_created).map(Work).filter(to_abort) {
            let name = work.name();
            if !self.aborted.lock().unwrap().insert(name.clone()) {
                continue;
            }
            let what = format!("the start of {name}");
            let runs = |board: &BTreeMap<String, Value>| {
                let action = board.get(&name);
                action.is_some_and(|action| action["status"]["pluginPhase"] == "PhaseRunning")
            };
            self.board.until(&what, self.deadline(), runs).await;
            self.delete(&name).await;
        }
    }

    async fn delete(&self, name: &str) {
        match self
            .actions
            .api()
            .delete(name, &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.unwrap()),
        }
    }

    /// Waits until all have ended that are to end, and the others are gone.
    async fn until_ended(&self, expected: &Expected) {
        let n_stay = usize::try_from(self.n_actions).unwrap() - expected.n_aborted;
        let ended = |board: &BTreeMap<String, Value>| {
            board.len() == n_stay && board.values().all(crate::task_actions::has_ended)
        };
        self.board
            .until("the end of all", self.deadline(), ended)
            .await;
    }

    /// Deletes all actions, and waits until nothing of them is left.
    async fn delete_all(&self) {
        let names: Vec<String> = (0..self.n_actions).map(|n| Work(n).name()).collect();
        stream::iter(&names)
            .for_each_concurrent(CREATORS, |name| self.delete(name))
            .await;
        self.board
            .until("nothing is left", self.deadline(), BTreeMap::is_empty)
            .await;
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), &self.cluster.namespace);
        let deadline = self.deadline();
        loop {
            let left = pods.list(&ListParams::default()).await.unwrap().items;
            if left.is_empty() {
                return;
            }
            let n_left = left.len();
            assert!(Instant::now() < deadline, "{n_left} pods are left");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Requests about single actions so far, by verb and resource.
    async fn requests(&self, metrics: &str) -> Requests {
        let mut requests = Requests::new();
        if self.proxy.is_some() {
            for point in self.faults.points() {
                *requests.entry(point.what).or_default() += 1;
            }
        } else {
            requests = of_metrics(metrics, "tasks").await;
        }
        requests.retain(|what, _| {
            let is_read_of_all = what.starts_with("list ") || what.starts_with("watch ");
            let mut kinds = ["pods", "taskactions", "events"].into_iter();
            !is_read_of_all && kinds.any(|kind| what.contains(kind))
        });
        requests
    }
}

/// Kills the controller, and starts the next one, between two portions of the actions.
async fn kill_and_create(
    world: &World,
    plan: &Plan,
    mut controller: Replica,
    n_kills: u64,
    seed: u64,
) -> Replica {
    let mut dice = Dice::new(seed);
    let mut n_created = 0;
    for n in 1..=n_kills {
        let n_next = u32::try_from(u64::from(world.n_actions) * n / n_kills).unwrap();
        world.create(n_created..n_next).await;
        n_created = n_next;
        if n.is_multiple_of(2) {
            until("it leads", || controller.leads()).await;
        }
        let life = dice.between(LIFE_MS.0, LIFE_MS.1);
        tokio::time::sleep(Duration::from_millis(life)).await;
        controller.kill();
        controller = plan.spawn(&format!("controller-{n}"));
        if n == n_kills / 2 {
            world.abort(n_created).await;
        }
    }
    controller
}

/// Runs all actions, checks everything, and answers with figures.
pub(super) async fn play(variant: &Variant, n_actions: u32, seed: u64) -> Value {
    let world = World::start(variant, n_actions).await;
    let expected = Expected::of(n_actions);
    let plan = world.plan();
    let mut controller = plan.spawn("controller-0");
    until("it runs", || controller.leads()).await;
    let began_at = Instant::now();
    if variant.n_kills == 0 {
        world.create(0..n_actions).await;
    } else {
        controller = kill_and_create(&world, &plan, controller, variant.n_kills, seed).await;
    }
    world.abort(n_actions).await;
    world.until_ended(&expected).await;
    let took = began_at.elapsed();
    let ready = controller.ready();
    let requests = world.requests(ready["metrics"].as_str().unwrap()).await;

    let figures = check_all(&world, &expected).await;
    check_requests(variant, &world, &expected, &requests);
    // A controller that begins knows how often an attempt was launched, and not when.
    if variant.n_kills == 0 {
        world.pods.assert_launches_back_off();
    }
    let peak_mib = controller.peak_mib();
    world.delete_all().await;
    world.pods.assert_one_pod_per_launch();
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
    let mut result = json!({
        "variant": variant.name,
        "kills": variant.n_kills,
        "pods": world.pods.n_pods(),
        "seconds": rounded(took.as_secs_f64()),
        "per_second": rounded(f64::from(n_actions) / took.as_secs_f64()),
        "requests_per_action": per_action(&requests, n_actions),
        "peak_rss_mib": rounded(peak_mib),
    });
    result.as_object_mut().unwrap().extend(figures);
    result
}

/// All actions ended as expected, all events and outputs arrived, and nothing is reserved any more.
async fn check_all(world: &World, expected: &Expected) -> Map<String, Value> {
    let listed = world.actions.list().await;
    let by_name: BTreeMap<&str, &Value> = listed
        .iter()
        .map(|action| (action["metadata"]["name"].as_str().unwrap(), action))
        .collect();
    let (told, n_repeated) = told(world.services.events());
    for work in (0..world.n_actions).map(Work) {
        let name = work.name();
        let events = told.get(&name).map_or(&[][..], Vec::as_slice);
        let action = by_name.get(name.as_str()).copied();
        check(work, action, &world.pods, events);
    }
    world.pods.assert_one_pod_per_launch();
    assert_eq!(world.pods.n_launches_of_all(), expected.n_launches);
    let (cached, reserved) = (world.services.cached(), world.services.reservations());
    assert_eq!(cached.len(), expected.n_cached);
    assert!(reserved.is_empty(), "{reserved:?}");
    let is_hit = |action: &&Value| {
        ending(action).as_deref() == Some("Completed")
            && cache_status(action) == CatalogCacheStatus::CacheHit
    };
    let n_events: usize = told.values().map(Vec::len).sum();
    let hits = listed.iter().filter(is_hit).count();
    let figures = [
        ("events", json!({"told": n_events, "again": n_repeated})),
        ("cache", json!({"entries": cached.len(), "hits": hits})),
        ("calls_of_services", json!(world.services.n_calls())),
    ];
    figures
        .into_iter()
        .map(|(name, figure)| (name.to_owned(), figure))
        .collect()
}

/// The requests about actions are within the design's budget.
fn check_requests(variant: &Variant, world: &World, expected: &Expected, requests: &Requests) {
    let count = |number: usize| u64::try_from(number).unwrap();
    let (n_actions, n_launches) = (u64::from(world.n_actions), count(expected.n_launches));
    let n_again = count(expected.n_again);
    let is_disturbed = !variant.watches.is_empty() || variant.n_kills > 0;
    let again = variant.n_kills * ASKED_AGAIN;
    let budget = [
        ("create pods", n_launches),
        // The finalizer, and the labels of the end, or the finalizer again.
        ("patch taskactions", 2 * n_actions),
        // Accepted with its pod, running, ended or failed; an action that waits for another one says so, and names it.
        (
            "patch taskactions/status",
            3 * n_launches + 3 * count(expected.n_shared),
        ),
        // Of attempts that are aborted, or come again.
        ("delete pods", count(expected.n_aborted) + n_again),
        // A system failure is said in an Event, which counts those that are alike.
        ("create events", n_again),
        ("patch events", n_again),
    ];
    for (request, n) in requests {
        if request.starts_with("get ") {
            continue;
        }
        let of = budget.iter().find(|(of, _)| of == request);
        let at_most = of.map_or(0, |(_, at_most)| *at_most) + again;
        assert!(
            *n <= at_most,
            "{}: {request} {n} times, not {at_most}: {requests:?}",
            variant.name
        );
    }
    if variant.n_kills == 0 {
        assert_eq!(requests["create pods"], n_launches, "{requests:?}");
    }
    // A read is cheap, and bounded: the pod of an aborted attempt is read once, the name of one that comes again may be,
    // and others are wherever the watch is late.
    let reads = requests.iter().filter(|(what, _)| what.starts_with("get "));
    let n_reads: u64 = reads.map(|(_, n)| n).sum();
    let if_disturbed = if is_disturbed { n_actions + again } else { 0 };
    let at_most = count(expected.n_aborted) + n_again + if_disturbed;
    assert!(n_reads <= at_most, "{}: {requests:?}", variant.name);
}

/// Requests for each action.
fn per_action(requests: &Requests, n_actions: u32) -> Value {
    let each = requests.iter();
    let mut each: Map<String, Value> = each
        .map(|(what, n)| (what.clone(), per(*n, n_actions)))
        .collect();
    let total = requests.values().sum();
    each.insert("total".to_owned(), per(total, n_actions));
    Value::Object(each)
}

fn per(n: u64, n_actions: u32) -> Value {
    let n = u32::try_from(n).unwrap();
    json!(rounded(f64::from(n) / f64::from(n_actions)))
}

/// Two decimals: more say nothing.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
