//! A pod's directory: the records of its attempts with the pod as it was then, the shim's socket, and everything that goes
//! with the pod.

use std::{
    fs, io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::model::{AttemptState, BegunStop, Local};
use crate::{
    config::PodsLifetime,
    private_dir,
    shim::{
        place::Place,
        protocol::Exit,
        record::{Durability, Record, SOCKET, live_start_ticks},
    },
    volumes,
};

/// What the node remembers of a pod besides its attempts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    acknowledged_at: Timestamp,
    pod: Pod,
}

/// Makes the directory of a pod before anything of it runs.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    private_dir::make(dir)
}

/// What each attempt shall remember of its pod: the shim writes it down with the record, because a file of its own would
/// cost a task as much as the record does, and says nothing before there is one.
pub(crate) fn memory(pod: &Pod, acknowledged_at: Timestamp) -> io::Result<String> {
    let memory = Memory {
        acknowledged_at,
        pod: pod.clone(),
    };
    Ok(serde_json::to_string(&memory)?)
}

/// What the attempts remember; `None` where nothing was begun, or where a loss of power has taken it.
fn recall_memory(dir: &Path) -> io::Result<Option<Memory>> {
    let memories = Record::memories(dir)?;
    let mut known = memories.iter().map(|it| serde_json::from_slice(it));
    Ok(known.find_map(Result::ok))
}

/// Remembers that the containers are being stopped, before anything is done about it: a node that comes back goes on
/// where this one was.
pub(crate) fn remember_stop(dir: &Path, stop: &BegunStop) -> io::Result<()> {
    let bytes = serde_json::to_vec(stop)?;
    longshore_files::replace_unsynced(&dir.join("stop.json"), 0o600, &bytes)
}

fn recall_stop(dir: &Path) -> Option<BegunStop> {
    let bytes = fs::read(dir.join("stop.json")).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The pod as an earlier node remembered it.
pub(crate) fn recall_pod(dir: &Path) -> io::Result<Option<Pod>> {
    Ok(recall_memory(dir)?.map(|memory| memory.pod))
}

/// Reads back what is known of a pod from before this node started; `None` for one that never started. A pod of which
/// nothing was begun counts as acknowledged at `otherwise`.
pub(crate) fn recall(dir: &Path, otherwise: Timestamp) -> io::Result<Option<Local>> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let memory = recall_memory(dir)?;
    let mut local = Local::new(memory.map_or(otherwise, |it| it.acknowledged_at));
    local.begun_stop = recall_stop(dir);
    read_records(dir, &mut local)?;
    Ok(Some(local))
}

/// Takes over what the records say.
fn read_records(dir: &Path, local: &mut Local) -> io::Result<()> {
    for record in Record::load_all(dir)? {
        let state = match (record.exit, record.started) {
            (Some(exit), _) => AttemptState::Exited(exit),
            (None, Some(started)) => AttemptState::Running(started),
            (None, None) => AttemptState::Requested,
        };
        local.learn(&record.id, state);
    }
    Ok(())
}

/// The shim is gone: what its records leave open is lost, and must not run any longer.
pub(crate) fn settle(dir: &Path, local: &mut Local) -> io::Result<()> {
    let here = Place::of(dir);
    for id in local.live().collect::<Vec<_>>() {
        let Some(mut record) = Record::load(dir, &id)? else {
            local.forget(&id);
            continue;
        };
        let exit = match record.exit.clone() {
            Some(exit) => exit,
            None => {
                let exit = end_lost(&record, here.as_ref());
                record.exit = Some(exit.clone());
                // The status that tells of it may be in a cluster that survives a loss of power.
                if let Err(error) = record.end(dir, Durability::PowerLoss) {
                    // The next node finds a beginning without an end, and comes to the same result.
                    tracing::warn!(attempt = %id, %error, "cannot record that an attempt is lost");
                }
                exit
            }
        };
        local.learn(&id, AttemptState::Exited(exit));
    }
    Ok(())
}

/// Ends what is left of an attempt, and tells its end.
fn end_lost(record: &Record, here: Option<&Place>) -> Exit {
    if record.is_copied(here) {
        tracing::warn!(pod = record.pod, attempt = %record.id, "{COPIED}");
        return Exit {
            message: COPIED.into(),
            ..record.lost()
        };
    }
    end_survivor(record);
    record.lost()
}

/// Forgets the attempts whose start request never reached the shim.
pub(crate) fn forget_unheard(dir: &Path, local: &mut Local) -> io::Result<()> {
    for id in local.live().collect::<Vec<_>>() {
        if Record::load(dir, &id)?.is_none() {
            local.forget(&id);
        }
    }
    Ok(())
}

/// How long to wait for the end of a process that was killed; only one in an uninterruptible wait takes longer.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What is said of an attempt whose processes are another node's.
const COPIED: &str = "the directory of this pod was copied from another one while this container ran; its processes are \
                      left to the service of that one";

/// Ends what runs of a pod whose shim nobody can reach any more.
pub(crate) fn end_survivors(dir: &Path) -> io::Result<()> {
    let here = Place::of(dir);
    let records = Record::load_all(dir)?;
    let open = records.iter().filter(|record| record.exit.is_none());
    open.for_each(|record| drop(end_lost(record, here.as_ref())));
    Ok(())
}

/// An init dies with its shim; one that is just about to is helped along, and gone when this returns.
fn end_survivor(record: &Record) {
    let Some(started) = &record.started else {
        return;
    };
    let is_alive = || {
        record.is_of_this_boot()
            && record.start_ticks.is_some()
            && live_start_ticks(started.pid) == record.start_ticks
    };
    if is_alive() {
        let init = nix::unistd::Pid::from_raw(started.pid);
        let _ = nix::sys::signal::kill(init, nix::sys::signal::Signal::SIGKILL);
    }
    let pause = Duration::from_millis(2);
    for _ in 0..END_TIMEOUT.as_millis() / pause.as_millis() {
        if !is_alive() {
            return;
        }
        std::thread::sleep(pause);
    }
}

/// Drops everything that was kept for the pod, and these directories of its logs; one that outlives it is elsewhere.
///
/// First nobody can tell any more whose directory it is: a cluster in memory puts back a pod that it finds there, and then
/// waits for its logs. The directory goes last: as long as it is there, a node that comes back does the rest.
pub(crate) fn remove(dir: &Path, uid: &str, logs: &[PathBuf]) -> io::Result<()> {
    // Without its records, nobody can tell any more that a directory is a copy either.
    let has_memory = has_memory(dir, uid).unwrap_or(true);
    Record::remove_all(dir)?;
    if has_memory {
        longshore_files::remove_tree(&volumes::memory_dir(uid))?;
    }
    for logs in logs {
        longshore_files::remove_tree(logs)?;
    }
    longshore_files::remove_tree(dir)
}

/// Drops what a pod has in the memory of the machine.
pub(crate) fn remove_memory(dir: &Path, uid: &str) -> io::Result<()> {
    if has_memory(dir, uid)? {
        longshore_files::remove_tree(&volumes::memory_dir(uid))?;
    }
    Ok(())
}

/// Whether a pod has something in the memory of the machine. A copy of its directory has the same place there, and what is
/// in it is the original's. Records are read only where there is something: most pods end without.
fn has_memory(dir: &Path, uid: &str) -> io::Result<bool> {
    let is_there = fs::symlink_metadata(volumes::memory_dir(uid)).is_ok();
    Ok(is_there && !Record::are_copied(dir)?)
}

/// Where the socket of a shim is.
///
/// For a pod that dies with its node it is in memory, where the machine has such a place for this user: nobody asks for it
/// after the machine was started anew. For others it is on the disk: some systems clean up that memory when a user logs
/// out, and their shims run on.
pub(crate) fn socket_dir(dir: &Path, lifetime: PodsLifetime) -> PathBuf {
    let memory = memory_of(dir);
    match lifetime {
        PodsLifetime::DieWithNode if private_dir::make(&memory).is_ok() && is_ours(&memory) => {
            memory
        }
        PodsLifetime::DieWithNode | PodsLifetime::OutliveNode => dir.to_owned(),
    }
}

/// Where the socket of a shim may be, whatever node of this user has made it.
pub(crate) fn socket_dirs(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let memory = Some(memory_of(dir)).filter(|it| is_ours(it));
    std::iter::once(dir.to_owned()).chain(memory)
}

/// Whether a directory is one of this user's: everybody may make one in the memory of the machine.
fn is_ours(dir: &Path) -> bool {
    let user = nix::unistd::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|it| it.is_dir() && it.uid() == user)
}

fn memory_of(dir: &Path) -> PathBuf {
    let uid = dir.file_name().unwrap_or_default();
    volumes::memory_dir(&uid.to_string_lossy())
}

/// Calls `with` with a path of the socket in a directory that is short enough for the kernel (108 bytes).
pub(crate) fn with_socket<T>(
    dir: &Path,
    with: impl FnOnce(PathBuf) -> io::Result<T>,
) -> io::Result<T> {
    with_file(dir, SOCKET, with)
}

/// The same with the path of another file.
pub(crate) fn with_file<T>(
    dir: &Path,
    name: &str,
    with: impl FnOnce(PathBuf) -> io::Result<T>,
) -> io::Result<T> {
    let open = fs::File::open(dir)?;
    with(
        Path::new("/proc/self/fd")
            .join(open.as_raw_fd().to_string())
            .join(name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::{
        protocol::{AttemptId, Started},
        record::{attempt_dir, boot_id},
    };

    #[test]
    fn processes_and_memory_of_a_copied_directory_are_left_alone() {
        let root = tempfile::tempdir().expect("a directory");
        let uid = root.path().file_name().expect("a name").to_string_lossy();
        let [original, copy] = ["original", "copy"].map(|it| root.path().join(it).join(&*uid));
        let id = AttemptId {
            container: "main".into(),
            attempt: 0,
        };
        for dir in [&original, &copy] {
            fs::create_dir_all(attempt_dir(dir, &id)).expect("a directory");
        }
        let in_memory = volumes::memory_dir(&uid);
        // Records of earlier versions have no place.
        for (place, is_ended) in [
            (None, true),
            (Place::of(&copy), true),
            (Place::of(&original), false),
        ] {
            let program = std::process::Command::new("sleep").arg("600").spawn();
            let mut program = program.expect("a program");
            let pid = program.id().try_into().expect("a pid");
            let record = Record {
                place,
                started: Some(Started {
                    pid,
                    at: Timestamp::UNIX_EPOCH,
                }),
                start_ticks: live_start_ticks(pid),
                ..Record::new(&copy, id.clone(), boot_id())
            };
            let begun = record.begin(&copy, Durability::ProcessLoss, "");
            begun.expect("written");
            fs::create_dir_all(&in_memory).expect("a directory");
            end_survivors(&copy).expect("readable");
            remove_memory(&copy, &uid).expect("readable");
            let has_ended = live_start_ticks(pid).is_none();
            program.kill().expect("a signal");
            program.wait().expect("it ends");
            assert_eq!((has_ended, !in_memory.exists()), (is_ended, is_ended));
        }
        fs::remove_dir(&in_memory).expect("removed");
    }

    #[test]
    fn sockets_are_in_memory_where_that_is_ours_and_nobody_needs_them_after_the_node() {
        let root = tempfile::tempdir().expect("a directory");
        let uid = root.path().file_name().expect("a name").to_string_lossy();
        let (dir, in_memory) = (root.path().join(&*uid), volumes::memory_dir(&uid));
        let place = |lifetime| socket_dir(&dir, lifetime);
        assert_eq!(place(PodsLifetime::OutliveNode), dir);
        assert!(!in_memory.exists());
        assert_eq!(place(PodsLifetime::DieWithNode), in_memory);
        let known: Vec<PathBuf> = socket_dirs(&dir).collect();
        assert_eq!(known, [dir.clone(), in_memory.clone()]);
        remove(&dir, &uid, &[]).expect("removed");
        // Somebody leads us elsewhere.
        std::os::unix::fs::symlink(root.path(), &in_memory).expect("a link");
        assert_eq!(place(PodsLifetime::DieWithNode), dir);
        assert_eq!(socket_dirs(&dir).count(), 1);
        fs::remove_file(&in_memory).expect("removed");
    }

    #[test]
    fn a_directory_that_is_being_removed_is_no_pods() {
        let root = tempfile::tempdir().expect("a directory");
        let uid = root.path().file_name().expect("a name").to_string_lossy();
        let (dir, in_memory) = (root.path().join(&*uid), volumes::memory_dir(&uid));
        let pod = Pod::default();
        make(&dir).expect("made");
        assert_eq!(
            recall_pod(&dir).expect("readable"),
            None,
            "nothing runs yet"
        );
        let ids = ["a", "b"].map(|container| AttemptId {
            container: container.into(),
            attempt: 0,
        });
        for id in ids {
            fs::create_dir(attempt_dir(&dir, &id)).expect("a directory");
            let memory = memory(&pod, Timestamp::UNIX_EPOCH).expect("JSON");
            let record = Record::new(&dir, id, String::new());
            let begun = record.begin(&dir, Durability::ProcessLoss, &memory);
            begun.expect("written");
        }
        assert_eq!(recall_pod(&dir).expect("readable"), Some(pod));
        let recalled = recall(&dir, Timestamp::MAX).expect("readable");
        assert_eq!(
            recalled.map(|local| local.acknowledged_at),
            Some(Timestamp::UNIX_EPOCH)
        );
        // Something stops the removal on the way, as a kill would.
        fs::write(&in_memory, "").expect("a file");
        remove(&dir, &uid, &[]).expect_err("no directory");
        assert_eq!(recall_pod(&dir).expect("readable"), None);
        assert!(dir.is_dir(), "a node that comes back does the rest");
        fs::remove_file(&in_memory).expect("removed");
        remove(&dir, &uid, &[]).expect("removed");
        assert!(!dir.exists());
    }
}
