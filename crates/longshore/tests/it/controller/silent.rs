//! Foreign systems that accept every request and never answer: objects that do not need them take no longer than twice
//! their time alone, and the controller ends within 3 s after SIGTERM.
//!
//! Both limits are wider here by [`NOISE`]. `cargo xtask campaign silent-systems` runs this with the release program, with
//! 50 objects and the limits themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use longshore_kit::{Cache, ListWatch};
use longshore_test::{
    Conduct, FlyteServices, ForeignServer,
    flyte::{System, outputs},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, timeout},
};

use super::{
    foreign::{asking, cached, plain, remote, with_inputs, with_outputs},
    kills::{BINARY, number, told},
    replica::{Plan, until},
};
use crate::{
    cluster::{TestCluster, config},
    service_process::Service,
    task_actions::TaskActions,
};

/// How many actions ask the silent system.
const AFFECTED: &str = "LONGSHORE_TEST_AFFECTED";
/// How many do not, one after the other.
pub(super) const UNAFFECTED: &str = "LONGSHORE_TEST_UNAFFECTED";
/// More than rounds at the same time.
const N_AFFECTED: u64 = 100;
const N_UNAFFECTED: u64 = 10;
/// Longer than anything takes that ends.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many times as long as alone a pod may take beside a silent system, at the 99th percentile.
const TIMES: u32 = 2;
/// How long a controller may take to end. It waits 2 s at most for the answers to questions that are on record.
const STOPS_WITHIN: Duration = Duration::from_secs(3);
/// How much later a debug build may be that shares the processors with other tests. The shortest time limit of a client
/// of a foreign system is 10 s, so that waiting for one is seen all the same.
const NOISE: Duration = Duration::from_secs(2);
/// The number of clients that create actions at the same time.
const CREATORS: usize = 16;
const STEP: Duration = Duration::from_millis(50);

/// When a watch first showed that a pod has reached the expected state, by a name.
pub(super) struct Times {
    seen: watch::Receiver<BTreeMap<String, Instant>>,
    task: AbortHandle,
}

impl Times {
    /// Follows pods. `name` returns the name of a pod that has reached the expected state.
    pub(super) fn follow(
        pods: Api<Pod>,
        name: impl Fn(&Pod) -> Option<String> + Send + 'static,
    ) -> Self {
        let (tell, seen) = watch::channel(BTreeMap::new());
        let record = async move {
            let mut updates = pin!(ListWatch::new(pods).into_cache(Cache::new()));
            while let Some(update) = updates.next().await {
                if let Some(name) = update.into_object().and_then(|pod| name(&pod)) {
                    let now = Instant::now();
                    tell.send_if_modified(|seen: &mut BTreeMap<String, Instant>| {
                        let n_before = seen.len();
                        seen.entry(name).or_insert(now);
                        seen.len() > n_before
                    });
                }
            }
        };
        let task = tokio::spawn(record).abort_handle();
        Self { seen, task }
    }

    /// When the pod of this name was as it should be.
    pub(super) async fn of(&self, name: &str) -> Instant {
        let mut seen = self.seen.clone();
        let came = seen.wait_for(|seen| seen.contains_key(name));
        let came = timeout(PATIENCE, came).await;
        let came = came.unwrap_or_else(|_| panic!("{name} is not in time"));
        came.unwrap()[name]
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The action that has made a pod.
fn owner(pod: &Pod) -> Option<String> {
    let owner = pod.owner_references().first()?;
    Some(owner.name.clone())
}

/// The actions of a namespace, and their pods.
struct Place {
    actions: TaskActions,
    pods: Times,
    api: Api<Pod>,
}

impl Place {
    fn new(client: Client, namespace: &str) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        Self {
            actions: TaskActions::of(client, namespace),
            pods: Times::follow(api.clone(), owner),
            api,
        }
    }

    /// How long the pod of each of so many actions takes, one after the other, that ask no store, catalog or connector.
    async fn times(&self, name: &str, n: u64) -> Vec<Duration> {
        let mut times = Vec::new();
        for n in 0..n {
            let name = format!("{name}-{n}");
            let began = Instant::now();
            self.actions.create(&plain(&name)).await;
            times.push(self.pods.of(&name).await - began);
        }
        times
    }

    /// Waits until the controller has taken these actions up, and the pods of so many have ended: what it does then for
    /// others, it does beside the silent system, and beside nothing else.
    async fn until_settled(&self, actions: &[Value], n_pods: usize) {
        let name = |action: &Value| action["metadata"]["name"].as_str().map(str::to_owned);
        let names: BTreeSet<String> = actions.iter().filter_map(name).collect();
        let is_one = |action: &Value| name(action).is_some_and(|name| names.contains(&name));
        let is_settled = async || {
            let listed = self.actions.list().await;
            let mut taken_up = listed.iter().filter(|action| is_one(action));
            let pods = self.api.list(&ListParams::default()).await.unwrap();
            let has_ended = |pod: &&Pod| {
                let status = pod
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref());
                let is_over = matches!(status, Some("Succeeded" | "Failed"));
                is_over && owner(pod).is_some_and(|owner| names.contains(&owner))
            };
            taken_up.all(|action| action["metadata"]["finalizers"].is_array())
                && pods.items.iter().filter(has_ended).count() == n_pods
        };
        let settled = async {
            while !is_settled().await {
                tokio::time::sleep(STEP).await;
            }
        };
        let settled = timeout(PATIENCE, settled).await;
        assert!(settled.is_ok(), "the actions are not taken up");
    }

    /// Measures actions alone, then beside some that ask a system which has fallen silent; so many of these get a pod.
    async fn measure(
        &self,
        system: &'static str,
        server: &ForeignServer,
        (affected, n_pods): (Vec<Value>, usize),
        fall_silent: impl FnOnce(),
    ) -> Silence {
        let n_unaffected = number(UNAFFECTED, N_UNAFFECTED);
        // The first one warms up what the others use.
        self.times("first", 1).await;
        let alone = self.times("alone", n_unaffected).await;
        fall_silent();
        let n_before = server.n_received();
        stream::iter(&affected)
            .for_each_concurrent(CREATORS, |action| self.actions.create(action))
            .await;
        let is_asked = || server.open().iter().any(|number| *number >= n_before);
        until("the silent system is asked", is_asked).await;
        self.until_settled(&affected, n_pods).await;
        // Between the time limit of the first requests and the next ones, none is open.
        until("requests are open", || !server.open().is_empty()).await;
        let asked = server.open();
        let beside = self.times("beside", n_unaffected).await;
        Silence {
            system,
            n_affected: affected.len(),
            n_open: still_open(server, &asked),
            alone,
            beside,
        }
    }
}

/// How many of these requests are open. None of the pods has waited for the time limit of a request: then none would be.
pub(super) fn still_open(server: &ForeignServer, asked: &BTreeSet<usize>) -> usize {
    let open = server.open();
    assert!(open.intersection(asked).count() > 0, "{asked:?} {open:?}");
    open.len()
}

/// What a test has measured.
pub(super) struct Silence {
    pub(super) system: &'static str,
    pub(super) n_affected: usize,
    /// Requests that the silent system has taken in and not answered.
    pub(super) n_open: usize,
    /// Without a silent system.
    pub(super) alone: Vec<Duration>,
    /// Beside one.
    pub(super) beside: Vec<Duration>,
}

impl Silence {
    /// Checks what was measured, and prints it as the campaign reads it. The program took this time to end.
    pub(super) fn report(mut self, stopped: Duration) {
        self.alone.sort_unstable();
        self.beside.sort_unstable();
        let result = json!({
            "system": self.system, "affected": self.n_affected, "requests_open": self.n_open,
            "alone": percentiles(&self.alone), "beside": percentiles(&self.beside),
            "stops_in_s": stopped.as_secs_f64(),
        });
        println!("result {result}");
        let (alone, beside) = (at(&self.alone, 99), at(&self.beside, 99));
        assert!(beside <= alone * TIMES + NOISE, "{result}");
        assert!(stopped <= STOPS_WITHIN + NOISE, "{result}");
    }
}

/// The time that half of them take at most, and that 99 of 100 take at most, in milliseconds.
fn percentiles(sorted: &[Duration]) -> Value {
    let in_ms = |hundredths| {
        let microseconds = (at(sorted, hundredths).as_secs_f64() * 1e6).round();
        microseconds / 1e3
    };
    json!({"p50_ms": in_ms(50), "p99_ms": in_ms(99), "n": sorted.len()})
}

/// The time that so many of 100 take at most.
fn at(sorted: &[Duration], hundredths: usize) -> Duration {
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted[rank - 1]
}

/// Starts the controller, whose actions ask a silent system, or do not.
async fn is_delayed_by_nobody(
    silent: System,
    name: &'static str,
    affected: impl Fn(&Path, u64) -> Value,
    has_pod: impl Fn(u64) -> bool,
) {
    let cluster = TestCluster::embedded_playing(outputs::leave).await;
    TaskActions::install(&cluster).await;
    let place = Place::new(cluster.admin.clone(), &cluster.namespace);
    let is_silent = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&is_silent);
    let services = FlyteServices::start_with(move |system, _| {
        let hangs = system == silent && hangs.load(Ordering::SeqCst);
        hangs.then(Conduct::hangs)
    });
    let services = services.await.unwrap();
    let mut plan = asking(Plan::of(&cluster, "tasks"), &services);
    plan.lease = "0";
    if let Some(binary) = told(BINARY) {
        plan.program = binary.into();
    }
    let mut controller = plan.start("controller");
    until("it runs", || controller.leads()).await;
    let numbers = 0..number(AFFECTED, N_AFFECTED);
    let n_pods = numbers.clone().filter(|n| has_pod(*n)).count();
    let affected = numbers.map(|n| affected(cluster.folder.path(), n));
    let affected = (affected.collect(), n_pods);
    let fall_silent = || is_silent.store(true, Ordering::SeqCst);
    let measured = place.measure(name, services.server(), affected, fall_silent);
    let silence = measured.await;
    let began = Instant::now();
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
    silence.report(began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_store_delays_no_action_of_another_store() {
    let affected = |_: &Path, n: u64| {
        let name = format!("silent-{n}");
        // Some wait before their pod, some after.
        if n.is_multiple_of(2) {
            with_inputs(&name)
        } else {
            with_outputs(&name)
        }
    };
    let has_pod = |n: u64| !n.is_multiple_of(2);
    let test = is_delayed_by_nobody(System::Store, "store", affected, has_pod);
    Box::pin(test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_catalog_delays_no_action_without_a_cache() {
    let affected =
        |folder: &Path, n: u64| cached(&format!("silent-{n}"), folder, n.is_multiple_of(2));
    let test = is_delayed_by_nobody(System::Catalog, "catalog", affected, |_| false);
    Box::pin(test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connector_delays_no_action_with_a_pod() {
    let affected = |_: &Path, n: u64| remote(&format!("silent-{n}"), "jobs");
    let test = is_delayed_by_nobody(System::Connector, "connector", affected, |_| false);
    Box::pin(test).await;
}

/// All actions report to it, and none has its pod later.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_events_service_delays_no_pod() {
    let affected = |_: &Path, n: u64| plain(&format!("silent-{n}"));
    let test = is_delayed_by_nobody(System::Events, "events service", affected, |_| true);
    Box::pin(test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_store_of_a_standalone_delays_no_action_of_another_store() {
    let store = ForeignServer::start(|_| Conduct::hangs()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let (data, dags) = (folder.path().join("data"), folder.path().join("dags"));
    for directory in [&data, &dags] {
        fs::create_dir(directory).unwrap();
    }
    let storage = json!({"type": "s3", "connection": {
        "endpoint": store.url(), "auth-type": "accesskey", "access-key": "id", "secret-key": "secret",
        "region": "us-east-1", "disable-ssl": true,
    }});
    fs::write(data.join("storage.yaml"), storage.to_string()).unwrap();
    let mut service = Service::start_in(&data, &dags);
    let kubeconfig = service.ready("kubeconfig");
    let client = Client::try_from(config(Path::new(&kubeconfig)).await).unwrap();
    let place = Place::new(client, "default");
    let affected = (0..number(AFFECTED, N_AFFECTED)).map(|n| with_inputs(&format!("silent-{n}")));
    let affected = (affected.collect(), 0);
    let measured = place.measure("store of a standalone", &store, affected, || ());
    let silence = measured.await;
    let began = Instant::now();
    let (code, said) = service.stop();
    assert_eq!(code, Some(0), "{said}");
    silence.report(began.elapsed());
}
