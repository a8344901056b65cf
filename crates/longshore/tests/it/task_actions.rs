//! TaskActions of a test, and every pod that was ever made for them.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Pod,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
};
use longshore_api::{flyte, tasks::ANNOTATION_LAUNCH};
use longshore_kit::{Cache, ListWatch, Update};
use longshore_proto::flyteidl2::core::{
    Container, Identifier, RetryStrategy, TaskMetadata, TaskTemplate, task_template::Target,
};
use longshore_test::scripted_node::ANNOTATION_SCRIPT;
use prost::Message;
use serde_json::{Value, json};
use tokio::{sync::watch, task::AbortHandle, time::Instant};

use crate::cluster::TestCluster;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(100);

/// A TaskAction without outputs, whose pods run this script.
pub(crate) fn action(name: &str, retries: u32, script: &str) -> Value {
    action_of("container", name, retries, script)
}

/// The same with this task type. The pods of `raw-container` have no primary container.
pub(crate) fn action_of(task_type: &str, name: &str, retries: u32, script: &str) -> Value {
    let template = TaskTemplate {
        id: Some(Identifier {
            name: "task".to_owned(),
            ..Identifier::default()
        }),
        r#type: task_type.to_owned(),
        metadata: Some(TaskMetadata {
            retries: Some(RetryStrategy {
                retries,
                backoff: None,
            }),
            ..TaskMetadata::default()
        }),
        target: Some(Target::Container(Container {
            image: "example.test/image:1".to_owned(),
            command: vec!["true".to_owned()],
            ..Container::default()
        })),
        ..TaskTemplate::default()
    };
    json!({
        "apiVersion": format!("{}/{}", flyte::GROUP, flyte::VERSION),
        "kind": flyte::KIND,
        "metadata": {"name": name, "annotations": {ANNOTATION_SCRIPT: script}},
        "spec": {
            "runName": "r", "project": "p", "domain": "d", "actionName": name, "taskType": task_type,
            "inputUri": "file:///nowhere/inputs.pb",
            "runOutputBase": format!("file:///nowhere/{name}"),
            "taskTemplate": BASE64_STANDARD.encode(template.encode_to_vec()),
        },
    })
}

/// The TaskActions of a test's namespace.
pub(crate) struct TaskActions {
    client: Client,
    namespace: String,
}

impl TaskActions {
    /// Makes the API server know them; it may know them from another test.
    pub(crate) async fn install(cluster: &TestCluster) -> Self {
        let crd: CustomResourceDefinition = serde_saphyr::from_str(flyte::TASK_ACTION_CRD).unwrap();
        let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
        match crds.create(&PostParams::default(), &crd).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            other => drop(other.unwrap()),
        }
        let this = Self {
            client: cluster.admin.clone(),
            namespace: cluster.namespace.clone(),
        };
        let deadline = Instant::now() + PATIENCE;
        while this.api().list(&ListParams::default()).await.is_err() {
            assert!(Instant::now() < deadline, "TaskActions are not served");
            tokio::time::sleep(STEP).await;
        }
        this
    }

    /// Those of a namespace whose API server knows them.
    pub(crate) fn of(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
        }
    }

    pub(crate) fn api(&self) -> Api<DynamicObject> {
        let kind = ApiResource {
            group: flyte::GROUP.to_owned(),
            version: flyte::VERSION.to_owned(),
            api_version: format!("{}/{}", flyte::GROUP, flyte::VERSION),
            kind: flyte::KIND.to_owned(),
            plural: "taskactions".to_owned(),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
    }

    pub(crate) async fn create(&self, action: &Value) {
        let object = serde_json::from_value(action.clone()).unwrap();
        let created = self.api().create(&PostParams::default(), &object).await;
        created.unwrap();
    }

    pub(crate) async fn get(&self, name: &str) -> Value {
        serde_json::to_value(self.api().get(name).await.unwrap()).unwrap()
    }

    pub(crate) async fn list(&self) -> Vec<Value> {
        let list = self.api().list(&ListParams::default()).await.unwrap();
        list.items
            .iter()
            .map(|object| serde_json::to_value(object).unwrap())
            .collect()
    }

    /// Waits until an action has its last label: nothing more is to be written then.
    pub(crate) async fn until_ended(&self, name: &str) {
        self.until(&format!("the end of {name}"), |actions| {
            let ended = actions.iter().filter(|action| has_ended(action));
            ended
                .clone()
                .any(|action| action["metadata"]["name"] == name)
        })
        .await;
    }

    /// Waits until so many are there, all of which have ended.
    pub(crate) async fn until_count(&self, n: usize) {
        self.until(&format!("{n} ended actions"), |actions| {
            actions.len() == n && actions.iter().all(has_ended)
        })
        .await;
    }

    async fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let actions = self.list().await;
            if holds(&actions) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not in time: {what}: {actions:#?}"
            );
            tokio::time::sleep(STEP).await;
        }
    }
}

pub(crate) fn has_ended(action: &Value) -> bool {
    let labels = &action["metadata"]["labels"];
    labels[flyte::LABEL_COMPLETED_TIME].is_string()
}

/// The TaskActions of a namespace, as a watch of its own shows them.
pub(crate) struct Board {
    seen: watch::Receiver<BTreeMap<String, Value>>,
    task: AbortHandle,
}

impl Board {
    pub(crate) fn follow(actions: &TaskActions) -> Self {
        let (tell, seen) = watch::channel(BTreeMap::new());
        let updates = ListWatch::new(actions.api()).into_cache(Cache::new());
        let record = async move {
            let mut updates = pin!(updates);
            while let Some(update) = updates.next().await {
                let (object, is_there) = match update {
                    Update::Applied(object) => (object, true),
                    Update::Deleted(object) => (object, false),
                    Update::Reached(_) => continue,
                };
                tell.send_modify(|seen: &mut BTreeMap<String, Value>| {
                    if is_there {
                        let action = serde_json::to_value(object.as_ref()).unwrap();
                        seen.insert(object.name_any(), action);
                    } else {
                        seen.remove(&object.name_any());
                    }
                });
            }
        };
        let task = tokio::spawn(record).abort_handle();
        Self { seen, task }
    }

    /// Waits until it holds of those that are there, by name.
    pub(crate) async fn until(
        &self,
        what: &str,
        deadline: Instant,
        holds: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) {
        let mut seen = self.seen.clone();
        let held = tokio::time::timeout_at(deadline, seen.wait_for(|seen| holds(seen)));
        let in_time = held.await.is_ok();
        if !in_time {
            let open = self.seen.borrow().clone();
            let open: Vec<&Value> = open.values().filter(|it| !has_ended(it)).take(3).collect();
            panic!("not in time: {what}; among those that have not ended: {open:#?}");
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All pods that ever were in a namespace, by their launch, as a watch of its own has shown them: their uids, and when each
/// was created.
pub(crate) struct PodRecord {
    pods: Arc<Mutex<BTreeMap<String, BTreeMap<String, Timestamp>>>>,
    task: AbortHandle,
}

impl PodRecord {
    pub(crate) fn start(cluster: &TestCluster) -> Self {
        Self::of(cluster.admin.clone(), &cluster.namespace)
    }

    /// Of this namespace.
    pub(crate) fn of(client: Client, namespace: &str) -> Self {
        let api: Api<Pod> = Api::namespaced(client, namespace);
        let pods = Arc::new(Mutex::new(BTreeMap::<_, BTreeMap<_, _>>::new()));
        let seen = Arc::clone(&pods);
        let record = async move {
            let mut updates = pin!(ListWatch::new(api).into_cache(Cache::new()));
            while let Some(update) = updates.next().await {
                if let Some(pod) = update.into_object() {
                    let uid = pod.uid().unwrap_or_default();
                    let created_at = pod.creation_timestamp().unwrap().0;
                    seen.lock()
                        .unwrap()
                        .entry(launch(&pod))
                        .or_default()
                        .insert(uid, created_at);
                }
            }
        };
        let task = tokio::spawn(record).abort_handle();
        Self { pods, task }
    }

    /// Launches that have a pod.
    pub(crate) fn n_launches_of_all(&self) -> usize {
        self.pods.lock().unwrap().len()
    }

    pub(crate) fn n_pods(&self) -> usize {
        self.pods.lock().unwrap().values().map(BTreeMap::len).sum()
    }

    /// Launches of this action that have a pod, over all of its attempts.
    pub(crate) fn n_launches(&self, action: &Value) -> usize {
        let uid = action["metadata"]["uid"].as_str().unwrap();
        let pods = self.pods.lock().unwrap();
        let launches = pods.keys().filter(|launch| launch.starts_with(uid));
        launches.count()
    }

    /// Each launch of an attempt came after the back-off of the system failures before it: 1 s, 2 s, 4 s. Times of creation
    /// have whole seconds, which differ by no less than the whole seconds in between.
    #[track_caller]
    pub(crate) fn assert_launches_back_off(&self) {
        let pods = self.pods.lock().unwrap();
        let created_at = |launch: &str| pods.get(launch)?.values().min().copied();
        for launch in pods.keys() {
            let (attempt, n) = launch.rsplit_once('/').unwrap();
            let n: u32 = n.parse().unwrap();
            let before = n.checked_sub(1).map(|n| format!("{attempt}/{n}"));
            if let Some(before) = before {
                let before = created_at(&before).unwrap();
                let wait = created_at(launch).unwrap().duration_since(before);
                assert!(
                    wait.as_secs() >= 1_i64 << (n - 1),
                    "{launch} came after {wait:#}"
                );
            }
        }
    }

    #[track_caller]
    pub(crate) fn assert_one_pod_per_launch(&self) {
        let pods = self.pods.lock().unwrap();
        let twice: Vec<_> = pods.iter().filter(|(_, uids)| uids.len() != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

impl Drop for PodRecord {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Which launch of which attempt of which action, or of which try of which task.
fn launch(pod: &Pod) -> String {
    let annotation = |key: &str| pod.annotations().get(key).cloned();
    annotation(ANNOTATION_LAUNCH).unwrap_or_else(|| {
        let of_dag = [
            "dag_id",
            "task_id",
            "try_number",
            longshore_api::dags::ANNOTATION_LAUNCH,
        ];
        of_dag
            .map(|key| annotation(key).unwrap_or_default())
            .join("/")
    })
}
