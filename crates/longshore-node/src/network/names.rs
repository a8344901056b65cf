//! What a pod and its images say about its network, and what its containers see of it. Pure.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::Path,
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use longshore_k8s::names::is_label;

use super::hosts::OwnNames;
use crate::{
    api_server::API_SERVER,
    images::{Egress, Image, ImageMap, NetworkMode},
    shim::protocol::{ContainerSpec, MountSpec, Origin, RootSpec, Sandbox},
};

/// Files in the directory of a pod.
pub(super) const HOSTS: &str = "hosts";
pub(super) const RESOLVER: &str = "resolv.conf";

/// Whether a pod shall have a network of its own: an entry of one of its images says so, or the node gives one to all.
pub(crate) fn is_wanted(pod: &Pod, images: &ImageMap, is_for_all: bool) -> bool {
    let spec = pod.spec.as_ref();
    let is_hosts = spec.is_some_and(|it| it.host_network == Some(true));
    let is_asked = || entries(pod, images).any(|it| it.network == NetworkMode::Pod);
    !is_hosts && (is_for_all || is_asked())
}

/// The ports of the host that the images of a pod need.
pub(super) fn host_ports(pod: &Pod, images: &ImageMap) -> BTreeSet<u16> {
    let entries = entries(pod, images);
    entries.flat_map(|it| it.host_ports).collect()
}

/// Whether the containers of a pod may talk to other networks: they share one, so that one image opens it for all.
pub(super) fn has_way_out(pod: &Pod, images: &ImageMap) -> bool {
    entries(pod, images).any(|it| it.egress == Egress::Host)
}

fn entries(pod: &Pod, images: &ImageMap) -> impl Iterator<Item = Image> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|it| it.init_containers.iter().flatten().chain(&it.containers));
    containers.map(move |it| images.resolve(it.image.as_deref().unwrap_or_default()))
}

/// The names of a pod in its own hosts file.
pub(super) fn own(pod: &Pod, address: Ipv4Addr) -> OwnNames {
    let spec = pod.spec.as_ref();
    let aliases = spec.and_then(|it| it.host_aliases.as_ref());
    let aliases = aliases.into_iter().flatten();
    OwnNames {
        address,
        namespace: pod.namespace().unwrap_or_default(),
        hostname: hostname(pod),
        subdomain: spec
            .and_then(|it| it.subdomain.clone())
            .filter(|it| is_label(it)),
        aliases: aliases
            .map(|it| (it.ip.clone(), it.hostnames.clone().unwrap_or_default()))
            .collect(),
    }
}

/// The host name of a pod: the one that it asks for, if it is one, else its name as far as a host name may be long.
pub(crate) fn hostname(pod: &Pod) -> String {
    let asked = pod.spec.as_ref().and_then(|it| it.hostname.clone());
    let mut name = asked
        .filter(|it| is_label(it))
        .unwrap_or_else(|| pod.name_any());
    name.truncate(63);
    name.trim_end_matches(['-', '.']).to_owned()
}

/// Where the API server listens, and where pods with a network reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApiServer {
    pub(super) on_host: SocketAddr,
    pub(super) inside: SocketAddrV4,
}

/// Shows a container the names of its pod's network, and where the API server is. Variables that name another API
/// server stay.
pub(crate) fn equip(spec: &mut ContainerSpec, dir: &Path, api_server: Option<ApiServer>) {
    if let Some(ApiServer { on_host, inside }) = api_server {
        let ports = (on_host.port().to_string(), inside.port().to_string());
        let hosts = (on_host.ip().to_string(), inside.ip().to_string());
        let values = [hosts, ports.clone(), ports];
        for (name, (of_host, of_pods)) in API_SERVER.into_iter().zip(values) {
            match spec.env.iter_mut().find(|(known, _)| known == name) {
                Some((_, value)) if *value == of_host => *value = of_pods,
                Some(_) => {}
                None => spec.env.push((name.to_owned(), of_pods)),
            }
        }
    }
    match &mut spec.sandbox {
        Sandbox::Full(root) | Sandbox::User(root) => mount(root, dir),
        Sandbox::None => {}
    }
}

/// In front of the pod's own mounts, which may cover these files with others.
fn mount(root: &mut RootSpec, dir: &Path) {
    let file = |name: &str| MountSpec {
        origin: Origin::Node,
        within: None,
        source: dir.join(name),
        target: Path::new("/etc").join(name),
        read_only: true,
    };
    root.mounts.splice(0..0, [file(HOSTS), file(RESOLVER)]);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::shim::protocol::{Interaction, TerminationSpec, UserSpec};

    fn images() -> ImageMap {
        ImageMap::parse(
            "db: {network: pod, hostPorts: [5432]}\n\
             cache: {network: pod, hostPorts: [5432, 6379], egress: host}\n\
             plain: {entrypoint: [x]}\n",
        )
        .unwrap()
    }

    fn pod(spec: Value) -> Pod {
        let pod = json!({"metadata": {"name": "p", "namespace": "team"}, "spec": spec});
        serde_json::from_value(pod).unwrap()
    }

    fn with(images: &[&str]) -> Value {
        let containers: Vec<Value> = images
            .iter()
            .map(|image| json!({"name": image, "image": image}))
            .collect();
        json!({"containers": containers})
    }

    #[test]
    fn an_image_or_the_node_gives_a_pod_a_network() {
        let mut on_host = with(&["db"]);
        on_host["hostNetwork"] = json!(true);
        let mut by_init = with(&["plain"]);
        by_init["initContainers"] = with(&["db"])["containers"].clone();
        for (spec, of_image, of_node) in [
            (with(&["plain"]), false, true),
            (with(&["plain", "db"]), true, true),
            (by_init, true, true),
            (on_host, false, false),
        ] {
            let pod = pod(spec);
            let found = (
                is_wanted(&pod, &images(), false),
                is_wanted(&pod, &images(), true),
            );
            assert_eq!(found, (of_image, of_node), "{pod:?}");
        }
    }

    #[test]
    fn the_containers_of_a_pod_share_ports_and_the_way_out() {
        for (of, ports, is_open) in [
            (&["plain"][..], &[][..], false),
            (&["db"][..], &[5432][..], false),
            (&["db", "cache"][..], &[5432, 6379][..], true),
        ] {
            let pod = pod(with(of));
            let ports: BTreeSet<u16> = ports.iter().copied().collect();
            assert_eq!(host_ports(&pod, &images()), ports, "{of:?}");
            assert_eq!(has_way_out(&pod, &images()), is_open, "{of:?}");
        }
    }

    #[test]
    fn a_pod_is_known_by_its_host_name_and_its_service() {
        let mut spec = with(&["db"]);
        spec["hostname"] = json!("db-0");
        spec["subdomain"] = json!("db");
        spec["hostAliases"] = json!([{"ip": "1.2.3.4", "hostnames": ["a"]}]);
        let expected = OwnNames {
            address: Ipv4Addr::LOCALHOST,
            namespace: "team".into(),
            hostname: "db-0".into(),
            subdomain: Some("db".into()),
            aliases: vec![("1.2.3.4".into(), vec!["a".into()])],
        };
        assert_eq!(own(&pod(spec), Ipv4Addr::LOCALHOST), expected);
        let mut wrong = with(&["db"]);
        wrong["hostname"] = json!("q\n6.6.6.6\tpay.default.svc");
        wrong["subdomain"] = json!("db e");
        let names = own(&pod(wrong), Ipv4Addr::LOCALHOST);
        assert_eq!((names.hostname.as_str(), names.subdomain), ("p", None));
        let mut long = pod(with(&["db"]));
        long.metadata.name = Some(format!("{}-tail", "x".repeat(62)));
        assert_eq!(hostname(&long), "x".repeat(62));
    }

    fn container(env: &[(&str, &str)]) -> ContainerSpec {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        ContainerSpec {
            argv: Vec::new(),
            env: env.iter().map(own).collect(),
            workdir: "/".into(),
            log: PathBuf::new(),
            sandbox: Sandbox::Full(RootSpec {
                base: "/".into(),
                hostname: "p".into(),
                read_only: false,
                hide: Vec::new(),
                mounts: vec![MountSpec {
                    origin: Origin::Node,
                    within: None,
                    source: "/own".into(),
                    target: "/etc/hosts".into(),
                    read_only: false,
                }],
            }),
            user: UserSpec::default(),
            termination: TerminationSpec {
                path: "/dev/termination-log".into(),
                fallback_to_logs: false,
            },
            memory: None,
            processes: None,
            interaction: Interaction::default(),
        }
    }

    #[test]
    fn a_container_finds_names_and_the_api_server_unless_it_brings_its_own() {
        let api_server = ApiServer {
            on_host: "127.0.0.1:7443".parse().unwrap(),
            inside: "10.96.0.1:443".parse().unwrap(),
        };
        let mut spec = container(&[
            ("KUBERNETES_SERVICE_HOST", "elsewhere"),
            ("KUBERNETES_SERVICE_PORT", "7443"),
        ]);
        equip(&mut spec, Path::new("/pods/u"), Some(api_server));
        let env: Vec<String> = spec.env.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(
            env,
            [
                "KUBERNETES_SERVICE_HOST=elsewhere",
                "KUBERNETES_SERVICE_PORT=443",
                "KUBERNETES_SERVICE_PORT_HTTPS=443",
            ]
        );
        let Sandbox::Full(root) = spec.sandbox else {
            panic!("it was full")
        };
        let sources: Vec<_> = root.mounts.iter().map(|it| it.source.clone()).collect();
        assert_eq!(
            sources,
            ["/pods/u/hosts", "/pods/u/resolv.conf", "/own"].map(PathBuf::from)
        );
        let mut spec = container(&[]);
        equip(&mut spec, Path::new("/pods/u"), None);
        assert!(spec.env.is_empty());
    }
}
