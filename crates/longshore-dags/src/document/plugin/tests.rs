//! What can be written under `plugin`, and what is said of slips.

use serde_json::json;

use crate::{document, model::Dag};

fn read(text: &str) -> Result<Dag, document::Problems> {
    let document = document::parse("dag.yaml", text)?;
    document.validate(&mut |_| unreachable!())
}

/// The problems of a DAG of two tasks, the second with these fields.
fn problems(fields: &str) -> Vec<String> {
    let text = format!("dag_id: d\ntasks:\n  b: {{command: [x]}}\n  a: {{{fields}}}\n");
    let Err(problems) = read(&text) else {
        return Vec::new();
    };
    let line = |p: &document::Problem| {
        format!(
            "{}:{} {} {} ({})",
            p.line, p.column, p.code, p.message, p.help
        )
    };
    problems.iter().map(line).collect()
}

#[test]
fn a_word_or_all_that_a_template_has_is_read() {
    let text = "
dag_id: d
default_args: {executor_config: {pod_override: {spec: {nodeName: n}}}}
tasks:
  word: {plugin: ray, image: i}
  all:
    plugin:
      type: spark
      config: {a: 1, b: 'yes'}
      custom: {n: [1, {deep: true}]}
      resources: {requests: {cpu: 0.5, memory: 64Mi}, limits: {ephemeral-storage: 1Gi}}
      retries: 2
      interruptible: false
  mine: {plugin: {type: my_connector, custom: {}}}
  pod: {command: [x]}
";
    let dag = read(text).unwrap();
    let word = dag.tasks["word"].plugin.as_ref().unwrap();
    assert_eq!((&*word.task_type, word.retries), ("ray", 0));
    let all = dag.tasks["all"].plugin.as_ref().unwrap();
    assert_eq!((&*all.config["a"], &*all.config["b"]), ("1", "yes"));
    assert_eq!(all.custom, Some(json!({"n": [1, {"deep": true}]})));
    assert_eq!(all.requests["cpu"], "0.5");
    assert_eq!(all.limits["ephemeral-storage"], "1Gi");
    assert_eq!((all.retries, all.interruptible), (2, Some(false)));
    // What all pods of ours are to have means nothing to a plugin.
    assert_eq!(dag.tasks["word"].pod_override, None);
    assert!(dag.tasks["pod"].pod_override.is_some());
    assert_eq!(Dag::from_text(&dag.to_json().to_string()).unwrap(), dag);
}

#[test]
fn slips_are_found_where_they_are_with_what_to_write() {
    for (fields, expected) in [
        (
            "image: i, plugin: sprak",
            "4:25 LS1308 `plugin` of task `a` cannot be `sprak` (did you mean `spark`?)",
        ),
        (
            "image: i, plugin: ''",
            "LS1316 `plugin` of task `a` must have 1 to 63 characters, but has 0",
        ),
        (
            "image: i, plugin: [ray]",
            "LS1303 `plugin` of task `a` must be a text or a mapping, but is a list",
        ),
        (
            "image: i, plugin: {config: {a: b}}",
            "LS1304 `plugin` of task `a` has no `type` (write which plugin it is",
        ),
        (
            "image: i, plugin: {type: ray, confg: {}}",
            "(did you mean `config`?)",
        ),
        (
            "plugin: {type: ray, image: x, custom: {}}",
            "(write it at the task, beside `plugin`)",
        ),
        (
            "image: i, resources: {requests: {cpu: 1}}",
            "(write it under `plugin`, or in the container of",
        ),
        (
            "image: i, plugin: {type: ray, resources: {requests: {cpus: 1}}}",
            "(did you mean `cpu`?)",
        ),
        (
            "image: i, plugin: {type: ray, resources: {limits: {cpu: much}}}",
            "must be an amount, but is `much` (write it as `500m`, `2` or `64Mi`)",
        ),
        ("image: i, plugin: {type: ray, retries: -1}", "LS1309"),
        (
            "image: i, plugin: {type: ray, interruptible: maybe}",
            "LS1303",
        ),
        ("image: i, plugin: {type: ray, custom: 1}", "LS1303"),
        (
            "image: i, plugin: ray, executor_config: {pod_override: {spec: {}}}",
            "LS1316 task `a` has both `plugin` and `executor_config`",
        ),
        (
            "image: i, plugin: ray, env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]",
            "LS1316 `env` of task `a` has a variable without a plain value",
        ),
        (
            "plugin: {type: ray, custom: {a: ['{{ run_di }}']}}",
            "LS1315 template variable `run_di` does not exist",
        ),
        (
            "plugin: {type: ray, config: {a: '{{ params.x }}'}}",
            "LS1315 parameter `x` is not declared",
        ),
        (
            "plugin: spark",
            "LS1304 task `a` says nothing to run (write `image` and `command`, or what its plugin",
        ),
        ("plugin: {type: ray}", "LS1304 task `a` says nothing to run"),
    ] {
        let found = problems(fields);
        assert_eq!(found.len(), 1, "of {fields}: {found:#?}");
        assert!(found[0].contains(expected), "of {fields}: {found:#?}");
    }
}

#[test]
fn a_task_with_a_plugin_leaves_no_result() {
    let text = "
dag_id: d
tasks:
  a: {plugin: ray, image: i}
  b: {command: ['{{ xcom.a.n }}'], depends_on: a}
";
    let problems = read(text).unwrap_err().to_string();
    let expected = "task `b` reads the result of `a`, which has a plugin and leaves none";
    assert!(problems.contains(expected), "{problems}");
}
