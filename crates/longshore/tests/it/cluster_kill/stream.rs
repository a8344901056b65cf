//! A command in a pod whose cluster is killed. It needs kubectl, which `LONGSHORE_TEST_KUBECTL` names.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::pods::TalkingPod;
use crate::{
    controller::kills::told,
    service_process::{Service, until},
};

/// The stream.
pub(super) struct Stream {
    child: Child,
    mark: String,
    /// Where kubectl keeps what it has learnt of the cluster.
    _home: TempDir,
}

impl Stream {
    /// Runs a command that does not end, and waits for its first line; without kubectl there is no stream.
    pub(super) fn open(service: &Service, pod: &TalkingPod, life: u64) -> Option<Self> {
        let kubectl = told("LONGSHORE_TEST_KUBECTL").filter(|path| !path.is_empty())?;
        let mark = format!("stream-{}-{life}", service.id());
        let home = TempDir::new().unwrap();
        let mut child = Command::new(kubectl)
            .args(["exec", &pod.name, "--"])
            .args(["sh", "-c", "echo begun; sleep 1000; exit 1", &mark])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", home.path())
            .env("KUBECONFIG", service.ready("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        Some(Self {
            child,
            mark,
            _home: home,
        })
    }

    /// The cluster was killed: kubectl is told so, and the command is gone from the pod.
    pub(super) fn ends(mut self) {
        until("the stream ends", || {
            self.child.try_wait().unwrap().is_some()
        });
        until("the command ends", || !is_running(&self.mark));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process has this mark on its command line.
fn is_running(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(mark))
}
