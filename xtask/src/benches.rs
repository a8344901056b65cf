//! `cargo xtask benches`: measures every subsystem against its floor as it was measured before, and keeps the figures in
//! `conformance/benches/`, in a dated file for each server and subsystem.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{campaign, repository};

/// What is measured: a subsystem with so many objects.
const MEASURED: [(&str, u32); 6] = [
    ("tasks", 10),
    ("tasks", 100),
    ("tasks", 500),
    ("tasks", 2_000),
    ("dags", 1_000),
    ("podops", 300),
];

/// The options of benches.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// On this API server instead of an embedded one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Of this subsystem only: tasks, dags, podops
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// How often each is measured; what is kept are the medians, the least and the most
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: u32,
    /// This longshore-bench, with a longshore beside it, instead of those that are built
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// Measures the chosen subsystems, and writes the figures to `conformance/benches`.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let is_chosen = |subsystem: &str| {
        let only = options.only.as_deref();
        only.is_none_or(|only| only == subsystem)
    };
    let chosen: Vec<_> = MEASURED
        .into_iter()
        .filter(|(subsystem, _)| is_chosen(subsystem))
        .collect();
    if chosen.is_empty() {
        bail!(
            "expected a subsystem that is measured, found {:?}",
            options.only
        );
    }
    let bench = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => campaign::built("release", "longshore-bench", &["longshore"])?,
    };
    for (subsystem, n) in chosen {
        let mut command = Command::new(&bench);
        command
            .args([subsystem, "--n", &n.to_string()])
            .args(["--runs", &options.runs.to_string(), "--out"])
            .arg(repository::root().join("conformance/benches"));
        if let Some(kubeconfig) = &options.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        let status = command.status().context("longshore-bench cannot be run")?;
        if !status.success() {
            bail!("{subsystem} with {n} objects was not measured: {status}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
