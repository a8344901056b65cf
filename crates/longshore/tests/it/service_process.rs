//! A `longshore standalone` of a test: on free ports, with a data directory of its own, gone with all its processes
//! when the test is over.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Read},
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command as Process, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    controller::kills::{BINARY, told},
    longshore, outcome,
};

/// Waits until it holds; fails after half a minute.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..1_500 {
        if holds() {
            return;
        }
        thread::sleep(STEP);
    }
    panic!("not in time: {what}");
}

/// The user `nobody` and its group.
const NOBODY: u32 = 65_534;

/// The service.
pub(crate) struct Service {
    /// Kept for as long as the service.
    _folder: Option<TempDir>,
    data: PathBuf,
    start: Start,
    child: Child,
    ready: Value,
}

/// How a service is started.
struct Start {
    program: PathBuf,
    arguments: Vec<String>,
    /// The working directory of a service that `nobody` runs instead of the user of the test.
    of_nobody: Option<PathBuf>,
}

impl Service {
    /// Starts one, and waits until it is ready.
    pub(crate) fn start(dags: &Path, more: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        let mut arguments = vec!["--data-dir".to_owned(), data.display().to_string()];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        Self::start_with(Some(folder), dags, arguments)
    }

    /// Starts one in this data directory.
    pub(crate) fn start_in(data: &Path, dags: &Path) -> Self {
        Self::start_in_with(data, dags, &[])
    }

    /// Starts one in this data directory, with more arguments.
    pub(crate) fn start_in_with(data: &Path, dags: &Path, more: &[&str]) -> Self {
        let mut arguments = vec!["--data-dir".to_owned(), data.display().to_string()];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        Self::start_with(None, dags, arguments)
    }

    /// Starts one that keeps nothing.
    pub(crate) fn start_ephemeral(dags: &Path) -> Self {
        Self::start_with(None, dags, vec!["--ephemeral".to_owned()])
    }

    /// Starts one as the user `nobody`, for whom there is nothing but a directory. Only root can do so.
    pub(crate) fn start_as_nobody(more: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let data = folder.path().join("data");
        let mut arguments = vec!["--data-dir".to_owned(), data.display().to_string()];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        let start = Start {
            program: within_reach(program(), folder.path()),
            arguments,
            of_nobody: Some(folder.path().to_owned()),
        };
        Self::launched(Some(folder), start)
    }

    fn start_with(folder: Option<TempDir>, dags: &Path, mut arguments: Vec<String>) -> Self {
        arguments.extend(["--dags-folder".to_owned(), dags.display().to_string()]);
        let start = Start {
            program: program(),
            arguments,
            of_nobody: None,
        };
        Self::launched(folder, start)
    }

    fn launched(folder: Option<TempDir>, start: Start) -> Self {
        let (child, ready) = launch(&start);
        let data = PathBuf::from(ready["dataDir"].as_str().unwrap());
        Self {
            _folder: folder,
            data,
            start,
            child,
            ready,
        }
    }

    /// Starts it again, and waits until it is ready.
    pub(crate) fn restart(&mut self) {
        (self.child, self.ready) = launch(&self.start);
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A field of what it said when it was ready.
    pub(crate) fn ready(&self, field: &str) -> String {
        self.ready[field].as_str().unwrap().to_owned()
    }

    /// Runs a command against it.
    pub(crate) fn outcome(&self, line: &str) -> (i32, String, String) {
        let mut command = longshore();
        command
            .args(line.split(' '))
            .env("LONGSHORE_DATA_DIR", &self.data);
        outcome(&mut command)
    }

    /// The lines that a command against it prints, as they come.
    pub(crate) fn lines(&self, line: &str) -> Following {
        let mut process = Process::new(env!("CARGO_BIN_EXE_longshore"));
        let mut child = process
            .args(line.split(' '))
            .env_remove("LONGSHORE_SERVER")
            .env("LONGSHORE_DATA_DIR", &self.data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { child, lines }
    }

    /// Kills it as hard as can be.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop; its exit code and what it said.
    pub(crate) fn stop(&mut self) -> (Option<i32>, String) {
        signal("TERM", self.child.id());
        self.end()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; its exit code and what it said.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        pipe.read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }

    /// Processes of its pods: they have the data directory on their command line, or inherited it.
    pub(crate) fn n_processes(&self) -> usize {
        self.processes().len()
    }

    /// The service, the processes of its pods, and the keeper of their networks.
    pub(crate) fn all_processes(&self) -> Vec<u32> {
        let mut all = self.processes();
        all.extend(self.keepers());
        all.push(self.child.id());
        all
    }

    /// Processes that keep the networks of pods: they have the name of the data directory in their log only.
    fn keepers(&self) -> Vec<u32> {
        let log = self.data.join("node/network/keeper.log");
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter(|entry| fs::read_link(entry.path().join("fd/2")).is_ok_and(|it| it == log))
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }

    fn processes(&self) -> Vec<u32> {
        let data = self.data.to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|entry| {
                let id: u32 = entry.file_name().to_str()?.parse().ok()?;
                let line = fs::read(entry.path().join("cmdline")).ok()?;
                let is_of_pod = String::from_utf8_lossy(&line).contains(data);
                (is_of_pod && id != self.child.id()).then_some(id)
            })
            .collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Pods outlive their service: a shim ends its containers upon SIGTERM.
        for id in self.processes().into_iter().chain(self.keepers()) {
            signal("TERM", id);
        }
    }
}

/// The program that is tested.
fn program() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_longshore").to_owned();
    told(BINARY).unwrap_or_else(built).into()
}

/// The program where `nobody` can run it: a copy in a directory, if it is below one that is closed to others.
fn within_reach(program: PathBuf, folder: &Path) -> PathBuf {
    let mut version = Process::new(&program);
    let version = version.arg("--version").uid(NOBODY).gid(NOBODY);
    if version.stdout(Stdio::null()).status().is_ok() {
        return program;
    }
    let copy = folder.join("longshore");
    fs::copy(program, &copy).unwrap();
    copy
}

fn signal(name: &str, id: u32) {
    let _ = Process::new("kill")
        .args([format!("-{name}"), id.to_string()])
        .stderr(Stdio::null())
        .status();
}

fn launch(start: &Start) -> (Child, Value) {
    // From the least careful of shells.
    let mut process = Process::new("sh");
    process.args(["-c", r#"umask 000; ulimit -S -n 1024; exec "$0" "$@""#]);
    process.arg(&start.program);
    if let Some(folder) = &start.of_nobody {
        process.uid(NOBODY).gid(NOBODY);
        process.current_dir(folder).env("HOME", folder);
    }
    for name in [
        "LONGSHORE_DATABASE_URL",
        "LONGSHORE_DATABASE_URL_FILE",
        "LONGSHORE_DATA_DIR",
        "LONGSHORE_LOG",
    ] {
        process.env_remove(name);
    }
    process.args(["standalone", "-o", "json", "--port", "0"]);
    if !start
        .arguments
        .iter()
        .any(|argument| argument == "--kube-port")
    {
        process.args(["--kube-port", "0"]);
    }
    let mut child = process
        .args(["--metrics-port", "0"])
        .args(&start.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut stderr = String::new();
        let mut pipe = child.stderr.take().unwrap();
        pipe.read_to_string(&mut stderr).unwrap();
        panic!("the service did not start: {stderr}");
    }
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["kind"], "Ready");
    (child, ready)
}

/// A command that follows something; it ends with this value at the latest.
pub(crate) struct Following {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Iterator for Following {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
