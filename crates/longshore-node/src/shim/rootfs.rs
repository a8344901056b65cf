//! The file system that a container sees, built by its init inside a fresh mount namespace.
//!
//! All that the container shows of the host is opened before the first mount ([`Taken`]). The tree is assembled below a
//! scratch directory and entered with `pivot_root`; then the host's tree goes, and only then are paths followed that the
//! pod has chosen: a link inside the container leads nowhere but inside of it, and no mount changes what another one means.

use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::symlink},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{Mode, SFlag, mkdirat, mknodat},
    unistd::{chdir, fchdir, pivot_root, sethostname, symlinkat},
};

use super::{
    attach::{Tree, mount_point},
    layers::{Layers, Rights},
    mount_fd::{self, NO_DEVICES, NO_SUID, put},
    mounts::{bind_read_only, host_mounts, mount_id, set_tree_read_only, table},
    protocol::RootSpec,
    taken::Taken,
};
use crate::beneath::Kind;

/// One step of building the file system failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}", path.display())]
pub(super) struct RootError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

pub(super) type Result<T> = std::result::Result<T, RootError>;

/// Names the step and the path that a failure belongs to.
pub(super) trait Context<T> {
    fn at(self, step: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn at(self, step: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| RootError {
            step,
            path: path.to_owned(),
            source: e.into(),
        })
    }
}

/// Builds the file system and makes it the root of the calling process. Returns the file of the termination message, which
/// is at `message`.
pub(super) fn enter(
    spec: &RootSpec,
    rights: Rights,
    scratch: &Path,
    message: &Path,
) -> Result<File> {
    let slash = Path::new("/");
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, slash, None::<&str>, private, None::<&str>)
        .at("make private the mounts below", slash)?;
    let taken = Taken::from_host(spec)?;

    // A mount point of its own would be one more directory. It is covered only until the tree becomes the root.
    let root = scratch;
    fs::create_dir_all(root).at("make", root)?;
    let mut layers = Layers::new(scratch, rights);
    match (rights, spec.base == slash) {
        (Rights::Root, true) => host_overlay(&mut layers, root, &spec.hide)?,
        (Rights::User, true) => host_tree(&mut layers, root)?,
        (Rights::Root | Rights::User, false) => {
            layers
                .stack(&spec.base, root)
                .at("use as a root file system", &spec.base)?;
        }
    }
    let root = pivot(root)?;
    taken.kernel.attach(&root)?;
    let dev = devices(&root, &taken.devices)?;
    let mut tree = Tree::new(root, dev);
    taken.kernel.restrict(&mut tree)?;
    if spec.base == slash {
        for path in &spec.hide {
            tree.hide(path)?;
        }
    }
    for (target, file) in &taken.names {
        tree.attach(file, target)?;
    }
    let kept = spec
        .read_only
        .then(|| Kept::new(&taken.kernel.proc, &tree.dev));
    let kept = kept.transpose().at("read the mounts of", slash)?;
    for volume in &taken.volumes {
        tree.attach(&volume.mount, &volume.target)?;
        for path in &volume.hidden {
            tree.hide_below(&volume.mount, path)?;
        }
    }
    let (message, its_mount) = tree.message_file(message)?;
    if let Some(mut kept) = kept {
        let volumes = taken.volumes.iter().map(|it| &it.mount);
        kept.add(volumes.chain([&its_mount]))
            .and_then(|()| {
                set_tree_read_only(&tree.root, &taken.kernel.proc, kept.table, &kept.ids)
            })
            .at("make read-only", slash)?;
    }
    sethostname(&spec.hostname).at("set the host name in", slash)?;
    Ok(message)
}

/// The mounts that take writes in a tree that else takes none: what a runtime leaves writable (processes, devices and
/// shared memory), and the volumes.
#[derive(Debug)]
struct Kept<'a> {
    proc: &'a OwnedFd,
    /// Opened before a volume can cover `/proc`.
    table: File,
    ids: Vec<u64>,
}

impl<'a> Kept<'a> {
    fn new(proc: &'a OwnedFd, dev: &OwnedFd) -> io::Result<Self> {
        let mut kept = Self {
            proc,
            table: table(proc)?,
            ids: Vec::new(),
        };
        kept.add([proc, dev])?;
        Ok(kept)
    }

    fn add<'b>(&mut self, mounts: impl IntoIterator<Item = &'b OwnedFd>) -> io::Result<()> {
        for mount in mounts {
            self.ids.push(mount_id(self.proc, mount)?);
        }
        Ok(())
    }
}

/// The host's root under a private writable layer, and each of its other file systems likewise.
fn host_overlay(layers: &mut Layers<'_>, root: &Path, hidden: &[PathBuf]) -> Result<()> {
    layers
        .overlay(Path::new("/"), root)
        .at("put a private layer over the host for", root)?;
    for mounted in host_mounts().at("read", Path::new("/proc/self/mountinfo"))? {
        if hidden.iter().any(|it| mounted.at.starts_with(it)) {
            continue;
        }
        let target = root.join(mounted.at.strip_prefix("/").unwrap_or(&mounted.at));
        let Ok(kind) = fs::metadata(&mounted.at) else {
            continue;
        };
        let done = if mounted.read_only || !kind.is_dir() {
            bind_read_only(&mounted.at, &target)
        } else {
            layers.stack(&mounted.at, &target)
        };
        // A mount that even root cannot pass on (another user's FUSE, a dead network share) stays out.
        drop(done);
    }
    Ok(())
}

/// A root of our own in memory, with the host's top-level entries in it.
///
/// An overlay over `/` is refused to a user namespace because other file systems are mounted below it.
fn host_tree(layers: &mut Layers<'_>, root: &Path) -> Result<()> {
    tmpfs(root, "mode=755")?;
    for entry in fs::read_dir("/").at("list", Path::new("/"))?.flatten() {
        let (from, to) = (entry.path(), root.join(entry.file_name()));
        let kind = entry.file_type().at("look at", &from)?;
        if kind.is_symlink() {
            let goal = fs::read_link(&from).at("read the link", &from)?;
            symlink(goal, &to).at("make the link", &to)?;
            continue;
        }
        if !kind.is_dir() {
            fs::write(&to, "").at("make", &to)?;
            bind_read_only(&from, &to).at("show", &from)?;
            continue;
        }
        fs::create_dir(&to).at("make", &to)?;
        match entry.file_name().to_str() {
            Some("proc" | "sys" | "dev") => {}
            Some("tmp") => layers.own_directory(&to).at("make a private", &from)?,
            _ => layers.stack(&from, &to).at("show", &from)?,
        }
    }
    Ok(())
}

/// Makes the tree the root of this process, takes the host's away, and opens the root.
fn pivot(root: &Path) -> Result<OwnedFd> {
    let slash = Path::new("/");
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let old = open(slash, directory, Mode::empty()).at("open", slash)?;
    chdir(root).at("enter", root)?;
    // The old root goes on top of the new one, which needs no directory for it.
    pivot_root(".", ".").at("enter", root)?;
    fchdir(&old).at("enter", slash)?;
    umount2(".", MntFlags::MNT_DETACH).at("let go of the host below", slash)?;
    chdir(slash).at("enter", slash)?;
    open(slash, directory, Mode::empty()).at("open", slash)
}

/// The container's own `/dev` in memory: the standard devices, terminals and shared memory.
fn devices(root: &OwnedFd, devices: &[(&'static str, OwnedFd)]) -> Result<OwnedFd> {
    let path = Path::new("/dev");
    let options = [(c"mode", c"755"), (c"size", c"1m")];
    let dev =
        mount_fd::new(c"tmpfs", &options, NO_SUID | NO_DEVICES).at("make memory for", path)?;
    let at = mount_point(root, path, Kind::Directory).at("make", path)?;
    put(&dev, at, Path::new("")).at("mount", path)?;
    for (name, device) in devices {
        let name = Path::new(name);
        mknodat(&dev, name, SFlag::S_IFREG, Mode::empty(), 0)
            .map_err(io::Error::from)
            .and_then(|()| put(device, &dev, name))
            .at("mount", &path.join(name))?;
    }
    for name in ["pts", "shm"] {
        mkdirat(&dev, name, Mode::from_bits_truncate(0o755)).at("make", &path.join(name))?;
    }
    fchdir(&dev).at("enter", path)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    mount(Some("devpts"), "pts", Some("devpts"), flags, options).at("mount", &path.join("pts"))?;
    tmpfs(Path::new("shm"), "mode=1777")?;
    chdir("/").at("enter", Path::new("/"))?;
    for (link, goal) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlinkat(goal, &dev, link).at("make the link", &path.join(link))?;
    }
    Ok(dev)
}

fn tmpfs(at: &Path, options: &str) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options)).at("mount memory at", at)
}
