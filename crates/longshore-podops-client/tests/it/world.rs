//! A cluster with a Service, its pods, clients that change them, and a table in memory.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use longshore_api::podops::{CONDITION_SERVICE_READY, CONTROLLED, LABEL_CONTROL};
use longshore_kit::{Cache, Clock, ListWatch, Update};
use longshore_podops_client::{
    consist::{self, Changes, ConsistConfig, Entries, Part, Readiness, Table},
    lifecycle_finalizer,
};
use longshore_test::{
    Place,
    clock::{self, SimClock},
    faults::Process,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How long people take to see a change.
const LOOK: Duration = Duration::from_millis(100);

/// What the table has, of everything.
pub(crate) type Kept = Arc<Mutex<BTreeMap<Part, Entries>>>;

/// Everything around the controller. It lives through its crashes.
pub(crate) struct World {
    place: Place,
    clock: Arc<dyn Clock>,
    table: Kept,
    /// Pods that lost their protection while they had traffic.
    pub(crate) broken: Mutex<Vec<String>>,
}

/// The table, behind the faults of a process.
struct Faulty {
    kept: Kept,
    process: Process,
}

#[derive(Debug, thiserror::Error)]
#[error("the table is not there: {0}")]
struct NotThere(String);

impl Table for Faulty {
    type Error = NotThere;

    fn name(&self) -> &'static str {
        "test-table"
    }

    fn of_employer(&self, _: &Value) -> Entries {
        Entries::from([("listener".to_owned(), json!(80))])
    }

    fn id(&self, _: &Value, pod: &Pod) -> Option<String> {
        pod.metadata.name.clone()
    }

    fn of_pod(&self, _: &Value, _: &Pod, readiness: Readiness) -> Option<Value> {
        (readiness == Readiness::Ready).then(|| json!("up"))
    }

    async fn current(&self, _: &Value, part: Part) -> Result<Entries, NotThere> {
        let read = async { self.kept.lock().unwrap().get(&part).cloned() };
        let read = self.process.effect("get table", read).await;
        let read = read.map_err(|error| NotThere(error.to_string()))?;
        Ok(read.unwrap_or_default())
    }

    async fn change(&self, _: &Value, part: Part, changes: &Changes) -> Result<(), NotThere> {
        let change = async {
            let mut kept = self.kept.lock().unwrap();
            changes.apply(kept.entry(part).or_default());
        };
        let changed = self.process.effect("change table", change).await;
        changed.map_err(|error| NotThere(error.to_string()))
    }
}

impl World {
    pub(crate) async fn new() -> Arc<Self> {
        let clock = SimClock::start();
        let cluster = clock::cluster(clock.clone(), 1);
        let world = Arc::new(Self {
            place: Place::embedded(&cluster),
            clock,
            table: Kept::default(),
            broken: Mutex::default(),
        });
        tokio::spawn(watch(Arc::clone(&world)));
        world
    }

    /// The controller, behind the faults of `process`.
    pub(crate) async fn run(&self, process: &Process) {
        let table = Faulty {
            kept: Arc::clone(&self.table),
            process: process.clone(),
        };
        consist::run(
            table,
            ConsistConfig::default(),
            process.client(self.place.api()),
            Arc::clone(&self.clock),
            CancellationToken::new(),
        )
        .await;
    }

    /// Of the cluster, without faults.
    pub(crate) fn client(&self) -> kube::Client {
        self.place.client()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.place.client(), self.place.namespace())
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.place.client(), self.place.namespace())
    }

    /// Makes a Service of all pods `app: web`.
    pub(crate) async fn make_service(&self) {
        let service = json!({
            "metadata": {"name": "web", "labels": {LABEL_CONTROL: CONTROLLED}},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        });
        make(&self.services(), service).await;
    }

    /// Makes a pod that is Ready.
    pub(crate) async fn make_pod(&self, name: &str) {
        let pod = json!({
            "metadata": {"name": name, "labels": {LABEL_CONTROL: CONTROLLED, "app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "example.test/image:1"}]},
        });
        make(&self.pods(), pod).await;
        self.set_gate(name, "True").await;
    }

    /// Says whether a pod may serve; its node follows at once.
    pub(crate) async fn set_gate(&self, name: &str, status: &str) {
        let condition = |kind: &str| json!({"type": kind, "status": status});
        let conditions = [condition("Ready"), condition(CONDITION_SERVICE_READY)];
        let patch = json!({"status": {
            "phase": "Running", "podIP": "10.9.8.7", "conditions": conditions,
        }});
        let params = PatchParams::default();
        let patch = Patch::Strategic(&patch);
        self.pods()
            .patch_status(name, &params, &patch)
            .await
            .unwrap();
    }

    /// Takes a pod out of the Service.
    pub(crate) async fn set_app(&self, name: &str, app: &str) {
        let patch = json!({"metadata": {"labels": {"app": app}}});
        self.patch_pod(name, &patch).await;
    }

    /// Patches a pod, as a user or another controller would.
    pub(crate) async fn patch_pod(&self, name: &str, patch: &Value) {
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        self.pods().patch(name, &params, &patch).await.unwrap();
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        let params = DeleteParams::default();
        self.pods().delete(name, &params).await.unwrap();
    }

    pub(crate) async fn delete_service(&self) {
        let params = DeleteParams::default();
        self.services().delete("web", &params).await.unwrap();
    }

    /// Waits until a pod has traffic and is protected, or neither.
    pub(crate) async fn until_served(&self, name: &str, is_served: bool) {
        loop {
            let pod = self.pods().get_opt(name).await.unwrap();
            let is_protected = pod.is_some_and(|pod| is_protected(&pod));
            if is_protected == is_served && self.has(name) == is_served {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn has(&self, name: &str) -> bool {
        let table = self.table.lock().unwrap();
        let pods = table.get(&Part::Employees);
        pods.is_some_and(|pods| pods.contains_key(name))
    }

    /// How things ended.
    pub(crate) async fn digest(&self) -> String {
        let mut text = format!("table {:?}\n", self.table.lock().unwrap());
        for service in self.services().list(&Default::default()).await.unwrap() {
            let _ = writeln!(text, "service {:?}", service.finalizers());
        }
        for pod in self.pods().list(&Default::default()).await.unwrap() {
            let (finalizers, annotations) = (pod.finalizers(), pod.annotations());
            let _ = writeln!(
                text,
                "pod {}: {finalizers:?} {annotations:?}",
                pod.name_any()
            );
        }
        text
    }
}

fn is_protected(pod: &Pod) -> bool {
    pod.finalizers().contains(&lifecycle_finalizer("web"))
}

async fn make<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Notes the pods that lose their protection while they are in the table.
async fn watch(world: Arc<World>) {
    let updates = ListWatch::new(world.pods()).into_cache(Cache::passing_on());
    let mut updates = std::pin::pin!(updates);
    let mut protected: BTreeMap<String, bool> = BTreeMap::new();
    while let Some(update) = updates.next().await {
        let Update::Applied(pod) = update else {
            continue;
        };
        let (name, is_protected) = (pod.name_any(), is_protected(&pod));
        let was_protected = protected.insert(name.clone(), is_protected);
        if was_protected == Some(true) && !is_protected && world.has(&name) {
            world.broken.lock().unwrap().push(name);
        }
    }
}
