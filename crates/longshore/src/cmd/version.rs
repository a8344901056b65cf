//! `longshore version`.

use clap::Args;
use serde::Serialize;

use crate::{
    cli::{Format, Globals, help_end},
    error::CliError,
    exit::Exit,
    output,
};

/// Print the version
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore version -o json"))]
pub(crate) struct VersionArgs {}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    kubernetes: &'static str,
    os: &'static str,
    arch: &'static str,
}

const VERSION: Version = Version {
    version: env!("CARGO_PKG_VERSION"),
    kubernetes: env!("K8S_OPENAPI_ENABLED_VERSION"),
    os: std::env::consts::OS,
    arch: std::env::consts::ARCH,
};

/// Prints the version.
pub(crate) fn print(globals: &Globals) -> Result<Exit, CliError> {
    match globals.output {
        Format::Json => output::json(&VERSION),
        Format::Yaml => output::yaml(&VERSION),
        Format::Name => output::line(VERSION.version),
        Format::Table | Format::Wide => output::line(&format!(
            "longshore {} (Kubernetes API {}, {} {})",
            VERSION.version, VERSION.kubernetes, VERSION.os, VERSION.arch
        )),
    }
    Ok(Exit::Success)
}
