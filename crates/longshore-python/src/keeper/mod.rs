//! The keeper: a small Python program of ours between us and a child (`keeper.py`).
//!
//! It does what only a parent can do, and what would need `unsafe` here: it starts the child in a process group of its
//! own, adopts the orphans among its descendants, reaps, and kills all of them when the child ends, when we say so, or
//! when we are gone.

mod wire;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::Stdio,
    time::Duration,
};

use tokio::{
    net::unix::pipe,
    process::{Child as Spawned, Command},
    time::timeout,
};
pub(crate) use wire::{Link, Report};

use crate::{
    end::{Exit, Exited, NotStarted, Usage},
    launch::{Descriptors, Launch},
    tail::Tail,
    tree::Tree,
};

/// The program of the keeper and of the prefork server.
pub(crate) const PROGRAM: &str = include_str!("keeper.py");
/// From the start of an interpreter, or a request for a fork, to the first report.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);
/// Bytes kept of what a keeper or a server prints itself.
const NOISE: usize = 16 << 10;

/// A running child under its keeper. When this is dropped, the keeper kills the child and all that descends from it.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    keeper: i32,
    link: Link,
    /// The processes at the last look.
    tree: Tree,
    /// Where the keeper is a child of ours. Tokio reaps it, also after this is dropped.
    _spawned: Option<Spawned>,
    noise: Option<Noise>,
}

/// What the child is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// SIGTERM for its process group.
    Terminate,
    /// SIGKILL for all that descends from it.
    Kill,
}

impl Process {
    /// Starts `interpreter` for the program, under a keeper that runs in the same interpreter.
    ///
    /// # Errors
    ///
    /// Where no keeper could be started: nothing of the program has run. A directory or an interpreter that the
    /// keeper cannot use shows as [`Exit::Refused`].
    pub async fn start(
        interpreter: &Path,
        launch: &Launch,
        descriptors: Descriptors,
    ) -> Result<Self, NotStarted> {
        let mut command = Command::new(interpreter);
        // Isolated, and without site-packages: nothing of the user's runs in the keeper.
        command.args(["-I", "-S", "-c", PROGRAM, "keep"]);
        command.env_clear().envs(&launch.env).current_dir("/");
        let (mut link, noise, spawned) = spawn(&mut command, interpreter)?;
        let fds = [
            descriptors.stdin.as_fd(),
            descriptors.stdout.as_fd(),
            descriptors.stderr.as_fd(),
        ];
        // Where the keeper is gone, its last words say more than our broken pipe.
        let _ = link.send(&launch.to_exec(interpreter), &fds).await;
        drop(descriptors);
        match Self::started(link).await {
            Ok(process) => Ok(Self {
                _spawned: Some(spawned),
                noise: Some(noise),
                ..process
            }),
            Err(Unstarted::Gone) => Err(NotStarted::NoKeeper {
                interpreter: interpreter.to_owned(),
                output: noise.read_all().await.last_lines(LAST_LINES),
            }),
            Err(Unstarted::Why(why)) => Err(why),
        }
    }

    /// Waits for the first report of a keeper.
    pub(crate) async fn started(mut link: Link) -> Result<Self, Unstarted> {
        let report = timeout(START_LIMIT, link.report())
            .await
            .map_err(|_| NotStarted::Slow(START_LIMIT))?;
        match report {
            Some(Report::Started { pid, keeper }) => Ok(Self {
                tree: Tree::below(keeper),
                pid,
                keeper,
                link,
                _spawned: None,
                noise: None,
            }),
            Some(Report::Threads(n)) => Err(NotStarted::Threads(n).into()),
            Some(Report::Broken(text)) => Err(NotStarted::Broken(text).into()),
            Some(other) => Err(NotStarted::Broken(format!("unexpected report {other:?}")).into()),
            None => Err(Unstarted::Gone),
        }
    }

    /// The process id of the child, and the id of its process group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Resident memory in bytes of the child and of all that descends from it, the keeper excluded.
    pub fn memory(&mut self) -> u64 {
        self.tree = Tree::below(self.keeper);
        self.tree.rss
    }

    /// Tells the child to end. Nothing happens where it has ended.
    pub fn tell(&self, what: Tell) {
        self.link.command(match what {
            Tell::Terminate => b"t",
            Tell::Kill => b"k",
        });
    }

    /// Waits until the child has ended, and nothing that descends from it runs any more.
    ///
    /// *Cancellation*: safe; the child runs on.
    pub async fn wait(&mut self) -> Exited {
        loop {
            match self.link.report().await {
                Some(Report::Ended(exited)) => return exited,
                Some(Report::Started { .. } | Report::Threads(_)) => {}
                Some(Report::Broken(text)) => return self.lost(text),
                Some(Report::Ready | Report::NoServer { .. }) => {}
                None => {
                    let words = self.noise.as_mut().map(Noise::so_far).unwrap_or_default();
                    return self.lost(words);
                }
            }
        }
    }

    /// The keeper is gone. Its child has died with it (PR_SET_PDEATHSIG); the others are killed from here: what shares
    /// the session of the keeper, and what was there at the last look. A process that left the session after that look
    /// escapes, because nothing says any more whose it was.
    fn lost(&self, why: String) -> Exited {
        self.tree.kill_orphans(self.keeper);
        Exited {
            exit: Exit::KeeperLost(why),
            usage: Usage::default(),
            n_left: 0,
        }
    }

    /// Kills the keeper too, which does not do what it is told: it leads the session that is killed.
    pub(crate) fn abandon(&mut self) -> Exited {
        self.memory();
        self.lost("the keeper did not end the child in time and was killed".to_owned())
    }
}

/// Lines of what a process printed that go into an error.
pub(crate) const LAST_LINES: usize = 20;

/// Why there is no first report.
#[derive(Debug)]
pub(crate) enum Unstarted {
    /// The socket was closed before: nothing of the program has run.
    Gone,
    Why(NotStarted),
}

impl From<NotStarted> for Unstarted {
    fn from(why: NotStarted) -> Self {
        Self::Why(why)
    }
}

/// Starts our program in an interpreter, with a socket to it as descriptor 0.
pub(crate) fn spawn(
    command: &mut Command,
    interpreter: &Path,
) -> Result<(Link, Noise, Spawned), NotStarted> {
    let (link, theirs) = Link::pair().map_err(NotStarted::Socket)?;
    let (reader, writer) = io::pipe().map_err(NotStarted::Socket)?;
    let again = writer.try_clone().map_err(NotStarted::Socket)?;
    command
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(writer))
        .stderr(Stdio::from(again));
    let spawned = command.spawn().map_err(|source| NotStarted::Interpreter {
        interpreter: interpreter.to_owned(),
        source,
    });
    // Our copies of the writing ends would keep the pipe open.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok((
        link,
        Noise::new(reader.into()).map_err(NotStarted::Socket)?,
        spawned?,
    ))
}

/// What a keeper or a server prints itself.
#[derive(Debug)]
pub(crate) struct Noise {
    pipe: pipe::Receiver,
    tail: Tail,
}

impl Noise {
    fn new(reader: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            pipe: pipe::Receiver::from_owned_fd(reader)?,
            tail: Tail::new(NOISE),
        })
    }

    /// The last lines of what there is to read now.
    pub(crate) fn so_far(&mut self) -> String {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = self.pipe.try_read(&mut buffer) {
            self.tail.push(&buffer[..n]);
        }
        self.tail.last_lines(LAST_LINES)
    }

    /// Reads on until the other side is closed, or the caller stops waiting.
    ///
    /// *Cancellation*: safe.
    pub(crate) async fn read(&mut self) {
        loop {
            let mut buffer = [0; 4096];
            match self
                .pipe
                .readable()
                .await
                .and_then(|()| self.pipe.try_read(&mut buffer))
            {
                Ok(0) => return,
                Ok(n) => self.tail.push(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// All that was printed by a process that has ended or is about to.
    pub(crate) async fn read_all(mut self) -> Tail {
        let _ = timeout(Duration::from_secs(1), self.read()).await;
        self.tail
    }
}
