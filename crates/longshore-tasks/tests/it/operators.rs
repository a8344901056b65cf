//! Operators and a connector as tasks meet them: objects go from one status to the next, jobs end after a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource as _, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use longshore_api::{
    flyte::{LABEL_ATTEMPT, LABEL_MANAGED, TRUE},
    tasks::ANNOTATION_LAUNCH,
};
use longshore_cluster::controllers;
use longshore_core::Resource;
use longshore_kit::api_resource;
use longshore_plugins::{Answer, Call, Config, GracePeriods, Registry, Request, Runner, Teller};
use longshore_proto::{
    flyteidl2::{
        connector::{CreateTaskResponse, GetTaskResponse, Resource as Job},
        core::{LiteralMap, TaskTemplate, task_execution},
    },
    from_json,
};
use longshore_tasks::remote::{AskConnectors, ConnectorError};
use longshore_test::{Place, faults::Process, pod};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::world::{is_cached, is_limited, is_serialized, set_template};

/// Between two statuses.
const STEP: Duration = Duration::from_secs(5);
/// The kinds that have an operator here.
const PLAYED: [&str; 8] = [
    "SparkApplication",
    "RayJob",
    "PyTorchJob",
    "TFJob",
    "MPIJob",
    "JobSet",
    "FlinkDeployment",
    "DaskJob",
];
/// The operator that is installed late.
const LATE: (&str, Duration) = ("DaskJob", Duration::from_secs(20));

/// All plugins.
pub(crate) fn plugins() -> Registry {
    Registry::new(&Config::default()).unwrap()
}

/// All plugins, which wait for so long until pods begin.
pub(crate) fn patient_plugins(grace: GracePeriods) -> Registry {
    let mut config = Config::default();
    config.k8s.grace = grace;
    Registry::new(&config).unwrap()
}

/// The kinds that are played.
pub(crate) fn kinds() -> Vec<Resource> {
    let kinds = plugins();
    let kinds = kinds.resources();
    kinds.filter(|kind| PLAYED.contains(&kind.kind)).collect()
}

/// The task type that the name of an action begins with, and what its plugin needs to know.
fn task_type(name: &str) -> (&'static str, Value) {
    let kind: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
    match kind.as_str() {
        "pod" => ("container", json!({})),
        "spark" => ("spark", json!({"mainApplicationFile": "local:///app.py"})),
        "ray" => ("ray", json!({"rayCluster": {}})),
        "torch" => ("pytorch", json!({"workers": 1})),
        "tf" => ("tensorflow", json!({"workers": 1})),
        "mpi" => ("mpi", json!({"numWorkers": 1, "slots": 1})),
        "set" => ("clustered-task", json!({"replicas": 1, "nprocPerNode": 1})),
        "flink" => ("flink", json!({"job": {"jarURI": "local:///job.jar"}})),
        "dask" => (
            "dask",
            json!({"scheduler": {}, "workers": {"numberOfWorkers": 1}}),
        ),
        "sleep" => ("core-sleep", json!({})),
        "job" => ("task_type_3", json!({})),
        "work" => ("task_type_4", json!({})),
        other => panic!("no task type is called {other:?}"),
    }
}

/// What the plugin of an action makes; `None` where that is no resource.
pub(crate) fn made_for(name: &str) -> Option<Resource> {
    match plugins().runner(task_type(name).0) {
        Runner::Resource(plugin) => Some(plugin.resource()),
        Runner::Remote(_) => None,
    }
}

/// The action as its name says.
pub(crate) fn typed(mut action: Value, retries: u32) -> Value {
    let name = action["metadata"]["name"].as_str().unwrap();
    let (task_type, custom) = task_type(name);
    let input = json!([{"key": "t", "value": {"type": {"simple": "DURATION"}}}]);
    let template: TaskTemplate = from_json(&json!({
        "type": task_type,
        "id": {"name": "task"},
        "metadata": {
            "retries": {"retries": retries},
            "discoverable": is_cached(name),
            "cacheSerializable": is_serialized(name),
            "timeout": if is_limited(name) { "5s" } else { "0s" },
        },
        "interface": {"inputs": {"variables": input}},
        "custom": custom,
        "container": {"image": "example.test/image:1", "command": ["true"]},
    }))
    .unwrap();
    action["spec"]["taskType"] = task_type.into();
    set_template(&mut action, &template);
    action
}

/// What tasks that sleep are given: 20 s.
pub(crate) fn inputs() -> LiteralMap {
    from_json(&json!({"literals": {"t": {"scalar": {"primitive": {"duration": "20s"}}}}})).unwrap()
}

/// What the operators have seen: the objects of each launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct MadeObjects(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl MadeObjects {
    fn note(&self, launch: String, uid: &str) {
        let mut seen = self.0.lock().unwrap();
        seen.entry(launch).or_default().insert(uid.to_owned());
    }

    /// How many objects there were.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().values().map(BTreeSet::len).sum()
    }

    /// Launches that were made more than once.
    pub(crate) fn repeated(&self) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        let several = seen.iter().filter(|(_, objects)| objects.len() > 1);
        several
            .map(|(launch, objects)| format!("{launch} was made as {objects:?}"))
            .collect()
    }
}

/// Installs the kinds, and plays their operators to the end of the test.
///
/// What operators made is deleted in the foreground, which a garbage collector ends.
pub(crate) async fn start(place: &Place, seen: &MadeObjects) {
    for kind in kinds() {
        let (place, seen) = (place.clone(), seen.clone());
        if kind.kind != LATE.0 {
            install(&place.client(), kind).await;
        }
        tokio::spawn(async move {
            if kind.kind == LATE.0 {
                tokio::time::sleep(LATE.1).await;
                install(&place.client(), kind).await;
            }
            play(&place, kind, &seen).await;
        });
    }
    // Last: it asks for everything that the API has, again at each definition.
    tokio::spawn(controllers::run(place.client(), CancellationToken::new()));
}

async fn install(client: &Client, kind: Resource) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind, "listKind": format!("{}List", kind.kind), "plural": kind.plural,
                "singular": kind.kind.to_lowercase(),
            },
            "versions": [{
                "name": kind.version, "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(definition.to_string().into_bytes());
    match client.request::<Value>(request.unwrap()).await {
        // A real server has known it since the last test.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        made => drop(made.unwrap()),
    }
}

/// Installs one kind where it is missing, and plays its operator in this namespace to the end of the test. Nothing else
/// is there, and no garbage collector.
pub(crate) async fn start_one(kind: &str, place: &Place, seen: &MadeObjects) {
    let kind = kinds().into_iter().find(|it| it.kind == kind).unwrap();
    install(&place.client(), kind).await;
    let objects: Api<DynamicObject> =
        Api::namespaced_with(place.client(), place.namespace(), &api_resource(kind));
    while objects.list(&ListParams::default()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (place, seen) = (place.clone(), seen.clone());
    tokio::spawn(async move { play(&place, kind, &seen).await });
}

/// Takes each new object of the kind through its statuses.
async fn play(place: &Place, kind: Resource, seen: &MadeObjects) {
    let kind = api_resource(kind);
    let objects: Api<DynamicObject> =
        Api::namespaced_with(place.client(), place.namespace(), &kind);
    let mut objects = pin!(watcher(objects, watcher::Config::default()).applied_objects());
    let (mut known, mut played) = (BTreeSet::new(), JoinSet::new());
    while let Some(object) = objects.next().await {
        let Ok(object) = object else {
            continue; // Asked again.
        };
        let (name, uid) = (object.name_any(), object.uid().unwrap());
        // The peer's have none, and one of each name.
        let launch = object.annotations().get(ANNOTATION_LAUNCH);
        seen.note(launch.cloned().unwrap_or(name), &uid);
        if known.insert(uid) {
            played.spawn(operate(place.clone(), kind.clone(), object));
        }
    }
}

async fn operate(place: Place, kind: ApiResource, object: DynamicObject) {
    let name = object.name_any();
    let objects: Api<DynamicObject> =
        Api::namespaced_with(place.client(), place.namespace(), &kind);
    for age in 1..=3 {
        tokio::time::sleep(STEP).await;
        if age == 2 && name.contains("head") && is_first(&object) {
            make_head(&place, &kind, &object).await;
        }
        let patch = Patch::Merge(json!({
            "metadata": {"uid": object.uid()},
            "status": status(&kind.kind, &object, age),
        }));
        let params = PatchParams::default();
        if objects.patch_status(&name, &params, &patch).await.is_err() {
            return; // It is gone.
        }
    }
}

fn is_first(object: &DynamicObject) -> bool {
    object.labels()[LABEL_ATTEMPT] == "1"
}

/// The pod that a job stands and falls with.
fn head_name(kind: &str, object: &str) -> String {
    match kind {
        "SparkApplication" => format!("{object}-driver"),
        "RayJob" => format!("{object}-cluster-head-x1"),
        "DaskJob" => format!("{object}-runner"),
        "JobSet" => format!("{object}-workers-0-0-x1"),
        _ => format!("{object}-worker-0"),
    }
}

/// Makes the head pod of a first attempt, which fails, or cannot begin where the name says `stuck`, or may yet begin where
/// it says `late`.
async fn make_head(place: &Place, kind: &ApiResource, object: &DynamicObject) {
    let name = object.name_any();
    let script = if name.contains("stuck") {
        "waiting InvalidImageName"
    } else if name.contains("late") {
        "waiting CreateContainerError"
    } else {
        "run 2s exit 1"
    };
    let mut head: Pod = pod(&head_name(&kind.kind, &name)).scripted(script).typed();
    head.metadata.namespace = Some(place.namespace().to_owned());
    let labels = head.metadata.labels.get_or_insert_default();
    labels.insert(LABEL_MANAGED.to_owned(), TRUE.to_owned());
    head.metadata.owner_references = object.controller_owner_ref(kind).map(|owner| vec![owner]);
    let pods: Api<Pod> = Api::namespaced(place.client(), place.namespace());
    let _ = pods.create(&PostParams::default(), &head).await;
}

/// The status of an object after so many steps. Those with `again` in their names fail once, those with `bad` always,
/// those with `long` never end, and neither does the first attempt of those with `head`: operators can be slow to tell.
fn status(kind: &str, object: &DynamicObject, age: usize) -> Value {
    let name = object.name_any();
    let fails = name.contains("bad") || name.contains("again") && is_first(object);
    let has_head = name.contains("head") && is_first(object);
    let last = match name.contains("long") || has_head {
        true if name.contains("stuck") => 1,
        true => 2,
        false => 3,
    };
    let of = |steps: [&str; 3], failed: &str| match age.min(last) {
        3 if fails => failed.to_owned(),
        step => steps[step - 1].to_owned(),
    };
    let at = object.creation_timestamp().unwrap().0;
    let condition = |kind: String| {
        json!([{
            "type": kind, "status": "True", "reason": "Told", "message": "so", "lastTransitionTime": at,
        }])
    };
    match kind {
        "SparkApplication" => {
            let state = of(["SUBMITTED", "RUNNING", "COMPLETED"], "FAILED");
            json!({
                "applicationState": {"state": state},
                "driverInfo": {"podName": head_name(kind, &name)},
            })
        }
        "RayJob" => json!({
            "jobDeploymentStatus": of(["Initializing", "Running", "Complete"], "Failed"),
            "rayClusterName": format!("{name}-cluster"),
        }),
        "DaskJob" => json!({
            "jobStatus": of(["JobCreated", "Running", "Successful"], "Failed"),
            "jobRunnerPodName": head_name(kind, &name),
        }),
        "FlinkDeployment" => {
            let state = of(["CREATED", "RUNNING", "FINISHED"], "FAILED");
            json!({"jobManagerDeploymentStatus": "READY", "jobStatus": {"state": state}})
        }
        "JobSet" => match of(["", "active", "Completed"], "Failed").as_str() {
            "" => json!({"replicatedJobsStatus": []}),
            "active" => json!({"replicatedJobsStatus": [{
                "name": "workers", "active": 1, "failed": i32::from(has_head),
            }]}),
            ended => json!({"conditions": condition(ended.to_owned())}),
        },
        _ => {
            let kind = of(["Created", "Running", "Succeeded"], "Failed");
            json!({"startTime": at, "conditions": condition(kind)})
        }
    }
}

/// A connector whose jobs end at the third question, but for those whose prefix says `long`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connector(Arc<Mutex<BTreeMap<String, Begun>>>);

/// A job of an attempt, by the directory of its outputs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    pub(crate) times: u32,
    pub(crate) questions: u32,
    pub(crate) is_ended: bool,
    /// How many others went on when it was begun.
    pub(crate) n_beside: usize,
}

impl Connector {
    pub(crate) fn jobs(&self) -> BTreeMap<String, Begun> {
        self.0.lock().unwrap().clone()
    }

    /// A job that somebody else began.
    pub(crate) fn adopt(&self, prefix: &str) {
        let mut jobs = self.0.lock().unwrap();
        jobs.entry(prefix.to_owned()).or_default().times += 1;
    }

    /// Attempts whose job was begun more than once.
    pub(crate) fn repeated(&self) -> Vec<String> {
        let several = self.jobs().into_iter().filter(|(_, job)| job.times > 1);
        several
            .map(|(prefix, job)| format!("the job of {prefix} was begun {} times", job.times))
            .collect()
    }

    pub(crate) fn answer(&self, call: &Call) -> Option<Answer> {
        let mut jobs = self.0.lock().unwrap();
        match &call.request {
            Request::Create(request) => {
                let others = jobs.values();
                let n_beside = others
                    .filter(|job| job.questions < 3 && !job.is_ended)
                    .count();
                let job = jobs.entry(request.output_prefix.clone()).or_default();
                job.times += 1;
                job.n_beside = n_beside;
                Some(Answer::Created {
                    response: CreateTaskResponse {
                        resource_meta: request.output_prefix.clone().into_bytes(),
                    },
                    by: Teller::default(),
                })
            }
            Request::Get(request) => {
                let job = jobs.get_mut(&request.output_prefix)?;
                job.questions += 1;
                let is_over = job.questions >= 3 && !request.output_prefix.contains("long");
                let phase = if is_over {
                    task_execution::Phase::Succeeded
                } else {
                    task_execution::Phase::Running
                };
                let resource = Job {
                    phase: phase.into(),
                    ..Job::default()
                };
                Some(Answer::Told {
                    response: Box::new(GetTaskResponse {
                        resource: Some(resource),
                    }),
                    is_cut: false,
                    by: Teller::default(),
                })
            }
            Request::Delete(request) => {
                let prefix = String::from_utf8(request.resource_meta.clone()).unwrap();
                jobs.get_mut(&prefix)?.is_ended = true;
                None
            }
        }
    }
}

/// The connector as one process reaches it.
#[derive(Debug)]
pub(crate) struct FaultyConnector {
    pub(crate) connector: Connector,
    pub(crate) process: Process,
}

#[async_trait]
impl AskConnectors for FaultyConnector {
    async fn ask(&self, call: &Call) -> Result<Option<Answer>, ConnectorError> {
        let what = match &call.request {
            Request::Create(_) => "ask create",
            Request::Get(_) => "ask get",
            Request::Delete(_) => "ask delete",
        };
        let asked = async { self.connector.answer(call) };
        let answer = self.process.effect(what, asked).await;
        answer.map_err(|injected| ConnectorError::NoConnector(injected.to_string()))
    }
}
