//! Rules about FlinkDeployments.

use super::*;

fn base() -> Value {
    json!({
        "image": "flink:1.20",
        "flinkVersion": "v1_20",
        "serviceAccount": "flink",
        "job": {"jarURI": "local:///a.jar", "parallelism": 1},
        "jobManager": {"resource": {"memory": "2048m", "cpu": 1}},
        "taskManager": {"resource": {"memory": "2048m", "cpu": 1}},
    })
}

fn spec(change: &Value) -> FlinkDeploymentSpec {
    serde_json::from_value(merged(&base(), change)).unwrap()
}

fn error_of(name: &str, spec: &FlinkDeploymentSpec, last: Option<&FlinkDeploymentSpec>) -> String {
    let found = validate_deployment(&Deployment {
        name,
        namespace: "ns",
        spec,
        last,
        config: &config(&[], spec.flink_configuration.as_ref()),
    });
    found.map_or_else(|error| error.to_string(), |()| String::new())
}

/// The error of a change to the base; empty where it is valid.
fn error(change: &Value) -> String {
    error_of("a", &spec(change), None)
}

fn check(table: impl IntoIterator<Item = (Value, &'static str)>) {
    for (change, expected) in table {
        assert_eq!(error(&change), expected, "{change}");
    }
}

/// The error after a change from one spec to another.
fn error_after(last: &Value, change: &Value) -> String {
    error_of("a", &spec(change), Some(&spec(last)))
}

#[test]
fn names_are_those_of_clusters() {
    let longest = "a".repeat(45);
    for name in ["a", "a-1", "my-name", "abc-123", &longest] {
        assert_eq!(error_of(name, &spec(&json!({})), None), "", "{name}");
    }
    let too_long = "a".repeat(46);
    for name in ["", "1a", "-a", "a-", "A", "a.b", "a_b", "ä", &too_long] {
        let expected = format!(
            "The FlinkDeployment name: {name} is invalid, must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123'), and the \
             length must be no more than 45 characters."
        );
        assert_eq!(error_of(name, &spec(&json!({})), None), expected);
    }
}

#[test]
fn versions_are_set_and_supported() {
    check([
        (
            json!({"flinkVersion": null}),
            "Flink Version must be defined.",
        ),
        (
            json!({"flinkVersion": "v1_14"}),
            "Flink version v1_14 is not supported by this operator version",
        ),
        (json!({"flinkVersion": "v1_15"}), ""),
        (json!({"flinkVersion": "v2_4"}), ""),
    ]);
    let suspended = |mode: &str| json!({"job": {"state": "suspended", "upgradeMode": mode}});
    let next = |mode: &str| {
        let directories = json!({"execution.checkpointing": {"dir": "c", "savepoint-dir": "s"}});
        let job = json!({"upgradeMode": mode});
        json!({"flinkVersion": "v2_0", "job": job, "flinkConfiguration": directories})
    };
    let forbidden = "Changing flinkVersion after last-state suspend is not allowed. Restore your cluster with the current \
                     flinkVersion and perform the version upgrade afterwards.";
    for (last, mode, expected) in [
        (suspended("last-state"), "last-state", forbidden),
        (suspended("last-state"), "savepoint", forbidden),
        (suspended("last-state"), "stateless", ""),
        (suspended("savepoint"), "savepoint", ""),
        (
            json!({"job": {"upgradeMode": "last-state"}}),
            "last-state",
            "",
        ),
    ] {
        assert_eq!(error_after(&last, &next(mode)), expected, "{last} {mode}");
    }
    let same = merged(&next("last-state"), &json!({"flinkVersion": "v1_20"}));
    assert_eq!(error_after(&suspended("last-state"), &same), "");
}

#[test]
fn the_configuration_leaves_to_the_operator_what_it_sets() {
    let conf = |key: &str, value: Value| json!({"flinkConfiguration": {key: value}});
    let rollback = "kubernetes.operator.deployment.rollback.enabled";
    let health = "kubernetes.operator.cluster.health-check.enabled";
    let recovery = "kubernetes.operator.jm-deployment-recovery.enabled";
    let no_ha = "HA must be enabled for rollback support.";
    check([
        (
            conf("kubernetes.namespace", json!("x")),
            "Forbidden Flink config key: kubernetes.namespace",
        ),
        (
            conf("kubernetes.cluster-id", json!("x")),
            "Forbidden Flink config key: kubernetes.cluster-id",
        ),
        (
            json!({"flinkConfiguration": {"high-availability": {"cluster-id": "x"}}}),
            "Forbidden Flink config key: high-availability.cluster-id",
        ),
        (conf(rollback, json!(true)), no_ha),
        (
            json!({"flinkConfiguration": {rollback: true, "high-availability.type": "none"}}),
            no_ha,
        ),
        (
            json!({"flinkConfiguration": {rollback: true, "high-availability.type": "kubernetes"}}),
            "",
        ),
        (
            json!({"flinkConfiguration": {rollback: true, "high-availability": "a.b.Factory"}}),
            "",
        ),
        (conf(health, json!(true)), ""),
        (
            json!({"flinkConfiguration": {health: true, recovery: false}}),
            "Deployment recovery (kubernetes.operator.jm-deployment-recovery.enabled) must be enabled for job health check \
             (kubernetes.operator.cluster.health-check.enabled) support.",
        ),
        (
            conf(health, json!("on")),
            "the value of the configuration key `kubernetes.operator.cluster.health-check.enabled` cannot be used; correct \
             it in the configuration: expected `true` or `false`, found `on`",
        ),
    ]);
}

#[test]
fn an_ingress_has_a_template_that_is_a_url() {
    let ingress = |template: &str| json!({"ingress": {"template": template}});
    check([
        (json!({"ingress": {}}), "Ingress template must be defined"),
        (ingress("example.com/{{namespace}}/{{NAME}}(/|$)(.*)"), ""),
        (ingress("https://{{name}}.example.com:8443/"), ""),
        (ingress("/{{namespace}}/{{name}}"), ""),
        (ingress("[::1]:80/a"), ""),
        (ingress("user:password@example.com"), ""),
        (ingress("example.com:"), ""),
        (
            ingress("example.com:port"),
            "Unable to process the Ingress template(example.com:port). Error: For input string: \"port\"",
        ),
        (
            ingress("example.com:{{Name}}/x"),
            "Unable to process the Ingress template(example.com:{{Name}}/x). Error: For input string: \"a\"",
        ),
        (
            ingress("example.com:-5"),
            "Unable to process the Ingress template(example.com:-5). Error: Invalid port number :-5",
        ),
        (
            ingress("[::1"),
            "Unable to process the Ingress template([::1). Error: Invalid host: [::1",
        ),
    ]);
}

#[test]
fn log_files_are_the_two_that_flink_reads() {
    check([
        (
            json!({"logConfiguration": {"log4j-console.properties": "", "logback-console.xml": ""}}),
            "",
        ),
        (
            json!({"logConfiguration": {"logback-console.xml": "", "random": ""}}),
            "Invalid log config key: random. Allowed keys are [log4j-console.properties, logback-console.xml]",
        ),
    ]);
}

#[test]
fn jobs_with_state_have_directories() {
    let job = |job: Value, conf: Value| json!({"job": job, "flinkConfiguration": conf});
    let checkpoints = json!({"state.checkpoints.dir": "c"});
    let nothing = json!({});
    let last_state = json!({"upgradeMode": "last-state"});
    let savepoint = json!({"upgradeMode": "savepoint"});
    let nonce = json!({"savepointTriggerNonce": 1});
    let no_checkpoints = "Checkpoint directory[execution.checkpointing.dir] must be defined for last-state and savepoint upgrade modes";
    let both = json!({"execution.checkpointing.dir": "c", "state.savepoints.dir": "s"});
    check([
        (job(last_state.clone(), nothing.clone()), no_checkpoints),
        (
            job(
                last_state.clone(),
                json!({"execution.checkpointing.dir": " "}),
            ),
            no_checkpoints,
        ),
        (job(savepoint.clone(), nothing.clone()), no_checkpoints),
        (job(last_state, checkpoints.clone()), ""),
        (
            job(savepoint.clone(), checkpoints),
            "Job could not be upgraded with savepoint while config key[execution.checkpointing.savepoint-dir] is not set",
        ),
        (job(savepoint, both.clone()), ""),
        (
            job(nonce.clone(), nothing),
            "Savepoint could not be manually triggered for the running job while config \
             key[execution.checkpointing.savepoint-dir] is not set",
        ),
        (job(nonce, both), ""),
        (
            job(
                json!({}),
                json!({"kubernetes.operator.periodic.savepoint.interval": "1 m"}),
            ),
            "Periodic savepoints cannot be enabled when config key[execution.checkpointing.savepoint-dir] is not set",
        ),
        (
            job(
                json!({}),
                json!({"kubernetes.operator.job.upgrade.last-state.max.allowed.checkpoint.age": "1 m"}),
            ),
            "In order to use max-checkpoint age functionality config key[execution.checkpointing.savepoint-dir] must be set \
             to allow triggering savepoint upgrades.",
        ),
    ]);
}

#[test]
fn there_is_at_least_one_of_everything() {
    let ha = json!({"high-availability.type": "kubernetes"});
    check([
        (
            json!({"job": {"parallelism": 0}}),
            "Job parallelism must be larger than 0",
        ),
        (
            json!({"job": {"parallelism": -1}}),
            "Job parallelism must be larger than 0",
        ),
        (
            json!({"job": {"parallelism": 0}, "taskManager": {"replicas": 1}}),
            "",
        ),
        (
            json!({"taskManager": {"replicas": 0}}),
            "TaskManager replicas must be larger than 0",
        ),
        (
            json!({"job": null, "taskManager": {"replicas": 0}}),
            "TaskManager replicas should not be configured less than one.",
        ),
        (
            json!({"jobManager": {"replicas": 0}}),
            "JobManager replicas should not be configured less than one.",
        ),
        (
            json!({"jobManager": {"replicas": 2}}),
            "High availability should be enabled when starting standby JobManagers.",
        ),
        (
            json!({"jobManager": {"replicas": 2}, "flinkConfiguration": ha}),
            "",
        ),
    ]);
}

#[test]
fn memory_is_that_of_the_spec_or_of_the_configuration() {
    let no_jm = "JobManager resource memory must be defined using `spec.jobManager.resource.memory` or \
                 `spec.jobManager.resources.requests.memory`";
    let no_tm = "TaskManager resource memory must be defined using `spec.taskManager.resource.memory` or \
                 `spec.taskManager.resources.requests.memory`";
    check([
        (json!({"jobManager": null}), no_jm),
        (json!({"taskManager": null}), no_tm),
        (json!({"jobManager": {"resource": {"memory": null}}}), no_jm),
        (json!({"taskManager": {"resource": {"memory": " "}}}), no_tm),
        (
            json!({"jobManager": null, "flinkConfiguration": {"jobmanager.memory.process.size": "2g"}}),
            "",
        ),
        (
            json!({"jobManager": null, "flinkConfiguration": {"jobmanager.memory.process.size": "1m"}}),
            no_jm,
        ),
        (
            json!({"taskManager": null, "flinkConfiguration": {"taskmanager.memory.flink.size": "1g"}}),
            "",
        ),
        (
            json!({"taskManager": {"resource": null, "resources": {"requests": {"memory": "1Gi"}}}}),
            "",
        ),
        (
            json!({"taskManager": {"resource": null, "resources": {"limits": {"memory": "1Gi"}}}}),
            "",
        ),
        (
            json!({"taskManager": {"resource": null, "resources": {"requests": {"cpu": 1}}}}),
            no_tm,
        ),
    ]);
}

#[test]
fn amounts_are_read_as_flink_and_kubernetes_read_them() {
    let resource = |memory: &str, storage: &str| json!({"taskManager": {"resource": {"memory": memory, "ephemeralStorage": storage}}});
    for memory in [
        "2048m",
        "2g",
        "1 gb",
        "2Gi",
        "2gi",
        "1024Mi",
        "1GB",
        "1e9",
        "1073741824",
        "1.5Gi",
    ] {
        assert_eq!(error(&resource(memory, "1Gi")), "", "{memory}");
    }
    check([
        (
            resource("abc", "1Gi"),
            "TaskManager resource memory parse error: expected an amount of memory such as `1024m`, `2g` or `512 kb`, found \
             `abc`",
        ),
        (
            resource("1g", "abc"),
            "TaskManager resource ephemeral storage parse error: expected a quantity such as `500m`, `2` or `1Gi`, found \
             `abc`",
        ),
        (
            resource("-1Gi", "1Gi"),
            "TaskManager resource memory parse error: expected an amount of memory such as `1024m`, `2g` or `512 kb`, found \
             `-1Gi`",
        ),
    ]);
}

#[test]
fn all_errors_of_requests_and_limits_count() {
    let tm = |resources: Value| json!({"taskManager": {"resources": resources}});
    let jm = |resources: Value| json!({"jobManager": {"resources": resources}});
    check([
        (
            tm(
                json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}}),
            ),
            "",
        ),
        (tm(json!({})), ""),
        (
            tm(json!({"requests": {"cpu": 0}})),
            "TaskManager resource requirements requests cpu must be positive: 0",
        ),
        (
            jm(json!({"limits": {"cpu": "-1", "memory": "0"}})),
            "JobManager resource requirements limits cpu must be positive: -1; JobManager resource requirements limits memory \
             must be positive: 0",
        ),
        (
            jm(json!({"requests": {"ephemeral-storage": "-1Gi", "x.y/gpu": "0"}})),
            "JobManager resource requirements requests ephemeral-storage must not be negative: -1Gi",
        ),
        (
            tm(json!({"requests": {"cpu": "1000m"}, "limits": {"cpu": "500m"}})),
            "TaskManager resource requirements cpu request (1000m) must not exceed its limit (500m)",
        ),
        (
            tm(json!({"requests": {"memory": "2g"}, "limits": {"memory": "1Gi"}})),
            "TaskManager resource requirements memory request (2g) must not exceed its limit (1Gi)",
        ),
        (
            tm(json!({"requests": {"cpu": "x"}, "limits": {"cpu": "1"}})),
            "TaskManager resource requirements requests cpu parse error: expected a quantity such as `500m`, `2` or `1Gi`, \
             found `x`",
        ),
        (
            tm(json!({"limits": {"memory": "x"}})),
            "TaskManager resource requirements limits memory parse error: expected an amount of memory such as `1024m`, \
             `2g` or `512 kb`, found `x`",
        ),
    ]);
}

#[test]
fn some_changes_are_forbidden() {
    let session = json!({"job": null});
    let standalone = json!({"mode": "standalone"});
    let redeploy = |nonce: i64, path: Value| json!({"job": {"savepointRedeployNonce": nonce, "initialSavepointPath": path}});
    let no_path = "InitialSavepointPath must not be empty for savepoint redeployment";
    for (last, change, expected) in [
        (
            session.clone(),
            json!({}),
            "Cannot switch from session to job cluster",
        ),
        (
            json!({}),
            session,
            "Cannot switch from job to session cluster",
        ),
        (
            json!({}),
            standalone.clone(),
            "Cannot switch from native kubernetes to standalone kubernetes cluster",
        ),
        (
            standalone.clone(),
            json!({"mode": "native"}),
            "Cannot switch from standalone kubernetes to native kubernetes cluster",
        ),
        (standalone.clone(), standalone, ""),
        (json!({}), json!({"mode": "native"}), ""),
        (json!({}), redeploy(1, json!(null)), no_path),
        (redeploy(1, json!("p")), redeploy(2, json!(" ")), no_path),
        (redeploy(1, json!("p")), redeploy(1, json!(null)), ""),
        (redeploy(1, json!("p")), redeploy(2, json!("q")), ""),
        (redeploy(1, json!("p")), json!({}), ""),
    ] {
        assert_eq!(error_after(&last, &change), expected, "{last} to {change}");
    }
    // Before anything was deployed nothing can change.
    assert_eq!(error(&redeploy(1, json!(null))), "");
}

#[test]
fn the_service_account_is_set() {
    let expected = "spec.serviceAccount must be defined. If you use helm, its value should be the same with the name of \
                    jobServiceAccount.";
    assert_eq!(error(&json!({"serviceAccount": null})), expected);
}

#[test]
fn options_of_the_autoscaler_are_within_their_ranges() {
    let range = |key: &str, min: &str, max: &str| {
        format!(
            "The AutoScalerOption job.autoscaler.{key} is invalid, it should be a value within the range [{min}, {max}]"
        )
    };
    for (pairs, expected) in [
        (json!({"scale-down.max-factor": -1}), range("scale-down.max-factor", "0.0", "+Infinity")),
        (json!({"scale-up.max-factor": -0.1}), range("scale-up.max-factor", "0.0", "+Infinity")),
        (json!({"utilization.target": 1.1}), range("utilization.target", "0.0", "1.0")),
        (json!({"target.utilization": -1}), range("utilization.target", "0.0", "1.0")),
        (json!({"target.utilization.boundary": -1}), range("target.utilization.boundary", "0.0", "+Infinity")),
        (json!({"utilization.max": 0.6}), range("utilization.max", "0.7", "1.0")),
        (json!({"utilization.max": 0.6, "utilization.target": 0.5}), String::new()),
        (json!({"utilization.min": 0.8}), range("utilization.min", "0.0", "0.7")),
        (json!({"memory.gc-pressure.threshold": 2}), range("memory.gc-pressure.threshold", "0.0", "1.0")),
        (json!({"memory.heap-usage.threshold": -1}), range("memory.heap-usage.threshold", "0.0", "1.0")),
        (json!({"observed-scalability.coefficient-min": 0}), String::new()),
        (
            json!({"observed-scalability": {"enabled": true, "coefficient-min": 0}}),
            range("observed-scalability.coefficient-min", "0.01", "1.0"),
        ),
        (json!({"scaling.effectiveness.threshold": 2}), String::new()),
        (
            json!({"scaling.effectiveness": {"detection.enabled": true, "threshold": 2}}),
            range("scaling.effectiveness.threshold", "0.0", "1.0"),
        ),
        (json!({"memory.tuning": {"enabled": true, "overhead": 2}}), range("memory.tuning.overhead", "0.0", "1.0")),
        (
            json!({"utilization.max": "much"}),
            "Invalid value in the autoscaler config job.autoscaler.utilization.max".to_owned(),
        ),
        (
            json!({"metrics.window": "59 s"}),
            "The autoscaler metric window (job.autoscaler.metrics.window=PT59S) must not be smaller than the operator \
             reconcile interval (kubernetes.operator.reconcile.interval=PT1M), otherwise fewer than two metric samples are \
             retained and autoscaling is never applied."
                .to_owned(),
        ),
        (json!({"metrics.window": "1 min"}), String::new()),
    ] {
        let on = merged(&pairs, &json!({"enabled": true}));
        let change = json!({"flinkConfiguration": {"job.autoscaler": on}});
        assert_eq!(error(&change), expected, "{pairs}");
        let older = json!({"flinkConfiguration": {"kubernetes.operator.job.autoscaler": on}});
        assert_eq!(error(&older), expected, "{pairs}");
        // Nothing of it matters while it is off.
        let off = json!({"flinkConfiguration": {"job.autoscaler": pairs}});
        assert_eq!(error(&off), "");
    }
}

#[test]
fn excluded_periods_are_times_of_the_day_and_cron_expressions() {
    let key = "in the autoscaler config job.autoscaler.excluded.periods";
    let neither = ", the value is neither a valid daily expression nor a valid cron expression";
    let twice = ", the value can not be configured as dailyExpression && dailyExpression or cronExpression && \
                 cronExpression";
    for (period, why) in [
        ("9:30-10:50:20", None),
        ("* * 9-11,14-16 * * ?", None),
        ("9:30:30-10:50:20 && * * * ? * 2,5", None),
        ("* * * ? * 2,5 && 00:00-23:59:59:999", None),
        ("10:00-9:00", Some(neither)),
        ("9-10", Some(neither)),
        ("24:00-25:00", Some(neither)),
        ("9:60-10:00", Some(neither)),
        ("always", Some(neither)),
        ("9:00-10:00 && always", Some(neither)),
        ("9:00-10:00 && 11:00-12:00", Some(twice)),
        ("* * * ? * 2 && * * * ? * 3", Some(twice)),
        ("9:00-10:00 && * * * ? * 2 && 9:00-10:00", Some("")),
    ] {
        let change = json!({"flinkConfiguration": {
            "job.autoscaler.enabled": true,
            "job.autoscaler.excluded.periods": ["1:00-2:00", period],
        }});
        let expected = why.map_or_else(String::new, |why| {
            format!("Invalid value {period} {key}{why}")
        });
        assert_eq!(error(&change), expected, "{period}");
    }
}

#[test]
fn the_first_rule_that_fails_counts() {
    // Each of these breaks one more rule, before the ones that are broken already.
    let mut change = json!({});
    for (part, beginning) in [
        (
            json!({"flinkConfiguration": {"job.autoscaler": {"enabled": true, "utilization.target": 2}}}),
            "The AutoScalerOption",
        ),
        (json!({"serviceAccount": null}), "spec.serviceAccount"),
        (json!({"taskManager": null}), "TaskManager resource memory"),
        (json!({"jobManager": null}), "JobManager resource memory"),
        (json!({"job": {"parallelism": 0}}), "Job parallelism"),
        (
            json!({"logConfiguration": {"x": ""}}),
            "Invalid log config key",
        ),
        (json!({"ingress": {}}), "Ingress template"),
        (
            json!({"flinkConfiguration": {"kubernetes.namespace": "x"}}),
            "Forbidden Flink config key",
        ),
        (json!({"flinkVersion": null}), "Flink Version"),
    ] {
        change = merged(&change, &part);
        let error = error(&change);
        assert!(error.starts_with(beginning), "{part}: {error}");
    }
    let broken = spec(&change);
    let error = error_of("A", &broken, None);
    assert!(error.starts_with("The FlinkDeployment name"), "{error}");
}
