//! From the pod as it is written to containers as the shim runs them.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::ResourceExt;
use nix::unistd::{Uid, User, geteuid};

use super::{hosts, security::user, unsupported};
use crate::{
    api_server, clock,
    env::{Environment, HostFacts, environment},
    images::{Image, RootFs, image_refusal},
    node::Shared,
    profile::Profile,
    refusal::Refusal,
    shim::protocol::{
        ContainerSpec, Interaction, MountSpec, RootSpec, Sandbox, TerminationSpec, UserSpec,
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
    /// What its volumes hold.
    pub(crate) tokens: Tokens,
}

/// Reads what the pod refers to, makes its volumes, and resolves every name in it. Tokens that are `known` are used as long
/// as they are good.
pub(crate) async fn resolve(
    shared: &Shared,
    pod: &Pod,
    pod_ip: Ipv4Addr,
    dir: &Path,
    known: &Tokens,
) -> Result<Resolved, Refusal> {
    let host = host_facts(shared, pod_ip);
    if let Some(refusal) = unsupported::find(pod, shared.profile) {
        return Err(refusal);
    }
    for container in containers(pod) {
        check_image(shared, container)?;
    }
    let sources = read_sources(shared, pod, known).await?;
    let claims = shared.config.root.join("volumes");
    let store = volumes::Store {
        pod_dir: dir,
        claims: &claims,
        pod,
        sources: &sources,
        host: &host,
    };
    let volumes = volumes::prepare(&store)?;
    if let Some(spec) = &pod.spec {
        hosts::prepare(dir, spec)?;
    }
    let spec = |c: &Container| {
        Ok((
            c.name.clone(),
            spec(shared, pod, c, &sources, &volumes, &host)?,
        ))
    };
    let specs = containers(pod)
        .map(spec)
        .collect::<Result<Specs, Refusal>>()?;
    Ok(Resolved {
        specs,
        tokens: sources.into_tokens(),
    })
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
    let claims = shared.config.root.join("volumes");
    let missing = volumes::refresh(&volumes::Store {
        pod_dir: dir,
        claims: &claims,
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
    let user = user(container, &pod_spec, shared.powers)?;
    let hostname = hostname(pod, &pod_spec);
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
    Ok(ContainerSpec {
        argv,
        sandbox: sandbox(shared, pod, container, &image, volumes, &env, hostname)?,
        env: env.all,
        workdir: workdir.or(image.workdir).unwrap_or_else(|| "/".into()),
        log: PathBuf::new(),
        user,
        termination: TerminationSpec {
            path: message_path.unwrap_or(TERMINATION_LOG).into(),
            fallback_to_logs: fallback,
        },
        memory: shared
            .cgroups
            .as_ref()
            .and_then(|cgroups| cgroups.limit(&pod.uid().unwrap_or_default(), container)),
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
    hostname: String,
) -> Result<Sandbox, Refusal> {
    let of_image = image.mounts.iter().map(|m| MountSpec {
        source: m.host.clone(),
        target: m.path.clone(),
        read_only: m.read_only,
    });
    let of_pod = volumes::mounts(container, pod, volumes, env)?;
    let dir = shared.pods_dir().join(pod.uid().unwrap_or_default());
    let hosts = pod
        .spec
        .as_ref()
        .and_then(|spec| hosts::mount(&dir, spec, container));
    let security = container.security_context.as_ref();
    let root = RootSpec {
        base: match &image.rootfs {
            RootFs::Host => "/".into(),
            RootFs::Dir(dir) => dir.clone(),
        },
        hostname,
        read_only: security.is_some_and(|s| s.read_only_root_filesystem == Some(true)),
        hide: Some(shared.config.root.clone()),
        mounts: of_image.chain(hosts).chain(of_pod).collect(),
    };
    Ok(match shared.profile {
        Profile::Full => Sandbox::Full(root),
        Profile::User => Sandbox::User(root),
        Profile::None => Sandbox::None,
    })
}

fn hostname(pod: &Pod, spec: &PodSpec) -> String {
    let mut name = spec.hostname.clone().unwrap_or_else(|| pod.name_any());
    name.truncate(63);
    name.trim_end_matches(['-', '.']).to_owned()
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
