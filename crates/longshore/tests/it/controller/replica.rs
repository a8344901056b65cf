//! A replica of `longshore controller` as a process.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command as Process, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::cluster::TestCluster;

/// How long a lease lasts: long enough for a busy machine, short enough to wait for its end.
pub(super) const LEASE: &str = "4s";

/// Waits until it holds, for at most two minutes, and lets the test's own tasks run meanwhile.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    const STEP: Duration = Duration::from_millis(50);
    for _ in 0..2_400 {
        if holds() {
            return;
        }
        tokio::time::sleep(STEP).await;
    }
    panic!("not in time: {what}");
}

/// A port that is free at the moment, on any address.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// What a replica is to be.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) namespace: String,
    /// Data directory and logs.
    pub(super) folder: PathBuf,
    pub(super) role: &'static str,
    pub(super) lease: &'static str,
    /// Further arguments.
    pub(super) more: Vec<String>,
    /// A configuration of the peer's.
    pub(super) config: Option<PathBuf>,
}

impl Plan {
    /// A replica of this role beside others, with the rights of an administrator.
    pub(super) fn of(cluster: &TestCluster, role: &'static str) -> Self {
        Self {
            program: env!("CARGO_BIN_EXE_longshore").into(),
            kubeconfig: cluster.admin_kubeconfig(),
            namespace: cluster.namespace.clone(),
            folder: cluster.folder.path().to_owned(),
            role,
            lease: LEASE,
            more: Vec::new(),
            config: None,
        }
    }

    /// The data directory.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("controller")
    }

    /// Starts it, and does not wait.
    pub(super) fn spawn(&self, name: &str) -> Replica {
        let log = self.folder.join(format!("{name}.log"));
        let mut process = Process::new(&self.program);
        for name in ["LONGSHORE_DATABASE_URL", "LONGSHORE_LOG", "KUBECONFIG"] {
            process.env_remove(name);
        }
        let child = process
            .args(["controller", "-o", "json", "--enable", self.role])
            .args(["-n", &self.namespace, "--lease-duration", self.lease])
            .args(["--address", "127.0.0.1:0", "--parallelism", "4"])
            .args(["--metrics-address", "127.0.0.1:0"])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--data-dir")
            .arg(self.data())
            .args(&self.more)
            .args(
                self.config
                    .iter()
                    .flat_map(|file| [Path::new("--config"), file.as_path()]),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let role = self.role;
        Replica { child, log, role }
    }

    /// Starts it, and waits until it is ready.
    pub(super) fn start(&self, name: &str) -> Replica {
        let mut replica = self.spawn(name);
        let ready = replica.ready();
        assert_eq!(ready["namespace"], self.namespace.as_str());
        replica
    }
}

/// A replica. Killed when the test is over.
pub(super) struct Replica {
    child: Child,
    log: PathBuf,
    role: &'static str,
}

impl Replica {
    /// Waits until it is ready; what it says then.
    pub(super) fn ready(&mut self) -> Value {
        let mut line = String::new();
        let mut stdout = BufReader::new(self.child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it did not start: {}", self.log());
        serde_json::from_str(&line).unwrap()
    }

    /// Of its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(super) fn leads(&self) -> bool {
        self.log().contains(&format!("{}: runs here", self.role))
    }

    /// Whether the replica does nothing and its log names the holder of the lease.
    pub(super) fn waits(&self) -> bool {
        let waits = format!("{}: waits for the lease that ", self.role);
        self.log().contains(&waits) && !self.leads()
    }

    /// The most memory that it had, in MiB.
    pub(super) fn peak_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<f64>().unwrap() / 1024.0
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it ends by itself; its exit code.
    pub(super) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Asks it to stop; its exit code.
    pub(super) fn stop(&mut self) -> Option<i32> {
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

/// The path of a metrics or health page, read without TLS.
pub(super) async fn page(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = Path::new(address).file_name().unwrap().to_str().unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}
