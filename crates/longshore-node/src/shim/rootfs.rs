//! The file system that a container sees, built by its init inside a fresh mount namespace.
//!
//! The tree is assembled below a scratch directory, entered with `pivot_root`, and completed from
//! inside with the old root still at hand, so that a volume's path is resolved as the program will
//! resolve it: a link inside the container cannot lead a mount out of it.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{Mode, SFlag, mknod, umask},
    unistd::{chdir, fchdir, pivot_root, sethostname},
};

use super::{
    layers::{Layers, Rights},
    mounts::{bind, ensure_mount_point, host_mounts, set_read_only, set_tree_read_only},
    protocol::{MountSpec, RootSpec},
};

/// Where the host's tree hangs until the container's own is complete: in memory, so that it costs nothing on a disk.
const OLD: &str = "/dev/.longshore-old";
/// The file of the termination message in the directory of an attempt, where it is not in the container's `/dev`.
pub(super) const TERMINATION_FILE: &str = "termination-log";
/// Device files of every container, as in the OCI runtime specification.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// One step of building the file system failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}", path.display())]
pub(super) struct RootError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

type Result<T> = std::result::Result<T, RootError>;

/// Names the step and the path that a failure belongs to.
trait Context<T> {
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
/// is at `message`, where it is in the memory of the container.
pub(super) fn enter(
    spec: &RootSpec,
    rights: Rights,
    scratch: &Path,
    message: &Path,
) -> Result<Option<File>> {
    let slash = Path::new("/");
    let volumes = resolve(&spec.mounts)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, slash, None::<&str>, private, None::<&str>)
        .at("make private the mounts below", slash)?;

    // A mount point of its own would be one more directory. It is covered only until the tree becomes the root.
    let root = scratch;
    fs::create_dir_all(root).at("make", root)?;
    let shadow = scratch.join("shadow");
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
    let host = pivot(root, rights)?;
    kernel_mounts()?;
    devices(rights)?;
    if spec.base == slash {
        for path in &spec.hide {
            hide(path)?;
        }
    } else {
        name_resolution(&shadow)?;
    }
    for volume in &volumes {
        attach(&host, volume, &shadow)?;
    }
    let message = message_file(&host, message, scratch)?;
    host.let_go()?;
    if spec.read_only {
        freeze(&volumes)?;
    }
    sethostname(&spec.hostname).at("set the host name in", slash)?;
    Ok(message)
}

/// Makes the file of the termination message, for a program of any user: in the container's own `/dev`, where it is there
/// and nothing else is, because that costs nothing on a disk and is limited; else in the directory of the attempt, which
/// then has the file whatever becomes of the container.
fn message_file(host: &Host, at: &Path, scratch: &Path) -> Result<Option<File>> {
    let dev = Path::new("/dev");
    let is_own = at.parent() == Some(dev)
        && fs::metadata(dev).is_ok_and(|it| it.dev() == host.dev)
        && fs::symlink_metadata(at).is_err();
    let open = Permissions::from_mode(0o666);
    if is_own {
        let file = File::create_new(at).at("make", at)?;
        file.set_permissions(open).at("open for all", at)?;
        // As on Kubernetes, no program can put another file in its place.
        bind(at, at).at("mount", at)?;
        let file = OpenOptions::new().read(true).open(at).at("open", at)?;
        return Ok(Some(file));
    }
    let source = scratch.join(TERMINATION_FILE);
    let on_host = host.path(&source);
    let file = File::create(&on_host).at("make", &source)?;
    file.set_permissions(open).at("open for all", &source)?;
    let mount = MountSpec {
        within: None,
        source,
        target: at.to_owned(),
        read_only: false,
    };
    attach(host, &mount, &scratch.join("shadow"))?;
    Ok(None)
}

/// Follows the links of every source while the host's tree is still `/`; parents come before children.
fn resolve(mounts: &[MountSpec]) -> Result<Vec<MountSpec>> {
    let mut all = Vec::with_capacity(mounts.len());
    for wanted in mounts {
        let found = |path| fs::canonicalize(path).at("find the volume source", path);
        let (source, within) = match &wanted.within {
            None => (found(&wanted.source)?, None),
            // The way from the volume on is followed when it is mounted, and not twice.
            Some(volume) => {
                let rest = wanted.source.strip_prefix(volume);
                let volume = found(volume)?;
                let rest = rest.unwrap_or(Path::new(""));
                (volume.join(rest), Some(volume))
            }
        };
        all.push(MountSpec {
            source,
            within,
            ..wanted.clone()
        });
    }
    all.sort_by_key(|m| m.target.components().count());
    Ok(all)
}

/// Makes the whole tree read-only, except the volumes that are not and what a runtime leaves writable: processes,
/// devices and shared memory.
fn freeze(volumes: &[MountSpec]) -> Result<()> {
    let slash = Path::new("/");
    let mut kept = vec![PathBuf::from("/dev"), PathBuf::from("/proc")];
    for volume in volumes {
        let at = fs::canonicalize(&volume.target).at("find again the volume at", &volume.target)?;
        // A volume there covers nothing, and everything would be below it.
        if at != slash {
            kept.push(at);
        }
    }
    set_tree_read_only(&kept).at("make read-only", slash)
}

/// Puts nothing in the place of what a container must not see.
fn hide(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => tmpfs(path, "mode=555,size=4k"),
        Ok(_) => bind(Path::new("/dev/null"), path).at("hide", path),
        // It is not there, or the container's user could not reach it either.
        Err(_) => Ok(()),
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
            bind(&mounted.at, &target).and_then(|()| set_read_only(&target, true))
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
            bind(&from, &to).at("show", &from)?;
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

/// Makes the tree the root of this process, and its `/dev` a small one in memory, where the host's tree then hangs.
fn pivot(root: &Path, rights: Rights) -> Result<Host> {
    let dev = root.join("dev");
    fs::create_dir_all(&dev).at("make", &dev)?;
    let flags = match rights {
        Rights::Root => MsFlags::MS_NOSUID,
        Rights::User => MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
    };
    let options = Some("mode=755,size=1m");
    mount(Some("tmpfs"), &dev, Some("tmpfs"), flags, options).at("mount memory at", &dev)?;
    let number = fs::metadata(&dev).at("look at", &dev)?.dev();
    let old = root.join(OLD.trim_start_matches('/'));
    fs::create_dir(&old).at("make", &old)?;
    pivot_root(root, &old).at("enter", root)?;
    chdir("/").at("enter", Path::new("/"))?;
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let tree = open(OLD, directory, Mode::empty()).at("open", Path::new(OLD))?;
    Ok(Host { tree, dev: number })
}

/// The host's tree after the pivot.
struct Host {
    tree: OwnedFd,
    /// The number of the file system in memory that the container's `/dev` is.
    dev: u64,
}

impl Host {
    /// A path of the host, also where a volume at `/dev` has covered the tree.
    fn path(&self, path: &Path) -> PathBuf {
        if is_old_visible() {
            return on_host(path);
        }
        let tree = Path::new("/proc/self/fd").join(self.tree.as_raw_fd().to_string());
        tree.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Takes the host's tree away.
    fn let_go(self) -> Result<()> {
        let old = Path::new(OLD);
        let is_visible = is_old_visible();
        fchdir(&self.tree).at("enter", old)?;
        umount2(".", MntFlags::MNT_DETACH).at("let go of", old)?;
        chdir("/").at("enter", Path::new("/"))?;
        if is_visible {
            fs::remove_dir(old).at("remove", old)?;
        }
        Ok(())
    }
}

/// Whether the host's tree hangs where it was put: no device has this name.
fn is_old_visible() -> bool {
    fs::metadata(OLD).is_ok()
}

/// A path of the host, as seen after the pivot and before there are volumes.
fn on_host(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

/// `/proc` of the container's own pid namespace and the host's `/sys`.
fn kernel_mounts() -> Result<()> {
    let (proc, sys) = (Path::new("/proc"), Path::new("/sys"));
    fs::create_dir_all(proc).at("make", proc)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if mount(Some("proc"), proc, Some("proc"), flags, None::<&str>).is_err() {
        // The kernel refuses a new one to user namespaces where parts of the host's are covered up.
        bind(&on_host(proc), proc).at("mount", proc)?;
    }
    fs::create_dir_all(sys).at("make", sys)?;
    bind(&on_host(sys), sys).at("mount", sys)
}

/// What the container's `/dev` has: the standard devices, terminals and shared memory.
fn devices(rights: Rights) -> Result<()> {
    let dev = Path::new("/dev");
    // The kernel takes the bits of the umask from the mode of a new device.
    let before = umask(Mode::empty());
    let made = DEVICES.iter().try_for_each(|name| {
        let node = dev.join(name);
        device(&on_host(&node), &node, rights)
    });
    umask(before);
    made?;
    let (pts, shm) = (dev.join("pts"), dev.join("shm"));
    fs::create_dir(&pts).at("make", &pts)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    mount(Some("devpts"), &pts, Some("devpts"), flags, options).at("mount", &pts)?;
    fs::create_dir(&shm).at("make", &shm)?;
    tmpfs(&shm, "mode=1777")?;
    for (link, goal) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(goal, dev.join(link)).at("make the link", &dev.join(link))?;
    }
    Ok(())
}

/// Makes a device of the host at `node`, where the host has it. A node of the container's own takes less time than a mount
/// of the host's; where the kernel refuses one, it is mounted.
fn device(host: &Path, node: &Path, rights: Rights) -> Result<()> {
    let Ok(found) = fs::metadata(host) else {
        return Ok(());
    };
    let mode = Mode::from_bits_truncate(0o666);
    let is_made = rights == Rights::Root
        && found.file_type().is_char_device()
        && mknod(node, SFlag::S_IFCHR, mode, found.rdev()).is_ok();
    if is_made {
        return Ok(());
    }
    fs::write(node, "").at("make", node)?;
    bind(host, node).at("mount", node)
}

/// A root that is not the host's still resolves names as the host does.
fn name_resolution(shadow: &Path) -> Result<()> {
    for file in ["/etc/resolv.conf", "/etc/hosts"] {
        let target = Path::new(file);
        let Ok(source) = on_host(target).canonicalize() else {
            continue;
        };
        if source.is_file() {
            ensure_mount_point(target, false, &on_host(shadow)).at("make", target)?;
            bind(&source, target)
                .and_then(|()| set_read_only(target, true))
                .at("mount", target)?;
        }
    }
    Ok(())
}

fn attach(host: &Host, volume: &MountSpec, shadow: &Path) -> Result<()> {
    let target = volume.target.as_path();
    let below = volume.within.as_deref();
    let below = below.map(|within| open_below(host, within, &volume.source));
    let below = below.transpose()?;
    let source = match &below {
        Some(found) => Path::new("/proc/self/fd").join(found.as_raw_fd().to_string()),
        None => host.path(&volume.source),
    };
    let is_dir = fs::metadata(&source)
        .at("find the volume source", &volume.source)?
        .is_dir();
    ensure_mount_point(target, is_dir, &host.path(shadow)).at("make the mount point", target)?;
    bind(&source, target).at("mount the volume at", target)?;
    if volume.read_only {
        set_read_only(target, true).at("make read-only the volume at", target)?;
    }
    Ok(())
}

/// What is at a path of a volume. The containers of a pod may change links in it at any time: the kernel follows them, and
/// none that leads out of the volume.
fn open_below(host: &Host, volume: &Path, path: &Path) -> Result<OwnedFd> {
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let volume_dir = open(&host.path(volume), directory, Mode::empty()).at("open", volume)?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let rest = path.strip_prefix(volume).unwrap_or(path);
    openat2(&volume_dir, rest, how).at("find, without leaving its volume, the subPath", path)
}

fn tmpfs(at: &Path, options: &str) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options)).at("mount memory at", at)
}
