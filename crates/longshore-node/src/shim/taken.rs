//! What a container shows of the host: opened while the host's tree is the root and before the container has a mount, so
//! that nothing that the pod has chosen changes what it is.

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{AT_FDCWD, OFlag, open},
    sys::stat::{Mode, SFlag, fstat},
};

use super::{
    kernel_files::KernelFiles,
    mount_fd::{Extent, NO_DEVICES, NO_PROGRAMS, NO_SUID, READ_ONLY, change, copy},
    protocol::{MountSpec, Origin, RootSpec},
    rootfs::{Context, Result},
};
use crate::beneath;

/// Device files of every container, as in the OCI runtime specification.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What the container shows of the host, as mounts that are not in any place yet.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) kernel: KernelFiles,
    pub(super) devices: Vec<(&'static str, OwnedFd)>,
    /// What resolves names in a root that is not the host's.
    pub(super) names: Vec<(&'static Path, OwnedFd)>,
    /// Parents come before children.
    pub(super) volumes: Vec<Volume>,
}

/// A volume, or what is at a subPath of one.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) mount: OwnedFd,
    pub(super) target: PathBuf,
    /// What containers must not see of it, as paths below it.
    pub(super) hidden: Vec<PathBuf>,
}

impl Taken {
    /// Takes all of it while the host's tree is the root, before this container has mounted anything.
    pub(super) fn from_host(spec: &RootSpec) -> Result<Self> {
        let mut volumes = Vec::with_capacity(spec.mounts.len());
        for wanted in &spec.mounts {
            volumes.push(volume(wanted, &spec.hide)?);
        }
        volumes.sort_by_key(|it| it.target.components().count());
        Ok(Self {
            kernel: KernelFiles::from_host()?,
            devices: host_devices()?,
            names: if spec.base == Path::new("/") {
                Vec::new()
            } else {
                name_resolution()?
            },
            volumes,
        })
    }
}

/// The devices of a container that the host has. Through a read-only mount, nobody can change their owner or mode.
fn host_devices() -> Result<Vec<(&'static str, OwnedFd)>> {
    let mut found = Vec::with_capacity(DEVICES.len());
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        let Ok(device) = copy(AT_FDCWD, &path, Extent::One, true) else {
            continue;
        };
        change(&device, READ_ONLY | NO_SUID | NO_PROGRAMS, 0, Extent::One)
            .at("make read-only", &path)?;
        found.push((name, device));
    }
    Ok(found)
}

/// A root that is not the host's still resolves names as the host does.
fn name_resolution() -> Result<Vec<(&'static Path, OwnedFd)>> {
    let mut found = Vec::new();
    for file in ["/etc/resolv.conf", "/etc/hosts"].map(Path::new) {
        if !fs::metadata(file).is_ok_and(|it| it.is_file()) {
            continue;
        }
        let mount = copy(AT_FDCWD, file, Extent::One, true).at("find", file)?;
        change(&mount, READ_ONLY, 0, Extent::One).at("make read-only", file)?;
        found.push((file, mount));
    }
    Ok(found)
}

fn volume(wanted: &MountSpec, hide: &[PathBuf]) -> Result<Volume> {
    let source = &wanted.source;
    let found = match &wanted.within {
        None => open(source, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
            .at("find the volume source", source)?,
        Some(volume) => open_below(volume, source)?,
    };
    let (has_devices, hidden) = match wanted.origin {
        Origin::Node => (false, Vec::new()),
        Origin::Image | Origin::HostPath => {
            let real = real_path(&found).at("find the volume source", source)?;
            let hidden = hidden_of(&real, wanted.origin, hide).at("show", source)?;
            (shows_devices(&found, &real).at("look at", source)?, hidden)
        }
    };
    let mount = copy(found, Path::new(""), Extent::Tree, false).at("mount", source)?;
    let read_only = if wanted.read_only { READ_ONLY } else { 0 };
    let no_devices = if has_devices { 0 } else { NO_DEVICES };
    if read_only | no_devices != 0 {
        change(&mount, read_only | no_devices, 0, Extent::Tree)
            .at("restrict the volume", source)?;
    }
    Ok(Volume {
        mount,
        target: wanted.target.clone(),
        hidden,
    })
}

/// Where an open file is, whatever links led to it.
fn real_path(file: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(Path::new("/proc/self/fd").join(file.as_raw_fd().to_string()))
}

/// Whether somebody wants devices of the machine: one of them, their directory, or a directory with that in it.
fn shows_devices(file: &OwnedFd, real: &Path) -> io::Result<bool> {
    let kind = SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT;
    let dev = Path::new("/dev");
    Ok(kind == SFlag::S_IFCHR
        || kind == SFlag::S_IFBLK
        || dev.starts_with(real)
        || (real.starts_with(dev) && !real.starts_with("/dev/shm")))
}

/// What of the files at `real` containers must not see, as paths below it. A pod that names such files itself is refused.
fn hidden_of(real: &Path, origin: Origin, hide: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in hide {
        let Ok(path) = fs::canonicalize(path) else {
            continue;
        };
        if let Ok(below) = path.strip_prefix(real)
            && path != real
        {
            found.push(below.to_owned());
        } else if origin == Origin::HostPath && real.starts_with(&path) {
            let why = format!(
                "{} is in {}, which no pod may see",
                real.display(),
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    Ok(found)
}

/// What is at a path of a volume. The containers of a pod may change links in it at any time: the kernel follows them, and
/// none that leads out of the volume.
fn open_below(volume: &Path, path: &Path) -> Result<OwnedFd> {
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = open(volume, directory, Mode::empty()).at("open", volume)?;
    let rest = path.strip_prefix(volume).unwrap_or(path);
    beneath::below(&dir, rest).at("find, without leaving its volume, the subPath", path)
}
