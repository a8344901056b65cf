//! The suite as a program: each item is a process, so that each has a limit of time, and none takes others with it.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{items, outcomes::Outcome};
use crate::guarded::{self, Guarded};

/// How much longer than its limit an item may take: the suite then removes what the item made.
const GRACE: Duration = Duration::from_secs(90);
/// Between two looks at the running items.
const PAUSE: Duration = Duration::from_millis(100);
/// Last lines of a log that say why an item has no outcome.
const LAST_LINES: usize = 5;

/// The suite, and the cluster that it tests.
pub(super) struct Suite {
    pub(super) program: PathBuf,
    pub(super) kubectl: PathBuf,
    pub(super) kubeconfig: PathBuf,
    /// A directory for what items print.
    pub(super) logs: PathBuf,
    /// The limit of each item.
    pub(super) limit: Duration,
}

/// The names of all conformance items of the groups.
pub(super) fn all_items(program: &Path) -> Result<Vec<String>> {
    let output = Command::new(program)
        .arg("-list-items")
        .output()
        .context("the suite cannot be run")?;
    if !output.status.success() {
        bail!(
            "the suite does not list its items: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let names = String::from_utf8(output.stdout)?;
    let names = names.lines().map(serde_json::from_str::<String>);
    let names: Vec<String> = names
        .collect::<Result<_, _>>()
        .context("the list of items")?;
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|item| items::group(item).is_some())
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// An item that runs.
struct Running {
    item: String,
    tries: u64,
    process: Guarded,
    files: Files,
    started_at: Instant,
}

/// Where a process leaves what it has to say.
struct Files {
    log: PathBuf,
    outcome: PathBuf,
}

impl Suite {
    /// Runs items, so many at a time, and reports each that has ended. `tries` counts the earlier times, too.
    pub(super) fn run(
        &self,
        items: &[String],
        n_parallel: usize,
        tries: u64,
        mut ended: impl FnMut(&str, Outcome) -> Result<()>,
    ) -> Result<()> {
        let mut waiting: VecDeque<&String> = items.iter().collect();
        let mut running: Vec<Running> = Vec::new();
        while !(waiting.is_empty() && running.is_empty()) {
            while running.len() < n_parallel
                && let Some(item) = waiting.pop_front()
            {
                running.push(self.start(item, tries)?);
            }
            let mut at = 0;
            while at < running.len() {
                match self.look(&mut running[at])? {
                    Some(outcome) => {
                        let item = running.swap_remove(at).item;
                        ended(&item, outcome)?;
                    }
                    None => at += 1,
                }
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Called by the main thread only: the kernel ends the process with the thread that started it.
    fn start(&self, item: &str, tries: u64) -> Result<Running> {
        let files = self.files(item)?;
        let log = File::create(&files.log)?;
        let limit = self.limit.as_secs();
        let child = guarded::command(&self.program)?
            .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1"])
            .arg(format!("--ginkgo.focus={}", items::focus(item)))
            .arg(format!("--ginkgo.timeout={limit}s"))
            .arg("--ginkgo.no-color")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--kubectl-path")
            .arg(&self.kubectl)
            .arg("--e2e-output-dir")
            .arg(&self.logs)
            .arg("--outcome")
            .arg(&files.outcome)
            .current_dir(&self.logs)
            .env("HOME", &self.logs)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("the suite cannot be run")?;
        Ok(Running {
            item: item.to_owned(),
            tries,
            process: Guarded::new("an item of the suite", child),
            files,
            started_at: now(),
        })
    }

    /// Empty files whose names are the name of the item, as far as a file may have it.
    fn files(&self, item: &str) -> Result<Files> {
        let name: String = item
            .chars()
            .map(|it| if it.is_ascii_alphanumeric() { it } else { '-' })
            .take(200)
            .collect();
        let files = Files {
            log: self.logs.join(format!("{name}.log")),
            outcome: self.logs.join(format!("{name}.json")),
        };
        fs::write(&files.outcome, "")?;
        Ok(files)
    }

    /// How an item ended, if it did. One that goes on for too long is killed.
    fn look(&self, running: &mut Running) -> Result<Option<Outcome>> {
        if running.process.ended()?.is_some() {
            return outcome(&running.item, running.tries, &running.files).map(Some);
        }
        let is_late = running.started_at.elapsed() > self.limit + GRACE;
        Ok(is_late.then(|| {
            let reason = format!("it did not end within {} s", self.limit.as_secs());
            Outcome::new("timedout", &reason, running.tries)
        }))
    }
}

/// What a process that has ended said of its item.
fn outcome(item: &str, tries: u64, files: &Files) -> Result<Outcome> {
    let said = fs::read_to_string(&files.outcome)?;
    let mut said = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |said: &Value, name: &str| said[name].as_str().unwrap_or_default().to_owned();
    if let Some(said) = said.rfind(|said| said["item"] == item) {
        return Ok(Outcome::new(
            &text(&said, "state"),
            &text(&said, "reason"),
            tries,
        ));
    }
    let log = fs::read(&files.log)?;
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    let reason = format!("the suite did not run it: {}", last.join(" | "));
    Ok(Outcome::new("lost", &reason, tries))
}

#[expect(clippy::disallowed_methods, reason = "a limit of time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(outcome_file: &str, log: &str) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            log: folder.path().join("log"),
            outcome: folder.path().join("outcome"),
        };
        fs::write(&files.outcome, outcome_file).unwrap();
        fs::write(&files.log, log).unwrap();
        outcome("a b", 1, &files).unwrap()
    }

    #[test]
    fn an_item_ends_as_the_suite_says() {
        let passed = r#"{"item":"a b","state":"passed","reason":"","seconds":1.5}"#;
        assert!(said(passed, "").passed());
        let failed = r#"{"item":"a b","state":"failed","reason":"no\npod","seconds":1.5}"#;
        assert_eq!(said(failed, ""), Outcome::new("failed", "no pod", 1));
        let another = r#"{"item":"a b c","state":"passed","reason":"","seconds":1.5}"#;
        let lost = said(another, "one\n\ntwo\n");
        assert_eq!(
            (lost.state.as_str(), lost.reason.as_str()),
            ("lost", "the suite did not run it: one | two")
        );
    }
}
