//! The last steps before the user's program: streams, identity, directory, exec.

use std::{
    convert::Infallible,
    ffi::CString,
    fs,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::{
        prctl::set_no_new_privs,
        signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask},
    },
    unistd::{
        Gid, Uid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, fchown, setgroups,
        setresgid, setresuid, setsid,
    },
};

use super::{
    capabilities,
    container::{ChildPipes, Failure},
    protocol::{ContainerSpec, Sandbox, UserSpec},
    terminal,
};

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Becomes the program. Returns only when that failed.
pub(super) fn exec(spec: &ContainerSpec, pipes: &ChildPipes) -> Failure {
    match attempt(spec, pipes) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn attempt(spec: &ContainerSpec, pipes: &ChildPipes) -> Result<Infallible, Failure> {
    let failed =
        |what: &str, e: &dyn std::fmt::Display| Failure::before_exec(format!("cannot {what}: {e}"));
    setsid().map_err(|e| failed("make a session", &e))?;
    // Without an input, that of the init is kept: `/dev/null`.
    if let Some(stdin) = &pipes.stdin {
        dup2_stdin(stdin).map_err(|e| failed("set standard input", &e))?;
    }
    if pipes.is_terminal {
        terminal::take_control().map_err(|e| failed("take the terminal", &e))?;
    }
    dup2_stdout(&pipes.stdout).map_err(|e| failed("set standard output", &e))?;
    dup2_stderr(&pipes.stderr).map_err(|e| failed("set standard error", &e))?;

    let workdir = Path::new(&spec.workdir);
    if !workdir.exists() {
        // As container runtimes do; if it cannot be made, the `chdir` below returns the reason.
        drop(fs::create_dir_all(workdir));
    }
    if let Some(kept) = spec.user.capabilities {
        capabilities::limit(kept).map_err(|e| failed("give up capabilities", &e))?;
    }
    if !matches!(spec.sandbox, Sandbox::User(_)) {
        assume(&spec.user, pipes).map_err(|e| failed("change the user", &e))?;
    }
    chdir(workdir)
        .map_err(|e| failed(&format!("enter the working directory {}", spec.workdir), &e))?;
    if let Some(kept) = spec.user.capabilities {
        capabilities::lower(kept).map_err(|e| failed("give up capabilities", &e))?;
    }
    if spec.user.no_new_privileges {
        set_no_new_privs().map_err(|e| failed("give up new privileges", &e))?;
    }
    reset_signals().map_err(|e| failed("reset signals", &e))?;
    run(spec)
}

/// Changes groups before the user: afterwards it would be refused.
fn assume(user: &UserSpec, pipes: &ChildPipes) -> Result<(), Errno> {
    if user.uid.is_none() && user.gid.is_none() && user.groups.is_empty() {
        return Ok(());
    }
    let gid = user.gid.or(user.uid.map(|_| 0)).map(Gid::from_raw);
    let uid = user.uid.map(Uid::from_raw);
    // Else the program could write to its streams but not open /dev/stdout.
    if let Some(stdin) = &pipes.stdin {
        fchown(stdin, uid, gid)?;
    }
    fchown(&pipes.stdout, uid, gid)?;
    fchown(&pipes.stderr, uid, gid)?;
    let groups: Vec<Gid> = user
        .groups
        .iter()
        .copied()
        .map(Gid::from_raw)
        .chain(gid)
        .collect();
    setgroups(&groups)?;
    if let Some(gid) = gid {
        setresgid(gid, gid, gid)?;
    }
    if let Some(uid) = uid {
        setresuid(uid, uid, uid)?;
    }
    Ok(())
}

/// The shim blocks every signal and Rust ignores SIGPIPE; a program expects neither.
pub(super) fn reset_signals() -> Result<(), Errno> {
    #[expect(
        unsafe_code,
        reason = "signal dispositions are set through an unsafe call"
    )]
    // SAFETY: the default disposition installs no handler.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

fn run(spec: &ContainerSpec) -> Result<Infallible, Failure> {
    let program = spec.argv.first().map_or("", String::as_str);
    let argv = c_strings(spec.argv.iter().cloned())?;
    let env = c_strings(
        spec.env
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    )?;
    let path = spec
        .env
        .iter()
        .rev()
        .find(|(n, _)| n == "PATH")
        .map_or(DEFAULT_PATH, |(_, v)| v);
    let mut found: Option<(PathBuf, Errno)> = None;
    for candidate in candidates(program, path) {
        let Ok(name) = CString::new(candidate.as_os_str().as_encoded_bytes()) else {
            continue;
        };
        let Err(errno) = execve(&name, &argv, &env);
        // A later directory may still hold it, but a file that was found says more than one that was not.
        if found.is_none() && candidate.exists() {
            found = Some((candidate, errno));
        }
    }
    Err(match found {
        Some((file, Errno::ENOENT)) => Failure {
            code: 127,
            message: format!(
                "{} exists, but the interpreter that it names does not",
                file.display()
            ),
        },
        Some((file, errno)) => Failure {
            code: 126,
            message: format!("cannot execute {}: {}", file.display(), errno.desc()),
        },
        None if program.contains('/') => Failure {
            code: 127,
            message: format!("the program {program} does not exist"),
        },
        None => Failure {
            code: 127,
            message: format!("the program {program} is in no directory of PATH={path}"),
        },
    })
}

fn candidates(program: &str, path: &str) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![program.into()];
    }
    path.split(':')
        .filter(|dir| !dir.is_empty())
        .map(|dir| Path::new(dir).join(program))
        .collect()
}

fn c_strings(all: impl Iterator<Item = String>) -> Result<Vec<CString>, Failure> {
    all.map(CString::new)
        .collect::<Result<_, _>>()
        .map_err(|e| {
            Failure::before_exec(format!(
                "arguments and environment cannot hold a zero byte: {e}"
            ))
        })
}
