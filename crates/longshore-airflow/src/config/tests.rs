use std::collections::BTreeMap;

use serde_json::json;

use super::{executor::*, *};
use crate::token::{Algorithm, TokenRules};

fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    variables.iter().map(owned).collect()
}

fn config(file: &str, variables: &[(&str, &str)]) -> AirflowConfig {
    AirflowConfig::read(file, &environment(variables))
}

fn problems(config: &AirflowConfig) -> Vec<String> {
    config.problems().iter().map(ToString::to_string).collect()
}

fn name(section: &str, key: &str) -> Name {
    Name {
        section: section.to_owned(),
        key: key.to_owned(),
    }
}

#[test]
fn defaults_are_upstreams() {
    let config = config("", &[]);
    let fatal = [
        "CreateContainerConfigError",
        "ErrImagePull",
        "CreateContainerError",
        "ImageInspectError",
        "InvalidImageName",
    ];
    let expected = KubernetesExecutor {
        logs_task_metadata: false,
        running_pod_log_lines: 100,
        pod_template_file: None,
        image: None,
        namespace: "default".to_owned(),
        namespaces: Namespaces::One,
        delete_worker_pods: true,
        delete_worker_pods_on_failure: false,
        fatal_container_state_reasons: fatal.map(str::to_owned).to_vec(),
        creation_concurrency: 1,
        in_cluster: true,
        cluster_context: None,
        config_file: None,
        request_timeout: None,
        delete_options: serde_json::Map::new(),
        verify_ssl: true,
        ssl_ca_cert: None,
        task_publish_max_retries: RetryLimit::Times(0),
        pod_launch_failure_retries: RetryLimit::Times(1),
        launch_failure_excluded_reasons: vec!["Error".to_owned()],
    };
    assert_eq!(KubernetesExecutor::read(&config), Ok(expected));
    let core = CoreSettings::read(&config).unwrap();
    assert_eq!((core.parallelism, core.max_map_length), (32, 1024));
    let scheduler = SchedulerSettings::read(&config).unwrap();
    assert_eq!(scheduler.task_queued_timeout.as_secs(), 600);
    assert_eq!(scheduler.orphaned_tasks_check_interval.as_secs(), 300);
    assert_eq!(scheduler.scheduler_health_check_threshold.as_secs(), 30);
    assert_eq!(scheduler.heartbeat_timeout_detection_interval.as_secs(), 10);
    assert_eq!(scheduler.num_stuck_in_queued_retries, 2);
    let workers = WorkerSettings::read(&config).unwrap();
    assert_eq!(workers.execution_api_retry_wait_max.as_secs(), 90);
    assert_eq!(
        (workers.max_failed_heartbeats, workers.missing_dag_retries),
        (3, 3)
    );
    let tokens = TokenSettings::read(&config).unwrap();
    assert_eq!((tokens.algorithm, tokens.validity.as_secs()), (None, 600));
    assert_eq!(tokens.rules, TokenRules::default());
    assert_eq!(problems(&config), Vec::<String>::new());
}

#[test]
fn every_default_has_its_kind() {
    let config = config("", &[]);
    for key in KEYS {
        let is_valid = match key.kind {
            KeyKind::Boolean => config.boolean(key).is_ok(),
            KeyKind::Integer => config.integer(key).is_ok(),
            KeyKind::Float => config.float(key).is_ok(),
            KeyKind::Object => config.object(key).is_ok(),
            KeyKind::Text | KeyKind::List => true,
        };
        assert!(is_valid, "{key:?}");
        let twins = KEYS
            .iter()
            .filter(|it| (it.section(), it.name) == (key.section(), key.name));
        assert_eq!(twins.count(), 1, "{key:?}");
    }
}

#[test]
fn the_section_is_read_as_upstream_reads_it() {
    let file = r#"
[kubernetes_executor]
namespace = jobs
worker_container_repository = registry/airflow
worker_container_tag = 3.3.2
worker_pod_pending_fatal_container_state_reasons = A, B ,
worker_pods_creation_batch_size = 16
async_pod_creation = true  # at once
pod_creation_max_concurrency = 4
multi_namespace_mode = T
multi_namespace_mode_namespace_list = a, b
kube_client_request_args = {"_request_timeout": [60, 30.5]}
delete_option_kwargs = {"grace_period_seconds": 10, "propagation_policy": "Background"}
task_publish_max_retries = -1
pod_template_file = ${AIRFLOW_HOME}/pod.yaml
"#;
    let config = config(file, &[("AIRFLOW_HOME", "/opt/airflow")]);
    let executor = KubernetesExecutor::read(&config).unwrap();
    assert_eq!(executor.image.as_deref(), Some("registry/airflow:3.3.2"));
    assert_eq!(
        executor.pod_template_file.as_deref(),
        Some("/opt/airflow/pod.yaml")
    );
    assert_eq!(executor.fatal_container_state_reasons, ["A", "B"]);
    assert_eq!(executor.creation_concurrency, 4);
    let listed = Namespaces::Listed(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(executor.namespaces, listed);
    let timeout = executor.request_timeout.unwrap();
    assert_eq!(
        (timeout.connect.as_millis(), timeout.read.as_millis()),
        (60_000, 30_500)
    );
    assert_eq!(
        serde_json::Value::Object(executor.delete_options),
        json!({"gracePeriodSeconds": 10, "propagationPolicy": "Background"})
    );
    let limit = executor.task_publish_max_retries;
    assert!(
        limit.allows(u32::MAX) && !RetryLimit::Times(1).allows(1) && RetryLimit::Times(1).allows(0)
    );
    assert_eq!(problems(&config), Vec::<String>::new());
}

#[test]
fn all_values_that_stop_the_start_are_told_at_once() {
    let file = "\
[kubernetes_executor]
running_pod_log_lines = 0
verify_ssl = yes
delete_option_kwargs = [1]
kube_client_request_args = {\"_request_timeout\": [1, 2, 3]}
pod_launch_failure_retries = -2
";
    let variable = [(
        "AIRFLOW__KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE",
        "many",
    )];
    let invalid = KubernetesExecutor::read(&config(file, &variable)).unwrap_err();
    let mut invalid: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    invalid.sort();
    assert_eq!(
        invalid,
        [
            "airflow.cfg, line 2: [kubernetes_executor] running_pod_log_lines must be 1 or more, but is `0`",
            "airflow.cfg, line 3: [kubernetes_executor] verify_ssl must be True or False, but is `yes`",
            "airflow.cfg, line 4: [kubernetes_executor] delete_option_kwargs must be a JSON object, but is `[1]`",
            "airflow.cfg, line 5: [kubernetes_executor] kube_client_request_args must be an object whose \
             `_request_timeout` is a number of seconds, or a list of two: connect, read, but is \
             `{\"_request_timeout\": [1, 2, 3]}`",
            "airflow.cfg, line 6: [kubernetes_executor] pod_launch_failure_retries must be 0 or more, or -1 for no \
             limit, but is `-2`",
            "variable AIRFLOW__KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE: [kubernetes_executor] \
             worker_pods_creation_batch_size must be 1 or more, but is `many`",
        ]
    );
    let file = "[api_auth]\njwt_algorithm = HS1\n[execution_api]\njwt_audience = ,\n[core]\nparallelism = 0\n";
    let config = config(file, &[]);
    assert_eq!(TokenSettings::read(&config).unwrap_err().len(), 2);
    assert_eq!(CoreSettings::read(&config).unwrap_err().len(), 1);
}

#[test]
fn what_has_no_effect_is_told_with_what_happens_instead() {
    let file = "\
[core]
paralelism = 8
parallelism_cmd = echo 8
hostname_callable = my.name
[kubernetes_executer]
namespace = x
pod_template_file = y
[kubernetes_executor]
client_factory = my.module.make
enable_tcp_keepalive = true
tcp_keep_idle = 60
nonsense
[scheduler]
scheduler_idle_sleep_time = %(other)s
";
    let variables = [
        ("AIRFLOW__ML___KUBERNETES_EXECUTOR__NAMESPACE", "ml"),
        ("AIRFLOW__CORE", "x"),
        ("AIRFLOW__WEBSERVER__PORT", "8080"),
    ];
    let mut found = problems(&config(file, &variables));
    found.sort();
    let expected = [
        "airflow.cfg, line 11: [kubernetes_executor] tcp_keep_idle has no effect; Longshore's client keeps its \
         connections alive by HTTP/2 pings",
        "airflow.cfg, line 12: expected [section] or key = value, found `nonsense`; the line is skipped",
        "airflow.cfg, line 14: [scheduler] scheduler_idle_sleep_time has no effect; Longshore's scheduler does not \
         sleep: a change wakes it at once",
        "airflow.cfg, line 14: [scheduler] scheduler_idle_sleep_time refers to another key by `%(…)s`, which \
         Longshore does not replace; write the value out, and `%%` for a percent sign",
        "airflow.cfg, line 2: Longshore knows no key [core] paralelism, so it has no effect; did you mean `parallelism`?",
        "airflow.cfg, line 3: [core] parallelism cannot be fetched by a command or from a secrets backend, because it \
         is no secret; set the key itself",
        "airflow.cfg, line 4: Longshore knows no key [core] hostname_callable, so it has no effect",
        "airflow.cfg, line 6: Longshore reads nothing of section [kubernetes_executer], so it has no effect; did you \
         mean `kubernetes_executor`?",
        "airflow.cfg, line 9: [kubernetes_executor] client_factory has no effect; it names Python code, and Longshore \
         has a client of its own; configure that by kubeconfig",
        "variable AIRFLOW__CORE: expected AIRFLOW__SECTION__KEY, so it has no effect",
        "variable AIRFLOW__ML___KUBERNETES_EXECUTOR__NAMESPACE: a setting of team `ml` has no effect; all DAGs share \
         one configuration",
        "variable AIRFLOW__WEBSERVER__PORT: Longshore reads nothing of section [webserver], so it has no effect",
    ];
    // A key that is set to its default is not told of.
    assert_eq!(found, expected);
}

#[test]
fn a_variable_wins_over_the_file_and_a_key_over_what_is_fetched() {
    let key = &keys::FERNET_KEY;
    let fernet = name("core", "fernet_key");
    let in_file = "[core]\nfernet_key = file\nfernet_key_cmd = cmd\n";
    let (variable, command, secret) = (
        ("AIRFLOW__CORE__FERNET_KEY", "variable"),
        ("AIRFLOW__CORE__FERNET_KEY_CMD", "print"),
        ("AIRFLOW__CORE__FERNET_KEY_SECRET", "path"),
    );
    let print = Some(Fetch::Command("print".to_owned()));
    let path = Some(Fetch::Secret("path".to_owned()));
    let cmd = Some(Fetch::Command("cmd".to_owned()));
    for (file, variables, text, fetch) in [
        ("", vec![], "", None),
        (in_file, vec![], "file", None),
        (
            "[core]\nfernet_key_secret = s\nfernet_key_cmd = cmd\n",
            vec![],
            "",
            cmd,
        ),
        (in_file, vec![command], "", print.clone()),
        (in_file, vec![secret], "", path),
        (in_file, vec![command, secret], "", print),
        (in_file, vec![command, variable, secret], "variable", None),
    ] {
        let mut config = config(file, &variables);
        assert_eq!(config.text(key).0, text, "{file:?} {variables:?}");
        let pending: Vec<Pending> = config.pending().cloned().collect();
        let found = pending.first().map(|it| it.fetch.clone());
        assert_eq!(
            (pending.len() <= 1, found.clone()),
            (true, fetch),
            "{variables:?}"
        );
        config.resolve(&fernet, "got\n");
        let resolved = if found.is_some() { "got" } else { text };
        assert_eq!(config.text(key).0, resolved);
        assert_eq!(config.pending().count(), 0);
    }
}

#[test]
fn values_are_expanded_as_upstream_expands_them() {
    let variables = [("HOME", "/root"), ("A", "x"), ("B_1", "y")];
    for (value, expected) in [
        ("~/pod.yaml", "/root/pod.yaml"),
        ("~", "/root"),
        ("~user/x", "~user/x"),
        ("a~", "a~"),
        ("$A/${B_1}-$B_1.yaml", "x/y-y.yaml"),
        ("$NOT/${NOT}/$", "$NOT/${NOT}/$"),
        ("100%%", "100%"),
    ] {
        let file = format!("[kubernetes_executor]\npod_template_file = {value}\n");
        let config = config(&file, &variables);
        assert_eq!(config.text(&keys::POD_TEMPLATE_FILE).0, expected, "{value}");
    }
    // A variable has no percent signs to double.
    let set = [("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", "100%%")];
    assert_eq!(config("", &set).text(&keys::POD_TEMPLATE_FILE).0, "100%%");
}

#[test]
fn secrets_are_not_shown() {
    let file =
        "[core]\nfernet_key = hunter2\n[api_auth]\njwt_secret = hunter2\njwt_algorithm = RS256\n";
    let config = config(file, &[]);
    let (core, tokens) = (
        CoreSettings::read(&config).unwrap(),
        TokenSettings::read(&config).unwrap(),
    );
    assert_eq!(
        (core.fernet_key.as_str(), tokens.secret.as_str()),
        ("hunter2", "hunter2")
    );
    assert_eq!(tokens.algorithm, Some(Algorithm::Rs256));
    let invalid = config.invalid(&keys::JWT_SECRET, "longer").to_string();
    for shown in [format!("{config:?} {core:?} {tokens:?}"), invalid] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn the_execution_api_is_below_the_address_of_the_server() {
    let url = |file: &str| {
        CoreSettings::read(&config(file, &[]))
            .unwrap()
            .execution_api_server_url
    };
    let api = "[api]\nbase_url = https://a.example/air/\n";
    let below = "https://a.example/air/execution/";
    let set = "[core]\nexecution_api_server_url = http://b/execution/\n";
    assert_eq!(url(""), None);
    assert_eq!(url(api).as_deref(), Some(below));
    assert_eq!(
        url(&format!("{api}{set}")).as_deref(),
        Some("http://b/execution/")
    );
}

#[test]
fn arguments_of_the_client_are_checked_and_told_of() {
    let read = |line: &str| {
        let config = config(&format!("[kubernetes_executor]\n{line}\n"), &[]);
        let invalid = KubernetesExecutor::read(&config).err().unwrap_or_default();
        (invalid.len(), config.problems().len())
    };
    for (line, expected) in [
        (
            "kube_client_request_args = {\"_request_timeout\": 5}",
            (0, 0),
        ),
        (
            "kube_client_request_args = {\"_preload_content\": false}",
            (0, 1),
        ),
        (
            "kube_client_request_args = {\"_request_timeout\": \"5\"}",
            (1, 0),
        ),
        ("kube_client_request_args = 5", (1, 0)),
        ("api_client_retry_configuration = {\"total\": 3}", (0, 1)),
        ("api_client_retry_configuration = 3", (1, 1)),
    ] {
        assert_eq!(read(line), expected, "{line}");
    }
}
