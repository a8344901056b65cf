//! A Postgres server of a campaign: in a temporary directory, to be killed and started again.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// As which user the server runs when we are root, which it refuses to be.
const NOBODY: u32 = 65_534;

/// How often it is looked whether the server is up, and the pause between two looks.
const LOOKS: u32 = 1_200;
const PAUSE: Duration = Duration::from_millis(50);

/// The server. Dropping it kills it and removes its directory.
pub(super) struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    port: u16,
    server: Child,
}

impl Postgres {
    /// Makes one and starts it.
    pub(super) fn start() -> Result<Self> {
        let programs = programs()?;
        let directory = tempfile::Builder::new().prefix("longshore-pg-").tempdir()?;
        if is_root()? {
            chown(directory.path(), Some(NOBODY), Some(NOBODY))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let made = unprivileged(&programs.join("initdb"))?
            .arg("-D")
            .arg(directory.path().join("data"))
            .args(["-U", "longshore", "-E", "UTF8", "--locale=C", "-A", "trust"])
            .current_dir("/")
            .output()
            .context("initdb cannot be run")?;
        if !made.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        }
        let server = launch(&programs, directory.path(), port)?;
        let mut postgres = Self {
            programs,
            directory,
            port,
            server,
        };
        postgres.wait_until_up()?;
        Ok(postgres)
    }

    /// Its database.
    pub(super) fn url(&self) -> String {
        format!("postgres://longshore@127.0.0.1:{}/postgres", self.port)
    }

    /// Kills it as hard as can be, and starts it again.
    pub(super) fn kill_and_start(&mut self) -> Result<()> {
        self.server.kill()?;
        self.server.wait()?;
        self.server = launch(&self.programs, self.directory.path(), self.port)?;
        self.wait_until_up()
    }

    fn wait_until_up(&mut self) -> Result<()> {
        for _ in 0..LOOKS {
            let is_up = unprivileged(&self.programs.join("pg_isready"))?
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()?
                .success();
            if is_up {
                return Ok(());
            }
            // It refuses to start while a session of the killed one lives.
            if self.server.try_wait()?.is_some() {
                self.server = launch(&self.programs, self.directory.path(), self.port)?;
            }
            thread::sleep(PAUSE);
        }
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        bail!("Postgres did not come up:\n{log}")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn launch(programs: &Path, directory: &Path, port: u16) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"))?;
    unprivileged(&programs.join("postgres"))?
        .arg("-D")
        .arg(directory.join("data"))
        .arg("-k")
        .arg(directory)
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "shared_buffers=16MB"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("postgres cannot be run")
}

fn programs() -> Result<PathBuf> {
    let versions = (13..=19)
        .rev()
        .map(|n| format!("/usr/lib/postgresql/{n}/bin"));
    let usual = ["/usr/local/bin", "/usr/bin"].map(str::to_owned);
    let is_whole = |bin: &PathBuf| bin.join("initdb").is_file() && bin.join("postgres").is_file();
    versions
        .chain(usual)
        .map(PathBuf::from)
        .find(is_whole)
        .context("there is no Postgres server on this machine")
}

fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

/// The program, as a user whom the server accepts. The process that is spawned becomes the program.
fn unprivileged(program: &Path) -> Result<Command> {
    if !is_root()? {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("setpriv");
    command
        .args([
            format!("--reuid={NOBODY}"),
            format!("--regid={NOBODY}"),
            "--clear-groups".to_owned(),
            "--".to_owned(),
        ])
        .arg(program);
    Ok(command)
}
