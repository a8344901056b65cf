//! A cluster with all that act on pods: a node, traffic, people that delete and operate.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
    time::Duration,
};

use jiff::SignedDuration;
use k8s_openapi::api::{
    core::v1::Pod as WirePod,
    policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use longshore_api::podops::{
    ANNOTATION_AVAILABLE_CONDITIONS, CONDITION_SERVICE_READY, CONTROLLED, KIND_POD_TRANSITION_RULE,
    LABEL_CONTROL, OperationLabel, POD_TRANSITION_RULE_CRD,
};
use longshore_kit::Clock;
use longshore_podops::{
    PodOps, PodOpsConfig, RuleTransport,
    model::{ConditionStatus, Pod},
};
use longshore_test::{
    Place,
    clock::{self, SimClock},
    faults::Process,
    install_definition,
};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    front::{Front, Routed},
    slow::Slow,
    stories::Statuses,
    webhooks::{Broken, Webhooks},
};

const PROTECTION: &str = "prot.podopslifecycle.kusionstack.io/traffic";
/// How long every other actor takes to see a change.
const LOOK: Duration = Duration::from_millis(100);

/// Everything around the controllers. It lives through their crashes.
pub(crate) struct World {
    pub(crate) place: Place,
    pub(crate) webhooks: Webhooks,
    pub(crate) slow: Slow,
    clock: Arc<dyn Clock>,
    front: OnceCell<Front>,
}

impl World {
    pub(crate) async fn new(statuses: Statuses) -> Arc<Self> {
        let clock = SimClock::start();
        let cluster = clock::cluster(clock.clone(), 1);
        install_definition(&cluster.client(), POD_TRANSITION_RULE_CRD).await;
        let place = Place::embedded(&cluster);
        let clock: Arc<dyn Clock> = clock;
        let webhooks = Webhooks {
            place: place.clone(),
            clock: clock.clone(),
            broken: Broken::default(),
            statuses,
            routed: Routed::default(),
            writes: Arc::default(),
            status_limit: Arc::default(),
        };
        let world = Arc::new(Self {
            place,
            webhooks,
            slow: Slow::default(),
            clock,
            front: OnceCell::new(),
        });
        let around = world.clone();
        tokio::spawn(async move {
            let mut writes = around.writes();
            loop {
                around.node_and_traffic().await;
                writes.next().await;
            }
        });
        world
    }

    /// The controllers, behind the faults of `process`.
    pub(crate) async fn run(&self, process: &Process) {
        self.run_asking(process, Arc::new(self.slow.clone())).await;
    }

    /// The controllers, which ask this webhook.
    pub(crate) async fn run_asking(&self, process: &Process, webhook: Arc<dyn RuleTransport>) {
        let client = process.client(self.webhooks.service());
        let config = PodOpsConfig {
            grace_delete: true,
            ..PodOpsConfig::default()
        };
        PodOps::new(config, self.clock.clone())
            .asking(webhook)
            .run(client, CancellationToken::new())
            .await;
    }

    /// Puts a Service in front of the pods.
    pub(crate) async fn open_front(&self) {
        let front = Front::open(&self.place, self.webhooks.routed.clone());
        self.front.get_or_init(|| front).await;
    }

    /// Tells of every write from now on.
    pub(crate) fn writes(&self) -> Writes {
        Writes(self.webhooks.writes.subscribe())
    }

    /// A pod that takes part and is waited for by traffic, made as the webhook lets it be made.
    pub(crate) async fn make(&self, name: &str) {
        let expected = json!({"expectedFinalizers": {"Traffic/default/t": PROTECTION}});
        let pod = json!({
            "metadata": {
                "name": name,
                "labels": {LABEL_CONTROL: CONTROLLED, "app": "web"},
                "annotations": {ANNOTATION_AVAILABLE_CONDITIONS: expected.to_string()},
            },
            "spec": {
                "containers": [{"name": "c", "image": "example.test/image:1"}],
                "readinessGates": [{"conditionType": CONDITION_SERVICE_READY}],
            },
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.api()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
    }

    /// A PodTransitionRule over all pods.
    pub(crate) async fn rule(&self, rules: Value) {
        let kind =
            GroupVersionKind::gvk("apps.kusionstack.io", "v1alpha1", KIND_POD_TRANSITION_RULE);
        let kind = ApiResource::from_gvk_with_plural(&kind, "podtransitionrules");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.place.client(), self.place.namespace(), &kind);
        let rule = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": KIND_POD_TRANSITION_RULE,
            "metadata": {"name": "rule"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "rules": rules},
        });
        let rule = serde_json::from_value(rule).unwrap();
        api.create(&PostParams::default(), &rule).await.unwrap();
    }

    /// A PodDisruptionBudget over all pods, of which so many have to stay.
    pub(crate) async fn budget(&self, min_available: usize) {
        let budget = json!({
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": min_available},
        });
        let budget = serde_json::from_value(budget).unwrap();
        let api = self.budgets();
        api.create(&PostParams::default(), &budget).await.unwrap();
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.place.client(), self.place.namespace())
    }

    /// The disruption controller: a pod that has an entry does not count until it goes, or for two minutes.
    async fn count(&self, pods: &[Pod]) {
        let Some(mut budget) = self.budgets().get_opt("web").await.unwrap() else {
            return;
        };
        let spec = serde_json::to_value(&budget.spec).unwrap();
        let desired = spec["minAvailable"].as_i64().unwrap();
        let before = budget.status.clone().unwrap_or_default();
        let mut disrupted = before.disrupted_pods.clone().unwrap_or_default();
        let now = self.clock.now();
        disrupted.retain(|name, at| {
            let mut pods = pods.iter().filter(|pod| !pod.is_deleting);
            let is_here = pods.any(|pod| pod.target.name == *name);
            is_here && now < at.0 + SignedDuration::from_mins(2)
        });
        let counts = |pod: &&Pod| {
            let has_entry = disrupted.contains_key(&pod.target.name);
            pod.is_ready && !pod.is_deleting && !has_entry
        };
        let healthy = i64::try_from(pods.iter().filter(counts).count()).unwrap();
        let status = json!({
            "observedGeneration": budget.metadata.generation, "expectedPods": pods.len(),
            "currentHealthy": healthy, "desiredHealthy": desired,
            "disruptionsAllowed": (healthy - desired).max(0),
        });
        let status = PodDisruptionBudgetStatus {
            conditions: before.conditions.clone(),
            disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
            ..serde_json::from_value(status).unwrap()
        };
        if status == before {
            return;
        }
        budget.status = Some(status);
        let params = PostParams::default();
        let budgets = self.budgets();
        match budgets.replace_status("web", &params, &budget).await {
            // A disruption was taken meanwhile: that write leads to the next count.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            written => drop(written.unwrap()),
        }
    }

    /// Asks for a pod's eviction, once. Whether it was granted, or there is none to evict.
    pub(crate) async fn evict(&self, name: &str) -> bool {
        let evicted = self.api().evict(name, &Default::default()).await;
        match evicted {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => status.code == 404,
            Err(_) => false,
        }
    }

    fn api(&self) -> Api<WirePod> {
        Api::namespaced(self.webhooks.client(), self.place.namespace())
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods = self.api().list(&ListParams::default()).await.unwrap().items;
        let pods = pods
            .into_iter()
            .map(|pod| serde_json::to_value(pod).unwrap());
        pods.map(|pod| Pod::of(&pod).unwrap()).collect()
    }

    pub(crate) async fn pod(&self, name: &str) -> Option<Pod> {
        let pods = self.pods().await;
        pods.into_iter().find(|pod| pod.target.name == name)
    }

    /// A client writes a pod; false where the write is refused.
    pub(crate) async fn write(&self, name: &str, patch: &Value) -> bool {
        let params = PatchParams::default();
        let written = self.api().patch(name, &params, &Patch::Merge(patch)).await;
        written.is_ok()
    }

    /// Asks for a pod's deletion until it is gone, as controllers of workloads do.
    pub(crate) async fn delete(&self, name: &str) {
        while self.pod(name).await.is_some() {
            let _ = self.api().delete(name, &DeleteParams::default()).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    }

    /// The pod takes part no more.
    pub(crate) async fn free(&self, name: &str) {
        let labels = json!({LABEL_CONTROL: null});
        while !self
            .write(name, &json!({"metadata": {"labels": labels}}))
            .await
        {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until an operation may touch the pod.
    pub(crate) async fn until_granted(&self, name: &str, id: &str) {
        let operate = OperationLabel::Operate.of(id);
        let mut writes = self.writes();
        while !self.pod(name).await.unwrap().labels.contains_key(&operate) {
            writes.next().await;
        }
    }

    /// Begins an operation.
    pub(crate) async fn begin(&self, name: &str, id: &str) {
        let labels = json!({
            OperationLabel::Operating.of(id): "1",
            OperationLabel::OperationType.of(id): "update",
        });
        while !self
            .write(name, &json!({"metadata": {"labels": labels}}))
            .await
        {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until an operation may touch the pod, works for a while, and is done.
    pub(crate) async fn work(&self, name: &str, id: &str) {
        self.until_granted(name, id).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let labels = json!({OperationLabel::Operating.of(id): null});
        while !self
            .write(name, &json!({"metadata": {"labels": labels}}))
            .await
        {
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn node_and_traffic(&self) {
        let pods = self.pods().await;
        self.count(&pods).await;
        if let Some(front) = self.front.get() {
            front.route(&pods).await;
        }
        for pod in pods {
            let is_open = pod.service_ready == Some(ConditionStatus::True);
            if pod.is_ready != is_open {
                let status = if is_open { "True" } else { "False" };
                let conditions = json!([{"type": "Ready", "status": status}]);
                let patch = json!({"status": {"phase": "Running", "conditions": conditions}});
                let (api, params) = (self.api(), PatchParams::default());
                let patch = Patch::Strategic(&patch);
                let _ = api.patch_status(&pod.target.name, &params, &patch).await;
            }
            let is_routed = pod
                .finalizers
                .iter()
                .any(|finalizer| finalizer == PROTECTION);
            if is_routed != pod.is_ready {
                let mut finalizers = pod.finalizers.clone();
                finalizers.retain(|finalizer| finalizer != PROTECTION);
                if pod.is_ready {
                    finalizers.push(PROTECTION.to_owned());
                }
                let metadata = json!({
                    "finalizers": finalizers, "resourceVersion": pod.resource_version,
                });
                self.write(&pod.target.name, &json!({"metadata": metadata}))
                    .await;
            }
        }
    }

    /// How things ended, without what may differ between two good runs.
    pub(crate) async fn digest(&self) -> String {
        let mut text = String::new();
        for pod in self.pods().await {
            let labels: Vec<&String> = pod.labels.keys().collect();
            let finalizers: BTreeSet<&String> = pod.finalizers.iter().collect();
            let details: BTreeMap<_, _> = pod
                .annotations
                .iter()
                .filter(|(key, _)| key.starts_with("detail."))
                .collect();
            let _ = writeln!(
                text,
                "pod {}: ready {} gate {:?} labels {labels:?} finalizers {finalizers:?} details {details:?}",
                pod.target.name, pod.is_ready, pod.service_ready,
            );
        }
        text
    }
}

/// The writes that a reader has yet to see.
pub(crate) struct Writes(watch::Receiver<u64>);

impl Writes {
    /// Waits for a write, and until it is seen.
    pub(crate) async fn next(&mut self) {
        let _ = self.0.changed().await;
        tokio::time::sleep(LOOK).await;
    }
}
