//! Single mounts: bind, read-only, mount points that do not exist yet, and what the host has mounted.

use std::{
    collections::BTreeSet,
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
#[derive(Default)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// The kernel's `MOUNT_ATTR_RDONLY`.
const READ_ONLY: u64 = 1;

/// Refuses writes through the mount at `target`, and through those below it when `recursive`.
pub(super) fn set_read_only(target: &Path, recursive: bool) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: READ_ONLY,
        ..MountAttr::default()
    };
    set_attributes(
        target,
        &attr,
        if recursive { libc::AT_RECURSIVE } else { 0 },
    )
}

/// `mount_setattr` (Linux 5.12) because a remount must repeat flags that it may not know.
fn set_attributes(target: &Path, attr: &MountAttr, flags: libc::c_int) -> io::Result<()> {
    let path = CString::new(target.as_os_str().as_bytes())?;
    #[expect(unsafe_code, reason = "nix has no wrapper for mount_setattr")]
    // SAFETY: `path` is a C string and `attr` a `struct mount_attr` of the size passed; both outlive the
    // call, and the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Refuses writes to the whole tree of this process, except through mounts at and below `kept` that take writes now.
///
/// First the kernel makes all read-only, then the exceptions are taken back: what this function fails to see stays
/// read-only.
pub(super) fn set_tree_read_only(kept: &[PathBuf]) -> io::Result<()> {
    let table = proc_file::read("/proc/self/mountinfo", MOUNT_TABLE)?;
    set_read_only(Path::new("/"), true)?;
    let writable = MountAttr {
        attr_clr: READ_ONLY,
        ..MountAttr::default()
    };
    for at in writable_below(&table, kept) {
        match set_attributes(&at, &writable, 0).map_err(|e| (e.raw_os_error(), e)) {
            // Another mount covers it, or a directory above it.
            Ok(()) | Err((Some(libc::EINVAL | libc::ENOENT | libc::ENOTDIR), _)) => {}
            Err((_, e)) => return Err(e),
        }
    }
    Ok(())
}

/// Where the mounts are that take writes, at and below `kept`. A path at which the table has several mounts that do not
/// cover each other is left out unless all of them do: one that a mount further up covers cannot be told from the other.
fn writable_below(table: &[u8], kept: &[PathBuf]) -> BTreeSet<PathBuf> {
    let all: Vec<Mounted> = mounted(table).collect();
    let is_below = |it: &&Mounted| kept.iter().any(|dir| it.at.starts_with(dir));
    let is_covered = |it: &Mounted| all.iter().any(|on| on.parent == it.id && on.at == it.at);
    let seen = all.iter().filter(is_below).filter(|it| !is_covered(it));
    let (refused, writable): (Vec<&Mounted>, Vec<&Mounted>) = seen.partition(|it| it.read_only);
    let refused: BTreeSet<&Path> = refused.iter().map(|it| it.at.as_path()).collect();
    let writable = writable.into_iter().map(|it| it.at.clone());
    writable
        .filter(|at| !refused.contains(at.as_path()))
        .collect()
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
    for Mounted { at, read_only, .. } in mounted(table) {
        let is_shown = at != Path::new("/") && !NOT_SHOWN.iter().any(|dir| at.starts_with(dir));
        if is_shown && !all.iter().any(|m| m.at == at) {
            all.push(HostMount { at, read_only });
        }
    }
    all.sort_by_key(|m| m.at.components().count());
    all
}

/// A line of the table of mounts.
struct Mounted {
    id: u64,
    /// The mount that it is mounted on.
    parent: u64,
    at: PathBuf,
    read_only: bool,
}

/// The lines of a `mountinfo` file.
fn mounted(table: &[u8]) -> impl Iterator<Item = Mounted> {
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    table.split(|b| *b == b'\n').filter_map(move |line| {
        let mut fields = line.split(|b| *b == b' ');
        let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
        // The device, and what of its file system is shown.
        let mut fields = fields.skip(2);
        let (at, options) = (fields.next()?, fields.next()?);
        Some(Mounted {
            id,
            parent,
            at: PathBuf::from(OsString::from_vec(unescaped(at))),
            read_only: options.split(|b| *b == b',').any(|o| o == b"ro"),
        })
    })
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

    #[test]
    fn only_visible_mounts_of_volumes_take_writes_again() {
        let table = b"20 1 0:1 / / rw - overlay x rw\n\
            21 20 0:2 / /tmp rw - ext4 x rw\n\
            22 20 0:3 / /dev rw,nosuid - tmpfs x rw\n\
            23 22 0:4 / /dev/pts rw - devpts x rw\n\
            24 21 0:5 / /tmp/data rw - ext4 x rw\n\
            25 24 0:6 / /tmp/data/frozen ro - ext4 x rw\n\
            26 20 0:7 / /under ro - ext4 x rw\n\
            27 26 0:8 / /under rw - ext4 x rw\n\
            28 20 0:9 / /over rw - ext4 x rw\n\
            29 28 0:9 / /over ro - ext4 x rw\n\
            30 27 0:9 / /under/lock rw - ext4 x rw\n\
            31 26 0:9 / /under/lock ro - ext4 x rw\n";
        let kept = ["/dev", "/tmp/data", "/under", "/over"].map(PathBuf::from);
        let writable = writable_below(table, &kept);
        let expected = ["/dev", "/dev/pts", "/tmp/data", "/under"];
        assert_eq!(writable, BTreeSet::from(expected.map(PathBuf::from)));
    }
}
