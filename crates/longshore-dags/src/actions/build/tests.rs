//! The TaskAction of a task.

use longshore_api::flyte::TaskActionSpec;
use longshore_store::model::{
    Run, RunDetails, RunKey, RunState, RunType, StoredDocument, TaskInstance,
};
use uuid::Uuid;

use super::*;
use crate::{
    document,
    model::{Dag, Launcher},
    pods::build::PodConfig,
    scheduler::identity::object_name,
    test_rows::{Left, queued},
};

const DAG: &str = "
dag_id: etl
params: {day: today, cores: 2}
tasks:
  train:
    plugin:
      type: spark
      config: {day: '{{ params.day }}'}
      custom: {mainApplicationFile: 'local:///{{ task_id }}.py', sparkConf: {a: ['{{ run_id }}', 1, null]}}
      resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {gpu: 1}}
      retries: 2
      interruptible: true
    image: example.test/spark:1
    args: ['{{ params.cores }}']
    env: {DAY: '{{ params.day }}'}
  pod: {plugin: pod, command: [echo, '{{ try_number }}']}
  bare: {plugin: {type: mine, custom: {a: 1}}}
";

fn dag() -> Dag {
    document::parse("dag.yaml", DAG)
        .and_then(|document| document.validate(&mut |_| unreachable!()))
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn built(task_id: &str) -> (Value, TaskInstance) {
    let dag = dag();
    let at: jiff::Timestamp = "2026-11-21T00:30:00Z".parse().unwrap();
    let run = Run {
        key: RunKey {
            dag_id: dag.dag_id.clone(),
            run_id: "manual__1".to_owned(),
        },
        run_type: RunType::Manual,
        state: RunState::Running,
        logical_date: None,
        queued_at: at,
        start_date: None,
        end_date: None,
        conf: json!({"day": "monday"}),
        dag_hash: StoredDocument::of(&dag.to_json()).hash().clone(),
        is_prepared: true,
        reason: None,
        details: RunDetails::default(),
        version: 1,
    };
    let task_instance = TaskInstance {
        try_number: 3,
        launch: 2,
        ..queued(Uuid::from_u128(7), &run.key, task_id)
    };
    let task = &dag.tasks[task_id];
    let input = BuildInput {
        run: &run,
        dag: &dag,
        task,
        task_instance: &task_instance,
        results: &Left::default(),
        config: &PodConfig::default(),
    };
    let built = build_action(&input, task.plugin.as_ref().unwrap()).unwrap();
    (built, task_instance)
}

#[test]
fn an_action_with_all_that_a_task_can_say() {
    let (mut action, row) = built("train");
    let template = TaskActionSpec::of(&action).unwrap().task_template;
    action["spec"]["taskTemplate"] = format!("{} bytes", template.len()).into();
    assert_eq!(
        action["metadata"]["name"],
        object_name(Launcher::TaskAction, &row)
    );
    insta::assert_yaml_snapshot!(action);
    let text = String::from_utf8_lossy(&template);
    for part in [
        "monday",
        "local:///train.py",
        "manual__1",
        "example.test/spark:1",
        "500m",
        "1Gi",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_pod_is_a_container_and_other_plugins_need_none() {
    let (pod, _) = built("pod");
    assert_eq!(pod["spec"]["taskType"], "raw-container");
    let template = TaskActionSpec::of(&pod).unwrap().task_template;
    let text = String::from_utf8_lossy(&template).into_owned();
    assert!(text.contains("longshore.dev/host"), "{text}");
    let (bare, _) = built("bare");
    assert_eq!(bare["spec"]["taskType"], "mine");
    let template = TaskActionSpec::of(&bare).unwrap().task_template;
    assert!(!String::from_utf8_lossy(&template).contains("longshore.dev/host"));
}
