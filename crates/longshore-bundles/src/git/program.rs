//! Runs the program `git`: nothing of the machine's or user's configuration, no hooks, no prompts, within a time limit,
//! in a process group that ends with us.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::timeout,
};

use super::{
    credentials::Told,
    error::{Cause, GitError, cause, for_people},
};

/// What is kept of the messages of git, in bytes.
const MAX_SAID: usize = 64 << 10;

/// How long git may tidy up after it was asked to end.
const GRACE: Duration = Duration::from_secs(2);

/// How often the growth of a folder is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The program `git`, and what it is given of the environment.
#[derive(Clone)]
pub struct GitProgram {
    /// Its name or path; default `git`.
    pub program: PathBuf,
    /// Variables that it gets: those that a proxy, certificates or an agent of ssh need, and `PATH`. Everything else of
    /// the environment is kept from it.
    pub environment: Vec<(OsString, OsString)>,
}

/// Without the values of the variables: that of a proxy may have a password.
impl fmt::Debug for GitProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("GitProgram");
        shown
            .field("program", &self.program)
            .field("environment", &names)
            .finish()
    }
}

impl Default for GitProgram {
    fn default() -> Self {
        Self {
            program: PathBuf::from("git"),
            environment: Vec::new(),
        }
    }
}

/// One call of git.
pub(super) struct Call<'a> {
    /// The subcommand, for messages.
    pub(super) what: &'static str,
    pub(super) arguments: Vec<&'a OsStr>,
    pub(super) repository: &'a Path,
    pub(super) told: Told,
    pub(super) limit: Duration,
    /// A folder, and how many bytes it may have.
    pub(super) bound: Option<(&'a Path, u64)>,
    /// What git reads. A lock may stand here that must not be free before git has ended, even if we are killed: git
    /// holds it open for as long as it runs.
    pub(super) input: Option<&'a File>,
    pub(super) max_output: usize,
}

/// What a call came to.
pub(super) struct Answer {
    pub(super) is_success: bool,
    pub(super) output: Vec<u8>,
    pub(super) said: String,
}

impl Answer {
    /// The output, if the call succeeded.
    pub(super) fn ok(self, what: &'static str, path: &Path) -> Result<Vec<u8>, GitError> {
        if self.is_success {
            return Ok(self.output);
        }
        let said = for_people(&self.said);
        Err(match cause(&self.said) {
            Cause::DiskFull => GitError::DiskFull {
                path: path.to_owned(),
            },
            Cause::NotARepository => GitError::NotARepository {
                place: path.display().to_string(),
                said,
            },
            Cause::Refused | Cause::Gone | Cause::Other => GitError::Other { what, said },
        })
    }
}

/// Configuration that holds for every call. It reaches git by the environment, where it counts as much as on the command
/// line, and more than what stands in the clone.
const CONFIG: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.protectNTFS", "true"),
    ("core.protectHFS", "true"),
    ("core.autocrlf", "false"),
    ("core.fsync", "all"),
    ("fetch.recurseSubmodules", "false"),
    ("submodule.recurse", "false"),
    ("transfer.bundleURI", "false"),
    // Nothing that was fetched is ever lost: a run may need it.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // A transfer that stands still ends by itself, also when nobody is left who would end it.
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "60"),
    ("protocol.allow", "never"),
];

const VARIABLES: &[(&str, &str)] = &[
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("LC_ALL", "C"),
];

impl GitProgram {
    fn command(&self, call: &Call<'_>) -> io::Result<Command> {
        let mut command = Command::new(&self.program);
        command.env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.envs(VARIABLES.iter().copied());
        command.env("GIT_DIR", call.repository);
        let repository = call.repository.to_string_lossy();
        let config = CONFIG.iter().map(|(key, value)| (*key, *value));
        let told = call.told.config.iter();
        let config = config
            .chain([("safe.directory", &*repository)])
            .chain(told.map(|(key, value)| (key.as_str(), value.as_str())));
        let mut n_entries = 0;
        for (index, (key, value)) in config.enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{index}"), value);
            n_entries = index + 1;
        }
        command.env("GIT_CONFIG_COUNT", n_entries.to_string());
        let variables = call.told.variables.iter();
        command.envs(variables.map(|(name, value)| (name, value)));
        command.args(&call.arguments);
        let input = match call.input {
            Some(input) => Stdio::from(input.try_clone()?),
            None => Stdio::null(),
        };
        command.stdin(input);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }

    /// Runs git to its end.
    ///
    /// # Cancellation
    /// The process group is killed.
    pub(super) async fn run(&self, call: Call<'_>) -> Result<Answer, GitError> {
        let no_program = |source| GitError::NoProgram {
            program: self.program.clone(),
            source,
        };
        let mut command = self.command(&call).map_err(no_program)?;
        let mut group = Group::of(command.spawn().map_err(no_program)?);
        let output = read_up_to(group.child.stdout.take(), call.max_output);
        let said = read_end(group.child.stderr.take());
        let ended = {
            let all = async { tokio::join!(output, said, group.child.wait()) };
            let watched = async {
                tokio::select! {
                    all = all => Ok(all),
                    found = grown(call.bound) => Err(found),
                }
            };
            timeout(call.limit, watched).await
        };
        let (output, said, status) = match ended {
            Ok(Ok(read)) => read,
            Ok(Err((found, limit))) => {
                group.end().await;
                return Err(GitError::TooLarge {
                    what: "the repository, in bytes",
                    limit,
                    found,
                });
            }
            Err(_) => {
                group.end().await;
                return Err(GitError::TimeLimit {
                    what: call.what,
                    limit: call.limit,
                });
            }
        };
        let failed = |source| GitError::io("reading the output of git in", call.repository, source);
        let (output, is_cut) = output.map_err(failed)?;
        group.is_over = true;
        if is_cut {
            return Err(GitError::TooLarge {
                what: "the list of files of a commit, in bytes",
                limit: call.max_output as u64,
                found: output.len() as u64,
            });
        }
        let status = status.map_err(failed)?;
        Ok(Answer {
            is_success: status.success(),
            output,
            said: said.map_err(failed)?,
        })
    }
}

/// A process with all that it starts.
struct Group {
    child: Child,
    id: Option<Pid>,
    is_over: bool,
}

impl Group {
    fn of(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            child,
            id: id.map(Pid::from_raw),
            is_over: false,
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // The group may have ended by itself.
            let _ = killpg(id, signal);
        }
    }

    /// Asks the group to end, so that git removes its drafts, and kills what is left.
    async fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        let _ = timeout(GRACE, self.child.wait()).await;
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait().await;
        self.is_over = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Reads until the end, or until there is more than `max`: then the second value is true.
async fn read_up_to(
    from: Option<impl AsyncRead + Unpin>,
    max: usize,
) -> io::Result<(Vec<u8>, bool)> {
    let mut read = Vec::new();
    if let Some(from) = from {
        from.take(max as u64 + 1).read_to_end(&mut read).await?;
    }
    let is_cut = read.len() > max;
    Ok((read, is_cut))
}

/// Reads to the end, and keeps the last bytes.
async fn read_end(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut kept = Vec::new();
    let Some(mut from) = from else {
        return Ok(String::new());
    };
    let mut part = vec![0; 4 << 10];
    loop {
        let n_read = from.read(&mut part).await?;
        if n_read == 0 {
            return Ok(String::from_utf8_lossy(&kept).into_owned());
        }
        kept.extend_from_slice(&part[..n_read]);
        let n_too_many = kept.len().saturating_sub(MAX_SAID);
        kept.drain(..n_too_many);
    }
}

/// Returns when a folder has more bytes than it may, with how many and the limit.
async fn grown(bound: Option<(&Path, u64)>) -> (u64, u64) {
    let Some((folder, limit)) = bound else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOOK).await;
        let folder = folder.to_owned();
        let size = tokio::task::spawn_blocking(move || size_of(&folder)).await;
        match size {
            Ok(size) if size > limit => return (size, limit),
            Ok(_) | Err(_) => {}
        }
    }
}

/// The bytes of the files in a folder and below; what cannot be read has none.
pub(super) fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
