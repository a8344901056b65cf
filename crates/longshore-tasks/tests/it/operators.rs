//! Operators and a connector as tasks meet them: objects go from one status to the next, jobs end after a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use longshore_api::{flyte::LABEL_ATTEMPT, tasks::ANNOTATION_LAUNCH};
use longshore_cluster::controllers;
use longshore_core::Resource;
use longshore_kit::api_resource;
use longshore_plugins::{Answer, Call, Config, Registry, Request, Teller};
use longshore_proto::{
    flyteidl2::{
        connector::{CreateTaskResponse, GetTaskResponse, Resource as Job},
        core::{LiteralMap, TaskTemplate, task_execution},
    },
    from_json,
};
use longshore_tasks::remote::{AskConnectors, ConnectorError};
use longshore_test::{Place, faults::Process};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::set_template;

/// Between two statuses.
const STEP: Duration = Duration::from_secs(5);
/// The kinds that have an operator here.
const PLAYED: [&str; 4] = ["SparkApplication", "RayJob", "PyTorchJob", "DaskJob"];
/// The operator that is installed late.
const LATE: (&str, Duration) = ("DaskJob", Duration::from_secs(20));

/// All plugins.
pub(crate) fn plugins() -> Registry {
    Registry::new(&Config::default()).unwrap()
}

/// The kinds that are played.
pub(crate) fn kinds() -> Vec<Resource> {
    let kinds = plugins();
    let kinds = kinds.resources();
    kinds.filter(|kind| PLAYED.contains(&kind.kind)).collect()
}

/// The action as its name says: `spark…`, `ray…`, `torch…`, `dask…`, `sleep…`, `job…`.
pub(crate) fn typed(mut action: Value, retries: u32) -> Value {
    let name = action["metadata"]["name"].as_str().unwrap();
    let kind: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
    let (task_type, custom) = match kind.as_str() {
        "spark" => ("spark", json!({"mainApplicationFile": "local:///app.py"})),
        "ray" => ("ray", json!({"rayCluster": {}})),
        "torch" => ("pytorch", json!({"workers": 1})),
        "dask" => (
            "dask",
            json!({"scheduler": {}, "workers": {"numberOfWorkers": 1}}),
        ),
        "sleep" => ("core-sleep", json!({})),
        _ => ("task_type_3", json!({})),
    };
    let input = json!([{"key": "t", "value": {"type": {"simple": "DURATION"}}}]);
    let template: TaskTemplate = from_json(&json!({
        "type": task_type,
        "id": {"name": "task"},
        "metadata": {"retries": {"retries": retries}},
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
pub(crate) struct Seen(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Seen {
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
pub(crate) async fn start(place: &Place, seen: &Seen) {
    tokio::spawn(controllers::run(place.client(), CancellationToken::new()));
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
    client.request::<Value>(request.unwrap()).await.unwrap();
}

async fn play(place: &Place, kind: Resource, seen: &Seen) {
    let kind = api_resource(kind);
    let objects: Api<DynamicObject> =
        Api::namespaced_with(place.client(), place.namespace(), &kind);
    let mut ages: BTreeMap<String, usize> = BTreeMap::new();
    loop {
        tokio::time::sleep(STEP).await;
        let list = objects.list(&ListParams::default()).await.unwrap();
        for object in list.items {
            let (name, uid) = (object.name_any(), object.uid().unwrap());
            // The peer's have none, and one of each name.
            let launch = object.annotations().get(ANNOTATION_LAUNCH);
            let launch = launch.cloned().unwrap_or_else(|| name.clone());
            seen.note(launch, &uid);
            let age = ages.entry(uid).or_default();
            *age += 1;
            if *age > 3 {
                continue;
            }
            let status = json!({"status": status(&kind.kind, &object, *age)});
            let params = PatchParams::default();
            let _ = objects
                .patch_status(&name, &params, &Patch::Merge(status))
                .await;
        }
    }
}

/// The status of an object after so many steps. Those with `again` in their names fail once, those with `bad` always,
/// and those with `long` never end.
fn status(kind: &str, object: &DynamicObject, age: usize) -> Value {
    let name = object.name_any();
    let is_first = object.labels()[LABEL_ATTEMPT] == "1";
    let fails = name.contains("bad") || name.contains("again") && is_first;
    let last = if name.contains("long") { 2 } else { 3 };
    let of = |steps: [&str; 3], failed: &str| match age.min(last) {
        3 if fails => failed.to_owned(),
        step => steps[step - 1].to_owned(),
    };
    match kind {
        "SparkApplication" => {
            let state = of(["SUBMITTED", "RUNNING", "COMPLETED"], "FAILED");
            json!({"applicationState": {"state": state}})
        }
        "RayJob" => {
            json!({"jobDeploymentStatus": of(["Initializing", "Running", "Complete"], "Failed")})
        }
        "DaskJob" => json!({"jobStatus": of(["JobCreated", "Running", "Successful"], "Failed")}),
        _ => {
            let condition = of(["Created", "Running", "Succeeded"], "Failed");
            let at = object.creation_timestamp().unwrap().0;
            json!({"startTime": at, "conditions": [{
                "type": condition, "status": "True", "reason": "Told", "message": "so",
                "lastTransitionTime": at,
            }]})
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
}

impl Connector {
    pub(crate) fn jobs(&self) -> BTreeMap<String, Begun> {
        self.0.lock().unwrap().clone()
    }

    /// Attempts whose job was begun more than once.
    pub(crate) fn repeated(&self) -> Vec<String> {
        let several = self.jobs().into_iter().filter(|(_, job)| job.times > 1);
        several
            .map(|(prefix, job)| format!("the job of {prefix} was begun {} times", job.times))
            .collect()
    }

    fn answer(&self, call: &Call) -> Option<Answer> {
        let mut jobs = self.0.lock().unwrap();
        match &call.request {
            Request::Create(request) => {
                jobs.entry(request.output_prefix.clone()).or_default().times += 1;
                Some(Answer::Created(CreateTaskResponse {
                    resource_meta: request.output_prefix.clone().into_bytes(),
                }))
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
