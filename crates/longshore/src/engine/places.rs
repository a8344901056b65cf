//! Where the process node keeps what a user wants to find again.
//!
//! The layout is the node's own; it is known here because a run's report names files, also of pods that are gone.

use std::{
    fs,
    path::{Path, PathBuf},
};

use longshore_api::airflow::CONTAINER_BASE;
use longshore_store::TaskInstance;

/// The directory of the logs of all pods.
pub(crate) fn logs(node_root: &Path) -> PathBuf {
    node_root.join("logs")
}

/// The directory behind a claim.
pub(crate) fn claim(node_root: &Path, namespace: &str, claim: &str) -> PathBuf {
    node_root.join("volumes").join(namespace).join(claim)
}

/// The log of a task instance's last pod: of the container that failed, else of the one that runs the task. `None`
/// where no container of it was started.
pub(crate) fn task_log(node_root: &Path, namespace: &str, task: &TaskInstance) -> Option<PathBuf> {
    let (pod, uid) = (task.pod_name.as_deref()?, task.pod_uid.as_deref()?);
    let of_pod = logs(node_root).join(format!("{namespace}_{pod}_{uid}"));
    let container = task
        .failure
        .as_ref()
        .and_then(|failure| failure.container.as_deref());
    newest_attempt(&of_pod.join(container.unwrap_or(CONTAINER_BASE)))
}

/// `<attempt>.log` with the highest number.
fn newest_attempt(folder: &Path) -> Option<PathBuf> {
    let attempt = |path: &Path| -> Option<u32> {
        path.file_name()?
            .to_str()?
            .strip_suffix(".log")?
            .parse()
            .ok()
    };
    fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((attempt(&path)?, path))
        })
        .max()
        .map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use longshore_store::TaskState;

    use super::*;
    use crate::cmd::run::fixtures::task;

    #[test]
    fn the_log_is_that_of_the_newest_attempt_of_the_container_that_failed() {
        let root = tempfile::tempdir().unwrap();
        let of_pod = root.path().join("logs/default_etl-load-x1_u1");
        for log in [
            "base/0.log",
            "base/10.log",
            "base/9.log",
            "base/note.txt",
            "setup/0.log",
        ] {
            let path = of_pod.join(log);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let log = |task: &TaskInstance| task_log(root.path(), "default", task);

        let mut load = task("load", Some(TaskState::Success)).task_instance;
        assert_eq!(log(&load), None, "its pod was never seen");
        load.pod_uid = Some("u1".to_owned());
        assert_eq!(log(&load), Some(of_pod.join("base/10.log")));

        let mut failed = task("load", Some(TaskState::Failed)).task_instance;
        failed.pod_uid = Some("u1".to_owned());
        if let Some(failure) = &mut failed.failure {
            failure.container = Some("setup".to_owned());
        }
        assert_eq!(log(&failed), Some(of_pod.join("setup/0.log")));
    }
}
