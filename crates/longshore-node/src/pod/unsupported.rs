//! What this node does not support yet. A pod that requests it waits with a message; the node
//! ignores nothing that would change what the containers of the pod do.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SeccompProfile, VolumeMount};

use super::ephemeral;
use crate::{profile::Profile, refusal::Refusal};

/// Where API servers mount the token of a service account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the name of the volume begins with.
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";

/// The first unsupported thing that the pod requests.
pub(crate) fn find(pod: &Pod, profile: Profile) -> Option<Refusal> {
    let spec = pod.spec.as_ref()?;
    let of_pod = in_pod(spec, profile)
        .map(|what| Refusal::pod(format!("this node does not support {what}")));
    of_pod.or_else(|| {
        let mut main = spec.containers.iter();
        if let Some(own) = main.find(|c| c.restart_policy.is_some()) {
            let message = "this node does not support a restartPolicy of a main container";
            return Some(Refusal::config(&own.name, message));
        }
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers).find_map(|c| {
            let what = in_container(c, spec, profile)?;
            Some(Refusal::config(
                &c.name,
                format!("this node does not support {what}"),
            ))
        })
    })
}

/// The first unsupported thing that an ephemeral container requests.
pub(crate) fn in_ephemeral(c: &Container, spec: &PodSpec, profile: Profile) -> Option<Refusal> {
    let what = match ephemeral::target(spec, &c.name) {
        Some(_) => "a targetContainerName: containers do not see each other's processes",
        None => in_container(c, spec, profile)?,
    };
    let message = format!("this node does not support {what}");
    Some(Refusal::config(&c.name, message))
}

fn in_pod(spec: &PodSpec, profile: Profile) -> Option<&'static str> {
    let security = spec.security_context.as_ref();
    let asks = [
        (spec.host_pid == Some(true), "hostPID"),
        (
            spec.share_process_namespace == Some(true),
            "shareProcessNamespace",
        ),
        (
            profile == Profile::None && spec.host_aliases.iter().flatten().next().is_some(),
            "hostAliases, because it may not make mount namespaces (profile none)",
        ),
        (
            spec.dns_config.is_some(),
            "dnsConfig: pods resolve names as the host or their network does",
        ),
        (spec.dns_policy.as_deref() == Some("None"), "dnsPolicy None"),
        (
            spec.resource_claims.iter().flatten().next().is_some(),
            "resourceClaims",
        ),
        (
            spec.os.as_ref().is_some_and(|os| os.name != "linux"),
            "an operating system other than linux",
        ),
        (
            security.is_some_and(|s| is_local_profile(s.seccomp_profile.as_ref())),
            "a seccompProfile of a file",
        ),
        (
            security.is_some_and(|s| s.se_linux_options.is_some()),
            "seLinuxOptions",
        ),
    ];
    asks.into_iter()
        .find_map(|(is_asked, what)| is_asked.then_some(what))
}

fn in_container(c: &Container, spec: &PodSpec, profile: Profile) -> Option<&'static str> {
    let security = c.security_context.as_ref();
    let mounts = || c.volume_mounts.iter().flatten();
    let asks = [
        (
            c.restart_policy.as_deref().is_some_and(|it| it != "Always"),
            "an init container with a restartPolicy other than Always",
        ),
        (
            c.volume_devices.iter().flatten().next().is_some(),
            "volumeDevices",
        ),
        (
            security.is_some_and(|s| s.privileged == Some(true)),
            "privileged containers",
        ),
        (
            profile == Profile::None
                && security.is_some_and(|s| s.read_only_root_filesystem == Some(true)),
            "readOnlyRootFilesystem, because it may not make mount namespaces (profile none)",
        ),
        (
            security.is_some_and(|s| is_local_profile(s.seccomp_profile.as_ref())),
            "a seccompProfile of a file",
        ),
        (
            security.is_some_and(|s| s.se_linux_options.is_some()),
            "seLinuxOptions",
        ),
        (
            security.is_some_and(|s| s.proc_mount.as_deref().is_some_and(|it| it != "Default")),
            "a procMount other than Default",
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

fn is_local_profile(profile: Option<&SeccompProfile>) -> bool {
    profile.is_some_and(|profile| profile.type_ == "Localhost")
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
    use serde_json::{Value, from_value, json};

    use super::*;

    fn refused(pod: &Value, container: &Value, profile: Profile) -> String {
        let (mut spec, mut main) = (pod.clone(), container.clone());
        main["name"] = json!("main");
        spec["containers"] = json!([main]);
        let pod: Pod = from_value(json!({"spec": spec})).unwrap();
        find(&pod, profile).map_or_else(String::new, |refusal| refusal.message)
    }

    #[test]
    fn what_would_change_a_container_and_cannot_be_done_is_refused() {
        use Profile::{Full, None, User};
        let no = json!({});
        let hook = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}});
        let sidecar = json!({"initContainers": [{"name": "a", "restartPolicy": "Always"}]});
        let other = json!({"initContainers": [{"name": "a", "restartPolicy": "Never"}]});
        let aliases = json!({"hostAliases": [{"ip": "::1"}]});
        let read_only = json!({"securityContext": {"readOnlyRootFilesystem": true}});
        let local = json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}});
        let default = json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}});
        let groups = json!({"securityContext": {"fsGroup": 1}});
        for (pod, container, profile, expected) in [
            (&no, &hook, None, ""),
            (
                &no,
                &json!({"livenessProbe": {"grpc": {"port": 1}}}),
                None,
                "",
            ),
            (&sidecar, &no, None, ""),
            (&other, &no, None, "other than Always"),
            (
                &no,
                &json!({"restartPolicy": "Never"}),
                Full,
                "restartPolicy of a main",
            ),
            (&aliases, &no, User, ""),
            (&aliases, &no, None, "hostAliases"),
            (&no, &read_only, User, ""),
            (&no, &read_only, None, "readOnlyRootFilesystem"),
            (&local, &no, Full, "seccompProfile"),
            (&no, &local, Full, "seccompProfile"),
            (&default, &default, None, ""),
            (&groups, &no, Full, ""),
            (&groups, &no, User, "fsGroup"),
        ] {
            let told = refused(pod, container, profile);
            let holds = told.contains(expected) && told.is_empty() == expected.is_empty();
            assert!(holds, "{pod} {container} {profile}: {told}");
        }
    }

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
