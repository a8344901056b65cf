//! What this node does not support yet. A pod that requests it waits with a message; the node
//! ignores nothing that would change what the containers of the pod do.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, VolumeMount};

use crate::{profile::Profile, refusal::Refusal};

/// Where API servers mount the token of a service account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the name of the volume begins with.
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";

/// The first unsupported thing that the pod requests.
pub(crate) fn find(pod: &Pod, profile: Profile) -> Option<Refusal> {
    let spec = pod.spec.as_ref()?;
    let of_pod =
        in_pod(spec).map(|what| Refusal::pod(format!("this node does not support {what}")));
    of_pod.or_else(|| {
        let init = spec.init_containers.iter().flatten();
        let mut sidecars = init.clone().filter(|c| c.restart_policy.is_some());
        if let Some(sidecar) = sidecars.next() {
            let message =
                "this node does not support init containers with a restartPolicy (sidecars)";
            return Some(Refusal::config(&sidecar.name, message));
        }
        init.chain(&spec.containers).find_map(|c| {
            let what = in_container(c, spec, profile)?;
            Some(Refusal::config(
                &c.name,
                format!("this node does not support {what}"),
            ))
        })
    })
}

fn in_pod(spec: &PodSpec) -> Option<&'static str> {
    let security = spec.security_context.as_ref();
    let asks = [
        (spec.host_pid == Some(true), "hostPID"),
        (
            spec.share_process_namespace == Some(true),
            "shareProcessNamespace",
        ),
        (
            spec.host_aliases.iter().flatten().next().is_some(),
            "hostAliases",
        ),
        (
            spec.dns_config.is_some(),
            "dnsConfig: pods resolve names as the host does",
        ),
        (spec.dns_policy.as_deref() == Some("None"), "dnsPolicy None"),
        (
            spec.resource_claims.iter().flatten().next().is_some(),
            "resourceClaims",
        ),
        (spec.runtime_class_name.is_some(), "runtimeClassName"),
        (
            spec.os.as_ref().is_some_and(|os| os.name != "linux"),
            "an operating system other than linux",
        ),
        (
            security.is_some_and(|s| s.sysctls.iter().flatten().next().is_some()),
            "sysctls",
        ),
    ];
    asks.into_iter()
        .find_map(|(is_asked, what)| is_asked.then_some(what))
}

fn in_container(c: &Container, spec: &PodSpec, profile: Profile) -> Option<&'static str> {
    let hooks = c.lifecycle.as_ref();
    let security = c.security_context.as_ref();
    let mounts = || c.volume_mounts.iter().flatten();
    let asks = [
        (
            [&c.startup_probe, &c.readiness_probe, &c.liveness_probe]
                .into_iter()
                .flatten()
                .any(|probe| probe.grpc.is_some()),
            "grpc probes",
        ),
        (
            hooks.is_some_and(|h| h.post_start.is_some()),
            "lifecycle.postStart",
        ),
        (
            hooks.is_some_and(|h| h.pre_stop.is_some()),
            "lifecycle.preStop",
        ),
        (
            c.restart_policy.is_some(),
            "a restartPolicy of a single container",
        ),
        (c.tty == Some(true), "tty"),
        (
            c.volume_devices.iter().flatten().next().is_some(),
            "volumeDevices",
        ),
        (
            security.is_some_and(|s| s.privileged == Some(true)),
            "privileged containers",
        ),
        (
            mounts().any(|m| m.mount_propagation.as_deref().is_some_and(|p| p != "None")),
            "mountPropagation other than None",
        ),
        (
            profile == Profile::None && mounts().any(|m| !is_automatic(m)),
            "volumeMounts, because it may not make mount namespaces (profile none)",
        ),
        (
            profile != Profile::Full && !supplemental_groups(spec).is_empty(),
            "supplementalGroups and fsGroup without root (only profile full does)",
        ),
    ];
    asks.into_iter()
        .find_map(|(is_asked, what)| is_asked.then_some(what))
}

/// Whether the API server has added a mount to each container: nobody asked for it, so a node that cannot mount leaves it out.
fn is_automatic(mount: &VolumeMount) -> bool {
    mount.mount_path == TOKEN_PATH && mount.name.starts_with(TOKEN_VOLUME_PREFIX)
}

/// The groups that a pod's programs get besides their own.
pub(crate) fn supplemental_groups(spec: &PodSpec) -> Vec<i64> {
    let security = spec.security_context.as_ref();
    let groups = security
        .iter()
        .flat_map(|s| s.supplemental_groups.iter().flatten().copied());
    groups.chain(security.and_then(|s| s.fs_group)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn without_mounts_a_pod_lacks_the_token_that_it_did_not_ask_for() {
        for (name, path, is_refused) in [
            ("kube-api-access-x2x4z", TOKEN_PATH, false),
            ("mine", TOKEN_PATH, true),
            ("kube-api-access-x2x4z", "/elsewhere", true),
        ] {
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
                {"name": "c", "volumeMounts": [{"name": name, "mountPath": path}]},
            ]}}))
            .unwrap();
            let found = find(&pod, Profile::None);
            assert_eq!(found.is_some(), is_refused, "{name} {path}");
            assert!(find(&pod, Profile::User).is_none());
        }
    }
}
