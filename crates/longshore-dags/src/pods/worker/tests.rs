//! The pods of workers, through the rows and the document of their DAG.

use longshore_airflow::token::{SigningKey, TokenRules};
use longshore_store::{AirflowTask, DagVersion, RunKey, RunState, StoredDocument};
use uuid::Uuid;

use super::*;

const ID: Uuid = Uuid::from_u128(0x01a1_fb91_1df8_7778_b405_15c5_9206_e630);
const VERSION: Uuid = Uuid::from_u128(7);
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn tokens() -> Arc<Tokens> {
    let key = SigningKey::secret("secret", None).unwrap();
    Arc::new(Tokens::new(key, TokenRules::default()))
}

fn workers(template: &Value, image: Option<&str>) -> WorkerPods {
    WorkerPods {
        template: template.clone(),
        image: image.map(str::to_owned),
        tokens: tokens(),
        token_validity: Duration::from_secs(60),
    }
}

/// The version of a DAG whose task has this `executor_config`.
fn dag(task_id: &str, executor_config: &Value) -> WorkerDag {
    let document = json!({"__version": 3, "dag": {"tasks": [{"__type": "operator", "__var": {
        "task_id": task_id, "executor_config": executor_config, "queue": "fast",
    }}]}});
    let stored = StoredDocument::of(&document);
    let version = DagVersion {
        id: VERSION,
        dag_id: "my.dag".to_owned(),
        number: 1,
        content_hash: String::new(),
        document: stored.hash().clone(),
        source: None,
        bundle: None,
        file: "sub/my.py".to_owned(),
        created_at: NOW,
        version: 1,
    };
    WorkerDag::read(version, stored.body()).unwrap()
}

fn run(key: RunKey) -> Run {
    Run {
        key,
        run_type: longshore_store::RunType::Manual,
        state: RunState::Running,
        logical_date: None,
        queued_at: NOW,
        start_date: Some(NOW),
        end_date: None,
        conf: json!({}),
        dag_hash: StoredDocument::of(&json!({})).hash().clone(),
        is_prepared: true,
        reason: None,
        details: longshore_store::RunDetails {
            bundle_version: Some("4f2a".to_owned()),
            ..longshore_store::RunDetails::default()
        },
        version: 1,
    }
}

/// The second try of a task, mapped.
fn row(dag_id: &str, run_id: &str, task_id: &str) -> TaskInstance {
    let run = RunKey {
        dag_id: dag_id.to_owned(),
        run_id: run_id.to_owned(),
    };
    let mut row = TaskInstance {
        try_number: 2,
        launch: 1,
        priority_weight: i64::MAX,
        airflow: Some(Box::new(AirflowTask::new(VERSION))),
        ..TaskInstance::new(ID, run.task(task_id))
    };
    row.key.map_index = 3;
    row
}

fn build(
    row: &TaskInstance,
    dag: &WorkerDag,
    pods: &PodConfig,
    workers: &WorkerPods,
) -> Result<Value, WorkerBuildError> {
    build_worker(&WorkerInput {
        run: &run(row.key.run.clone()),
        task_instance: row,
        dag,
        pods,
        workers,
        now: NOW,
        token_id: [7; 16],
    })
}

/// Takes from a pod what is ours alone, and the workload, which is another test's.
fn as_in_vectors(pod: &mut Value) {
    for (map, key) in [
        ("/metadata/labels", "ti_id"),
        ("/metadata/annotations", "task_instance_id"),
        ("/metadata/annotations", "longshore.dev/launch"),
    ] {
        let map = pod.pointer_mut(map).unwrap().as_object_mut().unwrap();
        map.remove(key).unwrap();
    }
    if let Some(workload) = pod.pointer_mut("/spec/containers/0/args/4") {
        *workload = "{}".into();
    }
}

#[test]
fn the_22_pods_of_upstream_are_made_from_rows_and_documents() {
    let vectors =
        include_str!("../../../../longshore-airflow/testdata/executor/construct-pod.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let inputs = &vectors["inputs"];
    let text = |name: &str| inputs[name].as_str().unwrap();
    let row = row(text("dag_id"), text("run_id"), text("task_id"));
    let pods = PodConfig {
        namespace: text("namespace").to_owned(),
        scheduler_id: text("scheduler_job_id").to_owned(),
        ..PodConfig::default()
    };
    let mut n_same = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let over = &case["pod_override"];
        let over = if over.is_null() {
            json!({})
        } else {
            json!({"pod_override": {"__type": "k8s.V1Pod", "__var": over}})
        };
        let dag = dag(text("task_id"), &json!({"__type": "dict", "__var": over}));
        let workers = workers(&vectors["template"], case["kube_image"].as_str());
        let mut expected = case["expected"].clone();
        let built = build(&row, &dag, &pods, &workers);
        let wanted = expected["metadata"]["namespace"].as_str().unwrap();
        if wanted != pods.namespace {
            // Ours: pods are watched in one namespace.
            let why = built.unwrap_err().to_string();
            assert!(
                why.contains(&format!("wants namespace `{wanted}`")),
                "{why}"
            );
            n_same += 1;
            continue;
        }
        let mut pod = built.unwrap();
        as_in_vectors(&mut pod);
        if expected["metadata"]["name"] == inputs["pod_id"] {
            expected["metadata"]["name"] = pod_name(&row).into();
        }
        if let Some(workload) = expected.pointer_mut("/spec/containers/0/args/4") {
            *workload = "{}".into();
        }
        assert_eq!(pod, expected, "{} {}", case["case"], case["kube_image"]);
        n_same += 1;
    }
    assert_eq!(n_same, 22);
}

fn pod_name(row: &TaskInstance) -> String {
    crate::scheduler::identity::object_name(crate::model::Launcher::Pod, row)
}

#[test]
fn the_workload_says_which_try_of_which_version_runs() {
    let row = row("my.dag", "r", "t");
    let dag = dag("t", &json!(null));
    let workers = workers(&json!({}), None);
    let pod = build(&row, &dag, &PodConfig::default(), &workers).unwrap();
    let args = &pod["spec"]["containers"][0]["args"];
    let workload: ExecuteTask = serde_json::from_str(args[4].as_str().unwrap()).unwrap();
    let claims = workers.tokens.verify(&workload.token, NOW).unwrap();
    assert_eq!((claims.sub, claims.scope), (ID, TokenScope::Workload));
    assert_eq!(claims.exp, 60);
    let mut written = serde_json::to_value(&workload).unwrap();
    written.as_object_mut().unwrap().remove("token");
    let path = "dag_id=my.dag/run_id=r/task_id=t/map_index=3/attempt=2.log";
    let expected = json!({
        "type": "ExecuteTask", "dag_rel_path": "sub/my.py", "log_path": path,
        "bundle_info": {"name": "dags-folder", "version": "4f2a"}, "sentry_integration": "",
        "ti": {
            "id": ID, "task_id": "t", "dag_id": "my.dag", "run_id": "r", "try_number": 2,
            "dag_version_id": VERSION, "map_index": 3, "hostname": null, "context_carrier": null,
            "queue": "fast", "pool_slots": 1, "priority_weight": i32::MAX,
        },
    });
    assert_eq!(written, expected);
}

#[test]
fn what_an_executor_config_cannot_say_is_named() {
    let row = row("my.dag", "r", "t");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.yaml");
    std::fs::write(&file, "- no\n- pod\n").unwrap();
    for (config, expected) in [
        (
            json!({"pod_override": "x"}),
            "Invalid executor_config passed: task `t`: `pod_override` must be",
        ),
        (
            json!({"pod_template_file": file}),
            "Invalid executor_config passed: task `t`: expected the YAML of a pod",
        ),
    ] {
        let built = build(
            &row,
            &dag("t", &config),
            &PodConfig::default(),
            &workers(&json!({}), None),
        );
        let why = built.unwrap_err().to_string();
        assert!(why.starts_with(expected), "{why}");
    }
}

#[test]
fn a_template_of_the_task_replaces_that_of_the_configuration() {
    let row = row("my.dag", "r", "t");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.yaml");
    std::fs::write(&file, "spec: {restartPolicy: Never, nodeName: gpu}\n").unwrap();
    let of_all = workers(&json!({"spec": {"nodeName": "cpu"}}), None);
    let missing = folder.path().join("none.yaml");
    for (config, expected) in [
        (json!(null), json!("cpu")),
        (json!({"pod_template_file": file}), json!("gpu")),
        (json!({"pod_template_file": missing}), json!(null)),
    ] {
        let pod = build(&row, &dag("t", &config), &PodConfig::default(), &of_all).unwrap();
        assert_eq!(pod["spec"]["nodeName"], expected, "{config}");
    }
}
