//! Private writable layers: overlays whose writes land in the attempt's scratch directory.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
};

use super::{
    mount_fd::{Extent, NO_DEVICES, change_path},
    mounts::{bind, bind_read_only},
    record::beside,
};

/// What the names of layers' directories begin with: what was written, and what the kernel needs beside it.
const UPPER: &str = "upper";
const WORK: &str = "work";
/// The place of layers in memory.
const MEMORY: &str = "memory";

/// What the kernel lets the init do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// Root of the host.
    Root,
    /// All rights, but only inside a user namespace.
    User,
}

/// Hands out layers beside one scratch directory. Where root makes them, that itself is what the kernel needs for the first
/// one: most containers have one layer, and each directory costs.
#[derive(Debug)]
pub(super) struct Layers<'a> {
    scratch: &'a Path,
    rights: Rights,
    n_made: u32,
    /// Where layers go when the scratch directory's file system cannot hold one (it is an overlay itself).
    in_memory: Option<PathBuf>,
}

impl<'a> Layers<'a> {
    pub(super) fn new(scratch: &'a Path, rights: Rights) -> Self {
        Self {
            scratch,
            rights,
            n_made: 0,
            in_memory: None,
        }
    }

    /// Shows `lower` at `target`: under a private layer where the kernel can, else read-only.
    pub(super) fn stack(&mut self, lower: &Path, target: &Path) -> io::Result<()> {
        if self.overlay(lower, target).is_ok() {
            return Ok(());
        }
        bind_read_only(lower, target)
    }

    /// Shows `lower` at `target`; writes stay with this container.
    pub(super) fn overlay(&mut self, lower: &Path, target: &Path) -> io::Result<()> {
        let first = self.try_overlay(lower, target);
        if first.is_ok() || self.in_memory.is_some() {
            return first;
        }
        // Not in the scratch directory: the root of the container may be mounted over it.
        let memory = beside(self.scratch, MEMORY);
        fs::create_dir_all(&memory)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("tmpfs"),
            &memory,
            Some("tmpfs"),
            flags,
            Some("mode=700"),
        )?;
        self.in_memory = Some(memory);
        self.try_overlay(lower, target)
    }

    /// Shows an empty directory at `target` that every user may write to.
    pub(super) fn own_directory(&mut self, target: &Path) -> io::Result<()> {
        let dir = self.new_directory(UPPER)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777))?;
        bind(&dir, target)?;
        change_path(target, NO_DEVICES, Extent::One)
    }

    fn try_overlay(&mut self, lower: &Path, target: &Path) -> io::Result<()> {
        let upper = self.new_directory(UPPER)?;
        // The tree of a user is one in memory, which covers the scratch directory before there is a layer.
        let is_root = self.n_made == 1 && self.rights == Rights::Root;
        let work = if is_root {
            self.scratch.to_owned()
        } else {
            self.new_directory(WORK)?
        };
        // The merged directory takes owner and mode from the upper one.
        let attributes = fs::metadata(lower)?;
        fs::set_permissions(&upper, attributes.permissions())?;
        let mut options = OsString::from("lowerdir=");
        options.push(escaped(lower));
        for (name, dir) in [(",upperdir=", &upper), (",workdir=", &work)] {
            options.push(name);
            options.push(escaped(dir));
        }
        match self.rights {
            Rights::Root => {
                std::os::unix::fs::chown(&upper, Some(attributes.uid()), Some(attributes.gid()))?
            }
            Rights::User => options.push(",userxattr"),
        }
        mount_overlay(target, options)
    }

    fn new_directory(&mut self, kind: &str) -> io::Result<PathBuf> {
        self.n_made += 1;
        let name = format!("{kind}-{}", self.n_made);
        let dir = match &self.in_memory {
            Some(memory) => memory.join(name),
            None => beside(self.scratch, &name),
        };
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

/// Mounts an overlay that nobody wants to have again after a crash of the machine. Devices that a program makes in it, or
/// that the host has there, open for nobody: root could read the disks of the machine.
///
/// Without `volatile` (Linux 5.10), the kernel writes the whole file system of the upper layer to its disk when the overlay
/// is unmounted: the end of each container would wait for what all others have written, and for all that other programs
/// have, although nobody reads the layer any more.
fn mount_overlay(target: &Path, mut options: OsString) -> io::Result<()> {
    let overlay = |options: &OsString| {
        let options = Some(options.as_os_str());
        mount(
            Some("overlay"),
            target,
            Some("overlay"),
            MsFlags::MS_NODEV,
            options,
        )
    };
    let synced = options.clone();
    options.push(",volatile");
    let mounted = match overlay(&options) {
        // The kernel does not know the option, or something else is wrong, of which it then says the same again.
        Err(Errno::EINVAL) => overlay(&synced),
        mounted => mounted,
    };
    Ok(mounted?)
}

/// Removes the layers of a container that has ended. What cannot be removed now goes with the pod's directory.
pub(super) fn remove(scratch: &Path) {
    let (Some(dir), Some(own)) = (scratch.parent(), scratch.file_name()) else {
        return;
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.as_bytes().strip_prefix(own.as_bytes());
        let what = rest.and_then(|rest| rest.strip_prefix(b"."));
        let is_layer = what.is_some_and(|what| {
            [UPPER, WORK, MEMORY]
                .iter()
                .any(|kind| what.starts_with(kind.as_bytes()))
        });
        if is_layer {
            drop(longshore_files::remove_tree(&entry.path()));
        }
    }
}

/// A path as a mount option: commas and colons separate things there.
fn escaped(path: &Path) -> OsString {
    let mut out = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_containers_wrote_and_what_the_kernel_made_is_removed() {
        let pod = tempfile::tempdir().unwrap();
        let scratch = pod.path().join("base.1");
        for path in [
            "base.1.upper-1",
            "base.1.upper-2/etc/deep",
            "base.1.work-3/work",
            "base.1.work-3/index",
            "base.1.memory",
        ] {
            fs::create_dir_all(pod.path().join(path)).unwrap();
        }
        fs::write(pod.path().join("base.1.upper-2/etc/file"), "").unwrap();
        fs::write(pod.path().join("base.1.work-3/work/left"), "").unwrap();
        let kept = ["base.1", "base.1.log", "base.10.upper-1", "pod.json"];
        fs::create_dir(&scratch).unwrap();
        for file in ["base.1.log", "pod.json"] {
            fs::write(pod.path().join(file), "").unwrap();
        }
        fs::create_dir(pod.path().join("base.10.upper-1")).unwrap();
        for _ in 0..2 {
            remove(&scratch);
            let left = fs::read_dir(pod.path()).unwrap();
            let left = left.map(|it| it.unwrap().file_name().into_string().unwrap());
            let mut left: Vec<String> = left.collect();
            left.sort();
            assert_eq!(left, kept);
        }
    }
}
