//! A pod's directory: the pod as last seen, the shim's socket, and everything that goes with the pod.

use std::{
    fs, io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use super::model::{AttemptState, BegunStop, Local};
use crate::{
    private_dir,
    shim::record::{Record, SOCKET, live_start_ticks},
    volumes,
};

/// Which pod a directory is of.
const POD_FILE: &str = "pod.json";

/// What the node remembers of a pod besides its attempts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    acknowledged_at: Timestamp,
    pod: Pod,
}

/// Remembers a pod before anything of it runs. What must survive a crash of the machine is in the records.
pub(crate) fn remember(dir: &Path, pod: &Pod, acknowledged_at: Timestamp) -> io::Result<()> {
    private_dir::make(dir)?;
    let memory = Memory {
        acknowledged_at,
        pod: pod.clone(),
    };
    let bytes = serde_json::to_vec(&memory)?;
    longshore_files::replace_unsynced(&dir.join(POD_FILE), 0o600, &bytes)
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
pub(crate) fn recall_pod(dir: &Path) -> Option<Pod> {
    let bytes = fs::read(dir.join(POD_FILE)).ok()?;
    let memory = serde_json::from_slice::<Memory>(&bytes).ok()?;
    Some(memory.pod)
}

/// Reads back what is known of a pod from before this node started; `None` for one that never started.
pub(crate) fn recall(dir: &Path, now: Timestamp) -> io::Result<Option<Local>> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let memory = fs::read(dir.join(POD_FILE)).ok();
    let memory = memory.and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok());
    let mut local = Local::new(memory.map_or(now, |m| m.acknowledged_at));
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
    for id in local.live().collect::<Vec<_>>() {
        let Some(mut record) = Record::load(dir, &id)? else {
            local.forget(&id);
            continue;
        };
        let exit = match record.exit.clone() {
            Some(exit) => exit,
            None => {
                end_survivor(&record);
                let exit = record.lost();
                record.exit = Some(exit.clone());
                if let Err(error) = record.end(dir) {
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

/// Drops everything that was kept for the pod, and these directories of its logs.
///
/// First nobody can tell any more whose directory it is: a cluster in memory puts back a pod that it finds there, and then
/// waits for its logs. The directory goes last: as long as it is there, a node that comes back does the rest.
pub(crate) fn remove(
    dir: &Path,
    uid: &str,
    logs: impl IntoIterator<Item = PathBuf>,
) -> io::Result<()> {
    match fs::remove_file(dir.join(POD_FILE)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    for logs in logs {
        longshore_files::remove_tree(&logs)?;
    }
    longshore_files::remove_tree(&volumes::memory_dir(uid))?;
    longshore_files::remove_tree(dir)
}

/// Calls `with` with a path of the pod's socket that is short enough for the kernel (108 bytes).
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

    #[test]
    fn a_directory_that_is_being_removed_is_no_pods() {
        let root = tempfile::tempdir().expect("a directory");
        let (dir, logs) = (root.path().join("uid"), root.path().join("logs"));
        let pod = Pod::default();
        remember(&dir, &pod, Timestamp::UNIX_EPOCH).expect("remembered");
        assert_eq!(recall_pod(&dir), Some(pod));
        // Something stops the removal at the logs, as a kill would.
        fs::write(&logs, "").expect("a file");
        remove(&dir, "uid", [logs.clone()]).expect_err("no directory");
        assert_eq!(recall_pod(&dir), None);
        assert!(dir.is_dir(), "a node that comes back does the rest");
        fs::remove_file(&logs).expect("removed");
        remove(&dir, "uid", [logs]).expect("removed");
        assert!(!dir.exists());
    }
}
