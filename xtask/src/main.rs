//! House chores: `cargo xtask tidy` checks the house rules that no compiler checks, `cargo xtask campaign` runs the
//! long measurements, `cargo xtask real-cluster` runs a command against a real Kubernetes control plane.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "chores print for the developer"
)]

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use kube_build::Program;
use real_cluster::Components;

mod airflow;
mod benches;
mod campaign;
mod cargo_deny;
mod dist;
mod flyte_sdk;
mod foreign_clients;
mod guarded;
mod kube_build;
mod python;
mod real_cluster;
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
    /// Measure the subsystems against their floors; the dated figures go to conformance/benches/
    Benches(benches::Options),
    /// Build the program as it is distributed, and compare its size and memory with those of the release build
    Dist(dist::Options),
    /// Run a command against a real Kubernetes control plane on loopback, which its LONGSHORE_TEST_KUBECONFIG names;
    /// without a command print the kubeconfig's path and stay
    RealCluster {
        /// Start kube-controller-manager and kube-scheduler too
        #[arg(long)]
        kcm: bool,
        /// The command and its arguments
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Build kubectl, if it was not yet, and print its path
    Kubectl,
    /// Install the Flyte SDK for Python, if it was not yet, and print the path of its virtual environment
    FlyteSdk,
    /// Install Airflow, if it was not yet, and print the path of its virtual environment
    Airflow,
    /// Get Helm and the clients for Go, Python and Java, if they are not there, and print the path of their directory
    Clients,
    /// Build and get what the tests need of others, in the order in which `.ci/run` needs it
    Prefetch,
    /// Install cargo-deny, if it was not yet, and print its path
    CargoDeny,
    /// Become a program that is killed when its parent dies
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        parent: i32,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
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
        Chore::Benches(options) => benches::run(&options),
        Chore::Dist(options) => dist::run(&options),
        Chore::RealCluster { kcm, command } => {
            let components = if kcm {
                Components::All
            } else {
                Components::ApiServer
            };
            real_cluster::run(components, &command)
        }
        Chore::Kubectl => {
            let kubectl = Program::Kubectl;
            println!(
                "{}",
                kube_build::programs(&[kubectl])?.path(kubectl).display()
            );
            Ok(ExitCode::SUCCESS)
        }
        Chore::FlyteSdk => {
            println!("{}", flyte_sdk::environment()?.display());
            Ok(ExitCode::SUCCESS)
        }
        Chore::Airflow => {
            println!("{}", airflow::environment()?.display());
            Ok(ExitCode::SUCCESS)
        }
        Chore::Clients => {
            println!("{}", foreign_clients::folder()?.display());
            Ok(ExitCode::SUCCESS)
        }
        Chore::Prefetch => {
            kube_build::programs(&[
                Program::Kubectl,
                Program::Etcd,
                Program::Apiserver,
                Program::ControllerManager,
                Program::Scheduler,
            ])?;
            flyte_sdk::environment()?;
            airflow::environment()?;
            foreign_clients::folder()?;
            Ok(ExitCode::SUCCESS)
        }
        Chore::CargoDeny => {
            println!("{}", cargo_deny::program()?.display());
            Ok(ExitCode::SUCCESS)
        }
        Chore::Guard { parent, command } => match guarded::become_guarded(parent, &command)? {},
    }
}
