//! Single mounts: bind, read-only, and what is mounted where.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, openat},
    mount::{MsFlags, mount},
    sys::stat::Mode,
};

use super::{
    mount_fd::{Extent, NO_DEVICES, READ_ONLY, change, change_path},
    proc_file,
};
use crate::beneath;

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

/// The same without writes and without devices.
pub(super) fn bind_read_only(source: &Path, target: &Path) -> io::Result<()> {
    bind(source, target)?;
    change_path(target, READ_ONLY | NO_DEVICES, Extent::Tree)
}

/// The table of the mounts of this process, however its `/proc` is covered later.
pub(super) fn table(proc: &OwnedFd) -> io::Result<File> {
    let path = Path::new("self/mountinfo");
    Ok(openat(
        proc,
        path,
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?
    .into())
}

/// The number in the table of the mount that an open file is in.
pub(super) fn mount_id(proc: &OwnedFd, file: impl AsFd) -> io::Result<u64> {
    let path = format!("self/fdinfo/{}", file.as_fd().as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut info = String::new();
    File::from(openat(proc, path.as_str(), flags, Mode::empty())?).read_to_string(&mut info)?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok())
        .ok_or_else(|| io::Error::other("the kernel tells no number of a mount"))
}

/// Refuses writes to the whole tree of this process, except through the mounts `kept`, and those below them, that take
/// writes now.
///
/// First the kernel makes all read-only, then the exceptions are taken back: what this function fails to see stays
/// read-only.
pub(super) fn set_tree_read_only(
    root: &OwnedFd,
    proc: &OwnedFd,
    mut table: File,
    kept: &[u64],
) -> io::Result<()> {
    let mut rows = Vec::with_capacity(MOUNT_TABLE);
    table.read_to_end(&mut rows)?;
    change(root, READ_ONLY, 0, Extent::Tree)?;
    for row in writable_below(&rows, kept) {
        // Another mount may cover it, or a program of the pod may have put a link in its way.
        let Ok(found) = beneath::in_root(root, &row.at) else {
            continue;
        };
        if mount_id(proc, &found)? == row.id {
            change(&found, 0, READ_ONLY, Extent::One)?;
        }
    }
    Ok(())
}

/// The mounts that take writes, of `kept` and of what is below their places.
fn writable_below(table: &[u8], kept: &[u64]) -> Vec<Mounted> {
    let all: Vec<Mounted> = mounted(table).collect();
    let places = all.iter().filter(|it| kept.contains(&it.id));
    // A volume at the root covers nothing, and everything would be below it.
    let places = places.filter(|it| it.at != Path::new("/"));
    let places: Vec<PathBuf> = places.map(|it| it.at.clone()).collect();
    let is_below = |it: &Mounted| places.iter().any(|dir| it.at.starts_with(dir));
    let mut found = all;
    found.retain(|it| !it.read_only && is_below(it));
    found
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
    at: PathBuf,
    read_only: bool,
}

/// The lines of a `mountinfo` file.
fn mounted(table: &[u8]) -> impl Iterator<Item = Mounted> {
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    table.split(|b| *b == b'\n').filter_map(move |line| {
        let mut fields = line.split(|b| *b == b' ');
        let id = number(fields.next()?)?;
        // The mount that it is on, the device, and what of its file system is shown.
        let mut fields = fields.skip(3);
        let (at, options) = (fields.next()?, fields.next()?);
        Some(Mounted {
            id,
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
    fn only_mounts_of_volumes_take_writes_again() {
        let table = b"20 1 0:1 / / rw - overlay x rw\n\
            21 20 0:2 / /tmp rw - ext4 x rw\n\
            22 20 0:3 / /dev rw,nosuid - tmpfs x rw\n\
            23 22 0:4 / /dev/pts rw - devpts x rw\n\
            24 21 0:5 / /tmp/data rw - ext4 x rw\n\
            25 24 0:6 / /tmp/data/frozen ro - ext4 x rw\n\
            26 20 0:7 / /device rw - ext4 x rw\n\
            27 20 0:8 / / rw - ext4 x rw\n";
        let found = writable_below(table, &[22, 24, 27]);
        let ids: Vec<u64> = found.iter().map(|it| it.id).collect();
        assert_eq!(ids, [22, 23, 24]);
    }
}
