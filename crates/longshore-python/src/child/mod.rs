//! A child that speaks frames: started, answered, limited, and watched to its end.

mod supervisor;
mod verdict;

use std::{
    future::Future,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    path::PathBuf,
};

use rmpv::Value;
use tokio::{
    net::{UnixStream, unix::pipe},
    time::Instant,
};

use crate::{
    answers::Answers,
    end::{Ended, NotStarted},
    keeper::Process,
    launch::{Descriptors, Launch},
    limits::Limits,
    prefork::Prefork,
};

/// How children are started.
#[derive(Debug)]
pub enum Starter {
    /// By this interpreter, each in a new one.
    Plain(PathBuf),
    /// By a fork of an interpreter that has imported its modules.
    Prefork(Box<Prefork>),
}

impl Starter {
    /// Starts a process with these descriptors.
    ///
    /// # Errors
    ///
    /// Where nothing of the program has run.
    pub async fn start(
        &self,
        launch: &Launch,
        descriptors: Descriptors,
    ) -> Result<Process, NotStarted> {
        match self {
            Self::Plain(interpreter) => Process::start(interpreter, launch, descriptors).await,
            Self::Prefork(prefork) => prefork.start(launch, descriptors).await,
        }
    }
}

/// A child with a socket for frames as descriptor 0, and one pipe for both of its outputs.
///
/// When this, or the future of [`Child::supervise`], is dropped, the child and all that descends from it are killed.
#[derive(Debug)]
pub struct Child {
    process: Process,
    frames: UnixStream,
    output: pipe::Receiver,
    limits: Limits,
    started_at: Instant,
}

impl Child {
    /// Starts a child. The limit of wall time counts from here.
    ///
    /// # Errors
    ///
    /// Where nothing of the program has run.
    ///
    /// *Cancellation*: the child, if there is one by then, is killed.
    pub async fn start(
        starter: &Starter,
        launch: &Launch,
        limits: Limits,
    ) -> Result<Self, NotStarted> {
        let started_at = Instant::now();
        let (frames, output, descriptors) = descriptors().map_err(NotStarted::Socket)?;
        Ok(Self {
            process: starter.start(launch, descriptors).await?,
            frames,
            output,
            limits,
            started_at,
        })
    }

    /// The process id of the child, and the id of its process group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Sends `first` (with id 0), answers every request, and returns the end of the child.
    ///
    /// When `stop` is ready, the child gets SIGTERM, and SIGKILL after [`Limits::grace`]; pass
    /// [`std::future::pending`] for never.
    ///
    /// *Guarantees*: nothing that descends from the child runs any more, and every whole frame that it wrote has been
    /// answered, except where a limit ended it.
    ///
    /// *Cancellation*: the child and all that descends from it are killed.
    pub async fn supervise<A: Answers>(
        self,
        first: Option<Value>,
        answers: &A,
        stop: impl Future<Output = ()>,
    ) -> Ended {
        supervisor::Supervisor::new(self, answers)
            .run(first, stop)
            .await
    }
}

/// Our ends of the socket and the pipe, and the descriptors of the child.
fn descriptors() -> io::Result<(UnixStream, pipe::Receiver, Descriptors)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    let (reader, writer) = io::pipe()?;
    let descriptors = Descriptors {
        stdin: theirs.into(),
        stdout: OwnedFd::from(writer.try_clone()?),
        stderr: writer.into(),
    };
    let output = pipe::Receiver::from_owned_fd(reader.into())?;
    Ok((UnixStream::from_std(ours)?, output, descriptors))
}
