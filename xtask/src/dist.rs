//! `cargo xtask dist`: builds `longshore` with the profile `dist`, for users to download, and measures it beside the
//! build of the profile `release`: the size of the file, and the resident memory of a controller and of a standalone
//! that have nothing to do.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::campaign::{self, service::Service};

/// The profiles of `Cargo.toml` that are compared.
const PROFILES: [&str; 2] = ["release", "dist"];
/// The figure of a process is the median over so many starts.
const STARTS: usize = 3;
/// What the controller logs once a role of its default roles leads.
const LEADS: [&str; 2] = ["dags: runs here", "tasks: runs here"];

/// What `dist` can be told.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// A program and its figures.
struct Build {
    profile: &'static str,
    program: PathBuf,
    size_bytes: u64,
    controller_kib: u64,
    standalone_kib: u64,
}

/// Builds and measures.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut builds = Vec::new();
    for profile in PROFILES {
        eprintln!("building longshore with the profile {profile}");
        let program = campaign::built(profile, "longshore", &[])?;
        builds.push(measured(profile, program)?);
    }
    match options.output {
        Output::Table => table(&builds),
        Output::Json => println!("{:#}", as_json(&builds)),
    }
    Ok(ExitCode::SUCCESS)
}

fn measured(profile: &'static str, program: PathBuf) -> Result<Build> {
    let mut standalone_kib = Vec::new();
    let mut controller_kib = Vec::new();
    for _ in 0..STARTS {
        let folder = tempfile::tempdir()?;
        standalone_kib.push(standalone_memory(&program, folder.path())?);
        controller_kib.push(controller_memory(&program, folder.path())?);
    }
    Ok(Build {
        profile,
        size_bytes: fs::metadata(&program)?.len(),
        controller_kib: median(controller_kib),
        standalone_kib: median(standalone_kib),
        program,
    })
}

fn standalone_memory(program: &Path, folder: &Path) -> Result<u64> {
    let mut standalone = Service::standalone(program, &folder.join("alone"), &[])?;
    standalone.wait_until_ready()?;
    let memory = standalone.rss_kib().context("the standalone is gone")?;
    standalone.stop()?;
    Ok(memory)
}

/// The API server of the controller is another `standalone`.
fn controller_memory(program: &Path, folder: &Path) -> Result<u64> {
    let mut server = Service::standalone(program, &folder.join("server"), &[])?;
    server.wait_until_ready()?;
    let mut controller = Service::controller(program, &folder.join("controller"), &mut server)?;
    controller.wait_until_ready()?;
    for text in LEADS {
        controller.wait_until_logged(text)?;
    }
    let memory = controller.rss_kib().context("the controller is gone")?;
    controller.stop()?;
    server.stop()?;
    Ok(memory)
}

fn median(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes of programs and processes are far below 2^53"
)]
fn table(builds: &[Build]) {
    println!("profile       size  empty controller  empty standalone");
    for build in builds {
        println!(
            "{:<8}  {:>5.1} MB  {:>12.1} MiB  {:>12.1} MiB",
            build.profile,
            build.size_bytes as f64 / 1e6,
            build.controller_kib as f64 / 1024.0,
            build.standalone_kib as f64 / 1024.0,
        );
    }
}

fn as_json(builds: &[Build]) -> serde_json::Value {
    let build = |build: &Build| {
        json!({
            "profile": build.profile,
            "program": build.program,
            "sizeBytes": build.size_bytes,
            "controllerRssKib": build.controller_kib,
            "standaloneRssKib": build.standalone_kib,
        })
    };
    json!({ "kind": "Dist", "builds": builds.iter().map(build).collect::<Vec<_>>() })
}
