//! The records of a pod directory: one per container attempt, on disk before anybody is told.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::protocol::{AttemptId, Exit, ExitReason, Started};
use crate::clock;

/// The name of the socket in a pod directory.
pub(crate) const SOCKET: &str = "shim.sock";

/// What is known for certain about one attempt.
///
/// It exists from the moment before the fork, so an attempt with a record is never started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The attempt.
    pub(crate) id: AttemptId,
    /// The log file.
    pub(crate) log: PathBuf,
    /// Set once the program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Started>,
    /// The kernel's start time of that pid in clock ticks: tells a reused pid apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_ticks: Option<u64>,
    /// Set once it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<Exit>,
}

impl Record {
    /// Writes the record durably: a temporary file, fsync, rename, fsync of the directory.
    pub(crate) fn store(&self, pod_dir: &Path) -> io::Result<()> {
        let dir = attempt_dir(pod_dir, &self.id);
        write_durably(&dir.join("record.json"), &serde_json::to_vec(self)?)
    }

    /// Adds what is only of use while the machine runs: without fsync.
    pub(crate) fn note(&self, pod_dir: &Path) -> io::Result<()> {
        let path = attempt_dir(pod_dir, &self.id).join("record.json");
        let temporary = path.with_extension("tmp");
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(temporary, path)
    }

    /// Reads the record of an attempt; `None` when the attempt was never begun.
    pub(crate) fn load(pod_dir: &Path, id: &AttemptId) -> io::Result<Option<Self>> {
        match fs::read(attempt_dir(pod_dir, id).join("record.json")) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Every record of a pod, by container and attempt.
    pub(crate) fn load_all(pod_dir: &Path) -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for container in names(&pod_dir.join("containers"))? {
            for attempt in names(&pod_dir.join("containers").join(&container))? {
                let Ok(attempt) = attempt.parse() else {
                    continue;
                };
                let id = AttemptId {
                    container: container.clone(),
                    attempt,
                };
                all.extend(Self::load(pod_dir, &id)?);
            }
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// The exit of an attempt whose shim died before it could see the end.
    pub(crate) fn lost(&self) -> Exit {
        lost_exit(self.started.as_ref())
    }
}

/// How an attempt ended when nobody was there to see it.
pub(crate) fn lost_exit(started: Option<&Started>) -> Exit {
    Exit {
        code: 137,
        signal: None,
        reason: ExitReason::ContainerStatusUnknown,
        started_at: started.map(|s| s.at),
        finished_at: clock::now(),
        message: "the process that watched this container is gone, its exit code with it".into(),
    }
}

/// The directory of one attempt: its record, its writable layer, its termination message.
pub(crate) fn attempt_dir(pod_dir: &Path, id: &AttemptId) -> PathBuf {
    pod_dir
        .join("containers")
        .join(&id.container)
        .join(id.attempt.to_string())
}

/// Replaces a file so that a crash leaves the old content or the new one.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(dir) => fs::File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// The start time of a live process in clock ticks since boot.
pub(crate) fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything; start time is field 22.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}
