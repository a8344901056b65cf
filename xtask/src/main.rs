//! House chores: `cargo xtask tidy` checks the house rules that no compiler checks, `cargo xtask campaign` runs the
//! long measurements.
#![expect(clippy::print_stdout, reason = "chores talk to whoever runs them")]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod campaign;
mod repository;
mod tidy;

/// House chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check the house rules that no compiler checks
    Tidy,
    /// Run a long measurement; its dated results go to conformance/
    Campaign {
        /// Which one; without it they are listed
        name: Option<String>,
        #[command(flatten)]
        options: campaign::Options,
    },
}

fn main() -> Result<ExitCode> {
    match Cli::parse().chore {
        Chore::Tidy => tidy::run(),
        Chore::Campaign {
            name: Some(name),
            options,
        } => campaign::run(&name, &options),
        Chore::Campaign { name: None, .. } => {
            campaign::list();
            Ok(ExitCode::SUCCESS)
        }
    }
}
