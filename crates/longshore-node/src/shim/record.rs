//! The records of a pod directory: one per container attempt, written before the shim reports it.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use longshore_core::ProcessStat;
use serde::{Deserialize, Serialize};

use super::{
    place::Place,
    proc_file,
    protocol::{AttemptId, Exit, ExitReason, Started},
};
use crate::{clock, earlier_layout};

/// The name of the socket in a pod directory.
pub(crate) const SOCKET: &str = "shim.sock";
/// The name of the record in the directory of an attempt.
pub(super) const RECORD_FILE: &str = "record.json";
/// The size of every record, taken before the attempt begins and written over ever after: a disk that has become full
/// (perhaps by the container itself) cannot keep its end from being recorded.
const SIZE: usize = 8 * 1024;

/// What the records of a pod survive. Each of them survives the death of every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A loss of power, too: the cluster of the pod does, and it has told others what the records say.
    PowerLoss,
    /// For a pod that dies with its node. No promise about it is older than the processes: its cluster is in memory, and
    /// nothing that is on disk follows from the end of an attempt before the row of its task is, which has a sync of its
    /// own. What a loss of power takes is a success of which no row tells, and such a task runs again as one that the
    /// loss has ended. Two syncs before each start and one at each end would buy no more than that.
    ProcessLoss,
}

/// What is known for certain about one attempt.
///
/// The record exists from the moment before the fork, so an attempt with a record is never started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The attempt.
    pub(crate) id: AttemptId,
    /// The uid of the pod. After a loss of power, some file systems show what another file had in the same place: a record
    /// of another pod counts as one that is half-written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) pod: String,
    /// The boot of the machine that it was begun in; empty when that is unknown.
    #[serde(default)]
    pub(crate) boot: String,
    /// The directory of the pod, in which the shim works that watches the attempt; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<Place>,
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
    pub(crate) fn new(pod_dir: &Path, id: AttemptId, boot: String) -> Self {
        Self {
            id,
            pod: pod_of(pod_dir),
            boot,
            place: None,
            started: None,
            start_ticks: None,
            exit: None,
            was_stopped: false,
        }
    }

    /// Writes the first record of an attempt at its full size, and what the node remembers of the pod behind it. Where the
    /// disk is full, no draft stays behind: its space is needed to say so.
    pub(crate) fn begin(
        &self,
        pod_dir: &Path,
        durability: Durability,
        memory: &str,
    ) -> io::Result<()> {
        let path = attempt_dir(pod_dir, &self.id).join(RECORD_FILE);
        let mut bytes = self.to_bytes()?;
        bytes.extend_from_slice(memory.as_bytes());
        match durability {
            Durability::PowerLoss => longshore_files::replace(&path, 0o600, &bytes),
            Durability::ProcessLoss => longshore_files::replace_unsynced(&path, 0o600, &bytes),
        }
    }

    /// Writes the end of an attempt, in the room of its first record where it has one.
    ///
    /// A crash of the machine in the middle of it leaves what [`load`](Self::load) reads as a beginning without an end.
    ///
    /// With [`Durability::PowerLoss`] it has a sync of its own, before the end is reported: what is reported counts at once
    /// for what is durable by itself, the pod's status and the task's row. With only the beginning left after a loss of
    /// power, the node would take the attempt for a lost one (137) against the status that it has written, and start anew
    /// a container of `OnFailure` whose success others have acted upon. The sync is one of blocks that the file has
    /// already.
    pub(crate) fn end(&self, pod_dir: &Path, durability: Durability) -> io::Result<()> {
        match (self.overwrite(pod_dir), durability) {
            (Ok(file), Durability::PowerLoss) => longshore_files::sync_content(&file),
            (Ok(_), Durability::ProcessLoss) => Ok(()),
            (Err(e), _) if e.kind() == io::ErrorKind::NotFound => {
                match fs::create_dir(attempt_dir(pod_dir, &self.id)) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                    // An attempt of an earlier layout had none.
                    Ok(()) | Err(_) => {}
                }
                self.begin(pod_dir, durability, "")
            }
            (Err(e), _) => Err(e),
        }
    }

    /// Adds what is only of use while the machine runs: without fsync.
    pub(crate) fn note(&self, pod_dir: &Path) -> io::Result<()> {
        self.overwrite(pod_dir).map(drop)
    }

    fn overwrite(&self, pod_dir: &Path) -> io::Result<fs::File> {
        let path = attempt_dir(pod_dir, &self.id).join(RECORD_FILE);
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
        let earlier = earlier_layout::attempt_dir(pod_dir, id);
        for dir in [attempt_dir(pod_dir, id), earlier] {
            match fs::read(dir.join(RECORD_FILE)) {
                Ok(bytes) => return Ok(Some(Self::read(&bytes, pod_dir, id))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// The record in a file. One that is half-written says only that the attempt was begun.
    fn read(bytes: &[u8], pod_dir: &Path, id: &AttemptId) -> Self {
        let own = &bytes[..bytes.len().min(SIZE)];
        let record = serde_json::from_slice::<Self>(own).ok();
        let record = record.filter(|it| it.id == *id && it.is_in(pod_dir));
        record.unwrap_or_else(|| Self::new(pod_dir, id.clone(), String::new()))
    }

    /// Every record of a pod, by container and attempt.
    pub(crate) fn load_all(pod_dir: &Path) -> io::Result<Vec<Self>> {
        let names = names(pod_dir)?;
        let mut ids: BTreeSet<AttemptId> = names.iter().filter_map(|it| attempt_of(it)).collect();
        ids.extend(earlier_layout::attempts(pod_dir)?);
        let mut all = Vec::new();
        for id in ids {
            all.extend(Self::load(pod_dir, &id)?);
        }
        Ok(all)
    }

    /// What the node remembers of the pod, as the files of the records have it.
    pub(crate) fn memories(pod_dir: &Path) -> io::Result<Vec<Vec<u8>>> {
        let ids = names(pod_dir)?;
        let files = ids.iter().filter_map(|name| attempt_of(name));
        let files =
            files.filter_map(|id| fs::read(attempt_dir(pod_dir, &id).join(RECORD_FILE)).ok());
        Ok(files
            .filter_map(|file| file.get(SIZE..).map(<[u8]>::to_vec))
            .filter(|memory| !memory.is_empty())
            .chain(earlier_layout::memory(pod_dir))
            .collect())
    }

    /// Removes all records of a pod, of which nobody can tell any more which one it was, and the directories that had
    /// nothing else.
    pub(crate) fn remove_all(pod_dir: &Path) -> io::Result<()> {
        earlier_layout::remove_memory(pod_dir)?;
        for id in names(pod_dir)?.iter().filter_map(|name| attempt_of(name)) {
            let attempt = attempt_dir(pod_dir, &id);
            match fs::remove_file(attempt.join(RECORD_FILE)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => {}
            }
            // Most pods need no look at what else is in them then.
            drop(fs::remove_dir(attempt));
        }
        Ok(())
    }

    /// Whether it is a record of this pod.
    fn is_in(&self, pod_dir: &Path) -> bool {
        self.pod.is_empty() || self.pod == pod_of(pod_dir)
    }

    /// Whether it was written in another directory than the one where it is, so that its processes belong to the node of that
    /// one.
    pub(crate) fn is_copied(&self, here: Option<&Place>) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(|it| here.is_some_and(|here| it.is_other_than(here)))
    }

    /// Whether the directory of a pod is a copy in which nothing was begun since. The shim and the memory of its pod belong
    /// to the node of the other one.
    pub(crate) fn are_copied(pod_dir: &Path) -> io::Result<bool> {
        let here = Place::of(pod_dir);
        let all = Self::load_all(pod_dir)?;
        let mut placed = all.iter().filter(|it| it.place.is_some()).peekable();
        Ok(placed.peek().is_some() && placed.all(|it| it.is_copied(here.as_ref())))
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

/// The directory of one attempt: its record, and what the kernel and the init need of it. What else the attempt has in the
/// directory of the pod is beside it, and begins with the same name (see [`beside`]).
///
/// It is one directory, and none for the container: on some file systems, to make and remove a directory costs a task as
/// much as a page of records does.
pub(crate) fn attempt_dir(pod_dir: &Path, id: &AttemptId) -> PathBuf {
    // The name of a container has no dot.
    pod_dir.join(format!("{}.{}", id.container, id.attempt))
}

/// The directory in which the shim of a running attempt keeps what is the attempt's.
pub(crate) fn directory_in_use(pod_dir: &Path, id: &AttemptId) -> PathBuf {
    let earlier = earlier_layout::attempt_dir(pod_dir, id);
    if earlier.is_dir() {
        earlier
    } else {
        attempt_dir(pod_dir, id)
    }
}

/// A path beside the directory of an attempt.
pub(crate) fn beside(attempt_dir: &Path, what: &str) -> PathBuf {
    let mut name = attempt_dir.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(what);
    attempt_dir.with_file_name(name)
}

/// The attempt whose directory has this name.
fn attempt_of(name: &str) -> Option<AttemptId> {
    let (container, attempt) = name.rsplit_once('.')?;
    Some(AttemptId {
        container: container.to_owned(),
        attempt: attempt.parse().ok()?,
    })
}

/// The uid of the pod of a directory.
fn pod_of(pod_dir: &Path) -> String {
    let name = pod_dir.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The start time of a process in clock ticks since boot; `None` when it has ended.
pub(crate) fn live_start_ticks(pid: i32) -> Option<u64> {
    let stat = proc_file::read(format!("/proc/{pid}/stat"), proc_file::STAT).ok()?;
    let stat = ProcessStat::parse(&stat).filter(ProcessStat::is_alive)?;
    stat.number(ProcessStat::START_TICKS)
}

/// The names in a directory; none where there is no directory.
pub(crate) fn names(dir: &Path) -> io::Result<Vec<String>> {
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

    fn ended(pod_dir: &Path, message: String) -> Record {
        let id = AttemptId {
            container: "main".into(),
            attempt: 0,
        };
        let mut record = Record::new(pod_dir, id, boot_id());
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
            let record = ended(Path::new("/pods/uid"), message);
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
        let record = ended(dir.path(), "bye".into());
        let attempt = attempt_dir(dir.path(), &record.id);
        fs::create_dir_all(&attempt).expect("a directory");
        fs::write(
            attempt.join(RECORD_FILE),
            &record.to_bytes().expect("JSON")[..40],
        )
        .expect("a file");
        let read = Record::load(dir.path(), &record.id).expect("readable");
        assert_eq!(
            read,
            Some(Record::new(dir.path(), record.id, String::new()))
        );
    }

    #[test]
    fn a_record_is_read_back_whatever_it_survives() {
        for (durability, n_syncs) in [(Durability::PowerLoss, 3), (Durability::ProcessLoss, 0)] {
            let before = longshore_files::disk::n_syncs();
            let dir = tempfile::tempdir().expect("a directory");
            let record = ended(dir.path(), "bye".into());
            fs::create_dir(attempt_dir(dir.path(), &record.id)).expect("a directory");
            let begun = Record {
                exit: None,
                ..record.clone()
            };
            let memory = "its pod".repeat(SIZE);
            begun
                .begin(dir.path(), durability, &memory)
                .expect("written");
            assert_eq!(Record::load_all(dir.path()).expect("readable"), [begun]);
            record.end(dir.path(), durability).expect("written");
            let memories = Record::memories(dir.path()).expect("readable");
            assert_eq!(memories, [memory.into_bytes()]);
            assert_eq!(longshore_files::disk::n_syncs() - before, n_syncs);
            // What is beside the directory of an attempt is no attempt.
            let attempt = attempt_dir(dir.path(), &record.id);
            fs::create_dir(beside(&attempt, "upper-1")).expect("a directory");
            fs::write(beside(&attempt, "log"), "").expect("a file");
            assert_eq!(Record::load_all(dir.path()).expect("readable"), [record]);
        }
    }

    /// Blocks of a file that was removed, which a loss of power has left in the place of those that were written.
    #[test]
    fn the_end_of_another_pod_is_not_taken_for_ones_own() {
        let folder = tempfile::tempdir().expect("a directory");
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        let record = ended(&other, "bye".into());
        let attempt = attempt_dir(&own, &record.id);
        fs::create_dir_all(&attempt).expect("a directory");
        fs::write(attempt.join(RECORD_FILE), record.to_bytes().expect("JSON")).expect("a file");
        let read = Record::load(&own, &record.id).expect("readable");
        assert_eq!(read, Some(Record::new(&own, record.id, String::new())));
    }

    #[test]
    fn a_process_is_known_by_its_start_until_it_has_ended_whatever_its_name_is() {
        use std::{
            ffi::OsStr,
            os::unix::{ffi::OsStrExt, process::CommandExt},
            process::Command,
        };

        use nix::{
            sys::wait::{Id, WaitPidFlag, waitid},
            unistd::Pid,
        };

        let dir = tempfile::tempdir().expect("a directory");
        for name in [&b"sleep"[..], b"a) Z 1", b"\xff"] {
            let path = dir.path().join(OsStr::from_bytes(name));
            std::os::unix::fs::symlink("/bin/sleep", &path).expect("a link");
            let program = Command::new(&path).arg0("sleep").arg("600").spawn();
            let mut program = program.expect("a program");
            let pid = program.id().try_into().expect("a pid");
            let alive = live_start_ticks(pid);
            program.kill().expect("a signal");
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            waitid(Id::Pid(Pid::from_raw(pid)), flags).expect("it ends");
            let zombie = live_start_ticks(pid);
            program.wait().expect("it has ended");
            let ended = [zombie, live_start_ticks(pid)];
            assert!(alive.is_some(), "{name:?}");
            assert_eq!(ended, [None; 2], "{name:?}");
        }
    }

    #[test]
    fn what_was_begun_before_the_machine_was_started_anew_says_so() {
        let mut record = ended(Path::new("/pods/uid"), String::new());
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
