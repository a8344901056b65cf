//! SIGKILL on a node at random moments, on a real process, under pods with real processes. The node's process is this
//! test binary: it runs [`a_node_that_is_killed`] against the API server of the test.
//!
//! What counts is what the pods' processes themselves wrote into a file.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_cluster::{Cluster, ServeConfig, Serving, controllers};
use longshore_node::{Node, NodeConfig, PodsLifetime, Profile};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::shim_rig::n_processes;

/// The kubeconfig and the directory for [`a_node_that_is_killed`].
const KUBECONFIG: &str = "LONGSHORE_TEST_NODE_KUBECONFIG";
const DIRECTORY: &str = "LONGSHORE_TEST_NODE_DIRECTORY";
/// How often to kill and under how many pods; the campaign asks for more than a test run.
const KILLS: &str = "LONGSHORE_TEST_KILLS";
const PODS: &str = "LONGSHORE_TEST_PODS";

/// A life of a node after it has come up, at most.
const MAX_LIFE: Duration = Duration::from_millis(500);
/// How long everything may take to come to rest after the last kill.
const PATIENCE: Duration = Duration::from_secs(240);

#[expect(
    clippy::disallowed_methods,
    reason = "how a test tells its own child what to do"
)]
fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The node of the child. Without a directory it is no child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed() {
    let (Some(kubeconfig), Some(directory)) = (told(KUBECONFIG), told(DIRECTORY)) else {
        return;
    };
    let config = NodeConfig {
        lifetime: PodsLifetime::OutliveNode,
        max_pods: 1000,
        n_concurrent_starts: 8,
        ..NodeConfig::new(
            "node-0",
            directory,
            vec![env!("CARGO_BIN_EXE_longshore-shim").into()],
        )
    };
    let node = Node::new(client_of(Path::new(&kubeconfig)).await, config);
    let node = node.await.expect("a node");
    println!("up {}", node.profile());
    if node.profile() != Profile::None {
        node.run(CancellationToken::new()).await;
    }
}

async fn client_of(kubeconfig: &Path) -> kube::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    kube::Client::try_from(config.expect("a configuration")).expect("a client")
}

/// What a pod does, and how it must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Runs for a moment, ends with this code, is never restarted.
    Once(i32),
    /// Fails once, and is restarted to success.
    Twice,
    /// Runs until it is deleted, and cleans up when asked to.
    Deleted,
    /// Runs until its object is gone from one moment to the next.
    Forgotten,
}

impl Kind {
    fn of(n: usize) -> Self {
        match n % 6 {
            0 => Self::Once(0),
            1 => Self::Once(7),
            2 => Self::Twice,
            3 => Self::Deleted,
            4 => Self::Forgotten,
            _ => Self::Once(3),
        }
    }

    /// Each process leaves `start` and `end` behind its pod's name; one short append is atomic.
    fn script(self, name: &str, n: usize) -> String {
        let moment = 50 + n * 37 % 400;
        let pause = format!("sleep {}.{:03}", moment / 1000, moment % 1000);
        let (start, end) = (
            format!("echo {name} start >> /marks/marks"),
            format!("echo {name} end >> /marks/marks"),
        );
        match self {
            Self::Once(code) => format!("{start}; {pause}; {end}; exit {code}"),
            Self::Twice => format!(
                "{start}; {pause}; {end}; test $(grep -c '^{name} end$' /marks/marks) -ge 2"
            ),
            Self::Deleted => {
                format!("trap '{end}; exit 0' TERM; {start}; while :; do sleep 0.05; done")
            }
            Self::Forgotten => format!("{start}; exec sleep {}", marker(n)),
        }
    }
}

/// A sleep time in seconds that no other process on the machine uses, so that its process can be found.
fn marker(n: usize) -> String {
    format!("8{n}.{}", std::process::id())
}

struct World {
    client: kube::Client,
    serving: Serving,
    dir: tempfile::TempDir,
    /// All pods so far, by name.
    pods: BTreeMap<String, (usize, Kind)>,
    random: u128,
}

impl World {
    fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("marks")).expect("a directory");
        let cluster = Cluster::in_memory();
        let serving = cluster.serve(ServeConfig::new(dir.path().join("api")));
        let client = cluster.client();
        tokio::spawn(controllers::run(client.clone(), CancellationToken::new()));
        Self {
            client,
            serving: serving.expect("serves"),
            dir,
            pods: BTreeMap::new(),
            random: uuid::Uuid::new_v4().as_u128(),
        }
    }

    fn api(&self) -> kube::Api<Pod> {
        kube::Api::default_namespaced(self.client.clone())
    }

    fn random(&mut self, below: usize) -> usize {
        self.random = self
            .random
            .rotate_left(13)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from((self.random >> 64) % below as u128).expect("small")
    }

    /// A new life of the node, and how far it can isolate pods.
    fn node(&self) -> (Life, String) {
        let mut process = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "kill::a_node_that_is_killed", "--nocapture"])
            .env(KUBECONFIG, self.serving.kubeconfig())
            .env(DIRECTORY, self.dir.path().join("node"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the node starts");
        let output = process.stdout.take().expect("piped");
        let up = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("up ")?.1.to_owned()))
            .expect("the node comes up");
        (Life(process), up)
    }

    async fn create(&mut self) {
        let n = self.pods.len();
        let (name, kind) = (format!("p{n}"), Kind::of(n));
        let marks = self.dir.path().join("marks");
        let policy = match kind {
            Kind::Twice => "OnFailure",
            Kind::Once(_) | Kind::Deleted | Kind::Forgotten => "Never",
        };
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": 60,
                "volumes": [{"name": "marks", "hostPath": {"path": marks}}],
                "containers": [{
                    "name": "main", "image": "any", "command": ["sh", "-c", kind.script(&name, n)],
                    "volumeMounts": [{"name": "marks", "mountPath": "/marks"}],
                }],
            },
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let created = self.api().create(&PostParams::default(), &pod).await;
        created.expect("created");
        self.pods.insert(name, (n, kind));
    }

    async fn list(&self) -> Vec<Pod> {
        let list = self.api().list(&ListParams::default()).await;
        list.expect("a list").items
    }

    /// Deletes one of the pods that run until then, once it has begun to. Returns whether there was one.
    async fn delete_one(&self) -> bool {
        let kind = |pod: &Pod| self.pods[&pod.name_any()].1;
        let list = self.list().await;
        let due = list.iter().find(|pod| {
            pod.metadata.deletion_timestamp.is_none()
                && matches!(kind(pod), Kind::Deleted | Kind::Forgotten)
                && self.marks(&pod.name_any()).0 > 0
        });
        let Some(pod) = due else { return false };
        let grace = (kind(pod) == Kind::Forgotten).then_some(0);
        self.delete(&pod.name_any(), grace).await
    }

    /// Deletes a pod. Returns whether it was still there. The server marks a pod without grace
    /// before it removes it, and the node may be faster with the second step.
    async fn delete(&self, name: &str, grace: Option<u32>) -> bool {
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        match self.api().delete(name, &params).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// Deletes enough pods to make room for new ones; returns how many it deleted.
    async fn delete_some(&self, n_pods: usize) -> usize {
        let mut n_deleted = 0;
        while n_deleted <= n_pods / 10 && self.delete_one().await {
            n_deleted += 1;
        }
        n_deleted
    }

    /// How many pods have not ended yet.
    async fn n_live(&self) -> usize {
        let is_live = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            let is_over = matches!(phase, Some("Succeeded" | "Failed"));
            !is_over || pod.metadata.deletion_timestamp.is_some()
        };
        self.list().await.iter().filter(is_live).count()
    }

    fn marks(&self, name: &str) -> (usize, usize) {
        let marks = self.dir.path().join("marks/marks");
        let marks = std::fs::read_to_string(marks).unwrap_or_default();
        let count = |what: &str| {
            let line = format!("{name} {what}");
            marks.lines().filter(|it| *it == line).count()
        };
        (count("start"), count("end"))
    }

    /// Every pod that ended: its processes ran as often as they had to, and its status says how they ended.
    async fn check(&self) {
        let list = self.list().await;
        for (name, (n, kind)) in &self.pods {
            let pod = list.iter().find(|pod| pod.name_any() == *name);
            let status = serde_json::to_value(pod.map(|pod| &pod.status)).expect("JSON");
            let main = &status["containerStatuses"][0];
            let found = (
                self.marks(name),
                &main["state"]["terminated"]["exitCode"],
                &main["restartCount"],
            );
            match kind {
                Kind::Once(code) => {
                    assert_eq!(
                        found,
                        ((1, 1), &json!(code), &json!(0)),
                        "{name}: {status:#}"
                    );
                }
                Kind::Twice => {
                    assert_eq!(found, ((2, 2), &json!(0), &json!(1)), "{name}: {status:#}");
                }
                Kind::Deleted => assert_eq!((found.0, pod), ((1, 1), None), "{name}"),
                Kind::Forgotten => {
                    assert_eq!((found.0, pod), ((1, 0), None), "{name}");
                    assert_eq!(n_processes(&marker(*n)), 0, "{name} runs on");
                }
            }
        }
    }

    /// What is left of pods on disk and as processes.
    fn leavings(&self) -> Vec<String> {
        let mut all = Vec::new();
        let entries = std::fs::read_dir(self.dir.path().join("node/pods"));
        let entries = entries.expect("a directory").flatten();
        all.extend(entries.map(|entry| entry.path().display().to_string()));
        let root = self.dir.path().display().to_string();
        for process in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            if command.contains(&root) {
                all.push(format!("{:?} {command}", process.file_name()));
            }
        }
        all
    }
}

/// A process that runs a node; killed when it is dropped.
struct Life(Child);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.kill().expect("a child"); // SIGKILL
        self.0.wait().expect("a child");
    }
}

/// Waits in real time: the node is a process of its own.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waits = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let held = tokio::time::timeout(PATIENCE, waits).await;
    assert!(held.is_ok(), "never happened: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_runs_twice_when_the_node_is_killed() {
    let number = |name: &str| told(name).map(|text| text.parse::<usize>().expect("a number"));
    let (n_kills, n_pods) = (number(KILLS).unwrap_or(6), number(PODS).unwrap_or(9));
    let mut world = World::new();
    let mut n_deleted_without_node = 0;
    for _ in 0..n_kills {
        let (life, profile) = world.node();
        if profile == Profile::None.to_string() {
            return println!("SKIPPED: this machine allows no mount namespaces");
        }
        // New pods meet the node at every step of their start.
        while world.n_live().await < n_pods {
            world.create().await;
        }
        world.delete_some(n_pods).await;
        let micros = world.random(MAX_LIFE.as_micros().try_into().expect("small"));
        tokio::time::sleep(Duration::from_micros(micros as u64)).await;
        drop(life);
        n_deleted_without_node += world.delete_some(n_pods).await;
    }
    let life = world.node();
    until("the pods end", || async {
        while world.delete_one().await {}
        world.n_live().await == 0
    })
    .await;
    world.check().await;
    for pod in world.list().await {
        world.delete(&pod.name_any(), None).await;
    }
    until("nothing is left", || async { world.leavings().is_empty() }).await;
    drop(life);
    let n_starts: usize = world.pods.keys().map(|name| world.marks(name).0).sum();
    let result: Value = json!({
        "kills": n_kills,
        "pods": world.pods.len(),
        "pods_at_a_time": n_pods,
        "deleted_without_node": n_deleted_without_node,
        "processes_started": n_starts,
        "started_twice": 0,
        "lost_exits": 0,
        "processes_left": 0,
    });
    println!("result {result}");
}
