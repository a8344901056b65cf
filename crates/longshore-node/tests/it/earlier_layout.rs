//! Pods whose directories Longshore has written before its first release, until 27 November 2026.

use std::{
    io::Write,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
};

use jiff::Timestamp;
use longshore_node::{
    LogOptions, PodsLifetime,
    shim::protocol::{AttemptId, Exit, ExitReason, Report, Started},
};
use serde_json::{Value, json};

use crate::node_rig::{Rig, RunningNode, end, script, until_removed};

/// A record had this size from its first byte on disk.
const SIZE: usize = 8 * 1024;

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(path, text).expect("a file");
}

/// What an earlier version has left of a pod.
struct Earlier {
    dir: PathBuf,
    logs: PathBuf,
}

impl Earlier {
    /// A pod that was bound to the node. Its containers would say that they have started, in a file of the rig.
    async fn pod(rig: &Rig, name: &str, policy: &str) -> Self {
        let mut spec = script(&format!("echo started >> {}", starts(rig).display()));
        spec["volumes"] = json!([{"name": "dir", "hostPath": {"path": rig.path()}}]);
        spec["containers"][0]["volumeMounts"] = json!([{"name": "dir", "mountPath": rig.path()}]);
        spec["nodeName"] = json!("node-0");
        spec["restartPolicy"] = json!(policy);
        rig.run(name, spec).await;
        let uid = rig.uid(name).await;
        let node = rig.path().join("node");
        let earlier = Self {
            dir: node.join("pods").join(&uid),
            logs: node.join("logs").join(format!("default_{name}_{uid}")),
        };
        let pod = rig.pods().get(name).await.expect("the pod");
        let memory = json!({"acknowledgedAt": long_ago(), "pod": pod});
        write(&earlier.dir.join("pod.json"), &memory.to_string());
        earlier
    }

    fn write_record(&self, attempt: u32, started: &Started, exit: Option<&Exit>) {
        let mut record = json!({
            "id": {"container": "main", "attempt": attempt}, "boot": "a boot", "started": started,
        });
        if let Some(exit) = exit {
            record["exit"] = json!(exit);
        }
        let path = self
            .dir
            .join(format!("containers/main/{attempt}/record.json"));
        write(&path, &format!("{:SIZE$}", record.to_string()));
    }

    fn write_log(&self, attempt: u32, line: &str) {
        let line = format!("{} stdout F {line}\n", long_ago());
        write(&self.logs.join(format!("main/{attempt}.log")), &line);
    }

    /// The attempts in directories of that time.
    fn attempts(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.join("containers/main")).expect("a directory");
        let names = entries.map(|it| it.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|it| it.to_string_lossy().into()).collect();
        names.sort();
        names
    }
}

fn starts(rig: &Rig) -> PathBuf {
    rig.path().join("starts")
}

/// Before any back-off that still counts.
fn long_ago() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

fn started(pid: i32) -> Started {
    Started {
        at: long_ago(),
        pid,
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        code,
        signal: None,
        reason: ExitReason::Error,
        started_at: Some(long_ago()),
        finished_at: long_ago(),
        message: "out of luck".into(),
    }
}

fn first_attempt() -> AttemptId {
    AttemptId {
        container: "main".into(),
        attempt: 0,
    }
}

/// A shim that outlived its node: says this at the socket of the pod until there is nothing more to say.
fn shim(dir: &Path, reports: mpsc::Receiver<Report>) -> JoinHandle<()> {
    let listener = UnixListener::bind(dir.join("shim.sock")).expect("a socket");
    std::thread::spawn(move || {
        let (mut node, _) = listener.accept().expect("the node connects");
        for report in reports {
            let line = serde_json::to_string(&report).expect("JSON");
            writeln!(node, "{line}").expect("the node reads");
        }
    })
}

async fn log(node: &RunningNode, pod: &str) -> String {
    node.log(pod, LogOptions::default()).await
}

#[tokio::test]
async fn a_pod_that_has_ended_keeps_its_end_and_its_log_until_it_is_deleted() {
    let rig = Rig::new();
    let earlier = Earlier::pod(&rig, "ended", "Never").await;
    earlier.write_record(0, &started(1), Some(&exit(4)));
    earlier.write_log(0, "said before");
    let node = rig.start_with(rig.config(PodsLifetime::OutliveNode)).await;
    if !node.has_mounts() {
        return;
    }
    let status = rig.until_phase("ended", "Failed").await;
    let end = end(&status, 0);
    assert_eq!(
        (&end["exitCode"], &end["message"]),
        (&json!(4), &json!("out of luck"))
    );
    assert!(!starts(&rig).exists(), "it does not run again");
    assert_eq!(log(&node, "ended").await, "said before\n");
    rig.delete("ended").await;
    rig.until_gone("ended").await;
    until_removed(&earlier.dir).await;
    assert!(!earlier.logs.exists());
    node.stop().await;
}

#[tokio::test]
async fn restarts_go_on_where_they_were_and_in_the_layout_of_today() {
    let rig = Rig::new();
    let earlier = Earlier::pod(&rig, "restarts", "OnFailure").await;
    for attempt in [0, 1] {
        earlier.write_record(attempt, &started(1), Some(&exit(4)));
    }
    let node = rig.start_with(rig.config(PodsLifetime::OutliveNode)).await;
    if !node.has_mounts() {
        return;
    }
    let status = rig.until_phase("restarts", "Succeeded").await;
    assert_eq!(status["containerStatuses"][0]["restartCount"], 2);
    let text = std::fs::read_to_string(starts(&rig)).expect("it has started");
    assert_eq!(text, "started\n");
    assert_eq!(earlier.attempts(), ["0", "1"]);
    assert!(earlier.dir.join("main.2/record.json").is_file());
    node.stop().await;
}

/// Where no shim is left, its containers have ended with it.
#[tokio::test]
async fn a_container_without_a_shim_is_lost_and_does_not_run_again() {
    let rig = Rig::new();
    let earlier = Earlier::pod(&rig, "lost", "Never").await;
    earlier.write_record(0, &started(1), None);
    let node = rig.start_with(rig.config(PodsLifetime::OutliveNode)).await;
    if !node.has_mounts() {
        return;
    }
    let status = rig.until_phase("lost", "Failed").await;
    let end = end(&status, 0);
    let lost: (&Value, &Value) = (&json!(137), &json!("ContainerStatusUnknown"));
    assert_eq!((&end["exitCode"], &end["reason"]), lost);
    assert!(!starts(&rig).exists());
    node.stop().await;
}

#[tokio::test]
async fn a_container_that_runs_is_taken_over_with_its_log_and_its_end() {
    let rig = Rig::new();
    let earlier = Earlier::pod(&rig, "runs", "Never").await;
    let mut program = std::process::Command::new("cat");
    let program = program.stdin(std::process::Stdio::piped()).spawn();
    let mut program = program.expect("a program");
    let started = started(program.id().try_into().expect("a pid"));
    earlier.write_record(0, &started, None);
    earlier.write_log(0, "said before");
    let (say, reports) = mpsc::channel();
    let shim = shim(&earlier.dir, reports);
    say.send(Report::Started {
        id: first_attempt(),
        started: started.clone(),
    })
    .expect("said");
    say.send(Report::CaughtUp).expect("said");
    let config = rig.config(PodsLifetime::OutliveNode);
    let node = rig.start_with(config.clone()).await;
    if !node.has_mounts() {
        drop(program.stdin.take());
        program.wait().expect("it ends");
        return;
    }
    let status = rig.until_phase("runs", "Running").await;
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    assert_eq!(log(&node, "runs").await, "said before\n");
    // The node is away while the container ends; the shim, which has nothing left to do, ends too.
    node.kill().await;
    drop(program.stdin.take());
    program.wait().expect("it ends");
    earlier.write_record(0, &started, Some(&exit(4)));
    drop(say);
    shim.join().expect("it has said everything");
    let node = rig.start_with(config).await;
    let status = rig.until_phase("runs", "Failed").await;
    assert_eq!(end(&status, 0)["exitCode"], 4);
    assert!(!starts(&rig).exists());
    node.stop().await;
}
