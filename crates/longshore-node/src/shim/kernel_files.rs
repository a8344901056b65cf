//! What of the kernel's own files a container gets.

use std::{io, os::fd::OwnedFd, path::Path};

use nix::fcntl::AT_FDCWD;

use super::{
    attach::mount_point,
    mount_fd::{self, Extent, NO_DEVICES, NO_PROGRAMS, NO_SUID, copy, put},
    rootfs::{Context, Result},
};
use crate::beneath::Kind;

/// The mounts of `/proc` and `/sys`.
#[derive(Debug)]
pub(super) struct KernelFiles {
    pub(super) proc: OwnedFd,
    sys: OwnedFd,
}

impl KernelFiles {
    /// Takes them while the host's are in sight.
    pub(super) fn from_host() -> Result<Self> {
        let sys = Path::new("/sys");
        let taken = copy(AT_FDCWD, sys, Extent::Tree, true).at("find", sys)?;
        Ok(Self {
            proc: processes()?,
            sys: taken,
        })
    }

    /// Puts them in their places.
    pub(super) fn attach(&self, root: &OwnedFd) -> Result<()> {
        for (mount, target) in [(&self.proc, "/proc"), (&self.sys, "/sys")] {
            let target = Path::new(target);
            let at = mount_point(root, target, Kind::Directory).at("make", target)?;
            put(mount, at, Path::new("")).at("mount", target)?;
        }
        Ok(())
    }
}

/// The files of processes in the container's own pid namespace.
fn processes() -> Result<OwnedFd> {
    let at = Path::new("/proc");
    let flags = NO_SUID | NO_DEVICES | NO_PROGRAMS;
    mount_fd::new(c"proc", &[], flags)
        // The kernel refuses a new one to user namespaces where parts of the host's are covered up.
        .or_else(|_: io::Error| copy(AT_FDCWD, at, Extent::Tree, true))
        .at("find", at)
}
