//! A leader of all roles that is paused beyond its lease, with a request to each kind of foreign system under way.
//!
//! While it is paused, another replica takes over and does the work, and the foreign systems answer what the paused one
//! has asked: some answers allow it to go on, the others make its clients repeat the request. One request waits inside of
//! its connection, because the connectors take one at a time. When it goes on, it sends nothing more to any of them, and
//! changes nothing that the other replica has done.

mod held;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use longshore_api::{
    flyte::LABEL_COMPLETED_TIME,
    podops::{CONTROLLED, LABEL_CONTROL, OperationLabel, POD_TRANSITION_RULE_CRD},
};
use longshore_test::{
    Answer, Conduct, FlyteServices, ForeignServer, Received, definitions::install_definition,
    flyte::outputs, scripted_node::ANNOTATION_SCRIPT,
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{
    foreign::{asking, cached, plain, remote, signal},
    kills::{BINARY, told},
    replica::{Plan, Replica, free_port, page, until},
};
use crate::{
    cluster::TestCluster,
    postgres,
    task_actions::{PodRecord, TaskActions},
};
use held::{
    Held, JOB, Kind, Logs, N_TOLD, OUTPUTS, PUT, RESERVED, SECOND_LOG, Stage, TOLD, WAITING,
    conduct,
};

const ROLES: &str = "dags,tasks,podops";
/// The metric that says that two jobs are to begin.
const TWO_JOBS: &str = "kind=\"connector_create\",state=\"in_flight\"} 2\n";
/// Longer than anything takes that ends.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(50);

const DAG: &str = "dag_id: kept\nschedule: '@once'\nstart_date: 2026-01-01\ncatchup: true\ntasks:\n  \
    t: {image: scripted, command: [run, 100ms, exit, '0']}\n";

/// Everything around the two leaders.
struct World {
    cluster: TestCluster,
    actions: TaskActions,
    pods: PodRecord,
    services: FlyteServices,
    webhook: ForeignServer,
    held: Held,
    plan: Plan,
    _database: postgres::Server,
}

impl World {
    /// `None` where there is no Postgres: another process cannot take a database in a file from one that is paused.
    async fn start() -> Option<Self> {
        let database = postgres::Server::start(false)?;
        let held = Held::new();
        let logs = Arc::new(Logs(held.clone()));
        let cluster = TestCluster::playing_with_logs(outputs::leave, logs).await;
        let actions = TaskActions::install(&cluster).await;
        install_definition(&cluster.admin, POD_TRANSITION_RULE_CRD).await;
        let of_services = held.clone();
        let services = FlyteServices::start_with(move |system, received| {
            conduct(&of_services, system, received)
        });
        let of_webhook = held.clone();
        let passes = || Answer {
            body: Bytes::from(json!({"success": true}).to_string()),
            ..Answer::default()
        };
        let services = services.await.unwrap();
        services.server().limit_streams(1);
        let webhook = ForeignServer::start(move |_| {
            let held = of_webhook.answers(Kind::Pass, passes());
            held.unwrap_or_else(|| Conduct::Answers(passes()))
        });
        let mut plan = asking(Plan::of(&cluster, ROLES), &services);
        if let Some(binary) = told(BINARY) {
            plan.program = binary.into();
        }
        plan.more = vec!["--database-url".to_owned(), database.url("postgres")];
        let loopback = ["--allow-webhook-cidr", "127.0.0.1/32"];
        plan.more.extend(loopback.map(str::to_owned));
        Some(Self {
            pods: PodRecord::start(&cluster),
            actions,
            services,
            webhook: webhook.await.unwrap(),
            held,
            plan,
            _database: database,
            cluster,
        })
    }

    /// Starts a replica, whose requests are known as its own, and waits until it leads in all roles. Returns the address
    /// of its metrics, too.
    async fn lead(&self, name: &str) -> (Replica, String) {
        let mut plan = self.plan.clone();
        let address = format!("127.0.0.1:{}", free_port());
        plan.more.extend(["--webhook-address".to_owned(), address]);
        let mut replica = plan.spawn(name);
        self.services.server().knows(replica.id());
        self.webhook.knows(replica.id());
        let ready = replica.ready();
        let leads = || says(&replica, "runs here");
        until(&format!("the {name} one leads in all roles"), leads).await;
        (replica, ready["metrics"].as_str().unwrap().to_owned())
    }

    /// Brings each kind of request under way, one after the other; the log, for which a leader waits 10 s at most, last.
    async fn begin(&self, metrics: &str) {
        let folder = self.cluster.folder.path();
        for (action, kind) in [
            (remote(OUTPUTS, "jobs"), Kind::Write),
            (remote(JOB, "jobs"), Kind::Begin),
            (cached(PUT, folder, false), Kind::Put),
            (cached(RESERVED, folder, true), Kind::Reserve),
        ] {
            self.actions.create(&action).await;
            self.held.until(kind).await;
        }
        // Its connector takes no other request before it has answered that of the job.
        self.actions.create(&remote(WAITING, "jobs")).await;
        while !page(metrics, "/metrics").await.contains(TWO_JOBS) {
            tokio::time::sleep(STEP).await;
        }
        self.begin_operation().await;
        self.held.until(Kind::Pass).await;
        let told: Vec<Value> = (0..N_TOLD).map(|n| plain(&format!("{TOLD}-{n}"))).collect();
        stream::iter(&told)
            .for_each_concurrent(N_TOLD, |action| self.actions.create(action))
            .await;
        self.held.until(Kind::Tell).await;
        let dags = self.plan.data().join("dags");
        fs::create_dir_all(&dags).unwrap();
        fs::write(dags.join("kept.yaml"), DAG).unwrap();
        self.held.until(Kind::Read).await;
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/pods{rest}", self.cluster.namespace)
    }

    async fn send(&self, method: http::Method, path: &str, body: &Value) -> kube::Result<Value> {
        let kind = match method {
            http::Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind);
        let request = request.body(body.to_string().into_bytes()).unwrap();
        self.cluster.admin.request(request).await
    }

    /// Makes a pod whose operation waits for the webhook of its rule.
    async fn begin_operation(&self) {
        let url = self.webhook.url();
        let rule = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
            "metadata": {"name": "asks"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "rules": [{"name": "hook", "webhook": {"clientConfig": {"url": url}}}],
            },
        });
        let rules = format!(
            "/apis/apps.kusionstack.io/v1alpha1/namespaces/{}/podtransitionrules",
            self.cluster.namespace
        );
        until_is_written(async || self.send(http::Method::POST, &rules, &rule).await).await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "labels": {LABEL_CONTROL: CONTROLLED, "app": "web"},
                "annotations": {ANNOTATION_SCRIPT: "run 3000s exit 0"},
            },
            "spec": {
                "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "example.test/image:1"}],
            },
        });
        // API servers hear of the webhooks a moment after they are registered: a pod without its gate has passed none.
        let dry_run = self.path("?dryRun=All");
        let tried = async || self.send(http::Method::POST, &dry_run, &pod).await;
        while !until_is_written(&tried).await["spec"]["readinessGates"].is_array() {
            tokio::time::sleep(STEP).await;
        }
        self.send(http::Method::POST, &self.path(""), &pod)
            .await
            .unwrap();
        let labels = json!({"metadata": {"labels": {
            OperationLabel::Operating.of("a"): "1",
            OperationLabel::OperationType.of("a"): "update",
        }}});
        let path = self.path("/web");
        until_is_written(async || self.send(http::Method::PATCH, &path, &labels).await).await;
    }

    async fn pod(&self) -> Value {
        let request = http::Request::get(self.path("/web")).body(Vec::new());
        self.cluster.admin.request(request.unwrap()).await.unwrap()
    }

    fn log_file(&self) -> PathBuf {
        self.plan.data().join("logs/dag_id=kept")
    }

    /// Waits until all of the work is done.
    async fn until_done(&self) {
        self.actions.until_count(5 + N_TOLD).await;
        let operate = OperationLabel::Operate.of("a");
        let is_allowed = async {
            while !self.pod().await["metadata"]["labels"][&operate].is_string() {
                tokio::time::sleep(STEP).await;
            }
        };
        let allowed = timeout(PATIENCE, is_allowed).await;
        assert!(allowed.is_ok(), "the operation of the pod is not allowed");
        until("the log is stored", || {
            texts_below(&self.log_file()) == [SECOND_LOG]
        })
        .await;
    }

    /// What the second leader has done, in the form in which it is compared later.
    async fn work(&self) -> Work {
        let mut versions = BTreeMap::new();
        let actions = self.actions.list().await;
        for action in &actions {
            let name = action["metadata"]["name"].as_str().unwrap();
            let end = super::actions::ending(action);
            assert_eq!(end.as_deref(), Some("Completed"), "{action}");
            assert!(action["metadata"]["labels"][LABEL_COMPLETED_TIME].is_string());
            // It is unknown whether the jobs that the first leader was about to begin have begun.
            let attempts = if [JOB, WAITING].contains(&name) { 2 } else { 1 };
            assert_eq!(action["status"]["attempts"], attempts, "{action}");
            let version = &action["metadata"]["resourceVersion"];
            versions.insert(name.to_owned(), version.clone());
        }
        Work {
            versions,
            labels: self.pod().await["metadata"]["labels"].clone(),
            logs: texts_below(&self.log_file()),
            stored: self.services.objects().into_keys().collect(),
            cached: self.services.cached().into_keys().collect(),
            n_events: self.services.events().len(),
        }
    }

    fn servers(&self) -> [&ForeignServer; 2] {
        [self.services.server(), &self.webhook]
    }

    /// The requests after the first `n` of each server that this process has not sent.
    fn not_sent_by(&self, process: u32, n: [usize; 2]) -> Vec<Received> {
        let received = self.servers().into_iter().zip(n);
        let received = received.flat_map(|(server, n)| server.received().split_off(n));
        received
            .filter(|received| received.sender != Some(process))
            .collect()
    }
}

/// What stands after the second leader's work.
#[derive(Debug, PartialEq)]
struct Work {
    /// The versions of the actions, which have ended.
    versions: BTreeMap<String, Value>,
    /// Of the pod of the rule.
    labels: Value,
    logs: Vec<String>,
    stored: BTreeSet<String>,
    cached: BTreeSet<String>,
    n_events: usize,
}

/// Whether a replica has said this of all roles.
fn says(replica: &Replica, what: &str) -> bool {
    let log = replica.log();
    let mut roles = ROLES.split(',');
    roles.all(|role| log.contains(&format!("{role}: {what}")))
}

/// The texts of all files below a directory.
fn texts_below(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut texts = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            texts.extend(texts_below(&path));
        } else {
            texts.extend(fs::read_to_string(path));
        }
    }
    texts
}

/// Tries until the API server takes it.
async fn until_is_written(write: impl AsyncFn() -> kube::Result<Value>) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match write().await {
            Ok(written) => return written,
            Err(error) => assert!(Instant::now() < deadline, "not taken: {error}"),
        }
        tokio::time::sleep(STEP).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_beyond_its_lease_sends_nothing_more_to_any_foreign_system() {
    let Some(world) = World::start().await else {
        return;
    };
    let (mut first, metrics) = world.lead("first").await;
    world.begin(&metrics).await;
    signal(&first, "STOP");
    world.held.enter(Stage::Paused);
    let (mut second, _) = world.lead("second").await;
    let taken_over = world.servers().map(ForeignServer::n_received);
    world.until_done().await;
    let done = world.work().await;

    world.held.enter(Stage::Released);
    signal(&first, "CONT");
    until("the first one has stopped in all roles", || {
        says(&first, "stopped, because")
    })
    .await;
    assert_eq!(first.stop(), Some(0), "{}", first.log());
    // All that it has sent is read.
    until("its connections are closed", || {
        let mut servers = world.servers().into_iter();
        servers.all(|server| server.n_connections(first.id()) == 0)
    })
    .await;
    let sent = world.not_sent_by(second.id(), taken_over);
    assert!(sent.is_empty(), "{sent:#?}\n{}", first.log());
    assert_eq!(world.work().await, done);
    world.pods.assert_one_pod_per_launch();
    assert_eq!(second.stop(), Some(0), "{}", second.log());
    if world.cluster.is_real() {
        println!("real server: a leader that was paused beyond its lease");
    }
}
