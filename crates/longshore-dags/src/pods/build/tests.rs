use longshore_store::model::{RunDetails, RunKey, RunState, RunType, StoredDocument};
use uuid::Uuid;

use super::*;
use crate::{
    document,
    test_rows::{Left, queued},
};

const TI_ID: &str = "01a1fb91-1df8-7778-b405-15c59206e630";

fn dag(text: &str) -> Dag {
    document::parse("dag.yaml", text)
        .and_then(|document| document.validate(&mut |_| Ok(b"name,rows\na,1\n".to_vec())))
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn etl() -> Dag {
    dag(include_str!("../../../testdata/dags/etl.yaml"))
}

/// A DAG of one task `a` with these fields.
fn one_task(fields: &str) -> Dag {
    dag(&format!("dag_id: d\ntasks:\n  a: {{{fields}}}\n"))
}

fn run(dag: &Dag) -> Run {
    let at: jiff::Timestamp = "2026-11-21T00:30:00Z".parse().unwrap();
    Run {
        key: RunKey {
            dag_id: dag.dag_id.clone(),
            run_id: "manual__2026-11-21T00:30:00+00:00".to_owned(),
        },
        run_type: RunType::Manual,
        state: RunState::Running,
        logical_date: Some(at),
        queued_at: at,
        start_date: None,
        end_date: None,
        conf: json!({"city": "Paris"}),
        dag_hash: StoredDocument::of(&dag.to_json()).hash().clone(),
        is_prepared: true,
        reason: None,
        details: RunDetails::default(),
        version: 1,
    }
}

fn task_instance(run: &Run, task: &Task) -> TaskInstance {
    queued(Uuid::parse_str(TI_ID).unwrap(), &run.key, &task.task_id)
}

fn results() -> BTreeMap<String, Value> {
    [("count.rows", json!({"n": 2})), ("count-lines", json!("2"))]
        .map(|(task, result)| (task.to_owned(), result))
        .into()
}

/// The pod of a task, with a changed task instance and configuration.
fn pod_with(
    dag: &Dag,
    task_id: &str,
    config: &PodConfig,
    change: impl FnOnce(&mut TaskInstance),
) -> Result<Value, BuildError> {
    let run = run(dag);
    let task = &dag.tasks[task_id];
    let mut task_instance = task_instance(&run, task);
    change(&mut task_instance);
    build_pod(&BuildInput {
        run: &run,
        dag,
        task,
        task_instance: &task_instance,
        results: &Left::of(results()),
        config,
    })
}

fn pod(dag: &Dag, task_id: &str) -> Value {
    pod_with(dag, task_id, &PodConfig::default(), |_| {}).unwrap()
}

fn base(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]
}

fn env<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let variables = base(pod)["env"].as_array()?;
    variables
        .iter()
        .rev()
        .find(|variable| variable["name"] == name)?["value"]
        .as_str()
}

#[test]
fn a_pod_with_all_that_a_task_can_say() {
    insta::assert_yaml_snapshot!(pod(&etl(), "extract"));
}

#[test]
fn a_pod_with_results_and_an_override() {
    insta::assert_yaml_snapshot!(pod(&etl(), "compare"));
}

/// A run may have thousands of tasks: what is read for one pod must not grow with them.
#[test]
fn only_the_results_that_a_task_names_are_read() {
    let dag = etl();
    let run = run(&dag);
    for (task_id, expected) in [
        ("extract", &[][..]),
        ("compare", &["count.rows", "count-lines"]),
    ] {
        let (task, results) = (&dag.tasks[task_id], Left::of(results()));
        let built = build_pod(&BuildInput {
            run: &run,
            dag: &dag,
            task,
            task_instance: &task_instance(&run, task),
            results: &results,
            config: &PodConfig::default(),
        });
        built.unwrap();
        assert_eq!(*results.read.borrow(), expected, "{task_id}");
    }
}

#[test]
fn a_pod_with_the_least_that_a_task_can_say() {
    insta::assert_yaml_snapshot!(pod(&one_task("command: [date]"), "a"));
}

#[test]
fn a_pod_from_a_template() {
    let config = PodConfig {
        namespace: "airflow".to_owned(),
        scheduler_id: "7".to_owned(),
        airflow_version: "3.3.2+local".to_owned(),
        pod_template: Some(json!({
            "metadata": {"name": "template", "labels": {"team": "data", "dag_id": "?"}},
            "spec": {
                "restartPolicy": "OnFailure",
                "serviceAccountName": "worker",
                "containers": [
                    {"name": "base", "image": "airflow:3", "terminationMessagePath": "/tmp/result", "env": [{"name": "A", "value": "1"}]},
                    {"name": "side", "image": "side:1"},
                ],
            },
        })),
        ..PodConfig::default()
    };
    let dag = one_task("command: [date]");
    let pod = pod_with(&dag, "a", &config, |ti| ti.key.map_index = 3).unwrap();
    insta::assert_yaml_snapshot!(pod);
}

#[test]
fn shared_objects_of_a_run() {
    let (dag, config) = (etl(), PodConfig::default());
    let key = run(&dag).key;
    insta::assert_yaml_snapshot!([
        build_files(&key, &dag, &config).unwrap(),
        build_workspace(&key, &dag, &config).unwrap(),
    ]);
    let plain = one_task("command: [date]");
    assert_eq!(build_files(&key, &plain, &config), None);
    assert_eq!(build_workspace(&key, &plain, &config), None);
}

#[test]
fn pods_mount_what_the_run_shares() {
    let dag = etl();
    let key = run(&dag).key;
    let pod = pod(&dag, "extract");
    let volumes = &pod["spec"]["volumes"];
    assert_eq!(
        volumes[0]["persistentVolumeClaim"]["claimName"],
        workspace_name(&key)
    );
    assert_eq!(volumes[1]["configMap"]["name"], files_name(&key));
    let files = build_files(&key, &dag, &PodConfig::default()).unwrap();
    assert_eq!(files["metadata"]["name"], files_name(&key));
}

#[test]
fn labels_and_annotations_are_those_of_a_live_worker_pod() {
    let live: Value = serde_json::from_str(include_str!(
        "../../../testdata/airflow/worker-pod-live.json"
    ))
    .unwrap();
    let text = |pointer: &str| live.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let mut dag = dag("dag_id: fan100\ntasks: {t98: {image: 'airflow:dev'}}");
    dag.dag_id = text("/metadata/annotations/dag_id");
    let config = PodConfig {
        scheduler_id: "2".to_owned(),
        ..PodConfig::default()
    };
    let ours = pod_with(&dag, "t98", &config, |ti| {
        ti.key.run.run_id = text("/metadata/annotations/run_id");
    })
    .unwrap();
    for (map, additions) in [
        ("labels", vec!["ti_id"]),
        (
            "annotations",
            vec!["longshore.dev/launch", "task_instance_id"],
        ),
    ] {
        let mut without = ours["metadata"][map].clone();
        for addition in additions {
            assert!(
                without.as_object_mut().unwrap().remove(addition).is_some(),
                "{addition}"
            );
        }
        assert_eq!(without, live["metadata"][map]);
    }
    for pointer in [
        "/spec/restartPolicy",
        "/spec/containers/0/name",
        "/spec/containers/0/image",
    ] {
        assert_eq!(ours.pointer(pointer), live.pointer(pointer), "{pointer}");
    }
    let name = ours["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), text("/metadata/name").len());
    assert!(name.starts_with("fan100-t98-"), "{name}");
}

#[test]
fn the_name_is_that_of_the_launch() {
    let dag = one_task("command: [date]");
    let name = |change: fn(&mut TaskInstance)| {
        let pod = pod_with(&dag, "a", &PodConfig::default(), change).unwrap();
        pod["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(|_| {}), name(|_| {}));
    assert_ne!(name(|_| {}), name(|ti| ti.launch = 2));
    assert_eq!(name(|ti| ti.pod_name = Some("stored".to_owned())), "stored");
}

#[test]
fn an_override_changes_everything_but_what_the_pod_is_found_by() {
    let dag = one_task(
        "image: i, executor_config: {pod_override: {metadata: {name: mine, \
         labels: {ti_id: x, airflow-worker: x, dag_id: y}, \
         annotations: {task_instance_id: x, longshore.dev/launch: x, extra: z}}}}",
    );
    let metadata = &pod(&dag, "a")["metadata"];
    assert_eq!(metadata["name"], "mine");
    assert_eq!(metadata["labels"]["dag_id"], "y");
    assert_eq!(metadata["annotations"]["extra"], "z");
    assert_eq!(metadata["labels"]["ti_id"], TI_ID);
    assert_eq!(
        metadata["labels"]["airflow-worker"],
        PodConfig::default().scheduler_id
    );
    assert_eq!(metadata["annotations"]["task_instance_id"], TI_ID);
    assert_eq!(metadata["annotations"]["longshore.dev/launch"], "1");
}

#[test]
fn a_namespace_that_nobody_watches_is_refused() {
    let dag = one_task("image: i, executor_config: {pod_override: {metadata: {namespace: other}}}");
    let error = pod_with(&dag, "a", &PodConfig::default(), |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the pod override of task `a` wants namespace `other`, and the pods of this scheduler are watched in `default` \
         only; leave the namespace out"
    );
}

#[test]
fn the_result_is_written_where_the_kubelet_looks() {
    let dag = one_task(
        "image: i, executor_config: {pod_override: {spec: {containers: [{terminationMessagePath: /tmp/r}]}}}",
    );
    let pod = pod(&dag, "a");
    assert_eq!(base(&pod)["terminationMessagePath"], "/tmp/r");
    assert_eq!(env(&pod, dags::ENV_RETURN), Some("/tmp/r"));
}

#[test]
fn parameters_of_the_run_win_over_the_defaults() {
    let pod = pod(&etl(), "extract");
    assert_eq!(env(&pod, "CITY"), Some("Paris"));
    assert_eq!(env(&pod, "LIMIT"), Some("100"));
}

#[test]
fn a_missing_result_is_an_error_that_says_all() {
    let dag = dag(
        "dag_id: d\ntasks:\n  count-lines: {image: i}\n  a: {image: i, depends_on: count-lines, \
         env: {N: '{{ xcom.count-lines.rows }}'}}\n",
    );
    let error = pod_with(&dag, "a", &PodConfig::default(), |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        "variable `N` of task `a` cannot be filled in"
    );
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "`{{ xcom.count-lines.rows }}` needs field `rows` of the result of task `count-lines`, \
         which was \"2\""
    );
    assert_eq!(error.class(), Class::Invalid);
}

/// Its time begins with its container, which is not known yet.
#[test]
fn a_timeout_is_not_in_the_pod_that_is_created() {
    let dag = one_task("image: i, execution_timeout: 90");
    assert!(pod(&dag, "a")["spec"]["activeDeadlineSeconds"].is_null());
}
