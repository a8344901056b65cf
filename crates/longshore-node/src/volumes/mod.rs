//! A pod's volumes as directories and files of the host, ready to be mounted.

pub(crate) mod atomic;
mod files;
mod host_path;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};
use kube::ResourceExt;

use crate::{
    env::{Environment, HostFacts},
    private_dir,
    refusal::Refusal,
    shim::protocol::MountSpec,
    sources::Sources,
};

/// The kinds that [`prepare`] knows, for messages.
const SUPPORTED: &str =
    "emptyDir, configMap, secret, projected, downwardAPI, hostPath and persistentVolumeClaim";
/// Where volumes in memory live: a file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

/// Where volumes are kept and what they are made of.
#[derive(Debug)]
pub(crate) struct Store<'a> {
    /// The pod's own directory.
    pub(crate) pod_dir: &'a Path,
    /// The node's directory of claims.
    pub(crate) claims: &'a Path,
    pub(crate) pod: &'a Pod,
    pub(crate) sources: &'a Sources,
    pub(crate) host: &'a HostFacts,
}

/// Makes every volume of the pod, and brings those of files up to date; others that exist are left alone. Returns the path of
/// each by name.
pub(crate) fn prepare(store: &Store<'_>) -> Result<BTreeMap<String, PathBuf>, Refusal> {
    let volumes = store.pod.spec.iter().flat_map(|s| &s.volumes).flatten();
    volumes
        .map(|v| Ok((v.name.clone(), prepare_one(store, v)?)))
        .collect()
}

fn prepare_one(store: &Store<'_>, volume: &Volume) -> Result<PathBuf, Refusal> {
    let failed = |e: io::Error| Refusal {
        event: "FailedMount",
        ..Refusal::io(&format!("make volume {}", volume.name), &e)
    };
    let dir = store.pod_dir.join("volumes").join(&volume.name);
    if let Some(empty) = &volume.empty_dir {
        let dir = match empty.medium.as_deref() {
            None | Some("") => dir,
            Some("Memory") => {
                let of_pod = memory_dir(&store.pod.uid().unwrap_or_default());
                private_dir::make(&of_pod).map_err(failed)?;
                of_pod.join(&volume.name)
            }
            Some(other) => {
                return Err(Refusal::pod(format!(
                    "volume {}: the medium {other} of an emptyDir is not supported: expected none or Memory",
                    volume.name
                )));
            }
        };
        make_open_dir(&dir).map_err(failed)?;
        return Ok(dir);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let namespace = store.pod.namespace().unwrap_or_default();
        let dir = store.claims.join(namespace).join(&claim.claim_name);
        make_open_dir(&dir).map_err(failed)?;
        return Ok(dir);
    }
    if let Some(host) = &volume.host_path {
        return host_path::prepare(&volume.name, host);
    }
    match files::payload(store, volume)? {
        Some(files) => {
            atomic::write(&dir, &files).map_err(failed)?;
            Ok(dir)
        }
        None => Err(Refusal::pod(format!(
            "volume {} is of a kind that this node does not know: it supports {SUPPORTED}",
            volume.name
        ))),
    }
}

/// The directory of a pod's volumes in memory.
pub(crate) fn memory_dir(uid: &str) -> PathBuf {
    Path::new(MEMORY).join(format!("longshore-{uid}"))
}

/// A directory that every container user may write to.
fn make_open_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
}

/// The mounts of one container.
pub(crate) fn mounts(
    container: &Container,
    pod: &Pod,
    volumes: &BTreeMap<String, PathBuf>,
    env: &Environment,
) -> Result<Vec<MountSpec>, Refusal> {
    let mut all = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let Some(volume) = volumes.get(&mount.name) else {
            let message = format!(
                "volumeMounts name a volume {} that the pod does not have",
                mount.name
            );
            return Err(Refusal::config(&container.name, message));
        };
        all.push(MountSpec {
            source: source(container, mount, volume, env)?,
            target: mount.mount_path.clone().into(),
            read_only: mount.read_only == Some(true) || is_read_only(pod, &mount.name),
        });
    }
    Ok(all)
}

/// Whether no container of the pod may write to a volume. The files of API objects are the node's to change, as on a kubelet.
fn is_read_only(pod: &Pod, volume: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|s| &s.volumes).flatten();
    let mut named = volumes.filter(|v| v.name == volume);
    named.any(|v| {
        let claim = v.persistent_volume_claim.as_ref();
        claim.is_some_and(|claim| claim.read_only == Some(true)) || files::is_of_files(v)
    })
}

/// The volume itself, or what its subPath names inside of it.
fn source(
    container: &Container,
    mount: &VolumeMount,
    volume: &Path,
    env: &Environment,
) -> Result<PathBuf, Refusal> {
    let expanded = mount.sub_path_expr.as_deref().map(|text| env.expand(text));
    let sub_path = expanded
        .as_deref()
        .or(mount.sub_path.as_deref())
        .unwrap_or_default();
    if sub_path.is_empty() {
        return Ok(volume.to_owned());
    }
    let refused = |why: &str| {
        let message = format!("subPath {sub_path} of volume {}: {why}", mount.name);
        Refusal::config(&container.name, message)
    };
    let relative = Path::new(sub_path);
    if !relative
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(refused("expected a path inside the volume"));
    }
    let path = volume.join(relative);
    if !path.exists() {
        make_open_dir(&path).map_err(|e| refused(&e.to_string()))?;
    }
    // A link in the volume may have been made by the pod: it must not lead out.
    match (path.canonicalize(), volume.canonicalize()) {
        (Ok(path), Ok(volume)) if path.starts_with(&volume) => Ok(path),
        (Ok(_), Ok(_)) => Err(refused("leads out of the volume")),
        (Err(e), _) | (_, Err(e)) => Err(refused(&e.to_string())),
    }
}
