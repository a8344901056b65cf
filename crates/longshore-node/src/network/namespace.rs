//! Network namespaces: joining the one that a descriptor stands for.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use nix::{
    errno::Errno,
    libc,
    sched::{CloneFlags, setns},
};

/// `NS_GET_USERNS` of `ioctl_ns(2)`.
const NS_GET_USERNS: u32 = 0xb701;

/// Makes this process, which must have one thread, a member of a network namespace, and of the user namespace that the
/// network belongs to.
///
/// An ordinary user may enter a network only from its user namespace, and that one because it is of the same user.
pub(crate) fn join(network: impl AsFd) -> io::Result<()> {
    let users = File::from(owner(&network)?);
    if users.metadata()?.ino() != fs::metadata("/proc/self/ns/user")?.ino() {
        setns(&users, CloneFlags::CLONE_NEWUSER)?;
    }
    Ok(setns(network, CloneFlags::CLONE_NEWNET)?)
}

/// Joins the network of a process, where it is another one. A pod that sets parameters of the kernel has an IPC namespace
/// beside its network.
pub(crate) fn join_that_of(process: &Path) -> io::Result<()> {
    let Some(network) = other(process, "net")? else {
        return Ok(());
    };
    let ipc = other(process, "ipc")?;
    join(network)?;
    if let Some(ipc) = ipc {
        setns(ipc, CloneFlags::CLONE_NEWIPC)?;
    }
    Ok(())
}

/// A namespace of a process; `None` where it is our own, too.
fn other(process: &Path, kind: &str) -> io::Result<Option<File>> {
    let theirs = process.join("ns").join(kind);
    let own = Path::new("/proc/self/ns").join(kind);
    let is_other = fs::read_link(&theirs)? != fs::read_link(own)?;
    is_other.then(|| File::open(theirs)).transpose()
}

/// Joins the user namespace of the network of a process, where both are others than our own.
pub(super) fn join_users_of(process: i32) -> io::Result<()> {
    let network = File::open(format!("/proc/{process}/ns/net"))?;
    let users = owner(&network)?;
    Ok(setns(users, CloneFlags::CLONE_NEWUSER)?)
}

/// The user namespace that a namespace belongs to.
fn owner(namespace: &impl AsFd) -> io::Result<OwnedFd> {
    let number = namespace.as_fd().as_raw_fd();
    #[expect(unsafe_code, reason = "nix has no wrapper for this request")]
    // SAFETY: the request has no argument and returns a new descriptor, or -1.
    let result = unsafe { libc::ioctl(number, NS_GET_USERNS as _) };
    let number = Errno::result(result)?;
    #[expect(unsafe_code, reason = "the descriptor comes as a number")]
    // SAFETY: the kernel has just made this descriptor, and nothing else has its number.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    Ok(owned)
}
