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

use super::mounts::{bind, set_read_only};

/// The directory of all layers in a scratch directory.
const LAYERS: &str = "layers";
/// What the names of layers' directories begin with: what was written, and what the kernel needs beside it.
const UPPER: &str = "upper";
const WORK: &str = "work";

/// What the kernel lets the init do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// Root of the host.
    Root,
    /// All rights, but only inside a user namespace.
    User,
}

/// Hands out layers below one scratch directory.
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
        bind(lower, target)?;
        set_read_only(target, true)
    }

    /// Shows `lower` at `target`; writes stay with this container.
    pub(super) fn overlay(&mut self, lower: &Path, target: &Path) -> io::Result<()> {
        let first = self.try_overlay(lower, target);
        if first.is_ok() || self.in_memory.is_some() {
            return first;
        }
        let memory = self.scratch.join("memory");
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
        bind(&dir, target)
    }

    fn try_overlay(&mut self, lower: &Path, target: &Path) -> io::Result<()> {
        let upper = self.new_directory(UPPER)?;
        let work = self.new_directory(WORK)?;
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
        let base = self.in_memory.as_deref().unwrap_or(self.scratch);
        let dir = base.join(LAYERS).join(format!("{kind}-{}", self.n_made));
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

/// Mounts an overlay that nobody wants to have again after a crash of the machine.
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
            MsFlags::empty(),
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
    drop(longshore_files::remove_tree(&scratch.join(LAYERS)));
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
        let scratch = tempfile::tempdir().unwrap();
        let layers = scratch.path().join(LAYERS);
        for path in [
            "upper-1",
            "work-2/work",
            "upper-3/etc/deep",
            "work-4/work",
            "work-4/index",
        ] {
            fs::create_dir_all(layers.join(path)).unwrap();
        }
        fs::write(layers.join("upper-3/etc/file"), "").unwrap();
        fs::write(layers.join("work-4/work/left"), "").unwrap();
        for _ in 0..2 {
            remove(scratch.path());
            assert!(!layers.exists());
        }
    }
}
