//! The cgroup of an attempt with a memory limit (version 2): made before its init, removed after its end.

use std::{fs, io, path::Path};

use super::protocol::MemorySpec;

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

/// Moves the calling process into the cgroup.
pub(super) fn join(memory: &MemorySpec) -> io::Result<()> {
    fs::write(memory.cgroup.join("cgroup.procs"), "0")
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

#[cfg(test)]
mod tests {
    use super::n_kills;

    #[test]
    fn a_kill_is_one_for_want_of_memory() {
        let events = "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(n_kills(events), 2);
        assert_eq!(n_kills("low 0\nmax 7\noom 0\noom_kill 0\n"), 0);
        assert_eq!(n_kills(""), 0);
    }
}
