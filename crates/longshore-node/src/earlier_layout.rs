//! The directories of pods as Longshore wrote them until 27 November 2026, before its first release: they are read, and
//! nothing is written into them.
//!
//! An attempt had the directory `containers/<container>/<attempt>` in that of its pod. What the node remembered of the pod
//! was in `pod.json`, and the log was `logs/<namespace>_<pod>_<uid>/<container>/<attempt>.log` in the directory of the
//! node. A shim of that time that runs on writes there until its pod has ended. The pod also has attempts of the present
//! layout once another shim serves it.
//!
//! This module may go with the first release after 0.1: the notes of that release then say that data directories from
//! before 0.1 are not read.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    config::{LogsLifetime, NodeConfig},
    pod::publish::PodRef,
    shim::{protocol::AttemptId, record::names},
};

/// In the directory of a pod: one directory for each container.
const CONTAINERS: &str = "containers";
/// In the directory of a pod: what the node remembered of it.
const MEMORY: &str = "pod.json";
/// In the directory of the node: one directory for each pod.
const LOGS: &str = "logs";

/// The directory of an attempt.
pub(crate) fn attempt_dir(pod_dir: &Path, id: &AttemptId) -> PathBuf {
    let container = pod_dir.join(CONTAINERS).join(&id.container);
    container.join(id.attempt.to_string())
}

/// The attempts that have a directory.
pub(crate) fn attempts(pod_dir: &Path) -> io::Result<BTreeSet<AttemptId>> {
    let mut all = BTreeSet::new();
    let containers = pod_dir.join(CONTAINERS);
    for container in names(&containers)? {
        for attempt in names(&containers.join(&container))? {
            if let Ok(attempt) = attempt.parse() {
                let container = container.clone();
                all.insert(AttemptId { container, attempt });
            }
        }
    }
    Ok(all)
}

/// Whether a pod has attempts. It may use its claims without the mark that the node has made since.
pub(crate) fn has_attempts(pod_dir: &Path) -> bool {
    attempts(pod_dir).is_ok_and(|all| !all.is_empty())
}

/// What the node remembered of a pod.
pub(crate) fn memory(pod_dir: &Path) -> Option<Vec<u8>> {
    fs::read(pod_dir.join(MEMORY)).ok()
}

/// Removes what the node remembered of a pod.
pub(crate) fn remove_memory(pod_dir: &Path) -> io::Result<()> {
    match fs::remove_file(pod_dir.join(MEMORY)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The log of an attempt; `None` where there is no such file.
pub(crate) fn log(config: &NodeConfig, pod: &PodRef, id: &AttemptId) -> Option<PathBuf> {
    let logs = config.root.join(LOGS).join(pod.log_directory());
    let path = logs.join(&id.container).join(format!("{}.log", id.attempt));
    path.exists().then_some(path)
}

/// The directories with the logs of a pod, which go with the pod; none where logs stay for ever.
pub(crate) fn log_dirs(config: &NodeConfig, uid: &str) -> Vec<PathBuf> {
    let all = match config.logs {
        LogsLifetime::UntilPodDeleted => fs::read_dir(config.root.join(LOGS)).ok(),
        LogsLifetime::Forever => None,
    };
    let suffix = format!("_{uid}");
    let of_pod = |it: &fs::DirEntry| it.file_name().to_string_lossy().ends_with(&suffix);
    let found = all.into_iter().flatten().flatten().filter(of_pod);
    found.map(|it| it.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        pod::{
            directory,
            model::{AttemptState, Local},
        },
        shim::record::{boot_id, live_start_ticks},
    };

    /// A record had this size from its first byte on disk.
    const SIZE: usize = 8 * 1024;
    /// A pid above the limit of Linux.
    const NO_PROCESS: u32 = 1 << 23;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn write_record(pod_dir: &Path, attempt: u32, rest: &Value) {
        let mut record =
            json!({"id": {"container": "main", "attempt": attempt}, "boot": boot_id()});
        let fields = record.as_object_mut().unwrap();
        fields.extend(rest.as_object().unwrap().clone());
        let path = pod_dir.join(format!("containers/main/{attempt}/record.json"));
        write(&path, &format!("{:SIZE$}", record.to_string()));
    }

    /// Every file below a directory, with its content.
    fn files(dir: &Path) -> Vec<(PathBuf, String)> {
        let mut open = vec![dir.to_owned()];
        let mut found = Vec::new();
        while let Some(path) = open.pop() {
            if path.is_dir() {
                let entries = fs::read_dir(path).unwrap();
                open.extend(entries.map(|it| it.unwrap().path()));
            } else {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
        found.sort();
        found
    }

    /// The exit code of each attempt, as far as it has ended.
    fn codes(local: &Local) -> Vec<(u32, Option<i32>)> {
        let attempts = local.attempts_of("main").iter();
        let code = |state: &AttemptState| match state {
            AttemptState::Exited(exit) => Some(exit.code),
            AttemptState::Requested | AttemptState::Running(_) => None,
        };
        attempts.map(|it| (it.number, code(&it.state))).collect()
    }

    /// Its first attempt has failed, its second one runs.
    fn write_pod(pod_dir: &Path, pid: u32) -> Pod {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap();
        let memory = json!({"acknowledgedAt": "2026-11-27T08:00:00Z", "pod": pod});
        write(&pod_dir.join("pod.json"), &memory.to_string());
        let at = "2026-11-27T08:00:01Z";
        let started = json!({"at": at, "pid": pid});
        let exit =
            json!({"code": 4, "reason": "Error", "finished_at": at, "message": "out of luck"});
        write_record(pod_dir, 0, &json!({"started": started, "exit": exit}));
        let ticks = live_start_ticks(pid.try_into().unwrap());
        let running = json!({"started": started, "start_ticks": ticks});
        write_record(pod_dir, 1, &running);
        pod
    }

    #[test]
    fn attempts_of_the_earlier_layout_count_and_what_becomes_of_them_is_written_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("pods/uid");
        let mut program = Command::new("sleep").arg("600").spawn().unwrap();
        let pod = write_pod(&dir, program.id());
        let before = files(&dir);
        assert_eq!(directory::recall_pod(&dir).unwrap(), Some(pod));
        assert!(has_attempts(&dir), "it may use claims");
        let recall = || directory::recall(&dir, Timestamp::MAX).unwrap().unwrap();
        let mut local = recall();
        assert_eq!(local.acknowledged_at.to_string(), "2026-11-27T08:00:00Z");
        assert_eq!(codes(&local), [(0, Some(4)), (1, None)]);
        // The node still waits for a shim to say so: its shim has the record of the start.
        directory::forget_unheard(&dir, &mut local).unwrap();
        assert_eq!(codes(&local), [(0, Some(4)), (1, None)]);
        // The shim is gone.
        directory::settle(&dir, &mut local).unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&program.wait().unwrap());
        assert_eq!(signal, Some(9), "the program must not run on");
        for local in [local, recall()] {
            assert_eq!(codes(&local), [(0, Some(4)), (1, Some(137))]);
        }
        let (new, old): (Vec<_>, Vec<_>) = files(&dir)
            .into_iter()
            .partition(|(path, _)| path.starts_with(dir.join("main.1")));
        assert_eq!((new.len(), old), (1, before));
    }

    #[test]
    fn what_is_left_of_a_pod_goes_with_it_and_is_nobodys_first() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("pods/uid");
        write_pod(&dir, NO_PROCESS);
        let logs = |name: &str| root.path().join("logs").join(name);
        write(&logs("ns_p_uid").join("main/0.log"), "");
        write(&logs("ns_p_other").join("main/0.log"), "");
        let mut config = NodeConfig::new("n", root.path(), vec!["shim".into()]);
        config.logs = LogsLifetime::Forever;
        assert!(log_dirs(&config, "uid").is_empty());
        config.logs = LogsLifetime::UntilPodDeleted;
        let found = log_dirs(&config, "uid");
        assert_eq!(found, [logs("ns_p_uid")]);
        // Something stops the removal at the logs, as a kill would.
        let file = root.path().join("file");
        write(&file, "");
        directory::remove(&dir, "uid", &[file]).unwrap_err();
        assert_eq!(directory::recall_pod(&dir).unwrap(), None);
        directory::remove(&dir, "uid", &found).unwrap();
        assert!(!dir.exists() && !logs("ns_p_uid").exists());
        assert!(logs("ns_p_other").exists());
    }
}
