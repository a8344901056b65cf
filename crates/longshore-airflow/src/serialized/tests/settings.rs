//! What holds for a task.

use jiff::SignedDuration;
use serde_json::json;

use super::*;

fn task(document: &Document, task_id: &str) -> Settings {
    document.settings(document.dag.tasks.get(task_id).unwrap())
}

#[test]
fn a_task_has_what_it_says_and_else_the_defaults() {
    let zoo = document("zoo");
    let x = task(&zoo, "g1.x");
    let minutes = SignedDuration::from_mins;
    assert_eq!((x.pool(), x.pool_slots()), ("p1".to_owned(), 2));
    assert_eq!(
        (x.priority_weight(), x.weight_rule()),
        (7, WeightRule::Absolute)
    );
    assert_eq!(x.queue(), "q");
    assert_eq!(x.retry_delay().duration(), SignedDuration::from_secs(30));
    assert_eq!(x.retry_exponential_backoff(), Backoff::Flag(true));
    assert!((x.retry_exponential_backoff().factor() - 2.0).abs() < f64::EPSILON);
    assert_eq!(x.max_retry_delay.unwrap().duration(), minutes(10));
    assert_eq!(x.execution_timeout.unwrap().duration(), minutes(5));
    let start = task(&zoo, "start");
    assert_eq!((start.retries(), start.owner()), (2, "team".to_owned()));
    assert_eq!(start.retry_delay().duration(), minutes(5));
    assert_eq!(start.trigger_rule(), TriggerRule::AllSuccess);
    assert_eq!(
        (start.pool(), start.queue()),
        ("default_pool".to_owned(), "default".to_owned())
    );
    assert_eq!(start.max_active_tis_per_dag, None);
    let begins = start.start_date.unwrap().timestamp();
    assert_eq!(begins.to_string(), "2026-01-01T00:00:00Z");
    assert!(start.end_date.is_some(), "that of the DAG");
    let teardown = task(&zoo, "rm");
    assert!(teardown.is_teardown() && teardown.on_failure_fail_dagrun());
    assert_eq!(teardown.trigger_rule(), TriggerRule::AllDoneSetupSuccess);
    assert!(task(&zoo, "mk").is_setup());
    let pod = task(&zoo, "pod");
    assert!(pod.has_on_failure_callback() && !pod.has_on_success_callback());
    let config = pod.executor_config.unwrap();
    assert!(
        matches!(config.get("pod_override"), Some(Var::Pod(pod)) if pod["metadata"]["labels"]["release"] == "stable")
    );
}

#[test]
fn every_rule_of_the_example_has_its_name() {
    let zoo = document("zoo");
    let mut n_rules = 0;
    for operator in zoo.dag.tasks.iter() {
        if let Some(rule) = operator.task_id.strip_prefix("r_") {
            assert_eq!(zoo.settings(operator).trigger_rule().as_str(), rule);
            n_rules += 1;
        }
    }
    assert_eq!(n_rules, 12);
}

#[test]
fn a_mapped_task_has_its_settings_among_its_arguments() {
    let zoo = document("zoo");
    let mapped = task(&zoo, "mp");
    assert_eq!(
        (mapped.retries(), mapped.max_active_tis_per_dagrun),
        (2, Some(4))
    );
    assert_eq!(
        mapped.map_index_template.as_deref(),
        Some("{{ task.op_kwargs['a'] }}")
    );
    let classic = task(&zoo, "mb");
    assert_eq!(classic.retries(), 3);
    // Written there as `{"__type": "timedelta", …}`.
    assert_eq!(
        classic.retry_delay().duration(),
        SignedDuration::from_mins(5)
    );
}

#[test]
fn what_all_tasks_have_in_common_comes_before_airflows_defaults() {
    let mut value = json("zoo");
    value["client_defaults"] =
        json!({"tasks": {"pool": "shared", "retries": 9, "retry_delay": 7.0, "x_new": 1}});
    let zoo = Document::read(value.clone()).unwrap();
    assert_eq!(zoo.to_json(), value);
    for (task_id, pool, retries, delay) in [
        ("g1.x", "p1", 2, 30),
        ("start", "shared", 2, 300),
        ("mp", "shared", 2, 7),
        ("mb", "shared", 3, 300),
    ] {
        let task = task(&zoo, task_id);
        assert_eq!((task.pool().as_str(), task.retries()), (pool, retries));
        let wait = task.retry_delay().duration();
        assert_eq!(wait, SignedDuration::from_secs(delay), "{task_id}");
    }
}

#[test]
fn a_template_may_have_the_name_of_a_setting() {
    let mut value = json("zoo");
    let task = &mut value["dag"]["tasks"][0]["__var"];
    task["template_fields"] = json!(["doc_md", "reschedule", "task_type"]);
    task["doc_md"] = json!({"not": "a text"});
    task["reschedule"] = json!("{{ x }}");
    let document = Document::read(value.clone()).unwrap();
    assert_eq!(document.to_json(), value);
    let start = document.dag.tasks.get("start").unwrap();
    assert_eq!((&start.settings.doc_md, start.reschedule), (&None, None));
}

#[test]
fn a_dag_runs_between_the_bounds_of_its_tasks() {
    let bounds = |dag: (Value, Value), tasks: [(Value, Value); 2]| {
        let mut value = json("vec");
        value["dag"]["start_date"] = dag.0;
        value["dag"]["end_date"] = dag.1;
        value["dag"]["tasks"].as_array_mut().unwrap().truncate(2);
        value["dag"]["task_group"] = Value::Null;
        for (index, (start, end)) in tasks.into_iter().enumerate() {
            let task = &mut value["dag"]["tasks"][index]["__var"];
            task["downstream_task_ids"] = json!([]);
            task["start_date"] = start;
            task["end_date"] = end;
        }
        let bounds = Document::read(value).unwrap().dag.bounds();
        let second = |at: Option<jiff::Timestamp>| at.map(|at| at.as_second());
        (second(bounds.earliest), second(bounds.latest))
    };
    let none = || (json!(null), json!(null));
    for (dag, tasks, expected) in [
        (none(), [none(), none()], (None, None)),
        (
            (json!(10), json!(20)),
            [none(), none()],
            (Some(10), Some(20)),
        ),
        (
            (json!(10), json!(20)),
            [(json!(5), json!(30)), (json!(15), json!(null))],
            (Some(5), Some(30)),
        ),
        (
            none(),
            [(json!(5), json!(30)), (json!(15), json!(null))],
            (Some(5), None),
        ),
        (
            none(),
            [(json!(5), json!(30)), (json!(15), json!(40))],
            (Some(5), Some(40)),
        ),
    ] {
        assert_eq!(bounds(dag.clone(), tasks), expected, "{dag:?}");
    }
}
