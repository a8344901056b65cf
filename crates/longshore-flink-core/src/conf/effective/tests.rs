//! Effective configurations, step by step.

use serde_json::json;

use super::*;

const NAME: ClusterName<'static> = ClusterName {
    namespace: "ns",
    id: "app",
};

fn spec(fields: Value) -> FlinkDeploymentSpec {
    let base = json!({"flinkVersion": "v1_20"});
    let merged = template::merge(Some(&base), Some(&fields), ArrayMerge::ByIndex).unwrap();
    serde_json::from_value(merged).unwrap()
}

fn made(fields: Value) -> Result<Effective, EffectiveError> {
    deployment(
        FlinkConfig::new(),
        NAME,
        &spec(fields),
        &LogFiles::default(),
    )
}

fn config_of(fields: Value) -> FlinkConfig {
    made(fields).unwrap().config
}

fn pairs(config: &FlinkConfig) -> Vec<(&str, &str)> {
    config.iter().collect()
}

#[test]
fn an_empty_session_has_only_what_every_cluster_has() {
    assert_eq!(
        pairs(&config_of(json!({}))),
        [
            ("$internal.flink.version", "v1_20"),
            ("execution.target", "kubernetes-session"),
            ("kubernetes.cluster-id", "app"),
            ("kubernetes.namespace", "ns"),
            ("kubernetes.rest-service.exposed.type", "ClusterIP"),
            ("web.cancel.enable", "false"),
        ]
    );
}

#[test]
fn an_application_has_its_job() {
    let found = config_of(json!({
        "image": "i",
        "imagePullPolicy": "Always",
        "serviceAccount": "sa",
        "flinkConfiguration": {
            "web": {"cancel.enable": true},
            "high-availability.type": "kubernetes",
            "taskmanager.numberOfTaskSlots": 2,
        },
        "job": {
            "jarURI": "local:///a;b.jar",
            "parallelism": 3,
            "entryClass": "x.Y",
            "args": ["--a", "b;c"],
            "upgradeMode": "last-state",
            "allowNonRestoredState": false,
        },
    }));
    assert_eq!(
        pairs(&found),
        [
            ("$internal.application.main", "x.Y"),
            ("$internal.application.program-args", "--a;'b;c'"),
            ("$internal.flink.version", "v1_20"),
            (
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION"
            ),
            ("execution.checkpointing.interval", "5 min"),
            ("execution.savepoint.ignore-unclaimed-state", "false"),
            ("execution.shutdown-on-application-finish", "false"),
            ("execution.submit-failed-job-on-application-error", "true"),
            ("execution.target", "kubernetes-application"),
            ("high-availability.cluster-id", "app"),
            ("high-availability.type", "kubernetes"),
            ("kubernetes.cluster-id", "app"),
            ("kubernetes.container.image.pull-policy", "Always"),
            ("kubernetes.container.image.ref", "i"),
            ("kubernetes.namespace", "ns"),
            ("kubernetes.rest-service.exposed.type", "ClusterIP"),
            ("kubernetes.service-account", "sa"),
            ("parallelism.default", "3"),
            ("pipeline.jars", "'local:///a;b.jar'"),
            ("pipeline.name", "app"),
            ("taskmanager.numberOfTaskSlots", "2"),
            ("web.cancel.enable", "true"),
        ]
    );
}

#[test]
fn the_spec_wins_over_what_it_inherits_and_defaults_do_not_win_over_the_user() {
    let defaults = [
        ("web.cancel.enable", "true"),
        ("parallelism.default", "9"),
        ("execution.shutdown-on-application-finish", "true"),
        ("execution.submit-failed-job-on-application-error", "false"),
        ("pipeline.name", "own"),
        ("execution.checkpointing.interval", "1 min"),
        ("kubernetes.cluster-id", "other"),
        ("kubernetes.container.image.ref", "default"),
        ("a", "default"),
    ];
    let spec = spec(json!({
        "image": " ",
        "flinkConfiguration": {"a": "spec"},
        "job": {"parallelism": 1, "upgradeMode": "last-state"},
    }));
    let logs = LogFiles::default();
    let found = deployment(defaults.into_iter().collect(), NAME, &spec, &logs).unwrap();
    for (key, expected) in [
        ("web.cancel.enable", "true"),
        ("parallelism.default", "1"),
        ("execution.shutdown-on-application-finish", "false"),
        ("execution.submit-failed-job-on-application-error", "false"),
        ("pipeline.name", "own"),
        ("execution.checkpointing.interval", "1 min"),
        ("kubernetes.cluster-id", "app"),
        ("kubernetes.container.image.ref", "default"),
        ("a", "spec"),
    ] {
        assert_eq!(found.config.text(key), Some(expected), "{key}");
    }
}

#[test]
fn memory_and_cores_come_from_resources_or_resource() {
    for (job_manager, memory, cores, factors) in [
        (json!({}), None, None, [None, None]),
        (
            json!({"resource": {"memory": "2048m", "cpu": 0.5}}),
            Some("2 gb"),
            Some("0.5"),
            [None, None],
        ),
        (
            json!({"resource": {"memory": "2Gi", "cpu": 1}}),
            Some("2147483648"),
            Some("1.0"),
            [None, None],
        ),
        (
            json!({"resource": {"memory": "1g", "cpu": 1}, "resources": {}}),
            Some("1 gb"),
            Some("1.0"),
            [None, None],
        ),
        (
            json!({"resource": {"memory": "1g", "cpu": 1},
                "resources": {"requests": {"memory": "1Gi", "cpu": "500m"}, "limits": {"memory": "2Gi", "cpu": "750m"}}}),
            Some("1073741824"),
            Some("0.5"),
            [Some("1.5"), Some("2.0")],
        ),
        (
            json!({"resources": {"limits": {"memory": "1.5Gi", "cpu": 2}}}),
            Some("1610612736"),
            Some("2.0"),
            [None, None],
        ),
    ] {
        let found = config_of(json!({"jobManager": job_manager}));
        assert_eq!(
            found.text("jobmanager.memory.process.size"),
            memory,
            "{job_manager}"
        );
        assert_eq!(
            found.text("kubernetes.jobmanager.cpu.amount"),
            cores,
            "{job_manager}"
        );
        let limits = [
            "kubernetes.jobmanager.cpu.limit-factor",
            "kubernetes.jobmanager.memory.limit-factor",
        ];
        assert_eq!(limits.map(|key| found.text(key)), factors, "{job_manager}");
        assert_eq!(found.text("kubernetes.jobmanager.replicas"), Some("1"));
    }
    let found = config_of(json!({
        "taskManager": {"resource": {"memory": "3g", "cpu": 2}, "replicas": 4},
        "jobManager": {"replicas": 2},
    }));
    assert_eq!(found.text("taskmanager.memory.process.size"), Some("3 gb"));
    assert_eq!(found.text("kubernetes.taskmanager.cpu.amount"), Some("2.0"));
    assert_eq!(
        found.text("kubernetes.internal.taskmanager.replicas"),
        Some("4")
    );
    assert_eq!(found.text("kubernetes.jobmanager.replicas"), Some("2"));
}

#[test]
fn amounts_of_memory_are_flinks_or_kubernetes() {
    for (text, expected) in [
        ("2048m", Some("2 gb")),
        ("2g", Some("2 gb")),
        ("2 gb", Some("2 gb")),
        ("1000", Some("1000 bytes")),
        ("2Gi", Some("2147483648")),
        ("2 gib", Some("2147483648")),
        ("512Mi", Some("536870912")),
        ("1.5G", Some("1500000000")),
        ("1e3", Some("1000")),
        ("", None),
        ("lots", None),
        ("g", None),
    ] {
        assert_eq!(flink_memory(text).as_deref(), expected, "{text:?}");
    }
}

#[test]
fn older_versions_have_older_keys() {
    let fields = |version: &str| {
        json!({"flinkVersion": version, "image": "i", "jobManager": {"resource": {"cpu": 1}},
            "taskManager": {"resource": {"cpu": 2}}})
    };
    let keys = [
        "kubernetes.container.image",
        "kubernetes.container.image.ref",
        "kubernetes.jobmanager.cpu",
        "kubernetes.jobmanager.cpu.amount",
        "kubernetes.taskmanager.cpu",
    ];
    let found = config_of(fields("v1_16"));
    let expected = [Some("i"), None, Some("1.0"), Some("1.0"), Some("2.0")];
    assert_eq!(keys.map(|key| found.text(key)), expected);
    let found = config_of(fields("v1_17"));
    let expected = [None, Some("i"), None, Some("1.0"), None];
    assert_eq!(keys.map(|key| found.text(key)), expected);
}

#[test]
fn parallelism_follows_from_replicas_where_they_are_set() {
    let slots = json!({"taskmanager.numberOfTaskSlots": "3",
        "pipeline.jobvertex-parallelism-overrides": "a:4,b:8"});
    for (mode, replicas, parallelism, task_managers) in [
        ("native", None, "2", None),
        ("native", Some(5), "15", Some("5")),
        ("standalone", None, "8", Some("3")),
        ("standalone", Some(5), "15", Some("5")),
    ] {
        let found = config_of(json!({
            "mode": mode,
            "flinkConfiguration": slots,
            "taskManager": {"replicas": replicas},
            "job": {"parallelism": 2, "jarURI": "local:///opt/a.jar"},
        }));
        assert_eq!(
            found.text("parallelism.default"),
            Some(parallelism),
            "{mode} {replicas:?}"
        );
        let key = "kubernetes.internal.taskmanager.replicas";
        assert_eq!(found.text(key), task_managers, "{mode} {replicas:?}");
    }
}

#[test]
fn a_standalone_cluster_has_a_class_path() {
    for (job, cluster_mode, class_path) in [
        (
            json!({"jarURI": "local:///opt/a.jar"}),
            "APPLICATION",
            Some("file:///opt/a.jar"),
        ),
        (
            json!({"jarURI": "local:/opt/a.jar"}),
            "APPLICATION",
            Some("file:///opt/a.jar"),
        ),
        (
            json!({"jarURI": "file:///opt/a.jar"}),
            "APPLICATION",
            Some("file:///opt/a.jar"),
        ),
        (json!({}), "APPLICATION", None),
        (Value::Null, "SESSION", None),
    ] {
        let found = config_of(json!({"mode": "standalone", "job": job}));
        assert_eq!(found.text("execution.target"), Some("remote"));
        assert_eq!(
            found.text("kubernetes.internal.cluster-mode"),
            Some(cluster_mode)
        );
        assert_eq!(found.text("pipeline.classpaths"), class_path);
        assert_eq!(found.text("pipeline.jars"), None);
    }
}

#[test]
fn templates_are_merged_and_get_probe_and_storage() {
    let fields = json!({
        "podTemplate": {"spec": {"containers": [{"name": "a"}, {"name": "flink-main-container"}]}},
        "jobManager": {
            "podTemplate": {"spec": {"containers": [{"name": "flink-main-container", "image": "x"}]}},
            "resource": {"ephemeralStorage": "1Gi"},
        },
        "taskManager": {"resources": {"requests": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 1}}},
        "flinkConfiguration": {"kubernetes.operator.pod-template.merge-arrays-by-name": "true"},
    });
    let found = made(fields).unwrap();
    let storage = json!({"ephemeral-storage": "1Gi"});
    let probe = json!({"failureThreshold": i32::MAX, "periodSeconds": 1,
        "httpGet": {"path": "/config", "port": "rest"}});
    assert_eq!(
        found.job_manager_template,
        Some(json!({"spec": {"containers": [
            {"name": "a"},
            {"name": "flink-main-container", "image": "x", "startupProbe": probe,
             "resources": {"requests": storage, "limits": storage}},
        ]}}))
    );
    assert_eq!(
        found.task_manager_template,
        Some(json!({"spec": {"containers": [
            {"name": "a"},
            {"name": "flink-main-container", "resources": {"requests": {"nvidia.com/gpu": "1"}}},
        ]}}))
    );
    let without_probe = json!({"flinkConfiguration":
        {"kubernetes.operator.jm-deployment.startup.probe.enabled": "false"}});
    assert_eq!(made(without_probe).unwrap().job_manager_template, None);
}

#[test]
fn log_configuration_replaces_that_of_the_operator_as_a_whole() {
    let operator = LogFiles {
        log4j: Some("operator".to_owned()),
        logback: Some("operator".to_owned()),
    };
    let made = |fields| {
        deployment(FlinkConfig::new(), NAME, &spec(fields), &operator)
            .unwrap()
            .logs
    };
    assert_eq!(made(json!({})), operator);
    assert_eq!(
        made(json!({"logConfiguration": {"log4j-console.properties": "own"}})),
        LogFiles {
            log4j: Some("own".to_owned()),
            logback: None
        }
    );
}

#[test]
fn specs_without_a_configuration_are_refused() {
    let error = deployment(
        FlinkConfig::new(),
        NAME,
        &FlinkDeploymentSpec::default(),
        &LogFiles::default(),
    );
    assert_eq!(error, Err(EffectiveError::NoVersion));
    for (fields, message) in [
        (
            json!({"imagePullPolicy": "Sometimes"}),
            "expected `spec.imagePullPolicy` to be Always, IfNotPresent or Never, found `Sometimes`",
        ),
        (
            json!({"jobManager": {"resource": {"memory": "lots"}}}),
            "JobManager resource memory parse error: expected an amount such as `1024m`, `2Gi` or `500m`, found `lots`",
        ),
        (
            json!({"taskManager": {"resources": {"limits": {"cpu": "many"}}}}),
            "TaskManager resource cpu parse error: expected an amount such as `1024m`, `2Gi` or `500m`, found `many`",
        ),
    ] {
        assert_eq!(made(fields).unwrap_err().to_string(), message);
    }
}

#[test]
fn observation_follows_the_current_spec_in_what_is_the_operators() {
    let deployed: FlinkConfig = [("a", "deployed"), ("state.savepoints.dir", "file:///old")]
        .into_iter()
        .collect();
    let current: FlinkConfiguration = [
        ("a", "current"),
        ("kubernetes.operator.job.restart.failed", "true"),
        ("job.autoscaler.enabled", "true"),
        ("state.savepoints.dir", "file:///new"),
    ]
    .into_iter()
    .collect();
    let found = observe(deployed.clone(), Some(&current)).unwrap();
    assert_eq!(found.text("a"), Some("deployed"));
    assert_eq!(
        found.text("kubernetes.operator.job.restart.failed"),
        Some("true")
    );
    assert_eq!(found.text("job.autoscaler.enabled"), Some("true"));
    assert_eq!(
        found.find(&options::SAVEPOINT_DIR),
        Ok(Some("file:///new".to_owned()))
    );
    assert_eq!(observe(deployed.clone(), None), Ok(deployed));
}

#[test]
fn a_session_job_is_configured_over_its_session() {
    let session: FlinkConfig = [("a", "session"), ("b", "session"), ("pipeline.name", "x")]
        .into_iter()
        .collect();
    let own: FlinkConfiguration = [("b", "job"), ("pipeline.name", "job")]
        .into_iter()
        .collect();
    let job: JobSpec = serde_json::from_value(json!({"args": ["x"], "parallelism": 7})).unwrap();
    assert_eq!(
        pairs(&session_job(session, "sj", Some(&own), &job)),
        [
            ("$internal.application.program-args", "x"),
            ("a", "session"),
            ("b", "job"),
            (
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION"
            ),
            ("pipeline.name", "job"),
        ]
    );
}

#[test]
fn an_attempt_is_marked() {
    let mut config: FlinkConfig = [
        ("kubernetes.jobmanager.annotations.a/b", "c"),
        ("high-availability.storageDir", "s3://ha"),
        ("execution.state-recovery.path", "s3://older"),
    ]
    .into_iter()
    .collect();
    set_generation(&mut config, 7).unwrap();
    set_job_result_store(&mut config, "app", "attempt").unwrap();
    set_savepoint(&mut config, Some("s3://sp"));
    set_owner(
        &mut config,
        DeploymentOwner {
            api_version: "g/v1",
            kind: "K",
            name: "app",
            uid: "u",
        },
    );
    assert_eq!(
        pairs(&config),
        [
            ("execution.savepoint.path", "s3://sp"),
            ("high-availability.storageDir", "s3://ha"),
            ("job-result-store.delete-on-commit", "false"),
            (
                "job-result-store.storage-path",
                "s3://ha/job-result-store/app/attempt"
            ),
            (
                "kubernetes.jobmanager.annotations",
                "a/b:c,flinkdeployment.flink.apache.org/generation:7"
            ),
            (
                "kubernetes.jobmanager.owner.reference",
                "name:app,controller:false,blockOwnerDeletion:true,apiVersion:g/v1,kind:K,uid:u"
            ),
        ]
    );
    set_savepoint(&mut config, None);
    assert!(!config.contains(&options::SAVEPOINT_PATH));
    config.set_text("job-result-store.delete-on-commit", "true");
    set_job_result_store(&mut config, "app", "next").unwrap();
    assert_eq!(
        config.text("job-result-store.delete-on-commit"),
        Some("true")
    );
}
