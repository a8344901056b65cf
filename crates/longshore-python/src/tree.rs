//! The processes of a child, read from `/proc`: their memory, and what is left of them where their keeper was killed.

use std::{fs, path::Path};

use longshore_core::ProcessStat;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Incarnation {
    pid: i32,
    /// Ticks since the boot.
    started: u64,
}

/// The processes below a keeper at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) processes: Vec<Incarnation>,
    /// Sum of the resident memory in bytes. Pages that several processes share count for each.
    pub(crate) rss: u64,
}

impl Tree {
    /// Reads what runs below `keeper`, whatever group or session it is in.
    pub(crate) fn below(keeper: i32) -> Self {
        let mut tree = Self::default();
        let mut open = children(keeper);
        while let Some(pid) = open.pop() {
            let Some(stat) = Stat::read(pid) else {
                continue;
            };
            if tree.processes.iter().any(|known| known.pid == pid) {
                continue;
            }
            tree.processes.push(Incarnation {
                pid,
                started: stat.started,
            });
            tree.rss = tree.rss.saturating_add(rss(pid));
            open.extend(children(pid));
        }
        tree
    }

    /// Kills what is left of these processes, and of the session of their keeper, once the keeper is gone.
    pub(crate) fn kill_orphans(&self, keeper: i32) {
        for (pid, stat) in all() {
            let known = Incarnation {
                pid,
                started: stat.started,
            };
            if self.processes.contains(&known) || stat.session == keeper {
                // Nothing is left to do for a process that has just ended by itself.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

/// What we need of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    session: i32,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = ProcessStat::parse(&stat)?;
        Some(Self {
            parent: stat.number(ProcessStat::PARENT)?,
            session: stat.number(ProcessStat::SESSION)?,
            started: stat.number(ProcessStat::START_TICKS)?,
        })
    }
}

/// The children of a process: of all its threads where the kernel lists them, else by a look at every process.
fn children(pid: i32) -> Vec<i32> {
    listed(Path::new(&format!("/proc/{pid}/task"))).unwrap_or_else(|| {
        all()
            .filter(|(_, stat)| stat.parent == pid)
            .map(|(child, _)| child)
            .collect()
    })
}

/// `None` where the process is gone, or the kernel was built without these lists.
fn listed(tasks: &Path) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(tasks).ok()?.flatten() {
        let text = fs::read_to_string(task.path().join("children")).ok()?;
        found.extend(text.split_ascii_whitespace().flat_map(str::parse::<i32>));
    }
    Some(found)
}

fn all() -> impl Iterator<Item = (i32, Stat)> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, Stat::read(pid)?))
        })
}

/// Resident memory in bytes; a process that has ended has none.
fn rss(pid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/status")).map_or(0, |status| parse_rss(&status))
}

fn parse_rss(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(
            parse_rss("Name:\tx\nVmRSS:\t  1234 kB\nThreads:\t1\n"),
            1_263_616
        );
        assert_eq!(parse_rss("Name:\tx\nState:\tZ (zombie)\n"), 0);
    }

    #[test]
    fn children_are_found_with_and_without_the_lists_of_the_kernel() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(children(me).contains(&pid));
        assert!(all().any(|(found, stat)| found == pid && stat.parent == me));
        assert!(listed(Path::new("/nonexistent")).is_none());
        let tree = Tree::below(me);
        assert!(tree.processes.iter().any(|process| process.pid == pid));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
