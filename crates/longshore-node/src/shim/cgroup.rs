//! The cgroups of an attempt. That of a memory limit (version 2) is made before its init, and removed after its end; that
//! in which the processes of the pod are counted was made by the node, and is removed with the shim.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::libc;

use super::protocol::{ContainerSpec, MemorySpec};

/// Where Linux has its cgroups.
pub(crate) const HIERARCHY: &str = "/sys/fs/cgroup";
/// The directory of the pids controller of version 1 in it.
pub(crate) const PIDS: &str = "pids";
/// The beginning of the name of each cgroup that a node makes.
pub(crate) const PREFIX: &str = "longshore-";
/// What a cgroup of version 1 has, and one of version 2 has not.
const TASKS: &str = "tasks";

/// Makes the cgroup and sets its limit. When the limit is met, all processes of the container are killed, as a kubelet has it.
pub(super) fn make(memory: &MemorySpec) -> io::Result<()> {
    let dir = &memory.cgroup;
    // One that a killed shim left; what was in it is gone.
    remove(dir);
    fs::create_dir(dir)?;
    fs::write(dir.join("memory.max"), memory.limit.to_string())?;
    // A kernel without swap or of another age does not have these.
    drop(fs::write(dir.join("memory.swap.max"), "0"));
    drop(fs::write(dir.join("memory.oom.group"), "1"));
    Ok(())
}

/// The cgroup of version 2 of an attempt, for a process that shall begin in it.
pub(super) fn to_begin_in(spec: &ContainerSpec) -> Option<File> {
    let memory = spec.memory.as_ref().map(|memory| &memory.cgroup);
    let processes = spec.processes.as_ref().map(|processes| &processes.cgroup);
    let dir = memory.or_else(|| processes.filter(|dir| !dir.join(TASKS).exists()))?;
    let mut options = OpenOptions::new();
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    options.read(true).custom_flags(flags).open(dir).ok()
}

/// Moves the calling process, which has one thread, into the cgroups of an attempt. `has_begun`: it has begun in that of
/// version 2.
pub(super) fn join_all(spec: &ContainerSpec, has_begun: bool) -> Result<(), String> {
    let memory = spec.memory.as_ref().map(|memory| &memory.cgroup);
    if let Some(dir) = memory.filter(|_| !has_begun) {
        join(dir).map_err(|e| format!("cannot limit its memory: {e}"))?;
    }
    let processes = spec.processes.as_ref().map(|processes| &processes.cgroup);
    let processes = processes.filter(|dir| memory != Some(dir));
    if let Some(dir) = processes.filter(|dir| !has_begun || dir.join(TASKS).exists()) {
        join(dir).map_err(|e| format!("cannot limit its number of processes: {e}"))?;
    }
    Ok(())
}

/// Moves the calling process, which has one thread, into a cgroup.
fn join(dir: &Path) -> io::Result<()> {
    let tasks = dir.join(TASKS);
    // The kernel moves a thread at once, and has all processors agree before it moves a process: that takes milliseconds.
    let file = if tasks.exists() {
        tasks
    } else {
        dir.join("cgroup.procs")
    };
    fs::write(file, "0")
}

/// Moves the calling process, which has one thread, to where the init of a container is, as far as a node has made that.
pub(super) fn join_that_of(init: &str) -> io::Result<()> {
    let read = |process: &str| fs::read_to_string(format!("/proc/{process}/cgroup"));
    for dir in others(&read(init)?, &read("self")?) {
        if dir.exists() {
            join(&dir)?;
        }
    }
    Ok(())
}

/// The cgroups that a node has made for a container, unless the other process is in them, too: both by their files in
/// `/proc`.
fn others(theirs: &str, ours: &str) -> Vec<PathBuf> {
    let lines = theirs
        .lines()
        .filter(|line| !ours.lines().any(|ours| ours == *line));
    let made = lines.filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let top = match controllers {
            "" => PathBuf::from(HIERARCHY),
            PIDS => Path::new(HIERARCHY).join(PIDS),
            _ => return None,
        };
        let is_made = path.split('/').any(|name| name.starts_with(PREFIX));
        is_made.then(|| top.join(path.trim_start_matches('/')))
    });
    made.collect()
}

/// Whether the kernel has killed a process of the cgroup for want of memory.
pub(super) fn has_run_out(dir: &Path) -> bool {
    let events = fs::read_to_string(dir.join("memory.events")).unwrap_or_default();
    n_kills(&events) > 0
}

fn n_kills(events: &str) -> u64 {
    let mut lines = events.lines().filter_map(|line| line.split_once(' '));
    let kills = lines.find(|(name, _)| *name == "oom_kill");
    kills.and_then(|(_, n)| n.trim().parse().ok()).unwrap_or(0)
}

/// Removes the cgroup, in which nothing may run any more.
pub(super) fn remove(dir: &Path) {
    // One with processes stays; the next attempt or node tries again.
    drop(fs::remove_dir(dir));
}

/// Removes the cgroup of a pod, with those below. One with processes stays.
pub(crate) fn remove_of_pod(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        // The files in it are the kernel's, and go with it.
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            remove(&entry.path());
        }
    }
    remove(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_one_for_want_of_memory() {
        let events = "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(n_kills(events), 2);
        assert_eq!(n_kills("low 0\nmax 7\noom 0\noom_kill 0\n"), 0);
        assert_eq!(n_kills(""), 0);
    }

    #[test]
    fn a_command_joins_what_a_node_has_made_for_the_container() {
        let ours = "8:pids:/\n4:memory:/a\n0::/user.slice/longshore-node\n";
        for (theirs, expected) in [
            (ours, Vec::new()),
            (
                "8:pids:/longshore-u\n4:memory:/longshore-u\n0::/user.slice/longshore-node\n",
                vec!["/sys/fs/cgroup/pids/longshore-u"],
            ),
            (
                "0::/user.slice/longshore-u/main\n",
                vec!["/sys/fs/cgroup/user.slice/longshore-u/main"],
            ),
            ("8:pids:/other\n0::/user.slice/other.scope\n", Vec::new()),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(PathBuf::from).collect();
            assert_eq!(others(theirs, ours), expected, "{theirs}");
        }
    }
}
