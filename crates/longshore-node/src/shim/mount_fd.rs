//! Mounts as open files: taken from one place, kept, and put in another, without a path that somebody could change.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nix::libc;

/// Attributes of mounts, by the kernel's numbers (`MOUNT_ATTR_*`).
pub(super) const READ_ONLY: u64 = 1;
pub(super) const NO_SUID: u64 = 2;
pub(super) const NO_DEVICES: u64 = 4;
pub(super) const NO_PROGRAMS: u64 = 8;

/// Whether mounts further down are meant, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    One,
    Tree,
}

impl Extent {
    fn flags(self) -> libc::c_int {
        match self {
            Self::One => 0,
            Self::Tree => libc::AT_RECURSIVE,
        }
    }
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

/// A mount of what is at a path, which is not yet in any place. The last name may be a link where `follows`.
pub(super) fn copy(
    dir: impl AsFd,
    path: &Path,
    extent: Extent,
    follows: bool,
) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let link = if follows {
        0
    } else {
        libc::AT_SYMLINK_NOFOLLOW
    };
    // An empty path is `dir` itself.
    let flags = extent.flags() | link | libc::AT_EMPTY_PATH | libc::O_CLOEXEC | OPEN_TREE_CLONE;
    #[expect(unsafe_code, reason = "nix has no wrapper for open_tree")]
    // SAFETY: `path` is a C string that outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            dir.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
        )
    };
    owned(fd)
}

/// Puts a mount, which may be new, at what is at `path` below `dir`; the last name is no link. An empty path is `dir`.
pub(super) fn put(mount: impl AsFd, dir: impl AsFd, path: &Path) -> io::Result<()> {
    let path = c_string(path)?;
    #[expect(unsafe_code, reason = "nix has no wrapper for move_mount")]
    // SAFETY: both paths are C strings that outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            dir.as_fd().as_raw_fd(),
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    };
    done(result)
}

/// Gives a mount these attributes, and takes others away.
///
/// `mount_setattr` (Linux 5.12) because a remount must repeat flags that it may not know.
pub(super) fn change(mount: impl AsFd, set: u64, clear: u64, extent: Extent) -> io::Result<()> {
    change_at(mount.as_fd().as_raw_fd(), c"", set, clear, extent)
}

/// The same for the mount at a path.
pub(super) fn change_path(path: &Path, set: u64, extent: Extent) -> io::Result<()> {
    change_at(libc::AT_FDCWD, &c_string(path)?, set, 0, extent)
}

fn change_at(dir: RawFd, path: &CStr, set: u64, clear: u64, extent: Extent) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: set,
        attr_clr: clear,
        ..MountAttr::default()
    };
    #[expect(unsafe_code, reason = "nix has no wrapper for mount_setattr")]
    // SAFETY: `path` is a C string and `attr` a `struct mount_attr` of the size passed; both outlive the
    // call, and the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir,
            path.as_ptr(),
            extent.flags() | libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    done(result)
}

/// A new file system of this type, which is not yet in any place.
pub(super) fn new(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> io::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "nix has no wrapper for fsopen")]
    // SAFETY: the name is a C string that outlives the call.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    for &(key, value) in options {
        configure(&context, FSCONFIG_SET_STRING, Some((key, value)))?;
    }
    configure(&context, FSCONFIG_CMD_CREATE, None)?;
    #[expect(unsafe_code, reason = "nix has no wrapper for fsmount")]
    // SAFETY: the call takes numbers.
    let mount = unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            attributes,
        )
    };
    owned(mount)
}

fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    option: Option<(&CStr, &CStr)>,
) -> io::Result<()> {
    let (key, value) = option.map_or((std::ptr::null(), std::ptr::null()), |(key, value)| {
        (key.as_ptr(), value.as_ptr())
    });
    #[expect(unsafe_code, reason = "nix has no wrapper for fsconfig")]
    // SAFETY: key and value are C strings that outlive the call, or null for a command without them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            command,
            key,
            value,
            0,
        )
    };
    done(result)
}

const OPEN_TREE_CLONE: libc::c_int = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let Some(fd) = RawFd::try_from(result).ok().filter(|fd| *fd >= 0) else {
        return Err(io::Error::last_os_error());
    };
    #[expect(unsafe_code, reason = "the system call returns a bare number")]
    // SAFETY: the descriptor is new, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(fd)
}
