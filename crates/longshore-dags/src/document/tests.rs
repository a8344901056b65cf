use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{TriggerRule, WeightRule, Workspace};

const SAMPLES: [(&str, &str); 4] = [
    (
        "minimal.yaml",
        include_str!("../../testdata/dags/minimal.yaml"),
    ),
    ("etl.yaml", include_str!("../../testdata/dags/etl.yaml")),
    (
        "anchors.yaml",
        include_str!("../../testdata/dags/anchors.yaml"),
    ),
    (
        "broken.yaml",
        include_str!("../../testdata/dags/broken.yaml"),
    ),
];

fn read_file(path: &str) -> io::Result<Vec<u8>> {
    match path {
        "etl.csv" => Ok(include_bytes!("../../testdata/dags/etl.csv").to_vec()),
        "half.bin" | "other/half2.bin" => Ok(vec![0; 600 * 1024]),
        "locked" => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "permission denied",
        )),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn validated(file: &str, text: &str) -> Result<Dag, Problems> {
    parse(file, text)?.validate(&mut read_file)
}

fn sample(name: &str) -> Dag {
    let (_, text) = SAMPLES.iter().find(|(file, _)| *file == name).unwrap();
    validated(name, text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The problems of a text, each as `line:column code message (help)`.
fn problems(text: &str) -> Vec<String> {
    let problems = validated("dag.yaml", text).expect_err("it has problems");
    let line = |p: &Problem| {
        format!(
            "{}:{} {} {} ({})",
            p.line, p.column, p.code, p.message, p.help
        )
    };
    problems.iter().map(line).collect()
}

/// The only problem of a task with these fields.
fn problem_of_task(fields: &str) -> String {
    let text = format!("dag_id: d\ntasks:\n  a: {{image: i, {fields}}}\n");
    let found = problems(&text);
    assert_eq!(found.len(), 1, "of {fields}: {found:#?}");
    found[0].split_once(' ').unwrap().1.to_owned()
}

#[test]
fn everything_that_is_written_is_read() {
    let dag = sample("etl.yaml");
    assert_eq!(dag.dag_id, "etl");
    assert_eq!(dag.schedule.as_deref(), Some("0 6 * * *"));
    assert_eq!(
        dag.start_date,
        Some("2026-01-01T00:00:00Z".parse().unwrap())
    );
    assert!(dag.catchup);
    assert_eq!((dag.max_active_runs, dag.max_active_tasks), (1, 4));
    assert_eq!(dag.dagrun_timeout, Some(Duration::from_secs(7200)));
    assert_eq!(dag.tags, ["sample", "etl"]);
    assert_eq!(
        dag.params,
        [("city", json!("Lyon")), ("limit", json!(100))]
            .map(|(k, v)| (k.to_owned(), v))
            .into()
    );
    assert_eq!(dag.files.keys().collect::<Vec<_>>(), ["etl.csv"]);
    let workspace = Workspace {
        size: "5Gi".to_owned(),
        mount_path: "/data".to_owned(),
        storage_class_name: Some("fast".to_owned()),
        access_modes: vec!["ReadWriteMany".to_owned()],
    };
    assert_eq!(dag.workspace, Some(workspace));

    let extract = &dag.tasks["extract"];
    assert_eq!(extract.image.as_deref(), Some("python:3.13"));
    assert_eq!(
        (extract.retries, extract.retry_delay),
        (2, Duration::from_secs(30))
    );
    assert_eq!(
        extract.execution_timeout,
        Some(Duration::from_millis(90_500))
    );
    // A task's own `env` replaces the default one, as every key does; numbers stay as written.
    let env = json!([
        {"name": "CITY", "value": "{{ params.city }}"},
        {"name": "LIMIT", "value": "{{ params.limit }}"},
        {"name": "VERSION", "value": "1.10"},
        {"name": "DEBUG", "value": "false"},
    ]);
    assert_eq!(json!(extract.env), env);
    assert_eq!(
        extract.downstream,
        ["count-lines", "count.rows"].map(str::to_owned).into()
    );

    let rows = &dag.tasks["count.rows"];
    assert_eq!(json!(rows.env), json!([{"name": "TZ", "value": "UTC"}]));
    assert!((rows.retry_exponential_backoff - 2.0).abs() < f64::EPSILON);
    assert_eq!(rows.max_retry_delay, Some(Duration::from_secs(600)));
    assert_eq!((rows.pool.as_str(), rows.pool_slots), ("small", 2));
    assert_eq!(rows.upstream, ["extract".to_owned()].into());

    let lines = &dag.tasks["count-lines"];
    assert_eq!((lines.retries, lines.priority_weight), (0, 10));
    assert_eq!(lines.weight_rule, WeightRule::Absolute);
    assert_eq!(lines.max_active_tis_per_dag, Some(1));
    assert_eq!(lines.env[0]["valueFrom"]["secretKeyRef"]["name"], "db");

    let compare = &dag.tasks["compare"];
    assert_eq!(compare.trigger_rule, TriggerRule::NoneFailedMinOneSuccess);
    let over = compare.pod_override.as_ref().unwrap();
    assert_eq!(
        over["spec"]["containers"][0]["futureField"],
        json!({"kept": true})
    );
}

#[test]
fn what_is_not_written_has_airflows_defaults() {
    let dag = sample("minimal.yaml");
    assert_eq!((dag.max_active_runs, dag.max_active_tasks), (16, 16));
    assert_eq!(
        (dag.catchup, dag.workspace, dag.schedule),
        (false, None, None)
    );
    let task = &dag.tasks["hello"];
    assert_eq!(task.command, ["echo", "hello"]);
    assert_eq!(
        (task.retries, task.retry_delay),
        (0, Duration::from_secs(300))
    );
    assert_eq!((task.pool.as_str(), task.pool_slots), ("default_pool", 1));
    assert_eq!(
        (task.priority_weight, task.weight_rule),
        (1, WeightRule::Downstream)
    );
    assert_eq!(task.trigger_rule, TriggerRule::AllSuccess);
    assert_eq!(
        (&task.image, &task.pod_override, task.execution_timeout),
        (&None, &None, None)
    );
}

#[test]
fn anchors_and_merge_keys_are_yamls() {
    let dag = sample("anchors.yaml");
    let workspace = dag.workspace.as_ref().unwrap();
    assert_eq!(
        (workspace.size.as_str(), workspace.mount_path.as_str()),
        ("1Gi", "/workspace")
    );
    assert_eq!(dag.tasks["second"].args, dag.tasks["first"].args);
    assert_eq!(
        (dag.tasks["first"].retries, dag.tasks["second"].retries),
        (1, 0)
    );
    assert_eq!(dag.tasks["third"].command, ["date"]);
}

#[test]
fn all_problems_are_reported_at_once() {
    let (file, text) = SAMPLES[3];
    let problems = validated(file, text).unwrap_err();
    insta::assert_snapshot!(problems.to_string());
    let offsets: Vec<usize> = problems.iter().map(|p| p.offset).collect();
    assert!(offsets.is_sorted());
}

#[test]
fn a_text_that_is_no_yaml_is_one_problem_with_its_place() {
    for (text, place) in [
        ("dag_id: [", "1:"),
        ("dag_id: a\n\ttasks: {}", "1:"),
        ("a: *nobody", "1:"),
        ("a: &a [*a]", "1:"),
        ("tasks: {a: \"\u{1}\"}", "1:"),
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "of {text:?}: {found:#?}");
        assert!(found[0].starts_with(place), "of {text:?}: {}", found[0]);
        assert!(
            found[0].contains("LS1301 not readable as YAML: "),
            "{}",
            found[0]
        );
    }
    for text in ["", "# nothing\n", "null", "[]", "text", "3"] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "of {text:?}: {found:#?}");
        assert!(
            found[0].contains("LS1303 the DAG must be a mapping"),
            "{}",
            found[0]
        );
    }
}

#[test]
fn of_a_text_that_is_no_mapping_nothing_is_shown() {
    for text in ["postgres://me:hunter2@db/x", "- hunter2", "\"hunter2\""] {
        let found = problems(text).join("\n");
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn ids_that_lead_out_of_a_folder_are_refused() {
    for id in [".", "..", "a/b", "../x", "/x"] {
        let why = if id.contains('/') {
            "contains `/`"
        } else {
            "is the path of a folder"
        };
        let found = problems(&format!("dag_id: {id}\ntasks: {{{id}: {{image: i}}}}\n"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains(&format!("dag_id `{id}` {why}")),
            "{found:?}"
        );
        assert!(found[1].contains(&format!("`{id}` {why}")), "{found:?}");
    }
}

#[test]
fn documents_beyond_the_limits_are_refused() {
    let long = format!("dag_id: d # {}", "x".repeat(MAX_DOCUMENT_BYTES));
    assert!(problems(&long)[0].contains("LS1301 a DAG file has at most 3145728 bytes"));
    let deep = format!("a: {}1{}", "[".repeat(100), "]".repeat(100));
    assert_eq!(
        problems(&deep),
        [
            "1:67 LS1301 a DAG file has at most 64 levels (a list or a mapping is nested in too many others: flatten it)"
        ]
    );
    let two = "dag_id: a\ntasks: {}\n---\ndag_id: b\n";
    assert_eq!(
        problems(two),
        [
            "3:1 LS1301 a DAG file has one YAML document, this one has several (put each DAG into a file of its own, without `---` between them)"
        ]
    );
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..8 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{aliases}]\n");
    }
    assert!(problems(&bomb)[0].contains("LS1301"));
}

/// Fields of a task, and the problem that they are.
const MISTAKES: [(&str, &str); 22] = [
    (
        "retires: 1",
        "LS1302 task `a` has no field `retires` (did you mean `retries`?)",
    ),
    (
        "needs: b",
        "LS1302 task `a` has no field `needs` (write `depends_on`)",
    ),
    (
        "retries: two",
        "LS1303 `retries` of task `a` must be a whole number, but is the text `two` (write a number without quotes)",
    ),
    (
        "retries: 1.5",
        "LS1303 `retries` of task `a` must be a whole number, but is the number `1.5` (write a number without fraction)",
    ),
    (
        "retries: -1",
        "LS1309 `retries` of task `a` must be at least 0, but is -1 (write a number from 0 on)",
    ),
    (
        "retries: 99999999999999999999",
        "LS1303 `retries` of task `a` must be a whole number, but is the number `1e+20` (write a number without fraction)",
    ),
    (
        "priority_weight: 3000000000",
        "LS1309 `priority_weight` of task `a` must be at most 2147483647, but is 3000000000 (write a number up to 2147483647)",
    ),
    (
        "pool_slots: 0",
        "LS1309 `pool_slots` of task `a` must be at least 1, but is 0 (write a number from 1 on)",
    ),
    (
        "pool: 1.10",
        "LS1303 `pool` of task `a` must be a text, but is the number `1.1` (put it in quotes: `\"1.10\"`)",
    ),
    (
        "pool: ''",
        "LS1316 `pool` of task `a` is empty (write a name, or remove the field)",
    ),
    (
        "execution_timeout: 0",
        "LS1309 `execution_timeout` of task `a` must be longer than zero (remove it for no limit)",
    ),
    (
        "trigger_rule: all_sucess",
        "LS1308 `trigger_rule` of task `a` cannot be `all_sucess` (did you mean `all_success`?)",
    ),
    (
        "weight_rule: up",
        "LS1308 `weight_rule` of task `a` cannot be `up` (words here: `downstream`, `upstream`, `absolute`)",
    ),
    (
        "retry_exponential_backoff: -2",
        "LS1309 `retry_exponential_backoff` of task `a` must not be negative, but is -2 (write the multiplier of the delay by try, as `2`; `0` is none)",
    ),
    (
        "depends_on: [b]",
        "LS1310 task `a` depends on `b`, which is no task of this DAG (tasks here: `a`)",
    ),
    (
        "depends_on: a",
        "LS1311 tasks wait for each other: a -> a (remove one of these from the `depends_on` of the next)",
    ),
    (
        "env: {A: null}",
        "LS1303 `A` in `env` of task `a` must be a text or a number, but is nothing (write `\"\"` for an empty text)",
    ),
    (
        "env: [{value: x}]",
        "LS1304 an item in `env` of task `a` has no `name` (write `- name: NAME` and `value` or `valueFrom`)",
    ),
    (
        "executor_config: {pod_override: 1}",
        "LS1312 `pod_override` in `executor_config` of task `a` must be a pod, but is the number `1` (write a pod with `metadata` and `spec`, as for `kubectl apply`)",
    ),
    (
        "args: ['{{ run_di }}']",
        "LS1315 template variable `run_di` does not exist (task `a`) (did you mean `run_id`?)",
    ),
    (
        "args: ['{{ params.x }}']",
        "LS1315 parameter `x` is not declared (declare it: `params: {x: …}` at the top of the file)",
    ),
    (
        "args: ['{{ xcom.a.x }}']",
        "LS1315 task `a` reads the result of `a`, but does not wait for it (add `a` to `depends_on` of task `a`)",
    ),
];

#[test]
fn every_mistake_names_the_thing_and_the_remedy() {
    for (fields, expected) in MISTAKES {
        assert_eq!(problem_of_task(fields), expected, "of {fields}");
    }
}

/// A walk over all that comes before each task would take a minute here.
#[test]
fn a_chain_of_tasks_that_read_the_result_of_the_one_before_takes_no_time() {
    let tasks: String = (1..10_000)
        .map(|n| {
            let before = n - 1;
            format!("  t{n}: {{depends_on: [t{before}], command: ['{{{{ xcom.t{before} }}}}']}}\n")
        })
        .collect();
    let text = format!("dag_id: d\ntasks:\n  t0: {{command: [a]}}\n{tasks}");
    assert_eq!(validated("d.yaml", &text).unwrap().tasks.len(), 10_000);
}

#[test]
fn problems_know_the_bytes_of_the_text() {
    let text = "\u{feff}dag_id: d\ndescription: ü\ntasks:\n  é: {command: [ü, \"ü {{ nobody }}\"]}\n  b: {command: [|\n";
    let text = text.trim_end_matches("\n  b: {command: [|\n").to_owned() + "\n";
    let problems = validated("d.yaml", &text).unwrap_err();
    let problem = problems.iter().next().unwrap();
    assert_eq!(problems.len(), 1, "{problems}");
    assert_eq!(
        &text[problem.offset..problem.offset + problem.len],
        "{{ nobody }}"
    );
    assert_eq!((problem.line, problem.column), (4, 23));

    let text = "dag_id: d\ntasks:\n  a:\n    command:\n      - |\n        one\n        {{ nobody }} {{ nobody }}\n";
    let problems = validated("d.yaml", text).unwrap_err();
    let problem = problems.iter().next().unwrap();
    assert_eq!(
        &text[problem.offset..problem.offset + problem.len],
        "{{ nobody }}"
    );
    assert_eq!((problem.line, problem.column), (7, 9));
}

#[test]
fn keys_that_occur_twice_are_all_reported() {
    let text = "dag_id: d\ndag_id: e\ntasks:\n  1: {command: [a]}\n  0x1: {command: [b]}\n  b: {command: [c], command: [d]}\n";
    let found = problems(text);
    assert_eq!(
        found,
        [
            "2:1 LS1305 key `dag_id` occurs twice here (remove one of the two, or give it another name)",
            "6:21 LS1305 key `command` occurs twice here (remove one of the two, or give it another name)",
        ]
    );
    // Keys that are equal as numbers: other tools that read the YAML see one key twice.
    let text = "dag_id: d\ntasks:\n  1: {command: [a]}\n  0x1: {command: [b]}\n";
    assert!(
        problems(text)[0].starts_with("4:3 LS1305"),
        "{:?}",
        problems(text)
    );
}

#[test]
fn files_travel_within_their_limits() {
    let with = |files: &str| format!("dag_id: d\nfiles: {files}\ntasks: {{a: {{image: i}}}}\n");
    let found = |files: &str| problems(&with(files)).join("\n");
    assert!(validated("d.yaml", &with("[half.bin]")).is_ok());
    for (files, expected) in [
        ("[nobody.csv]", "LS1313 file `nobody.csv` does not exist"),
        (
            "[locked]",
            "LS1313 file `locked` cannot be read: permission denied",
        ),
        (
            "[/etc/passwd]",
            "LS1313 file `/etc/passwd` is an absolute path",
        ),
        ("[a/../../b]", "LS1313 file `a/../../b` leaves the folder"),
        (
            "[half.bin, ./half.bin]",
            "LS1313 two files are called `half.bin`",
        ),
        (
            "[half.bin, other/half2.bin]",
            "LS1313 `files` of the DAG are larger than the 1048576 bytes that can travel with a run",
        ),
        (
            "etl.csv",
            "LS1303 `files` of the DAG must be a list, but is the text `etl.csv`",
        ),
    ] {
        assert!(
            found(files).contains(expected),
            "of {files}: {}",
            found(files)
        );
    }
}

#[test]
fn the_canonical_form_reads_back() {
    for name in ["minimal.yaml", "etl.yaml", "anchors.yaml"] {
        let dag = sample(name);
        let text = dag.to_json().to_string();
        assert_eq!(Dag::from_text(&text).unwrap(), dag);
    }
    insta::assert_json_snapshot!(sample("minimal.yaml").to_json());
}

#[test]
fn a_canonical_form_with_a_broken_graph_is_refused() {
    let good = sample("etl.yaml").to_json();
    for (path, value, expected) in [
        (
            "/tasks/extract/upstream",
            json!(["nobody"]),
            "waits for `nobody`",
        ),
        (
            "/tasks/extract/upstream",
            json!(["compare"]),
            "wait for each other: compare -> extract",
        ),
        (
            "/tasks/extract/task_id",
            json!("other"),
            "under the key `extract`",
        ),
        (
            "/tasks/extract/retries",
            json!("x"),
            "does not have the form",
        ),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(path).unwrap() = value;
        let error = Dag::from_text(&bad.to_string()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn codes_are_unique() {
    let codes: BTreeMap<&str, Code> = Code::ALL.map(|code| (code.as_str(), code)).into();
    assert_eq!(codes.len(), Code::ALL.len());
}

/// Neither parsing nor validation may panic, and what they accept must survive its canonical form.
fn check_any(text: &str) {
    match validated("any.yaml", text) {
        Ok(dag) => {
            let stored = dag.to_json().to_string();
            let read = Dag::from_text(&stored).unwrap();
            assert_eq!(&read, &dag);
        }
        Err(problems) => {
            assert!(problems.len() > 0);
            for problem in problems {
                assert!(
                    text.get(problem.offset..problem.offset + problem.len)
                        .is_some(),
                    "{problem:?}"
                );
                assert!(!problem.message.is_empty() && !problem.help.is_empty());
                let has_escape = problem.to_string().contains('\u{1b}');
                assert!(!has_escape);
            }
        }
    }
}

fn piece() -> impl Strategy<Value = String> {
    let words = "(dag_id|tasks|command|args|env|depends_on|default_args|retries|params|files|workspace|executor_config|pod_override|plugin|custom|a|b|1|true|~|PT5M|\\{\\{ xcom\\.a\\.b \\}\\}|ü|&x|\\*x|<<|etl\\.csv|\\|)";
    let marks = "(: |\n|\n  |\n    |- |\\[|\\]|, |\\{|\\}|\"|'|#| )";
    prop_oneof![
        words.prop_map(|w| w),
        marks.prop_map(|m| m),
        any::<char>().prop_map(String::from)
    ]
}

proptest! {
    #[test]
    fn no_text_is_trouble(pieces in prop::collection::vec(piece(), 0..60)) {
        check_any(&pieces.concat());
    }

    #[test]
    fn no_change_of_a_sample_is_trouble(
        sample in prop::sample::select(SAMPLES.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, piece()), 1..4),
    ) {
        let mut chars: Vec<char> = sample.1.chars().collect();
        for (at, n_removed, inserted) in changes {
            let at = at.index(chars.len());
            let end = (at + n_removed).min(chars.len());
            chars.splice(at..end, inserted.chars());
        }
        check_any(&chars.into_iter().collect::<String>());
    }

    #[test]
    fn numbers_read_back_as_they_were(number in 0.0..1e6_f64) {
        let text = format!("dag_id: d\nparams: {{x: {number:?}}}\ntasks:\n  a: {{image: i, retry_exponential_backoff: {number:?}}}\n");
        prop_assert!(validated("d.yaml", &text).is_ok());
        check_any(&text);
    }

    #[test]
    fn no_value_in_a_field_is_trouble(
        field in prop::sample::select(vec!["retries", "command", "env", "depends_on", "retry_delay",
            "trigger_rule", "executor_config", "plugin", "image", "retry_exponential_backoff", "pool"]),
        value in prop::sample::select(vec!["1", "-1", "1.5", "1e400", ".nan", ".inf", "''", "x", "[x, 1, true]", "{x: 1}",
            "[{name: x, value: 1.10}]", "{pod_override: {spec: {containers: [{a: 1}]}}}", "5m", "all_done", "null", "!!str 1",
            "!!int '3'", "!foo x", "!!binary aGk=", "2", "0x10", "1_000", "~", "2026-01-01"]),
    ) {
        check_any(&format!("dag_id: d\ntasks:\n  x: {{command: [a]}}\n  y: {{command: [b], {field}: {value}}}\n"));
    }
}
