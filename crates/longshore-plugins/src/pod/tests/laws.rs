//! Whatever users and servers write: an answer, and always the same.

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::{
    ExtendedResources, GpuAccelerator, SharedMemory, gpu_accelerator::PartitionSizeValue,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::phase, build};
use crate::GracePeriods;

/// JSON with the fields that the code reads, with values of any type.
fn any_json() -> impl Strategy<Value = Value> {
    const FIELDS: [&str; 40] = [
        "containers",
        "initContainers",
        "name",
        "image",
        "args",
        "command",
        "env",
        "envFrom",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "gpu",
        "tolerations",
        "nodeSelector",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "matchExpressions",
        "volumes",
        "volumeMounts",
        "securityContext",
        "restartPolicy",
        "status",
        "phase",
        "conditions",
        "containerStatuses",
        "initContainerStatuses",
        "state",
        "lastState",
        "waiting",
        "running",
        "terminated",
        "exitCode",
        "reason",
        "metadata",
        "annotations",
        "primary_container_name",
    ];
    const TEXTS: [&str; 12] = [
        "",
        "main",
        "1",
        "many",
        "{{.input}}",
        "{{.inputs.x}}",
        "Pending",
        "Running",
        "Failed",
        "Ready",
        "False",
        "OOMKilled",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let field = proptest::sample::select(&FIELDS[..]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(field, inner, 0..6).prop_map(|fields| json!(fields)),
        ]
    })
}

proptest! {
    #[test]
    fn a_pod_of_the_users_is_built_or_refused_and_always_the_same(
        spec in any_json(),
        affinity in any_json(),
        volumes in any_json(),
        container in any_json(),
    ) {
        let mut spec = if spec.is_object() { spec } else { json!({}) };
        spec["affinity"] = affinity;
        spec["volumes"] = volumes;
        if container.is_object() {
            let mut container = container;
            container["name"] = json!("main");
            spec["containers"] = json!([container]);
        }
        let mut template = build::pod_task(&spec);
        template.extended_resources = Some(ExtendedResources {
            gpu_accelerator: Some(GpuAccelerator {
                device: "T4".to_owned(),
                partition_size_value: Some(PartitionSizeValue::Unpartitioned(true)),
                ..GpuAccelerator::default()
            }),
            shared_memory: Some(SharedMemory {
                mount_name: "shm".to_owned(),
                mount_path: "/shm".to_owned(),
                size_limit: String::new(),
            }),
        });
        let first = build::build_with(template.clone(), build::scheduled());
        prop_assert_eq!(first, build::build_with(template, build::scheduled()));
    }

    #[test]
    fn a_pod_of_the_servers_has_a_phase_and_always_the_same(pod in any_json(), status in any_json()) {
        let grace = GracePeriods::default();
        let mut pod = if pod.is_object() { pod } else { json!({}) };
        pod["status"] = status;
        let first = phase::of(&pod, &grace, Timestamp::UNIX_EPOCH);
        prop_assert_eq!(first, phase::of(&pod, &grace, Timestamp::UNIX_EPOCH));
    }
}
