//! The generated roles against a real API server with RBAC: each suffices, and none of it is unused.

mod policies;
mod tasks;
mod tokens;
mod undo;

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use longshore_api::flyte::{self, TASK_ACTION_CRD};
use longshore_dags::{
    DagMeasures, Dags, DagsConfig, LeftRuns, document,
    launch::decide::Disposal,
    logs::NoLogArchive,
    model::Dag,
    pods::build::PodConfig,
    scheduler::{Limits, NewRun},
};
use longshore_kit::{
    CountRequests, Definition, Elector, Gate, Metrics, Namespaces, Rule, SystemClock,
    lease::{LeaseName, Terms},
};
use longshore_plugins::Registry;
use longshore_store::{RunState, RunStore, Store};
use longshore_tasks::TasksConfig;
use longshore_test::{Fault, FaultPlan, Faults, Point, WatchFault};
use tokio_util::sync::CancellationToken;

use crate::cluster::{TestCluster, config, real};

const LIMIT: Duration = Duration::from_secs(120);

/// Files, a workspace, a retry, tasks that wait for each other, one with a limit of time, which is seen to run before it
/// ends, and one with a plugin.
const DAG: &str = r#"
dag_id: rbac
files: [data.csv]
workspace: true
tasks:
  a: {image: scripted, execution_timeout: 1m, command: [run, 5s, exit, "0"]}
  b: {image: scripted, depends_on: [a], retries: 1, retry_delay: 1s, command: ["run 100ms exit 1 | run 100ms exit 0"]}
  c: {plugin: pod, image: scripted, depends_on: [b], command: [run, 100ms, exit, "0"]}
"#;

/// Whether there is nothing to test, which is said.
fn is_skipped() -> bool {
    let is_skipped = real().is_none();
    if is_skipped {
        println!(
            "skipped: LONGSHORE_TEST_KUBECONFIG names no real server, and the embedded one has no RBAC"
        );
    }
    is_skipped
}

/// A client whose requests are counted, before the faults.
async fn client(
    kubeconfig: &Path,
    faults: &Faults,
    name: &'static str,
    metrics: &Metrics,
) -> Client {
    let client = Client::try_from(config(kubeconfig).await).unwrap();
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    let counted = CountRequests::new(service, name, metrics.clone());
    faults.start().client(counted)
}

/// Verb and resource of every request that was counted, and those that were forbidden.
fn requested(metrics: &Metrics) -> (BTreeSet<(String, String)>, Vec<String>) {
    let (mut requested, mut forbidden) = (BTreeSet::new(), Vec::new());
    for line in metrics.text().lines() {
        if !line.starts_with("longshore_api_requests_total{") {
            continue;
        }
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        if label("code") == "403" {
            forbidden.push(line.to_owned());
        }
        requested.insert((label("verb"), label("resource")));
    }
    (requested, forbidden)
}

pub(crate) fn granted<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> BTreeSet<(String, String)> {
    let mut granted = BTreeSet::new();
    for rule in rules {
        for resource in rule.resources {
            let pairs = rule
                .verbs
                .iter()
                .map(|verb| ((*verb).to_owned(), (*resource).to_owned()));
            granted.extend(pairs);
        }
    }
    granted
}

/// Runs the TaskActions of the cluster's namespace, to the end of the test, with all rights.
async fn run_actions(cluster: &TestCluster) {
    let definition: CustomResourceDefinition = serde_saphyr::from_str(TASK_ACTION_CRD).unwrap();
    let definitions = Api::all(cluster.admin.clone());
    match definitions
        .create(&PostParams::default(), &definition)
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        created => drop(created.unwrap()),
    }
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(flyte::GROUP, flyte::VERSION, flyte::KIND),
        "taskactions",
    );
    let actions: Api<DynamicObject> = Api::all_with(cluster.admin.clone(), &kind);
    while actions.list(&ListParams::default()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let config = TasksConfig {
        namespaces: Namespaces::one(&cluster.namespace),
        ..TasksConfig::default()
    };
    let plugins = Arc::new(Registry::new(&config.plugins).unwrap());
    let executor = longshore_tasks::Tasks::new(config, plugins, Arc::new(SystemClock));
    tokio::spawn(executor.run(cluster.admin.clone(), CancellationToken::new()));
}

fn dag() -> Dag {
    let document = document::parse("rbac.yaml", DAG).unwrap();
    let read = &mut |_: &str| Ok(b"a,b\n".to_vec());
    document.validate(read).unwrap()
}

/// All but those for a cluster without TaskActions.
fn of_installed_kinds() -> Vec<Rule> {
    let rules = longshore_dags::RULES.iter();
    let rules = rules.filter(|rule| rule.group != "apiextensions.k8s.io");
    rules.copied().collect()
}

fn manual(dag: Dag) -> NewRun {
    NewRun::manual(Arc::new(dag), "r1".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_with_the_generated_role_alone_does_all_its_work_and_uses_all_of_it() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    run_actions(&cluster).await;
    let account = cluster.account("dags").await;
    let metrics = Metrics::new();
    // The answers to first creates are lost: what is there has to be read and recognised.
    let creates = [
        "pods",
        "configmaps",
        "persistentvolumeclaims",
        "taskactions",
    ];
    let lost = creates.map(|plural| {
        let point = Point::new(format!("create {plural}"), 1);
        (point, Fault::LoseAnswer)
    });
    let faults = Faults::new(FaultPlan {
        at: lost.to_vec(),
        // A round that comes again does not see its pod yet.
        watches: vec![WatchFault::late(Duration::from_secs(2))],
        ..FaultPlan::none()
    });
    let store = Arc::new(Store::in_memory().await.unwrap());
    let dags = Dags::start(
        client(&account, &faults, "dags", &metrics).await,
        store.clone(),
        Arc::new(NoLogArchive),
        Arc::new(SystemClock),
        DagsConfig {
            limits: Limits::default(),
            pods: PodConfig {
                namespace: cluster.namespace.clone(),
                scheduler_id: store.scheduler_id().to_owned(),
                ..PodConfig::default()
            },
            disposal: Disposal::default(),
            concurrency: 8,
            metrics: Metrics::new(),
            measures: DagMeasures::default(),
            gate: Gate::always_open(),
            left_runs: LeftRuns::GoOn,
            workers: None,
        },
    );
    let dags = dags.await.unwrap();
    let run = dags.request_run(manual(dag())).await.unwrap();
    let ended = tokio::time::timeout(LIMIT, dags.ended(&run)).await.unwrap();
    let (ended, _) = ended.unwrap().unwrap();
    assert_eq!(ended.state, RunState::Success);
    tokio::time::timeout(LIMIT, dags.released(&run))
        .await
        .unwrap();
    // Its files go last.
    let wanted = granted(&of_installed_kinds());
    let all_used = async {
        while requested(&metrics).0 != wanted {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(10), all_used).await;
    let (used, forbidden) = requested(&metrics);
    assert!(forbidden.is_empty(), "{forbidden:?}");
    assert_eq!(used, wanted, "used and declared");
    assert!(dags.shutdown(LIMIT).await);
    let twice = cluster.node.history().repeated(|run| {
        let label = |name: &str| run.labels.get(name).cloned();
        Some(format!("{}/{}", label("task_id")?, label("try_number")?))
    });
    assert!(twice.is_empty(), "{twice:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_with_the_generated_role_alone_may_wait_for_task_actions() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    run_actions(&cluster).await;
    let account = cluster.account("dags").await;
    let metrics = Metrics::new();
    let client = client(&account, &Faults::none(), "dags", &metrics).await;
    let definition = Definition::new(longshore_plugins::TASK_ACTION, |_| {});
    let served = definition.until_served(&client);
    tokio::time::timeout(LIMIT, served).await.unwrap();
    let (used, forbidden) = requested(&metrics);
    assert!(forbidden.is_empty(), "{forbidden:?}");
    let list = ("list".to_owned(), "customresourcedefinitions".to_owned());
    assert_eq!(used, [list].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elector_with_the_generated_role_alone_takes_renews_and_releases_its_lease() {
    if is_skipped() {
        return;
    }
    let cluster = TestCluster::start().await;
    let account = cluster.account("dags").await;
    let metrics = Metrics::new();
    let client = client(&account, &Faults::none(), "election", &metrics).await;
    let lease = |name: &str| LeaseName {
        namespace: cluster.namespace.clone(),
        name: name.to_owned(),
    };
    let elector = |name, me| {
        Elector::new(
            client.clone(),
            lease(name),
            me,
            Terms::default(),
            Arc::new(SystemClock),
        )
    };
    let mut first = elector("longshore-dags", "first");
    let gate = first.acquire(|_| {}).await.unwrap();
    // Two renewals.
    let kept = tokio::time::timeout(Duration::from_millis(4_500), first.keep()).await;
    assert!(kept.is_err() && gate.check().is_ok());
    first.release().await;
    let mut second = elector("longshore-dags", "second");
    let limit = Duration::from_secs(5);
    let taken = tokio::time::timeout(limit, second.acquire(|_| {})).await;
    taken.unwrap().unwrap();
    let (used, forbidden) = requested(&metrics);
    assert!(forbidden.is_empty(), "{forbidden:?}");
    let expected = ["create", "get", "patch"].map(|verb| (verb.to_owned(), "leases".to_owned()));
    assert_eq!(used, expected.into());

    let refused = elector("of-somebody-else", "first").acquire(|_| {}).await;
    assert!(refused.is_err(), "a lease of another name");
}
