use std::time::Duration;

use serde_json::json;

use super::*;

fn read(document: &Value) -> Result<Reading, ConfigErrors> {
    Config::read(document, &|name| {
        (name == "SET").then(|| "value".to_owned())
    })
}

#[test]
fn the_peers_own_file_is_read() {
    let text = include_str!("../../../testdata/manager-config.yaml");
    let document: Value = serde_saphyr::from_str(text).unwrap();
    let reading = read(&document).unwrap();
    assert_eq!(reading.warnings, []);
    let k8s = &reading.config.k8s;
    assert_eq!(k8s.default_env_vars.len(), 6);
    assert_eq!(k8s.default_env_vars["_U_USE_ACTIONS"], "1");
    let co_pilot = &k8s.co_pilot;
    assert_eq!(co_pilot.log_level, 5);
    assert_eq!(co_pilot.storage.kind, "minio");
    assert_eq!(co_pilot.storage.stow_config["region"], "us-east-1");
    let mut others = reading.config.clone();
    others.k8s = Config::default().k8s;
    assert_eq!(others, Config::default());
}

#[test]
fn an_empty_file_is_upstreams_defaults() {
    for document in [
        json!({}),
        json!(null),
        json!({"plugins": null}),
        json!({"plugins": {"k8s": null}}),
    ] {
        let reading = read(&document).unwrap();
        assert_eq!(reading.config, Config::default());
        assert_eq!(reading.warnings, []);
    }
}

#[test]
fn keys_count_whatever_their_case() {
    let document = json!({
        "Executor": {"DefaultK8sServiceAccount": "robot", "unknown": 1},
        "Plugins": {"K8S": {
            "Default-CPUs": 2,
            "create-container-error-grace-period": "1m30s",
            "default-env-vars-from-env": {"A": "SET", "B": "UNSET"},
            "accelerator-device-classes": {"google_tpu": {"device-node-label": "mine"}},
            "accelerator-devices": {"x1": "label"},
        }},
        "Tasks": {"Task-Plugins": {"default-for-task-types": {"mine": "spark"}}},
    });
    let config = read(&document).unwrap().config;
    assert_eq!(config.default_service_account.as_deref(), Some("robot"));
    assert_eq!(config.k8s.default_cpu_request, "2");
    assert_eq!(
        config.k8s.grace.create_container_error,
        Duration::from_secs(90)
    );
    assert_eq!(config.k8s.default_env_vars_from_env["A"], "value");
    assert_eq!(config.k8s.default_env_vars_from_env["B"], "");
    let class = &config.k8s.accelerators.device_classes["GOOGLE_TPU"];
    assert_eq!(class.nodes.device_label, "mine");
    assert_eq!(class.resource_name, "google.com/tpu");
    assert_eq!(config.k8s.accelerators.devices["X1"], "label");
    assert_eq!(config.default_for_task_types["mine"], "spark");
}

#[test]
fn every_section_is_read() {
    let document = json!({"plugins": {
        "spark": {
            "logs": {"user": {"kubernetes-enabled": true, "kubernetes-url": "http://x"}},
            "enable-pod-template": false,
        },
        "ray": {"submissionMode": "SidecarMode", "defaults": {"headNode": {"ipAddress": "1.2.3.4"}}, "nodeIPAddress": "0.0.0.0"},
        "dask": {"logs": {"kubernetes-enabled": false}},
        "kf-operator": {"timeout": "2m"},
        "connector-service": {"webApi": {"caching": {"resyncInterval": "5s", "maxSystemFailures": 9}}, "supportedTaskTypes": ["a"]},
        "logs": {
            "cloudwatch-enabled": true, "cloudwatch-region": "r", "cloudwatch-log-group": "g",
            "stackdriver-enabled": true, "gcp-project": "p", "stackdriver-logresourcename": "n",
            "dynamic-log-links": {"vscode": {"displayName": "Editor", "templateUris": ["u"], "linkType": "ide"}},
        },
    }});
    let config = read(&document).unwrap().config;
    assert!(!config.spark.enable_pod_template);
    let user = config.spark.logs.user.kubernetes.unwrap();
    assert!(user.uris[0].starts_with("http://x/#!/log/"), "{user:?}");
    assert_eq!(config.ray.submission_mode, crate::SubmissionMode::Sidecar);
    assert_eq!(config.ray.head.ip_address, "1.2.3.4");
    assert_eq!(config.ray.worker.ip_address, "0.0.0.0");
    assert_eq!(config.dask.logs.kubernetes, None);
    assert_eq!(config.kubeflow.timeout, Duration::from_mins(2));
    assert_eq!(config.connector.web_api.resync, Duration::from_secs(5));
    assert_eq!(config.connector.web_api.max_system_failures, 9);
    assert_eq!(config.connector.supported_task_types, ["a"]);
    assert!(config.logs.cloudwatch.unwrap().uris[0].contains("region=r#logEventViewer:group=g;"));
    assert!(config.logs.stackdriver.unwrap().uris[0].contains("project=p&"));
    assert_eq!(config.logs.dynamic["vscode"].display_name, "Editor");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let document = json!({"plugins": {
        "k8s": {
            "default-cpu": "1", "default-memory": "much", "inject-finalizer": "maybe",
            "create-container-error-grace-period": "soon", "default-tolerations": [1],
            "co-pilot": {"imagee": "x"}, "default-labels": 1,
        },
        "spark": {"features": [{"nam": "x"}], "logs": 1},
        "ray": {"submissionMode": "Pigeon", "ttlSecondsAfterFinished": 1.5},
        "kf-operator": {"xyzzy": 1},
    }});
    let error = read(&document).unwrap_err();
    let mut lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "plugins.k8s.co-pilot.imagee is unknown; did you mean \"image\"?",
            "plugins.k8s.create-container-error-grace-period: expected a duration as \"1m30s\", found \"soon\"",
            "plugins.k8s.default-cpu is unknown; did you mean \"default-cpus\"?",
            "plugins.k8s.default-labels: expected texts by name, found 1",
            "plugins.k8s.default-memory: expected an amount as \"500m\" or \"2Gi\", found \"much\"",
            "plugins.k8s.default-tolerations: expected a list of objects, found [1]",
            "plugins.k8s.inject-finalizer: expected true or false, found \"maybe\"",
            "plugins.kf-operator.xyzzy is unknown",
            "plugins.ray.submissionMode: expected K8sJobMode, HTTPMode or SidecarMode, found \"Pigeon\"",
            "plugins.ray.ttlSecondsAfterFinished: expected a whole number, found 1.5",
            "plugins.spark.features[0].nam is unknown; did you mean \"name\"?",
            "plugins.spark.logs: expected a section, found 1",
        ]
    );
}

#[test]
fn what_upstream_knows_and_is_done_otherwise_is_a_warning() {
    let document = json!({
        "plugins": {
            "k8s": {"send-object-events": true, "default-pod-template-resync": "1m"},
            "spark": {"pod-template-detection-timeout": "1s"},
            "catalogCache": {"maxCacheAge": "1h"},
            "snowflake": {},
        },
        "tasks": {"task-plugins": {"enabled-plugins": ["container"]}},
        "runs": {"unknown": true},
    });
    let mut warnings: Vec<String> = read(&document)
        .unwrap()
        .warnings
        .into_iter()
        .map(|warning| warning.path)
        .collect();
    warnings.sort();
    assert_eq!(
        warnings,
        [
            "plugins.k8s.default-pod-template-resync",
            "plugins.k8s.send-object-events",
            "plugins.snowflake",
            "plugins.spark.pod-template-detection-timeout",
            "tasks.task-plugins.enabled-plugins",
        ]
    );
}
