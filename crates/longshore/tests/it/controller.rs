//! `longshore controller` as a process: two replicas of it, on a real API server where there is one.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command as Process, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{cluster::TestCluster, longshore, outcome};

/// Waits until it holds, for at most two minutes, and lets the test's own tasks run meanwhile.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_200 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not in time: {what}");
}

/// A replica. Killed when the test is over.
struct Replica {
    child: Child,
    log: PathBuf,
}

impl Replica {
    fn start(name: &str, kubeconfig: &Path, cluster: &TestCluster, data: &Path) -> Self {
        let log = cluster.folder.path().join(format!("{name}.log"));
        let file = fs::File::create(&log).unwrap();
        let mut process = Process::new(env!("CARGO_BIN_EXE_longshore"));
        for name in ["LONGSHORE_DATABASE_URL", "LONGSHORE_LOG", "KUBECONFIG"] {
            process.env_remove(name);
        }
        let mut child = process
            .args([
                "controller",
                "-o",
                "json",
                "--enable",
                "dags",
                "-n",
                &cluster.namespace,
            ])
            .args([
                "--address",
                "127.0.0.1:0",
                "--metrics-address",
                "127.0.0.1:0",
            ])
            .args(["--parallelism", "4"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--data-dir")
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let replica = Self { child, log };
        assert!(!line.is_empty(), "{name} did not start: {}", replica.log());
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["namespace"], cluster.namespace.as_str());
        replica
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn leads(&self) -> bool {
        self.log().contains("dags: runs here")
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop; its exit code.
    fn stop(&mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        Process::new("kill").args(["-TERM", &id]).status().unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sixty tasks of a second each, four at a time, in three layers.
fn dag() -> String {
    let mut text =
        "dag_id: many\nschedule: '@once'\nstart_date: 2026-01-01\ncatchup: true\ntasks:\n"
            .to_owned();
    for n in 0..60 {
        let before = if n < 20 {
            String::new()
        } else {
            format!("depends_on: [t{}], ", n - 20)
        };
        text += &format!("  t{n}: {{image: scripted, {before}command: [run, 1s, exit, '0']}}\n");
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_takes_over_when_the_leader_is_killed_or_stopped_and_nothing_is_lost_or_runs_twice()
 {
    let cluster = TestCluster::start().await;
    let kubeconfig = if cluster.is_real() {
        cluster.account().await
    } else {
        cluster.admin_kubeconfig()
    };
    let data = cluster.folder.path().join("controller");
    fs::create_dir_all(data.join("dags")).unwrap();
    fs::write(data.join("dags/many.yaml"), dag()).unwrap();
    let ended = || {
        let history = cluster.node.history();
        let of_us = history
            .runs()
            .iter()
            .filter(|run| run.pod.starts_with(&cluster.namespace));
        of_us.filter(|run| run.ended_at.is_some()).count()
    };

    let mut first = Replica::start("first", &kubeconfig, &cluster, &data);
    until("the first one leads", || first.leads()).await;
    let mut second = Replica::start("second", &kubeconfig, &cluster, &data);
    until("the second one waits, and says for whom", || {
        second.log().contains("dags: waits for the lease that ")
    })
    .await;
    assert!(!second.leads());
    until("some tasks ended", || ended() >= 6).await;
    first.kill();
    until("the second one leads", || second.leads()).await;
    let third = Replica::start("third", &kubeconfig, &cluster, &data);
    let n_ended = ended();
    until("more tasks ended", || ended() >= n_ended + 6).await;
    assert_eq!(second.stop(), Some(0), "{}", second.log());
    until("the third one leads", || third.leads()).await;

    let run = || {
        let mut command = longshore();
        command
            .args(["runs", "list", "-o", "json"])
            .env("LONGSHORE_DATA_DIR", &data);
        let (_, stdout, _) = outcome(&mut command);
        let list: Value = serde_json::from_str(&stdout).unwrap_or_default();
        list["items"][0].clone()
    };
    until("the run is over", || run()["state"] == "success").await;
    let history = cluster.node.history();
    let mut tries: Vec<String> = history
        .runs()
        .iter()
        .filter(|run| run.pod.starts_with(&cluster.namespace))
        .map(|run| format!("{} try {}", run.labels["task_id"], run.labels["try_number"]))
        .collect();
    tries.sort();
    let mut expected: Vec<String> = (0..60).map(|n| format!("t{n} try 1")).collect();
    expected.sort();
    assert_eq!(tries, expected, "each task once, and no try consumed");
}

#[test]
fn what_is_wrong_with_the_cluster_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = folder.path().join("nobody.kubeconfig");
    let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {}}]}"#;
    fs::write(&nobody, text).unwrap();
    let missing = folder.path().join("missing.kubeconfig");
    for (kubeconfig, code, exit) in [(&nobody, "LS1102", 1), (&missing, "LS1101", 3)] {
        let mut command = longshore();
        command
            .args([
                "controller",
                "--address",
                "127.0.0.1:0",
                "--metrics-address",
                "127.0.0.1:0",
            ])
            .arg("--data-dir")
            .arg(folder.path())
            .arg("--kubeconfig")
            .arg(kubeconfig);
        let (found, _, stderr) = outcome(&mut command);
        assert!(stderr.contains(&format!("error[{code}]: ")), "{stderr}");
        assert_eq!(found, exit, "{stderr}");
    }
}

#[test]
fn a_role_that_does_not_exist_is_refused_with_those_that_do() {
    let (code, _, stderr) = outcome(longshore().args(["controller", "--enable", "dogs"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("expected one of dags"), "{stderr}");
}

#[test]
fn the_roles_are_printed_for_kubectl() {
    let (code, stdout, _) =
        outcome(longshore().args(["controller", "rbac", "-n", "pipelines", "-o", "name"]));
    assert_eq!(code, 0);
    insta::assert_snapshot!(stdout, @r"
    serviceaccount/longshore
    role/longshore
    rolebinding/longshore
    clusterrole/longshore:pipelines
    clusterrolebinding/longshore:pipelines
    ");
}
