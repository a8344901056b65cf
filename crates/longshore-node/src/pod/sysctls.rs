//! The parameters of the kernel that a pod sets for itself: which ones the node allows, as a kubelet without options does.

use k8s_openapi::api::core::v1::{Pod, Sysctl};

use crate::refusal::Refusal;

/// What a pod may set: it counts for this pod only, and has no effect on others.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Why the node does not set them; `None` = it does, or there are none.
pub(crate) fn refusal(pod: &Pod, has_network: bool) -> Option<Refusal> {
    if let Some(unsafe_one) = of(pod).find(|it| !SAFE.contains(&&*with_dots(&it.name))) {
        let name = with_dots(&unsafe_one.name);
        let message = format!("forbidden sysctl: {name:?} not allowlisted");
        return Some(Refusal::rejection("SysctlForbidden", message));
    }
    let is_refused = !has_network && of(pod).next().is_some();
    is_refused.then(|| {
        Refusal::pod(
            "this node sets sysctls for pods with a network of their own only: write `network: pod` to the image's entry \
             in images.yaml, or start Longshore with --pod-network",
        )
    })
}

/// `NAME=VALUE` of each, for the shim.
pub(crate) fn settings(pod: &Pod) -> Vec<String> {
    of(pod)
        .map(|it| format!("{}={}", with_dots(&it.name), it.value))
        .collect()
}

fn of(pod: &Pod) -> impl Iterator<Item = &Sysctl> {
    let spec = pod.spec.iter();
    let contexts = spec.filter_map(|spec| spec.security_context.as_ref());
    contexts.flat_map(|it| it.sysctls.iter().flatten())
}

/// The name with dots between its words. None of those that are safe has a dot or a slash in a word.
fn with_dots(name: &str) -> String {
    name.replace('/', ".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(sysctls: &[(&str, &str)]) -> Pod {
        let sysctls: Vec<_> = sysctls
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        let spec = json!({"containers": [], "securityContext": {"sysctls": sysctls}});
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn only_what_is_safe_is_set_and_only_in_a_network_of_the_pod() {
        let safe = ("net.ipv4.tcp_rmem", "4096 8192 16384");
        let slashes = ("kernel/shm_rmid_forced", "1");
        let forbidden = ("kernel.msgmax", "1");
        for (sysctls, has_network, expected) in [
            (&[][..], false, ""),
            (&[safe, slashes][..], true, ""),
            (&[safe], false, "CreateContainerConfigError"),
            (&[safe, forbidden], true, "SysctlForbidden"),
            (&[forbidden], false, "SysctlForbidden"),
            (&[("net.core.somaxconn", "1")], true, "SysctlForbidden"),
        ] {
            let found = refusal(&pod(sysctls), has_network);
            let reason = found.as_ref().map_or("", |it| it.reason);
            assert_eq!(reason, expected, "{sysctls:?} {has_network}");
            let is_final = found.is_some_and(|it| it.is_rejection());
            assert_eq!(is_final, expected == "SysctlForbidden", "{sysctls:?}");
        }
        assert_eq!(
            settings(&pod(&[safe, slashes])),
            [
                "net.ipv4.tcp_rmem=4096 8192 16384",
                "kernel.shm_rmid_forced=1"
            ]
        );
    }
}
