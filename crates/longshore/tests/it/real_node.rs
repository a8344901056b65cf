//! The process node as a node of a real API server: the quickstart, with real processes and their logs.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{PersistentVolume, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use longshore_dags::{
    DagMeasures, Dags, DagsConfig, LeftRuns, document,
    folder::read_beside,
    launch::decide::Disposal,
    logs::{LogDirectory, LogPath},
    model::Dag,
    pods::build::{PodConfig, workspace_name},
    scheduler::{Limits, NewRun, identity::manual_run_id},
};
use longshore_kit::{Clock, Gate, Metrics, SystemClock};
use longshore_node::{LogServer, Node, NodeConfig};
use longshore_store::{RunState, RunStore, Store};
use longshore_test::{Place, RealNamespace, RealServer};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{quickstart_programs::REPORT, repository};

/// Longer than the quickstart takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process node that has joined, under the name of the namespace.
struct Joined {
    running: JoinHandle<()>,
    shutdown: CancellationToken,
    _logs: LogServer,
}

async fn join(namespace: &RealNamespace, root: &Path) -> Joined {
    let shim = [env!("CARGO_BIN_EXE_longshore"), "shim"];
    let name = namespace.place().namespace().to_owned();
    let mut config = NodeConfig::new(name, root, shim.map(Into::into).to_vec());
    let listener = namespace.log_listener().unwrap();
    config.log_port = Some(listener.port());
    let node = Node::new(namespace.place().client(), config).await.unwrap();
    let logs = listener.serve(Arc::new(node.clone())).unwrap();
    let shutdown = CancellationToken::new();
    let told = shutdown.clone();
    Joined {
        running: tokio::spawn(async move { node.run(told).await }),
        shutdown,
        _logs: logs,
    }
}

/// Without a scheduler of pods they go to the node of the namespace.
fn config(namespace: &str, scheduler_id: &str, binding: Binding) -> DagsConfig {
    let pod_template = match binding {
        Binding::ByScheduler => None,
        Binding::ByTemplate => Some(json!({"spec": {"nodeName": namespace}})),
    };
    DagsConfig {
        limits: Limits::default(),
        pods: PodConfig {
            namespace: namespace.to_owned(),
            scheduler_id: scheduler_id.to_owned(),
            pod_template,
            ..PodConfig::default()
        },
        disposal: Disposal::default(),
        concurrency: 8,
        metrics: Metrics::new(),
        measures: DagMeasures::default(),
        gate: Gate::always_open(),
        left_runs: LeftRuns::GoOn,
        workers: None,
    }
}

/// What binds the pods to their node.
#[derive(Clone, Copy, Debug)]
enum Binding {
    /// kube-scheduler, which runs where kube-controller-manager does.
    ByScheduler,
    /// The template of the pods.
    ByTemplate,
}

impl Binding {
    /// By what the controller manager leaves in each namespace.
    async fn of(place: &Place) -> Self {
        let accounts: Api<ServiceAccount> = Api::namespaced(place.client(), "default");
        match accounts.get_opt("default").await.unwrap() {
            Some(_) => Self::ByScheduler,
            None => Self::ByTemplate,
        }
    }
}

/// A volume that the claim of the workspace is bound to, as its pods wait for that. Its name is the namespace's.
async fn add_volume(place: &Place) {
    let volumes: Api<PersistentVolume> = Api::all(place.client());
    let volume = json!({
        "metadata": {"name": place.namespace()},
        "spec": {
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "capacity": {"storage": "1Ti"},
            "hostPath": {"path": "/nonexistent"},
        },
    });
    let volume = serde_json::from_value(volume).unwrap();
    volumes
        .create(&PostParams::default(), &volume)
        .await
        .unwrap();
}

async fn remove_volume(place: &Place) {
    let volumes: Api<PersistentVolume> = Api::all(place.client());
    volumes
        .delete(place.namespace(), &DeleteParams::default())
        .await
        .unwrap();
}

fn quickstart() -> Dag {
    let folder = repository().join("examples/quickstart");
    let text = fs::read_to_string(folder.join("dag.yaml")).unwrap();
    let document = document::parse("dag.yaml", &text).unwrap();
    let read = &mut |name: &str| read_beside(&folder, name);
    document.validate(read).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_node_runs_the_quickstart_on_a_real_api_server() {
    let Some(server) = RealServer::given() else {
        return;
    };
    let namespace = RealNamespace::create(&server, "quickstart").await.unwrap();
    let data = TempDir::new().unwrap();
    let node = join(&namespace, &data.path().join("node")).await;
    let store = Store::open(data.path().join("longshore.db")).await;
    let store = Arc::new(store.unwrap());
    let logs = LogDirectory::new(data.path().join("logs"));
    let place = namespace.place();
    let name = place.namespace().to_owned();
    let binding = Binding::of(&place).await;
    add_volume(&place).await;
    let dags = Dags::start(
        place.client(),
        store.clone(),
        Arc::new(logs.clone()),
        Arc::new(SystemClock),
        config(&name, store.scheduler_id(), binding),
    );
    let dags = dags.await.unwrap();
    let (dag, at) = (quickstart(), SystemClock.now());
    let run = NewRun {
        logical_date: Some(at),
        ..NewRun::manual(Arc::new(dag), manual_run_id(at))
    };
    let run = dags.request_run(run).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, dags.ended(&run)).await;
    let (ended, tasks) = ended.unwrap().unwrap().unwrap();
    assert_eq!(ended.state, RunState::Success, "{tasks:#?}");
    let released = tokio::time::timeout(PATIENCE, dags.released(&run)).await;
    released.expect("the logs are stored and the pods deleted");

    let claims = data.path().join("node/volumes").join(&name);
    let report = claims.join(workspace_name(&run)).join("report.csv");
    assert_eq!(fs::read_to_string(report).unwrap(), REPORT);
    let mut log_of = BTreeMap::new();
    for task in tasks {
        let n_tries = if task.key.task_id == "summarise_gentoo" {
            2
        } else {
            1
        };
        assert_eq!(task.try_number, n_tries, "{}", task.key.task_id);
        let log = logs.file(&LogPath::of_try(&task.key, n_tries));
        log_of.insert(task.key.task_id, fs::read_to_string(&log).unwrap());
    }
    assert_eq!(log_of["clean"], "342 birds kept\n", "{log_of:#?}");
    assert!(dags.shutdown(PATIENCE).await);
    node.shutdown.cancel();
    node.running.await.unwrap();
    remove_volume(&place).await;
    namespace.remove().await.unwrap();
    println!("real server: the quickstart on the process node, bound {binding:?}");
}
