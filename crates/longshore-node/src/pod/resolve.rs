//! From the pod as it is written to containers as the shim runs them.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use nix::unistd::{Uid, User, geteuid};

use super::{ephemeral, hosts, runtime, security::user, sysctls, unsupported};
use crate::{
    api_server, claims, clock,
    env::{Environment, HostFacts, environment},
    images::{Image, RootFs, image_refusal},
    network,
    node::Shared,
    profile::Profile,
    refusal::Refusal,
    shim::protocol::{
        ContainerSpec, Interaction, MountSpec, Origin, RootSpec, Sandbox, TerminationSpec, UserSpec,
    },
    sources::{self, Sources, Tokens},
    volumes,
};

/// The search path of containers whose image has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Kubernetes' default of `terminationMessagePath`.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// A pod that cannot read its configuration in this time passes its turn to start to another pod.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A pod's containers by name, without the log files of single attempts.
pub(crate) type Specs = BTreeMap<String, ContainerSpec>;

/// A pod that is ready to run.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) specs: Specs,
    /// Why ephemeral containers cannot be made: the others run without them.
    pub(crate) refused: BTreeMap<String, Refusal>,
    /// Why containers cannot be made that others do not wait for.
    pub(crate) withheld: BTreeMap<String, Refusal>,
    /// What its volumes hold.
    pub(crate) tokens: Tokens,
    /// The namespace of its network, where it has one of its own.
    pub(crate) network: Option<OwnedFd>,
}

/// Reads what the pod refers to, makes its volumes and its network, and resolves every name in it. Tokens that are `known`
/// are used as long as they are good.
pub(crate) async fn resolve(
    shared: &Shared,
    pod: &Pod,
    pod_ip: Ipv4Addr,
    dir: &Path,
    known: &Tokens,
) -> Result<Resolved, Refusal> {
    let has_network = network::is_of_a_pod(pod_ip);
    check_support(shared, pod, has_network).await?;
    let config = &shared.config;
    let wants_network = network::is_wanted(pod, &config.images, config.pod_network);
    if shared.profile == Profile::None && wants_network {
        return Err(Refusal::pod(
            "the pod shall have a network of its own, and this node may not make network namespaces (profile none): \
             let it run as root, or allow user namespaces, or leave out --pod-network and `network: pod`",
        ));
    }
    for container in containers(pod) {
        check_image(shared, container)?;
    }
    let sources = read_sources(shared, pod, known).await?;
    let links = shared.network.links_of(pod, pod_ip).await;
    let host = HostFacts {
        links: links.map_err(|e| Refusal::io("find the Services of the pod's namespace", &e))?,
        ..host_facts(shared, pod_ip)
    };
    tokio::time::timeout(READ_TIMEOUT, claims::hold(shared, pod, dir))
        .await
        .map_err(|e| Refusal::machine(format!("cannot read the pod's claims: {e}")))??;
    let claims = shared.volumes_dir();
    let store = volumes::Store {
        pod_dir: dir,
        claims: &claims,
        hidden: &config.hidden,
        pod,
        sources: &sources,
        host: &host,
    };
    let volumes = volumes::prepare(&store)?;
    if let Some(spec) = pod.spec.as_ref().filter(|_| !has_network) {
        hosts::prepare(dir, spec)?;
    }
    let uid = pod.uid().unwrap_or_default();
    let counted = shared.cgroups.prepare(&uid);
    counted.map_err(|e| Refusal::io("limit the number of processes of the pod", &e))?;
    let (mut specs, withheld) = lasting_specs(shared, pod, (&sources, &volumes, &host))?;
    let refused = add_ephemeral(shared, pod, (&sources, &volumes, &host), &mut specs);
    if has_network {
        let api_server = shared.network.api_server_of(pod_ip);
        let specs = specs.values_mut();
        specs.for_each(|spec| network::equip(spec, dir, api_server));
    }
    let network = shared.network.attach(&uid).await;
    let network = network.map_err(|e| Refusal::io("make the network of the pod", &e))?;
    Ok(Resolved {
        specs,
        refused,
        withheld,
        tokens: sources.into_tokens(),
        network,
    })
}

/// The containers that can be made, and why others cannot: as on a kubelet, those wait alone, each for its turn.
///
/// # Errors
/// None can be made.
fn lasting_specs(
    shared: &Shared,
    pod: &Pod,
    (sources, volumes, host): (&Sources, &BTreeMap<String, PathBuf>, &HostFacts),
) -> Result<(Specs, BTreeMap<String, Refusal>), Refusal> {
    let (mut specs, mut withheld) = (Specs::new(), BTreeMap::new());
    let mut first = None;
    for container in containers(pod) {
        match spec(shared, pod, container, sources, volumes, host) {
            Ok(made) => drop(specs.insert(container.name.clone(), made)),
            Err(refusal) => {
                first.get_or_insert_with(|| refusal.clone());
                withheld.insert(container.name.clone(), refusal);
            }
        }
    }
    match first {
        Some(refusal) if specs.is_empty() => Err(refusal),
        Some(_) | None => Ok((specs, withheld)),
    }
}

/// Adds the ephemeral containers that can be made, and returns why others cannot.
fn add_ephemeral(
    shared: &Shared,
    pod: &Pod,
    (sources, volumes, host): (&Sources, &BTreeMap<String, PathBuf>, &HostFacts),
    specs: &mut Specs,
) -> BTreeMap<String, Refusal> {
    let mut refused = BTreeMap::new();
    let Some(pod_spec) = &pod.spec else {
        return refused;
    };
    for container in ephemeral::containers(pod_spec) {
        let made = match unsupported::in_ephemeral(&container, pod_spec, shared.profile) {
            Some(refusal) => Err(refusal),
            None => check_image(shared, &container)
                .and_then(|()| spec(shared, pod, &container, sources, volumes, host)),
        };
        match made {
            Ok(made) => drop(specs.insert(container.name, made)),
            Err(refusal) => drop(refused.insert(container.name, refusal)),
        }
    }
    refused
}

/// The node must be able to do what the pod says.
async fn check_support(shared: &Shared, pod: &Pod, has_network: bool) -> Result<(), Refusal> {
    let refusal = sysctls::refusal(pod, has_network);
    if let Some(refusal) = refusal.or_else(|| unsupported::find(pod, shared.profile)) {
        return Err(refusal);
    }
    let refusal = tokio::time::timeout(READ_TIMEOUT, runtime::refusal(&shared.client, pod))
        .await
        .map_err(|e| Refusal::machine(format!("cannot read the RuntimeClass of the pod: {e}")))?;
    refusal.map_or(Ok(()), Err)
}

/// Reads what the pod refers to again, and brings its volumes of files up to date. Returns the tokens, and what is missing
/// of the rest, whose volumes stay as they are.
pub(crate) async fn refresh(
    shared: &Shared,
    pod: &Pod,
    pod_ip: Ipv4Addr,
    dir: &Path,
    known: &Tokens,
) -> Result<(Tokens, Vec<Refusal>), Refusal> {
    let sources = read_sources(shared, pod, known).await?;
    let claims = shared.volumes_dir();
    let missing = volumes::refresh(&volumes::Store {
        pod_dir: dir,
        claims: &claims,
        hidden: &shared.config.hidden,
        pod,
        sources: &sources,
        host: &host_facts(shared, pod_ip),
    });
    Ok((sources.into_tokens(), missing))
}

fn host_facts(shared: &Shared, pod_ip: Ipv4Addr) -> HostFacts {
    HostFacts {
        pod_ip: pod_ip.to_string(),
        ..shared.host.clone()
    }
}

async fn read_sources(shared: &Shared, pod: &Pod, known: &Tokens) -> Result<Sources, Refusal> {
    let unread =
        |why: String| Refusal::machine(format!("cannot read what the pod refers to: {why}"));
    let reading = sources::read(&shared.client, pod, known, clock::now());
    tokio::time::timeout(READ_TIMEOUT, reading)
        .await
        .map_err(|e| unread(e.to_string()))?
        .map_err(|e| unread(e.to_string()))
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec
        .iter()
        .flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers))
}

fn words(list: Option<&Vec<String>>) -> &[String] {
    list.map_or(&[], Vec::as_slice)
}

/// An image must mean something here, and the node must be able to make it.
fn check_image(shared: &Shared, container: &Container) -> Result<(), Refusal> {
    let config = &shared.config;
    if let Some(refusal) = image_refusal(&config.images, config.unmapped_images, container) {
        return Err(refusal);
    }
    let name = container.image.as_deref().unwrap_or_default();
    let image = config.images.resolve(name);
    let needs_mounts = image.rootfs != RootFs::Host || !image.mounts.is_empty();
    if shared.profile == Profile::None && needs_mounts {
        let message = format!(
            "images.yaml gives image \"{name}\" a root file system or mounts, and this node may not make mount \
             namespaces (profile none)"
        );
        return Err(Refusal::config(&container.name, message));
    }
    Ok(())
}

fn spec(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    volumes: &BTreeMap<String, PathBuf>,
    host: &HostFacts,
) -> Result<ContainerSpec, Refusal> {
    let pod_spec = pod.spec.clone().unwrap_or_default();
    let image = shared
        .config
        .images
        .resolve(container.image.as_deref().unwrap_or_default());
    let has_network = host.pod_ip.parse().is_ok_and(network::is_of_a_pod);
    let user = user(container, &pod_spec, shared.powers, has_network)?;
    let hostname = network::hostname(pod);
    let base = base_env(shared, &image, &user, &hostname);
    let env = environment(base, pod, container, sources, host)
        .map_err(|e| Refusal::config(&container.name, e.to_string()))?;
    if !env.skipped.is_empty() {
        let skipped = env.skipped.join(", ");
        tracing::warn!(container = %container.name, skipped, "keys of envFrom are no variable names");
    }
    let expand = |list: Option<&Vec<String>>| {
        words(list)
            .iter()
            .map(|word| env.expand(word))
            .collect::<Vec<_>>()
    };
    let argv = image.argv(
        &expand(container.command.as_ref()),
        &expand(container.args.as_ref()),
    );
    let workdir = container.working_dir.clone().filter(|dir| !dir.is_empty());
    let fallback = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    let message_path = container
        .termination_message_path
        .as_deref()
        .filter(|p| !p.is_empty());
    let uid = pod.uid().unwrap_or_default();
    let memory = shared.cgroups.limit(&uid, container);
    Ok(ContainerSpec {
        argv,
        sandbox: sandbox(shared, pod, container, &image, volumes, &env, host)?,
        env: env.all,
        workdir: workdir.or(image.workdir).unwrap_or_else(|| "/".into()),
        log: PathBuf::new(),
        user,
        termination: TerminationSpec {
            path: message_path.unwrap_or(TERMINATION_LOG).into(),
            fallback_to_logs: fallback,
        },
        processes: shared.cgroups.processes(&uid, memory.as_ref()),
        memory,
        interaction: Interaction {
            has_stdin: container.stdin == Some(true),
            has_terminal: container.tty == Some(true),
        },
    })
}

fn sandbox(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    image: &Image,
    volumes: &BTreeMap<String, PathBuf>,
    env: &Environment,
    host: &HostFacts,
) -> Result<Sandbox, Refusal> {
    let of_image = image.mounts.iter().map(|m| MountSpec {
        origin: Origin::Image,
        within: None,
        source: m.host.clone(),
        target: m.path.clone(),
        read_only: m.read_only,
    });
    let of_pod = volumes::mounts(container, pod, volumes, env)?;
    let dir = shared.pods_dir().join(pod.uid().unwrap_or_default());
    // A pod with a network has a hosts file of the network, aliases included.
    let has_network = host.pod_ip.parse().is_ok_and(network::is_of_a_pod);
    let spec = pod.spec.as_ref().filter(|_| !has_network);
    let hosts = spec.and_then(|spec| hosts::mount(&dir, spec, container));
    let security = container.security_context.as_ref();
    let root = RootSpec {
        base: match &image.rootfs {
            RootFs::Host => "/".into(),
            RootFs::Dir(dir) => dir.clone(),
        },
        hostname: network::hostname(pod),
        read_only: security.is_some_and(|s| s.read_only_root_filesystem == Some(true)),
        hide: shared.config.hidden.clone(),
        mounts: of_image.chain(hosts).chain(of_pod).collect(),
    };
    Ok(match shared.profile {
        Profile::Full => Sandbox::Full(root),
        Profile::User => Sandbox::User(root),
        Profile::None => Sandbox::None,
    })
}

/// The variables that do not come from the pod.
fn base_env(
    shared: &Shared,
    image: &Image,
    user: &UserSpec,
    hostname: &str,
) -> Vec<(String, String)> {
    let uid = user.uid.map_or_else(geteuid, Uid::from_raw);
    // Another root file system has other users.
    let known = (image.rootfs == RootFs::Host)
        .then(|| User::from_uid(uid).ok().flatten())
        .flatten();
    let home = match known {
        Some(user) => user.dir.display().to_string(),
        None if uid.is_root() => "/root".into(),
        None => "/".into(),
    };
    let own = [
        ("PATH", PATH.to_owned()),
        ("HOME", home),
        ("HOSTNAME", hostname.to_owned()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let image = image
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    own.into_iter()
        .chain(api_server::variables(shared.config.api_server))
        .chain(shared.config.pod_env.iter().cloned())
        .chain(image)
        .collect()
}
