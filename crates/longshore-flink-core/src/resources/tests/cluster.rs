//! What options and templates do to the objects of a cluster.

use super::*;
use crate::json::Json;

/// A FlinkDeployment of Flink 1.20 with this on top.
fn deployment(spec: Value) -> FlinkDeployment {
    let base = json!({
        "image": "flink:1.20",
        "flinkVersion": "v1_20",
        "serviceAccount": "flink",
        "jobManager": {"resource": {"memory": "1024m", "cpu": 1}},
        "taskManager": {"resource": {"memory": "1024m", "cpu": 1}},
        "job": {"jarURI": "local:///opt/job.jar", "parallelism": 1},
    });
    let spec = template::merge(Some(&base), Some(&spec), template::ArrayMerge::ByIndex).unwrap();
    serde_json::from_value(json!({
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {"name": "app"},
        "spec": spec,
    }))
    .unwrap()
}

fn made(spec: Value) -> Result<Resources, ResourceError> {
    made_of(&deployment(spec))
}

fn made_of(deployment: &FlinkDeployment) -> Result<Resources, ResourceError> {
    native(&cluster("app", &effective(FlinkConfig::new(), deployment)))
}

fn with_config(config: Value) -> Result<Resources, ResourceError> {
    made(json!({"flinkConfiguration": config}))
}

fn pod_of(resources: &Resources) -> &Value {
    &resources.deployment["spec"]["template"]["spec"]
}

fn main_of(resources: &Resources) -> &Value {
    let containers = pod_of(resources)["containers"].as_array().unwrap();
    containers.last().unwrap()
}

fn object_of(resources: &Resources, name: &str) -> Value {
    let objects = resources.accompanying("u-1").into_iter();
    let mut found = objects.filter(|it| it["metadata"]["name"] == name);
    found.next().unwrap()
}

#[test]
fn a_session_cluster_of_flink_2_has_nested_configuration_and_no_job() {
    let mut deployment = deployment(json!({
        "flinkVersion": "v2_1",
        "logConfiguration": {"log4j-console.properties": "L4J", "logback-console.xml": "LB"},
    }));
    deployment.spec.job = None;
    let resources = made_of(&deployment).unwrap();
    let main = main_of(&resources);
    assert_eq!(
        main["args"],
        json!(["bash", "-c", "kubernetes-jobmanager.sh kubernetes-session "])
    );
    let items: Vec<Value> = [
        "logback-console.xml",
        "log4j-console.properties",
        "config.yaml",
    ]
    .map(|name| json!({"key": name, "path": name}))
    .to_vec();
    assert_eq!(
        pod_of(&resources)["volumes"][1]["configMap"]["items"],
        json!(items)
    );

    let config_map = object_of(&resources, "flink-config-app");
    assert_eq!(config_map["data"]["log4j-console.properties"], "L4J");
    assert_eq!(config_map["data"]["logback-console.xml"], "LB");
    let file = config_map["data"]["config.yaml"].as_str().unwrap();
    let config = format::read_standard(file).unwrap();
    assert_eq!(
        config.text("kubernetes.internal.jobmanager.entrypoint.class"),
        Some("org.apache.flink.kubernetes.entrypoint.KubernetesSessionClusterEntrypoint")
    );
    assert_eq!(config.text("execution.target"), Some("kubernetes-session"));
    assert_eq!(config.text("jobmanager.rpc.address"), Some("app.default"));
    assert_eq!(config.text("$internal.application.program-args"), None);
    assert!(
        file.contains("\nkubernetes:\n  cluster-id: app\n"),
        "{file}"
    );
}

#[test]
fn keys_of_the_client_and_of_the_operator_do_not_reach_the_pods() {
    let resources = with_config(json!({
        "kubernetes.operator.reconcile.interval": "1 s",
        "job.autoscaler.enabled": "true",
        "rest.bind-address": "0.0.0.0",
        "jobmanager.bind-host": "0.0.0.0",
        "taskmanager.bind-host": "0.0.0.0",
        "taskmanager.host": "x",
        "kubernetes.config.file": "/k",
        "$internal.deployment.config-dir": "/c",
        "pipeline.name": "a # b",
        "kubernetes.pod-template-file.default": "/t",
    }))
    .unwrap();
    let file = &object_of(&resources, "flink-config-app")["data"]["flink-conf.yaml"];
    let config = format::read_flat(file.as_str().unwrap());
    for gone in options::CLIENT_ONLY {
        assert_eq!(config.text(gone), None, "{gone}");
    }
    let operator = config.iter().filter(|(key, _)| {
        key.starts_with("kubernetes.operator.") || key.starts_with("job.autoscaler.")
    });
    assert_eq!(operator.count(), 0);
    let notes: Vec<String> = resources.notes.iter().map(Note::to_string).collect();
    assert_eq!(
        notes,
        [
            "Flink reads the value of `pipeline.name` only up to its first `#` or line break; remove it, or use Flink 2.0 or later",
            "`kubernetes.pod-template-file.default` names a file on the operator's disk and is not read; use `podTemplate` in the spec",
        ]
    );
}

#[test]
fn free_ports_and_ranges_become_fixed_ones() {
    for (ports, expected) in [
        (json!({}), ["6124", "6122", "8081", "0"]),
        (
            json!({"blob.server.port": "0", "taskmanager.rpc.port": "50000-50100", "rest.bind-port": "8081-8090"}),
            ["6124", "6122", "8081", "0"],
        ),
        (
            json!({"blob.server.port": "7001", "taskmanager.rpc.port": "7002", "rest.bind-port": "7003",
                "high-availability.type": "kubernetes", "jobmanager.rpc.port": "7004"}),
            ["7001", "7002", "7003", "7004"],
        ),
    ] {
        let effective = effective(
            FlinkConfig::new(),
            &deployment(json!({"flinkConfiguration": ports})),
        );
        let config = submitted(&cluster("app", &effective)).unwrap();
        let found = [
            options::BLOB_PORT,
            options::TASK_MANAGER_PORT,
            options::REST_BIND_PORT,
            options::HA_JOB_MANAGER_PORT,
        ]
        .map(|option| config.get(&option).unwrap());
        assert_eq!(found, expected, "{ports}");
    }
}

#[test]
fn the_rest_service_is_exposed_as_configured() {
    for (exposed, service_type, address) in [
        ("ClusterIP", "ClusterIP", Value::Null),
        ("Headless_ClusterIP", "ClusterIP", json!("None")),
        ("NodePort", "NodePort", Value::Null),
        ("loadbalancer", "LoadBalancer", Value::Null),
    ] {
        let resources = with_config(json!({
            "kubernetes.rest-service.exposed.type": exposed,
            "kubernetes.rest-service.annotations": "a:b,c:d",
            "kubernetes.internal-service.annotations": {"e": "f"},
            "rest.port": 9081,
        }))
        .unwrap();
        let rest = object_of(&resources, "app-rest");
        assert_eq!(rest["spec"]["type"], service_type);
        assert_eq!(rest["spec"]["clusterIP"], address);
        assert_eq!(rest["metadata"]["annotations"], json!({"a": "b", "c": "d"}));
        assert_eq!(
            rest["spec"]["ports"],
            json!([{"name": "rest", "port": 9081, "targetPort": 9081}])
        );
        let internal = object_of(&resources, "app");
        assert_eq!(internal["metadata"]["annotations"], json!({"e": "f"}));
    }
}

#[test]
fn every_object_has_the_labels_of_the_cluster_and_the_deployment_as_owner() {
    let resources = made(json!({"podTemplate": {"spec": {}}})).unwrap();
    let names: Vec<Value> = resources
        .accompanying("u-1")
        .iter()
        .map(|object| {
            let metadata = &object["metadata"];
            assert_eq!(
                metadata["labels"],
                json!({"app": "app", "type": "flink-native-kubernetes"})
            );
            assert_eq!(
                metadata["ownerReferences"],
                json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "app", "uid": "u-1",
                    "controller": true, "blockOwnerDeletion": true}])
            );
            assert_eq!(metadata["namespace"], "default");
            metadata["name"].clone()
        })
        .collect();
    assert_eq!(
        names,
        ["app", "app-rest", "flink-config-app", "pod-template-app"]
    );
}

#[test]
fn templates_keep_what_nobody_here_knows() {
    let resources = made(json!({
        "podTemplate": {
            "metadata": {"labels": {"team": "a", "app": "mine"}, "annotations": {"x": "y"}},
            "spec": {
                "futureField": {"a": 1},
                "serviceAccountName": "other",
                "restartPolicy": "Never",
                "dnsPolicy": "Default",
                "containers": [
                    {"name": "flink-main-container", "env": [{"name": "A", "value": "1"}], "futureField": 1,
                     "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "9"}}},
                    {"name": "sidecar", "image": "s"},
                ],
                "volumes": [{"name": "own", "emptyDir": {}}],
            },
        },
        "taskManager": {"podTemplate": {"spec": {"hostname": "tm"}}},
    }))
    .unwrap();
    let pod = pod_of(&resources);
    assert_eq!(pod["futureField"], json!({"a": 1}));
    assert_eq!(pod["serviceAccountName"], "flink");
    assert_eq!(pod["dnsPolicy"], "Default");
    assert_eq!(pod["restartPolicy"], Value::Null);
    assert_eq!(pod["containers"][0]["name"], "sidecar");
    let main = main_of(&resources);
    assert_eq!(main["futureField"], 1);
    assert_eq!(
        main["resources"],
        json!({
            "requests": {"nvidia.com/gpu": "1", "cpu": "1.0", "memory": "1024Mi"},
            "limits": {"cpu": "1.0", "memory": "1024Mi"},
        })
    );
    let names = |list: &Value| -> Vec<Value> {
        let list = list.as_array().unwrap().iter();
        list.map(|it| it["name"].clone()).collect()
    };
    assert_eq!(names(&main["env"]), ["A", "_POD_IP_ADDRESS"]);
    let volumes = [
        "own",
        "user-artifacts-volume",
        "flink-config-volume",
        "pod-template-volume",
    ];
    assert_eq!(names(&pod["volumes"]), volumes);
    assert_eq!(names(&main["volumeMounts"]), volumes[1..]);
    let metadata = &resources.deployment["spec"]["template"]["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"team": "a", "app": "app", "component": "jobmanager", "type": "flink-native-kubernetes"})
    );
    assert_eq!(metadata["annotations"], json!({"x": "y"}));

    let written =
        &object_of(&resources, "pod-template-app")["data"]["taskmanager-pod-template.yaml"];
    let template: Value = serde_saphyr::from_str(written.as_str().unwrap()).unwrap();
    assert_eq!(template["spec"]["hostname"], "tm");
    assert_eq!(template["spec"]["containers"][0].get("startupProbe"), None);
}

#[test]
fn a_template_counts_where_nothing_is_configured() {
    let mut deployment = deployment(json!({
        "podTemplate": {"spec": {
            "serviceAccountName": "other",
            "containers": [{"name": "flink-main-container", "image": "own", "imagePullPolicy": "Always"}],
        }},
    }));
    deployment.spec.image = None;
    deployment.spec.service_account = None;
    let resources = made_of(&deployment).unwrap();
    assert_eq!(pod_of(&resources)["serviceAccountName"], "other");
    assert_eq!(pod_of(&resources)["serviceAccount"], "other");
    assert_eq!(main_of(&resources)["image"], "own");
    assert_eq!(main_of(&resources)["imagePullPolicy"], "Always");

    deployment.spec.pod_template = Some(Json::Null);
    let resources = made_of(&deployment).unwrap();
    assert_eq!(pod_of(&resources)["serviceAccountName"], "default");
    assert_eq!(main_of(&resources)["image"], "apache/flink:1.20-scala_2.12");
    assert_eq!(main_of(&resources)["imagePullPolicy"], "IfNotPresent");
}

/// A cluster with every option of the JobManager's pod.
fn with_pod_options() -> Resources {
    with_config(json!({
        "kubernetes.jobmanager.labels": "team:a,component:mine",
        "kubernetes.jobmanager.annotations": "x:y",
        "kubernetes.jobmanager.service-account": "jm",
        "kubernetes.jobmanager.node-selector": "disk:ssd",
        "kubernetes.jobmanager.tolerations": "key:a,operator:Exists,tolerationSeconds:60;key:b,effect:NoSchedule",
        "kubernetes.container.image.pull-secrets": "one;two",
        "kubernetes.hostnetwork.enabled": "true",
        "kubernetes.secrets": "creds:/etc/creds",
        "kubernetes.env.secretKeyRef": "env:USER,secret:creds,key:user",
        "kubernetes.flink.log.dir": "/logs",
        "kubernetes.entry.path": "/entry.sh",
        "kubernetes.jobmanager.entrypoint.args": "-Da=b",
        "kubernetes.jobmanager.memory.limit-factor": "1.5",
        "kubernetes.jobmanager.cpu.limit-factor": "2",
        "kubernetes.hadoop.conf.config-map.name": "hadoop",
        "containerized.master.env.LANG": "C",
        "user.artifacts.base-dir": "/artifacts",
    }))
    .unwrap()
}

#[test]
fn options_of_the_pod_reach_it() {
    let resources = with_pod_options();
    let labels = json!({"app": "app", "component": "jobmanager", "team": "a", "type": "flink-native-kubernetes"});
    assert_eq!(resources.deployment["metadata"]["labels"], labels);
    assert_eq!(
        resources.deployment["metadata"]["annotations"],
        json!({"x": "y"})
    );
    let pod = pod_of(&resources);
    for (field, expected) in [
        ("serviceAccountName", json!("jm")),
        ("hostNetwork", json!(true)),
        ("dnsPolicy", json!("ClusterFirstWithHostNet")),
        ("nodeSelector", json!({"disk": "ssd"})),
        (
            "imagePullSecrets",
            json!([{"name": "one"}, {"name": "two"}]),
        ),
        (
            "tolerations",
            json!([
                {"key": "a", "operator": "Exists", "tolerationSeconds": 60},
                {"key": "b", "effect": "NoSchedule"},
            ]),
        ),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
}

#[test]
fn options_of_the_main_container_reach_it() {
    let resources = with_pod_options();
    let pod = pod_of(&resources);
    let main = main_of(&resources);
    assert_eq!(main["ports"], Value::Null);
    assert_eq!(main["command"], json!(["/entry.sh"]));
    assert_eq!(
        main["args"][2],
        "kubernetes-jobmanager.sh kubernetes-application -Da=b"
    );
    assert_eq!(
        main["resources"]["limits"],
        json!({"memory": "1536Mi", "cpu": "2.0"})
    );
    assert_eq!(
        main["env"],
        json!([
            {"name": "LANG", "value": "C"},
            {"name": "_POD_IP_ADDRESS", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
            {"name": "FLINK_LOG_DIR", "value": "/logs"},
            {"name": "USER", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "user"}}},
            {"name": "HADOOP_CONF_DIR", "value": "/opt/hadoop/conf"},
        ])
    );
    assert_eq!(
        main["volumeMounts"],
        json!([
            {"name": "user-artifacts-volume", "mountPath": "/artifacts"},
            {"name": "creds-volume", "mountPath": "/etc/creds"},
            {"name": "hadoop-config-volume", "mountPath": "/opt/hadoop/conf"},
            {"name": "flink-config-volume", "mountPath": "/opt/flink/conf"},
        ])
    );
    assert_eq!(
        pod["volumes"][1],
        json!({"name": "creds-volume", "secret": {"secretName": "creds"}})
    );
    assert_eq!(
        pod["volumes"][2],
        json!({"name": "hadoop-config-volume", "configMap": {"name": "hadoop"}})
    );
}

#[test]
fn clusters_that_cannot_start_are_refused() {
    for (config, message) in [
        (
            json!({"kubernetes.jobmanager.cpu.limit-factor": "0.5"}),
            "kubernetes.jobmanager.cpu.limit-factor should be greater or equal to 1, found 0.5",
        ),
        (
            json!({"high-availability.type": "zookeeper"}),
            "`high-availability.type` is set, but high availability with ZooKeeper is not supported; remove the key",
        ),
        (
            json!({"security.kerberos.login.keytab": "/k"}),
            "`security.kerberos.login.keytab` is set, but Kerberos is not supported; remove the key",
        ),
        (
            json!({"kubernetes.rest-service.exposed.type": "Tunnel"}),
            "the value of the configuration key `kubernetes.rest-service.exposed.type` cannot be used; correct it in the configuration",
        ),
        (
            json!({"jobmanager.memory.off-heap.size": "1g"}),
            "The configured Total Flink Memory (576.000mb (603979776 bytes)) is less than the configured Off-heap Memory (1024.000mb (1073741824 bytes)).",
        ),
        (
            json!({"kubernetes.jobmanager.tolerations": "taint:a"}),
            "the value of the configuration key `kubernetes.jobmanager.tolerations` cannot be used; correct it in the configuration",
        ),
    ] {
        assert_eq!(with_config(config).unwrap_err().to_string(), message);
    }
    let standalone = made(json!({"mode": "standalone"})).unwrap_err();
    assert_eq!(
        standalone,
        ResourceError::NotNative {
            found: "remote".to_owned()
        }
    );
    let overlap = made(json!({
        "flinkVersion": "v2_0",
        "flinkConfiguration": {"state.backend": "rocksdb", "state.backend.incremental": "true"},
    }));
    assert_eq!(
        overlap.unwrap_err().to_string(),
        "Overlapping key prefixes detected (state.backend -> state.backend.incremental), please replace with Flink v2 compatible, non-deprecated keys."
    );
    let template = made(json!({"jobManager": {"podTemplate": {"spec": {"volumes": {"a": 1}}}}}));
    assert!(matches!(
        template,
        Err(ResourceError::Template {
            field: "volumes",
            ..
        })
    ));
}

#[test]
fn flink_1_starts_applications_out_of_one_jar_and_flink_2_also_out_of_none() {
    let without_jar = |spec: Value| {
        let mut deployment = deployment(spec);
        deployment.spec.job.as_mut().unwrap().jar_uri = None;
        made_of(&deployment).map(|_| ())
    };
    assert_eq!(
        without_jar(json!({})).unwrap_err().to_string(),
        "expected exactly one jar in `pipeline.jars` of an application of Flink v1_20, found 0; set `job.jarURI`"
    );
    assert_eq!(without_jar(json!({"flinkVersion": "v2_0"})), Ok(()));
    assert_eq!(
        without_jar(json!({"job": {"args": ["-py", "/job.py"]}})),
        Ok(())
    );
    let driver = "org.apache.flink.client.python.PythonDriver";
    assert_eq!(without_jar(json!({"job": {"entryClass": driver}})), Ok(()));
}

#[test]
fn every_deployment_of_upstreams_manifests_has_objects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/manifests");
    let operator = format::read_flat(&testdata("golden/helm-default-flink-conf.yaml"));
    let operator = OperatorConfig::new(operator, None);
    let (mut n_native, mut n_standalone) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        for deployment in deployments(&format!("manifests/{name}")) {
            // A canary is never deployed, and has no version.
            if deployment.spec.flink_version.is_none() {
                assert_eq!(name, "examples-canary.yaml");
                continue;
            }
            let defaults = operator.defaults("default", deployment.spec.flink_version);
            let effective = effective(defaults, &deployment);
            match native(&cluster("app", &effective)) {
                Ok(resources) => {
                    assert_eq!(resources.notes, [], "{name}");
                    n_native += 1;
                }
                Err(error) => {
                    assert_eq!(
                        error,
                        ResourceError::NotNative {
                            found: "remote".to_owned()
                        },
                        "{name}"
                    );
                    n_standalone += 1;
                }
            }
        }
    }
    assert_eq!((n_native, n_standalone), (20, 1));
}
