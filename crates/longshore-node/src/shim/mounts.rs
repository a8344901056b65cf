//! Single mounts: bind, read-only, mount points that do not exist yet, and what the host has mounted.

use std::{
    ffi::{CString, OsString},
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::symlink,
    },
    path::{Path, PathBuf},
};

use nix::{
    libc,
    mount::{MsFlags, mount},
};

use super::proc_file;

/// Trees that every container gets anew, and those that belong to other container engines.
const NOT_SHOWN: [&str; 10] = [
    "/proc",
    "/sys",
    "/dev",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/run/containerd",
    "/run/docker",
    "/run/netns",
    "/run/user",
];

/// Holds the mount table of most machines.
const MOUNT_TABLE: usize = 32 * 1024;

/// Shows `source` and everything mounted below it at `target`.
pub(super) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(
        Some(source),
        target,
        None::<&str>,
        flags,
        None::<&str>,
    )?)
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Refuses writes through the mount at `target`, and through those below it when `recursive`.
///
/// `mount_setattr` (Linux 5.12) because a remount must repeat flags that it may not know.
pub(super) fn set_read_only(target: &Path, recursive: bool) -> io::Result<()> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    let path = CString::new(target.as_os_str().as_bytes())?;
    let attr = MountAttr {
        attr_set: MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    #[expect(unsafe_code, reason = "nix has no wrapper for mount_setattr")]
    // SAFETY: `path` is a C string and `attr` a `struct mount_attr` of the size passed; both outlive the
    // call, and the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes `target` exist as something to mount on.
///
/// Where its directory cannot take new entries (read-only, or owned by another user), that directory is covered by
/// memory that shows the same entries and takes new ones. `staging` is a directory that may be made for that.
pub(super) fn ensure_mount_point(target: &Path, is_dir: bool, staging: &Path) -> io::Result<()> {
    if fs::metadata(target).is_ok() {
        return Ok(());
    }
    let Err(refused) = create(target, is_dir) else {
        return Ok(());
    };
    let cover = target
        .ancestors()
        .skip(1)
        .find_map(|dir| fs::canonicalize(dir).ok())
        .ok_or(refused)?;
    shadow(&cover, staging)?;
    create(target, is_dir)
}

fn create(target: &Path, is_dir: bool) -> io::Result<()> {
    if is_dir {
        return fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(target, "")
}

/// Covers a directory with memory holding binds of all its entries.
fn shadow(dir: &Path, staging: &Path) -> io::Result<()> {
    fs::create_dir_all(staging)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("tmpfs"),
        staging,
        Some("tmpfs"),
        flags,
        Some("mode=755"),
    )?;
    for entry in fs::read_dir(dir)?.flatten() {
        let (from, to) = (entry.path(), staging.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        // One that has gone by now, or that a user may not pass on (FUSE of another user), stays empty: every pod with a
        // token covers `/run`.
        drop(create(&to, kind.is_dir()).and_then(|()| bind(&from, &to)));
    }
    Ok(mount(
        Some(staging),
        dir,
        None::<&str>,
        MsFlags::MS_MOVE,
        None::<&str>,
    )?)
}

/// One of the host's file systems besides the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HostMount {
    pub(super) at: PathBuf,
    pub(super) read_only: bool,
}

/// The file systems below `/` that a container shall see, parents first.
pub(super) fn host_mounts() -> io::Result<Vec<HostMount>> {
    let table = proc_file::read("/proc/self/mountinfo", MOUNT_TABLE)?;
    Ok(parse_mounts(&table))
}

fn parse_mounts(table: &[u8]) -> Vec<HostMount> {
    let mut all: Vec<HostMount> = Vec::new();
    for line in table.split(|b| *b == b'\n') {
        let mut fields = line.split(|b| *b == b' ').skip(4);
        let (Some(at), Some(options)) = (fields.next(), fields.next()) else {
            continue;
        };
        let at = PathBuf::from(OsString::from_vec(unescaped(at)));
        let is_shown = at != Path::new("/") && !NOT_SHOWN.iter().any(|dir| at.starts_with(dir));
        if is_shown && !all.iter().any(|m| m.at == at) {
            let read_only = options.split(|b| *b == b',').any(|o| o == b"ro");
            all.push(HostMount { at, read_only });
        }
    }
    all.sort_by_key(|m| m.at.components().count());
    all
}

/// The kernel writes blanks, tabs, line ends and backslashes as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_gives_other_file_systems_parents_first() {
        let table = b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            22 27 0:21 / /proc rw - proc proc rw\n\
            40 41 0:9 / /data/in\\040ner rw - ext4 /dev/vdc rw\n\
            41 27 0:8 / /data ro,noatime - ext4 /dev/vdb rw\n\
            42 27 0:8 / /data ro,noatime - ext4 /dev/vdb rw\n";
        assert_eq!(
            parse_mounts(table),
            [
                HostMount {
                    at: "/data".into(),
                    read_only: true
                },
                HostMount {
                    at: "/data/in ner".into(),
                    read_only: false
                },
            ]
        );
    }
}
