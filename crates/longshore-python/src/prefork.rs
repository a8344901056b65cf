//! The prefork server: an interpreter that has imported its modules once, and forks one child for each request.
//!
//! A child that is forked has what a fresh one would have imported, in a hundredth of the time. It belongs to a keeper of
//! its own, not to the server: when the server dies, its children run on, and the next start gets a new server.
//!
//! What was read at import stays as it is: environment variables that a module reads when it is imported, user, files.
//! Children that need others need another server (reference: Airflow's parts, section 3).

use std::{collections::BTreeMap, ffi::OsString, fmt, os::fd::AsFd, path::PathBuf, time::Duration};

use serde_json::json;
use tokio::{
    process::{Child as Spawned, Command},
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::{
    end::NotStarted,
    keeper::{self, LAST_LINES, Link, Noise, PROGRAM, Process, Report, Unstarted},
    launch::{Descriptors, Launch},
    restarts::Restarts,
};

/// What a prefork server is.
#[derive(Clone, PartialEq, Eq)]
pub struct PreforkSpec {
    /// The interpreter.
    pub interpreter: PathBuf,
    /// The whole environment while the modules are imported. Each child then gets its own.
    pub env: BTreeMap<OsString, OsString>,
    /// The working directory while the modules are imported.
    pub cwd: PathBuf,
    /// The modules, in this order.
    pub preload: Vec<String>,
    /// From the start of the server until everything is imported.
    pub preload_timeout: Duration,
}

/// Without the values of the environment, which may be secrets.
impl fmt::Debug for PreforkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreforkSpec")
            .field("interpreter", &self.interpreter)
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("preload", &self.preload)
            .field("preload_timeout", &self.preload_timeout)
            .finish()
    }
}

/// A prefork server that is started when it is needed, and again when it has died.
///
/// When this is dropped, the server ends; the children that it has forked do not.
#[derive(Debug)]
pub struct Prefork {
    spec: PreforkSpec,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    server: Option<Server>,
    restarts: Restarts,
    /// No server is started before, with how the last one ended.
    pause: Option<(Instant, String)>,
}

#[derive(Debug)]
struct Server {
    link: Link,
    noise: Noise,
    spawned: Spawned,
    started_at: Instant,
}

impl Prefork {
    /// Starts nothing yet.
    pub fn new(spec: PreforkSpec, restarts: Restarts) -> Self {
        Self {
            spec,
            state: Mutex::new(State {
                server: None,
                restarts,
                pause: None,
            }),
        }
    }

    /// Starts the server now, so that the first child does not wait for it. Nothing happens where it runs.
    ///
    /// # Errors
    ///
    /// As [`Prefork::start`].
    pub async fn warm_up(&self) -> Result<(), NotStarted> {
        self.state.lock().await.server(&self.spec).await.map(|_| ())
    }

    /// The process id of the server, where one runs.
    pub async fn server_pid(&self) -> Option<u32> {
        self.state.lock().await.server.as_ref()?.spawned.id()
    }

    /// Forks a process for the program.
    ///
    /// A server that dies while it is asked is replaced once: the keeper reports the pid before the child runs its
    /// first line, so that without a report nothing has run.
    ///
    /// # Errors
    ///
    /// Where nothing of the program has run. [`NotStarted::BackingOff`] and the errors of an import leave it to the
    /// caller to start the program plainly meanwhile.
    pub async fn start(
        &self,
        launch: &Launch,
        descriptors: Descriptors,
    ) -> Result<Process, NotStarted> {
        let request = launch.to_fork();
        let mut words = String::new();
        for _ in 0..2 {
            let (link, theirs) = Link::pair().map_err(NotStarted::Socket)?;
            let fds = [
                theirs.as_fd(),
                descriptors.stdin.as_fd(),
                descriptors.stdout.as_fd(),
                descriptors.stderr.as_fd(),
            ];
            let mut state = self.state.lock().await;
            let server = state.server(&self.spec).await?;
            let asked = server.started_at;
            let is_sent = server.link.send(&request, &fds).await.is_ok();
            drop(theirs);
            // The answer comes over a socket of its own: others may ask meanwhile.
            drop(state);
            let started = match is_sent {
                true => Process::started(link).await,
                false => Err(Unstarted::Gone),
            };
            match started {
                Ok(process) => return Ok(process),
                Err(Unstarted::Why(why)) => return Err(why),
                Err(Unstarted::Gone) => {
                    let mut state = self.state.lock().await;
                    // Somebody else may have replaced it by now.
                    if state
                        .server
                        .as_ref()
                        .is_some_and(|server| server.started_at == asked)
                    {
                        words = state.drop_server().await;
                    }
                }
            }
        }
        Err(NotStarted::ServerGone(words))
    }
}

impl State {
    /// The running server, or a new one.
    async fn server(&mut self, spec: &PreforkSpec) -> Result<&mut Server, NotStarted> {
        if let Some(server) = &mut self.server {
            server.noise.so_far();
            if !matches!(server.spawned.try_wait(), Ok(None)) {
                self.drop_server().await;
            }
        }
        if self.server.is_none() {
            let now = Instant::now();
            if let Some((until, why)) = self.pause.as_ref().filter(|(until, _)| *until > now) {
                return Err(NotStarted::BackingOff {
                    wait: *until - now,
                    why: why.clone(),
                });
            }
            match Server::start(spec).await {
                Ok(server) => self.server = Some(server),
                Err(why) => {
                    self.pause_for(Duration::ZERO, why.to_string());
                    return Err(why);
                }
            }
        }
        self.server.as_mut().ok_or(NotStarted::Slow(Duration::ZERO))
    }

    /// Forgets a server that has died, and returns its last lines.
    async fn drop_server(&mut self) -> String {
        let Some(server) = self.server.take() else {
            return String::new();
        };
        let lived = server.started_at.elapsed();
        drop(server.link);
        let words = server.noise.read_all().await.last_lines(LAST_LINES);
        tracing::warn!(lived_ms = lived.as_millis(), output = %words, "a prefork server has died");
        self.pause_for(lived, format!("it lived for {lived:?}"));
        words
    }

    fn pause_for(&mut self, lived: Duration, why: String) {
        let wait = self.restarts.ended(lived);
        self.pause = Some((Instant::now() + wait, why));
    }
}

impl Server {
    async fn start(spec: &PreforkSpec) -> Result<Self, NotStarted> {
        let mut command = Command::new(&spec.interpreter);
        command.args(["-c", PROGRAM, "serve"]);
        command.env_clear().envs(&spec.env).current_dir(&spec.cwd);
        // Where we give up on it while it imports.
        command.kill_on_drop(true);
        let started_at = Instant::now();
        let (mut link, mut noise, spawned) = keeper::spawn(&mut command, &spec.interpreter)?;
        let _ = link.send(&json!({"preload": spec.preload}), &[]).await;
        let report = async {
            tokio::select! {
                report = link.report() => report,
                // It has closed its outputs, or is gone.
                () = noise.read() => link.report().await,
            }
        };
        let report = timeout(spec.preload_timeout, report)
            .await
            .map_err(|_| NotStarted::Slow(spec.preload_timeout))?;
        match report {
            Some(Report::Ready) => Ok(Self {
                link,
                noise,
                spawned,
                started_at,
            }),
            Some(Report::NoServer { why, text }) if why == "threads" => {
                Err(NotStarted::Threads(text.parse().unwrap_or_default()))
            }
            Some(Report::NoServer { text, .. }) => Err(NotStarted::Import {
                module: text,
                output: noise.read_all().await.last_lines(LAST_LINES),
            }),
            Some(other) => Err(NotStarted::Broken(format!("unexpected report {other:?}"))),
            None => Err(NotStarted::NoKeeper {
                interpreter: spec.interpreter.clone(),
                output: noise.read_all().await.last_lines(LAST_LINES),
            }),
        }
    }
}
