//! The pod of a worker: the template, what the executor adds, and the task's override, each over the one before.

use std::collections::BTreeMap;

use longshore_api::{airflow, dags};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    names::{label_value, pod_name},
    pod_merge::merge_pods,
};

/// Which launch of which try a pod is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerIdentity<'a> {
    /// The DAG.
    pub dag_id: &'a str,
    /// The run.
    pub run_id: &'a str,
    /// The task.
    pub task_id: &'a str,
    /// The map index, -1 where the task is not mapped.
    pub map_index: i32,
    /// The try, from 1.
    pub try_number: u32,
    /// The task instance: new for each try.
    pub task_instance_id: Uuid,
    /// The launch of the try, from 1.
    pub launch: u32,
    /// The scheduler that owns the pod: upstream's job id.
    pub scheduler_id: &'a str,
}

/// What a pod is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerPod<'a> {
    /// What it is for.
    pub identity: WorkerIdentity<'a>,
    /// The command line: see [`super::ExecuteTask::args`].
    pub args: &'a [String],
    /// The base pod: the file of the task's `executor_config`, else of `[kubernetes_executor] pod_template_file`. A
    /// file that is missing is an empty pod, and a warning of the caller's.
    pub template: &'a Value,
    /// `[kubernetes_executor] namespace`. An override may name another one.
    pub namespace: &'a str,
    /// `worker_container_repository:worker_container_tag`, where both are set. Without it, the template's image stays.
    pub image: Option<&'a str>,
    /// Airflow's version.
    pub airflow_version: &'a str,
    /// The pod of the task's `executor_config`, which wins.
    pub pod_override: Option<&'a Value>,
}

impl WorkerIdentity<'_> {
    /// The pod's name, which follows from the launch: a repeated creation meets its own pod.
    #[must_use]
    pub fn name(&self) -> String {
        let id = self.task_instance_id.to_string();
        pod_name(self.dag_id, self.task_id, &id, self.launch)
    }

    /// The labels, but for that of Airflow's version.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        let mut labels = BTreeMap::from([
            (airflow::LABEL_DAG_ID, label_value(self.dag_id)),
            (airflow::LABEL_TASK_ID, label_value(self.task_id)),
            (airflow::LABEL_RUN_ID, label_value(self.run_id)),
            (airflow::LABEL_TRY_NUMBER, self.try_number.to_string()),
        ]);
        if self.map_index >= 0 {
            labels.insert(airflow::LABEL_MAP_INDEX, self.map_index.to_string());
        }
        labels.extend(self.own_labels());
        labels
    }

    /// The annotations: the ids as they are.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<&'static str, String> {
        let mut annotations = BTreeMap::from([
            (airflow::ANNOTATION_DAG_ID, self.dag_id.to_owned()),
            (airflow::ANNOTATION_TASK_ID, self.task_id.to_owned()),
            (airflow::ANNOTATION_RUN_ID, self.run_id.to_owned()),
            (airflow::ANNOTATION_TRY_NUMBER, self.try_number.to_string()),
        ]);
        if self.map_index >= 0 {
            annotations.insert(airflow::ANNOTATION_MAP_INDEX, self.map_index.to_string());
        }
        annotations.extend(self.own_annotations());
        annotations
    }

    /// The labels that pods are found by, which no override can change.
    fn own_labels(&self) -> [(&'static str, String); 3] {
        [
            (airflow::LABEL_TI_ID, self.task_instance_id.to_string()),
            (airflow::LABEL_KUBERNETES_EXECUTOR, airflow::TRUE.to_owned()),
            (
                airflow::LABEL_AIRFLOW_WORKER,
                label_value(self.scheduler_id),
            ),
        ]
    }

    /// The annotations that pods are recognised by, which no override can change.
    fn own_annotations(&self) -> [(&'static str, String); 2] {
        [
            (
                airflow::ANNOTATION_TASK_INSTANCE_ID,
                self.task_instance_id.to_string(),
            ),
            (dags::ANNOTATION_LAUNCH, self.launch.to_string()),
        ]
    }
}

impl WorkerPod<'_> {
    /// The pod.
    ///
    /// Whatever the override says, the labels and annotations by which the scheduler finds the pod again are its own. The
    /// name, the namespace and all else are the user's. Upstream: `PodGenerator.construct_pod`.
    #[must_use]
    pub fn build(&self) -> Value {
        let mut pod = merge_pods(self.template, &self.dynamic_pod());
        if let Some(pod_override) = self.pod_override {
            pod = merge_pods(&pod, pod_override);
        }
        let labels = self.identity.own_labels();
        restore(&mut pod, "labels", labels.into_iter());
        let annotations = self.identity.own_annotations();
        restore(&mut pod, "annotations", annotations.into_iter());
        pod
    }

    /// What the executor adds to the template.
    fn dynamic_pod(&self) -> Value {
        let mut container = json!({
            "name": airflow::CONTAINER_BASE,
            "args": self.args,
            "env": [{"name": airflow::ENV_IS_K8S_EXECUTOR_POD, "value": airflow::TRUE}],
        });
        // Upstream takes the image of the override here, which the merge would take anyway.
        if let Some(image) = self.image {
            container["image"] = image.into();
        }
        let mut labels = self.identity.labels();
        let version = self.airflow_version.replace('+', "-");
        labels.insert(airflow::LABEL_AIRFLOW_VERSION, version);
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.identity.name(),
                "namespace": self.namespace,
                "labels": labels,
                "annotations": self.identity.annotations(),
            },
            "spec": {"containers": [container]},
        })
    }
}

/// Sets keys of a map of the metadata.
fn restore(pod: &mut Value, map: &str, ours: impl Iterator<Item = (&'static str, String)>) {
    let map = pod.pointer_mut(&format!("/metadata/{map}"));
    let map: Option<&mut Map<String, Value>> = map.and_then(Value::as_object_mut);
    if let Some(map) = map {
        map.extend(ours.map(|(key, value)| (key.to_owned(), value.into())));
    }
}

/// The label `logical_date` of pods that `kubernetes generate-dag-yaml` writes: of an ISO date with its offset.
#[must_use]
pub fn logical_date_label(logical_date: &str) -> String {
    logical_date.replace(':', "_").replace('+', "_plus_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Uuid = Uuid::from_u128(0x01a1_fb91_1df8_7778_b405_15c5_9206_e630);

    fn text<'a>(value: &'a Value, name: &str) -> &'a str {
        value[name].as_str().unwrap()
    }

    fn identity(inputs: &Value) -> WorkerIdentity<'_> {
        WorkerIdentity {
            dag_id: text(inputs, "dag_id"),
            run_id: text(inputs, "run_id"),
            task_id: text(inputs, "task_id"),
            map_index: i32::try_from(inputs["map_index"].as_i64().unwrap()).unwrap(),
            try_number: u32::try_from(inputs["try_number"].as_u64().unwrap()).unwrap(),
            task_instance_id: ID,
            launch: 1,
            scheduler_id: text(inputs, "scheduler_job_id"),
        }
    }

    fn args() -> Vec<String> {
        let words = [
            "python",
            "-m",
            "airflow.sdk.execution_time.execute_workload",
        ];
        let words = words.into_iter().chain(["--json-string", "{}"]);
        words.map(str::to_owned).collect()
    }

    /// Takes from a pod what is ours alone: upstream's 3.3 has neither the id of the task instance nor the launch.
    fn without_ours(pod: &mut Value) {
        let mut take = |pointer: &str, key: &str| {
            let map = pod.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
            map.remove(key).unwrap()
        };
        assert_eq!(take("/metadata/labels", "ti_id"), ID.to_string());
        assert_eq!(
            take("/metadata/annotations", "task_instance_id"),
            ID.to_string()
        );
        assert_eq!(take("/metadata/annotations", "longshore.dev/launch"), "1");
    }

    #[test]
    fn pods_are_made_as_airflow_makes_them() {
        let vectors = include_str!("../../testdata/executor/construct-pod.json");
        let vectors: Value = serde_json::from_str(vectors).unwrap();
        let inputs = &vectors["inputs"];
        let cases = vectors["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 22);
        let args = args();
        for case in cases {
            let worker = WorkerPod {
                identity: identity(inputs),
                args: &args,
                template: &vectors["template"],
                namespace: text(inputs, "namespace"),
                image: case["kube_image"].as_str(),
                airflow_version: "3.3.2",
                pod_override: Some(&case["pod_override"]).filter(|it| !it.is_null()),
            };
            let mut pod = worker.build();
            without_ours(&mut pod);
            // The name of the vectors has a fixed end.
            let mut expected = case["expected"].clone();
            if text(&expected["metadata"], "name") == text(inputs, "pod_id") {
                expected["metadata"]["name"] = worker.identity.name().into();
            }
            assert_eq!(pod, expected, "{} {}", case["case"], case["kube_image"]);
        }
    }

    #[test]
    fn no_override_changes_what_a_pod_is_found_by() {
        let inputs = json!({
            "dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1,
            "scheduler_job_id": "7",
        });
        let keys = ["ti_id", "kubernetes_executor", "airflow-worker", "dag_id"];
        let labels: Map<String, Value> = keys
            .iter()
            .map(|key| ((*key).to_owned(), "x".into()))
            .collect();
        let over = json!({"metadata": {
            "labels": labels, "name": "mine",
            "annotations": {"task_instance_id": "x", "longshore.dev/launch": "9", "dag_id": "x"},
        }});
        let args = args();
        let pod = WorkerPod {
            identity: identity(&inputs),
            args: &args,
            template: &json!({}),
            namespace: "n",
            image: None,
            airflow_version: "3.3.2+local",
            pod_override: Some(&over),
        };
        let pod = pod.build();
        let metadata = &pod["metadata"];
        assert_eq!(
            metadata["labels"],
            json!({
                "ti_id": ID, "kubernetes_executor": "True", "airflow-worker": "7", "dag_id": "x",
                "run_id": "r", "task_id": "t", "try_number": "1", "airflow_version": "3.3.2-local",
            })
        );
        assert_eq!(
            metadata["annotations"],
            json!({
                "task_instance_id": ID, "longshore.dev/launch": "1", "dag_id": "x", "run_id": "r",
                "task_id": "t", "try_number": "1",
            })
        );
        assert_eq!(
            (&metadata["name"], &metadata["namespace"]),
            (&json!("mine"), &json!("n"))
        );
        assert!(pod["spec"]["containers"][0].get("image").is_none());
    }

    #[test]
    fn a_live_pod_has_these_labels_and_annotations() {
        let live = include_str!("../../testdata/executor/worker-pod-live.json");
        let live: Value = serde_json::from_str(live).unwrap();
        let annotations = &live["metadata"]["annotations"];
        let identity = WorkerIdentity {
            dag_id: text(annotations, "dag_id"),
            run_id: text(annotations, "run_id"),
            task_id: text(annotations, "task_id"),
            map_index: -1,
            try_number: 1,
            task_instance_id: ID,
            launch: 1,
            scheduler_id: text(&live["metadata"]["labels"], "airflow-worker"),
        };
        let (labels, ours) = (identity.labels(), identity.annotations());
        for (key, value) in live["metadata"]["labels"].as_object().unwrap() {
            if key != "airflow_version" {
                assert_eq!(labels[key.as_str()], *value, "{key}");
            }
        }
        for (key, value) in annotations.as_object().unwrap() {
            assert_eq!(ours[key.as_str()], *value, "{key}");
        }
        let stem = |name: &str| name.rsplit_once('-').unwrap().0.to_owned();
        assert_eq!(
            stem(&identity.name()),
            stem(text(&live["metadata"], "name"))
        );
    }

    #[test]
    fn a_logical_date_is_a_label() {
        let label = logical_date_label("2026-01-01T00:00:00+00:00");
        assert_eq!(label, "2026-01-01T00_00_00_plus_00_00");
    }
}
