use std::sync::Arc;

use longshore_proto::flyteidl2::core::{
    Container, DataLoadingConfig, ExtendedResources, GpuAccelerator, K8sObjectMetadata, K8sPod,
    Resources, SharedMemory, TaskMetadata, TaskTemplate, TypedInterface, VariableEntry,
    VariableMap,
    gpu_accelerator::{DeviceClass, PartitionSizeValue},
    resources::{ResourceEntry, ResourceName},
    task_template::Target,
};
use serde_json::{Value, json};

use super::super::PodPlugin;
use crate::{
    BuildError, Config, K8sConfig, Plugin, Scheduling, fixtures::context,
    proto_json::struct_from_json,
};

pub(super) fn with(k8s: K8sConfig) -> Arc<Config> {
    Arc::new(Config {
        k8s,
        ..Config::default()
    })
}

pub(super) fn build_with(template: TaskTemplate, config: K8sConfig) -> Result<Value, BuildError> {
    PodPlugin::new(with(config)).build(&context(template, 1))
}

fn build(template: TaskTemplate) -> Result<Value, BuildError> {
    build_with(template, K8sConfig::default())
}

fn entry(name: ResourceName, value: &str) -> ResourceEntry {
    ResourceEntry {
        name: name.into(),
        value: value.to_owned(),
    }
}

/// A task with one container with these requests and limits.
fn container_task(
    task_type: &str,
    requests: Vec<ResourceEntry>,
    limits: Vec<ResourceEntry>,
) -> TaskTemplate {
    TaskTemplate {
        r#type: task_type.to_owned(),
        target: Some(Target::Container(Container {
            image: "busybox".to_owned(),
            command: vec!["sh".to_owned(), "-c".to_owned()],
            args: vec!["echo {{.namespace}}".to_owned()],
            resources: Some(Resources { requests, limits }),
            ..Container::default()
        })),
        ..TaskTemplate::default()
    }
}

/// A task with a pod of its own, whose primary container is `main`.
pub(super) fn pod_task(spec: &Value) -> TaskTemplate {
    TaskTemplate {
        r#type: "python".to_owned(),
        config: [("primary_container_name".to_owned(), "main".to_owned())].into(),
        target: Some(Target::K8sPod(K8sPod {
            pod_spec: Some(struct_from_json(spec)),
            metadata: Some(K8sObjectMetadata {
                labels: [("own".to_owned(), "label".to_owned())].into(),
                annotations: [("own".to_owned(), "annotation".to_owned())].into(),
            }),
            ..K8sPod::default()
        })),
        ..TaskTemplate::default()
    }
}

fn two_containers() -> Value {
    json!({
        "containers": [
            {"name": "main", "image": "a", "args": ["{{.namespace}}"], "futureField": 1},
            {"name": "side", "image": "b", "resources": {"requests": {"cpu": "2"}}},
        ],
        "initContainers": [{"name": "main", "image": "c", "command": ["{{.namespace}}"]}],
        "tolerations": [{"key": "own"}],
        "nodeSelector": {"disk": "own", "zone": "own"},
        "futureField": true,
    })
}

#[test]
fn requests_and_limits_stand_in_for_each_other() {
    use ResourceName::{Cpu, EphemeralStorage, Gpu, Memory};
    let cases = [
        (
            vec![],
            vec![],
            json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}),
        ),
        (
            vec![entry(Cpu, "2"), entry(Memory, "0")],
            vec![entry(Memory, "64Mi")],
            json!({"requests": {"cpu": "2", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "64Mi"}}),
        ),
        (
            vec![entry(Cpu, "1500m"), entry(Memory, "1Gi")],
            vec![entry(Cpu, "1"), entry(Memory, "1025Mi")],
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1025Mi"}}),
        ),
        (
            vec![
                entry(Cpu, "1"),
                entry(Memory, "1Gi"),
                entry(EphemeralStorage, "1Gi"),
            ],
            vec![entry(Gpu, "2")],
            json!({
                "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2"},
                "limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2"},
            }),
        ),
    ];
    for (requests, limits, expected) in cases {
        let pod = build(container_task("python", requests, limits)).unwrap();
        assert_eq!(pod["spec"]["containers"][0]["resources"], expected);
    }
}

#[test]
fn only_the_primary_container_gets_defaults() {
    let pod = build(pod_task(&two_containers())).unwrap();
    let resources = |list: &str, at: usize| &pod["spec"][list][at]["resources"];
    assert_eq!(resources("containers", 0)["limits"]["cpu"], "1000m");
    assert_eq!(
        resources("containers", 1),
        &json!({"requests": {"cpu": "2"}})
    );
    assert_eq!(resources("initContainers", 0), &json!({}));
}

#[test]
fn a_pod_of_the_users_keeps_what_nobody_knows() {
    let pod = build(pod_task(&two_containers())).unwrap();
    assert_eq!(pod["spec"]["futureField"], true);
    assert_eq!(pod["spec"]["containers"][0]["futureField"], 1);
    assert_eq!(pod["spec"]["containers"][0]["args"], json!(["flyte"]));
    assert_eq!(
        pod["spec"]["initContainers"][0]["command"],
        json!(["flyte"])
    );
    assert_eq!(pod["metadata"]["labels"], json!({"own": "label"}));
    assert_eq!(pod["metadata"]["annotations"], json!({"own": "annotation"}));
    assert_eq!(pod["spec"]["enableServiceLinks"], false);
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert_eq!(pod["spec"]["affinity"], json!({}));
    for container in pod["spec"]["containers"].as_array().unwrap() {
        let env = container["env"].as_array().unwrap();
        assert!(env.iter().any(|variable| variable["name"] == "_F_PN"));
    }
}

#[test]
fn the_primary_container_is_named_where_its_end_is_the_tasks_end() {
    let annotation = |template| {
        build(template).unwrap()["metadata"]["annotations"]
            .get("primary_container_name")
            .cloned()
    };
    let of_type = |task_type| container_task(task_type, vec![], vec![]);
    assert_eq!(annotation(of_type("python")), Some(json!("r-a-0")));
    assert_eq!(annotation(of_type("anything")), Some(json!("r-a-0")));
    assert_eq!(annotation(of_type("raw-container")), None);
    assert_eq!(annotation(pod_task(&two_containers())), None);
    let mut sidecar = pod_task(&two_containers());
    sidecar.r#type = "sidecar".to_owned();
    sidecar.task_type_version = 2;
    assert_eq!(annotation(sidecar), Some(json!("main")));
}

#[test]
fn sidecar_tasks_of_both_old_versions_become_pods() {
    let mut zero = TaskTemplate {
        r#type: "sidecar".to_owned(),
        custom: Some(struct_from_json(&json!({
            "PodSpec": two_containers(),
            "primaryContainerName": "side",
            "labels": {"own": "label"},
            "annotations": {"own": "annotation"},
        }))),
        ..TaskTemplate::default()
    };
    let pod = build(zero.clone()).unwrap();
    let annotations = json!({"own": "annotation", "primary_container_name": "side"});
    assert_eq!(pod["metadata"]["annotations"], annotations);
    assert_eq!(pod["metadata"]["labels"], json!({"own": "label"}));
    assert_eq!(
        pod["spec"]["containers"][1]["resources"]["limits"]["cpu"],
        "2"
    );

    let one = TaskTemplate {
        task_type_version: 1,
        custom: Some(struct_from_json(&two_containers())),
        config: [("primary_container_name".to_owned(), "main".to_owned())].into(),
        ..zero.clone()
    };
    let pod = build(one).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["name"], "main");

    zero.custom = None;
    let error = build(zero).unwrap_err();
    assert!(error.message.contains("expected a pod spec"), "{error}");
}

pub(super) fn scheduled() -> K8sConfig {
    let requirement = |key: &str| Some(json!({"key": key, "operator": "Exists"}));
    let labels = |zone: &str| {
        [("zone", zone), ("pool", "default")]
            .map(|(label, value)| (label.to_owned(), value.to_owned()))
            .into()
    };
    K8sConfig {
        scheduling: Scheduling {
            scheduler_name: Some("mine".to_owned()),
            default_tolerations: vec![json!({"key": "default"})],
            default_node_selector: labels("default"),
            interruptible_tolerations: vec![json!({"key": "spot"})],
            interruptible_node_selector: [("zone".to_owned(), "spot".to_owned())].into(),
            interruptible_requirement: requirement("spot"),
            non_interruptible_requirement: requirement("steady"),
            resource_tolerations: [("cpu".to_owned(), vec![json!({"key": "cpu"})])].into(),
            ..Scheduling::default()
        },
        default_security_context: Some(json!({"runAsUser": 1})),
        default_pod_security_context: Some(json!({"fsGroup": 1})),
        default_pod_dns_config: Some(json!({"nameservers": ["10.0.0.1"]})),
        enable_host_networking_pod: Some(true),
        ..K8sConfig::default()
    }
}

#[test]
fn the_configuration_says_where_pods_run() {
    let plugin = PodPlugin::new(with(scheduled()));
    let mut context = context(pod_task(&two_containers()), 1);
    for (is_interruptible, keys, zone, required) in [
        (false, vec!["cpu", "default", "own"], "own", "steady"),
        (true, vec!["cpu", "spot", "default", "own"], "spot", "spot"),
    ] {
        context.is_interruptible = is_interruptible;
        context.service_account = Some("robot".to_owned());
        let pod = plugin.build(&context).unwrap();
        let spec = &pod["spec"];
        let tolerations = spec["tolerations"].as_array().unwrap();
        let found: Vec<&str> = tolerations
            .iter()
            .map(|t| t["key"].as_str().unwrap())
            .collect();
        assert_eq!(found, keys);
        assert_eq!(
            spec["nodeSelector"],
            json!({"disk": "own", "pool": "default", "zone": zone})
        );
        assert_eq!(
            spec["affinity"],
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": required, "operator": "Exists"}]}],
            }}})
        );
        assert_eq!(spec["serviceAccountName"], "robot");
        assert_eq!(spec["schedulerName"], "mine");
        assert_eq!(spec["hostNetwork"], true);
        assert_eq!(spec["securityContext"], json!({"fsGroup": 1}));
        assert_eq!(spec["dnsConfig"], json!({"nameservers": ["10.0.0.1"]}));
        let own = |at: usize| spec["containers"][at].get("securityContext");
        assert_eq!(own(0), Some(&json!({"runAsUser": 1})));
        assert_eq!(own(1), None);
    }
}

#[test]
fn requirements_are_added_to_every_alternative_of_the_user() {
    let mut spec = two_containers();
    let own = json!({"key": "own", "operator": "Exists"});
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [own]}, {"matchFields": []}],
    }}});
    let pod = build_with(pod_task(&spec), scheduled()).unwrap();
    let steady = json!({"key": "steady", "operator": "Exists"});
    assert_eq!(
        pod.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"),
        Some(&json!([
            {"matchExpressions": [own, steady]},
            {"matchFields": [], "matchExpressions": [steady]},
        ]))
    );
}

#[test]
fn variables_come_in_upstreams_order() {
    let strings = |name: &str| [(name.to_owned(), "x".to_owned())].into();
    let config = K8sConfig {
        default_env_vars: strings("DEFAULT"),
        default_env_vars_from_env: strings("FROM_ENV"),
        default_env_from_secrets: vec!["s".to_owned()],
        default_env_from_config_maps: vec!["c".to_owned()],
        ..K8sConfig::default()
    };
    let mut spec = two_containers();
    spec["containers"][0]["env"] = json!([{"name": "OWN", "value": "x"}]);
    spec["containers"][0]["envFrom"] = json!([{"prefix": "OWN"}]);
    let pod = build_with(pod_task(&spec), config).unwrap();
    let container = &pod["spec"]["containers"][0];
    let names: Vec<&str> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "OWN",
            "FLYTE_INTERNAL_EXECUTION_ID",
            "FLYTE_INTERNAL_EXECUTION_PROJECT",
            "FLYTE_INTERNAL_EXECUTION_DOMAIN",
            "_F_PN",
            "FLYTE_ATTEMPT_NUMBER",
            "ACTION_NAME",
            "RUN_NAME",
            "_U_ORG_NAME",
            "_U_RUN_BASE",
            "DEFAULT",
            "FROM_ENV",
        ]
    );
    assert_eq!(
        container["envFrom"],
        json!([
            {"prefix": "OWN"},
            {"secretRef": {"name": "s", "optional": true}},
            {"configMapRef": {"name": "c", "optional": true}},
        ])
    );
}

fn with_extended(extended: ExtendedResources) -> TaskTemplate {
    TaskTemplate {
        extended_resources: Some(extended),
        ..container_task("python", vec![], vec![entry(ResourceName::Gpu, "1")])
    }
}

#[test]
fn accelerators_choose_their_nodes() {
    let accelerated = |class: DeviceClass, device: &str, partition| {
        let template = with_extended(ExtendedResources {
            gpu_accelerator: Some(GpuAccelerator {
                device: device.to_owned(),
                device_class: class.into(),
                partition_size_value: partition,
                ..GpuAccelerator::default()
            }),
            ..ExtendedResources::default()
        });
        build(template).unwrap()
    };
    let pod = accelerated(
        DeviceClass::NvidiaGpu,
        "a100",
        Some(PartitionSizeValue::PartitionSize("3g.20gb".to_owned())),
    );
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"platform.union.ai/gpu-partition-slices": "3"})
    );
    let device = "k8s.amazonaws.com/accelerator";
    let size = "k8s.amazonaws.com/gpu-partition-size";
    assert_eq!(
        pod["spec"]["tolerations"],
        json!([
            {"key": device, "value": "nvidia-tesla-a100", "operator": "Equal", "effect": "NoSchedule"},
            {"key": size, "value": "3g.20gb", "operator": "Equal", "effect": "NoSchedule"},
        ])
    );
    let pod = accelerated(
        DeviceClass::GoogleTpu,
        "v5e",
        Some(PartitionSizeValue::Unpartitioned(true)),
    );
    let terms = pod.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    assert_eq!(
        terms,
        Some(&json!([{"matchExpressions": [
            {"key": "cloud.google.com/gke-tpu-accelerator", "operator": "In", "values": ["tpu-v5-lite-podslice"]},
            {"key": "cloud.google.com/gke-tpu-topology", "operator": "DoesNotExist"},
        ]}]))
    );
    let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits["google.com/tpu"], "1");
}

#[test]
fn shared_memory_is_a_volume_of_the_primary_container() {
    let memory = |name: &str, limit: &str| ExtendedResources {
        shared_memory: Some(SharedMemory {
            mount_name: name.to_owned(),
            mount_path: "/dev/shm".to_owned(),
            size_limit: limit.to_owned(),
        }),
        ..ExtendedResources::default()
    };
    let pod = build(with_extended(memory("shm", "2Gi"))).unwrap();
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}])
    );
    assert_eq!(
        pod["spec"]["containers"][0]["volumeMounts"],
        json!([{"name": "shm", "mountPath": "/dev/shm"}])
    );
    for (extended, problem) in [
        (memory("", ""), "mount name"),
        (memory("shm", "much"), "much"),
    ] {
        let error = build(with_extended(extended)).unwrap_err();
        assert!(error.message.contains(problem), "{error}");
    }
}

#[test]
fn templates_that_cannot_become_a_pod_are_refused() {
    let without_primary = TaskTemplate {
        config: Default::default(),
        ..pod_task(&two_containers())
    };
    let mut co_pilot = container_task("raw-container", vec![], vec![]);
    if let Some(Target::Container(container)) = &mut co_pilot.target {
        container.data_config = Some(DataLoadingConfig {
            enabled: true,
            ..DataLoadingConfig::default()
        });
    }
    co_pilot.interface = Some(TypedInterface {
        inputs: Some(VariableMap {
            variables: vec![VariableEntry::default()],
        }),
        outputs: None,
    });
    let pod_template = TaskTemplate {
        metadata: Some(TaskMetadata {
            pod_template_name: "gpu".to_owned(),
            ..TaskMetadata::default()
        }),
        ..container_task("python", vec![], vec![])
    };
    let cpu = |value: &str| vec![entry(ResourceName::Cpu, value)];
    for (template, problem) in [
        (TaskTemplate::default(), "found none"),
        (without_primary, "primary_container_name"),
        (
            pod_task(&json!({"containers": [{"name": "other"}]})),
            "\"main\", found none",
        ),
        (pod_task(&json!({"containers": {}})), "a list of containers"),
        (pod_task(&json!({"containers": [1]})), "expected objects"),
        (container_task("python", cpu("many"), vec![]), "\"many\""),
        (co_pilot, "storage.stow.kind"),
        (pod_template, "PodTemplate 'gpu' does not exist"),
    ] {
        let error = build(template).unwrap_err();
        assert_eq!(error.code, "BadTaskSpecification");
        assert!(error.message.contains(problem), "{error}");
    }
}

#[test]
fn inputs_are_asked_for_only_where_a_template_needs_them() {
    let plugin = PodPlugin::new(Arc::default());
    let needs = |template| plugin.needs_inputs(&context(template, 1));
    assert!(!needs(container_task("python", vec![], vec![])));
    let mut spec = two_containers();
    assert!(!needs(pod_task(&spec)));
    spec["initContainers"][0]["args"] = json!(["{{.inputs.x}}"]);
    assert!(needs(pod_task(&spec)));
}

#[test]
fn a_container_whose_name_cannot_be_the_pods_has_another_stable_one() {
    let mut context = context(container_task("python", vec![], vec![]), 1);
    context.generated_name = "r.a-0".to_owned();
    let plugin = PodPlugin::new(Arc::default());
    let pod = plugin.build(&context).unwrap();
    let name = pod["spec"]["containers"][0]["name"].as_str().unwrap();
    assert!(longshore_k8s::names::is_label(name), "{name}");
    assert_eq!(pod, plugin.build(&context).unwrap());
    assert_eq!(plugin.resource_name(&context), "r.a-0");
}
