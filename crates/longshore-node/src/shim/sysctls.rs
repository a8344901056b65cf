//! The parameters of the kernel that a pod has for itself.
//!
//! Those of its network are set in the namespace that the shim has joined. The others are those of System V IPC, for which
//! the shim makes a namespace. The containers inherit both.

use std::{fs, io, path::PathBuf};

use nix::sched::{CloneFlags, unshare};

/// Sets `NAME=VALUE` of each for this process, which must have one thread, and for what it starts.
pub(super) fn set(settings: &[&str]) -> io::Result<()> {
    if settings.iter().any(|it| !it.starts_with("net.")) {
        unshare(CloneFlags::CLONE_NEWIPC).map_err(|e| named("make an IPC namespace", &e.into()))?;
    }
    for &setting in settings {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        fs::write(path(name), value).map_err(|e| named(&format!("set {setting}"), &e))?;
    }
    Ok(())
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
