//! Paths in trees that programs of pods write to: the kernel follows them without leaving a directory, whatever links
//! somebody makes meanwhile, and none of `/proc` to an open file.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat},
    sys::stat::{Mode, SFlag, mkdirat, mknodat},
};

/// How often to ask the kernel again that cannot tell where `..` leads, because somebody renames something at the same
/// time, anywhere on the machine.
const N_TRIES: u32 = 256;

/// How many links on the way to a missing path are followed, as the kernel does.
const N_LINKS: u32 = 40;

/// What a missing path becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// The modes of what is made on the way to what is mounted there.
const OF_DIRECTORIES: Mode = Mode::from_bits_truncate(0o755);
const OF_FILES: Mode = Mode::from_bits_truncate(0o644);

/// What is at a path for a process whose root is `root`.
pub(crate) fn in_root(root: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    follow(root, path, OFlag::O_PATH, ResolveFlag::RESOLVE_IN_ROOT)
}

/// What is at a path below a directory; a link that leads out of it is an error.
pub(crate) fn below(dir: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    follow(dir, path, OFlag::O_PATH, ResolveFlag::RESOLVE_BENEATH)
}

/// The same where any link on the way is an error.
pub(crate) fn without_links(dir: impl AsFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let how = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    follow(dir, path, flags, how)
}

fn follow(
    dir: impl AsFd,
    path: &Path,
    flags: OFlag,
    resolve: ResolveFlag,
) -> Result<OwnedFd, Errno> {
    // An empty path is the directory itself.
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let mut left = N_TRIES;
    loop {
        match openat2(&dir, path, how) {
            Err(Errno::EAGAIN) if left > 0 => left -= 1,
            done => return done,
        }
    }
}

/// The deepest directory on the way to `path` that exists in `root`, and the rest of the path.
pub(crate) fn deepest(root: impl AsFd, path: &Path) -> Result<(OwnedFd, &Path), Errno> {
    for above in path.ancestors() {
        if let Ok(found) = in_root(&root, above) {
            return Ok((found, path.strip_prefix(above).unwrap_or(Path::new(""))));
        }
    }
    Ok((in_root(&root, Path::new("/"))?, path))
}

/// Where a missing path leads in `root`: a link to something that is not there stands for its goal.
///
/// # Errors
/// `ELOOP`: the links lead in a circle, or are too many.
pub(crate) fn goal(root: impl AsFd, path: &Path) -> Result<PathBuf, Errno> {
    let mut path = path.to_owned();
    for _ in 0..=N_LINKS {
        let (dir, rest) = deepest(&root, &path)?;
        let mut names = rest.components();
        let Some(Component::Normal(name)) = names.next() else {
            return Ok(path);
        };
        let Ok(link) = readlinkat(&dir, name) else {
            return Ok(path);
        };
        let n_above = path.components().count() - rest.components().count();
        let above: PathBuf = path.components().take(n_above).collect();
        // An absolute goal begins at the root of the tree.
        let mut next = above.join(link);
        let behind = names.as_path();
        if behind != Path::new("") {
            next.push(behind);
        }
        path = next;
    }
    Err(Errno::ELOOP)
}

/// Makes what is missing of `rest` below `dir`, one name after the other; `rest` ends in a `kind`. Returns what is there.
pub(crate) fn create(dir: &OwnedFd, rest: &Path, kind: Kind) -> io::Result<OwnedFd> {
    let names: Vec<_> = rest.components().collect();
    let mut at = dir.try_clone()?;
    for (i, name) in names.iter().enumerate() {
        let name = match name {
            Component::Normal(name) => Path::new(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => continue,
            Component::ParentDir => return Err(Errno::EINVAL.into()),
        };
        let made = if kind == Kind::File && i + 1 == names.len() {
            mknodat(&at, name, SFlag::S_IFREG, OF_FILES, 0)
        } else {
            mkdirat(&at, name, OF_DIRECTORIES)
        };
        match made {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        at = without_links(&at, name, OFlag::O_PATH)?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_path_leads_nowhere_but_below_its_root() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root/in", "outside"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let root = dir.path().join("root");
        for (link, goal) in [
            ("absolute", "/in".into()),
            ("up", "../../in".into()),
            ("host", dir.path().join("outside")),
            ("magic", "/proc/self/cwd".into()),
        ] {
            symlink(goal, root.join(link)).unwrap();
        }
        fs::create_dir(root.join("proc")).unwrap();
        symlink("/proc/self", root.join("proc/real")).unwrap();
        let fd: OwnedFd = fs::File::open(&root).unwrap().into();
        for (path, is_found) in [
            ("/in", true),
            ("/../in", true),
            ("/absolute", true),
            ("/up", true),
            ("/host", false),
            ("/magic", false),
        ] {
            assert_eq!(in_root(&fd, Path::new(path)).is_ok(), is_found, "{path}");
        }
        for (path, is_found) in [("in", true), ("absolute", false), ("../outside", false)] {
            assert_eq!(below(&fd, Path::new(path)).is_ok(), is_found, "{path}");
        }
        let (found, rest) = deepest(&fd, Path::new("/absolute/new/file")).unwrap();
        assert_eq!(rest, Path::new("new/file"));
        create(&found, rest, Kind::File).unwrap();
        assert!(root.join("in/new/file").is_file());
        // A link that leads nowhere is not followed to make something.
        let (found, rest) = deepest(&fd, Path::new("/host/new")).unwrap();
        create(&found, rest, Kind::Directory).unwrap_err();
        assert!(!dir.path().join("outside/new").exists());
        create(&found, Path::new("a/../../b"), Kind::Directory).unwrap_err();
    }

    #[test]
    fn a_link_to_what_is_missing_leads_to_its_goal_inside_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/etc/real")).unwrap();
        let root = dir.path().join("root");
        for (link, goal) in [
            ("etc/resolv.conf", "../run/systemd/stub.conf"),
            ("etc/hosts", "/new/hosts"),
            ("etc/far", "../../../outside"),
            ("etc/chain", "resolv.conf"),
            ("etc/circle", "circle"),
            ("link", "etc/real"),
            ("way", "missing"),
        ] {
            symlink(goal, root.join(link)).unwrap();
        }
        let fd: OwnedFd = fs::File::open(&root).unwrap().into();
        for (path, expected) in [
            ("/etc/resolv.conf", "run/systemd/stub.conf"),
            ("/etc/chain", "run/systemd/stub.conf"),
            ("/etc/hosts", "new/hosts"),
            ("/etc/far", "outside"),
            ("/link/file", "etc/real/file"),
            ("/way/deep/er", "missing/deep/er"),
            ("/plain/file", "plain/file"),
        ] {
            let found = goal(&fd, Path::new(path)).unwrap();
            let (at, rest) = deepest(&fd, &found).unwrap();
            create(&at, rest, Kind::File).unwrap();
            assert!(root.join(expected).is_file(), "{path}: {found:?}");
            in_root(&fd, Path::new(path)).unwrap();
        }
        assert!(!dir.path().join("outside").exists());
        assert_eq!(goal(&fd, Path::new("/etc/circle")), Err(Errno::ELOOP));
    }

    #[test]
    fn a_link_of_the_kernel_to_an_open_file_is_not_followed() {
        let slash: OwnedFd = fs::File::open("/").unwrap().into();
        in_root(&slash, Path::new("/proc/self")).unwrap();
        in_root(&slash, Path::new("/proc/self/cwd")).unwrap_err();
    }
}
