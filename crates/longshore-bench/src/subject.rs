//! The controller under test: a process of its own, so that its memory and its CPU time are its own.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::rig::Rig;

/// `USER_HZ`: the unit of times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The running controller. Dropping it kills it.
pub(crate) struct Subject {
    child: Child,
    id: u32,
    metrics: String,
}

impl Subject {
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
            id: child.id().context("it has ended")?,
            metrics: format!("{metrics}/metrics"),
            child,
        })
    }

    /// Requests that it made so far, by verb and resource.
    pub(crate) async fn requests(&self) -> Result<BTreeMap<String, u64>> {
        let text = reqwest::get(&self.metrics).await?.text().await?;
        Ok(requests_in(&text))
    }

    /// CPU time that it took so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id))?;
        // After the name, which may hold anything: state is field 3, utime 14, stime 15.
        let (_, fields) = stat.rsplit_once(')').context("no stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        match (ticks(11), ticks(12)) {
            (Some(user), Some(system)) => {
                Ok(Duration::from_secs_f64((user + system) / TICKS_PER_SECOND))
            }
            _ => bail!("/proc/{}/stat has no times", self.id),
        }
    }

    /// The most memory that it had, in MiB.
    pub(crate) fn peak_mib(&self) -> Result<f64> {
        self.memory("VmHWM:")
    }

    /// The memory that it has, in MiB.
    pub(crate) fn rss_mib(&self) -> Result<f64> {
        self.memory("VmRSS:")
    }

    fn memory(&self, which: &'static str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let line = status.lines().find(|line| line.starts_with(which));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(kib.context(which)? / 1024.0)
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child.kill().await?;
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

/// `create pods` → 7, out of `longshore_api_requests_total{client="tasks",verb="create",resource="pods",code="201"} 7`.
fn requests_in(text: &str) -> BTreeMap<String, u64> {
    let mut requests = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("longshore_api_requests_total{") else {
            continue;
        };
        let label = |name: &str| {
            let (_, value) = rest.split_once(&format!("{name}=\""))?;
            value.split('"').next()
        };
        let n = rest.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
        if let (Some(verb), Some(resource), Some(n)) = (label("verb"), label("resource"), n) {
            *requests.entry(format!("{verb} {resource}")).or_default() += n;
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let text = concat!(
            "# TYPE longshore_api_requests counter\n",
            "longshore_api_requests_total{client=\"tasks\",verb=\"create\",resource=\"pods\",code=\"201\"} 7\n",
            "longshore_api_requests_total{client=\"tasks\",verb=\"create\",resource=\"pods\",code=\"409\"} 1\n",
            "longshore_api_requests_total{client=\"tasks\",verb=\"watch\",resource=\"pods\",code=\"200\"} 1\n",
            "other_total{verb=\"create\",resource=\"pods\"} 3\n# EOF\n",
        );
        let found: Vec<(String, u64)> = requests_in(text).into_iter().collect();
        assert_eq!(
            found,
            [("create pods".to_owned(), 8), ("watch pods".to_owned(), 1)]
        );
    }
}
