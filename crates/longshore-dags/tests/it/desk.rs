//! A scheduler over a database in a file, and the Task Execution API in front of it: what a worker meets.

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::{HeaderMap, Request, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use longshore_airflow::{
    api::HEADER_REFRESHED_TOKEN,
    token::{SigningKey, TokenRules, TokenScope, Tokens},
    worker::ExecuteTask,
};
use longshore_airflow_api::{ApiConfig, Measures, router};
use longshore_dags::{
    Dags, DagsConfig,
    execution::{Execution, WorkerStore},
    model::Dag,
    pods::worker::WorkerPods,
    scheduler::NewRun,
    secrets::Secrets,
};
use longshore_store::{
    ArchivedTry, Catalog as _, Changes, DagVersion, Run, RunDetails, RunKey, RunStore as _, Store,
    StoredDocument, TaskInstance,
};
use longshore_test::faults::Process;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;
use uuid::Uuid;

use crate::{
    surroundings::Surroundings,
    world::{FaultyLogs, FaultyStore, config, dag, seconds},
};

/// The version of the DAG of every run here.
pub(crate) const VERSION: Uuid = Uuid::from_u128(0x019a_a3f0_0000_7000_8000_0000_0000_d001);

const SECRET: &str = "5f0d9c1e7b3a48d2a6c4e8f01b2d3c4f5f0d9c1e7b3a48d2a6c4e8f01b2d3c4f";

/// A cluster and a database. They live through the crashes of schedulers.
pub(crate) struct Desk {
    pub(crate) around: Surroundings,
    pub(crate) store: Arc<Store>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) config: DagsConfig,
    yaml: String,
    path: PathBuf,
    _folder: TempDir,
}

/// A scheduler, and what answers its workers.
pub(crate) struct Open {
    pub(crate) dags: Arc<Dags>,
    router: Router,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answered {
    /// The token that the worker uses from now on.
    pub(crate) fn token(&self) -> Option<String> {
        let token = self.headers.get(HEADER_REFRESHED_TOKEN)?;
        Some(token.to_str().unwrap().to_owned())
    }

    pub(crate) fn reason(&self) -> &str {
        self.body["detail"]["reason"].as_str().unwrap_or_default()
    }
}

impl Desk {
    /// The DAG is a container DAG by its tasks and their order; its version makes workers run them.
    pub(crate) async fn new(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("longshore.db");
        let store = Arc::new(Store::open(&path).await.unwrap());
        let around = Surroundings::embedded();
        let tokens = tokens();
        let mut config = config(store.scheduler_id(), &around.place);
        config.workers = Some(worker_pods(&tokens));
        let desk = Self {
            around,
            store,
            tokens,
            config,
            yaml: yaml.to_owned(),
            path,
            _folder: folder,
        };
        let changes = Changes {
            documents: vec![
                serialized(&dag(yaml)),
                StoredDocument::of(&dag(yaml).to_json()),
            ],
            dag_versions: vec![version(&dag(yaml))],
            ..Changes::default()
        };
        desk.store.commit(&changes).await.unwrap();
        desk
    }

    /// Starts a scheduler, behind the faults of `process`.
    pub(crate) async fn open(&self, process: &Process) -> Open {
        let store = FaultyStore {
            store: self.store.clone(),
            process: process.clone(),
        };
        let logs = FaultyLogs {
            logs: self.around.logs.clone(),
            process: process.clone(),
        };
        let client = self.around.place.client();
        let clock = self.around.clock.clone();
        let config = self.config.clone();
        let dags = Dags::start(client, Arc::new(store), Arc::new(logs), clock, config);
        let dags = Arc::new(dags.await.unwrap());
        let rows = WorkerStore::of(self.store.clone());
        let execution = Execution::new(dags.clone(), rows, Secrets::new(None));
        let service = router(
            Arc::new(execution),
            self.around.clock.clone(),
            ApiConfig::new(self.tokens.clone()),
            &Measures::default(),
        );
        Open {
            dags,
            router: Router::new().nest("/execution", service),
        }
    }

    /// The same database after its process has died.
    pub(crate) async fn reopened(mut self) -> Self {
        self.store.close().await;
        self.store = Arc::new(Store::open(&self.path).await.unwrap());
        self
    }

    /// A run whose tasks workers run.
    pub(crate) fn new_run(&self, run_id: &str) -> NewRun {
        NewRun {
            details: RunDetails {
                dag_version: Some(VERSION),
                ..RunDetails::default()
            },
            ..NewRun::manual(dag(&self.yaml), run_id.to_owned())
        }
    }

    pub(crate) async fn rows(&self, run: &RunKey) -> (Run, Vec<TaskInstance>) {
        self.store.run(run).await.unwrap().unwrap()
    }

    /// The current try of a task that is not mapped.
    pub(crate) async fn row(&self, run: &RunKey, task_id: &str) -> TaskInstance {
        let rows = self.rows(run).await.1;
        let is_it = |row: &TaskInstance| row.key == run.task(task_id);
        rows.into_iter().find(is_it).unwrap()
    }

    pub(crate) async fn history(&self, run: &RunKey) -> Vec<ArchivedTry> {
        self.store.history(run).await.unwrap()
    }

    /// The workload of the pod of a try, once it runs.
    pub(crate) async fn workload(&self, id: Uuid) -> ExecuteTask {
        let pods: Api<Pod> =
            Api::namespaced(self.around.place.client(), self.around.place.namespace());
        loop {
            let listed = pods.list(&ListParams::default()).await.unwrap();
            let is_its = |pod: &&Pod| pod.labels().get("ti_id") == Some(&id.to_string());
            if let Some(pod) = listed.items.iter().find(is_its) {
                let container = &pod.spec.as_ref().unwrap().containers[0];
                let args = container.args.clone().unwrap();
                assert_eq!(args[2], "airflow.sdk.execution_time.execute_workload");
                return serde_json::from_str(&args[4]).unwrap();
            }
            seconds(1).await;
        }
    }

    /// The names of the pods that are there.
    pub(crate) async fn pods(&self) -> Vec<String> {
        let pods: Api<Pod> =
            Api::namespaced(self.around.place.client(), self.around.place.namespace());
        let listed = pods.list(&ListParams::default()).await.unwrap();
        listed.items.iter().map(ResourceExt::name_any).collect()
    }

    pub(crate) fn token(&self, id: Uuid, scope: TokenScope) -> String {
        let validity = Duration::from_secs(600);
        let now = self.around.clock.now();
        self.tokens
            .issue(id, scope, validity, now, [7; 16])
            .unwrap()
    }
}

impl Open {
    /// Sends a request to a path below `/execution`.
    pub(crate) async fn ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Answered {
        let request = Request::builder()
            .method(method)
            .uri(format!("/execution{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answered {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answered {
            status: head.status.as_u16(),
            headers: head.headers,
            body: if bytes.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&bytes).unwrap()
            },
        }
    }

    /// Does something to a task instance.
    pub(crate) async fn try_does(
        &self,
        token: &str,
        id: Uuid,
        what: &str,
        body: Value,
    ) -> Answered {
        let method = match what {
            "run" | "state" | "skip-downstream" | "rendered-map-index" => "PATCH",
            _ => "PUT",
        };
        let path = format!("/task-instances/{id}/{what}");
        self.ask(token, method, &path, Some(body)).await
    }
}

/// The tokens of every test.
pub(crate) fn tokens() -> Arc<Tokens> {
    let key = SigningKey::secret(SECRET, None).unwrap();
    Arc::new(Tokens::new(key, TokenRules::default()))
}

/// Pods whose process outlives the test: what ends the task is what its worker says.
pub(crate) fn worker_pods(tokens: &Arc<Tokens>) -> WorkerPods {
    WorkerPods {
        template: json!({"spec": {"restartPolicy": "Never", "containers": [{
            "name": "base", "image": "airflow",
            "env": [{"name": "SCRIPT", "value": "run 100000s"}],
        }]}}),
        image: None,
        tokens: Arc::clone(tokens),
        token_validity: Duration::from_secs(900),
    }
}

/// What the parser would have written, as far as workers need it.
pub(crate) fn serialized(dag: &Dag) -> StoredDocument {
    let tasks = dag.tasks.keys().map(|id| {
        json!({"__type": "operator", "__var": {
            "task_id": id, "task_type": "Op", "_task_module": "m",
        }})
    });
    let tasks: Vec<Value> = tasks.collect();
    StoredDocument::of(&json!({"__version": 3, "dag": {
        "dag_id": dag.dag_id, "fileloc": "/d/vec.py", "tasks": tasks,
        "timetable": {"__type": "airflow.timetables.simple.NullTimetable", "__var": {}},
    }}))
}

/// The version of that document.
pub(crate) fn version(dag: &Dag) -> DagVersion {
    DagVersion {
        id: VERSION,
        dag_id: dag.dag_id.clone(),
        number: 1,
        content_hash: "0".repeat(64),
        document: serialized(dag).hash().clone(),
        source: None,
        bundle: None,
        file: "vec.py".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
        version: 0,
    }
}

/// What a worker says when it begins.
pub(crate) fn begins(pid: i64) -> Value {
    json!({
        "state": "running", "hostname": "pod", "unixname": "airflow", "pid": pid,
        "start_date": "2026-01-01T00:00:00Z",
    })
}
