//! Containers that clients add to a running pod, to look into it: each runs once, and the pod does not wait for it.

use k8s_openapi::api::core::v1::{Container, PodSpec};

/// The ephemeral containers of a pod, in the form of others.
pub(crate) fn containers(spec: &PodSpec) -> Vec<Container> {
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    // They have the fields of containers, and a target.
    let converted = ephemeral.filter_map(|it| {
        let value = serde_json::to_value(it).ok()?;
        serde_json::from_value(value).ok()
    });
    converted.collect()
}

/// The container whose processes an ephemeral one is to see.
pub(crate) fn target<'a>(spec: &'a PodSpec, container: &str) -> Option<&'a str> {
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    let found = ephemeral.find(|it| it.name == container)?;
    let target = found.target_container_name.as_deref();
    target.filter(|name| !name.is_empty())
}
