//! Tries an isolation profile for real: the same clone and the same file system, without a program.

use std::{
    ffi::OsStr,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use nix::sys::{
    signal::SigSet,
    wait::{WaitStatus, waitpid},
};

use super::{
    container::{InitReport, OwnIds, launch},
    protocol::{ContainerSpec, Interaction, RootSpec, Sandbox, TerminationSpec, UserSpec},
};

/// The first argument of a probe.
pub(crate) const ARG_PROBE: &str = "probe";

/// Runs `true` the way a container of the profile would run; the reason of a failure goes to standard error.
pub(super) fn run(profile: &str, scratch: &str) -> ExitCode {
    match attempt(profile, Path::new(scratch)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            drop(writeln!(io::stderr(), "{e}"));
            ExitCode::FAILURE
        }
    }
}

fn attempt(profile: &str, scratch: &Path) -> io::Result<()> {
    let root = RootSpec {
        base: "/".into(),
        hostname: "probe".into(),
        read_only: false,
        hide: Vec::new(),
        mounts: Vec::new(),
    };
    let spec = ContainerSpec {
        argv: vec!["true".into()],
        env: Vec::new(),
        workdir: "/".into(),
        log: OsStr::new("/dev/null").into(),
        sandbox: if profile == "full" {
            Sandbox::Full(root)
        } else {
            Sandbox::User(root)
        },
        user: UserSpec::default(),
        termination: TerminationSpec {
            path: "/dev/termination-log".into(),
            fallback_to_logs: false,
        },
        memory: None,
        processes: None,
        interaction: Interaction::default(),
    };
    SigSet::all().thread_block()?;
    let mut launched = launch(&spec, scratch, OwnIds::current())?;
    let status = waitpid(launched.init, None)?;
    for report in launched.reports.read() {
        if let InitReport::Failed(failure) = report {
            return Err(io::Error::other(failure.message));
        }
    }
    if matches!(status, WaitStatus::Exited(_, 0)) {
        return Ok(());
    }
    Err(io::Error::other(format!("the trial ended with {status:?}")))
}
