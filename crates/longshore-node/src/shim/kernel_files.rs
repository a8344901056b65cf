//! What of the kernel's own files a container gets, and what of them it may neither change nor read: what container runtimes
//! leave out, too.

use std::{io, os::fd::OwnedFd, path::Path};

use nix::fcntl::AT_FDCWD;

use super::{
    attach::{Tree, mount_point},
    mount_fd::{self, Extent, NO_DEVICES, NO_PROGRAMS, NO_SUID, READ_ONLY, change, copy, put},
    rootfs::{Context, Result},
};
use crate::beneath::Kind;

/// Below `/proc`: writes there change the machine, such as what runs as root when any program crashes.
const FIXED: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
/// Below `/proc`: what tells of the machine and of its other programs. This list and the next one are Docker 29's.
const HIDDEN: [&str; 10] = [
    "acpi",
    "asound",
    "interrupts",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];
/// The same below `/sys`.
const HIDDEN_OF_SYSTEM: [&str; 2] = ["firmware", "devices/virtual/powercap"];

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
        change(&taken, READ_ONLY, 0, Extent::Tree).at("make read-only", sys)?;
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

    /// Takes away from the container what is not its own.
    pub(super) fn restrict(&self, tree: &mut Tree) -> Result<()> {
        for name in FIXED.map(Path::new) {
            let Ok(mount) = copy(&self.proc, name, Extent::Tree, false) else {
                // This kernel does not have it.
                continue;
            };
            change(&mount, READ_ONLY, 0, Extent::Tree)
                .and_then(|()| put(&mount, &self.proc, name))
                .at("make read-only below /proc", name)?;
        }
        for name in HIDDEN {
            tree.hide_below(&self.proc, Path::new(name))?;
        }
        for name in HIDDEN_OF_SYSTEM {
            tree.hide_below(&self.sys, Path::new(name))?;
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
