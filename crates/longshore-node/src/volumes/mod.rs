//! A pod's volumes as directories and files of the host, ready to be mounted.

pub(crate) mod atomic;
mod files;
mod host_path;

use std::{
    collections::BTreeMap,
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{PermissionsExt, chown},
    },
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};
use kube::ResourceExt;
use longshore_k8s::names::is_subdomain;
use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sys::stat::{Mode, fchmod, fstat, mkdirat},
};

use crate::{
    beneath, claims,
    env::{Environment, HostFacts},
    private_dir,
    refusal::Refusal,
    shim::protocol::{MountSpec, Origin, Sandbox},
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
    /// What no pod may see of the machine.
    pub(crate) hidden: &'a [PathBuf],
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

/// Brings the volumes of files up to date. One that cannot be stays as it is; returns why.
pub(crate) fn refresh(store: &Store<'_>) -> Vec<Refusal> {
    let volumes = store.pod.spec.iter().flat_map(|s| &s.volumes).flatten();
    let of_files = volumes.filter(|volume| files::is_of_files(volume));
    of_files
        .filter_map(|volume| prepare_one(store, volume).err())
        .collect()
}

fn prepare_one(store: &Store<'_>, volume: &Volume) -> Result<PathBuf, Refusal> {
    let failed = |e: io::Error| failed(volume, &e);
    let group = fs_group(store.pod);
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
        make_open_dir(&dir, group).map_err(failed)?;
        return Ok(dir);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let namespace = store.pod.namespace().unwrap_or_default();
        // The name becomes a part of a path: no claim of another namespace may be named by it.
        if !is_subdomain(&claim.claim_name) {
            return Err(Refusal::pod(format!(
                "volume {}: expected the name of a PersistentVolumeClaim (lower case letters, digits, - and .), found {:?}",
                volume.name, claim.claim_name
            )));
        }
        let dir = claims::directory(store.claims, &namespace, &claim.claim_name);
        make_open_dir(&dir, group).map_err(failed)?;
        return Ok(dir);
    }
    if let Some(host) = &volume.host_path {
        return host_path::prepare(&volume.name, host, store.hidden);
    }
    if write_files(store, volume)? {
        return Ok(dir);
    }
    Err(Refusal::pod(format!(
        "volume {} is of a kind that this node does not know: it supports {SUPPORTED}",
        volume.name
    )))
}

fn failed(volume: &Volume, error: &io::Error) -> Refusal {
    Refusal {
        event: "FailedMount",
        ..Refusal::io(&format!("make volume {}", volume.name), error)
    }
}

/// Makes a volume hold the files that it shows; `false`: it is of another kind.
fn write_files(store: &Store<'_>, volume: &Volume) -> Result<bool, Refusal> {
    let Some(mut files) = files::payload(store, volume)? else {
        return Ok(false);
    };
    let group = fs_group(store.pod);
    if group.is_some() {
        // As a kubelet: the group reads what the owner reads.
        files.iter_mut().for_each(|file| file.mode |= 0o440);
    }
    let dir = store.pod_dir.join("volumes").join(&volume.name);
    let written = atomic::write_for(&dir, &files, group);
    written.map_err(|e| failed(volume, &e))?;
    Ok(true)
}

/// Whether a pod has volumes of files, which may change.
pub(crate) fn has_files(pod: &Pod) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|s| &s.volumes).flatten();
    volumes.any(files::is_of_files)
}

/// The group that owns the volumes.
fn fs_group(pod: &Pod) -> Option<u32> {
    let security = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(security.fs_group?).ok()
}

/// The directory of a pod's volumes in memory.
pub(crate) fn memory_dir(uid: &str) -> PathBuf {
    Path::new(MEMORY).join(format!("longshore-{uid}"))
}

/// A directory that every container user may write to. What is made in it belongs to the group, where there is one.
fn make_open_dir(dir: &Path, group: Option<u32>) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    if group.is_some() {
        chown(dir, None, group)?;
    }
    // After the change of the owner, which may take the bit away.
    let set_group = if group.is_some() { 0o2000 } else { 0 };
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777 | set_group))
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
        let source = source(container, mount, volume, env)?;
        all.push(MountSpec {
            origin: origin(pod, &mount.name),
            within: (source != *volume).then(|| volume.clone()),
            source,
            target: mount.mount_path.clone().into(),
            read_only: mount.read_only == Some(true) || is_read_only(pod, &mount.name),
        });
    }
    Ok(all)
}

fn origin(pod: &Pod, volume: &str) -> Origin {
    let mut volumes = pod.spec.iter().flat_map(|s| &s.volumes).flatten();
    let is_host = volumes.any(|v| v.name == volume && v.host_path.is_some());
    if is_host {
        Origin::HostPath
    } else {
        Origin::Node
    }
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
    // Each start of the container finds what is there at that time, and follows no link out of the volume.
    Ok(volume.join(relative))
}

/// Makes the directories of the subPaths of a container that is about to start. What is there by then stays as it is, such
/// as a file of an init container.
pub(crate) fn make_sub_paths(container: &str, sandbox: &Sandbox) -> Result<(), Refusal> {
    let root = match sandbox {
        Sandbox::Full(root) | Sandbox::User(root) => root,
        Sandbox::None => return Ok(()),
    };
    for mount in &root.mounts {
        let Some(volume) = &mount.within else {
            continue;
        };
        let path = mount.source.strip_prefix(volume).unwrap_or(Path::new(""));
        make_missing(volume, path).map_err(|e| {
            let why = if e == Errno::EXDEV {
                "leads out of the volume"
            } else if matches!(e, Errno::ELOOP | Errno::ENOTDIR) {
                "a part of it is a link that leads nowhere, or a file"
            } else {
                e.desc()
            };
            let (path, target) = (path.display(), mount.target.display());
            Refusal::config(container, format!("subPath {path} at {target}: {why}"))
        })?;
    }
    Ok(())
}

/// Makes the directories of a subPath that are missing: below those that exist, which may be links inside of the volume,
/// and nowhere else, whatever the containers of the pod do to links meanwhile. As a kubelet makes them, they have the mode
/// of the volume, and its group where new files of the volume get it.
fn make_missing(volume: &Path, path: &Path) -> Result<(), Errno> {
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let volume = open(volume, directory, Mode::empty())?;
    let is_missing = |found: &Result<OwnedFd, Errno>| matches!(found, Err(Errno::ENOENT));
    let found = beneath::below(&volume, path);
    if !is_missing(&found) {
        return found.map(drop);
    }
    let mode = Mode::from_bits_truncate(fstat(&volume)?.st_mode & 0o2777);
    let mut above = path.ancestors().skip(1);
    let (mut dir, rest) = loop {
        let Some(candidate) = above.next() else {
            return Err(Errno::ENOENT);
        };
        let found = beneath::below(&volume, candidate);
        if !is_missing(&found) {
            break (found?, path.strip_prefix(candidate).unwrap_or(path));
        }
    };
    for name in rest {
        let name = Path::new(name);
        let made = mkdirat(&dir, name, mode);
        // It is there where another container of the pod was faster.
        if let Err(e) = made
            && e != Errno::EEXIST
        {
            return Err(e);
        }
        let flags = if made.is_ok() {
            OFlag::O_RDONLY | OFlag::O_DIRECTORY
        } else {
            directory
        };
        dir = beneath::without_links(&dir, name, flags)?;
        if made.is_ok() {
            // The umask of this process is not the pod's.
            fchmod(&dir, mode)?;
        }
    }
    Ok(())
}
