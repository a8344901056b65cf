//! The controller under test: a process of its own, so that its memory and its CPU time are its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::Client;
use longshore_core::ProcessStat;
use longshore_kit::Metrics;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{
    Common,
    requests::{Counts, asked_by_us, asked_of_server},
    rig::Rig,
};

/// `USER_HZ`: the unit of times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The running controller. Dropping it kills it, if it is ours.
pub(crate) struct Subject {
    child: Option<Child>,
    /// `None` where it is not known.
    id: Option<u32>,
    counted: Counted,
}

/// Where the requests of the controller are counted.
enum Counted {
    /// The controller counts them, and serves them at this URL.
    ByItself(String),
    /// The API server counts the requests of all clients; `ours` are those of this process.
    ByServer { client: Client, ours: Metrics },
}

impl Subject {
    /// The controller that the command line means: one of ours with this role, or the one that is there.
    pub(crate) async fn of(common: &Common, role: &str, rig: &Rig, more: &[&str]) -> Result<Self> {
        if !common.external {
            return Self::start(common.longshore.as_deref(), role, rig, more).await;
        }
        Ok(Self {
            child: None,
            id: common.pid,
            counted: Counted::ByServer {
                client: rig.client.clone(),
                ours: rig.requests.clone(),
            },
        })
    }

    /// Starts one role on the rig's API server, and waits until it is ready.
    pub(crate) async fn start(
        longshore: Option<&Path>,
        role: &str,
        rig: &Rig,
        more: &[&str],
    ) -> Result<Self> {
        let program = match longshore {
            Some(path) => path.to_owned(),
            None => beside_us()?,
        };
        let mut child = Command::new(&program)
            .args(["controller", "--enable", role, "-o", "json"])
            .args(["--lease-duration", "0", "--metrics-address", "127.0.0.1:0"])
            .args(["--address", "127.0.0.1:0", "--namespace", &rig.namespace])
            .arg("--kubeconfig")
            .arg(&rig.kubeconfig)
            .arg("--data-dir")
            .arg(data_dir(rig))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be run", program.display()))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        let ready: Value = serde_json::from_str(&line)
            .with_context(|| format!("expected a Ready object, found {line:?}"))?;
        let metrics = ready["metrics"].as_str().context("no address of metrics")?;
        Ok(Self {
            id: Some(child.id().context("it has ended")?),
            counted: Counted::ByItself(format!("{metrics}/metrics")),
            child: Some(child),
        })
    }

    /// Requests that the controller made so far, by verb and resource; `None` where they are not counted.
    pub(crate) async fn requests(&self) -> Result<Option<Counts>> {
        match &self.counted {
            Counted::ByItself(url) => {
                let text = reqwest::get(url).await?.text().await?;
                Ok(Some(asked_by_us(&text)))
            }
            Counted::ByServer { client, ours } => {
                let request = http::Request::get("/metrics").body(Vec::new())?;
                let mut counts = match client.request_text(request).await {
                    Ok(text) => asked_of_server(&text),
                    // An embedded one of another process.
                    Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
                    Err(error) => return Err(error.into()),
                };
                for (what, n) in asked_by_us(&ours.text()) {
                    if let Some(all) = counts.get_mut(&what) {
                        *all = all.saturating_sub(n);
                    }
                }
                Ok(Some(counts))
            }
        }
    }

    /// CPU time that it took so far; `None` where its process is not known.
    pub(crate) fn cpu(&self) -> Result<Option<Duration>> {
        let Some(id) = self.id else {
            return Ok(None);
        };
        let stat = fs::read(format!("/proc/{id}/stat"))?;
        let stat = ProcessStat::parse(&stat).context("no stat")?;
        // utime and stime
        match (stat.number::<f64>(14), stat.number::<f64>(15)) {
            (Some(user), Some(system)) => {
                let seconds = (user + system) / TICKS_PER_SECOND;
                Ok(Some(Duration::from_secs_f64(seconds)))
            }
            _ => bail!("/proc/{id}/stat has no times"),
        }
    }

    /// The most memory that it had, in MiB; `None` where its process is not known.
    pub(crate) fn peak_mib(&self) -> Result<Option<f64>> {
        self.memory("VmHWM:")
    }

    /// The memory that it has, in MiB; `None` where its process is not known.
    pub(crate) fn rss_mib(&self) -> Result<Option<f64>> {
        self.memory("VmRSS:")
    }

    fn memory(&self, which: &'static str) -> Result<Option<f64>> {
        let Some(id) = self.id else {
            return Ok(None);
        };
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find(|line| line.starts_with(which));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(Some(kib.context(which)? / 1024.0))
    }

    /// Ends it, if it is ours.
    pub(crate) async fn stop(self) -> Result<()> {
        if let Some(mut child) = self.child {
            child.kill().await?;
        }
        Ok(())
    }
}

/// Where the controller keeps what it keeps.
pub(crate) fn data_dir(rig: &Rig) -> PathBuf {
    rig.folder.path().join("controller")
}

/// `longshore` in the directory of this program.
fn beside_us() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("longshore");
    if !path.is_file() {
        bail!(
            "expected the program under test at {}: build it with the same profile, or name it with --longshore",
            path.display()
        );
    }
    Ok(path)
}
