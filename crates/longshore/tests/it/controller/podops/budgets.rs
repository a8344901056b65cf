//! Evictions under disruption budgets and rules, by many at once, and dry runs.

use std::{
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{future::join_all, join};
use http::Request;
use kube::Client;
use longshore_api::podops::{ANNOTATION_EVICTED_AT, OperationLabel};
use longshore_podops::model::Pod;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::cluster::config;

use super::{
    http as api,
    kubelet::READY_AFTER,
    place::Place,
    scenarios::{QUIET, ask},
    world::World,
};

/// Pause before a refused eviction is repeated: `kubectl drain` takes 5 s.
const RETRY: Duration = Duration::from_millis(300);
/// Between looks at the pods.
const SAMPLE: Duration = Duration::from_millis(100);
/// How long the pods of these workloads take to become Ready.
const START: &str = "2s";
const ATTEMPTS: u32 = 1_200;
/// The label of the pods that a dry run drains.
const DRAINED_DRY: &str = "test.longshore.dev/drained-dry";

pub(super) async fn all(world: &World) {
    let (dry, once) = join!(
        world.namespace("evicted-dry"),
        world.namespace("evicted-once")
    );
    let (many, none) = join!(world.namespace("budget"), world.namespace("no-room"));
    let missing = world.namespace("missing").await;
    let client = &asking_once(world).await;
    let workloads = async {
        if world.has_workloads {
            join!(
                evictions_by_many_keep_to_the_budget(client, &many),
                a_budget_without_room_holds_every_eviction(client, &none),
                a_replica_that_does_not_exist_yet_is_out_of_service(client, &missing),
            );
        }
    };
    join!(
        dry_runs_of_evictions_change_nothing(client, &dry),
        an_eviction_that_is_not_repeated_is_done_by_the_controller(client, &once),
        workloads,
    );
}

/// A client that does not come again by itself where it is refused with 429.
async fn asking_once(world: &World) -> Client {
    let mut config = config(&world.kubeconfig()).await;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A workload of so many pods, which take some time to become Ready.
async fn workload(place: &Place<'_>, kind: &str, replicas: usize) {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": place.world.labels(), "annotations": {READY_AFTER: START}},
                "spec": place.world.spec(),
            },
        },
    });
    let plural = if kind == "StatefulSet" {
        object["spec"]["serviceName"] = json!("web");
        object["spec"]["podManagementPolicy"] = json!("Parallel");
        "statefulsets"
    } else {
        "deployments"
    };
    let path = place.apps(plural);
    api::create(place.client(), &path, &object).await.unwrap();
    until_all_serve(place, replicas).await;
}

async fn until_all_serve(place: &Place<'_>, replicas: usize) {
    for _ in 0..ATTEMPTS {
        let pods = place.pods().await;
        if pods.len() == replicas && pods.iter().all(|pod| pod.is_available() && pod.is_ready) {
            return;
        }
        tokio::time::sleep(SAMPLE).await;
    }
    panic!("not in time: {:?}", place.pods().await);
}

async fn budget(place: &Place<'_>, min_available: usize) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": min_available},
    });
    let namespace = &place.namespace;
    let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    api::create(place.client(), &path, &budget).await.unwrap();
    let is_counted = |budget: &Value| {
        let expected = budget["status"]["expectedPods"].as_u64();
        expected.is_some_and(|expected| expected >= min_available as u64)
    };
    let path = format!("{path}/web");
    place.world.until_object(&path, is_counted).await;
}

/// Asks for the eviction of a pod; the status of the answer and its words.
async fn evict(client: &Client, place: &Place<'_>, name: &str, options: Value) -> (u16, String) {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options,
        "metadata": {"name": name, "namespace": place.namespace},
    });
    let path = place.core(&format!("pods/{name}/eviction"));
    match api::create(client, &path, &eviction).await {
        Ok(_) => (201, String::new()),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// Repeats the eviction until that incarnation is gone, as `kubectl drain` does.
async fn evict_until_gone(client: &Client, place: &Place<'_>, pod: &Pod) {
    let options = json!({"preconditions": {"uid": pod.target.uid}});
    for _ in 0..ATTEMPTS {
        match evict(client, place, &pod.target.name, options.clone()).await {
            (201 | 404 | 409, _) => return,
            (429 | 500, _) => tokio::time::sleep(RETRY).await,
            other => panic!("{other:?}"),
        }
    }
    panic!("{} was not evicted in time", pod.target.name);
}

/// Looks at the pods of a namespace ten times a second.
struct Samples {
    fewest: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Samples {
    /// Counts those that are right.
    fn start(place: &Place<'_>, is_right: impl Fn(&Pod) -> bool + Send + 'static) -> Self {
        let fewest = Arc::new(AtomicUsize::new(usize::MAX));
        let (kept, client, path) = (
            Arc::clone(&fewest),
            place.client().clone(),
            place.core("pods"),
        );
        let task = tokio::spawn(async move {
            loop {
                if let Some(pods) = list(&client, &path).await {
                    let n = pods.iter().filter(|pod| is_right(pod)).count();
                    kept.fetch_min(n, Ordering::Relaxed);
                }
                tokio::time::sleep(SAMPLE).await;
            }
        });
        Self {
            fewest,
            task: task.abort_handle(),
        }
    }

    fn fewest(&self) -> usize {
        self.fewest.load(Ordering::Relaxed)
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn list(client: &Client, path: &str) -> Option<Vec<Pod>> {
    let request = Request::get(path).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.ok()?;
    let pods = list["items"].as_array()?.iter();
    Some(pods.map(|pod| Pod::of(pod).unwrap()).collect())
}

fn is_endpoint(pod: &Pod) -> bool {
    pod.is_ready && !pod.is_deleting
}

/// Three pods, of which two have to stay: evicted at once by many, they go one at a time, each when the one before has
/// been replaced.
async fn evictions_by_many_keep_to_the_budget(client: &Client, place: &Place<'_>) {
    const REPLICAS: usize = 3;
    workload(place, "Deployment", REPLICAS).await;
    budget(place, REPLICAS - 1).await;
    let samples = Samples::start(place, is_endpoint);
    let pods = place.pods().await;
    let evictors = (0..4).flat_map(|_| &pods);
    join_all(evictors.map(|pod| evict_until_gone(client, place, pod))).await;
    until_all_serve(place, REPLICAS).await;
    let fewest = samples.fewest();
    assert!(fewest >= REPLICAS - 1, "{fewest} were Ready");
    for pod in place.pods().await {
        let is_old = pods.iter().any(|old| old.target.uid == pod.target.uid);
        assert!(!is_old, "{pod:?}");
    }
}

/// All pods have to stay: none goes, none is taken out of service, and each refusal names the
/// budget that holds the pod.
async fn a_budget_without_room_holds_every_eviction(client: &Client, place: &Place<'_>) {
    const NAMES: [&str; 3] = ["web-0", "web-1", "web-2"];
    place.serving(&NAMES).await;
    budget(place, NAMES.len()).await;
    let samples = Samples::start(place, is_endpoint);
    let held = format!(
        "PodDisruptionBudget {}/web: 3 of 3 must stay available, 3 are",
        place.namespace
    );
    for name in NAMES {
        let (code, message) = evict(client, place, name, json!({})).await;
        assert_eq!(code, 429, "{message}");
        let (code, message) = evict(client, place, name, json!({})).await;
        assert_eq!(code, 429, "{message}");
        assert!(message.contains(&held), "{message}");
    }
    tokio::time::sleep(2 * QUIET).await;
    for pod in place.pods().await {
        let operating = OperationLabel::Operating.of("pod-delete");
        assert!(!pod.labels.contains_key(&operating), "{pod:?}");
        assert!(pod.is_available() && !pod.is_deleting, "{pod:?}");
    }
    assert_eq!(samples.fewest(), NAMES.len());
    let explained = ask(place, &["explain", "web-0"]);
    assert!(explained.contains("Held by Budget web: "), "{explained}");
    let asked = "A client last asked for its eviction ";
    assert!(explained.contains(asked), "{explained}");
    assert!(explained.contains(&held), "{explained}");
    let listed = ask(place, &["list", "--held"]);
    assert!(listed.contains("Budget web"), "{listed}");
    // A budget that gets room lets one go, without another question.
    let path = format!(
        "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/web",
        place.namespace
    );
    let room = json!({"spec": {"minAvailable": 2}});
    api::patch(place.client(), &path, api::Asked::Merge, &room)
        .await
        .unwrap();
    let out = |list: &Value| {
        let pods = list["items"].as_array().unwrap();
        let is_out = |pod: &&Value| {
            let labels = &pod["metadata"]["labels"];
            labels[OperationLabel::Operate.of("pod-delete")].is_string()
        };
        pods.iter().filter(is_out).count() == 1
    };
    place.world.until_object(&place.core("pods"), out).await;
    assert!(samples.fewest() >= 2, "{}", samples.fewest());
}

/// Of the pods of a StatefulSet one may be out of service: one that was removed and not made again is.
async fn a_replica_that_does_not_exist_yet_is_out_of_service(client: &Client, place: &Place<'_>) {
    const REPLICAS: usize = 4;
    let policy = json!({"maxUnavailableValue": 1});
    place
        .rule("one", json!([{"name": "one", "availablePolicy": policy}]))
        .await;
    workload(place, "StatefulSet", REPLICAS).await;
    let samples = Samples::start(place, Pod::is_available);
    let pods = place.pods().await;
    join_all(pods.iter().map(|pod| evict_until_gone(client, place, pod))).await;
    until_all_serve(place, REPLICAS).await;
    let fewest = samples.fewest();
    assert!(fewest >= REPLICAS - 1, "{fewest} of {REPLICAS} served");
}

/// A client may request the eviction once: then the controller evicts.
async fn an_eviction_that_is_not_repeated_is_done_by_the_controller(
    client: &Client,
    place: &Place<'_>,
) {
    place.serving(&["web-0"]).await;
    let (code, message) = evict(client, place, "web-0", json!({})).await;
    assert_eq!(code, 429, "{message}");
    place.until_gone("web-0").await;
}

/// A dry run of whatever kind ends as the real one would, and leaves the pods as they were.
async fn dry_runs_of_evictions_change_nothing(client: &Client, place: &Place<'_>) {
    const NAMES: [&str; 2] = ["web-0", "web-1"];
    place.serving(&NAMES).await;
    for name in NAMES {
        place
            .label(name, json!({DRAINED_DRY: place.namespace}))
            .await;
    }
    let before = place.pods().await;
    let dry = json!({"dryRun": ["All"]});
    let (code, said) = evict(client, place, "web-0", dry.clone()).await;
    assert_eq!(code, 201, "{said}");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web-0"},
    });
    let path = place.core("pods/web-0/eviction?dryRun=All");
    api::create(place.client(), &path, &eviction).await.unwrap();
    let collection = place.core("pods?labelSelector=app%3Dweb");
    let all = api::delete(place.client(), &collection, dry).await;
    assert!(all.is_err(), "as the real one: {all:?}");
    drain_dry(place).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(place.pods().await, before);
    // The real one is noted, and asked to come again.
    let (code, said) = evict(client, place, "web-0", json!({})).await;
    assert_eq!(code, 429, "{said}");
    let noted = place.pod("web-0").await.annotations;
    assert!(noted.contains_key(ANNOTATION_EVICTED_AT), "{noted:?}");
}

/// `kubectl drain --dry-run=server` ends.
async fn drain_dry(place: &Place<'_>) {
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    let Some(kubectl) = std::env::var_os("LONGSHORE_TEST_KUBECTL").map(PathBuf::from) else {
        return;
    };
    let pod = api::get(place.client(), &place.core("pods/web-0"))
        .await
        .unwrap();
    let node = pod["spec"]["nodeName"].as_str().unwrap().to_owned();
    let kubeconfig = place.world.kubeconfig();
    let selector = format!("--pod-selector={DRAINED_DRY}={}", place.namespace);
    let drained = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args(["drain", &node, "--force", "--ignore-daemonsets"]);
        command.args(["--dry-run=server", "--timeout=60s", &selector]);
        command.output().unwrap()
    });
    let drained = drained.await.unwrap();
    let text = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(drained.status.success(), "{text}");
}
