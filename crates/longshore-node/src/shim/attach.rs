//! Mounts in the tree of a container, once that is the root and the host's tree is gone.
//!
//! The pod chooses these paths, and its containers the links on the way. Each is resolved inside the root, and what is
//! mounted there was opened before ([`super::mount_fd`]): no path means anything of the host.

use std::{
    ffi::CStr,
    fs::{File, Permissions},
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::Path,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, openat, readlinkat},
    sys::stat::{FileStat, Mode, SFlag, fstat, mknodat},
    unistd::{UnlinkatFlags, symlinkat, unlinkat},
};

use super::{
    mount_fd::{self, Extent, NO_DEVICES, NO_SUID, copy, put},
    rootfs::{Context, Result},
};
use crate::beneath::{self, Kind, create, deepest, in_root};

/// The file of a termination message outside of `/dev`, before it is in its place. No program has started then.
const UNNAMED: &str = ".termination-log";

/// What is mounted in the tree.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: OwnedFd,
    /// The file system in memory at `/dev`, also where a volume covers it.
    pub(super) dev: OwnedFd,
    /// An empty directory that is mounted somewhere; made when something is hidden.
    empty: Option<OwnedFd>,
}

impl Tree {
    pub(super) fn new(root: OwnedFd, dev: OwnedFd) -> Self {
        Self {
            root,
            dev,
            empty: None,
        }
    }

    /// Puts a mount at `target`, which is made where it is missing.
    pub(super) fn attach(&self, mount: &OwnedFd, target: &Path) -> Result<()> {
        let at = mount_point(&self.root, target, kind_of(mount).at("look at", target)?)
            .at("make the mount point", target)?;
        put(mount, at, Path::new("")).at("mount the volume at", target)
    }

    /// Puts nothing in the place of what a container must not see.
    pub(super) fn hide(&mut self, path: &Path) -> Result<()> {
        match in_root(&self.root, path) {
            Ok(found) => self.cover(&found).at("hide", path),
            // It is not there, or the container's user could not reach it either.
            Err(_) => Ok(()),
        }
    }

    /// The same for what is below a directory, and not behind a link.
    pub(super) fn hide_below(&mut self, dir: &OwnedFd, path: &Path) -> Result<()> {
        match beneath::without_links(dir, path, OFlag::O_PATH) {
            Ok(found) => self.cover(&found).at("hide", path),
            Err(_) => Ok(()),
        }
    }

    /// Puts nothing in the place of what is open.
    fn cover(&mut self, found: &OwnedFd) -> io::Result<()> {
        if kind_of(found)? == Kind::File {
            let null = copy(&self.dev, Path::new("null"), Extent::One, false)?;
            return put(null, found, Path::new(""));
        }
        if let Some(empty) = &self.empty {
            let more = copy(empty, Path::new(""), Extent::One, false)?;
            return put(more, found, Path::new(""));
        }
        let options = [(c"mode", c"555"), (c"size", c"4k")];
        let flags = NO_SUID | NO_DEVICES | mount_fd::READ_ONLY;
        let empty = mount_fd::new(c"tmpfs", &options, flags)?;
        put(&empty, found, Path::new(""))?;
        self.empty = Some(empty);
        Ok(())
    }

    /// Makes the file of the termination message, for a program of any user, and puts it at `at`: in memory, which costs
    /// nothing on a disk and is limited. Returns the file, and the mount.
    pub(super) fn message_file(&self, at: &Path) -> Result<(File, OwnedFd)> {
        let made = self.own_message(at).at("make", at)?;
        let (name, is_own) = made.map_or((Path::new(UNNAMED), false), |name| (name, true));
        let mode = Mode::from_bits_truncate(0o666);
        mknodat(&self.dev, name, SFlag::S_IFREG, mode, 0).at("make", at)?;
        // One that is open for writing would keep the tree from becoming read-only.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.dev, name, flags, Mode::empty()).at("open", at)?);
        let open = Permissions::from_mode(mode.bits());
        file.set_permissions(open).at("open for all", at)?;
        // As on Kubernetes, no program can put another file in its place.
        let mount = copy(&self.dev, name, Extent::One, false).at("mount", at)?;
        if is_own {
            put(&mount, &self.dev, name).at("mount", at)?;
        } else {
            self.attach(&mount, at)?;
            unlinkat(&self.dev, name, UnlinkatFlags::NoRemoveDir).at("unlink", at)?;
        }
        Ok((file, mount))
    }

    /// The name in the container's own `/dev`, where that is at the path and has nothing of this name.
    fn own_message<'a>(&self, at: &'a Path) -> io::Result<Option<&'a Path>> {
        let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
            return Ok(None);
        };
        let Ok(found) = in_root(&self.root, parent) else {
            return Ok(None);
        };
        let name = Path::new(name);
        let is_free = || {
            let there = beneath::without_links(&self.dev, name, OFlag::O_PATH);
            matches!(there, Err(Errno::ENOENT))
        };
        let is_own = is_same(&fstat(&found)?, &fstat(&self.dev)?) && is_free();
        Ok(is_own.then_some(name))
    }
}

fn is_same(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn kind_of(file: &OwnedFd) -> io::Result<Kind> {
    let mode = SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT;
    Ok(if mode == SFlag::S_IFDIR {
        Kind::Directory
    } else {
        Kind::File
    })
}

/// Makes `target` exist as something to mount on, and opens it.
///
/// Where its directory cannot take new entries (read-only, or owned by another user), that directory is covered by
/// memory that shows the same entries and takes new ones.
pub(super) fn mount_point(root: &OwnedFd, target: &Path, kind: Kind) -> io::Result<OwnedFd> {
    if let Ok(found) = in_root(root, target) {
        return Ok(found);
    }
    // Images have links to files that only a running system has, such as `/etc/resolv.conf`.
    let target = beneath::goal(root, target)?;
    let (dir, rest) = deepest(root, &target)?;
    let refused = match create(&dir, rest, kind) {
        Ok(made) => return Ok(made),
        Err(e) => e,
    };
    // What covers the root itself is in nobody's sight.
    if is_same(&fstat(&dir)?, &fstat(root)?) {
        return Err(refused);
    }
    create(&shadow(&dir)?, rest, kind)
}

/// Covers a directory with memory holding binds of all its entries.
fn shadow(dir: &OwnedFd) -> io::Result<OwnedFd> {
    let cover = mount_fd::new(c"tmpfs", &[(c"mode", c"755")], NO_SUID | NO_DEVICES)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut entries = Dir::openat(dir, ".", flags, Mode::empty())?;
    put(&cover, dir, Path::new(""))?;
    for entry in entries.iter().flatten() {
        let name = entry.file_name();
        if name != c"." && name != c".." {
            show(dir, &cover, name)?;
        }
    }
    Ok(cover)
}

/// Shows the entry of a directory in that which covers it.
fn show(dir: &OwnedFd, cover: &OwnedFd, name: &CStr) -> io::Result<()> {
    if let Ok(goal) = readlinkat(dir, name) {
        return Ok(symlinkat(goal.as_os_str(), cover, name)?);
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    // One that has gone by now, or that a user may not pass on (FUSE of another user), stays empty: every pod with a
    // token covers `/run`.
    let shown = copy(dir, path, Extent::Tree, false).and_then(|mount| {
        let at = create(cover, path, kind_of(&mount)?)?;
        put(&mount, at, Path::new(""))
    });
    drop(shown);
    Ok(())
}
