//! A cluster, the Deployments of which serve, and people who change resources.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
    core::{ApiResource, DynamicObject, WatchEvent},
};
use longshore_core::Resource;
use longshore_flink::{
    DEPLOYMENT, FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_STATE_SNAPSHOT, FlinkOperator,
    FlinkOptions, SERVICE,
};
use longshore_kit::{Clock, api_resource};
use longshore_test::{
    Place,
    clock::{self, SimClock},
    faults::Process,
    install_definition,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::job_managers::{Asked, JobManagers};

/// From the creation of a Deployment to its JobManager, and from its deletion to its end.
const STEP: Duration = Duration::from_secs(2);
/// How often people look.
const LOOK: Duration = Duration::from_millis(500);

const DEFINITIONS: [&str; 3] = [
    r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"flinkdeployments.flink.apache.org"},"spec":{"group":"flink.apache.org","names":{"kind":"FlinkDeployment","plural":"flinkdeployments","singular":"flinkdeployment"},"scope":"Namespaced","versions":[{"name":"v1beta1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#,
    r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"flinksessionjobs.flink.apache.org"},"spec":{"group":"flink.apache.org","names":{"kind":"FlinkSessionJob","plural":"flinksessionjobs","singular":"flinksessionjob"},"scope":"Namespaced","versions":[{"name":"v1beta1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#,
    r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"flinkstatesnapshots.flink.apache.org"},"spec":{"group":"flink.apache.org","names":{"kind":"FlinkStateSnapshot","plural":"flinkstatesnapshots","singular":"flinkstatesnapshot"},"scope":"Namespaced","versions":[{"name":"v1beta1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#,
];

/// Everything around the controllers. It lives through their crashes.
pub(crate) struct World {
    pub(crate) place: Place,
    pub(crate) job_managers: JobManagers,
    clock: Arc<dyn Clock>,
}

impl World {
    pub(crate) async fn new() -> Arc<Self> {
        let clock = SimClock::start();
        let cluster = clock::cluster(clock.clone(), 1);
        for definition in DEFINITIONS {
            install_definition(&cluster.client(), definition).await;
        }
        let world = Arc::new(Self {
            place: Place::embedded(&cluster),
            job_managers: JobManagers::default(),
            clock,
        });
        let around = Arc::clone(&world);
        tokio::spawn(async move { around.run_deployments().await });
        world
    }

    /// The controllers, behind the faults of `process`.
    pub(crate) async fn run(&self, process: &Process) {
        let client = process.client(self.place.api());
        let operator = FlinkOperator::new(FlinkOptions::default(), Arc::clone(&self.clock))
            .asking(self.job_managers.through(process));
        operator
            .run(client, CancellationToken::new())
            .await
            .unwrap();
    }

    pub(crate) fn api(&self, resource: Resource) -> Api<DynamicObject> {
        let kind: ApiResource = api_resource(resource);
        Api::namespaced_with(self.place.client(), self.place.namespace(), &kind)
    }

    /// A user creates an object.
    pub(crate) async fn create(&self, resource: Resource, mut object: Value) {
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind);
        let object = serde_json::from_value(object).unwrap();
        let params = PostParams::default();
        self.api(resource).create(&params, &object).await.unwrap();
    }

    /// An object as it is.
    pub(crate) async fn get(&self, resource: Resource, name: &str) -> Option<Value> {
        let object = self.api(resource).get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(object).unwrap())
    }

    pub(crate) async fn list(&self, resource: Resource) -> Vec<Value> {
        let list = self
            .api(resource)
            .list(&ListParams::default())
            .await
            .unwrap();
        let items = list.items.into_iter();
        items.map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    /// A user changes an object.
    pub(crate) async fn change(&self, resource: Resource, name: &str, patch: &Value) {
        let params = PatchParams::default();
        let (api, patch) = (self.api(resource), Patch::Merge(patch));
        api.patch(name, &params, &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, resource: Resource, name: &str) {
        let params = DeleteParams::default();
        let _ = self.api(resource).delete(name, &params).await;
    }

    /// Waits until an object is so; for ever, where it never is.
    pub(crate) async fn until(
        &self,
        resource: Resource,
        name: &str,
        is_so: impl Fn(&Value) -> bool,
    ) {
        loop {
            let object = self.get(resource, name).await;
            if object.is_some_and(|it| is_so(&it)) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) async fn until_running(&self, resource: Resource, name: &str) {
        let is_stable = |it: &Value| {
            let reconciliation = &it["status"]["reconciliationStatus"];
            let reconciled = &reconciliation["lastReconciledSpec"];
            let is_stable =
                reconciled.is_string() && reconciliation["lastStableSpec"] == *reconciled;
            let is_observed = it["status"]["observedGeneration"] == it["metadata"]["generation"];
            let state = &it["status"]["jobStatus"]["state"];
            is_stable && is_observed && (*state == "RUNNING" || it["spec"]["job"].is_null())
        };
        self.until(resource, name, is_stable).await;
    }

    /// Kubernetes: Deployments serve, and go when they are deleted.
    async fn run_deployments(&self) {
        let api = self.api(DEPLOYMENT);
        let mut known = std::collections::BTreeMap::new();
        loop {
            let params = WatchParams::default();
            let Ok(events) = api.watch(&params, "0").await else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                    continue;
                };
                let object = serde_json::to_value(object).unwrap();
                let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
                let is_deleting = object["metadata"]["deletionTimestamp"].is_string();
                if known.insert(uid, is_deleting) == Some(is_deleting) {
                    continue;
                }
                if is_deleting {
                    self.end(&object).await;
                } else {
                    self.begin(&object).await;
                }
            }
        }
    }

    async fn begin(&self, deployment: &Value) {
        tokio::time::sleep(STEP).await;
        let name = deployment["metadata"]["name"].as_str().unwrap();
        let uid = &deployment["metadata"]["uid"];
        let is_there = |it: &Option<Value>| {
            it.as_ref().is_some_and(|it| {
                it["metadata"]["uid"] == *uid && it["metadata"]["deletionTimestamp"].is_null()
            })
        };
        // A pod whose ConfigMap is missing does not start.
        let config = loop {
            if !is_there(&self.get(DEPLOYMENT, name).await) {
                return;
            }
            let config = self
                .get(Resource::CONFIG_MAP, &format!("flink-config-{name}"))
                .await;
            match config.filter(|it| it["metadata"]["ownerReferences"][0]["uid"] == *uid) {
                Some(config) => break config,
                None => tokio::time::sleep(LOOK).await,
            }
        };
        let text = config["data"]["flink-conf.yaml"].as_str().unwrap();
        let option = |key: &str| {
            let start = format!("{key}: ");
            text.lines()
                .find_map(|it| it.strip_prefix(&start))
                .map(str::to_owned)
        };
        self.job_managers.serve(name);
        if let Some(job) = option("$internal.pipeline.job-id") {
            let metadata = self.metadata(name, &job).await;
            let path = option("execution.savepoint.path");
            self.job_managers
                .start(name, &job, name, path.as_deref(), metadata);
            let is_stateless = self.is_stateless(name).await;
            self.job_managers.judge(name, is_stateless);
            if option("high-availability.type").is_some() {
                self.put_metadata(name).await;
            }
        }
        let status = json!({"status": {"availableReplicas": 1, "replicas": 1}});
        let params = PatchParams::default();
        let patch = Patch::Merge(&status);
        let _ = self
            .api(DEPLOYMENT)
            .patch_status(name, &params, &patch)
            .await;
    }

    async fn is_stateless(&self, name: &str) -> Asked {
        match self.get(FLINK_DEPLOYMENT, name).await {
            Some(it) if it["spec"]["job"]["upgradeMode"] != "stateless" => Asked::Stateful,
            Some(_) | None => Asked::Stateless,
        }
    }

    /// The number that the metadata of high availability of a job lead to.
    async fn metadata(&self, cluster: &str, job: &str) -> Option<u64> {
        let name = format!("{cluster}-{job}-config-map");
        let metadata = self.get(Resource::CONFIG_MAP, &name).await?;
        metadata["data"]["checkpointID-1"].as_str()?.parse().ok()
    }

    /// A checkpoint completes.
    async fn put_metadata(&self, cluster: &str) {
        let Some((job, number)) = self.job_managers.checkpoint(cluster) else {
            return;
        };
        let graph = json!({format!("jobGraph-{job}"): "graph"});
        let checkpoint = json!({"checkpointID-1": number.to_string(), "counter": "2"});
        for (name, data) in [
            (format!("{cluster}-cluster-config-map"), graph),
            (format!("{cluster}-{job}-config-map"), checkpoint),
        ] {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "labels": {
                    "app": cluster, "type": "flink-native-kubernetes",
                }},
                "data": data,
            });
            let api = self.api(Resource::CONFIG_MAP);
            let there = api.get_opt(&name).await.unwrap();
            if there.is_some() {
                let params = PatchParams::default();
                api.patch(&name, &params, &Patch::Merge(&object))
                    .await
                    .unwrap();
            } else {
                let object = serde_json::from_value(object).unwrap();
                api.create(&PostParams::default(), &object).await.unwrap();
            }
        }
    }

    /// The garbage collector: what the Deployment owns goes first.
    async fn end(&self, deployment: &Value) {
        tokio::time::sleep(STEP).await;
        let name = deployment["metadata"]["name"].as_str().unwrap();
        self.job_managers.end(name);
        for service in [name.to_owned(), format!("{name}-rest")] {
            self.delete(SERVICE, &service).await;
        }
        self.delete(Resource::CONFIG_MAP, &format!("flink-config-{name}"))
            .await;
        let patch = json!({"metadata": {"finalizers": null}});
        let params = PatchParams::default();
        let _ = self
            .api(DEPLOYMENT)
            .patch(name, &params, &Patch::Merge(&patch))
            .await;
    }

    /// How things ended, without what may differ between two good runs.
    pub(crate) async fn digest(&self) -> String {
        let mut lines = Vec::new();
        for resource in [FLINK_DEPLOYMENT, FLINK_SESSION_JOB] {
            for object in self.list(resource).await {
                lines.push(summary(&object));
            }
        }
        for object in self.list(FLINK_STATE_SNAPSHOT).await {
            let state = &object["status"]["state"];
            lines.push(format!(
                "snapshot {} {state}",
                object["metadata"]["labels"]["snapshot.trigger-type"]
            ));
        }
        lines.sort();
        for object in self.list(DEPLOYMENT).await {
            let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
            lines.push(format!("Deployment {} {image}", object["metadata"]["name"]));
        }
        lines.push(format!("{} jobs run", self.job_managers.n_running()));
        let starts = self.job_managers.starts();
        lines.push(format!("{} starts", starts.len()));
        lines.join("\n")
    }
}

fn summary(object: &Value) -> String {
    let status = &object["status"];
    let reconciliation = &status["reconciliationStatus"];
    let reconciled = reconciliation["lastReconciledSpec"]
        .as_str()
        .unwrap_or("null");
    let reconciled: Value = serde_json::from_str(reconciled).unwrap();
    format!(
        "{} {}: {} {} {} {} {} error {}",
        object["kind"].as_str().unwrap(),
        object["metadata"]["name"].as_str().unwrap(),
        reconciliation["state"],
        reconciled["spec"]["job"]["state"],
        status["jobManagerDeploymentStatus"],
        status["jobStatus"]["state"],
        status["lifecycleState"],
        status["error"].is_string(),
    )
}
