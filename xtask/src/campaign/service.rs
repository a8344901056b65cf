//! A `longshore standalone` or `longshore controller`, as a process that a chore measures.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// How long a start may take.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(20);

/// The service. Dropping it kills it.
pub(crate) struct Service {
    program: PathBuf,
    data: PathBuf,
    child: Child,
    started_at: Instant,
}

impl Service {
    /// Its data directory.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Starts a `standalone` on free ports. Its stdout and stderr go to files beside the data directory.
    pub(crate) fn standalone(program: &Path, data: &Path, arguments: &[String]) -> Result<Self> {
        let ports = ["--port", "0", "--kube-port", "0", "--metrics-port", "0"];
        let mut command = Command::new(program);
        command.arg("standalone").args(ports).args(arguments);
        Self::start(command, program, data)
    }

    /// Starts a `controller` with its default roles on the API server of a `standalone` that is ready.
    pub(crate) fn controller(program: &Path, data: &Path, on: &mut Self) -> Result<Self> {
        let ready = on.ready()?.context("the standalone is not ready")?;
        let kubeconfig = ready["kubeconfig"].as_str().context("no kubeconfig")?;
        let mut command = Command::new(program);
        command
            .args(["controller", "--kubeconfig", kubeconfig])
            .args(["--address", "127.0.0.1:0"])
            .args(["--metrics-address", "127.0.0.1:0"]);
        Self::start(command, program, data)
    }

    fn start(mut command: Command, program: &Path, data: &Path) -> Result<Self> {
        let stdout = File::create(data.with_extension("ready"))?;
        let stderr = File::options()
            .create(true)
            .append(true)
            .open(data.with_extension("stderr"))?;
        let child = command
            .args(["-o", "json", "--data-dir"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .context("longshore cannot be run")?;
        Ok(Self {
            program: program.to_owned(),
            data: data.to_owned(),
            child,
            started_at: now(),
        })
    }

    /// What it said when it was ready.
    fn ready(&mut self) -> Result<Option<Value>> {
        if let Some(status) = self.child.try_wait()? {
            let stderr = fs::read_to_string(self.data.with_extension("stderr"))?;
            bail!("the service ended with {status}:\n{stderr}");
        }
        let text = fs::read_to_string(self.data.with_extension("ready"))?;
        Ok(text
            .ends_with('\n')
            .then(|| serde_json::from_str(&text))
            .transpose()?)
    }

    /// Whether it is ready.
    pub(super) fn is_ready(&mut self) -> Result<bool> {
        Ok(self.ready()?.is_some())
    }

    /// The kubeconfig of its user who may do everything; the service has to be ready.
    pub(super) fn kubeconfig(&mut self) -> Result<PathBuf> {
        let ready = self.ready()?.context("the service is not ready")?;
        let path = ready["kubeconfig"].as_str().context("no kubeconfig")?;
        Ok(PathBuf::from(path))
    }

    /// Waits until the service is ready; returns after how many milliseconds it was.
    pub(crate) fn wait_until_ready(&mut self) -> Result<u128> {
        while self.ready()?.is_none() {
            if self.started_at.elapsed() > START_LIMIT {
                bail!("the service is not ready in time");
            }
            thread::sleep(PAUSE);
        }
        Ok(self.started_at.elapsed().as_millis())
    }

    /// Waits until the service has written a text to stderr.
    pub(crate) fn wait_until_logged(&mut self, text: &str) -> Result<()> {
        while !fs::read_to_string(self.data.with_extension("stderr"))?.contains(text) {
            if self.started_at.elapsed() > START_LIMIT {
                bail!("the service has not logged `{text}` in time");
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Runs a command against the service; returns its stdout.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .arg("--data-dir")
            .arg(&self.data)
            .output()?;
        if !output.status.success() {
            bail!(
                "`longshore {}` ended with {}: {}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Kills it as hard as can be.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM to the service, and waits for its clean end; returns its process id.
    pub(crate) fn stop(mut self) -> Result<u32> {
        let pid = self.child.id();
        let told = Command::new("kill")
            .args(["-TERM", &pid.to_string()])
            .status()?;
        if !told.success() {
            bail!("the service cannot be told to stop");
        }
        let asked_at = now();
        while asked_at.elapsed() < STOP_LIMIT {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("the service stopped with {status}");
                }
                return Ok(pid);
            }
            thread::sleep(PAUSE);
        }
        bail!("the service does not stop in time")
    }

    /// The pods that are left, once there are none or the time is over.
    pub(super) fn pods_left(&mut self, limit: Duration) -> Result<usize> {
        let ready = self.ready()?.context("the service is not ready")?;
        let server = ready["kubernetes"].as_str().context("no kubernetes")?;
        let kubeconfig =
            fs::read_to_string(ready["kubeconfig"].as_str().context("no kubeconfig")?)?;
        let kubeconfig: Value = serde_json::from_str(&kubeconfig)?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str();
        let token = token.context("no token")?;
        let asked_at = now();
        loop {
            let output = Command::new("curl")
                .args(["--silent", "--show-error", "--fail", "--cacert"])
                .arg(self.data.join("ca.crt"))
                .args(["--header", &format!("Authorization: Bearer {token}")])
                .arg(format!("{server}/api/v1/pods"))
                .output()
                .context("curl cannot be run")?;
            if !output.status.success() {
                bail!(
                    "pods cannot be listed: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            let pods: Value = serde_json::from_slice(&output.stdout)?;
            let n_pods = pods["items"].as_array().context("no items")?.len();
            if n_pods == 0 || asked_at.elapsed() > limit {
                return Ok(n_pods);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Processes of its pods that live.
    pub(super) fn processes_left(&self, when: &str) -> Vec<String> {
        processes_of(&self.data, self.child.id(), when)
    }

    /// Its resident memory.
    pub(crate) fn rss_kib(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Processes with a data directory on their command line, but for the service itself: shims, and what they forked.
pub(super) fn processes_of(data: &Path, service: u32, when: &str) -> Vec<String> {
    command_lines(data)
        .filter(|(pid, _)| *pid != service)
        .map(|(pid, line)| format!("{when} a process is left: {pid} {line}"))
        .collect()
}

/// Ends what is left of a service that has ended: a shim ends its containers upon SIGTERM, and is killed when it does
/// not.
pub(super) fn end_processes_of(data: &Path) {
    let asked_at = now();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let told = processes_below(data);
        for pid in told.into_iter().filter_map(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
        while !processes_below(data).is_empty() && asked_at.elapsed() < STOP_LIMIT {
            thread::sleep(PAUSE);
        }
    }
}

/// Those with the directory on their command line, and the keeper of networks, whose log alone is there.
fn processes_below(data: &Path) -> Vec<u32> {
    let of_pods = command_lines(data).map(|(pid, _)| pid);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let keepers = processes.filter_map(|entry| {
        let log = fs::read_link(entry.path().join("fd/2")).ok()?;
        let is_keeper = log.starts_with(data) && log.ends_with("network/keeper.log");
        is_keeper.then(|| entry.file_name().to_str()?.parse().ok())?
    });
    of_pods.chain(keepers).collect()
}

/// The processes with a data directory on their command line.
fn command_lines(data: &Path) -> impl Iterator<Item = (u32, String)> {
    let data = data.display().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&data).then_some((pid, line))
    })
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_with_the_directory_on_their_command_line_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let mut other = Command::new("tail")
            .args(["-f", "/dev/null"])
            .spawn()
            .unwrap();
        let mut left = Command::new("tail").arg("-f").arg(&file).spawn().unwrap();
        while command_lines(folder.path()).next().is_none() {
            thread::sleep(PAUSE);
        }
        end_processes_of(folder.path());
        assert!(left.wait().unwrap().code().is_none(), "a signal ended it");
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
