//! `cargo xtask real-cluster`: a real Kubernetes control plane on loopback for as long as a command runs.
//!
//! etcd and kube-apiserver, with `--kcm` also kube-controller-manager and kube-scheduler, in a
//! temporary directory, on free ports. RBAC is on, and each component is its own user with only the
//! rights that Kubernetes grants it. All components end with this process, however that ends.

mod arguments;
mod certificates;
mod control_plane;
mod ready;
mod signals;

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
};

use anyhow::Result;

use control_plane::ControlPlane;
use signals::{Signals, Told};

use crate::{
    guarded::{self, Guarded},
    kube_build::{self, Program},
};

/// Names the cluster to tests. Never `KUBECONFIG`: a test must not touch a developer's cluster.
const KUBECONFIG_VARIABLE: &str = "LONGSHORE_TEST_KUBECONFIG";

/// What errors call the command that runs against the cluster.
const COMMAND: &str = "the command";

/// Which components are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Components {
    /// etcd and the API server.
    ApiServer,
    /// And the controller manager and the scheduler.
    All,
}

impl Components {
    fn programs(self) -> &'static [Program] {
        const ALL: [Program; 4] = [
            Program::Etcd,
            Program::Apiserver,
            Program::ControllerManager,
            Program::Scheduler,
        ];
        match self {
            Components::ApiServer => &ALL[..2],
            Components::All => &ALL,
        }
    }
}

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error(transparent)]
    Build(#[from] crate::kube_build::BuildError),
    #[error("expected to prepare {what}")]
    Prepare {
        what: &'static str,
        source: io::Error,
    },
    #[error("expected to make a certificate")]
    Certificate(#[source] rcgen::Error),
    #[error("expected to start {program}")]
    Start {
        program: &'static str,
        source: io::Error,
    },
    #[error("expected {program} to run, it ended with {status}; its last words:\n{log}")]
    Ended {
        program: &'static str,
        status: ExitStatus,
        log: String,
    },
    #[error(
        "expected {program} to be ready within {seconds} s, it is not ({found}); its last words:\n{log}"
    )]
    NotReady {
        program: &'static str,
        seconds: u64,
        found: String,
        log: String,
    },
    #[error("expected to wait for signals")]
    Signals(#[source] nix::errno::Errno),
    #[error("interrupted")]
    Interrupted,
}

/// Runs the command against a cluster of its own and returns its exit code. Without a command it
/// prints where the kubeconfig is, and stays until interrupted.
pub(crate) fn run(components: Components, command: &[OsString]) -> Result<ExitCode> {
    let programs = kube_build::programs(components.programs()).map_err(ClusterError::from)?;
    // Only now: a build is interrupted like any other program.
    let signals = Signals::take()?;
    let mut cluster = match ControlPlane::start(components, &programs, &signals) {
        Err(ClusterError::Interrupted) => return Ok(interrupted()),
        other => other?,
    };
    let mut command = match command.split_first() {
        Some((program, arguments)) => Some(start(&cluster, program, arguments)?),
        None => {
            println!("{}", cluster.kubeconfig().display());
            eprintln!("ready; Ctrl-C ends it");
            None
        }
    };
    Ok(supervise(&mut cluster, command.as_mut(), &signals)?)
}

fn start(
    cluster: &ControlPlane,
    program: &OsString,
    arguments: &[OsString],
) -> Result<Guarded, ClusterError> {
    let start = || {
        guarded::command(program)?
            .args(arguments)
            .env(KUBECONFIG_VARIABLE, cluster.kubeconfig())
            .env_remove("KUBECONFIG")
            .spawn()
    };
    let child = start().map_err(|source| ClusterError::Start {
        program: COMMAND,
        source,
    })?;
    Ok(Guarded::new(COMMAND, child))
}

/// Waits until the command has ended, or until a signal stops this process; a component that ends is an error.
fn supervise(
    cluster: &mut ControlPlane,
    mut command: Option<&mut Guarded>,
    signals: &Signals,
) -> Result<ExitCode, ClusterError> {
    loop {
        if let Some(command) = &mut command {
            let ended = command.ended().map_err(|source| ClusterError::Prepare {
                what: "to hear how the command ended",
                source,
            })?;
            if let Some(status) = ended {
                return Ok(exit_code(status));
            }
        }
        cluster.check()?;
        if signals.wait(None)?.is_some_and(Told::ends_us) {
            return Ok(interrupted());
        }
    }
}

/// What a shell would say of it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

/// Ended by Ctrl-C or its like.
fn interrupted() -> ExitCode {
    ExitCode::from(130)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_command() {
        let code = |raw| format!("{:?}", exit_code(ExitStatus::from_raw(raw)));
        assert_eq!(code(0), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(code(101 << 8), format!("{:?}", ExitCode::from(101)));
        assert_eq!(code(9), format!("{:?}", ExitCode::from(137)));
    }
}
