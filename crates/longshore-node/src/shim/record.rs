//! The records of a pod directory: one per container attempt, on disk before the shim reports it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde::{Deserialize, Serialize};

use super::{
    proc_file,
    protocol::{AttemptId, Exit, ExitReason, Started},
};
use crate::clock;

/// The name of the socket in a pod directory.
pub(crate) const SOCKET: &str = "shim.sock";
/// The name of the record in the directory of an attempt.
const FILE: &str = "record.json";
/// The size of every record, taken before the attempt begins and written over ever after: a disk that has become full
/// (perhaps by the container itself) cannot keep its end from being recorded.
const SIZE: usize = 8 * 1024;

/// What is known for certain about one attempt.
///
/// The record exists from the moment before the fork, so an attempt with a record is never started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The attempt.
    pub(crate) id: AttemptId,
    /// The boot of the machine that it was begun in; empty when that is unknown.
    #[serde(default)]
    pub(crate) boot: String,
    /// Set once the program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Started>,
    /// The kernel's start time of that pid in clock ticks: distinguishes a reused pid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_ticks: Option<u64>,
    /// Set once it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<Exit>,
    /// Whether the shim had begun to stop its containers before the end: a process that was asked to end may well exit
    /// with 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) was_stopped: bool,
}

impl Record {
    /// An attempt of which only the name is known.
    pub(crate) fn new(id: AttemptId, boot: String) -> Self {
        Self {
            id,
            boot,
            started: None,
            start_ticks: None,
            exit: None,
            was_stopped: false,
        }
    }

    /// Writes the first record of an attempt durably and at its full size. Where the disk is full, no draft stays behind:
    /// its space is needed to say so.
    pub(crate) fn begin(&self, pod_dir: &Path) -> io::Result<()> {
        let path = attempt_dir(pod_dir, &self.id).join(FILE);
        longshore_files::replace(&path, 0o600, &self.to_bytes()?)
    }

    /// Writes the end of an attempt durably, in the room of its first record where it has one.
    ///
    /// A crash of the machine in the middle of it leaves what [`load`](Self::load) reads as a beginning without an end.
    ///
    /// It has a sync of its own, before the end is reported: what is reported counts at once for what is durable by itself,
    /// the pod's status and the task's row. With only the beginning left after a loss of power, the node would take the
    /// attempt for a lost one (137) against the status that it has written, and start anew a container of `OnFailure` whose
    /// success others have acted upon. The sync is one of blocks that the file has already.
    pub(crate) fn end(&self, pod_dir: &Path) -> io::Result<()> {
        match self.overwrite(pod_dir) {
            Ok(file) => file.sync_data(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.begin(pod_dir),
            Err(e) => Err(e),
        }
    }

    /// Adds what is only of use while the machine runs: without fsync.
    pub(crate) fn note(&self, pod_dir: &Path) -> io::Result<()> {
        self.overwrite(pod_dir).map(drop)
    }

    fn overwrite(&self, pod_dir: &Path) -> io::Result<fs::File> {
        let path = attempt_dir(pod_dir, &self.id).join(FILE);
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(&self.to_bytes()?)?;
        Ok(file)
    }

    /// The record as JSON of [`SIZE`] bytes. A message that does not fit (it can take six times its size) is cut.
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        let mut shortened = self.clone();
        while bytes.len() > SIZE
            && let Some(exit) = shortened.exit.as_mut().filter(|e| !e.message.is_empty())
        {
            exit.message
                .truncate(exit.message.floor_char_boundary(exit.message.len() / 2));
            bytes = serde_json::to_vec(&shortened)?;
        }
        bytes.resize(bytes.len().max(SIZE), b' ');
        Ok(bytes)
    }

    /// Reads the record of an attempt; `None` when the attempt was never begun.
    pub(crate) fn load(pod_dir: &Path, id: &AttemptId) -> io::Result<Option<Self>> {
        match fs::read(attempt_dir(pod_dir, id).join(FILE)) {
            // A record that is half-written says only that the attempt was begun.
            Ok(bytes) => Ok(Some(
                serde_json::from_slice(&bytes)
                    .unwrap_or_else(|_| Self::new(id.clone(), String::new())),
            )),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Every record of a pod, by container and attempt.
    pub(crate) fn load_all(pod_dir: &Path) -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for container in names(&attempts_dir(pod_dir))? {
            for attempt in names(&attempts_dir(pod_dir).join(&container))? {
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

    /// Whether the attempt was begun since the machine was started.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot_id()
    }

    /// The exit of an attempt whose end no process saw.
    pub(crate) fn lost(&self) -> Exit {
        let why = if self.boot.is_empty() || self.is_of_this_boot() {
            "the process that watched this container is gone, its exit code with it"
        } else {
            "the machine was started anew while this container ran"
        };
        Exit {
            message: why.into(),
            ..lost_exit(self.started.as_ref())
        }
    }
}

/// The kernel's name for the time since the machine was started, which a process asks for once.
pub(crate) fn boot_id() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    let read = || {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    };
    BOOT.get_or_init(read).clone()
}

/// The exit that stands for an unknown one: code 137, `ContainerStatusUnknown`, ended now.
pub(crate) fn lost_exit(started: Option<&Started>) -> Exit {
    Exit {
        code: 137,
        signal: None,
        reason: ExitReason::ContainerStatusUnknown,
        started_at: started.map(|s| s.at),
        finished_at: clock::now(),
        message: "this container ran, and nothing is kept about its end".into(),
    }
}

/// The directory of all attempts of a pod, which the first one makes.
pub(crate) fn attempts_dir(pod_dir: &Path) -> PathBuf {
    pod_dir.join("containers")
}

/// The directory of one attempt: its record, its writable layer, its termination message.
pub(crate) fn attempt_dir(pod_dir: &Path, id: &AttemptId) -> PathBuf {
    attempts_dir(pod_dir)
        .join(&id.container)
        .join(id.attempt.to_string())
}

/// The start time of a process in clock ticks since boot; `None` when it has ended.
pub(crate) fn live_start_ticks(pid: i32) -> Option<u64> {
    let stat = proc_file::read(format!("/proc/{pid}/stat"), proc_file::STAT).ok()?;
    let stat = String::from_utf8(stat).ok()?;
    // The second field is the program's name in parentheses and may hold anything; then comes the state. The start time
    // is field 22.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| is_alive)?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(message: String) -> Record {
        let id = AttemptId {
            container: "main".into(),
            attempt: 0,
        };
        let mut record = Record::new(id, boot_id());
        record.exit = Some(Exit {
            message,
            ..record.lost()
        });
        record
    }

    #[test]
    fn a_record_always_fits_into_the_room_of_the_first_one() {
        for (message, is_kept) in [
            (String::new(), true),
            ("x".repeat(4096), true),
            ("\u{fffd}".repeat(1365), true),
            ("\0".repeat(4096), false),
            ("\"".repeat(4096), false),
        ] {
            let record = ended(message);
            let bytes = record.to_bytes().expect("JSON");
            assert_eq!(bytes.len(), SIZE);
            let read: Record = serde_json::from_slice(&bytes).expect("JSON");
            assert_eq!(read == record, is_kept);
            assert_eq!(
                read.exit.is_some_and(|e| !e.message.is_empty()),
                !record.exit.expect("an end").message.is_empty()
            );
        }
    }

    #[test]
    fn a_torn_record_says_that_the_attempt_was_begun() {
        let dir = tempfile::tempdir().expect("a directory");
        let record = ended("bye".into());
        let attempt = attempt_dir(dir.path(), &record.id);
        fs::create_dir_all(&attempt).expect("a directory");
        fs::write(attempt.join(FILE), &record.to_bytes().expect("JSON")[..40]).expect("a file");
        let read = Record::load(dir.path(), &record.id).expect("readable");
        assert_eq!(read, Some(Record::new(record.id, String::new())));
    }

    #[test]
    fn what_was_begun_before_the_machine_was_started_anew_says_so() {
        let mut record = ended(String::new());
        assert!(record.is_of_this_boot());
        record.boot = "another".into();
        assert!(!record.is_of_this_boot());
        assert!(
            record
                .lost()
                .message
                .contains("the machine was started anew")
        );
    }
}
